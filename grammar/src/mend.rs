//! Lines, headers, types and statements that are written as in other languages: each case proposes
//! how they are written here. A proposal is shown only if the parser reads it without an error.

mod items;
mod statements;
mod types;

use crate::error::{Fix, SyntaxError, SyntaxErrorKind};
use crate::foreign::{FAR, span};
use crate::parser::reads;
use crate::scan::{Scan, TokenKind};
use shard_words::Span;
use std::ops::Range;

/// The cases, in the order in which they are tried.
const CASES: [fn(&Place<'_, '_>) -> Option<Mend>; 13] = [
    statements::dashes,
    items::hardware,
    items::mesh,
    items::dims,
    items::result,
    items::unnamed_results,
    items::braces,
    types::words_of_a_type,
    statements::assignment,
    statements::assignment_in_place,
    statements::several_results,
    statements::last_value,
    statements::last_comma,
];

/// The most bytes of a line for which proposals are made.
const MAX_BYTES: usize = 4096;

/// The error with the help of the first case that applies.
pub(crate) fn mended(error: &SyntaxError, scan: &Scan<'_>) -> Option<SyntaxError> {
    match &error.kind {
        SyntaxErrorKind::Unexpected { .. } => {}
        SyntaxErrorKind::Word { .. } if error.help.is_none() => {}
        _ => return None,
    }
    // An empty span is the end of a piece, so the next token has nothing to do with the error.
    if error.span.start == error.span.end {
        return None;
    }
    let at = scan.token_at(error.span.start);
    let place = Place { scan, at, line: line(scan, at), error };
    if place.is_mended() {
        return None;
    }
    let Mend { help, fix } = CASES.iter().find_map(|case| case(&place))?;
    let (help, fix) = (Some(help), fix.map(Box::new));
    Some(SyntaxError { help, fix, ..error.clone() })
}

/// A proposal: the words of the help, and the edit if there is one.
struct Mend {
    help: String,
    fix: Option<Fix>,
}

/// Where an error is.
struct Place<'s, 't> {
    scan: &'s Scan<'t>,
    /// The token that is not expected.
    at: usize,
    /// The tokens of its line, as [`line`] gives them.
    line: Range<usize>,
    error: &'s SyntaxError,
}

impl<'t> Place<'_, 't> {
    fn word(&self, at: usize) -> &'t str {
        self.scan.word(at)
    }

    fn is(&self, at: usize, kind: TokenKind) -> bool {
        self.scan.tokens.get(at).is_some_and(|token| token.kind == kind)
    }

    fn expects(&self, words: &[&str]) -> bool {
        self.error.expected().iter().any(|expected| words.contains(&expected.as_str()))
    }

    fn starts_line(&self, at: usize) -> bool {
        at == 0 || self.word(at - 1) == "{" || is_apart(self.scan, at)
    }

    /// Whether the two characters of `sign` are the next tokens, without a blank between.
    fn is_sign(&self, at: usize, sign: &str) -> bool {
        sign.len() == 2
            && self.word(at) == &sign[..1]
            && self.word(at + 1) == &sign[1..]
            && self.scan.tokens[at].span.end == self.scan.tokens[at + 1].span.start
    }

    /// The text of some tokens, with one blank for any blanks and comments between two.
    fn text(&self, tokens: Range<usize>) -> String {
        let mut text = String::new();
        for at in tokens.clone() {
            let token = self.scan.tokens[at].span;
            if at > tokens.start && self.scan.tokens[at - 1].span.end < token.start {
                text.push(' ');
            }
            text.push_str(self.word(at));
        }
        text
    }

    /// A proposal that replaces some tokens. It has no edit where that would remove a comment.
    fn in_place_of(&self, tokens: Range<usize>, with: String) -> Mend {
        let span = span(self.scan, tokens);
        let has_comment = self.scan.text[span.start..span.end].contains("//");
        let fix = (!has_comment).then(|| Fix { span, replacement: with.clone() });
        Mend { help: with, fix }
    }

    /// A proposal that replaces the line by an item; `None` where the item is the same or is not
    /// read.
    fn as_item(&self, item: String) -> Option<Mend> {
        (item != self.text(self.line.clone()) && reads(&item))
            .then(|| self.in_place_of(self.line.clone(), item))
    }

    /// Whether the line is an item that the error's own edit mends.
    fn is_mended(&self) -> bool {
        let line = span(self.scan, self.line.clone());
        let inside = |fix: Span| line.start <= fix.start && fix.end <= line.end;
        self.error.fix.as_deref().filter(|fix| inside(fix.span)).is_some_and(|fix| {
            let text = self.scan.text;
            let before = &text[line.start..fix.span.start];
            reads(&format!("{before}{}{}", fix.replacement, &text[fix.span.end..line.end]))
        })
    }
}

/// Whether a token stands on a later line than the one before it.
fn is_apart(scan: &Scan<'_>, at: usize) -> bool {
    scan.tokens.get(at).is_some_and(|token| {
        scan.text[scan.tokens[at - 1].span.end..token.span.start].contains('\n')
    })
}

/// The tokens of the line around a token; empty where the line is too long, or closes a bracket
/// that it does not open. A line goes on inside of brackets and behind a comma.
fn line(scan: &Scan<'_>, at: usize) -> Range<usize> {
    const KEYWORDS: [&str; 9] =
        ["hardware", "mesh", "dim", "phase", "layer", "strict", "let", "expect", "return"];
    let starts = |at: usize| {
        let before = scan.word(at - 1);
        let goes_on = matches!(before, "(" | "[")
            || before == "," && (scan.word(at + 1) == "=" || !KEYWORDS.contains(&scan.word(at)));
        is_apart(scan, at) && !goes_on
    };
    let Some(start) =
        (at.saturating_sub(FAR)..=at).rev().find(|&at| at == 0 || starts(at) || is_body(scan, at))
    else {
        return at..at;
    };
    let (mut end, mut depth) = (start, 0usize);
    while end < scan.tokens.len() && end - start < FAR {
        if end > start && depth == 0 && starts(end) {
            break;
        }
        match scan.tokens[end].kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close if depth == 0 && scan.word(end) == "}" => break,
            TokenKind::Close if depth == 0 => return at..at,
            TokenKind::Close => depth -= 1,
            _ => {}
        }
        end += 1;
    }
    let bytes = span(scan, start..end);
    if end - start < FAR && bytes.end - bytes.start <= MAX_BYTES { start..end } else { at..at }
}

/// Whether this token starts the first statement of a layer.
fn is_body(scan: &Scan<'_>, at: usize) -> bool {
    scan.word(at - 1) == "{" && matches!(scan.word(at), "let" | "expect" | "return")
}
