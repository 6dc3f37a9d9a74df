//! Diagnostics and edits as the protocol has them.

use std::collections::HashMap;

use lsp_server::{Message, Notification};
use lsp_types::notification::{self, Notification as _};
use lsp_types::{
    CodeDescription, Diagnostic, DiagnosticRelatedInformation, DiagnosticSeverity, Location,
    NumberOrString, Position, PublishDiagnosticsParams, Range, TextEdit, Uri, WorkspaceEdit,
};
use shard_check::Severity;
use shard_grammar::{SourceFile, Span};

use super::document::Document;
use super::position::{position_of, range_of};

/// The edit that formats a file; none where it is formatted already.
pub(super) fn formatted(document: &Document) -> Option<Vec<TextEdit>> {
    let new_text = shard_grammar::format(&document.file).ok()?;
    if new_text == document.file.text {
        return Some(Vec::new());
    }
    let end = position_of(&document.file, document.file.text.len());
    Some(vec![TextEdit { range: Range { start: Position::default(), end }, new_text }])
}

/// Edits of one file as an edit of the workspace.
#[allow(clippy::mutable_key_type)] // the type of the protocol; nobody changes a key
pub(super) fn edit_of(uri: &Uri, edits: Vec<TextEdit>) -> WorkspaceEdit {
    WorkspaceEdit {
        changes: Some(HashMap::from([(uri.clone(), edits)])),
        ..WorkspaceEdit::default()
    }
}

/// The message that shows what was found in a version of a file, in place of what was shown before.
pub(super) fn publication(
    uri: &Uri,
    version: i32,
    file: &SourceFile,
    found: &[shard_check::Diagnostic],
) -> Message {
    let params = PublishDiagnosticsParams {
        uri: uri.clone(),
        diagnostics: found.iter().map(|d| to_client(uri, file, d)).collect(),
        version: Some(version),
    };
    Message::Notification(Notification::new(
        notification::PublishDiagnostics::METHOD.to_string(),
        params,
    ))
}

/// A diagnostic as the protocol has it: notes and helps stand below the message.
pub(super) fn to_client(
    uri: &Uri,
    file: &SourceFile,
    found: &shard_check::Diagnostic,
) -> Diagnostic {
    let mut message = found.message.clone();
    let notes = found
        .notes
        .iter()
        .cloned()
        .chain(found.helps.iter().map(|help| format!("help: {}", help.text)));
    for note in notes {
        message.push('\n');
        message.push_str(&note);
    }
    let others = found.labels.iter().filter(|label| !label.primary).map(|label| {
        DiagnosticRelatedInformation {
            location: Location { uri: uri.clone(), range: range_of(file, label.span) },
            message: label.text.clone(),
        }
    });
    Diagnostic {
        range: range_of(file, found.primary_span().unwrap_or(Span::at(0))),
        severity: Some(match found.severity {
            Severity::Error => DiagnosticSeverity::ERROR,
            Severity::Warning => DiagnosticSeverity::WARNING,
            Severity::Note => DiagnosticSeverity::INFORMATION,
        }),
        code: Some(NumberOrString::String(found.code.to_string())),
        code_description: shard_report::pages::uri(found.code)
            .parse()
            .ok()
            .map(|href| CodeDescription { href }),
        source: Some("shardc".to_string()),
        message,
        related_information: Some(others.collect()),
        ..Diagnostic::default()
    }
}
