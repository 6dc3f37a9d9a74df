//! JSON: each document is an [`object!`](crate::object!) that serialises to it, held to its schema
//! in `spec/schema/` by a test.

pub mod bound;
mod compared;
pub mod cost;
pub mod diagnostics;
pub mod diff;
pub mod explain;
pub mod explain_code;
pub mod hardware;
pub(crate) mod instruction;
pub mod object;
pub(crate) mod placed;
pub mod run;
pub mod sarif;
pub mod schedule;
pub(crate) mod sharing;
pub mod sweep;
pub mod trace;
pub mod verify_certificate;
pub mod why;
pub mod why_not;

use serde::Serialize;
use serde::ser::SerializeMap;
use shard_ir::never;

/// A document as text, indented, with a line end.
pub fn text(document: &impl Serialize) -> String {
    // Serialising these types to memory cannot fail: every key is a string, and no float is written
    // as a key.
    let mut text = serde_json::to_string_pretty(document)
        .unwrap_or_else(|_| never!("a document that cannot be written", String::new()));
    text.push('\n');
    text
}

/// A JSON object from pairs, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Ordered<V>(pub(crate) Vec<(String, V)>);

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A place in the source.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SpanJson {
    line: usize,
    column: usize,
    byte_start: usize,
    byte_end: usize,
}

impl SpanJson {
    pub(crate) fn new(file: &shard_grammar::SourceFile, span: shard_grammar::Span) -> SpanJson {
        let at = file.line_column(span.start);
        SpanJson { line: at.line, column: at.column, byte_start: span.start, byte_end: span.end }
    }
}
