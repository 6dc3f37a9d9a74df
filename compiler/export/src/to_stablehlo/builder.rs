//! Writes the text of StableHLO: one op on a line, with the types of its operands and its result.

use std::collections::BTreeSet;
use std::ops::Range;

use shard_ir::Reduction;

use super::element::Element;
use crate::error::ExportError;

/// A value of the text: its name, with the `%`, and its type.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) element: Element,
}

impl Value {
    /// `tensor<8x4xf32>`.
    pub(crate) fn ty(&self) -> String {
        tensor(&self.shape, self.element)
    }
}

/// The type of a tensor.
pub(crate) fn tensor(shape: &[u64], element: Element) -> String {
    let sizes: String = shape.iter().map(|size| format!("{size}x")).collect();
    format!("tensor<{sizes}{}>", element.name())
}

/// Items with commas between them.
pub(crate) fn list<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// The types of some values, with commas between them.
pub(crate) fn types<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    list(values.into_iter().map(Value::ty))
}

/// The names of some values, with commas between them.
pub(crate) fn names<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    list(values.into_iter().map(|value| value.name.as_str()))
}

/// The text of a function while it is written.
#[derive(Default)]
pub(crate) struct Builder {
    text: String,
    indent: usize,
    /// How many values are named by a number.
    numbered: usize,
    taken: BTreeSet<String>,
    /// How many collectives are written; each has a channel of its own.
    channels: usize,
}

impl Builder {
    /// A builder whose lines are indented by so many columns.
    pub(crate) fn at(indent: usize) -> Builder {
        Builder { indent, ..Builder::default() }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// The length of the text so far, in bytes.
    pub(crate) fn place(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn line(&mut self, text: &str) {
        for line in text.lines() {
            self.text.push_str(&" ".repeat(self.indent));
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    /// A name that no value has yet: this name with `_` for characters that MLIR does not take, and
    /// with a number behind it if it is taken.
    pub(crate) fn fresh(&mut self, name: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut own: String = name.chars().map(plain).collect();
        if !own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            own.insert(0, 'v');
        }
        let mut found = own.clone();
        let mut number = 2;
        while !self.taken.insert(found.clone()) {
            found = format!("{own}_{number}");
            number += 1;
        }
        format!("%{found}")
    }

    /// A value under a fresh name.
    pub(crate) fn fresh_value(&mut self, name: &str, shape: &[u64], element: Element) -> Value {
        Value { name: self.fresh(name), shape: shape.to_vec(), element }
    }

    /// Gives a value the name that it has in the source, if nothing reads the value yet. `since` is
    /// the length of the text before the value was made; a value from before that keeps its name.
    pub(crate) fn named(&mut self, value: Value, name: &str, since: usize) -> Value {
        let made = format!("{} = ", value.name);
        let ends = |at: usize| {
            let rest = &self.text[at + value.name.len()..];
            !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        };
        let mentioned: Vec<usize> = self.text[since..]
            .match_indices(&value.name)
            .map(|(at, _)| since + at)
            .filter(|at| ends(*at))
            .collect();
        let [at] = mentioned[..] else { return value };
        if !self.text[at..].starts_with(&made) {
            return value;
        }
        let name = self.fresh(name);
        self.text.replace_range(at..at + value.name.len(), &name);
        Value { name, ..value }
    }

    /// Writes an op that makes one value. `text` is what stands behind the `=`.
    pub(crate) fn op(&mut self, shape: Vec<u64>, element: Element, text: &str) -> Value {
        let name = format!("%{}", self.numbered);
        self.numbered += 1;
        self.line(&format!("{name} = {text}"));
        Value { name, shape, element }
    }

    pub(crate) fn unary(&mut self, op: &str, a: &Value) -> Value {
        let text = format!("stablehlo.{op} {} : {}", a.name, a.ty());
        self.op(a.shape.clone(), a.element, &text)
    }

    pub(crate) fn binary(&mut self, op: &str, a: &Value, b: &Value) -> Value {
        let text = format!("stablehlo.{op} {}, {} : {}", a.name, b.name, a.ty());
        self.op(a.shape.clone(), a.element, &text)
    }

    /// A binary op with a number on the right.
    pub(crate) fn with_number(&mut self, op: &str, a: &Value, b: f64) -> Value {
        let b = self.splat(b, &a.shape, a.element);
        self.binary(op, a, &b)
    }

    pub(crate) fn compare(&mut self, direction: &str, a: &Value, b: &Value) -> Value {
        let (kind, shape) = (a.element.comparison(), a.shape.clone());
        let given = tensor(&shape, Element::Bool);
        let text = format!(
            "stablehlo.compare {direction}, {}, {}, {kind} : ({}, {}) -> {given}",
            a.name,
            b.name,
            a.ty(),
            b.ty()
        );
        self.op(shape, Element::Bool, &text)
    }

    pub(crate) fn compare_number(&mut self, direction: &str, a: &Value, b: f64) -> Value {
        let b = self.splat(b, &a.shape, a.element);
        self.compare(direction, a, &b)
    }

    pub(crate) fn select(&mut self, which: &Value, yes: &Value, no: &Value) -> Value {
        let text =
            format!("stablehlo.select {} : {}, {}", names([which, yes, no]), which.ty(), yes.ty());
        self.op(yes.shape.clone(), yes.element, &text)
    }

    /// A tensor with the same number everywhere.
    pub(crate) fn splat(&mut self, value: f64, shape: &[u64], element: Element) -> Value {
        let text = format!(
            "stablehlo.constant dense<{}> : {}",
            element.literal(value),
            tensor(shape, element)
        );
        self.op(shape.to_vec(), element, &text)
    }

    /// A scalar of the type in which positions and turns are counted.
    pub(crate) fn count(&mut self, value: u64) -> Value {
        self.splat(value as f64, &[], Element::I32)
    }

    /// The value in another type. A type of floats without infinities takes the nearest number that
    /// it has.
    pub(crate) fn convert(&mut self, a: &Value, to: Element) -> Value {
        if a.element == to {
            return a.clone();
        }
        let mut a = a.clone();
        let holds_all = |largest: f64| a.element.largest().is_some_and(|own| own <= largest);
        if let Some(largest) = to.largest().filter(|l| a.element.is_float() && !holds_all(*l)) {
            let ends = [-largest, largest].map(|end| self.splat(end, &[], a.element));
            let (scalar, whole) = (ends[0].ty(), a.ty());
            let text = format!(
                "stablehlo.clamp {} : ({scalar}, {whole}, {scalar}) -> {whole}",
                names([&ends[0], &a, &ends[1]])
            );
            a = self.op(a.shape.clone(), a.element, &text);
        }
        let text =
            format!("stablehlo.convert {} : ({}) -> {}", a.name, a.ty(), tensor(&a.shape, to));
        self.op(a.shape.clone(), to, &text)
    }

    /// An op of one operand that gives another shape.
    fn shaped(&mut self, op: &str, a: &Value, shape: Vec<u64>) -> Value {
        let text = format!("stablehlo.{op} : ({}) -> {}", a.ty(), tensor(&shape, a.element));
        self.op(shape, a.element, &text)
    }

    pub(crate) fn reshape(&mut self, a: &Value, shape: &[u64]) -> Value {
        if a.shape == shape {
            return a.clone();
        }
        self.shaped(&format!("reshape {}", a.name), a, shape.to_vec())
    }

    pub(crate) fn transpose(&mut self, a: &Value, order: &[usize]) -> Value {
        if order.iter().enumerate().all(|(at, place)| at == *place) {
            return a.clone();
        }
        let shape = order.iter().map(|place| a.shape[*place]).collect();
        self.shaped(&format!("transpose {}, dims = [{}]", a.name, list(order)), a, shape)
    }

    /// The value broadcast to a shape. `into` says for each dim of the value which dim of the
    /// result it is.
    pub(crate) fn broadcast(&mut self, a: &Value, shape: &[u64], into: &[usize]) -> Value {
        if a.shape == shape {
            return a.clone();
        }
        let op = format!("broadcast_in_dim {}, dims = [{}]", a.name, list(into));
        self.shaped(&op, a, shape.to_vec())
    }

    pub(crate) fn iota(&mut self, shape: &[u64], dim: usize, element: Element) -> Value {
        let text = format!("stablehlo.iota dim = {dim} : {}", tensor(shape, element));
        self.op(shape.to_vec(), element, &text)
    }

    /// A sum or a maximum over some dims.
    pub(crate) fn reduce(&mut self, kind: Reduction, a: &Value, over: &[usize]) -> Value {
        if over.is_empty() {
            return a.clone();
        }
        let start = self.splat(a.element.neutral(kind), &[], a.element);
        let kept = (0..a.shape.len()).filter(|at| !over.contains(at));
        let shape: Vec<u64> = kept.map(|at| a.shape[at]).collect();
        let mut over = over.to_vec();
        over.sort_unstable();
        let text = format!(
            "stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = [{}] : \
             ({}, {}) -> {}",
            a.name,
            start.name,
            combining(kind),
            list(&over),
            a.ty(),
            start.ty(),
            tensor(&shape, a.element)
        );
        self.op(shape, a.element, &text)
    }

    /// A sum over some dims, added in no less than 32 bits.
    pub(crate) fn sum(&mut self, a: &Value, over: &[usize]) -> Value {
        if over.is_empty() {
            return a.clone();
        }
        let wide = self.convert(a, a.element.wide());
        let sum = self.reduce(Reduction::Sum, &wide, over);
        self.convert(&sum, a.element)
    }

    /// The positions `start .. end` of a dim.
    pub(crate) fn slice(&mut self, a: &Value, dim: usize, start: u64, end: u64) -> Value {
        let mut shape = a.shape.clone();
        shape[dim] = end - start;
        let ranges = a.shape.iter().enumerate().map(|(at, size)| {
            if at == dim { format!("{start}:{end}") } else { format!("0:{size}") }
        });
        let op = format!("slice {} [{}]", a.name, list(ranges));
        self.shaped(&op, a, shape)
    }

    /// The position at which a block begins: `start` along a dim, and 0 along every other.
    fn starts(&mut self, rank: usize, dim: usize, start: &Value) -> Vec<Value> {
        let front = (rank > 1).then(|| self.count(0));
        (0..rank)
            .map(|at| match &front {
                Some(front) if at != dim => front.clone(),
                _ => start.clone(),
            })
            .collect()
    }

    /// `size` positions of a dim, from a position on that is only known when the program runs.
    pub(crate) fn dynamic_slice(
        &mut self,
        a: &Value,
        dim: usize,
        start: &Value,
        size: u64,
    ) -> Value {
        let starts = self.starts(a.shape.len(), dim, start);
        let mut shape = a.shape.clone();
        shape[dim] = size;
        let text = format!(
            "stablehlo.dynamic_slice {}, {}, sizes = [{}] : ({}, {}) -> {}",
            a.name,
            names(&starts),
            list(&shape),
            a.ty(),
            types(&starts),
            tensor(&shape, a.element)
        );
        self.op(shape, a.element, &text)
    }

    /// The value with a block that replaces its positions of a dim from `start` on.
    pub(crate) fn update(&mut self, a: &Value, block: &Value, dim: usize, start: &Value) -> Value {
        let starts = self.starts(a.shape.len(), dim, start);
        let text = format!(
            "stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}, {}) -> {}",
            a.name,
            block.name,
            names(&starts),
            a.ty(),
            block.ty(),
            types(&starts),
            a.ty()
        );
        self.op(a.shape.clone(), a.element, &text)
    }

    /// Two values one behind the other along a dim.
    pub(crate) fn concatenate(&mut self, a: &Value, c: &Value, dim: usize) -> Value {
        let mut shape = a.shape.clone();
        shape[dim] += c.shape[dim];
        let text = format!(
            "stablehlo.concatenate {}, dim = {dim} : ({}) -> {}",
            names([a, c]),
            types([a, c]),
            tensor(&shape, a.element)
        );
        self.op(shape, a.element, &text)
    }

    /// A channel that no other collective has.
    pub(crate) fn channel(&mut self) -> String {
        self.channels += 1;
        format!("channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>", self.channels)
    }

    /// A region that combines two numbers.
    pub(crate) fn combiner(&mut self, kind: Reduction, element: Element) -> String {
        let scalar = tensor(&[], element);
        let [a, b, both] = ["a", "b", "both"].map(|name| self.fresh(name));
        format!(
            "({{\n  ^bb0({a}: {scalar}, {b}: {scalar}):\n    \
             {both} = stablehlo.{} {a}, {b} : {scalar}\n    \
             stablehlo.return {both} : {scalar}\n}})",
            combining(kind)
        )
    }

    /// A loop with a turn for each of these numbers. `turn` gets its number and the values that the
    /// turn before gives; the first turn gets `carried`, whose names the values have inside.
    pub(crate) fn turns(
        &mut self,
        numbers: Range<u64>,
        carried: &[(&str, Value)],
        turn: impl FnOnce(&mut Builder, &Value, &[Value]) -> Result<Vec<Value>, ExportError>,
    ) -> Result<Vec<Value>, ExportError> {
        let start = self.count(numbers.start);
        let at = self.fresh_value("turn", &[], Element::I32);
        let inside: Vec<Value> = carried
            .iter()
            .map(|(name, value)| self.fresh_value(name, &value.shape, value.element))
            .collect();
        let result = self.fresh("looped");
        let bound = std::iter::once((&at, &start))
            .chain(inside.iter().zip(carried.iter().map(|(_, value)| value)))
            .map(|(inside, outside)| format!("{} = {}", inside.name, outside.name));
        let all: Vec<&Value> = std::iter::once(&at).chain(&inside).collect();
        let text = format!(
            "{result}:{} = stablehlo.while({}) : {}",
            all.len(),
            list(bound),
            types(all.iter().copied())
        );
        self.line(&text);
        self.line("cond {");
        self.indent += 2;
        let last = self.count(numbers.end);
        let goes_on = self.compare("LT", &at, &last);
        self.line(&format!("stablehlo.return {} : {}", goes_on.name, goes_on.ty()));
        self.indent -= 2;
        self.line("} do {");
        self.indent += 2;
        let given = turn(self, &at, &inside)?;
        if given.len() != inside.len() {
            return Err(ExportError::Internal("a turn of a loop gives other values than it takes"));
        }
        let next = self.with_number("add", &at, 1.0);
        let all: Vec<&Value> = std::iter::once(&next).chain(&given).collect();
        let text = format!(
            "stablehlo.return {} : {}",
            names(all.iter().copied()),
            types(all.iter().copied())
        );
        self.line(&text);
        self.indent -= 2;
        self.line("}");
        let outside =
            |(at, value): (usize, Value)| Value { name: format!("{result}#{}", at + 1), ..value };
        Ok(inside.into_iter().enumerate().map(outside).collect())
    }
}

/// The op that combines two numbers.
fn combining(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Sum => "add",
        Reduction::Max => "maximum",
    }
}
