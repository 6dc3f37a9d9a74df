//! Fills in the phrases of the catalogue.

use crate::never;

/// A phrase with each `{name}` replaced by what fills the slot of this name. A part in brackets is
/// left out where one of its slots is empty.
///
/// ```
/// let fill = |name: &str| (name != "extent").then(|| name.to_uppercase());
/// assert_eq!(shard_ops::filled("over {dim} at {position}[ of {extent}]", fill), "over DIM at POSITION");
/// ```
pub fn filled(phrase: &str, fill: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    for part in phrase.split(['[', ']']) {
        let mut pieces = part.split(['{', '}']);
        let mut text =
            pieces.next().unwrap_or_else(|| never!("a text split into no piece", "")).to_string();
        // Names and texts alternate behind the first piece.
        let mut whole = true;
        while let Some(name) = pieces.next() {
            match fill(name) {
                Some(value) => text += &value,
                None => whole = false,
            }
            text +=
                pieces.next().unwrap_or_else(|| never!("a name in a phrase without an end", ""));
        }
        if whole {
            out += &text;
        }
    }
    out
}
