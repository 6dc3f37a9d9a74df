//! The operations that name dims: einsum, reductions, composites, rename, split, merge and the
//! rest.

use shard_grammar::{Span, ast};
use shard_ir::op::{Argument, Code, Of, Slot, Takes};
use shard_ir::{DimId, Dtype, Op, TensorType, TypeError, ValueId, never};

use crate::diagnostic::Edit;
use crate::diagnostics::limits::{MAX_EINSUM_OPERANDS, MAX_ITERATIONS};
use crate::diagnostics::{DtypeProblem, LimitProblem, ShapeProblem};
use crate::expr::Term;
use crate::int_expr;
use crate::layer::LayerChecker;
use crate::names::nearest;

mod fits;

use self::fits::Written;

type Operand<'x> = (ValueId, &'x ast::Expr);

impl LayerChecker<'_, '_> {
    pub(crate) fn einsum(
        &mut self,
        exprs: &[ast::Expr],
        output: &ast::DimList,
        stated: Option<shard_grammar::Spanned<Dtype>>,
        span: Span,
    ) -> Option<ValueId> {
        if exprs.len() > MAX_EINSUM_OPERANDS {
            self.sink.report(LimitProblem::Operands {
                found: exprs.len(),
                limit: MAX_EINSUM_OPERANDS,
                span,
            });
            return None;
        }
        let terms: Vec<Option<Term>> = exprs.iter().map(|expr| self.term(expr)).collect();
        let named = self.env.dim_list(output, self.sink);
        let mut operands: Vec<Operand<'_>> = Vec::new();
        // A number takes the dtype of the first operand that is a value.
        let first = terms.iter().zip(exprs).find_map(|(t, e)| match t {
            Some(Term::Value(v)) => Some((*v, e)),
            _ => None,
        });
        for (term, expr) in terms.into_iter().zip(exprs) {
            let value = match (term?, first) {
                (Term::Number { value, text, span }, Some((other, other_expr))) => {
                    self.number(value, &text, span, other, other_expr)
                }
                (term, _) => self.one(term, expr),
            };
            operands.push((value?, expr));
        }
        let named = named?;
        let types: Vec<_> = operands.iter().map(|(v, _)| self.builder.type_of(*v)).collect();
        let iterations = {
            let mut all: Vec<DimId> = types.iter().flat_map(|t| t.dims.iter().copied()).collect();
            all.sort();
            all.dedup();
            all.iter().try_fold(1u64, |n, d| {
                n.checked_mul(self.env.size(*d)).filter(|n| *n <= MAX_ITERATIONS)
            })
        };
        if iterations.is_none() {
            self.sink.report(LimitProblem::Iterations { limit: MAX_ITERATIONS, span });
            return None;
        }
        match shard_ir::result_type(&Op::Einsum, &types, &named, &self.env.dims) {
            Ok(mut ty) => {
                if let Some(stated) = stated {
                    let dtype = stated.value;
                    if !shard_ir::accumulates_in(ty.dtype, dtype) {
                        let product = ty.dtype;
                        self.sink.report(DtypeProblem::Accumulated {
                            product,
                            stated: (stated.span, dtype),
                            span,
                        });
                        return None;
                    }
                    ty.dtype = dtype;
                }
                let values = operands.iter().map(|(v, _)| *v).collect();
                self.builder.push_op(self.env, Op::Einsum, values, ty, span, self.sink)
            }
            Err(TypeError::NoOperandHas(_)) => {
                self.report_dims_of_no_operand(&operands, &types, &named, output);
                None
            }
            Err(error) => {
                self.report_type_error(&Op::Einsum, "einsum", &operands, span, error);
                None
            }
        }
    }

    /// Reports each dim of an einsum's output that no operand has.
    fn report_dims_of_no_operand(
        &mut self,
        operands: &[Operand<'_>],
        types: &[TensorType],
        named: &[DimId],
        output: &ast::DimList,
    ) {
        let kept: Vec<DimId> =
            named.iter().copied().filter(|d| types.iter().any(|t| t.dims.contains(d))).collect();
        let has = |dim: &DimId| types.iter().any(|t| t.dims.contains(dim));
        for (dim, name) in named.iter().zip(&output.dims).filter(|(dim, _)| !has(dim)) {
            let all = types.iter().flat_map(|t| &t.dims).filter(|d| !named.contains(d));
            let near = nearest(self.env.dim_name(*dim), all.map(|d| self.env.dim_name(*d)));
            self.sink.report(ShapeProblem::OutputDim {
                dim: name.value.clone(),
                span: name.span,
                operands: operands
                    .iter()
                    .zip(types)
                    .map(|((_, e), t)| (e.span, self.env.dims_text(&t.dims)))
                    .collect(),
                near: near.map(str::to_string),
                rest: Edit { span: output.span, replacement: self.env.dims_text(&kept) },
            });
        }
    }

    /// Checks an op with slots: its operands, what fills its slots, and then whether its sizes fit.
    pub(crate) fn form(
        &mut self,
        code: Code,
        exprs: &[ast::Expr],
        arguments: &[ast::Argument],
        span: Span,
    ) -> Option<ValueId> {
        let row = code.row();
        let word = row.source.unwrap_or(row.text);
        let values: Vec<Option<ValueId>> = exprs.iter().map(|expr| self.value(expr)).collect();
        let filled: Vec<Option<Argument>> = row
            .slots
            .iter()
            .zip(arguments)
            .map(|(slot, argument)| self.filling(slot, argument))
            .collect();
        let values = values.into_iter().collect::<Option<Vec<_>>>()?;
        let filled = filled.into_iter().collect::<Option<Vec<_>>>()?;
        let operands: Vec<Operand<'_>> = values.into_iter().zip(exprs).collect();
        let mut op_arguments = Vec::new();
        for ((slot, argument), written) in row.slots.iter().zip(filled).zip(arguments) {
            op_arguments.push(match (slot.takes, argument) {
                (Takes::ListOfOne, Argument::Dims(dims)) => match dims.as_slice() {
                    [dim] => Argument::Dim(*dim),
                    _ => {
                        let message =
                            format!("`{word}` goes over one dim, and {} are named", dims.len());
                        let help = Some("merge the dims into one first".to_string());
                        self.sizes(message, written.span(), "one dim belongs here", help)?;
                        return None;
                    }
                },
                (_, argument) => argument,
            });
        }
        // Missing dims are reported operand by operand.
        for (at, operand) in operands.iter().enumerate() {
            for ((slot, argument), written) in row.slots.iter().zip(&op_arguments).zip(arguments) {
                let of = match slot.of {
                    Of::Operand(of) | Of::Whole(of) => Some(of),
                    Of::WholeInAll => Some(0),
                    Of::Result | Of::None => None,
                };
                if of != Some(at) {
                    continue;
                }
                for (place, dim) in argument.dims().iter().enumerate() {
                    let span = match (written, slot.takes) {
                        (ast::Argument::Dims(list), Takes::Dims | Takes::SeveralDims) => {
                            list.dims[place].span
                        }
                        _ => written.span(),
                    };
                    self.needs(word, *dim, span, *operand)?;
                }
            }
        }
        let op = Op::of(code, op_arguments)?;
        let spans: Vec<Span> = arguments.iter().map(ast::Argument::span).collect();
        for fit in row.fits {
            self.fits(fit, &Written { op: &op, word, operands: &operands, spans: &spans })?;
        }
        self.op(op, word, &operands, span)
    }

    /// What fills a slot: dims that are declared, numbers that are in range.
    fn filling(&mut self, slot: &Slot, written: &ast::Argument) -> Option<Argument> {
        Some(match written {
            ast::Argument::Dim(name) => Argument::Dim(self.env.dim(name, None, self.sink)?),
            ast::Argument::Dims(list) => Argument::Dims(self.env.dim_list(list, self.sink)?),
            ast::Argument::Number(expr) => Argument::Number(match slot.takes {
                Takes::Count(_) => {
                    let what = format!("the number of {}", slot.name);
                    int_expr::count(self.env, expr, &what, self.sink)?
                }
                Takes::CountOrNothing(_) => {
                    int_expr::count(self.env, expr, &format!("the {}", slot.name), self.sink)?
                }
                Takes::Position(_) => int_expr::offset(self.env, expr, self.sink)?,
                Takes::Dim
                | Takes::DimOrNothing
                | Takes::ListOfOne
                | Takes::Dims
                | Takes::SeveralDims
                | Takes::Dtype => return never!("a number in a slot that takes none", None),
            }),
            ast::Argument::Dtype(dtype) => Argument::Dtype(dtype.value),
        })
    }

    fn sized(&self, dim: DimId) -> String {
        format!("`{}` = {}", self.env.dim_name(dim), self.env.size(dim))
    }

    fn sizes(
        &mut self,
        message: String,
        span: Span,
        here: &str,
        help: Option<String>,
    ) -> Option<()> {
        self.sink.report(ShapeProblem::Sizes { message, span, here: here.to_string(), help });
        None
    }

    fn needs(&mut self, op: &str, dim: DimId, span: Span, operand: Operand<'_>) -> Option<()> {
        let dims = &self.builder.value(operand.0).dims;
        if dims.contains(&dim) {
            return Some(());
        }
        let near = nearest(self.env.dim_name(dim), dims.iter().map(|d| self.env.dim_name(*d)));
        self.sink.report(ShapeProblem::MissingDim {
            op: op.to_string(),
            dim: self.env.dim_name(dim).to_string(),
            span,
            operand: operand.1.span,
            dims: self.env.dims_text(dims),
            near: near.map(str::to_string),
        });
        None
    }
}
