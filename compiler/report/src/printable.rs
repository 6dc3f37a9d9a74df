//! Text of strangers on a terminal. A terminal takes control characters as commands, and shows what
//! stands behind a character of writing direction in another order: such characters are shown as
//! escapes, `\u{1b}`. What is printed to be read back (`fmt`, `lower`, JSON) keeps them.

use std::borrow::Cow;

use shard_grammar::{SourceFile, Span};
use shard_ir::Plan;

/// Whether a character is hidden: a control character, or one that changes how others are shown.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text with everything hidden in it escaped, but for the ends of its lines and tabs.
///
/// ```
/// assert_eq!(shard_report::printable::escaped("a\u{1b}[2J\tb\n"), "a\\u{1b}[2J\tb\n");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, |rest, c| match c {
        '\n' | '\t' => None,
        '\r' if rest.starts_with("\r\n") => None,
        c => is_hidden(c).then(|| c.escape_unicode().to_string()),
    })
}

/// The same for a name, which has neither lines nor tabs.
pub fn escaped_name(text: &str) -> Cow<'_, str> {
    replaced(text, |_, c| is_hidden(c).then(|| c.escape_unicode().to_string()))
}

/// The same for a text that is coloured: the sequences that this program colours with stay.
pub fn escaped_but_colour(text: &str) -> Cow<'_, str> {
    replaced(text, |rest, c| match c {
        '\n' | '\t' => None,
        '\r' if rest.starts_with("\r\n") => None,
        '\u{1b}' if is_colour(rest) => None,
        c => is_hidden(c).then(|| c.escape_unicode().to_string()),
    })
}

/// Whether a text starts with a sequence that sets a colour or a weight, or ends that.
fn is_colour(text: &str) -> bool {
    let codes = text
        .strip_prefix("\u{1b}[")
        .and_then(|rest| rest.split_once('m'))
        .map_or("", |(codes, _)| codes);
    let of_palette = |number: &str| number.len() <= 3 && number.parse::<u8>().is_ok();
    match codes {
        "0" | "1" | "2" | "1;31" | "31" | "32" | "33" | "34" | "35" | "36" => true,
        codes => codes.strip_prefix("38;5;").is_some_and(of_palette),
    }
}

/// The text with what `other` gives in place of characters, given the text from each one on.
fn replaced(text: &str, other: impl Fn(&str, char) -> Option<String>) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match other(&text[at..], c) {
            Some(other) => out.push_str(&other),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Escapes the names of a plan, which IR text may choose freely. It cannot state reasons.
pub fn escape_plan(plan: &mut Plan) {
    let escape = |text: &mut String| {
        if let Cow::Owned(escaped) = escaped_name(text) {
            *text = escaped;
        }
    };
    escape(&mut plan.name);
    plan.phase.iter_mut().chain(&mut plan.hardware).for_each(escape);
    plan.dims.iter_mut().for_each(|dim| escape(&mut dim.name));
    plan.outputs.iter_mut().for_each(|output| escape(&mut output.name));
    for instr in &mut plan.instructions {
        let origin = &mut instr.origin;
        let texts = instr.name.iter_mut().chain(origin.rules.names_mut());
        texts.chain(&mut origin.piece_of).chain(&mut origin.in_layers).for_each(escape);
    }
}

/// A source file as it is drawn: one visible character stands for each hidden one, so that columns
/// stay what they are.
pub(crate) struct Pictured {
    pub(crate) file: SourceFile,
    /// For each replaced character, the byte behind it in the file and the byte behind it here.
    moved: Vec<(usize, usize)>,
}

impl Pictured {
    pub(crate) fn new(file: &SourceFile) -> Pictured {
        let mut text = String::with_capacity(file.text.len());
        let mut moved = Vec::new();
        for (at, c) in file.text.char_indices() {
            let is_line_end = c == '\n' || file.text[at..].starts_with("\r\n");
            if !is_hidden(c) || is_line_end || c == '\t' {
                text.push(c);
                continue;
            }
            text.push(match c {
                '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
                '\u{7f}' => '\u{2421}',
                _ => '\u{fffd}',
            });
            moved.push((at + c.len_utf8(), text.len()));
        }
        Pictured { file: SourceFile::new(escaped_name(&file.name), text), moved }
    }

    /// The span here of a span of the file, which lies on character boundaries.
    pub(crate) fn span(&self, span: Span) -> Span {
        Span::new(self.place(span.start), self.place(span.end))
    }

    fn place(&self, at: usize) -> usize {
        let before = self.moved.partition_point(|(from, _)| *from <= at);
        let (from, to) = before.checked_sub(1).map_or((0, 0), |last| self.moved[last]);
        (to + (at - from)).min(self.file.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_of_our_own_stays_and_nothing_else_does() {
        let coloured = "\u{1b}[1;31mred\u{1b}[0m \u{1b}[38;5;147mx\u{1b}[0m";
        assert_eq!(escaped_but_colour(coloured), coloured);
        assert!(!escaped(coloured).contains('\u{1b}'));
        for command in [
            "\u{1b}[2J",
            "\u{1b}]0;title\u{7}",
            "\u{1b}[8m",
            "\u{1b}[38;5;999m",
            "\u{1b}",
            "\u{9b}1m",
        ] {
            assert!(
                !escaped_but_colour(command).contains(['\u{1b}', '\u{9b}', '\u{7}']),
                "{command:?}"
            );
        }
        assert_eq!(escaped("a\r\nb\rc\u{202e}"), "a\r\nb\\u{d}c\\u{202e}");
        assert_eq!(escaped_name("a\nb"), "a\\u{a}b");
    }

    #[test]
    fn pictures_keep_lines_columns_and_places() {
        let text = "a\u{1b}b\u{202e}c\r\nd\u{85}e\rf\tg";
        let file = SourceFile::new("n\nm", text);
        let seen = Pictured::new(&file);
        assert_eq!(seen.file.text, "a\u{241b}b\u{fffd}c\r\nd\u{fffd}e\u{240d}f\tg");
        assert_eq!(seen.file.name, "n\\u{a}m");
        for (at, c) in text.char_indices() {
            let place = seen.span(Span::at(at)).start;
            assert_eq!(seen.file.line_column(place), file.line_column(at), "{c:?}");
        }
        assert_eq!(seen.span(Span::at(text.len())).start, seen.file.text.len());
    }
}
