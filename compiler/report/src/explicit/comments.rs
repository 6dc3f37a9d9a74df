//! The comments of a layer's body, given back statement by statement.

use std::collections::BTreeSet;

use shard_grammar::ast::{self, CommentKind};
use shard_grammar::{SourceFile, Span};

/// A statement of the source and its comments.
struct CommentedStatement {
    span: Span,
    /// The layer, by number in the file.
    layer: usize,
    /// Comments above it, with their slashes.
    above: Vec<String>,
    /// The comment on its last line.
    behind: Option<String>,
    /// An empty line stands above it (or above its comments).
    blank: bool,
    is_return: bool,
    /// The text of an expectation, which stays as it is.
    expects: Option<String>,
}

/// The comments of all bodies of a file; each is given back once.
pub(crate) struct Comments<'a> {
    source: &'a SourceFile,
    places: Vec<CommentedStatement>,
    /// The layer that is written.
    layer: usize,
    said: BTreeSet<usize>,
    /// Comments behind the last statement.
    tail: Vec<String>,
    wrote: bool,
}

impl<'a> Comments<'a> {
    /// The comments for the body of one layer and of those inlined into it.
    pub(crate) fn new(source: &'a SourceFile, tree: &ast::File, name: &str) -> Comments<'a> {
        let mut comments = Comments {
            source,
            places: Vec::new(),
            layer: 0,
            said: BTreeSet::new(),
            tail: Vec::new(),
            wrote: false,
        };
        for (number, layer) in tree.layers().enumerate() {
            let mut from = layer.body_span.start + 1;
            for statement in &layer.body {
                let span = statement.span();
                comments.place(
                    tree,
                    number,
                    from,
                    span,
                    matches!(statement, ast::Statement::Return(_)),
                );
                if let (ast::Statement::Expect(_), Some(place)) =
                    (statement, comments.places.last_mut())
                {
                    place.expects = Some(source.slice(span).to_string());
                }
                from = span.end;
            }
            if layer.name.value == name {
                comments.layer = number;
                comments.tail =
                    own_lines(tree, Span::new(from, layer.body_span.end)).map(text).collect();
            }
        }
        comments
    }

    fn place(&mut self, tree: &ast::File, layer: usize, from: usize, span: Span, is_return: bool) {
        let above: Vec<&ast::Comment> = own_lines(tree, Span::new(from, span.end)).collect();
        let first = above.first().map_or(span.start, |c| c.span.start.min(span.start));
        let blank =
            self.source.text.get(from..first).is_some_and(|gap| gap.matches('\n').count() > 1);
        let last_line = self.source.line_column(span.end).line;
        let behind = tree.comments.iter().find(|c| {
            !c.own_line
                && c.span.start >= span.start
                && self.source.line_column(c.span.start).line == last_line
        });
        let behind = behind.map(text);
        self.places.push(CommentedStatement {
            span,
            layer,
            above: above.into_iter().map(text).collect(),
            behind,
            blank,
            is_return,
            expects: None,
        });
    }

    /// The statement that a place of the source is in.
    pub(crate) fn statement(&self, span: Span) -> Option<usize> {
        self.places.iter().position(|p| p.span.start <= span.start && span.end <= p.span.end)
    }

    /// The comments above the statement at a span, and above earlier statements of its layer that
    /// have no line. Its doc comments stay doc comments where `documents` is set.
    pub(crate) fn before(&mut self, span: Option<Span>, documents: bool) -> Vec<String> {
        let Some(at) = span.and_then(|s| self.statement(s)) else { return Vec::new() };
        let mut lines = Vec::new();
        for i in 0..=at {
            if self.places[i].layer == self.places[at].layer && self.said.insert(i) {
                let place = &self.places[i];
                if place.blank && self.wrote {
                    lines.push(String::new());
                }
                let plain = |line: &String| {
                    if documents && i == at { line.clone() } else { undocumented(line) }
                };
                lines.extend(place.above.iter().map(plain));
                // An expectation of a called layer is about that layer, not about the one that is
                // written.
                lines.extend(place.expects.clone().filter(|_| place.layer == self.layer));
            }
        }
        self.wrote = true;
        lines
    }

    /// The comment behind a statement; only the last of the lines that the statement gives has it.
    pub(crate) fn behind(&mut self, span: Option<Span>, is_last: bool) -> Option<String> {
        let at = span.and_then(|s| self.statement(s)).filter(|_| is_last)?;
        if self.places[at].is_return && self.places[at].layer == self.layer {
            return None;
        }
        self.places[at].behind.take()
    }

    /// The comments that are left, which stand above the `return`.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let end = self.places.iter().rfind(|p| p.layer == self.layer).map(|p| p.span);
        let mut lines = self.before(end, false);
        // Comments behind statements that gave no line of their own.
        for place in self.places.iter_mut().filter(|p| p.layer == self.layer && !p.is_return) {
            lines.extend(place.behind.take());
        }
        lines.extend(std::mem::take(&mut self.tail).iter().map(|line| undocumented(line)));
        lines
    }

    pub(crate) fn behind_return(&mut self) -> Option<String> {
        let layer = self.layer;
        self.places
            .iter_mut()
            .find(|p| p.layer == layer && p.is_return)
            .and_then(|p| p.behind.take())
    }
}

fn own_lines(tree: &ast::File, within: Span) -> impl Iterator<Item = &ast::Comment> {
    tree.comments
        .iter()
        .filter(move |c| c.own_line && within.start <= c.span.start && c.span.end <= within.end)
}

fn text(comment: &ast::Comment) -> String {
    let slashes = match comment.kind {
        CommentKind::Plain => "//",
        CommentKind::Doc => "///",
        CommentKind::FileDoc => "//!",
    };
    format!("{slashes}{}", comment.text)
}

/// A doc comment as a plain one, for a place where it would document nothing.
fn undocumented(line: &str) -> String {
    line.strip_prefix("///").map_or_else(|| line.to_string(), |rest| format!("//{rest}"))
}
