//! Cuts a text into the pieces that the grammar parses one by one. pest reports one error for each
//! parse; so each line, header and statement is parsed by itself, and an error in one does not hide
//! errors in the next.

use crate::error::{SyntaxError, SyntaxErrorKind};
use crate::limits::MAX_ERRORS;
use crate::scan::{Scan, TokenKind};
use shard_words::Span;
use std::ops::Range;

/// The words that begin an item of a file.
const ITEMS: [&str; 7] = ["hardware", "mesh", "dim", "phase", "layer", "strict layer", "model"];

/// The words with which functions begin in other languages.
const FUNCTIONS: [&str; 6] = ["def", "fn", "func", "fun", "function", "module"];

shard_ops::worded! {
    /// The kinds of pieces: first the four kinds of lines of a file, then the statements of a
    /// layer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum PieceKind {
        Hardware = "hardware",
        Mesh = "mesh",
        Dim = "dim",
        Phase = "phase",
        Let = "let",
        Expect = "expect",
        Return = "return",
    }
    /// The word that begins it.
    fn word;
}

impl PieceKind {
    /// The kind of line that a word begins, if it begins one.
    fn of_line(word: &str) -> Option<PieceKind> {
        PieceKind::ALL[..4].iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind of statement that a word begins, if it begins one.
    fn of_statement(word: &str) -> Option<PieceKind> {
        PieceKind::ALL[4..].iter().copied().find(|kind| kind.word() == word)
    }
}

/// A run of tokens that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) kind: PieceKind,
    /// Indices into the scan's tokens.
    pub(crate) tokens: Range<usize>,
}

/// A layer's pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerOutline {
    /// The header, with the `{` if there is one.
    pub(crate) header: Range<usize>,
    /// Whether the word `layer` itself is misspelt. That is reported, and the header is not parsed.
    pub(crate) misspelt: bool,
    pub(crate) statements: Vec<Piece>,
    /// The opening and the closing brace, where they are there.
    pub(crate) open: Option<usize>,
    pub(crate) close: Option<usize>,
}

/// One item's pieces.
#[derive(Clone, Debug)]
pub(crate) enum ItemOutline {
    Line(Piece),
    Layer(LayerOutline),
}

/// The pieces of a whole file, and the errors between them.
pub(crate) struct Outline {
    pub(crate) items: Vec<ItemOutline>,
    pub(crate) errors: Vec<SyntaxError>,
}

/// Cuts a text into pieces.
pub(crate) fn outline(scan: &Scan<'_>) -> Outline {
    let mut cutter = Cutter { scan, at: 0, errors: Vec::new(), strayed: false };
    let mut items = Vec::new();
    while cutter.at < scan.tokens.len() {
        if let Some(item) = cutter.item() {
            items.push(item);
        }
    }
    Outline { items, errors: cutter.errors }
}

struct Cutter<'s, 't> {
    scan: &'s Scan<'t>,
    at: usize,
    errors: Vec<SyntaxError>,
    /// Whether statements outside any layer were just reported: the errors that follow from them
    /// are not reported.
    strayed: bool,
}

impl Cutter<'_, '_> {
    fn word(&self, index: usize) -> &str {
        self.scan.word(index)
    }

    fn is_statement(&self, index: usize) -> bool {
        PieceKind::of_statement(self.word(index)).is_some()
    }

    fn is_word(&self, index: usize) -> bool {
        self.scan.tokens.get(index).is_some_and(|token| token.kind == TokenKind::Word)
    }

    fn span(&self, index: usize) -> Span {
        self.scan.tokens.get(index).map_or(Span::at(self.scan.text.len()), |token| token.span)
    }

    fn report(&mut self, error: SyntaxError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn item(&mut self) -> Option<ItemOutline> {
        let start = self.at;
        let had_strayed = std::mem::replace(&mut self.strayed, false);
        if let Some(kind) = PieceKind::of_line(self.word(start)) {
            self.skip_line();
            let ends_here =
                (kind == PieceKind::Phase || self.is_braced(start)) && self.word(self.at) == "}";
            self.at += usize::from(ends_here);
            return Some(ItemOutline::Line(Piece { kind, tokens: start..self.at }));
        }
        match self.scan.word(start) {
            "layer" | "strict" | "model" => Some(ItemOutline::Layer(self.layer())),
            "}" => {
                self.strayed = had_strayed;
                if !had_strayed {
                    let kind = SyntaxErrorKind::Unopened { close: '}' };
                    let error = SyntaxError::new(kind, self.span(start));
                    self.report(error.with_help("remove it").with_fix(self.span(start), ""));
                }
                self.at += 1;
                None
            }
            _ if self.is_misspelt_layer(start) => {
                self.stray(start, &["layer"]);
                Some(ItemOutline::Layer(LayerOutline { misspelt: true, ..self.layer() }))
            }
            word => {
                self.strayed = true;
                if let Some(statement) = PieceKind::of_statement(word) {
                    if !had_strayed {
                        let word = statement.word();
                        let kind = SyntaxErrorKind::StatementOutsideLayer { word };
                        self.report(SyntaxError::new(kind, self.span(start)));
                    }
                } else {
                    self.stray(start, &ITEMS);
                }
                self.skip_line();
                None
            }
        }
    }

    /// Whether the content of a line is in braces, as in other languages.
    fn is_braced(&self, start: usize) -> bool {
        let sign = usize::from(matches!(self.word(start + 1), "=" | ":"));
        self.word(start + 1 + sign) == "{"
    }

    fn layer(&mut self) -> LayerOutline {
        let start = self.at;
        let is_strict =
            self.word(start) == "strict" && matches!(self.word(start + 1), "layer" | "model");
        self.at += 1 + usize::from(is_strict);
        self.skip_until(|this, index| {
            this.is_statement(index)
                || this.starts_item_inside(index)
                || (this.word(index) == "{" && this.opens_body(index))
                || (this.word(index) == "}" && !this.closes_axes(index))
        });
        let mut outline = LayerOutline { header: start..self.at, ..LayerOutline::default() };
        if self.word(self.at) == "{" {
            outline.open = Some(self.at);
            self.at += 1;
            outline.header.end = self.at;
        } else if self.at >= self.scan.tokens.len() || self.starts_item_inside(self.at) {
            return outline;
        }
        while self.at < self.scan.tokens.len() {
            let start = self.at;
            if self.word(start) == "}" {
                outline.close = Some(start);
                self.at += 1;
                return outline;
            }
            let kind = PieceKind::of_statement(self.word(start));
            if kind.is_none() {
                if self.starts_item_inside(start) {
                    break;
                }
                self.stray(start, &["let", "expect", "return", "}"]);
            }
            self.at += 1;
            self.skip_until(|this, index| this.ends_statement(index));
            if let Some(kind) = kind {
                outline.statements.push(Piece { kind, tokens: start..self.at });
            }
        }
        if let Some(open) = outline.open {
            let kind = SyntaxErrorKind::Unclosed { open: '{', close: '}' };
            let end = self.span(self.at.saturating_sub(1)).end;
            let error = SyntaxError::new(kind, self.span(open));
            self.report(error.with_help("close the layer with `}`").with_fix(Span::at(end), "\n}"));
        }
        outline
    }

    fn skip_line(&mut self) {
        self.at += 1;
        self.skip_until(|this, index| this.ends_line(index));
    }

    fn skip_until(&mut self, stop: impl Fn(&Self, usize) -> bool) {
        while self.at < self.scan.tokens.len() && !stop(self, self.at) {
            self.at += 1;
        }
    }

    /// Reports a token with which no piece can start.
    fn stray(&mut self, index: usize, keywords: &[&'static str]) {
        let span = self.span(index);
        let token = self.scan.tokens[index];
        if matches!(token.kind, TokenKind::Strange | TokenKind::UnclosedText) {
            return; // reported by the scan
        }
        let word = self.word(index).to_string();
        let meant = match keywords {
            [meant] => Some(*meant),
            _ => nearest(&word, keywords),
        };
        let is_word = token.kind == TokenKind::Word;
        if let Some(meant) = meant.filter(|_| is_word) {
            let kind = SyntaxErrorKind::MisspeltKeyword { word, meant };
            return self
                .report(SyntaxError::new(kind, span).with_help(meant).with_fix(span, meant));
        }
        let expected = keywords.iter().map(|word| format!("`{word}`")).collect();
        let kind = SyntaxErrorKind::Unexpected { expected, found: format!("`{word}`") };
        let mut error = SyntaxError::new(kind, span);
        if keywords.contains(&"let") && is_word && self.word(index + 1) == "=" {
            let help = format!("let {word} = ...");
            error = error.with_help(help).with_fix(Span::at(span.start), "let ");
        }
        self.report(error);
    }

    /// Whether a line of hardware, mesh or dim, or something unknown in its place, ends before this
    /// token.
    fn ends_line(&self, index: usize) -> bool {
        match self.word(index) {
            "}" => true,
            _ if self.is_statement(index) => true,
            "layer" => self.is_layer_keyword(index),
            "model" => self.is_model_keyword(index),
            "hardware" | "mesh" | "dim" | "phase" | "strict" => {
                !self.is_axis(index) && !matches!(self.word(index - 1), "-" | "hardware")
            }
            _ => self.is_misspelt_layer(index),
        }
    }

    /// Whether a mesh axis with its size stands here, and not `mesh = 4x4` as in another language.
    fn is_axis(&self, index: usize) -> bool {
        let size = self.word(index + 2);
        self.word(index + 1) == "="
            && (size.bytes().all(|b| b.is_ascii_digit() || b == b'.')
                || !matches!(self.word(index), "hardware" | "mesh"))
    }

    /// Whether a phase starts here: `phase` may also name other things.
    fn starts_phase(&self, index: usize) -> bool {
        self.word(index) == "phase"
            && (matches!(self.word(index + 1), "{" | "repeat")
                || (self.is_word(index + 1) && matches!(self.word(index + 2), "{" | "repeat")))
    }

    /// Whether this `layer` starts a layer and does not name a mesh axis.
    fn is_layer_keyword(&self, index: usize) -> bool {
        !matches!(self.word(index + 1), "=" | "," | "}")
    }

    /// Whether this `model` starts a model: it may also name a mesh axis.
    fn is_model_keyword(&self, index: usize) -> bool {
        self.is_word(index + 1) && self.word(index + 2) == "("
    }

    /// Whether a misspelt `layer`, or the word for a function of another language, stands here,
    /// judged by the tokens behind it.
    fn is_misspelt_layer(&self, index: usize) -> bool {
        self.word(index) != "layer"
            && self.is_word(index)
            && self.is_word(index + 1)
            && !self.is_statement(index + 1)
            && self.word(index + 2) == "("
            && (FUNCTIONS.contains(&self.word(index))
                || nearest(self.word(index), &["layer"]).is_some())
    }

    fn ends_statement(&self, index: usize) -> bool {
        match self.word(index) {
            "}" => !self.closes_axes(index),
            _ => self.is_statement(index) || self.starts_item_inside(index),
        }
    }

    /// Whether an item starts here although a layer is still open. `mesh` and other keywords may
    /// name values, so the tokens behind them decide.
    fn starts_item_inside(&self, index: usize) -> bool {
        let next = self.word(index + 1);
        match self.word(index) {
            "layer" => self.is_layer_keyword(index),
            "model" => self.is_model_keyword(index),
            "strict" => matches!(next, "layer" | "model"),
            "dim" => {
                next.starts_with(|c: char| c.is_ascii_uppercase()) && self.word(index + 2) == "="
            }
            "mesh" => {
                self.is_word(index + 1)
                    && self.word(index + 2) == "="
                    && !self.is_statement(index + 1)
            }
            "hardware" => {
                next.starts_with('"')
                    || (self.is_word(index + 1)
                        && !self.is_statement(index + 1)
                        && !matches!(next, "layer" | "over" | "at" | "dim" | "mesh" | "strict"))
            }
            _ => self.starts_phase(index) || self.is_misspelt_layer(index),
        }
    }

    /// Whether a `{` opens a body. A `{` before axes stands right behind `_`, or behind `-` or `(`.
    fn opens_body(&self, index: usize) -> bool {
        if index == 0 {
            return true;
        }
        let before = self.word(index - 1);
        let behind_underscore =
            before.ends_with('_') && self.span(index - 1).end == self.span(index).start;
        !(behind_underscore || matches!(before, "-" | "("))
    }

    /// Whether a `}` closes the braces of axes, which hold only names and commas.
    fn closes_axes(&self, index: usize) -> bool {
        let between = |&before: &usize| {
            !(self.is_word(before) && !self.is_statement(before) || self.word(before) == ",")
        };
        let open = (0..index).rev().find(between);
        open.is_some_and(|open| self.word(open) == "{" && !self.opens_body(open))
    }
}

/// The keyword that a word misspells by one slip: a letter too many, too few or changed, or two
/// letters swapped.
pub(crate) fn nearest(word: &str, keywords: &[&'static str]) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    let is_near = |keyword: &&str| keyword.len() > 2 && strsim::osa_distance(&word, keyword) <= 1;
    keywords.iter().copied().find(is_near)
}
