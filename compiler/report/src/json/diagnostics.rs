//! `shardc.diagnostics/1`.

use serde::Serialize;
use shard_check::Diagnostic;
use shard_grammar::SourceFile;

use super::{SpanJson, text};
use crate::{InFile, object, pages};

/// The document of `--error-format json`.
pub fn diagnostics(files: &[InFile<'_>]) -> String {
    text(&object!(DiagnosticsJson {
        schema: "shardc.diagnostics/1",
        diagnostics: files
            .iter()
            .flat_map(|(file, list)| list.iter().map(|d| diagnostic(*file, d)))
            .collect::<Vec<_>>(),
    }))
}

fn diagnostic(file: Option<&SourceFile>, d: &Diagnostic) -> impl Serialize {
    let place = |span| file.map(|file| SpanJson::new(file, span));
    object!(DiagnosticJson {
        code: (!d.code.is_empty()).then_some(d.code),
        // Where the specification says more of the code.
        page: (!d.code.is_empty()).then(|| pages::path(d.code)),
        severity: d.severity.word(),
        message: &d.message,
        file: file.map(|f| f.name.as_str()),
        // The place at which it is reported.
        span: d.primary_span().and_then(place),
        labels: d
            .labels
            .iter()
            .filter_map(|l| {
                Some(object!(LabelJson { span: place(l.span)?, text: &l.text, primary: l.primary }))
            })
            .collect::<Vec<_>>(),
        notes: &d.notes,
        helps: d
            .helps
            .iter()
            .map(|h| object!(HelpJson {
                text: &h.text,
                edits: h
                    .edits
                    .iter()
                    .filter_map(|e| {
                        Some(object!(EditJson {
                            span: place(e.span)?,
                            replacement: &e.replacement
                        }))
                    })
                    .collect::<Vec<_>>(),
            }))
            .collect::<Vec<_>>(),
    })
}
