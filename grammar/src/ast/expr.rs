//! Expressions as they were written, of values and of sizes.

use super::{DType, DimList, LayoutWord, Name, PartialGroup};
use crate::source::{Span, Spanned};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ExprKind,
}

impl Expr {
    /// The expressions that it is made of, in the order in which they stand.
    pub fn operands(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Name(_) => Vec::new(),
            ExprKind::Call { args: operands, .. } | ExprKind::Einsum { operands, .. } => operands.iter().collect(),
            ExprKind::Binary { left, right, .. }
            | ExprKind::Extremum { left, right, .. }
            | ExprKind::Concat { left, right, .. }
            | ExprKind::Append { cache: left, new: right, .. }
            | ExprKind::Take { table: left, ids: right, .. } => vec![left, right],
            ExprKind::Paren(operand)
            | ExprKind::Named { value: operand, .. }
            | ExprKind::Neg { operand, .. }
            | ExprKind::Map { operand, .. }
            | ExprKind::Reduce { operand, .. }
            | ExprKind::Normalize { operand, .. }
            | ExprKind::Rename { operand, .. }
            | ExprKind::Split { operand, .. }
            | ExprKind::Merge { operand, .. }
            | ExprKind::Slice { operand, .. }
            | ExprKind::Causal { operand, .. }
            | ExprKind::Rope { operand, .. }
            | ExprKind::Route { operand, .. }
            | ExprKind::Cast { operand, .. }
            | ExprKind::Reshard { operand, .. } => vec![operand],
        }
    }
}

/// A number as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// Its text, as printed back.
    pub text: String,
    /// Its value; always finite.
    pub value: f64,
}

/// The forms of an expression. No tree is deeper than [`crate::limits::MAX_TREE_DEPTH`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the fields bear the names that the variant's doc line uses
pub enum ExprKind {
    /// A number without a sign.
    Number(Number),
    /// A value, by name.
    Name(String),
    /// `(inner)`, kept as the user wrote it.
    Paren(Box<Expr>),
    /// `-operand`
    Neg { op_span: Span, operand: Box<Expr> },
    /// `left op right` for `+ - * /`
    Binary { op: BinaryOp, op_span: Span, left: Box<Expr>, right: Box<Expr> },
    /// `maximum(left, right)`, `minimum(left, right)`
    Extremum { op: Spanned<ExtremumOp>, left: Box<Expr>, right: Box<Expr> },
    /// `gelu(operand)` and the other elementwise maps
    Map { op: Spanned<MapOp>, operand: Box<Expr> },
    /// `callee(args...)`: another layer of the file
    Call { callee: Name, args: Vec<Expr> },
    /// `name: value`, an argument of a call in a model for the weight or cache that the layer calls so
    Named { name: Name, value: Box<Expr> },
    /// `einsum(operands... -> output : dtype)`; `word_span` is the word `einsum`; at least one operand
    Einsum { word_span: Span, operands: Vec<Expr>, output: DimList, dtype: Option<Spanned<DType>> },
    /// `sum(operand over dims)`, `mean`, `max`
    Reduce { op: Spanned<ReduceOp>, operand: Box<Expr>, over: DimList },
    /// `softmax(operand over dims)`, `rmsnorm`, `layernorm`
    Normalize { op: Spanned<NormalizeOp>, operand: Box<Expr>, over: DimList },
    /// `rename(operand, from -> to)`
    Rename { word_span: Span, operand: Box<Expr>, from: Name, to: Name },
    /// `split(operand, from -> to)`; `to` has two dims or more, major first
    Split { word_span: Span, operand: Box<Expr>, from: Name, to: DimList },
    /// `merge(operand, from -> to)`; `from` has two dims or more, major first
    Merge { word_span: Span, operand: Box<Expr>, from: DimList, to: Name },
    /// `concat(left, right, left_dim, right_dim -> to)`
    Concat { word_span: Span, left: Box<Expr>, right: Box<Expr>, left_dim: Name, right_dim: Name, to: Name },
    /// `slice(operand, from -> to, start)`
    Slice { word_span: Span, operand: Box<Expr>, from: Name, to: Name, start: IntExpr },
    /// `append(cache, new, from -> to)`: `from` is the dim of the new positions, `to` the cache's
    Append { word_span: Span, cache: Box<Expr>, new: Box<Expr>, from: Name, to: Name },
    /// `causal(operand over query, key)`
    Causal { word_span: Span, operand: Box<Expr>, query: Name, key: Name },
    /// `rope(operand over dim at position, extent)`: the positions are the last ones of `extent`; the first ones without it
    Rope { word_span: Span, operand: Box<Expr>, dim: Name, position: Name, extent: Option<Name> },
    /// `take(table, ids over dim)`
    Take { word_span: Span, table: Box<Expr>, ids: Box<Expr>, dim: Name },
    /// `route(operand over experts at tokens -> places, choices)`
    Route { word_span: Span, operand: Box<Expr>, experts: Name, tokens: Name, places: Name, choices: IntExpr },
    /// `cast(operand, dtype)`
    Cast { word_span: Span, operand: Box<Expr>, dtype: Spanned<DType> },
    /// `reshard(operand, LAYOUT partial)`
    Reshard { word_span: Span, operand: Box<Expr>, layout: LayoutWord, partial: Vec<PartialGroup> },
}

/// The four signs, of expressions and of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
}

impl BinaryOp {
    /// The sign of the language.
    pub fn sign(self) -> &'static str {
        match self {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
        }
    }

    /// How tightly it binds: 1 for `+ -`, 2 for `* /`. Both are left-associative.
    pub fn precedence(self) -> u8 {
        match self {
            BinaryOp::Add | BinaryOp::Sub => 1,
            BinaryOp::Mul | BinaryOp::Div => 2,
        }
    }
}

/// Makes an enum of operations that are one word each, with the way from the word and back.
macro_rules! word_enum {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // each is its own word
        pub enum $name { $($variant),* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word of the language.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// The operation that a word means.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }
    };
}

word_enum! {
    /// Elementwise maps of one operand.
    MapOp {
        Gelu = "gelu", Relu = "relu", Silu = "silu", Sigmoid = "sigmoid", Tanh = "tanh", Exp = "exp", Log = "log",
        Sqrt = "sqrt", Rsqrt = "rsqrt", Square = "square", Abs = "abs",
    }
}
word_enum! {
    /// Elementwise choice of the larger or smaller of two operands.
    ExtremumOp { Maximum = "maximum", Minimum = "minimum" }
}
word_enum! {
    /// Reductions over dims.
    ReduceOp { Sum = "sum", Mean = "mean", Max = "max" }
}
word_enum! {
    /// Composites over dims.
    NormalizeOp { Softmax = "softmax", RmsNorm = "rmsnorm", LayerNorm = "layernorm" }
}

/// An integer expression over numbers and dims.
#[derive(Clone, Debug, PartialEq)]
pub struct IntExpr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: IntExprKind,
}

/// The forms of an integer expression. No tree is deeper than [`crate::limits::MAX_TREE_DEPTH`].
#[derive(Clone, Debug, PartialEq)]
pub enum IntExprKind {
    /// A number.
    Number(u64),
    /// Another dim, by name.
    Dim(String),
    /// `left op right`; `/` must come out exact.
    Binary {
        /// The operation.
        op: BinaryOp,
        /// Its sign's place.
        op_span: Span,
        /// The left operand.
        left: Box<IntExpr>,
        /// The right operand.
        right: Box<IntExpr>,
    },
    /// `(...)`, kept as the user wrote it.
    Paren(Box<IntExpr>),
}
