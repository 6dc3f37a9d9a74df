//! Errors in expressions that are written as in other languages: operators, functions and forms
//! that this language lacks, with what is written here in their place.

use crate::elsewhere::{OPERATIONS, written_here};
use crate::error::{SyntaxError, SyntaxErrorKind};
use crate::names::is_reserved;
use crate::outline::nearest;
use crate::scan::{Scan, TokenKind};
use shard_ops::{Code, Takes};
use shard_words::Span;
use std::ops::Range;

/// Rewords a syntax error that stems from another language; any other error stays as it is.
pub(crate) fn reworded(error: SyntaxError, scan: &Scan<'_>) -> SyntaxError {
    let at = scan.token_at(error.span.start);
    if !is_in_expression(scan, at) {
        return error;
    }
    let found = match &error.kind {
        SyntaxErrorKind::StrangeCharacter { character: '\'' } => quoted(scan, at),
        SyntaxErrorKind::StrangeCharacter { .. } => operator(scan, at, 1),
        SyntaxErrorKind::Unexpected { .. } => match scan.word(at) {
            "*" if at > 0 && scan.word(at - 1) == "*" && touch(scan, at - 1) => {
                operator(scan, at - 1, 2)
            }
            "<" | ">" if scan.word(at + 1) == "=" && touch(scan, at) => operator(scan, at, 2),
            "<" | ">" => operator(scan, at, 1),
            "=" if at > 0 && matches!(scan.word(at - 1), "=" | "<" | ">" | "!") => {
                operator(scan, at - 1, 2)
            }
            "=" if scan.word(at + 1) == "=" => operator(scan, at, 2),
            "." => method(scan, at),
            "[" => index(scan, at),
            word if word.starts_with('"') => subscripts(scan, at),
            _ => form(scan, at),
        },
        _ => None,
    };
    match found {
        Some(found) => SyntaxError { note: error.note, ..found },
        None => as_signed(dims_apart(error, scan, at), scan, at),
    }
}

/// `rope(q over Q)`, `cumsum(a at B)`: adds the signature of an op that lacks a part, where the
/// error has no help, and of one that has a part that it does not take.
fn as_signed(error: SyntaxError, scan: &Scan<'_>, at: usize) -> SyntaxError {
    let lacks = |lead: &&str| error.expected().iter().any(|word| word == lead);
    let is_short = scan.word(at) == ")" && lacks(&"`,`");
    let word = call(scan, at).map(|(word, _)| scan.word(word));
    let signature = word.and_then(|word| match Code::of_source(word) {
        Some(_) if is_layer(scan, word) => None,
        Some(op) => Some(op.row().signature()),
        None => (word == "reshard").then(|| "reshard(a, BLE_x)".to_string()),
    });
    match signature {
        Some(signature) if is_slot(scan.word(at)) => {
            SyntaxError { help: Some(signature), fix: None, ..error }
        }
        Some(signature)
            if error.help.is_none()
                && (is_short || ["`at`", "`over`", "`->`"].iter().any(lacks)) =>
        {
            error.with_help(signature)
        }
        _ => error,
    }
}

/// `einsum(a, w -> B F)`: adds the help for a list of dims with blanks between them.
fn dims_apart(error: SyntaxError, scan: &Scan<'_>, at: usize) -> SyntaxError {
    let is_dims = |at: usize| {
        let word = scan.word(at);
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let start = (at.saturating_sub(FAR)..at).rev().take_while(|at| is_dims(*at)).last();
    // Where the operation does not end behind the list, something else is missing: `over L S`,
    // `over Q L`.
    let ends = error.expected().iter().any(|expected| expected == "`)`");
    let (true, Some(start), true) = (ends, start, is_dims(at)) else {
        return error;
    };
    if !(start > 0 && matches!(scan.word(start - 1), "->" | "over")) {
        return error;
    }
    let end = (at..(at + FAR).min(scan.tokens.len())).take_while(|at| is_dims(*at)).count() + at;
    let words: Vec<&str> = (start..end).map(|at| scan.word(at)).collect();
    let compact = |word: &&str| !word.contains(|c: char| c.is_ascii_lowercase());
    let list =
        if words.iter().all(compact) { words.concat() } else { format!("[{}]", words.join(", ")) };
    error.with_help(list.clone()).with_fix(span(scan, start..end), list)
}

/// Whether a token is in a `let` or a `return`.
fn is_in_expression(scan: &Scan<'_>, at: usize) -> bool {
    const KEYWORDS: [&str; 8] =
        ["let", "return", "layer", "dim", "mesh", "hardware", "phase", "expect"];
    let start =
        (at.saturating_sub(4 * FAR)..at).rev().find(|at| KEYWORDS.contains(&scan.word(*at)));
    start.is_some_and(|start| matches!(scan.word(start), "let" | "return"))
}

/// Whether a layer of the file has this name.
fn is_layer(scan: &Scan<'_>, name: &str) -> bool {
    (1..scan.tokens.len()).any(|at| scan.word(at - 1) == "layer" && scan.word(at) == name)
}

fn touch(scan: &Scan<'_>, at: usize) -> bool {
    scan.tokens.get(at + 1).is_some_and(|next| next.span.start == scan.tokens[at].span.end)
}

pub(crate) fn span(scan: &Scan<'_>, tokens: Range<usize>) -> Span {
    let start = scan.tokens.get(tokens.start).map_or(scan.text.len(), |token| token.span.start);
    let end = tokens
        .end
        .checked_sub(1)
        .and_then(|last| scan.tokens.get(last))
        .map_or(start, |token| token.span.end);
    Span::new(start, end.max(start))
}

fn text<'t>(scan: &Scan<'t>, tokens: Range<usize>) -> &'t str {
    let span = span(scan, tokens);
    &scan.text[span.start..span.end]
}

/// The most tokens in which an operand is looked for: messages stay short, and the time linear.
pub(crate) const FAR: usize = 64;

/// The tokens of the operand that ends before this one: a name, a number, a call, something in
/// parentheses.
fn before(scan: &Scan<'_>, end: usize) -> Option<Range<usize>> {
    let last = end.checked_sub(1)?;
    match scan.tokens[last].kind {
        TokenKind::Number => Some(last..end),
        TokenKind::Word if !is_statement(scan.word(last)) => Some(last..end),
        TokenKind::Close if scan.word(last) == ")" => {
            let mut depth = 0usize;
            for at in (last.saturating_sub(FAR)..=last).rev() {
                match scan.word(at) {
                    ")" => depth += 1,
                    "(" => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    let called = at > 0
                        && scan.tokens[at - 1].kind == TokenKind::Word
                        && !is_statement(scan.word(at - 1));
                    return Some(if called { at - 1..end } else { at..end });
                }
            }
            None
        }
        _ => None,
    }
}

/// The tokens of the operand that starts with this one.
fn behind(scan: &Scan<'_>, start: usize) -> Option<Range<usize>> {
    let signs = (start..(start + FAR).min(scan.tokens.len()))
        .take_while(|at| scan.word(*at) == "-")
        .count();
    let (from, start) = (start, start + signs);
    let first = scan.tokens.get(start)?;
    let open = match first.kind {
        TokenKind::Number => return Some(from..start + 1),
        TokenKind::Word if is_statement(scan.word(start)) => return None,
        TokenKind::Word if scan.word(start + 1) == "(" => start + 1,
        TokenKind::Word => return Some(from..start + 1),
        TokenKind::Open if scan.word(start) == "(" => start,
        _ => return None,
    };
    let mut depth = 0usize;
    for at in open..(open + FAR).min(scan.tokens.len()) {
        match scan.word(at) {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(from..at + 1);
        }
    }
    None
}

fn is_statement(word: &str) -> bool {
    matches!(word, "let" | "expect" | "return" | "layer" | "over" | "at")
}

/// The error of an operator of `count` tokens.
fn operator(scan: &Scan<'_>, at: usize, count: usize) -> Option<SyntaxError> {
    let sign = text(scan, at..at + count).to_string();
    let (left, right) = (before(scan, at), behind(scan, at + count));
    let (l, r) = (left.clone().map(|l| text(scan, l)), right.clone().map(|r| text(scan, r)));
    let (a, b) = (l.unwrap_or("a"), r.unwrap_or("b"));
    let all = left.zip(right).map(|(left, right)| span(scan, left.start..right.end));
    let mut edit = None;
    let help = match sign.as_str() {
        "**" | "^" => {
            let power = match b {
                "2" => format!("square({a})"),
                "0.5" => format!("sqrt({a})"),
                "-0.5" => format!("rsqrt({a})"),
                "-1" => format!("1 / {a}"),
                "3" => format!("{a} * {a} * {a}"),
                _ => format!("exp({b} * log({a}))"),
            };
            // Only an expression that binds as tightly as the power may replace it.
            edit =
                all.filter(|_| power.ends_with(')') && r.is_some()).map(|all| (all, power.clone()));
            power
        }
        "@" => format!("einsum({a}, {b} -> BF)    (the dims that the result keeps)"),
        "%" => "no remainder: sizes are divided in dim lines, `dim F = E / 4`".to_string(),
        "<" => format!("less({a}, {b})"),
        ">" => format!("less({b}, {a})"),
        "<=" => format!("less_equal({a}, {b})"),
        ">=" => format!("less_equal({b}, {a})"),
        "==" => format!("equal({a}, {b})"),
        "!=" => format!("where(equal({a}, {b}), 0, 1)"),
        "!" | "~" | "&" | "|" => {
            "where(a, b, a) where both of two truth values are to hold, where(a, a, b) where one \
                is; 1 - a, a * b and maximum(a, b) of 0 and 1"
                .to_string()
        }
        _ => return None,
    };
    let operands = l.zip(r).map(|(l, r)| Box::new((l.into(), r.into())));
    let kind = SyntaxErrorKind::NoSuchOperator { sign, operands };
    let error = SyntaxError::new(kind, span(scan, at..at + count)).with_help(help);
    Some(match edit {
        Some((span, with)) => error.with_fix(span, with),
        None => error,
    })
}

/// `a.sum()`, `a.T`.
fn method(scan: &Scan<'_>, at: usize) -> Option<SyntaxError> {
    let name = scan.word(at + 1);
    before(scan, at)
        .filter(|_| scan.tokens.get(at + 1).is_some_and(|t| t.kind == TokenKind::Word))?;
    let help = match written_here(name) {
        Some(here) => here.to_string(),
        None if is_reserved(name) => format!("{name}(a ...)    (operations are written in front)"),
        None => "operations are written in front: gelu(a), sum(a over E)".to_string(),
    };
    no_such(name, span(scan, at..at + 2), help)
}

/// `a[0]`.
fn index(scan: &Scan<'_>, at: usize) -> Option<SyntaxError> {
    let operand = before(scan, at)?;
    let a = text(scan, operand);
    let help = format!("slice({a}, S -> W, 0), or take({a}, ids over S)");
    Some(SyntaxError::new(SyntaxErrorKind::NoIndexing, span(scan, at..at + 1)).with_help(help))
}

/// `einsum("be,ef->bf", a, w)`.
fn subscripts(scan: &Scan<'_>, at: usize) -> Option<SyntaxError> {
    subscripts_within(scan, at, at..at + 1, scan.word(at).trim_matches('"'))
}

/// `einsum('be,ef->bf', a, w)`, at either quote.
fn quoted(scan: &Scan<'_>, at: usize) -> Option<SyntaxError> {
    let is_quote = |at: &usize| scan.word(*at) == "'";
    let last = (at + 1..(at + FAR).min(scan.tokens.len())).find(is_quote);
    let first = (at.saturating_sub(FAR)..at).rev().find(is_quote);
    let of = |first: usize, last: usize| {
        subscripts_within(scan, first, first..last + 1, text(scan, first + 1..last))
    };
    last.and_then(|last| of(at, last)).or_else(|| first.and_then(|first| of(first, at)))
}

/// The error of subscripts in quotes, which are the first operand of the einsum that they stand in:
/// `quoted` are the tokens from the first quote to the last.
fn subscripts_within(
    scan: &Scan<'_>,
    at: usize,
    quoted: Range<usize>,
    subscripts: &str,
) -> Option<SyntaxError> {
    if !(at >= 2 && scan.word(at - 2) == "einsum" && scan.word(at - 1) == "(") {
        return None;
    }
    let dims: String = subscripts.rsplit("->").next()?.to_ascii_uppercase();
    let dims: String = dims.chars().filter(char::is_ascii_uppercase).take(FAR).collect();
    let dims = if dims.is_empty() { "[]".to_string() } else { dims };
    let begin = quoted.end + 1;
    let operands = match behind(scan, at - 2).filter(|all| all.end > begin + 1) {
        Some(all) => text(scan, begin..all.end - 1),
        None => "a, w",
    };
    let help = format!("einsum({operands} -> {dims})    (dims are matched by name)");
    let place = span(scan, quoted);
    Some(SyntaxError::new(SyntaxErrorKind::QuotedSubscripts, place).with_help(help))
}

/// The error of an unknown operation, or of a reduction without dims: `frobnicate(g over X -> K)`,
/// `grad f(x)`, `max(a, b)`.
fn form(scan: &Scan<'_>, at: usize) -> Option<SyntaxError> {
    // `grad f(x)`: two words in a row.
    if at > 0
        && scan.tokens.get(at).is_some_and(|t| t.kind == TokenKind::Word)
        && let word @ ("grad" | "vjp" | "jvp" | "backward" | "value_and_grad") = scan.word(at - 1)
    {
        let help = written_here(word).unwrap_or(&OPERATIONS);
        return no_such(word, span(scan, at - 1..at), help.to_string());
    }
    let (word, open) = call(scan, at)?;
    let name = scan.word(word);
    let is_known = is_reserved(name) || Code::of_source(name).is_some() || is_layer(scan, name);
    if !is_known && is_slot(scan.word(at)) {
        let near = || nearest(name, &Code::sources().chain(["einsum"]).collect::<Vec<_>>());
        let (at, help) = (span(scan, word..open), written_here(name));
        return match help.is_none().then(near).flatten() {
            Some(near) => Some(no_such(name, at, near.to_string())?.with_fix(at, near)),
            None => {
                let all = || format!("one of: {}", *OPERATIONS);
                no_such(name, at, help.map_or_else(all, str::to_string))
            }
        };
    }
    let operand = text(scan, open + 1..at);
    let over_dims = |operand, help: String| {
        let kind = SyntaxErrorKind::ReducesOverDims { word: name.to_string(), operand };
        Some(SyntaxError::new(kind, span(scan, word..open)).with_help(help))
    };
    let along = |dim: &str| format!("{name}({operand} over {dim})");
    match (name, scan.word(at)) {
        ("max", ",") => {
            let other = behind(scan, at + 1).map_or("b", |right| text(scan, right));
            let help = format!("maximum({operand}, {other}), or {}", along(ANY_DIM));
            over_dims(Some(operand.to_string()), help)
        }
        (name, sign @ ("," | ")")) if open + 1 < at && goes_over_dims(name) => {
            let dim = scan.word(at + 1);
            let is_dim = sign == "," && dim.starts_with(|c: char| c.is_ascii_uppercase());
            let help = if is_dim { along(dim) } else { along(ANY_DIM) };
            over_dims((!is_dim).then(|| operand.to_string()), help)
        }
        _ => None,
    }
}

/// The word of the call that a token is in, and the parenthesis that opens the call.
fn call(scan: &Scan<'_>, at: usize) -> Option<(usize, usize)> {
    let mut depth = 0usize;
    let open = (at.saturating_sub(FAR)..at).rev().find(|at| {
        match scan.word(*at) {
            ")" => depth += 1,
            "(" if depth == 0 => return true,
            "(" => depth -= 1,
            _ => {}
        }
        false
    })?;
    let word = open.checked_sub(1).filter(|at| scan.tokens[*at].kind == TokenKind::Word)?;
    Some((word, open))
}

/// The dim that a help names in the place of a dim of the operand.
pub const ANY_DIM: &str = "E";

/// Whether a word leads a part of an op behind its operands.
fn is_slot(word: &str) -> bool {
    matches!(word, "over" | "->" | "at")
}

/// Whether a word is an op whose only slot is the dims that it goes over.
fn goes_over_dims(word: &str) -> bool {
    let slots = Code::of_source(word).map_or(&[][..], |code| code.row().slots);
    matches!(slots, [slot] if matches!(slot.takes, Takes::Dims | Takes::ListOfOne))
}

fn no_such(name: &str, span: Span, help: String) -> Option<SyntaxError> {
    let kind = SyntaxErrorKind::NoSuchOperation { name: name.to_string() };
    Some(SyntaxError::new(kind, span).with_help(help))
}
