//! Ops that go along one dim of a value: reductions, convolutions, and ops that a helper computes
//! along one dim.

use shard_ir::{DimId, InstrId, Reduce};

use super::{Named, PythonOps};
use crate::error::ExportError;
use crate::python::Py;

impl PythonOps<'_> {
    /// The call of a helper on a value along one of its dims, with one more argument if there is
    /// one.
    pub(super) fn along(
        &self,
        name: &str,
        operand: &Named,
        over: DimId,
        other: Option<Py>,
    ) -> Result<Py, ExportError> {
        let arguments = std::iter::once(operand.py.clone()).chain(other);
        let axis = Py::atom(self.place(operand.id, over)?);
        Ok(Py::call(name, arguments).with("axis", axis))
    }

    /// An operand in a form that broadcasts to a value of these dims.
    pub(super) fn beside(&self, dims: &[DimId], operand: &Named) -> Result<Py, ExportError> {
        self.aligned(self.dims(operand.id), dims, operand.py.clone())
    }

    pub(super) fn conv(
        &self,
        over: DimId,
        taps: DimId,
        id: InstrId,
        operand: &Named,
        weights: &Named,
    ) -> Result<Py, ExportError> {
        let dtype = self.plan.instruction(id).dtype;
        let mut dims = vec![taps];
        dims.extend(self.dims(operand.id));
        let py = self.cast(weights, dtype);
        let weights = self.beside(&dims, &Named { id: weights.id, py })?;
        let operand = Named { id: operand.id, py: self.cast(operand, dtype) };
        self.along("conv", &operand, over, Some(weights))
    }

    pub(super) fn reduce(
        &self,
        kind: Reduce,
        over: &[DimId],
        id: InstrId,
        operand: &Named,
    ) -> Result<Py, ExportError> {
        let instr = self.plan.instruction(operand.id);
        let places =
            over.iter().map(|d| self.place(operand.id, *d)).collect::<Result<Vec<usize>, _>>()?;
        let axis = match places.as_slice() {
            [one] => Py::atom(one),
            several => Py::numbers(several),
        };
        let whole = places.iter().all(|place| instr.layout.axes_of(*place).is_empty());
        let value = operand.py.clone();
        let dtype = self.plan.instruction(id).dtype;
        let whole_number = (!dtype.is_float()).then(|| self.dtype(dtype));
        let reduced = |kind| self.words.reduced(kind, value, axis, whole_number);
        Ok(match kind {
            Reduce::Mean if whole => reduced(Reduce::Mean),
            // Each device has a part of a split dim: its term of the mean is the sum over its part,
            // divided by the count of the whole dim.
            Reduce::Mean => {
                let count: u64 = over.iter().map(|d| self.size(*d)).product();
                Py::binary(reduced(Reduce::Sum), "/", Py::atom(count))
            }
            Reduce::Sum | Reduce::Max => reduced(kind),
        })
    }
}
