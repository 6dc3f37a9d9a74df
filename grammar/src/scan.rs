//! Finds the tokens of a text, as precisely as comments, brackets and keywords need. It never
//! fails: what is no token is reported and skipped.

use crate::ast::{Comment, CommentKind};
use crate::error::{SyntaxError, SyntaxErrorKind};
use crate::limits::{MAX_ERRORS, MAX_NAME_BYTES, MAX_NUMBER_DIGITS};
use crate::spelling;
use logos::Logos;
use shard_words::Span;

/// What a token is.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\n\u{FEFF}]+")]
pub(crate) enum TokenKind {
    #[regex(r"//[^\n]*", allow_greedy = true)]
    Comment,
    /// A comment of another language: `#` to the end of the line; or `/*`, whose end is then looked
    /// for.
    #[regex(r"#[^\n]*", allow_greedy = true)]
    #[token("/*")]
    OtherComment,
    #[regex(r#""[^"\n]*""#)]
    Text,
    #[regex(r#""[^"\n]*"#)]
    UnclosedText,
    #[regex("[A-Za-z_][A-Za-z0-9_]*")]
    Word,
    #[regex(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?[A-Za-z0-9_]*")]
    Number,
    #[token("->")]
    Arrow,
    #[token("(")]
    #[token("[")]
    #[token("{")]
    Open,
    #[token(")")]
    #[token("]")]
    #[token("}")]
    Close,
    #[token(";")]
    Semicolon,
    #[regex(r"[-=:,+*/?.<>]")]
    Sign,
    /// Any other character.
    Strange,
}

/// How a comment is written here.
pub(crate) const AS_COMMENT: &str = "// ...    (comments start with `//`)";

/// One token; comments are kept apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}

/// The tokens, comments and errors of a text.
pub(crate) struct Scan<'t> {
    pub(crate) text: &'t str,
    /// All tokens but comments and semicolons.
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<Comment>,
    /// The places of semicolons, which are then read as blanks.
    pub(crate) semicolons: Vec<usize>,
    /// The first [`MAX_ERRORS`] errors.
    pub(crate) errors: Vec<SyntaxError>,
    /// The places of all errors except semicolons: a piece that contains one is not parsed.
    pub(crate) faults: Vec<usize>,
}

impl<'t> Scan<'t> {
    pub(crate) fn word(&self, index: usize) -> &'t str {
        match self.tokens.get(index) {
            Some(token) => &self.text[token.span.start..token.span.end],
            None => "",
        }
    }

    fn report(&mut self, error: SyntaxError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// The index of the first token that ends behind `at`.
    pub(crate) fn token_at(&self, at: usize) -> usize {
        self.tokens.partition_point(|token| token.span.end <= at)
    }
}

/// Finds the tokens of a text.
pub(crate) fn scan(text: &str) -> Scan<'_> {
    let mut scan = Scan {
        text,
        tokens: Vec::new(),
        comments: Vec::new(),
        semicolons: Vec::new(),
        errors: Vec::new(),
        faults: Vec::new(),
    };
    let mut lexer = TokenKind::lexer(text);
    let mut last_end = 0;
    let mut strange_end = usize::MAX;
    let mut blocks_end = true;
    while let Some(result) = lexer.next() {
        let kind = result.unwrap_or(TokenKind::Strange);
        let span = on_boundaries(text, lexer.span());
        match kind {
            TokenKind::Comment => scan.comments.push(comment(text, span, last_end)),
            TokenKind::OtherComment => {
                let rest = &text[span.end..];
                let is_block = text[span.start..].starts_with("/*");
                let end = if is_block && blocks_end { rest.find("*/") } else { None };
                blocks_end &= !is_block || end.is_some();
                if is_block {
                    let line = || rest.find('\n').unwrap_or(rest.len());
                    lexer.bump(end.map_or_else(line, |end| end + 2));
                }
                if scan.errors.len() < MAX_ERRORS {
                    let span = Span::new(span.start, lexer.span().end);
                    scan.report(other_comment(text, span));
                }
                scan.faults.push(span.start);
            }
            TokenKind::Semicolon => {
                scan.semicolons.push(span.start);
                let error = SyntaxError::new(SyntaxErrorKind::StraySemicolon, span);
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let parts_words =
                    text[span.end..].starts_with(is_part) && text[..span.start].ends_with(is_part);
                let with = if parts_words { " " } else { "" };
                scan.report(error.with_help("remove it").with_fix(span, with));
            }
            _ => {
                if let Some(kind) = fault(kind, &text[span.start..span.end]) {
                    // Several strange characters in a row are one error.
                    if !matches!(kind, SyntaxErrorKind::StrangeCharacter { .. })
                        || strange_end != span.start
                    {
                        let is_told = scan.errors.len() < MAX_ERRORS
                            && matches!(kind, SyntaxErrorKind::StrangeCharacter { .. });
                        let help = is_told.then(|| spelling::help(text, span)).flatten();
                        scan.report(SyntaxError { help, ..SyntaxError::new(kind, span) });
                    }
                    scan.faults.push(span.start);
                }
                if kind == TokenKind::Strange {
                    strange_end = span.end;
                }
                scan.tokens.push(Token { kind, span });
            }
        }
        if !matches!(kind, TokenKind::Comment | TokenKind::OtherComment) {
            last_end = span.end;
        }
    }
    scan
}

fn on_boundaries(text: &str, range: std::ops::Range<usize>) -> Span {
    let (mut start, mut end) = (range.start, range.end);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    while !text.is_char_boundary(end) {
        end += 1;
    }
    Span::new(start, end)
}

fn fault(kind: TokenKind, text: &str) -> Option<SyntaxErrorKind> {
    match kind {
        TokenKind::Strange => {
            text.chars().next().map(|character| SyntaxErrorKind::StrangeCharacter { character })
        }
        TokenKind::UnclosedText => Some(SyntaxErrorKind::UnclosedString),
        TokenKind::Word if text.len() > MAX_NAME_BYTES => Some(SyntaxErrorKind::NameTooLong),
        TokenKind::Number if digits(text) > MAX_NUMBER_DIGITS => {
            Some(SyntaxErrorKind::TooManyDigits { limit: MAX_NUMBER_DIGITS })
        }
        // Digits with letters behind them are read as a name by whoever wrote them.
        TokenKind::Number if text.len() > MAX_NAME_BYTES => Some(SyntaxErrorKind::NameTooLong),
        _ => None,
    }
}

/// How many digits a token has.
fn digits(text: &str) -> usize {
    text.bytes().filter(u8::is_ascii_digit).count()
}

/// The error of a comment of another language, with an edit that makes each line a comment.
fn other_comment(text: &str, span: Span) -> SyntaxError {
    let whole = &text[span.start..span.end];
    let (sign, replaced, lines) = match whole.strip_prefix("/*") {
        Some(body) => {
            let bare = |line: &str| line.trim_matches(['*', ' ', '\t', '\r']).to_string();
            let line = |line: &str| format!("// {}", bare(line)).trim_end().to_string();
            let body = body.strip_suffix("*/").unwrap_or(body);
            let lines: Vec<String> = body.split('\n').map(line).collect();
            let behind = text[span.end..].trim_start_matches([' ', '\t', '\r']);
            let end = if behind.is_empty() || behind.starts_with('\n') { "" } else { "\n" };
            ("/*", span, lines.join("\n") + end)
        }
        None => {
            let signs = whole.bytes().take_while(|b| *b == b'#').count();
            // Without the blank, `#!` would become `//!`, which is documentation.
            let blank = if whole[signs..].starts_with(['/', '!']) { " " } else { "" };
            ("#", Span::new(span.start, span.start + signs), format!("//{blank}"))
        }
    };
    let start = Span::new(span.start, span.start + sign.len());
    SyntaxError::new(SyntaxErrorKind::OtherComment { sign }, start)
        .with_help(AS_COMMENT)
        .with_fix(replaced, lines)
}

fn comment(text: &str, span: Span, last_end: usize) -> Comment {
    let whole = text[span.start..span.end].trim_end();
    let span = Span::new(span.start, span.start + whole.len());
    let own_line = last_end == 0 || text[last_end..span.start].contains('\n');
    let (kind, body) = if let Some(body) = whole.strip_prefix("//!") {
        (CommentKind::FileDoc, body)
    } else if whole.starts_with("////") {
        (CommentKind::Plain, &whole[2..])
    } else if let Some(body) = whole.strip_prefix("///") {
        (CommentKind::Doc, body)
    } else {
        (CommentKind::Plain, whole.strip_prefix("//").unwrap_or(whole))
    };
    Comment { span, text: body.to_string(), kind, own_line }
}
