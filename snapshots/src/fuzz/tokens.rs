//! A text of any of the fuzzed languages, cut into words, numbers, blanks and marks.

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A letter or `_`, then letters, digits and `_`.
    Word,
    /// A digit, then digits, letters, `.` and `_`: `2e-3` is three tokens.
    Number,
    /// White space.
    Blank,
    /// Any other character.
    Mark,
}

/// A token and its place in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The tokens of a text; joined, they are the text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::new();
    for (start, c) in text.char_indices() {
        let end = start + c.len_utf8();
        let joins = |last: &Token| match last.kind {
            Kind::Word => c.is_alphanumeric() || c == '_',
            Kind::Number => c.is_alphanumeric() || c == '_' || c == '.',
            Kind::Blank => c.is_whitespace(),
            Kind::Mark => false,
        };
        if let Some(last) = out.last_mut().filter(|last| joins(last)) {
            last.end = end;
            continue;
        }
        let kind = match c {
            c if c.is_alphabetic() || c == '_' => Kind::Word,
            c if c.is_ascii_digit() => Kind::Number,
            c if c.is_whitespace() => Kind::Blank,
            _ => Kind::Mark,
        };
        out.push(Token { kind, start, end });
    }
    out
}
