//! Attributes, which stand behind the operands of an instruction: `channel_id=1, dimensions={0},
//! ...`.

use super::scan::{Cursor, is_of_name};

/// The attributes of an instruction, in order, as `(name, value)`.
///
/// ```
/// use shard_audit::hlo::attributes::{attribute, attributes};
///
/// let all = ", channel_id=1, replica_groups=mesh['a'=2], device_ids=([2]) {'a'}, dimensions={0}";
/// assert_eq!(attribute(all, "replica_groups"), Some("mesh['a'=2], device_ids=([2]) {'a'}"));
/// assert_eq!(attributes(all).count(), 3);
/// ```
pub fn attributes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut cursor = Cursor::new(text);
    std::iter::from_fn(move || {
        loop {
            cursor.take_while(|b| b == b',' || b.is_ascii_whitespace());
            if cursor.at_end() {
                return None;
            }
            let start = cursor.at();
            let name = cursor.take_while(is_of_name);
            if name.is_empty() || !cursor.take("=") {
                // A part that is no attribute is skipped up to its comma.
                cursor.balanced(|b| b == b',').ok()?;
                if cursor.at() == start {
                    return None;
                }
                continue;
            }
            let from = cursor.at();
            cursor.balanced(|b| b == b',').ok()?;
            // A mesh may have a comma, and behind it its devices.
            if text[from..].starts_with("mesh[") && text[cursor.at()..].starts_with(", device_ids=")
            {
                cursor.take(",");
                cursor.balanced(|b| b == b',').ok()?;
            }
            return Some((name, text[from..cursor.at()].trim_end()));
        }
    })
}

/// The value of an attribute.
pub fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    attributes(text).find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// The value of an attribute that names a computation or instruction, without `%`.
pub fn named<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    attribute(text, name).map(|value| value.trim_start_matches('%'))
}

/// The value of an attribute without its braces.
pub fn braced<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    attribute(text, name)?.strip_prefix('{')?.strip_suffix('}')
}

/// Where an instruction comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Metadata<'a> {
    /// The path of scopes and the primitive: `jit(mlp)/ble,ef->blf/dot_general`.
    pub op_name: Option<String>,
    /// The number of a row in the table of stack frames.
    pub frame: Option<u64>,
    /// The file and line, if the metadata itself has them, as with JAX before 0.5.
    pub inline: Option<(&'a str, u64)>,
}

impl<'a> Metadata<'a> {
    /// Reads the metadata of an instruction from its attributes.
    pub fn of(attributes: &'a str) -> Metadata<'a> {
        let mut found = Metadata::default();
        let Some(mut rest) = braced(attributes, "metadata") else { return found };
        let (mut file, mut line) = (None, None);
        while let Some((key, behind)) = rest.split_once('=') {
            let behind = behind.trim_start();
            let (value, after) = match behind.strip_prefix('"') {
                Some(quoted) => split_at_quote(quoted),
                None => behind.split_once([' ', '}']).unwrap_or((behind, "")),
            };
            match key.trim() {
                "op_name" if !value.is_empty() => found.op_name = Some(unescaped(value)),
                "stack_frame_id" => found.frame = value.parse().ok(),
                "source_file" => file = Some(value),
                "source_line" => line = value.parse().ok(),
                _ => {}
            }
            rest = after;
        }
        found.inline = file.zip(line);
        found
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Metadata::default()
    }
}

/// The string up to its closing quote, and the text behind.
fn split_at_quote(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}
