//! Converts bytes of the source to lines and UTF-16 columns, as editors count, and back.

use lsp_types::{Position, Range};
use shard_grammar::{SourceFile, Span};

/// The position of a byte; a byte past the end counts as the end.
pub(crate) fn position_of(file: &SourceFile, at: usize) -> Position {
    let before = file.slice(Span::new(0, at));
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    Position {
        line: before.matches('\n').count() as u32,
        character: before[line..].encode_utf16().count() as u32,
    }
}

/// The byte at a position. A position past the end of a line counts as the line's end, one past the
/// last line as the end of the text.
pub(crate) fn offset_of(file: &SourceFile, place: Position) -> usize {
    let line_starts = std::iter::once(0).chain(file.text.match_indices('\n').map(|(at, _)| at + 1));
    let Some(start) = line_starts.into_iter().nth(place.line as usize) else {
        return file.text.len();
    };
    let line = file.text[start..].split('\n').next().unwrap_or_default();
    let mut units = 0;
    for (at, c) in line.char_indices() {
        if units >= place.character as usize {
            return start + at;
        }
        units += c.len_utf16();
    }
    start + line.len()
}

/// The lines and columns of a span.
pub(crate) fn range_of(file: &SourceFile, span: Span) -> Range {
    Range { start: position_of(file, span.start), end: position_of(file, span.end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_a_character_comes_back_from_its_position() {
        let file = SourceFile::new("t", "dim B = 8 // \u{1f600} caf\u{e9}\n\nlayer f\n");
        for (at, _) in file.text.char_indices().chain([(file.text.len(), ' ')]) {
            assert_eq!(offset_of(&file, position_of(&file, at)), at);
        }
        assert_eq!(
            position_of(&file, 17),
            Position { line: 0, character: 15 },
            "a pair of UTF-16 units"
        );
        assert_eq!(
            offset_of(&file, Position { line: 0, character: 999 }),
            23,
            "no further than the line"
        );
        assert_eq!(offset_of(&file, Position { line: 99, character: 0 }), file.text.len());
    }
}
