//! The tokens inside layout words and dim lists, and a cursor over them.
//!
//! The same letters mean different things by place: `BLE` in a compact word is three dims, `Batch`
//! in brackets is one. So there are two sets of tokens, [`Short`] and [`Long`], and at each step
//! the caller picks one of them.

use crate::source::{Span, Spanned};
use crate::words::{MAX_NAME_BYTES, MAX_WORD_PARTS, WordError};
use logos::Logos;

/// Letters one by one, each with its digits: dims of a compact word, axes of a subscript.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Short {
    /// A dim of a compact word.
    #[regex("[A-Z][0-9]*")]
    Dim,
    /// An axis of a subscript; with digits it belongs in braces.
    #[regex("[a-z][0-9]*")]
    Axis,
}

/// Whole names, and the signs.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// A dim of any length.
    #[regex("[A-Z][A-Za-z0-9]*")]
    Upper,
    /// An axis or a label of any length, or a word such as `partialsum`.
    #[regex("[a-z][A-Za-z0-9]*")]
    Lower,
    /// Blanks, line ends and comments.
    #[regex(r"[ \t\r\n]+")]
    #[regex(r"//[^\n]*", allow_greedy = true)]
    Blank,
    #[token("_")]
    Underscore,
    #[token("{")]
    OpenBrace,
    #[token("}")]
    CloseBrace,
    #[token("(")]
    OpenParen,
    #[token(")")]
    CloseParen,
    #[token("[")]
    OpenBracket,
    #[token("]")]
    CloseBracket,
    #[token(",")]
    Comma,
    #[token("?")]
    Question,
    #[token("-")]
    Dash,
}

/// A place in a word's text.
pub(crate) struct Cursor<'t> {
    text: &'t str,
    /// Where the text stands in the file.
    offset: usize,
    at: usize,
    parts: usize,
}

impl<'t> Cursor<'t> {
    pub(crate) fn new(text: &'t str, offset: usize) -> Cursor<'t> {
        Cursor { text, offset, at: 0, parts: 0 }
    }

    /// The file's byte at which the cursor stands.
    pub(crate) fn position(&self) -> usize {
        self.offset + self.at
    }

    /// The text from a byte of the file up to the cursor.
    pub(crate) fn text_since(&self, start: usize) -> &'t str {
        &self.text[start - self.offset..self.at]
    }

    /// The text that is left.
    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// The length of the next token, if it is of this kind.
    fn peek<T: Logos<'t, Source = str, Extras = ()> + PartialEq>(&self, kind: T) -> Option<usize> {
        let mut lexer = T::lexer(self.rest());
        match lexer.next() {
            Some(Ok(token)) if token == kind => Some(lexer.slice().len()),
            _ => None,
        }
    }

    /// Whether the next token is this one.
    pub(crate) fn sees<T: Logos<'t, Source = str, Extras = ()> + PartialEq>(
        &self,
        kind: T,
    ) -> bool {
        self.peek(kind).is_some()
    }

    /// Takes the next token if it is of this kind.
    pub(crate) fn take<T: Logos<'t, Source = str, Extras = ()> + PartialEq>(
        &mut self,
        kind: T,
    ) -> Option<Spanned<&'t str>> {
        let len = self.peek(kind)?;
        let span = Span::new(self.position(), self.position() + len);
        self.at += len;
        Some(Spanned::new(self.text_since(span.start), span))
    }

    /// Skips blanks and comments.
    pub(crate) fn skip_blanks(&mut self) {
        while self.take(Long::Blank).is_some() {}
    }

    /// Makes a name of a token. Names that are too long, and too many names in one word, are
    /// refused.
    pub(crate) fn name(&mut self, token: Spanned<&str>) -> Result<Spanned<String>, WordError> {
        self.parts += 1;
        if self.parts > MAX_WORD_PARTS {
            return Err(error(
                token.span,
                format!("more than {MAX_WORD_PARTS} names stand in one word"),
            ));
        }
        if token.value.len() > MAX_NAME_BYTES {
            return Err(error(
                token.span,
                format!("this name is longer than {MAX_NAME_BYTES} bytes"),
            ));
        }
        Ok(Spanned::new(token.value.to_string(), token.span))
    }

    /// The span of what comes next: a token, or one character, or nothing at the end.
    pub(crate) fn next_span(&self) -> Span {
        let mut lexer = Long::lexer(self.rest());
        let len = match lexer.next() {
            Some(Ok(_)) => lexer.slice().len(),
            _ => self.rest().chars().next().map_or(0, char::len_utf8),
        };
        Span::new(self.position(), self.position() + len)
    }

    /// `` `x` `` or `the end`, for messages.
    pub(crate) fn found(&self) -> String {
        let span = self.next_span();
        if span.is_empty() {
            "the end".to_string()
        } else {
            format!("`{}`", &self.rest()[..span.len()])
        }
    }

    /// An error at the next token: `expected ..., found ...`.
    pub(crate) fn unexpected(&self, expected: &str) -> WordError {
        error(self.next_span(), format!("expected {expected}, found {}", self.found()))
    }
}

/// An error without a help.
pub(crate) fn error(span: Span, message: impl Into<String>) -> WordError {
    WordError { span, message: message.into(), help: None }
}

/// An error with the text that would be right in its place.
pub(crate) fn error_with_help(
    span: Span,
    message: impl Into<String>,
    help: impl Into<String>,
) -> WordError {
    WordError { span, message: message.into(), help: Some(help.into()) }
}
