//! Makes a failing program smaller: values, annotations, axes and sizes are removed as long as the
//! program fails.

use shard_grammar::ast::{
    Expr, ExprKind, File, IntExpr, IntExprKind, Item, Layer, LetTarget, Name, Statement, Type,
};
use shard_grammar::{SourceFile, Span};

use crate::judge::check;

/// The most programs that are tried.
const MOST_TRIALS: usize = 3_000;

/// Texts that replace spans of a program.
type Edits = Vec<(Span, String)>;

/// The smallest failing program that is found, formatted. Each program that is tried passes the
/// checker, and is shorter than the one before, or as long and with smaller numbers.
pub fn shrink(source: &str, fails: &dyn Fn(&str) -> bool) -> String {
    let mut best = source.to_string();
    let mut trials = 0;
    let mut smaller = true;
    while smaller && trials < MOST_TRIALS {
        smaller = false;
        for edits in reductions(&best) {
            let candidate = edited(&best, edits);
            if weight(&candidate) >= weight(&best) || check(&candidate).has_errors() {
                continue;
            }
            trials += 1;
            if fails(&candidate) {
                best = candidate;
                smaller = true;
                break;
            }
        }
    }
    let lines: Vec<&str> = best.lines().filter(|line| !line.trim().is_empty()).collect();
    let best = lines.join("\n") + "\n";
    shard_grammar::format(&SourceFile::new("shrunk.shard", best.as_str())).unwrap_or(best)
}

/// The measure that every reduction lessens: the length of the text without blanks, and then the
/// numbers.
fn weight(source: &str) -> (usize, u64) {
    let numbers =
        source.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
    (source.split_whitespace().map(str::len).sum(), numbers.fold(0, u64::saturating_add))
}

/// The text with edits that do not overlap.
fn edited(source: &str, mut edits: Edits) -> String {
    edits.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut text = source.to_string();
    for (span, replacement) in edits {
        text.replace_range(span.start..span.end, &replacement);
    }
    text
}

/// All reductions that may be tried on a program, the largest first.
fn reductions(source: &str) -> Vec<Edits> {
    let file = shard_grammar::parse(&SourceFile::new("shrunk.shard", source)).file;
    let mut of = Reductions { source, found: Vec::new() };
    for item in &file.items {
        of.found.push(vec![(item.span(), String::new())]);
    }
    for layer in file.layers() {
        of.results(layer);
    }
    for layer in file.layers() {
        of.statements(layer);
        let params: Vec<Span> = layer.params.iter().map(|param| param.span).collect();
        of.entries(&params);
        of.found.extend(layer.strict.map(|span| vec![(span, String::new())]));
        of.found.extend(layer.repeat.as_ref().map(|repeat| vec![(repeat.span, String::new())]));
        for dim in file.dims() {
            of.dim_of_all(layer, &dim.name.value);
        }
        types(layer).into_iter().for_each(|ty| of.ty(ty));
    }
    of.sizes(&file);
    of.found
}

struct Reductions<'s> {
    source: &'s str,
    found: Vec<Edits>,
}

impl Reductions<'_> {
    fn text(&self, span: Span) -> String {
        self.source[span.start..span.end].to_string()
    }

    /// A list with commas without one entry.
    fn entries(&mut self, spans: &[Span]) {
        for (i, span) in spans.iter().enumerate() {
            let whole = match (spans.get(i + 1), i.checked_sub(1).map(|before| spans[before])) {
                (Some(next), _) => Span::new(span.start, next.start),
                (None, Some(before)) => Span::new(before.end, span.end),
                (None, None) => {
                    let comma = self.source[span.end..].trim_start().starts_with(',');
                    let end = self.source[span.end..]
                        .find(',')
                        .filter(|_| comma)
                        .map_or(span.end, |at| span.end + at + 1);
                    Span::new(span.start, end)
                }
            };
            self.found.push(vec![(whole, String::new())]);
        }
    }

    /// One result of several; or an earlier value as the result, in any layout, without the
    /// statements behind it.
    fn results(&mut self, layer: &Layer) {
        let Some(Statement::Return(end)) = layer.body.last() else { return };
        let (returned, types) = (end.value.values(), layer.results.types());
        if returned.len() > 1 {
            for (value, ty) in returned.iter().zip(&types) {
                let whole =
                    Span::new(returned[0].span.start, returned[returned.len() - 1].span.end);
                let open = self.source[..whole.start].rfind('(').unwrap_or(whole.start);
                let close =
                    self.source[whole.end..].find(')').map_or(whole.end, |at| whole.end + at + 1);
                let edits = vec![
                    (layer.results.span(), self.text(ty.span)),
                    (Span::new(open, close), self.text(value.span)),
                ];
                self.found.push(edits);
            }
            return;
        }
        let checked = check(self.source);
        let Some(program) =
            checked.programs.iter().find(|program| program.name == layer.name.value)
        else {
            return;
        };
        let lets = layer.body.iter().enumerate().filter_map(|(i, statement)| match statement {
            Statement::Let(statement) => match &statement.target {
                LetTarget::One { name, .. } => Some((i, name)),
                LetTarget::Many { .. } => None,
            },
            Statement::Expect(_) | Statement::Return(_) => None,
        });
        for (i, name) in lets {
            let own = |value: &&shard_ir::Value| {
                value.in_layers.is_empty() && value.name.as_ref() == Some(&name.value)
            };
            let Some(value) = program.values.iter().rev().find(own) else { continue };
            let dims = program.dim_names(&value.dims);
            let dims = if dims.is_empty() { "[]".to_string() } else { dims.concat() };
            let mut edits = vec![
                (layer.results.span(), format!("{} {dims}?", value.dtype.name())),
                (returned[0].span, name.value.clone()),
            ];
            edits.extend(
                layer.body[i + 1..layer.body.len() - 1]
                    .iter()
                    .map(|behind| (behind.span(), String::new())),
            );
            self.found.push(edits);
        }
    }

    /// A program without a statement; a value written out where it is read; an expression replaced
    /// by a part of it.
    fn statements(&mut self, layer: &Layer) {
        for (i, statement) in layer.body.iter().enumerate() {
            self.found.push(vec![(statement.span(), String::new())]);
            match statement {
                Statement::Let(statement) => {
                    if let LetTarget::One { name, .. } = &statement.target {
                        let text = match statement.value.kind {
                            ExprKind::Binary { .. } | ExprKind::Neg { .. } => {
                                format!("({})", self.text(statement.value.span))
                            }
                            _ => self.text(statement.value.span),
                        };
                        let mut edits = vec![(statement.span, String::new())];
                        layer.body[i + 1..]
                            .iter()
                            .for_each(|behind| uses(behind, name, &text, &mut edits));
                        self.found.push(edits);
                    }
                    self.expr(&statement.value);
                }
                Statement::Return(end) => {
                    end.value.values().into_iter().for_each(|value| self.expr(value))
                }
                Statement::Expect(_) => {}
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        for operand in expr.operands() {
            let text = self.text(operand.span);
            self.found.push(vec![(expr.span, text)]);
            self.expr(operand);
        }
    }

    /// The same layer without a dim, which is removed from all its types.
    fn dim_of_all(&mut self, layer: &Layer, name: &str) {
        let words = types(layer).into_iter().flat_map(|(ty, _)| &ty.layout.dims);
        let edits: Edits = words
            .filter(|dim| dim.name.value == name)
            .map(|dim| (dim.span, String::new()))
            .collect();
        self.found.push(edits);
    }

    /// A smaller type: without the annotation of a `let`, a kind, axes, partial axes, or free axes.
    fn ty(&mut self, (ty, annotates): (&Type, bool)) {
        if annotates {
            let colon = self.source[..ty.span.start].rfind(':').unwrap_or(ty.span.start);
            self.found.push(vec![(Span::new(colon, ty.span.end), String::new())]);
        }
        self.found.extend(ty.kind.map(|kind| vec![(kind.span, String::new())]));
        if let (Some(first), Some(last)) = (ty.partial.first(), ty.partial.last()) {
            let open = self.source[..first.span.start].rfind('(').unwrap_or(first.span.start);
            let close = self.source[last.span.end..]
                .find(')')
                .map_or(last.span.end, |at| last.span.end + at + 1);
            self.found.push(vec![(Span::new(open, close), String::new())]);
        }
        for dim in &ty.layout.dims {
            let axes = Span::new(dim.name.span.end, dim.span.end);
            self.found.extend((!axes.is_empty()).then(|| vec![(axes, String::new())]));
        }
        self.found.extend(ty.layout.free.iter().map(|free| vec![(free.span, String::new())]));
    }

    /// Smaller dims and axes, and fewer axes.
    fn sizes(&mut self, file: &File) {
        for mesh in file.meshes() {
            let axes: Vec<Span> = mesh.axes.iter().map(|axis| axis.span).collect();
            self.entries(&axes);
            for axis in &mesh.axes {
                self.number(axis.size.span, axis.size.value);
            }
        }
        for item in &file.items {
            match item {
                Item::Dim(dim) => {
                    if let Some(pad) = &dim.pad {
                        self.found.push(vec![(
                            Span::new(dim.value.span.end, pad.span.end),
                            String::new(),
                        )]);
                        self.int(pad);
                    }
                    self.int(&dim.value);
                }
                Item::Phase(phase) => phase.sizes.iter().for_each(|dim| self.int(&dim.value)),
                Item::Hardware(_) | Item::Mesh(_) | Item::Layer(_) => {}
            }
        }
    }

    fn int(&mut self, expr: &IntExpr) {
        if let IntExprKind::Number(size) = expr.kind {
            self.number(expr.span, size);
        }
    }

    fn number(&mut self, span: Span, size: u64) {
        let smaller =
            [1, 2, size / 2, size.saturating_sub(1)].into_iter().filter(|n| (1..size).contains(n));
        self.found.extend(smaller.map(|n| vec![(span, n.to_string())]));
    }
}

/// The types of a layer, and for each whether it annotates a `let`.
fn types(layer: &Layer) -> Vec<(&Type, bool)> {
    let mut found: Vec<(&Type, bool)> =
        layer.params.iter().map(|param| (&param.ty, false)).collect();
    found.extend(layer.results.types().into_iter().map(|ty| (ty, false)));
    for statement in &layer.body {
        if let Statement::Let(statement) = statement
            && let LetTarget::One { ty: Some(ty), .. } = &statement.target
        {
            found.push((ty, true));
        }
    }
    found
}

/// Replaces a value by a text wherever a statement reads it.
fn uses(statement: &Statement, name: &Name, other: &str, edits: &mut Edits) {
    fn within(expr: &Expr, name: &Name, other: &str, edits: &mut Edits) {
        match &expr.kind {
            ExprKind::Name(read) if *read == name.value => {
                edits.push((expr.span, other.to_string()))
            }
            _ => {
                expr.operands().into_iter().for_each(|operand| within(operand, name, other, edits))
            }
        }
    }
    match statement {
        Statement::Let(statement) => within(&statement.value, name, other, edits),
        Statement::Return(end) => {
            end.value.values().into_iter().for_each(|value| within(value, name, other, edits))
        }
        Statement::Expect(_) => {}
    }
}
