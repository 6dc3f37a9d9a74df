//! Arithmetic and choices of operands that broadcast to the dims of the result.

use shard_ir::{Binary, InstrId};

use super::{HloOps, Operand};
use crate::error::ExportError;
use crate::to_stablehlo::builder::{Builder, Value};
use crate::to_stablehlo::element::Element;
use crate::to_stablehlo::elementwise::binary;

impl HloOps<'_> {
    /// Two operands combined, in the dtype in which they meet.
    pub(super) fn binary(
        &self,
        b: &mut Builder,
        op: Binary,
        id: InstrId,
        operands: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let [left, right] = operands.map(|o| self.plan.instruction(o.id).dtype);
        let dtype = left.meet(right);
        let dtype = dtype.ok_or(ExportError::Internal("operands of dtypes that do not meet"))?;
        let element = Element::of(dtype, self.floats);
        let [left, right] = operands.map(|operand| self.aligned(b, id, operand, element));
        Ok(binary(b, op, &left?, &right?))
    }

    /// Of two values, in the dtype of the result, the one or the other.
    pub(super) fn either(
        &self,
        b: &mut Builder,
        id: InstrId,
        operands: &[Operand],
    ) -> Result<Value, ExportError> {
        let [holds, yes, no] = operands else {
            return Err(ExportError::Internal("a choice of other than two"));
        };
        let holds = self.aligned(b, id, holds, holds.value.element)?;
        let element = self.element(id);
        let [yes, no] = [yes, no].map(|operand| self.aligned(b, id, operand, element));
        Ok(b.select(&holds, &yes?, &no?))
    }
}
