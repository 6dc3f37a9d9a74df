//! Diagnostics as GitHub workflow commands: one line each, which an action shows beside the line of
//! the source.
//!
//! ```text
//! ::error file=mlp.shard,line=7,col=3,endLine=7,endColumn=9,title=E0601::there is no value `h` here%0Ahelp: x
//! ```

use shard_check::{Diagnostic, Severity};

use crate::InFile;

/// One command for each diagnostic; nothing where there are none.
pub fn github(files: &[InFile<'_>]) -> String {
    let mut out = String::new();
    for (file, list) in files {
        for diagnostic in *list {
            out.push_str(&command(*file, diagnostic));
        }
    }
    out
}

fn command(file: Option<&shard_grammar::SourceFile>, diagnostic: &Diagnostic) -> String {
    let word = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let mut properties = Vec::new();
    if let Some(file) = file {
        properties.push(("file", file.name.clone()));
        if let Some(span) = diagnostic.primary_span() {
            let (start, end) = (file.line_column(span.start), file.line_column(span.end));
            properties.push(("line", start.line.to_string()));
            properties.push(("col", start.column.to_string()));
            properties.push(("endLine", end.line.to_string()));
            properties.push(("endColumn", end.column.to_string()));
        }
    }
    if !diagnostic.code.is_empty() {
        properties.push(("title", diagnostic.code.to_string()));
    }
    let properties: Vec<String> =
        properties.iter().map(|(key, text)| format!("{key}={}", property(text))).collect();
    let blank = if properties.is_empty() { "" } else { " " };
    format!("::{word}{blank}{}::{}\n", properties.join(","), data(&words(file, diagnostic)))
}

/// The sentence, what is said of other places, the notes and the helps, a line each.
fn words(file: Option<&shard_grammar::SourceFile>, diagnostic: &Diagnostic) -> String {
    let mut lines = vec![diagnostic.message.clone()];
    for label in &diagnostic.labels {
        match file.filter(|_| !label.primary) {
            Some(file) => lines.push(format!(
                "line {}: {}",
                file.line_column(label.span.start).line,
                label.text
            )),
            None => lines.push(label.text.clone()),
        }
    }
    lines.extend(diagnostic.notes.iter().map(|note| format!("note: {note}")));
    lines.extend(diagnostic.helps.iter().map(|help| format!("help: {}", help.text)));
    lines.join("\n")
}

/// What a command says: it ends with its line, so line ends are escaped, and `%`, which escapes.
pub fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command, which ends at a comma or colon.
pub fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
