//! Sizes of dims: integer expressions over numbers and earlier dims. Beside each size stands its
//! useful part, without padding.

use shard_grammar::{Span, ast};
use shard_ir::tensor::MAX_DIM_SIZE;

use crate::diagnostics::DimProblem;
use crate::environment::{DimLookup, Environment};
use crate::sink::Sink;

/// An intermediate size, and the part of it that is useful.
#[derive(Clone, Copy)]
struct Size {
    size: i128,
    useful: i128,
}

/// The largest number that an expression may pass through.
const MAX_INTERMEDIATE: i128 = 1 << 64;

struct Evaluation<'e, 'a, 's> {
    env: &'e mut Environment<'a>,
    sink: &'s mut Sink,
    tree: Option<&'a ast::File>,
    /// The dim whose size is computed, or words for another number.
    what: &'e str,
    /// Whether spans of the expression are places in the file; not so for an expression of the
    /// command line.
    in_file: bool,
}

/// The size and the useful size of a dim line; `None` after an error.
pub(crate) fn dim_size<'a>(
    env: &mut Environment<'a>,
    dim: &ast::Dim,
    overridden: bool,
    tree: &'a ast::File,
    sink: &mut Sink,
) -> Option<(u64, u64)> {
    let what = dim.name.value.as_str();
    let mut evaluation = Evaluation { env, sink, tree: Some(tree), what, in_file: !overridden };
    let value = evaluation.eval(&dim.value);
    let pad = dim.pad.as_ref().map(|pad| (pad, evaluation.eval(pad)));
    let value = value?;
    let size = evaluation.in_range(value.size, &dim.value, 1)?;
    let useful = value.useful.clamp(1, value.size) as u64;
    let Some((pad, padded)) = pad else { return Some((size, useful)) };
    let padded = padded?;
    let padded = evaluation.in_range(padded.size, pad, 1)?;
    if padded < size {
        let span = evaluation.place(pad.span);
        sink.report(DimProblem::PadTooSmall { dim: what.to_string(), size, pad: padded, span });
        return None;
    }
    Some((padded, useful))
}

/// The start of a slice: a number from 0.
pub(crate) fn offset(
    env: &mut Environment<'_>,
    expr: &ast::IntExpr,
    sink: &mut Sink,
) -> Option<u64> {
    let mut evaluation =
        Evaluation { env, sink, tree: None, what: "the start of a slice", in_file: true };
    let value = evaluation.eval(expr)?;
    evaluation.in_range(value.size, expr, 0)
}

/// A number from 1; `what` says in errors which number it is.
pub(crate) fn count(
    env: &mut Environment<'_>,
    expr: &ast::IntExpr,
    what: &str,
    sink: &mut Sink,
) -> Option<u64> {
    let mut evaluation = Evaluation { env, sink, tree: None, what, in_file: true };
    let value = evaluation.eval(expr)?;
    evaluation.in_range(value.size, expr, 1)
}

impl Evaluation<'_, '_, '_> {
    fn place(&self, span: Span) -> Option<Span> {
        self.in_file.then_some(span)
    }

    fn out_of_range(&mut self, value: String, span: Span) {
        let span = self.place(span);
        self.sink.report(DimProblem::OutOfRange { dim: self.what.to_string(), value, span });
    }

    fn in_range(&mut self, value: i128, expr: &ast::IntExpr, least: i128) -> Option<u64> {
        if value < least || value > i128::from(MAX_DIM_SIZE) {
            self.out_of_range(value.to_string(), expr.span);
            return None;
        }
        Some(value as u64)
    }

    fn eval(&mut self, expr: &ast::IntExpr) -> Option<Size> {
        match &expr.kind {
            ast::IntExprKind::Number(n) => {
                Some(Size { size: i128::from(*n), useful: i128::from(*n) })
            }
            ast::IntExprKind::Paren(inner) => self.eval(inner),
            ast::IntExprKind::Dim(name) => self.dim(name, expr.span),
            ast::IntExprKind::Binary { op, left, right, .. } => {
                let (left, right) = (self.eval(left), self.eval(right));
                self.binary(*op, left?, right?, expr.span)
            }
        }
    }

    fn dim(&mut self, name: &str, span: Span) -> Option<Size> {
        match self.env.lookup(name) {
            DimLookup::Found(id) => {
                let dim = &self.env.dims[id.index()];
                Some(Size { size: i128::from(dim.size), useful: i128::from(dim.useful) })
            }
            DimLookup::Broken => None,
            DimLookup::Unknown => {
                let declared =
                    self.tree.and_then(|tree| tree.dims().find(|d| d.name.value == name));
                match (declared, self.in_file) {
                    (Some(declared), true) => {
                        let declared = declared.name.span;
                        if self.env.speaks_of(name, self.sink) {
                            let problem =
                                DimProblem::UsedBefore { name: name.to_string(), span, declared };
                            self.sink.report_name(name, problem);
                        } else {
                            self.sink.is_told("E0301", name, span, None);
                        }
                    }
                    (None, true) => self.env.report_unknown_dim(name, span, false, None, self.sink),
                    (_, false) => {
                        if self.env.speaks_of(name, self.sink) {
                            self.sink.report(DimProblem::BadOverride {
                                name: self.what.to_string(),
                                text: "...".to_string(),
                                message: format!(
                                    "there is no dim `{name}` above the line of `{}`",
                                    self.what
                                ),
                            });
                        }
                    }
                }
                None
            }
        }
    }

    fn binary(&mut self, op: ast::BinaryOp, left: Size, right: Size, span: Span) -> Option<Size> {
        let apply = |a: i128, b: i128| match op {
            ast::BinaryOp::Add => a.checked_add(b),
            ast::BinaryOp::Sub => a.checked_sub(b),
            ast::BinaryOp::Mul => a.checked_mul(b),
            // A useful part need not divide; its quotient is rounded up.
            ast::BinaryOp::Div if b == 0 => None,
            ast::BinaryOp::Div => Some(a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)),
        };
        if op == ast::BinaryOp::Div {
            if right.size == 0 {
                let (dim, span) = (self.what.to_string(), self.place(span));
                self.sink.report(DimProblem::DivisionByZero { dim, span });
                return None;
            }
            if left.size % right.size != 0 {
                let (left, right) =
                    (left.size.unsigned_abs() as u64, right.size.unsigned_abs() as u64);
                let (span, dim) = (self.place(span), self.what.to_string());
                self.sink.report(DimProblem::Inexact { left, right, span, dim });
                return None;
            }
        }
        match apply(left.size, right.size).filter(|n| n.abs() <= MAX_INTERMEDIATE) {
            None => {
                let (dim, span) = (self.what.to_string(), self.place(span));
                self.sink.report(DimProblem::Overflow { dim, span });
                None
            }
            Some(size) => {
                let useful = apply(left.useful, right.useful).unwrap_or(size);
                Some(Size { size, useful: useful.clamp(-MAX_INTERMEDIATE, MAX_INTERMEDIATE) })
            }
        }
    }
}
