//! Turns pest's one position and its rule names into an error in the user's words.

use crate::error::{SyntaxError, SyntaxErrorKind};
use crate::grammar::Rule;
use crate::outline::nearest;
use crate::scan::{Scan, TokenKind};
use shard_words::Span;
use std::ops::Range;

/// A bracket of a piece that has no partner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BracketFault {
    Unclosed(usize),
    Unopened(usize),
    TooDeep(usize),
}

/// The first bracket without a partner among some tokens (a header's own `{` not counted).
pub(crate) fn bracket_fault(
    scan: &Scan<'_>,
    tokens: Range<usize>,
    max_nesting: usize,
) -> Option<BracketFault> {
    let mut open: Vec<usize> = Vec::new();
    for index in tokens {
        match scan.tokens[index].kind {
            TokenKind::Open => {
                open.push(index);
                if open.len() > max_nesting {
                    return Some(BracketFault::TooDeep(index));
                }
            }
            TokenKind::Close => match open.pop() {
                Some(opener) if closer(scan.word(opener)) == scan.word(index) => {}
                _ => return Some(BracketFault::Unopened(index)),
            },
            _ => {}
        }
    }
    open.pop().map(BracketFault::Unclosed)
}

fn closer(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

fn first_char(text: &str) -> char {
    text.chars().next().unwrap_or(' ')
}

/// Where and why a piece could not be parsed.
pub(crate) struct Failure<'a, 't> {
    pub(crate) scan: &'a Scan<'t>,
    /// The piece's tokens.
    pub(crate) tokens: Range<usize>,
    /// The byte of the file at which pest failed.
    pub(crate) at: usize,
    /// The rules that pest tried there.
    pub(crate) rules: Vec<Rule>,
    /// What follows the piece, in the user's words: `the next statement`.
    pub(crate) end_words: &'static str,
    /// The keywords with which another piece could start.
    pub(crate) next_keywords: &'static [&'static str],
    pub(crate) bracket: Option<BracketFault>,
}

impl Failure<'_, '_> {
    /// The error in the user's words.
    pub(crate) fn error(&self) -> SyntaxError {
        let scan = self.scan;
        let index = scan.token_at(self.at).max(self.tokens.start);
        let at_end = index >= self.tokens.end;
        let end = scan.tokens[self.tokens.end - 1].span.end;
        let expected = expected_words(&self.rules, self.end_words);
        if let Some(error) = self.of_bracket(index, &expected) {
            return error;
        }
        let span = if at_end { Span::at(end) } else { scan.tokens[index].span };
        let found = match scan.tokens.get(index) {
            Some(token) if token.kind == TokenKind::Text => "a string".to_string(),
            Some(_) => format!("`{}`", scan.word(index)),
            None if self.end_words == THE_END => THE_END.to_string(),
            None => "the end of the file".to_string(),
        };
        if !at_end && let Some(error) = self.misspelt(index, &expected) {
            return error;
        }
        let ends = expected.iter().any(|word| word == self.end_words);
        let takes_comma = expected.iter().any(|word| word == "`,`");
        let typed = scan.word(index + 1).starts_with(|c: char| c.is_ascii_uppercase());
        let has_equals = scan.word(index + 1) == "=";
        let takes_equals = !typed && !has_equals && expected.iter().any(|word| word == "`=`");
        let mut error = SyntaxError::new(SyntaxErrorKind::Unexpected { expected, found }, span);
        if !at_end {
            let (kind, word, is_first) =
                (scan.tokens[index].kind, scan.word(index), index == self.tokens.start);
            let behind = if is_first { span.start } else { scan.tokens[index - 1].span.end };
            let starts_something =
                matches!(kind, TokenKind::Word | TokenKind::Number) || word == "(";
            let assigned = kind == TokenKind::Word && has_equals;
            let put = |sign: &str| format!("put `{sign}` before `{word}`");
            if assigned && ends && self.next_keywords.contains(&"let") && !is_first {
                let help = format!("let {word} = ...");
                error = error.with_help(help).with_fix(Span::at(span.start), "let ");
            } else if takes_comma && starts_something {
                error = error.with_help(put(",")).with_fix(Span::at(behind), ",");
            } else if takes_equals && starts_something {
                error = error.with_help(put("=")).with_fix(Span::at(behind), " =");
            }
        }
        if let Some(BracketFault::Unclosed(open)) = self.bracket
            && open < index
        {
            error = error.with_note(
                scan.tokens[open].span,
                format!("this `{}` is still open", scan.word(open)),
            );
        }
        error
    }

    /// The error of a bracket that is closed at this token and never opened, or opened and never
    /// closed.
    fn of_bracket(&self, index: usize, expected: &[String]) -> Option<SyntaxError> {
        let scan = self.scan;
        match self.bracket? {
            BracketFault::Unopened(stray) if stray == index => {
                let span = scan.tokens[stray].span;
                let kind = SyntaxErrorKind::Unopened { close: first_char(scan.word(stray)) };
                Some(SyntaxError::new(kind, span))
            }
            BracketFault::Unclosed(open) if index >= self.tokens.end || open == index => {
                let close = closer(scan.word(open));
                let kind = SyntaxErrorKind::Unclosed {
                    open: first_char(scan.word(open)),
                    close: first_char(close),
                };
                let error = SyntaxError::new(kind, scan.tokens[open].span);
                if !expected.iter().any(|word| word.trim_matches('`') == close) {
                    return Some(error);
                }
                let last = self.tokens.end - 1;
                let help = format!("put `{close}` behind `{}`", scan.word(last));
                Some(error.with_help(help).with_fix(Span::at(scan.tokens[last].span.end), close))
            }
            BracketFault::Unopened(_) | BracketFault::Unclosed(_) | BracketFault::TooDeep(_) => {
                None
            }
        }
    }

    /// The error of a misspelt keyword, if the word there is one.
    fn misspelt(&self, index: usize, expected: &[String]) -> Option<SyntaxError> {
        let token = self.scan.tokens[index];
        if token.kind != TokenKind::Word {
            return None;
        }
        let word = self.scan.word(index);
        let starts_piece = index > self.tokens.start
            && self.scan.tokens.get(index + 1).is_some_and(|next| {
                matches!(next.kind, TokenKind::Word | TokenKind::Number | TokenKind::Text)
                    || self.scan.word(index + 1) == "("
            });
        let next_keywords = if starts_piece { self.next_keywords } else { &[] };
        let inner: Vec<&'static str> = INNER_KEYWORDS
            .iter()
            .copied()
            .filter(|inner| expected.iter().any(|word| word.trim_matches('`') == *inner))
            .collect();
        let meant = nearest(word, next_keywords)
            .or_else(|| nearest(word, &inner))
            .filter(|meant| *meant != word)?;
        let kind = SyntaxErrorKind::MisspeltKeyword { word: word.to_string(), meant };
        Some(SyntaxError::new(kind, token.span).with_help(meant).with_fix(token.span, meant))
    }
}

/// What follows a piece that is the whole text.
pub(crate) const THE_END: &str = "the end";

const INNER_KEYWORDS: [&str; 6] = ["over", "repeat", "pad", "layer", "strict", "model"];

/// The rules of pest in a user's words, without those that another of them implies.
fn expected_words(rules: &[Rule], end_words: &'static str) -> Vec<String> {
    let mut words: Vec<&str> =
        rules.iter().filter_map(|&rule| rule_words(rule, end_words)).collect();
    let expression = words.contains(&AN_EXPRESSION)
        || rules.contains(&Rule::value_ref)
        || rules.contains(&Rule::call);
    if expression {
        words.retain(|word| !matches!(*word, "a number" | "`(`"));
        words.push(AN_EXPRESSION);
    }
    if words.contains(&A_SIZE) {
        words.retain(|word| !matches!(*word, "a number" | "a dim" | "`(`"));
    }
    if words.contains(&AN_OPERATOR) {
        words.retain(|word| *word != "`(`");
    }
    if words.contains(&A_TYPE) {
        words.retain(|word| !matches!(*word, "a dtype" | A_LAYOUT | "`weight` or `cache`"));
    }
    if words.len() > 1 {
        words.retain(|word| *word != A_PARTIAL);
    }
    words.sort_by_key(|word| (rank(word), *word));
    words.dedup();
    words.into_iter().map(str::to_string).collect()
}

const AN_EXPRESSION: &str = "an expression";
const AN_OPERATOR: &str = "an operator";
const A_LAYOUT: &str = "a layout such as `BL_xE`";
pub(crate) const A_TYPE: &str = "a type such as `bf16 BL_xE`";
const A_SIZE: &str = "a size (a number, a dim or `(`)";
const A_PARTIAL: &str = "a partial such as `(partialsum-x)`";
const OF_DIMS: &str = "dims such as `BL` or `[Batch, Seq]`";

/// The order of words in a message: signs first, rarer things last.
fn rank(word: &str) -> u8 {
    match word {
        AN_OPERATOR => 3,
        _ if word.starts_with("the ") => 4,
        _ if word.starts_with('`') => 1,
        _ => 2,
    }
}

fn rule_words(rule: Rule, end_words: &'static str) -> Option<&'static str> {
    use Rule::*;
    Some(match rule {
        EOI => end_words,
        hardware_path => "a path in quotes",
        hardware_name => "the name of a chip",
        mesh_axes | mesh_axis | axis_name => "a mesh axis",
        dim_definition | dim_name => "a dim",
        int_expr | int_product | int_atom => A_SIZE,
        number => "a number",
        params | open_paren | int_paren | let_many | result_list | call_args | return_many
        | paren => "`(`",
        param => "a parameter",
        result => "a named result",
        value_name | let_one => "a value name",
        layer_name => "a layer name",
        phase_name => "a phase name",
        type_ | results => A_TYPE,
        kind => "`weight` or `cache`",
        dtype => "a dtype",
        layout => A_LAYOUT,
        dim_list => OF_DIMS,
        partial => A_PARTIAL,
        expr | product | unary | value_ref | call | named => AN_EXPRESSION,
        hardware_word => "`hardware`",
        mesh_word => "`mesh`",
        dim_word => "`dim`",
        phase_word => "`phase`",
        pad_word => "`pad`",
        strict_word => "`strict`",
        model_word => "`model`",
        layer_word => "`layer`",
        repeat | stack | repeat_word => "`repeat`",
        let_word => "`let`",
        expect_word => "`expect`",
        strategy_word => "`strategy`",
        no_word => "`no`",
        of_word => "`of`",
        measure => "what is measured, such as `comm` or `all-gathers`",
        strategy_name => "a strategy",
        comparison => "a comparison such as `<=`",
        amount | amount_number => "an amount such as `2` or `40us`",
        unit => "a unit",
        return_word => "`return`",
        over_word => "`over`",
        at_word => "`at`",
        equals => "`=`",
        colon => "`:`",
        comma => "`,`",
        arrow => "`->`",
        close_paren => "`)`",
        body_open => "`{`",
        body_close => "`}`",
        plus | minus | times | divide => AN_OPERATOR,
        // A minus sign is not worth a mention, forms are expressions, and pieces and silent rules
        // are never reported alone.
        _ => return None,
    })
}
