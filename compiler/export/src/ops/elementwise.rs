//! Elementwise ops: arithmetic, choices and casts.

use shard_ir::{Binary, Dtype, InstrId};

use super::numbers::is_number;
use super::{Named, PythonOps};
use crate::error::ExportError;
use crate::python::Py;
use crate::words::Extremum;

impl PythonOps<'_> {
    pub(super) fn binary(
        &self,
        binary: Binary,
        id: InstrId,
        left: &Named,
        right: &Named,
    ) -> Result<Py, ExportError> {
        let of = |named: &Named| self.plan.instruction(named.id).dtype;
        let dtype = of(left).meet(of(right));
        let dtype = dtype.ok_or(ExportError::Internal("operands of dtypes that do not meet"))?;
        let result = self.dims(id);
        let operand = |named: &Named| -> Result<Py, ExportError> {
            // Python gives a number the dtype of the other operand.
            if is_number(&named.py) {
                return Ok(named.py.clone());
            }
            self.aligned(self.dims(named.id), result, self.cast(named, dtype))
        };
        let (a, b) = (operand(left)?, operand(right)?);
        let scalar = |number: Py| self.words.scalar(number, self.dtype(dtype));
        let (a, b) = if is_number(&a) && is_number(&b) { (scalar(a), b) } else { (a, b) };
        if let Some(extremum) = Extremum::of(binary) {
            return Ok(self.words.extremum(extremum, [a, b]));
        }
        Ok(match binary {
            Binary::Add => Py::binary(a, "+", b),
            Binary::Sub => Py::binary(a, "-", b),
            Binary::Mul => Py::binary(a, "*", b),
            Binary::Less => Py::binary(a, "<", b),
            Binary::LessEqual => Py::binary(a, "<=", b),
            Binary::Equal => Py::binary(a, "==", b),
            Binary::Div if dtype.is_float() => Py::binary(a, "/", b),
            Binary::Div => {
                let [a, b] = [a, b].map(|side| if is_number(&side) { scalar(side) } else { side });
                Py::call("whole_division", [a, b])
            }
            Binary::Maximum | Binary::Minimum => {
                return Err(ExportError::Internal("an extremum that is arithmetic"));
            }
        })
    }

    /// The one or the other of two values, both in the dtype of the result.
    pub(super) fn either(&self, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let [holds, a, b] = operands else {
            return Err(ExportError::Internal("a choice of other than two"));
        };
        let (result, dtype) = (self.dims(id), self.plan.instruction(id).dtype);
        let aligned = |named: &Named, py: Py| self.aligned(self.dims(named.id), result, py);
        let which = aligned(holds, holds.py.clone())?;
        let [a, b] = [a, b].map(|named| aligned(named, self.cast(named, dtype)));
        Ok(self.words.either(which, [a?, b?]))
    }

    /// The cast of a value to another dtype, rounded or truncated where that is needed.
    pub(super) fn converted(&self, operand: &Named, to: Dtype) -> Py {
        if self.same_dtype(self.plan.instruction(operand.id).dtype, to) {
            operand.py.clone()
        } else if to.is_float() {
            self.cast(operand, to)
        } else {
            self.words.whole(operand.py.clone(), to, self.floats)
        }
    }
}
