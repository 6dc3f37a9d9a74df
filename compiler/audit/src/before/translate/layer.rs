//! What a function of StableHLO is as a layer: its dims, parameters, statements and results.

use std::collections::BTreeMap;

use shard_ir::{Binary, Dtype, Groups, Map, Reduce};
use shard_words::Span;

use crate::before::read::Tensor;
use crate::before::sharding::Spec;
use crate::hlo::tables::Place;
use crate::report::Totals;

/// A dim, before names are given: classes of dims that are one.
pub type Class = usize;

/// A value that comes from outside.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in the user's program.
    pub name: String,
    /// Its dims, those of size 1 left out.
    pub dims: Vec<Class>,
    /// For each dim of the user's tensor the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
    /// Its dtype.
    pub dtype: Dtype,
    /// How it is annotated; `None`: free.
    pub spec: Option<Spec>,
    /// The stack of which it is a slice, where it is one.
    pub stack: Option<SlicedStack>,
    /// Where it is used first.
    pub used_at: Option<Place>,
    /// The argument of `main` that it is, by number.
    pub argument: Option<usize>,
}

/// A stack of which a loop takes one slice in each turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlicedStack {
    /// How many slices it has.
    pub slices: u64,
    /// The axes that split it along its slices.
    pub axes: Vec<String>,
}

/// A `with_sharding_constraint`.
#[derive(Clone, Debug)]
pub struct Constraint {
    /// The dims of the user's value.
    pub positions: Vec<Option<Class>>,
    /// The layout that is asked for.
    pub spec: Spec,
    /// Where.
    pub place: Option<Place>,
    /// The text of its op.
    pub span: Span,
    /// What it is put on, as far as that has a name: a parameter.
    pub of: Option<String>,
}

/// A result.
#[derive(Clone, Debug)]
pub struct Output {
    /// What it is.
    pub value: String,
    /// Its dims.
    pub positions: Vec<Option<Class>>,
    /// Its dtype.
    pub dtype: Dtype,
    /// How it is annotated; `None`: free.
    pub spec: Option<Spec>,
    /// The result of `main` that it is, by number; `None` where it is what a `shard_map` takes.
    pub result: Option<usize>,
    /// Its name in the user's program, where it is in a tree: `result[1]['w']`.
    pub name: Option<String>,
}

/// What a statement computes. Operands are names of values, or numbers.
#[derive(Clone, Debug)]
pub enum Expression {
    /// A product of operands, summed; the dims of the result, and its dtype where that is another.
    Einsum(Vec<String>, Vec<Class>, Option<Dtype>),
    /// `a + b`, or `maximum(a, b)`.
    Binary(Binary, String, String),
    /// `exp(a)`.
    Map(Map, String),
    /// `sum(a over ..)`.
    Reduce(Reduce, String, Vec<Class>),
    /// `rename(a, L -> S)`.
    Rename(String, Class, Class),
    /// `split(a, H -> KG)`.
    Split(String, Class, Vec<Class>),
    /// `merge(a, KG -> H)`.
    Merge(String, Vec<Class>, Class),
    /// `slice(a, S -> W, 128)`.
    Slice(String, Class, Class, u64),
    /// `concat(a, b, S, T -> U)`.
    Concat(String, String, Class, Class, Class),
    /// `take(table, ids over V)`.
    Take(String, String, Class),
    /// `cast(a, f32)`.
    Cast(String, Dtype),
    /// A constraint on a value, by its number.
    Constrain(String, usize),
}

/// One statement.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The value that it makes.
    pub value: String,
    /// What it computes.
    pub expression: Expression,
    /// For each dim of the user's tensor the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
    /// Where it comes from.
    pub place: Option<Place>,
    /// The op that it is, or is a part of, as an index of [`Layer::sites`].
    pub site: usize,
}

/// An op of the program, where its text can be edited.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its text, regions included.
    pub span: Span,
    /// Where it comes from.
    pub place: Option<Place>,
    /// Whether differentiation made it.
    pub of_gradient: bool,
    /// Its result as the text names it; empty where it has several.
    pub result: String,
    /// The type of its result.
    pub tensor: Option<Tensor>,
    /// The value of the layer that is its result, where it makes one.
    pub gives: Option<String>,
    /// The value of the layer that its result is another form of, as of a transpose: its dims.
    pub alias: Option<(String, Vec<Option<Class>>)>,
    /// What it takes.
    pub takes: Vec<Taken>,
}

/// An operand of an op.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What the text calls it: `%arg0`, `%12`.
    pub word: String,
    /// Its type.
    pub tensor: Tensor,
    /// The value of the layer that it is.
    pub name: String,
    /// For each of its dims the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
}

/// A layer, with what is fixed in it.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// How often it is stacked.
    pub repeat: u64,
    /// Its parameters; in a stacked layer the first is what is handed on.
    pub parameters: Vec<Parameter>,
    /// What it does.
    pub statements: Vec<Statement>,
    /// Its constraints.
    pub constraints: Vec<Constraint>,
    /// Its results.
    pub outputs: Vec<Output>,
    /// Ops that are not understood, and how often each occurs.
    pub barriers: BTreeMap<String, usize>,
    /// How many ops there are in all, calls written out.
    pub ops: usize,
    /// The ops that make something.
    pub sites: Vec<Site>,
    /// How many `shard_map`s it has: their results come from outside.
    pub manual: usize,
    /// What the collectives inside of them send and take, which are written by hand; they are part
    /// of every optimum. Whoever has the compiled program says so.
    pub by_hand: Option<Totals>,
    /// The size of each class.
    pub(super) sizes: Vec<u64>,
    /// Classes that are one.
    pub(super) alike: Groups<Class>,
    /// The dims of every value, for who may be one with whom.
    pub(super) tensors: Vec<Vec<Class>>,
}

/// What a value of a layer is in the user's program.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'l> {
    /// The name of a parameter; values that ops make have none.
    pub name: Option<&'l str>,
    /// Whether a product of tensors makes the value.
    pub is_product: bool,
    /// For each dim of the user's tensor the dim here, `None` for one of size 1.
    pub positions: &'l [Option<Class>],
    /// The line that makes the value; of a parameter, the line that uses it first.
    pub place: Option<&'l Place>,
}

impl Origin<'_> {
    /// The name, or words for a value without one.
    pub fn words(self) -> String {
        match (self.name, self.is_product) {
            (Some(name), _) => name.to_string(),
            (None, true) => "the product here".to_string(),
            (None, false) => "the value here".to_string(),
        }
    }
}

impl Layer {
    /// The class that a class is one with.
    pub fn root(&self, class: Class) -> Class {
        self.alike.first_of(class)
    }

    /// The size of a dim.
    pub fn size(&self, class: Class) -> u64 {
        self.sizes[self.root(class)]
    }

    /// Every dim, with its size.
    pub fn classes(&self) -> impl Iterator<Item = (Class, u64)> + '_ {
        (0..self.sizes.len()).filter(|at| self.root(*at) == *at).map(|at| (at, self.sizes[at]))
    }

    /// What a name of the layer stands for in the user's program.
    pub fn origin(&self, name: &str) -> Option<Origin<'_>> {
        let number = |kind: char| name.strip_prefix(kind)?.parse::<usize>().ok();
        if let Some(parameter) = number('p').and_then(|at| self.parameters.get(at)) {
            return Some(Origin {
                name: Some(&parameter.name),
                is_product: false,
                positions: &parameter.positions,
                place: parameter.used_at.as_ref(),
            });
        }
        let statement = self.statements.get(number('v')?)?;
        Some(Origin {
            name: None,
            is_product: matches!(statement.expression, Expression::Einsum(..)),
            positions: &statement.positions,
            place: statement.place.as_ref(),
        })
    }

    /// The statement that makes a value.
    pub fn statement(&self, value: &str) -> Option<&Statement> {
        self.statements.get(value.strip_prefix('v')?.parse::<usize>().ok()?)
    }

    pub(super) fn fresh(&mut self, size: u64) -> Class {
        self.sizes.push(size);
        self.sizes.len() - 1
    }

    /// Makes two dims one; not where a tensor has both.
    pub(super) fn unify(&mut self, one: Class, other: Class) -> bool {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return true;
        }
        let both = |dims: &Vec<Class>| {
            let has = |class| dims.iter().any(|dim| self.root(*dim) == class);
            has(one) && has(other)
        };
        if self.sizes[one] != self.sizes[other] || self.tensors.iter().any(both) {
            return false;
        }
        self.alike.join(one, other);
        true
    }
}
