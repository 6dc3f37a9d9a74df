//! Expressions of values and of sizes, as they were written.

use super::{DimList, LayoutWord, Name, PartialGroup};
use shard_ops::{Code, Dtype};
use shard_words::{Span, Spanned};

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ExprKind,
}

impl Expr {
    /// The expressions that it is made of, in order.
    pub fn operands(&self) -> Vec<&Expr> {
        match &self.kind {
            ExprKind::Number(_) | ExprKind::Name(_) => Vec::new(),
            ExprKind::Call { args: operands, .. }
            | ExprKind::Einsum { operands, .. }
            | ExprKind::Form { operands, .. } => operands.iter().collect(),
            ExprKind::Binary { left, right, .. } => vec![left, right],
            ExprKind::Paren(operand)
            | ExprKind::Named { value: operand, .. }
            | ExprKind::Neg { operand, .. }
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

/// The forms of an expression. No more than [`crate::limits::MAX_TREE_DEPTH`]
/// operations stand one upon another.
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
    /// `callee(args...)`: another layer of the file
    Call { callee: Name, args: Vec<Expr> },
    /// `name: value`, an argument of a call in a model: the weight or cache that the layer calls
    /// `name`
    Named { name: Name, value: Box<Expr> },
    /// `einsum(operands... -> output : dtype)`, with at least one operand; `word_span` is the word
    /// `einsum`
    Einsum { word_span: Span, operands: Vec<Expr>, output: DimList, dtype: Option<Spanned<Dtype>> },
    /// `word(operands slots)`: any other op, with the operands and the slots of its row in the
    /// catalogue, and an argument for each slot that is filled
    Form { op: Spanned<Code>, operands: Vec<Expr>, arguments: Vec<Argument> },
    /// `reshard(operand, LAYOUT partial)`
    Reshard { word_span: Span, operand: Box<Expr>, layout: LayoutWord, partial: Vec<PartialGroup> },
}

shard_ops::worded! {
    /// The four arithmetic signs, in expressions of values and of sizes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum BinaryOp {
        /// `+`
        Add = "+",
        /// `-`
        Sub = "-",
        /// `*`
        Mul = "*",
        /// `/`
        Div = "/",
    }
    /// The sign of the language.
    fn sign;
}

impl BinaryOp {
    /// How tightly it binds: 1 for `+ -`, 2 for `* /`. Both are left-associative.
    pub fn precedence(self) -> u8 {
        match self {
            BinaryOp::Add | BinaryOp::Sub => 1,
            BinaryOp::Mul | BinaryOp::Div => 2,
        }
    }
}

/// What fills a slot of an op.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A dim.
    Dim(Name),
    /// Dims.
    Dims(DimList),
    /// A position or a count.
    Number(IntExpr),
    /// A dtype.
    Dtype(Spanned<Dtype>),
}

impl Argument {
    /// Where it stands.
    pub fn span(&self) -> Span {
        match self {
            Argument::Dim(name) => name.span,
            Argument::Dims(list) => list.span,
            Argument::Number(expr) => expr.span,
            Argument::Dtype(dtype) => dtype.span,
        }
    }
}

/// An integer expression over numbers and dims.
#[derive(Clone, Debug, PartialEq)]
pub struct IntExpr {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: IntExprKind,
}

/// The forms of an integer expression. No more than [`crate::limits::MAX_TREE_DEPTH`]
/// operations stand one upon another.
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
