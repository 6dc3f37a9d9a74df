//! Statements and comments.

use super::types::dtype;
use super::{Mend, Place};
use crate::error::Fix;
use crate::foreign::{FAR, span};
use crate::parser::reads;
use crate::scan::{AS_COMMENT, TokenKind};
use shard_words::Span;

/// The words that other languages have in the place of `let`, or behind it.
pub(super) const OTHER_LETS: [&str; 8] =
    ["val", "var", "const", "auto", "mut", "local", "final", "set"];

/// The signs that other languages have in the place of `=`.
const OTHER_EQUALS: [&str; 3] = [":=", "==", "<-"];

/// `val h = a`, `let h := a`, `h: f32 A = a`, `let h, k = f(a)`.
pub(super) fn assignment(place: &Place<'_, '_>) -> Option<Mend> {
    let start = (place.at.saturating_sub(FAR)..=place.at)
        .rev()
        .find(|&start| place.word(start) == "let" || place.starts_line(start))?;
    let has_let = place.word(start) == "let";
    let may_start =
        place.starts_line(start) && place.expects(&["`let`", "the next statement"]) || has_let;
    if !may_start {
        return None;
    }
    let from = start + usize::from(has_let);
    let word = place.word(from);
    let is_other = (OTHER_LETS.contains(&word) || dtype(word).is_some())
        && place.is(from + 1, TokenKind::Word);
    let mut at = from + usize::from(is_other);
    at += usize::from(place.word(at) == "(");
    let mut names = vec![place.word(at)];
    while place.word(at + 1) == "," && names.len() < FAR {
        at += 2;
        names.push(place.word(at));
    }
    at += 1;
    at += usize::from(place.word(at) == ")");
    let is_equals = |at: usize| {
        place.word(at) == "=" || OTHER_EQUALS.iter().any(|sign| place.is_sign(at, sign))
    };
    let mut annotation = String::new();
    if place.word(at) == ":" && !is_equals(at) {
        let equals = (at..at + FAR).find(|at| is_equals(*at))?;
        annotation = place.text(at..equals);
        at = equals;
    }
    let other = OTHER_EQUALS.iter().find(|sign| place.is_sign(at, sign));
    let end = at + other.map_or(1, |sign| sign.len());
    if !is_equals(at) || place.at >= end || matches!(place.word(end), "=" | ":") {
        return None;
    }
    let is_one = names.len() == 1;
    let names = if is_one { names.concat() } else { format!("({})", names.join(", ")) };
    let head = format!("let {names}{annotation} =");
    let written = place.text(start..end);
    // Where only `let` is missing, the error says so itself.
    let is_told = is_one && annotation.is_empty() && written == head["let ".len()..];
    if is_told || written == head || !reads(&format!("layer f() -> f32 [] {{ {head} a return a }}"))
    {
        return None;
    }
    let Mend { help, fix } = place.in_place_of(start..end, head);
    Some(Mend { help: format!("{help} ..."), fix })
}

/// `h += a`, which would give one name two values.
pub(super) fn assignment_in_place(place: &Place<'_, '_>) -> Option<Mend> {
    let (at, sign) = (place.at, place.word(place.at + 1));
    let is_assigned =
        matches!(sign, "+" | "-" | "*" | "/") && place.is_sign(at + 1, &format!("{sign}="));
    if !place.starts_line(at) || !place.expects(&["`let`", "the next statement"]) || !is_assigned {
        return None;
    }
    let name = place.word(at);
    let is_free = |other: &String| (0..place.scan.tokens.len()).all(|at| place.word(at) != other);
    let other = (2..FAR).map(|number| format!("{name}{number}")).find(is_free)?;
    let written = format!("let {other} = {name} {sign} ...");
    let help = format!("{written}    (a name has one value: what comes later reads `{other}`)");
    reads(&format!("layer f() -> f32 [] {{ let {other} = {name} return a }}"))
        .then_some(Mend { help, fix: None })
}

/// `return a, b`.
pub(super) fn several_results(place: &Place<'_, '_>) -> Option<Mend> {
    let line = place.line.clone();
    if place.word(place.at) != "," || place.word(line.start) != "return" {
        return None;
    }
    let written = format!("return ({})", place.text(line.start + 1..line.end));
    reads(&format!("layer f() -> f32 [] {{ {written} }}")).then(|| place.in_place_of(line, written))
}

/// A value at the end of a layer, without `return`.
pub(super) fn last_value(place: &Place<'_, '_>) -> Option<Mend> {
    let at = place.at;
    if !place.starts_line(at) || !place.expects(&["`return`", "the next statement"]) {
        return None;
    }
    let ends = ["}", "{", "let", "expect", "return", ""];
    let end = (at..at + FAR).find(|at| ends.contains(&place.word(*at)))?;
    let written = format!("return {}", place.text(at..end));
    let is_last = place.word(end) == "}" && at < end;
    let is_read = is_last && reads(&format!("layer f() -> f32 [] {{ {written} }}"));
    let fix = Fix { span: Span::at(place.error.span.start), replacement: "return ".into() };
    is_read.then_some(Mend { help: written, fix: Some(fix) })
}

/// A comma at the end of a statement or of an item.
pub(super) fn last_comma(place: &Place<'_, '_>) -> Option<Mend> {
    let is_last = place.word(place.at) == ","
        && (place.starts_line(place.at + 1) || place.word(place.at + 1) == "}")
        && place.expects(&["the next statement", "the next item"]);
    let fix = Fix { span: span(place.scan, place.at..place.at + 1), replacement: String::new() };
    is_last.then(|| Mend { help: "remove it".to_string(), fix: Some(fix) })
}

/// `-- a comment`: two signs that start a line or have blanks around, and words behind them.
pub(super) fn dashes(place: &Place<'_, '_>) -> Option<Mend> {
    let (scan, at) = (place.scan, place.at);
    if place.error.expected().is_empty() {
        return None;
    }
    let is_blank = |at: usize| scan.text[..at].ends_with([' ', '\t', '\n']) || at == 0;
    let start = (at.saturating_sub(FAR)..=at)
        .rev()
        .take_while(|&start| start == at || !super::is_apart(scan, start + 1))
        .find(|&start| {
            place.is_sign(start, "--")
                && is_blank(scan.tokens[start].span.start)
                && scan.text[scan.tokens[start].span.start + 2..].starts_with(' ')
        })?;
    // The code before the comment must be complete, and the comment must begin with a word.
    let line = place.line.start.min(start)..start;
    let is_whole = place.starts_line(start)
        || !place.line.is_empty() && {
            let before = place.text(line);
            reads(&before) || reads(&format!("layer f() -> f32 [] {{ {before} }}"))
        };
    if !is_whole || !place.is(start + 2, TokenKind::Word) {
        return None;
    }
    let mut depth = 0isize;
    for at in (start..start + FAR).take_while(|&at| at == start || !super::is_apart(scan, at)) {
        match scan.tokens.get(at).map(|token| token.kind) {
            Some(TokenKind::Open) => depth += 1,
            Some(TokenKind::Close) => depth -= 1,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    let signs = span(scan, start..start + 2);
    let fix = Fix { span: signs, replacement: "//".to_string() };
    (depth == 0).then(|| Mend { help: AS_COMMENT.to_string(), fix: Some(fix) })
}
