//! Types an op by the typing rule of the IR, and words the errors of that rule.

use shard_grammar::{Span, ast};
use shard_ir::{DimId, Op, TensorType, TypeError, ValueId, never};

use crate::diagnostics::{DtypeProblem, Quote, SecondOperand, ShapeProblem};
use crate::layer::LayerChecker;

impl LayerChecker<'_, '_> {
    /// Types an op and adds its result. An error is worded as one about the operands.
    pub(crate) fn op(
        &mut self,
        op: Op,
        word: &str,
        operands: &[(ValueId, &ast::Expr)],
        span: Span,
    ) -> Option<ValueId> {
        let types: Vec<TensorType> =
            operands.iter().map(|(value, _)| self.builder.type_of(*value)).collect();
        match shard_ir::result_type(&op, &types, &[], &self.env.dims) {
            Ok(ty) => {
                let values = operands.iter().map(|(value, _)| *value).collect();
                self.builder.push_op(self.env, op, values, ty, span, self.sink)
            }
            Err(error) => {
                self.report_type_error(&op, word, operands, span, error);
                None
            }
        }
    }

    /// Reports a type error of an op. Ops that name dims have reported errors about these dims
    /// before.
    pub(crate) fn report_type_error(
        &mut self,
        op: &Op,
        word: &str,
        operands: &[(ValueId, &ast::Expr)],
        span: Span,
        error: TypeError,
    ) {
        let operand = |i: usize| {
            let (_, expr) = operands[i.min(operands.len() - 1)];
            Quote::of_expr(expr)
        };
        match error {
            TypeError::Dtypes { left, right } => {
                let at = |dtype| {
                    operands.iter().position(|(v, _)| self.builder.value(*v).dtype == dtype)
                };
                let second =
                    operands.iter().rposition(|(v, _)| self.builder.value(*v).dtype == right);
                let second =
                    second.unwrap_or_else(|| never!("dtypes that do not meet, of no operand", 1));
                let first =
                    at(left).unwrap_or_else(|| never!("dtypes that do not meet, of no operand", 0));
                let (left, right) = ((operand(first), left), (operand(second), right));
                self.sink.report(DtypeProblem::DoNotMeet { op: word.to_string(), left, right });
            }
            TypeError::OperandDtype { operand: i, found, wanted } => {
                let others = operands.iter().enumerate().filter(|(other, _)| *other != i);
                let others = others.map(|(_, (v, _))| self.builder.value(*v).dtype).collect();
                self.sink.report(DtypeProblem::NotTaken {
                    op: word.to_string(),
                    operand: operand(i),
                    found,
                    wanted,
                    others,
                });
            }
            TypeError::RepeatedDim(dim) => {
                let dim = self.env.dim_name(dim).to_string();
                self.sink.report(ShapeProblem::ResultRepeats { op: word.to_string(), dim, span });
            }
            TypeError::WrongDims { expected } => {
                let dims = |at: usize| self.builder.value(operands[at].0).dims.clone();
                let (left, right) = (dims(0), dims(1));
                let joined = wanted_second(op, &left);
                let second = match &joined {
                    Some(_) => SecondOperand::Joined,
                    None if matches!(op, Op::Locate { .. }) => SecondOperand::Sought,
                    None => SecondOperand::Beside,
                };
                let wanted = joined.unwrap_or(expected);
                self.sink.report(ShapeProblem::OtherDims {
                    op: word.to_string(),
                    left: (operand(0).span, self.env.dims_text(&left)),
                    right: (operand(1).span, self.env.dims_text(&right)),
                    wanted: self.env.dims_text(&wanted),
                    second,
                });
            }
            TypeError::Arity { .. }
            | TypeError::NoOperandHas(_)
            | TypeError::MissingDim { .. }
            | TypeError::Sizes { .. } => {
                let message = format!("`{word}` does not fit its operands: {error}");
                self.sink.report(ShapeProblem::Sizes {
                    message,
                    span,
                    here: "here".to_string(),
                    help: None,
                });
            }
        }
    }
}

/// The dims that the second operand of an append has to have; `None` of other ops.
fn wanted_second(op: &Op, left: &[DimId]) -> Option<Vec<DimId>> {
    let Op::Append { from, to } = op else { return None };
    Some(left.iter().map(|d| if d == to { *from } else { *d }).collect())
}
