//! The canonical style of a whole file: `shardc fmt`.
//!
//! Lines are indented by two blanks. Where a layer has more than one parameter, or its header would
//! be longer than [`MAX_COLUMNS`], each parameter has a line, with types aligned. Single blank
//! lines are kept, and each layer has one around it. A comment stays above or behind the code that
//! it belongs to; one in the middle of a statement or header moves above it.

use crate::ast::*;
use crate::error::{SyntaxError, SyntaxErrorKind};
use crate::limits::MAX_FILE_BYTES;
use crate::parser::parse;
use crate::print::{call_parts, print_claim, print_expr, print_int_expr, print_type};
use shard_words::{SourceFile, Span};

/// The width past which lists are broken, one entry a line.
pub const MAX_COLUMNS: usize = 100;

/// Prints a file in the canonical style. A file with syntax errors is not formatted: they are
/// returned. Nor is one that would come out past the limit of [`MAX_FILE_BYTES`].
///
/// ```
/// use shard_grammar::{SourceFile, format};
/// let text = format(&SourceFile::new("t", "dim  B=4*2 // batch\nlayer id(a:f32 B)->f32 B{return a}")).unwrap();
/// assert_eq!(text, "dim B = 4 * 2  // batch\n\nlayer id(a: f32 B) -> f32 B {\n  return a\n}\n");
/// ```
pub fn format(source: &SourceFile) -> Result<String, Vec<SyntaxError>> {
    let parsed = parse(source);
    if !parsed.errors.is_empty() {
        return Err(parsed.errors);
    }
    let comments = &parsed.file.comments;
    let mut formatter = Formatter {
        text: &source.text,
        comments,
        used: vec![false; comments.len()],
        lines: Vec::new(),
        last_end: 0,
    };
    formatter.file(&parsed.file);
    let out = join(&formatter.lines);
    if out.len() > MAX_FILE_BYTES {
        return Err(vec![SyntaxError::new(
            SyntaxErrorKind::FileTooLarge { bytes: out.len() },
            Span::at(0),
        )]);
    }
    Ok(out)
}

/// A line of output. Its comment is apart, so that the comments of neighbouring lines can be
/// aligned.
struct Line {
    blank_before: bool,
    indent: usize,
    code: String,
    comment: Option<String>,
}

struct Formatter<'a> {
    text: &'a str,
    comments: &'a [Comment],
    /// Which comments are printed.
    used: Vec<bool>,
    lines: Vec<Line>,
    /// The byte of the source behind what was printed last; a blank line behind it is kept.
    last_end: usize,
}

/// Lines of code, each with its indent.
type Code = Vec<(usize, String)>;

impl<'a> Formatter<'a> {
    fn file(&mut self, file: &File) {
        let mut behind_layer = false;
        for item in &file.items {
            let is_layer = matches!(item, Item::Layer(_));
            let blank = is_layer || behind_layer;
            match item {
                Item::Hardware(item) => self.unit(item.span, blank, vec![(0, hardware(item))]),
                Item::Mesh(item) => self.unit(item.span, blank, vec![(0, mesh(item))]),
                Item::Dim(item) => self.unit(item.span, blank, vec![(0, dim(item))]),
                Item::Phase(phase) => self.phase(phase, blank),
                Item::Layer(layer) => self.layer(layer, blank),
            }
            behind_layer = is_layer;
        }
        self.own_lines(self.text.len(), 0, false);
    }

    /// A phase on one line; or one size on each line, where that would be too long or comments
    /// stand between.
    fn phase(&mut self, phase: &Phase, blank: bool) {
        let repeat = repeated(phase.repeat.as_ref());
        let opening = format!("phase {}{repeat} {{", phase.name.value);
        let sizes: Vec<String> = phase.sizes.iter().map(size).collect();
        let flat = if sizes.is_empty() {
            format!("{opening} }}")
        } else {
            format!("{opening} {} }}", sizes.join(", "))
        };
        let inside = Span::new(phase.body_span.start + 1, phase.body_span.end.saturating_sub(1));
        if width(&flat) <= MAX_COLUMNS && self.range(inside).is_empty() {
            return self.unit(phase.span, blank, vec![(0, flat)]);
        }
        self.leading(phase.span.start, 0, blank);
        self.hoist(Span::new(phase.span.start, inside.start), 0);
        self.push_code(vec![(0, opening)]);
        self.last_end = inside.start;
        self.trailing();
        let first = self.lines.len();
        for (dim, code) in phase.sizes.iter().zip(sizes) {
            self.unit(dim.span, false, vec![(1, format!("{code},"))]);
        }
        self.own_lines(inside.end, 1, false);
        if let Some(line) = self.lines.get_mut(first) {
            line.blank_before = false;
        }
        self.push_code(vec![(0, "}".to_string())]);
        self.last_end = phase.span.end;
        self.trailing();
    }

    fn layer(&mut self, layer: &Layer, blank: bool) {
        let inside =
            Span::new(layer.params_span.start + 1, layer.params_span.end.saturating_sub(1));
        self.leading(layer.span.start, 0, blank);
        self.hoist(Span::new(layer.span.start, inside.start), 0);
        self.hoist(Span::new(inside.end, layer.body_span.start), 0);

        let strict = if layer.strict.is_some() { "strict " } else { "" };
        let word = if layer.model.is_some() { "model" } else { "layer" };
        let opening = format!("{strict}{word} {}(", layer.name.value);
        let repeat = repeated(layer.repeat.as_ref());
        let params: Vec<(&str, String)> = layer
            .params
            .iter()
            .map(|param| (param.name.value.as_str(), print_type(&param.ty)))
            .collect();
        let flat =
            format!("{opening}{}) -> {}{repeat} {{", flat_list(&params), results(&layer.results));
        let is_flat =
            params.len() <= 1 && width(&flat) <= MAX_COLUMNS && self.range(inside).is_empty();
        let body_start = layer.body_span.start + 1;
        if is_flat {
            self.push_code(vec![(0, flat)]);
        } else {
            self.push_code(vec![(0, opening)]);
            self.last_end = inside.start;
            for (param, code) in layer.params.iter().zip(aligned(&params)) {
                self.unit(param.span, false, vec![(1, code)]);
            }
            self.own_lines(inside.end, 1, false);
            let closing = format!(") -> {}{repeat} {{", results(&layer.results));
            match &layer.results {
                Results::Named { results, .. } if width(&closing) > MAX_COLUMNS => {
                    let named: Vec<(&str, String)> = results
                        .iter()
                        .map(|result| (result.name.value.as_str(), print_type(&result.ty)))
                        .collect();
                    let mut code = vec![(0, ") -> (".to_string())];
                    code.extend(aligned(&named).into_iter().map(|line| (1, line)));
                    code.push((0, format!("){repeat} {{")));
                    self.push_code(code);
                }
                _ => self.push_code(vec![(0, closing)]),
            }
        }
        self.last_end = body_start;
        self.trailing();
        let first = self.lines.len();
        for statement in &layer.body {
            self.unit(statement.span(), false, statement_code(statement));
        }
        self.own_lines(layer.body_span.end.saturating_sub(1), 1, false);
        if let Some(line) = self.lines.get_mut(first) {
            line.blank_before = false;
        }
        self.push_code(vec![(0, "}".to_string())]);
        self.last_end = layer.span.end;
        self.trailing();
    }

    /// Prints code of the source as a whole: the comments above it, those inside it, the code, and
    /// the comment behind it.
    fn unit(&mut self, span: Span, blank: bool, code: Code) {
        let indent = code.first().map_or(0, |line| line.0);
        self.leading(span.start, indent, blank);
        self.hoist(span, indent);
        self.push_code(code);
        self.last_end = span.end;
        self.trailing();
    }

    /// Prints the comments above something that starts at `start`, and begins an empty line for it,
    /// which knows whether a blank line is before it.
    fn leading(&mut self, start: usize, indent: usize, blank: bool) {
        let count = self.lines.len();
        self.own_lines(start, indent, blank);
        let blank = self.has_blank_line(start) || (blank && self.lines.len() == count);
        self.lines.push(Line { blank_before: blank, indent, code: String::new(), comment: None });
    }

    /// Prints the comments up to `end` that are not printed yet, each on a line of its own.
    fn own_lines(&mut self, end: usize, indent: usize, mut blank: bool) {
        let range = self.range(Span::new(self.last_end, end));
        // A comment with code between it and `end` moves relative to that code.
        let mut solid = 0;
        let mut next = end;
        for &index in range.iter().rev() {
            let comment_end = self.comments[index].span.end;
            let is_solid = |c: char| !c.is_whitespace() && c != '\u{FEFF}';
            if solid == 0 && self.text[comment_end..next].contains(is_solid) {
                solid = comment_end;
            }
            next = self.comments[index].span.start;
        }
        for index in range {
            let comment = &self.comments[index];
            let blank_before = self.has_blank_line(comment.span.start) || blank;
            let moved = !comment.own_line || comment.span.end <= solid;
            self.used[index] = true;
            self.lines.push(Line {
                blank_before,
                indent,
                code: own_text(comment, moved),
                comment: None,
            });
            self.last_end = comment.span.end;
            blank = false;
        }
    }

    /// Prints the comments inside a span as lines above it. It must be called after
    /// [`Formatter::leading`].
    fn hoist(&mut self, span: Span, indent: usize) {
        for index in self.range(span) {
            self.used[index] = true;
            let code = own_text(&self.comments[index], true);
            // The blank line before the empty line moves before the comment.
            let at = self.lines.len().saturating_sub(1);
            let blank_before =
                self.lines.get_mut(at).is_some_and(|line| std::mem::take(&mut line.blank_before));
            self.lines.insert(at, Line { blank_before, indent, code, comment: None });
        }
    }

    /// Puts code on the empty line that was begun, and on new lines.
    fn push_code(&mut self, code: Code) {
        for (indent, code) in code {
            match self.lines.last_mut() {
                Some(line) if line.code.is_empty() => (line.indent, line.code) = (indent, code),
                _ => self.lines.push(Line { blank_before: false, indent, code, comment: None }),
            }
        }
    }

    /// Prints the comment behind the last line, if it is on the same line of the source with
    /// nothing but a comma between.
    fn trailing(&mut self) {
        let first = self.comments.partition_point(|comment| comment.span.start < self.last_end);
        let Some(comment) = self.comments.get(first) else { return };
        let between = &self.text[self.last_end..comment.span.start];
        if self.used[first]
            || !between
                .chars()
                .all(|c| c != '\n' && (c.is_whitespace() || matches!(c, ',' | '\u{FEFF}')))
        {
            return;
        }
        self.used[first] = true;
        self.last_end = comment.span.end;
        if let Some(line) = self.lines.last_mut() {
            line.comment = Some(self.text[comment.span.start..comment.span.end].to_string());
        }
    }

    /// The comments that start in a span and are not printed yet.
    fn range(&self, span: Span) -> Vec<usize> {
        let first = self.comments.partition_point(|comment| comment.span.start < span.start);
        let end = self.comments.partition_point(|comment| comment.span.start < span.end);
        (first..end).filter(|&index| !self.used[index]).collect()
    }

    /// Whether a blank line between what was printed last and `end` is to be kept.
    fn has_blank_line(&self, end: usize) -> bool {
        if self.lines.last().is_none_or(|line| line.code.ends_with('(')) || end <= self.last_end {
            return false;
        }
        let between = &self.text[self.last_end..end];
        let newlines: Vec<&str> = between.split('\n').collect();
        newlines.len() > 2
            && newlines[1..newlines.len() - 1].iter().any(|line| line.trim().is_empty())
    }
}

/// A comment on a line of its own. A doc comment that was moved becomes a plain comment, since it
/// would document something else there.
fn own_text(comment: &Comment, moved: bool) -> String {
    let slashes = match comment.kind {
        CommentKind::Doc if !moved => "///",
        CommentKind::FileDoc if !moved => "//!",
        CommentKind::Plain | CommentKind::Doc | CommentKind::FileDoc => "//",
    };
    // A blank keeps moved text from making `///` or `//!` with the slashes.
    let starts_doc = moved && slashes == "//" && comment.text.starts_with(['/', '!']);
    let gap = if starts_doc && !comment.text.starts_with("//") { " " } else { "" };
    format!("{slashes}{gap}{}", comment.text)
}

fn hardware(item: &Hardware) -> String {
    match &item.chip {
        HardwareRef::BuiltIn(name) => format!("hardware {}", name.value),
        HardwareRef::Path(path) => format!("hardware \"{}\"", path.value),
    }
}

fn mesh(item: &Mesh) -> String {
    let axes: Vec<String> =
        item.axes.iter().map(|axis| format!("{}={}", axis.name.value, axis.size.value)).collect();
    format!("mesh {}", axes.join(", "))
}

fn dim(item: &Dim) -> String {
    format!("dim {}", size(item))
}

fn size(item: &Dim) -> String {
    let pad =
        item.pad.as_ref().map_or(String::new(), |pad| format!(" pad {}", print_int_expr(pad)));
    format!("{} = {}{pad}", item.name.value, print_int_expr(&item.value))
}

fn results(results: &Results) -> String {
    match results {
        Results::One(ty) => print_type(ty),
        Results::Named { results, .. } => {
            let named: Vec<(&str, String)> = results
                .iter()
                .map(|result| (result.name.value.as_str(), print_type(&result.ty)))
                .collect();
            format!("({})", flat_list(&named))
        }
    }
}

/// The `repeat` behind the results of a layer, or the name of a phase.
fn repeated(repeat: Option<&Repeat>) -> String {
    let Some(repeat) = repeat else { return String::new() };
    let kinds: Vec<String> = repeat.kinds.iter().map(|count| count.value.to_string()).collect();
    format!(" repeat {}", kinds.join(" + "))
}

/// `a: T, b: U`
fn flat_list(named: &[(&str, String)]) -> String {
    named.iter().map(|(name, ty)| format!("{name}: {ty}")).collect::<Vec<_>>().join(", ")
}

/// Lines `name: TYPE,`, with the types aligned.
fn aligned(named: &[(&str, String)]) -> Vec<String> {
    let longest = named.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    named
        .iter()
        .map(|(name, ty)| format!("{name}:{} {ty},", " ".repeat(longest - name.len())))
        .collect()
}

fn statement_code(statement: &Statement) -> Code {
    let mut code = Code::new();
    match statement {
        Statement::Let(statement) => {
            let target = match &statement.target {
                LetTarget::One { name, ty: None } => name.value.clone(),
                LetTarget::One { name, ty: Some(ty) } => {
                    format!("{}: {}", name.value, print_type(ty))
                }
                LetTarget::Many { names, .. } => {
                    format!(
                        "({})",
                        names.iter().map(|name| name.value.as_str()).collect::<Vec<_>>().join(", ")
                    )
                }
            };
            expr_code(&mut code, 1, format!("let {target} = "), &statement.value, "");
        }
        Statement::Expect(Expect { claim, .. }) => {
            code.push((1, format!("expect {}", print_claim(claim))))
        }
        Statement::Return(Return { value: ReturnValue::One(value), .. }) => {
            expr_code(&mut code, 1, "return ".to_string(), value, "");
        }
        Statement::Return(Return { value: ReturnValue::Many { values, .. }, .. }) => {
            let flat = format!(
                "return ({})",
                values.iter().map(print_expr).collect::<Vec<_>>().join(", ")
            );
            if width(&flat) + 2 <= MAX_COLUMNS {
                code.push((1, flat));
            } else {
                code.push((1, "return (".to_string()));
                for value in values {
                    expr_code(&mut code, 2, String::new(), value, ",");
                }
                code.push((1, ")".to_string()));
            }
        }
    }
    code
}

/// An expression between a prefix and a suffix: on one line, or, where that is too long and it is a
/// call, an operand a line.
fn expr_code(code: &mut Code, indent: usize, prefix: String, expr: &Expr, suffix: &str) {
    let flat = print_expr(expr);
    if let ExprKind::Named { name, value } = &expr.kind {
        return expr_code(code, indent, format!("{prefix}{}: ", name.value), value, suffix);
    }
    let (word, operands, tail) = call_parts(expr);
    if word.is_empty()
        || operands.is_empty()
        || 2 * indent + width(&prefix) + width(&flat) + suffix.len() <= MAX_COLUMNS
    {
        code.push((indent, format!("{prefix}{flat}{suffix}")));
        return;
    }
    code.push((indent, format!("{prefix}{word}(")));
    let last = operands.len() - 1;
    for (index, operand) in operands.into_iter().enumerate() {
        let behind = if index < last || tail.is_empty() { "," } else { tail.as_str() };
        expr_code(code, indent + 1, String::new(), operand, behind);
    }
    code.push((indent, format!("){suffix}")));
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text of all lines; comments behind neighbouring lines start in one column.
fn join(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < lines.len() {
        let continues = |line: &Line| {
            line.comment.is_some() && line.indent == lines[at].indent && !line.blank_before
        };
        let run = if lines[at].comment.is_some() {
            1 + lines[at + 1..].iter().take_while(|line| continues(line)).count()
        } else {
            1
        };
        let column = lines[at..at + run].iter().map(|line| width(&line.code)).max().unwrap_or(0);
        for line in &lines[at..at + run] {
            if line.blank_before && !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&"  ".repeat(line.indent));
            out.push_str(&line.code);
            if let Some(comment) = &line.comment {
                out.push_str(&" ".repeat(column - width(&line.code) + 2));
                out.push_str(comment);
            }
            out.push('\n');
        }
        at += run;
    }
    out
}
