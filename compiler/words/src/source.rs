//! Source text, spans of bytes in it, and the line and column of a byte.

use std::fmt;

/// A stretch of source text, in bytes: `start` is in it, `end` is not. Both lie on character
/// boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

impl Span {
    /// The span from `start` up to `end`; an `end` before `start` gives the empty span at `start`.
    pub fn new(start: usize, end: usize) -> Span {
        Span { start, end: end.max(start) }
    }

    /// The empty span at `at`, for something that is missing there.
    pub fn at(at: usize) -> Span {
        Span { start: at, end: at }
    }

    /// The smallest span that covers both.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The same stretch, `offset` bytes further on.
    pub fn shifted(self, offset: usize) -> Span {
        Span { start: self.start + offset, end: self.end + offset }
    }

    /// Number of bytes.
    pub fn len(self) -> usize {
        self.end - self.start
    }

    /// Whether no byte is in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether byte `at` is in it.
    pub fn contains(self, at: usize) -> bool {
        self.start <= at && at < self.end
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}..{}", self.start, self.end)
    }
}

/// A value and the place in the source where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spanned<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Puts a value and its place together.
    pub fn new(value: T, span: Span) -> Spanned<T> {
        Spanned { value, span }
    }
}

/// A line and a column, both counted from 1; columns count characters, not bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineColumn {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

/// One file of source text, with its name in diagnostics.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// The name for messages: a path, or `-` for standard input.
    pub name: String,
    /// The whole text.
    pub text: String,
    line_starts: Vec<usize>,
}

impl SourceFile {
    /// Keeps the text, and finds where its lines start. A line ends with `
    ///
    /// `.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> SourceFile {
        let text = text.into();
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        SourceFile { name: name.into(), text, line_starts }
    }

    /// The line and the column of a byte. A byte past the end counts as the end; a byte inside a
    /// character counts as its first byte.
    pub fn line_column(&self, at: usize) -> LineColumn {
        let at = self.floor(at);
        let line = self.line_starts.partition_point(|&start| start <= at);
        let start = self.line_starts[line - 1];
        LineColumn { line, column: self.text[start..at].chars().count() + 1 }
    }

    /// The text of a line, counted from 1, without its line end; `None` where there is no such
    /// line.
    pub fn line(&self, line: usize) -> Option<&str> {
        let start = *self.line_starts.get(line.checked_sub(1)?)?;
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        Some(self.text[start..end].trim_end_matches(['\n', '\r']))
    }

    /// The text under a span, which is clamped to the text and to character boundaries.
    pub fn slice(&self, span: Span) -> &str {
        let start = self.floor(span.start);
        &self.text[start..self.floor(span.end).max(start)]
    }

    fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_count_from_one() {
        let file = SourceFile::new("t", "ab\nαβγ x\n");
        assert_eq!(file.line_column(0), LineColumn { line: 1, column: 1 });
        assert_eq!(file.line_column(2), LineColumn { line: 1, column: 3 });
        assert_eq!(file.line_column(3), LineColumn { line: 2, column: 1 });
        assert_eq!(file.line_column(10), LineColumn { line: 2, column: 5 });
        assert_eq!(file.line_column(999), LineColumn { line: 3, column: 1 });
        assert_eq!(file.line(2), Some("αβγ x"));
        assert_eq!(file.line(0), None);
        assert_eq!(file.line(4), None);
    }

    #[test]
    fn a_place_inside_a_character_counts_as_its_first_byte() {
        let file = SourceFile::new("t", "αβ");
        assert_eq!(file.line_column(3), LineColumn { line: 1, column: 2 });
        assert_eq!(file.slice(Span::new(1, 3)), "α");
    }

    #[test]
    fn an_empty_text_has_one_line() {
        let file = SourceFile::new("t", "");
        assert_eq!(file.line(2), None);
        assert_eq!(file.line_column(0), LineColumn { line: 1, column: 1 });
    }
}
