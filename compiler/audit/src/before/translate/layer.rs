//! The layer that a function of StableHLO is translated to: its dims, parameters, statements and
//! results.

use std::collections::BTreeMap;

use shard_ir::{Binary, Dtype, Groups, Map, Reduce};
use shard_words::Span;

use crate::before::read::Tensor;
use crate::before::sharding::Spec;
use crate::hlo::tables::Place;
use crate::report::Totals;

/// The number of a dim of the layer. Several numbers may stand for one dim; see [`Layer::root`].
pub type Class = usize;

/// A value that comes from outside the layer.
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
    /// Its annotation; `None` for a free layout.
    pub spec: Option<Spec>,
    /// The stack of which it is a slice, where it is one.
    pub stack: Option<SlicedStack>,
    /// The line that uses it first.
    pub used_at: Option<Place>,
    /// The index of the argument of `main` that it is, or is a slice of.
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
    /// For each dim of the user's tensor the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
    /// The layout that it demands.
    pub spec: Spec,
    /// The line that has it.
    pub place: Option<Place>,
    /// The place of its op in the text.
    pub span: Span,
    /// The name of the parameter that it is put on, if it is put on one.
    pub of: Option<String>,
}

/// A result.
#[derive(Clone, Debug)]
pub struct Output {
    /// The value of the layer that it is.
    pub value: String,
    /// For each dim of the user's tensor the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
    /// Its dtype.
    pub dtype: Dtype,
    /// Its annotation; `None` for a free layout.
    pub spec: Option<Spec>,
    /// The index of the result of `main` that it is; `None` for a value that a `shard_map` takes.
    pub result: Option<usize>,
    /// Its name in the tree of results, where it has one: `result[1]['w']`.
    pub name: Option<String>,
}

/// What a statement computes. Operands are names of values, or numbers.
#[derive(Clone, Debug)]
pub enum Expression {
    /// An einsum of operands: the dims of its result, and its stated dtype.
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
    /// A value under a constraint, an index of [`Layer::constraints`].
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
    /// The line of the user's program that it comes from.
    pub place: Option<Place>,
    /// The op that it is, or is a part of, as an index of [`Layer::sites`].
    pub site: usize,
}

/// An op of the program, at which the text can be edited.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its text, regions included.
    pub span: Span,
    /// The line of the user's program that it comes from.
    pub place: Option<Place>,
    /// Whether differentiation made it.
    pub of_gradient: bool,
    /// The name of its result in the text; empty if it has several results.
    pub result: String,
    /// The type of its result.
    pub tensor: Option<Tensor>,
    /// The value of the layer that is its result, if it makes one.
    pub gives: Option<String>,
    /// The value of the layer of which its result is another form (such as a transpose), and the
    /// dims of that form.
    pub alias: Option<(String, Vec<Option<Class>>)>,
    /// Its operands that are tensors.
    pub takes: Vec<Taken>,
}

/// An operand of an op.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its name in the text: `%arg0`, `%12`.
    pub word: String,
    /// Its type.
    pub tensor: Tensor,
    /// The value of the layer that it is.
    pub name: String,
    /// For each of its dims the dim here, `None` for one of size 1.
    pub positions: Vec<Option<Class>>,
}

/// A layer with its annotations.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// How often it is stacked.
    pub repeat: u64,
    /// Its parameters. In a repeated layer the first is the value that is handed on.
    pub parameters: Vec<Parameter>,
    /// Its statements, in order.
    pub statements: Vec<Statement>,
    /// Its constraints.
    pub constraints: Vec<Constraint>,
    /// Its results.
    pub outputs: Vec<Output>,
    /// The names of ops that are not understood, and how often each occurs.
    pub barriers: BTreeMap<String, usize>,
    /// The number of ops of the program, calls written out.
    pub ops: usize,
    /// The ops that make something.
    pub sites: Vec<Site>,
    /// The number of its `shard_map`s, whose results are parameters.
    pub manual: usize,
    /// What the collectives inside `shard_map`s send and take; they are written by hand, and so
    /// part of every optimum. The caller that has the compiled program sets this.
    pub by_hand: Option<Totals>,
    /// The size of each class.
    pub(super) sizes: Vec<u64>,
    /// The classes that stand for one dim.
    pub(super) alike: Groups<Class>,
    /// The dims of every value: two dims of one value are never made one.
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
    /// The class that stands for all that are one dim with a class.
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

    /// Makes two dims one. `false` if their sizes differ or a tensor has both.
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
