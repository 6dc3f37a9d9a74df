//! Diagnostics as SARIF 2.1.0, the exchange format of static analysis: one run, a rule for each
//! code that there is.

use serde::Serialize;
use shard_check::diagnostics::ALL;
use shard_check::{Diagnostic, Help, Severity};
use shard_grammar::{SourceFile, Span};

use super::text;
use crate::InFile;
use crate::pages;

#[derive(Debug, Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Tool,
    /// Columns count characters.
    column_kind: &'static str,
    results: Vec<Found<'a>>,
}

#[derive(Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Debug, Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<RuleJson>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleJson {
    id: &'static str,
    short_description: Message<'static>,
    help_uri: String,
    default_configuration: Configuration,
}

#[derive(Debug, Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Found<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: &'static str,
    message: Message<'a>,
    locations: Vec<Location<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fixes: Vec<Fix<'a>>,
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    text: std::borrow::Cow<'a, str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    physical_location: Physical,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Clone, Debug, Serialize)]
struct Artifact {
    uri: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
    start_column: usize,
    end_line: usize,
    end_column: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fix<'a> {
    description: Message<'a>,
    artifact_changes: [Change<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change<'a> {
    artifact_location: Artifact,
    replacements: Vec<Replacement<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replacement<'a> {
    deleted_region: Region,
    inserted_content: Message<'a>,
}

/// The log of `--format sarif`.
pub fn sarif(files: &[InFile<'_>]) -> String {
    let rules = ALL.iter().map(|(code, title, _)| RuleJson {
        id: code,
        short_description: message(title),
        help_uri: pages::uri(code),
        default_configuration: Configuration {
            level: if code.starts_with('W') { "warning" } else { "error" },
        },
    });
    let results = files
        .iter()
        .flat_map(|(file, list)| list.iter().map(|diagnostic| found(*file, diagnostic)));
    text(&Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run {
            tool: Tool {
                driver: Driver {
                    name: "shardc",
                    version: env!("CARGO_PKG_VERSION"),
                    rules: rules.collect(),
                },
            },
            column_kind: "unicodeCodePoints",
            results: results.collect(),
        }],
    })
}

fn found<'a>(file: Option<&SourceFile>, diagnostic: &'a Diagnostic) -> Found<'a> {
    // What is wrong with the whole file, or on the command line, has no region.
    let place = |span: Option<Span>, words: Option<&'a str>| {
        let file = file?;
        let artifact_location = Artifact { uri: uri(&file.name) };
        let region = span.map(|span| region(file, span));
        Some(Location {
            physical_location: Physical { artifact_location, region },
            message: words.map(message),
        })
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
    Found {
        rule_id: (!diagnostic.code.is_empty()).then_some(diagnostic.code),
        rule_index: ALL.iter().position(|(code, ..)| *code == diagnostic.code),
        level: match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        },
        message: Message { text: lines.join("\n").into() },
        locations: first.into_iter().collect(),
        related_locations: others
            .filter_map(|label| place(Some(label.span), Some(&label.text)))
            .collect(),
        fixes: diagnostic.helps.iter().filter_map(|help| fix(file?, help)).collect(),
    }
}

fn fix<'a>(file: &SourceFile, help: &'a Help) -> Option<Fix<'a>> {
    if help.edits.is_empty() {
        return None;
    }
    let replacements = help.edits.iter().map(|edit| Replacement {
        deleted_region: region(file, edit.span),
        inserted_content: message(&edit.replacement),
    });
    let artifact_location = Artifact { uri: uri(&file.name) };
    let artifact_changes = [Change { artifact_location, replacements: replacements.collect() }];
    Some(Fix { description: message(&help.text), artifact_changes })
}

fn message(text: &str) -> Message<'_> {
    Message { text: text.into() }
}

fn region(file: &SourceFile, span: Span) -> Region {
    let (start, end) = (file.line_column(span.start), file.line_column(span.end));
    Region {
        start_line: start.line,
        start_column: start.column,
        end_line: end.line,
        end_column: end.column,
    }
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
