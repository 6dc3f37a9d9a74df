//! From text to syntax tree: scan, cut into pieces, parse each piece, and attach comments.

use crate::ast::*;
use crate::build::{Builder, Header};
use crate::error::{SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind};
use crate::expected::{BracketFault, Failure, THE_END, bracket_fault};
use crate::foreign::reworded;
use crate::grammar::{Rule, ShardGrammar};
use crate::limits::{MAX_ERRORS, MAX_FILE_BYTES, MAX_NESTING};
use crate::mend::mended;
use crate::outline::{ItemOutline, LayerOutline, Piece, PieceKind, outline};
use crate::scan::{Scan, TokenKind, scan};
use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;
use shard_words::{SourceFile, Span};
use std::collections::BTreeSet;
use std::ops::Range;

/// What [`parse`] finds: the tree of everything that could be read, and the errors and warnings in
/// file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The tree. Where there are errors, the items and statements with errors are missing from it.
    pub file: File,
    /// What is wrong; at most [`crate::limits::MAX_ERRORS`].
    pub errors: Vec<SyntaxError>,
    /// What is doubtful.
    pub warnings: Vec<SyntaxWarning>,
}

/// Reads a file. Never panics, whatever the text; time and memory are linear in its size.
///
/// ```
/// use shard_grammar::{SourceFile, parse};
/// let parsed = parse(&SourceFile::new("t", "mesh x=4\ndim B = 8\nlayer id(a: f32 B_x) -> f32 B_x { return a }"));
/// assert!(parsed.errors.is_empty());
/// assert_eq!(parsed.file.layers().next().unwrap().name.value, "id");
/// ```
pub fn parse(source: &SourceFile) -> Parsed {
    if let Some(error) = too_large(&source.text) {
        return Parsed { errors: vec![error], ..Parsed::default() };
    }
    let (mut parsed, scan) = read(&source.text);
    let help = |error: SyntaxError| mended(&error, &scan).unwrap_or_else(|| reworded(error, &scan));
    parsed.errors = parsed.errors.into_iter().map(help).collect();
    parsed.errors.sort_by_key(|error| (error.span.start, error.span.end));
    // Two errors, such as those of two quotes, may stem from one thing.
    parsed.errors.dedup();
    parsed
}

/// Whether a text has no error.
pub(crate) fn reads(text: &str) -> bool {
    read(text).0.errors.is_empty()
}

/// What [`parse`] finds, before errors that stem from other languages get their help.
fn read(text: &str) -> (Parsed, Scan<'_>) {
    let mut scan = scan(text);
    let outline = outline(&scan);
    let comments = std::mem::take(&mut scan.comments);
    let scan_errors = std::mem::take(&mut scan.errors);
    let mut reader = Reader::new(&scan, &comments);
    let file_docs = reader.file_docs();
    let items = outline.items.into_iter().filter_map(|item| reader.item(item)).collect();
    let Reader { errors, mut warnings, attached, .. } = reader;
    let errors = scan_errors.into_iter().chain(outline.errors).chain(errors);
    let mut errors: Vec<SyntaxError> = errors.collect();
    errors.sort_by_key(|error| (error.span.start, error.span.end));
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() {
        warnings.extend(
            comments
                .iter()
                .zip(&attached)
                .filter(|(_, attached)| !**attached)
                .filter_map(|(c, _)| stray_doc(c)),
        );
        warnings.sort_by_key(|warning| warning.span);
    }
    (Parsed { file: File { docs: file_docs, items, comments }, errors, warnings }, scan)
}

/// Reads the right side of `-D`: `B=64`, `H = 32 pad 64`. Spans are those of `text`.
pub fn parse_dim_override(text: &str) -> Result<Dim, SyntaxError> {
    parse_argument(text, Rule::dim_argument, |builder, pair| {
        Some(Dim { span: Span::new(0, text.len()), ..builder.dim(pair)? })
    })
}

/// Reads the right side of `--mesh`: `x=8, y=8`. Spans are those of `text`.
pub fn parse_mesh_axes(text: &str) -> Result<Vec<MeshAxis>, SyntaxError> {
    parse_argument(text, Rule::mesh_argument, |builder, pair| builder.mesh(pair))
}

fn parse_argument<T>(
    text: &str,
    rule: Rule,
    build: impl FnOnce(&mut Builder<'_>, Pair<'_, Rule>) -> Option<T>,
) -> Result<T, SyntaxError> {
    if let Some(error) = too_large(text) {
        return Err(error);
    }
    let mut scan = scan(text);
    if let Some(error) = scan.errors.pop() {
        return Err(error);
    }
    let end = scan.tokens.len();
    if end == 0 {
        let expected =
            vec![if rule == Rule::mesh_argument { "a mesh axis" } else { "a dim" }.to_string()];
        let kind = SyntaxErrorKind::Unexpected { expected, found: "nothing".to_string() };
        return Err(SyntaxError::new(kind, Span::new(0, text.len())));
    }
    let mut reader = Reader::new(&scan, &[]);
    let built = reader.piece(rule, 0..end, build);
    match (reader.errors.into_iter().next(), built) {
        (None, Some(built)) => Ok(built),
        (Some(error), _) => Err(error),
        (None, None) => Err(internal(Span::new(0, text.len()))),
    }
}

fn too_large(text: &str) -> Option<SyntaxError> {
    let kind = SyntaxErrorKind::FileTooLarge { bytes: text.len() };
    (text.len() > MAX_FILE_BYTES).then(|| SyntaxError::new(kind, Span::at(0)))
}

/// The error of a piece that pest accepts and the builder cannot read. No text is known to cause
/// it.
fn internal(span: Span) -> SyntaxError {
    let kind = SyntaxErrorKind::Unexpected { expected: Vec::new(), found: "this".to_string() };
    SyntaxError::new(kind, span)
}

fn stray_doc(comment: &Comment) -> Option<SyntaxWarning> {
    let kind = match comment.kind {
        CommentKind::Plain => return None,
        CommentKind::Doc => SyntaxWarningKind::DocOfNothing,
        CommentKind::FileDoc => SyntaxWarningKind::FileDocNotAtTop,
    };
    let span = comment.span;
    let slashes = Span::new(span.start, span.start + 3);
    let help = Some("write `//`".to_string());
    Some(SyntaxWarning {
        kind,
        span,
        help,
        fix: Some(crate::error::Fix { span: slashes, replacement: "//".to_string() }),
    })
}

const STATEMENT_KEYWORDS: &[&str] = &["let", "expect", "return", "layer"];
const ITEM_KEYWORDS: &[&str] = &["hardware", "mesh", "dim", "phase", "layer", "strict", "model"];

struct Reader<'a, 't> {
    scan: &'a Scan<'t>,
    comments: &'a [Comment],
    /// The names of layers and models.
    layers: BTreeSet<&'t str>,
    /// Which comments document something.
    attached: Vec<bool>,
    errors: Vec<SyntaxError>,
    warnings: Vec<SyntaxWarning>,
}

impl<'a, 't> Reader<'a, 't> {
    fn new(scan: &'a Scan<'t>, comments: &'a [Comment]) -> Reader<'a, 't> {
        let attached = vec![false; comments.len()];
        let layers = (1..scan.tokens.len())
            .filter(|at| matches!(scan.word(at - 1), "layer" | "model"))
            .map(|at| scan.word(at))
            .collect();
        Reader { scan, comments, layers, attached, errors: Vec::new(), warnings: Vec::new() }
    }

    fn item(&mut self, item: ItemOutline) -> Option<Item> {
        let Piece { kind, tokens } = match item {
            ItemOutline::Line(piece) => piece,
            ItemOutline::Layer(layer) => return self.layer(layer).map(Item::Layer),
        };
        let span = self.tokens_span(&tokens);
        let docs = self.docs(span.start);
        Some(match kind {
            PieceKind::Hardware => {
                let chip = self.piece(Rule::hardware_piece, tokens, |b, pair| b.hardware(pair))?;
                Item::Hardware(Hardware { span, docs, chip })
            }
            PieceKind::Mesh => {
                let axes = self.piece(Rule::mesh_piece, tokens, |b, pair| b.mesh(pair))?;
                Item::Mesh(Mesh { span, docs, axes })
            }
            PieceKind::Dim => {
                let dim = self.piece(Rule::dim_piece, tokens, |b, pair| b.dim(pair))?;
                Item::Dim(Dim { span, docs, ..dim })
            }
            PieceKind::Phase => {
                let mut scanned = self.scan.tokens[tokens.clone()].iter();
                let phase = self.piece(Rule::phase_piece, tokens, |b, pair| b.phase(pair))?;
                let (name, repeat, sizes) = phase;
                let open = scanned.find(|token| token.kind == TokenKind::Open)?;
                let body_span = Span::new(open.span.start, span.end);
                Item::Phase(Phase { span, docs, name, repeat, body_span, sizes })
            }
            PieceKind::Let | PieceKind::Expect | PieceKind::Return => return None,
        })
    }

    fn layer(&mut self, outline: LayerOutline) -> Option<Layer> {
        let header_span = self.tokens_span(&outline.header);
        let docs = self.docs(header_span.start);
        let header = if outline.misspelt {
            None
        } else {
            self.piece(Rule::header_piece, outline.header.clone(), |b, pair| b.header(pair))
        };
        let body: Vec<Statement> =
            outline.statements.into_iter().filter_map(|piece| self.statement(piece)).collect();
        let Header { strict, model, name, params_span, mut params, results, repeat } = header?;
        for param in &mut params {
            param.docs = self.docs(param.span.start);
        }
        let open = self.scan.tokens.get(outline.open?)?.span;
        let close = self.scan.tokens.get(outline.close?)?.span;
        let (span, body_span) = (header_span.to(close), open.to(close));
        let before_open = outline.header.start..outline.header.end - 1;
        let header_span = self.tokens_span(&before_open);
        Some(Layer {
            span,
            header_span,
            docs,
            strict,
            model,
            name,
            params_span,
            params,
            results,
            repeat,
            body_span,
            body,
        })
    }

    fn statement(&mut self, Piece { kind, tokens }: Piece) -> Option<Statement> {
        let span = self.tokens_span(&tokens);
        Some(match kind {
            PieceKind::Return => {
                let build = |b: &mut Builder<'_>, pair: Pair<'_, Rule>| b.return_statement(pair);
                let value = self.piece(Rule::return_piece, tokens, build)?;
                Statement::Return(Return { span, value })
            }
            PieceKind::Expect => {
                let build = |b: &mut Builder<'_>, pair: Pair<'_, Rule>| b.expect_statement(pair);
                let claim = self.piece(Rule::expect_piece, tokens, build)?;
                Statement::Expect(Expect { span, claim })
            }
            PieceKind::Let => {
                let docs = self.docs(span.start);
                let build = |b: &mut Builder<'_>, pair: Pair<'_, Rule>| b.let_statement(pair);
                let (target, value) = self.piece(Rule::let_piece, tokens, build)?;
                Statement::Let(Let { span, docs, target, value })
            }
            PieceKind::Hardware | PieceKind::Mesh | PieceKind::Dim | PieceKind::Phase => {
                return None;
            }
        })
    }

    /// Parses one piece and builds its node.
    fn piece<T>(
        &mut self,
        rule: Rule,
        tokens: Range<usize>,
        build: impl FnOnce(&mut Builder<'_>, Pair<'_, Rule>) -> Option<T>,
    ) -> Option<T> {
        let span = self.tokens_span(&tokens);
        if self.has_fault(span) || self.errors.len() >= MAX_ERRORS {
            return None;
        }
        let has_body_open = rule == Rule::header_piece && self.scan.word(tokens.end - 1) == "{";
        let (end_words, next_keywords) = match rule {
            Rule::header_piece => (if has_body_open { "`{`" } else { "the body" }, ITEM_KEYWORDS),
            Rule::let_piece | Rule::expect_piece | Rule::return_piece => {
                ("the next statement", STATEMENT_KEYWORDS)
            }
            Rule::dim_argument | Rule::mesh_argument => (THE_END, &[][..]),
            _ => ("the next item", ITEM_KEYWORDS),
        };
        let bracketed = tokens.start..tokens.end - usize::from(has_body_open);
        let bracket = bracket_fault(self.scan, bracketed, MAX_NESTING);
        if let Some(BracketFault::TooDeep(index)) = bracket {
            let error =
                SyntaxError::new(SyntaxErrorKind::NestedTooDeep, self.scan.tokens[index].span);
            self.errors.push(error.with_help("name a part of it with `let`"));
            return None;
        }
        let text = self.without_semicolons(span);
        match ShardGrammar::parse(rule, &text) {
            Ok(mut pairs) => {
                let count = self.errors.len();
                let mut builder = Builder {
                    offset: span.start,
                    layers: &self.layers,
                    errors: &mut self.errors,
                    warnings: &mut self.warnings,
                };
                let built = pairs.next().and_then(|pair| build(&mut builder, pair));
                if built.is_none() && self.errors.len() == count {
                    self.errors.push(internal(span));
                }
                built
            }
            Err(error) => {
                let at = match error.location {
                    InputLocation::Pos(at) | InputLocation::Span((at, _)) => span.start + at,
                };
                let rules = match error.variant {
                    ErrorVariant::ParsingError { positives, .. } => positives,
                    ErrorVariant::CustomError { .. } => Vec::new(),
                };
                let scan = self.scan;
                self.errors.push(
                    Failure { scan, tokens, at, rules, end_words, next_keywords, bracket }.error(),
                );
                None
            }
        }
    }

    fn tokens_span(&self, tokens: &Range<usize>) -> Span {
        let span = |index: usize| {
            self.scan.tokens.get(index).map_or(Span::at(self.scan.text.len()), |token| token.span)
        };
        span(tokens.start).to(span(tokens.end.saturating_sub(1).max(tokens.start)))
    }

    fn has_fault(&self, span: Span) -> bool {
        let first = self.scan.faults.partition_point(|&at| at < span.start);
        self.scan.faults.get(first).is_some_and(|&at| at < span.end)
    }

    /// The text of a piece with blanks in place of semicolons, which are already reported.
    fn without_semicolons(&self, span: Span) -> std::borrow::Cow<'t, str> {
        let text = &self.scan.text[span.start..span.end];
        let semicolons = &self.scan.semicolons;
        let first = semicolons.partition_point(|&at| at < span.start);
        if semicolons.get(first).is_none_or(|&at| at >= span.end) {
            return text.into();
        }
        let mut bytes = text.to_string();
        for &at in semicolons[first..].iter().take_while(|&&at| at < span.end) {
            let at = at - span.start;
            bytes.replace_range(at..at + 1, " ");
        }
        bytes.into()
    }

    /// The `///` lines right above the token that starts at `start`.
    fn docs(&mut self, start: usize) -> Vec<String> {
        let tokens = &self.scan.tokens;
        let index = tokens.partition_point(|token| token.span.start < start);
        let previous_end = if index == 0 { 0 } else { tokens[index - 1].span.end };
        let end = self.comments.partition_point(|comment| comment.span.start < start);
        let first = self.comments.partition_point(|comment| comment.span.start < previous_end);
        let mut docs = Vec::new();
        for (comment, attached) in
            self.comments[first..end].iter().zip(&mut self.attached[first..end])
        {
            if comment.kind == CommentKind::Doc && comment.own_line {
                *attached = true;
                docs.push(doc_line(comment));
            }
        }
        docs
    }

    /// The `//!` lines above the first token.
    fn file_docs(&mut self) -> Vec<String> {
        let first = self.scan.tokens.first().map_or(usize::MAX, |token| token.span.start);
        let mut docs = Vec::new();
        for (comment, attached) in self.comments.iter().zip(&mut self.attached) {
            if comment.span.start < first && comment.kind == CommentKind::FileDoc {
                *attached = true;
                docs.push(doc_line(comment));
            }
        }
        docs
    }
}

fn doc_line(comment: &Comment) -> String {
    comment.text.strip_prefix(' ').unwrap_or(&comment.text).to_string()
}
