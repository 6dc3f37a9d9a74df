//! Einsums: their subscripts, the dtype in which operands are multiplied, and collective einsums.

use shard_ir::{DimId, Dtype, Fused, InstrId};

use super::{Named, PythonOps, both};
use crate::error::ExportError;
use crate::parts::{are_weights_of_part, dims_of_statistics};
use crate::python::Py;
use crate::words::Dtypes;

impl PythonOps<'_> {
    pub(super) fn einsum(&self, id: InstrId, operands: &[Named]) -> Result<Py, ExportError> {
        let (operands, common) = self.einsum_operands(operands)?;
        let equation = Py::string(&self.equation(id)?);
        let result = self.plan.instruction(id).dtype;
        Ok(self.words.einsum(equation, operands, Dtypes { common, result, floats: self.floats }))
    }

    /// The pair of the attention over a device's own keys and its statistics, in the order of the
    /// result's dims.
    pub(super) fn attention_of_part(
        &self,
        id: InstrId,
        operands: &[Named],
        softmax: InstrId,
    ) -> Result<Py, ExportError> {
        let weights = operands.iter().position(|o| are_weights_of_part(self.plan, o.id));
        let at = weights.ok_or(ExportError::Internal("an attention without its weights"))?;
        let [weights, statistics] = both(&operands[at].py);
        let mut operands = operands.to_vec();
        operands[at].py = weights;
        let [has, wanted] = dims_of_statistics(self.plan, softmax, id);
        let statistics = self.transposed(&has, &wanted, statistics)?;
        Ok(Py::Tuple(vec![self.einsum(id, &operands)?, statistics]))
    }

    /// An einsum with a collective in its loop.
    pub(crate) fn looped(
        &self,
        fused: &Fused,
        id: InstrId,
        operands: &[Named],
    ) -> Result<Py, ExportError> {
        let instr = self.plan.instruction(id);
        let (multiplied, _) = self.einsum_operands(operands)?;
        let axes = fused.axes().iter().map(|a| Py::string(self.plan.mesh.name(a))).collect();
        let axes = self.words.ring(axes);
        let place = |dims: &[DimId], dim: DimId| match dims.iter().position(|d| *d == dim) {
            Some(place) => Py::atom(place),
            None => Py::atom("None"),
        };
        let along =
            |dim: DimId| Py::Tuple(operands.iter().map(|o| place(self.dims(o.id), dim)).collect());
        let equation = Py::string(&self.equation(id)?);
        let arguments = std::iter::once(equation).chain(multiplied);
        let dtype = Py::atom(self.dtype(instr.dtype));
        let missing = ExportError::Internal("a loop along a dim that is not there");
        match *fused {
            Fused::AllGather { operand, dim, .. } => {
                let gathered = operands
                    .get(operand)
                    .and_then(|o| self.dims(o.id).get(dim))
                    .copied()
                    .ok_or(missing)?;
                Ok(Py::call("einsum_gathering", arguments)
                    .with("place", Py::atom(operand))
                    .with("axes", axes)
                    .with("along", along(gathered))
                    .with("into", place(&instr.dims, gathered))
                    .with("dtype", dtype))
            }
            Fused::ReduceScatter { dim, .. } => {
                let scattered = instr.dims.get(dim).copied().ok_or(missing)?;
                Ok(Py::call("einsum_scattering", arguments)
                    .with("axes", axes)
                    .with("along", along(scattered))
                    .with("dtype", dtype))
            }
        }
    }

    /// The operands in the dtype in which they are multiplied, and that dtype.
    fn einsum_operands(&self, operands: &[Named]) -> Result<(Vec<Py>, Dtype), ExportError> {
        let dtypes: Vec<Dtype> =
            operands.iter().map(|o| self.plan.instruction(o.id).dtype).collect();
        let first = *dtypes.first().ok_or(ExportError::Internal("an einsum without operands"))?;
        let common = if dtypes.iter().all(|d| *d == first) {
            first
        } else {
            dtypes[1..]
                .iter()
                .try_fold(first, |a, b| a.product(*b))
                .ok_or(ExportError::Internal("dtypes of an einsum that do not meet"))?
        };
        Ok((operands.iter().map(|o| self.cast(o, common)).collect(), common))
    }

    /// The subscripts of an einsum, with a letter for each dim: the dim's own name where that is
    /// one letter.
    fn equation(&self, id: InstrId) -> Result<String, ExportError> {
        let instr = self.plan.instruction(id);
        let sides: Vec<&[DimId]> =
            instr.operands.iter().map(|o| self.dims(*o)).chain([instr.dims.as_slice()]).collect();
        let mut letters: Vec<(DimId, char)> = Vec::new();
        let own = |dim: DimId| {
            let mut chars = self.plan.dims[dim.index()].name.chars();
            chars.next().filter(|c| c.is_ascii_alphabetic() && chars.next().is_none())
        };
        let mut dims: Vec<DimId> = sides.iter().flat_map(|side| side.iter().copied()).collect();
        dims.sort_by_key(|dim| own(*dim).is_none());
        for dim in dims {
            if letters.iter().any(|(known, _)| *known == dim) {
                continue;
            }
            let initial =
                self.plan.dims[dim.index()].name.chars().next().filter(char::is_ascii_alphabetic);
            let wanted = initial
                .into_iter()
                .flat_map(|c| [c, c.to_ascii_lowercase()])
                .chain('a'..='z')
                .chain('A'..='Z');
            let free = wanted.into_iter().find(|c| !letters.iter().any(|(_, taken)| taken == c));
            letters.push((dim, free.ok_or_else(|| self.too_many_dims(id))?));
        }
        let word = |dims: &[DimId]| -> String {
            dims.iter()
                .filter_map(|d| letters.iter().find(|(known, _)| known == d))
                .map(|(_, c)| *c)
                .collect()
        };
        let (result, operands) =
            sides.split_last().ok_or(ExportError::Internal("an einsum without a result"))?;
        Ok(format!(
            "{}->{}",
            operands.iter().map(|d| word(d)).collect::<Vec<_>>().join(","),
            word(result)
        ))
    }

    fn too_many_dims(&self, id: InstrId) -> ExportError {
        ExportError::Einsum {
            layer: self.plan.name.clone(),
            span: self.plan.instruction(id).origin.span,
        }
    }
}
