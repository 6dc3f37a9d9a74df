//! `shardc.diagnostics/1`.

use serde::Serialize;
use shard_check::Diagnostic;
use shard_grammar::SourceFile;

use super::{SpanJson, text};
use crate::{InFile, pages};

#[derive(Debug, Serialize)]
struct DiagnosticsJson<'a> {
    schema: &'static str,
    diagnostics: Vec<DiagnosticJson<'a>>,
}

#[derive(Debug, Serialize)]
struct DiagnosticJson<'a> {
    code: Option<&'a str>,
    /// Where the specification says more of the code.
    page: Option<String>,
    severity: &'static str,
    message: &'a str,
    file: Option<&'a str>,
    /// The place at which it is reported.
    span: Option<SpanJson>,
    labels: Vec<LabelJson<'a>>,
    notes: &'a [String],
    helps: Vec<HelpJson<'a>>,
}

#[derive(Debug, Serialize)]
struct LabelJson<'a> {
    span: SpanJson,
    text: &'a str,
    primary: bool,
}

#[derive(Debug, Serialize)]
struct HelpJson<'a> {
    text: &'a str,
    edits: Vec<EditJson<'a>>,
}

#[derive(Debug, Serialize)]
struct EditJson<'a> {
    span: SpanJson,
    replacement: &'a str,
}

/// The document of `--error-format json`.
pub fn diagnostics(files: &[InFile<'_>]) -> String {
    text(&DiagnosticsJson {
        schema: "shardc.diagnostics/1",
        diagnostics: files
            .iter()
            .flat_map(|(file, list)| list.iter().map(|d| diagnostic(*file, d)))
            .collect(),
    })
}

fn diagnostic<'a>(file: Option<&'a SourceFile>, d: &'a Diagnostic) -> DiagnosticJson<'a> {
    let place = |span| file.map(|file| SpanJson::new(file, span));
    DiagnosticJson {
        code: (!d.code.is_empty()).then_some(d.code),
        page: (!d.code.is_empty()).then(|| pages::path(d.code)),
        severity: d.severity.word(),
        message: &d.message,
        file: file.map(|f| f.name.as_str()),
        span: d.primary_span().and_then(place),
        labels: d
            .labels
            .iter()
            .filter_map(|l| {
                Some(LabelJson { span: place(l.span)?, text: &l.text, primary: l.primary })
            })
            .collect(),
        notes: &d.notes,
        helps: d
            .helps
            .iter()
            .map(|h| HelpJson {
                text: &h.text,
                edits: h
                    .edits
                    .iter()
                    .filter_map(|e| {
                        Some(EditJson { span: place(e.span)?, replacement: &e.replacement })
                    })
                    .collect(),
            })
            .collect(),
    }
}
