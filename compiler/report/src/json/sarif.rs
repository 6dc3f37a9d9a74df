//! Diagnostics as SARIF 2.1.0, the exchange format of static analysis: one run, a rule for each
//! code that there is.

use serde::Serialize;
use shard_check::diagnostics::ALL;
use shard_check::{Diagnostic, Help};
use shard_grammar::{SourceFile, Span};

use super::object::Said;
use super::text;
use crate::{InFile, object, pages};

#[derive(Debug, Serialize)]
struct Log<Run> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

/// The log of `--format sarif`.
pub fn sarif(files: &[InFile<'_>]) -> String {
    let rules = ALL.iter().map(|(code, title, _)| {
        let level = if code.starts_with('W') { "warning" } else { "error" };
        object!(Rule {
            id: code,
            shortDescription: message(title),
            helpUri: pages::uri(code),
            defaultConfiguration: object!(Configuration { level }),
        })
    });
    let results = files
        .iter()
        .flat_map(|(file, list)| list.iter().map(|diagnostic| found(*file, diagnostic)));
    let driver = object!(Driver {
        name: "shardc",
        version: env!("CARGO_PKG_VERSION"),
        rules: rules.collect::<Vec<_>>(),
    });
    let run = object!(Run {
        tool: object!(Tool { driver }),
        // Columns count characters.
        columnKind: "unicodeCodePoints",
        results: results.collect::<Vec<_>>(),
    });
    text(&Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [run],
    })
}

fn found(file: Option<&SourceFile>, diagnostic: &Diagnostic) -> impl Serialize {
    // What is wrong with the whole file, or on the command line, has no region.
    let place = |span: Option<Span>, words: Option<&str>| {
        let file = file?;
        Some(object!(Location {
            physicalLocation: object!(Physical {
                artifactLocation: artifact(file),
                region: Said(span.map(|span| region(file, span))),
            }),
            message: Said(words.map(message)),
        }))
    };
    let first = place(diagnostic.primary_span(), None);
    let others = diagnostic.labels.iter().filter(|label| !label.primary);
    let helps = diagnostic.helps.iter().map(|help| format!("help: {}", help.text));
    let lines: Vec<String> = std::iter::once(diagnostic.message.clone())
        .chain(
            diagnostic.labels.iter().filter(|label| label.primary).map(|label| label.text.clone()),
        )
        .chain(diagnostic.notes.iter().map(|note| format!("note: {note}")))
        .chain(helps)
        .collect();
    object!(Found {
        ruleId: Said((!diagnostic.code.is_empty()).then_some(diagnostic.code)),
        ruleIndex: Said(ALL.iter().position(|(code, ..)| *code == diagnostic.code)),
        level: diagnostic.severity.word(),
        message: message(&lines.join("\n")),
        locations: first.into_iter().collect::<Vec<_>>(),
        relatedLocations: Said::list(
            others.filter_map(|label| place(Some(label.span), Some(&label.text)))
        ),
        fixes: Said::list(diagnostic.helps.iter().filter_map(|help| fix(file?, help))),
    })
}

fn fix(file: &SourceFile, help: &Help) -> Option<impl Serialize> {
    if help.edits.is_empty() {
        return None;
    }
    let replacements = help.edits.iter().map(|edit| {
        object!(Replacement {
            deletedRegion: region(file, edit.span),
            insertedContent: message(&edit.replacement),
        })
    });
    Some(object!(Fix {
        description: message(&help.text),
        artifactChanges: [object!(Change {
            artifactLocation: artifact(file),
            replacements: replacements.collect::<Vec<_>>(),
        })],
    }))
}

fn message(text: &str) -> impl Serialize + use<> {
    object!(Message { text: text.to_string() })
}

fn artifact(file: &SourceFile) -> impl Serialize {
    object!(Artifact { uri: uri(&file.name) })
}

fn region(file: &SourceFile, span: Span) -> impl Serialize {
    let (start, end) = (file.line_column(span.start), file.line_column(span.end));
    object!(Region {
        startLine: start.line,
        startColumn: start.column,
        endLine: end.line,
        endColumn: end.column,
    })
}

/// A path as a relative reference: what may not stand in one is percent-encoded.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte))
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
