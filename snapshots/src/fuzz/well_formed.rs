//! The claims about every diagnostic.

use shard_check::Diagnostic;
use shard_grammar::{SourceFile, Span};
use shard_report::InFile;

/// Diagnostics of one file point into it, replace stretches of it that do not overlap, and can be
/// shown in every format.
pub(super) fn diagnostics(file: &SourceFile, list: &[Diagnostic]) -> Result<(), String> {
    for found in list {
        let code = found.code;
        for label in &found.labels {
            within(file, label.span).map_err(|why| format!("{code}: a label {why}"))?;
        }
        if found.labels.iter().filter(|label| label.primary).count() > 1 {
            return Err(format!("{code}: two labels are primary"));
        }
        for help in &found.helps {
            let mut edits: Vec<Span> = help.edits.iter().map(|edit| edit.span).collect();
            edits.sort();
            for edit in &edits {
                within(file, *edit).map_err(|why| format!("{code}: an edit {why}"))?;
            }
            if edits.windows(2).any(|pair| pair[1].start < pair[0].end) {
                return Err(format!("{code}: the edits of a help overlap"));
            }
        }
        if found.message.is_empty() || found.message.contains('\n') {
            return Err(format!("{code}: the message is no one line"));
        }
        if code == "E0901" {
            return Err(format!("{code}: {}", found.message));
        }
    }
    shown(file, list)
}

/// Whether a place is in the text.
pub(super) fn within(file: &SourceFile, span: Span) -> Result<(), String> {
    match file.text.get(span.start..span.end) {
        Some(_) => Ok(()),
        None => {
            Err(format!("lies at {}..{}, which is no stretch of the text", span.start, span.end))
        }
    }
}

fn shown(file: &SourceFile, list: &[Diagnostic]) -> Result<(), String> {
    let files: [InFile<'_>; 1] = [(Some(file), list)];
    let drawn = shard_report::draw::diagnostics(list, file, false);
    shard_report::draw::diagnostics(list, file, true);
    shard_report::github::github(&files);
    for document in [
        shard_report::json::diagnostics::diagnostics(&files),
        shard_report::json::sarif::sarif(&files),
    ] {
        serde_json::from_str::<serde_json::Value>(&document)
            .map_err(|error| format!("no JSON: {error}"))?;
    }
    if list.is_empty() != drawn.is_empty() {
        return Err("diagnostics are drawn as nothing".to_string());
    }
    Ok(())
}
