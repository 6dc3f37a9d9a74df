//! Ops that change which dims a value has and in which order: transposes, broadcasts, reshapes,
//! concatenations.

use shard_ir::{DimId, InstrId, Plan};

use super::{Named, PythonOps};
use crate::error::ExportError;
use crate::python::Py;

impl PythonOps<'_> {
    /// Where a dim stands in the value of an instruction.
    pub(super) fn place(&self, id: InstrId, dim: DimId) -> Result<usize, ExportError> {
        let found = self.plan.instruction(id).dims.iter().position(|d| *d == dim);
        found.ok_or(ExportError::Internal("a dim is missing from an operand"))
    }

    pub(super) fn size(&self, dim: DimId) -> u64 {
        self.plan.dims[dim.index()].size
    }

    pub(super) fn dims(&self, id: InstrId) -> &[DimId] {
        &self.plan.instruction(id).dims
    }

    /// A value whose dims are those of the result in some order, in the order of the result.
    pub(super) fn in_order(
        &self,
        dims: &[DimId],
        id: InstrId,
        value: Py,
    ) -> Result<Py, ExportError> {
        self.transposed(dims, self.dims(id), value)
    }

    /// A value of these dims in another order of them.
    pub(crate) fn transposed(
        &self,
        dims: &[DimId],
        order: &[DimId],
        value: Py,
    ) -> Result<Py, ExportError> {
        if dims == order {
            return Ok(value);
        }
        let missing = ExportError::Internal("a dim is missing from a result");
        let places: Option<Vec<usize>> =
            order.iter().map(|d| dims.iter().position(|o| o == d)).collect();
        let places = places.filter(|places| places.len() == dims.len()).ok_or(missing)?;
        Ok(self.words.transposed(value, places))
    }

    /// A value in a form that broadcasts to a result of more dims.
    pub(super) fn aligned(
        &self,
        dims: &[DimId],
        result: &[DimId],
        value: Py,
    ) -> Result<Py, ExportError> {
        let mut order: Vec<DimId> = result.iter().copied().filter(|d| dims.contains(d)).collect();
        if order.len() != dims.len() {
            return Err(ExportError::Internal("a result lacks a dim of its operand"));
        }
        let value = self.transposed(dims, &order, value)?;
        // NumPy's broadcasting adds the dims that are missing in front.
        let first = result.iter().position(|d| dims.contains(d)).unwrap_or(result.len());
        let lacking: Vec<usize> = (first..result.len())
            .filter(|at| !dims.contains(&result[*at]))
            .map(|at| at - first)
            .collect();
        order.clear();
        Ok(match (lacking.as_slice(), &value) {
            ([], _) => value,
            (_, Py::Atom(name)) if name.len() < 30 => {
                let index = (first..result.len())
                    .map(|at| if lacking.contains(&(at - first)) { "None" } else { ":" });
                Py::atom(format!("{name}[{}]", index.collect::<Vec<_>>().join(", ")))
            }
            (_, _) => self.words.expanded(value, lacking),
        })
    }

    /// A reshape: the dims `from` are read as the dims `to`, of the same elements in the same
    /// order.
    pub(super) fn reshaped(
        &self,
        from: &[DimId],
        to: &[DimId],
        id: InstrId,
        operand: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(operand.id);
        let ([before, after], sizes) = reshape(self.plan, id, dims, from, to)?;
        let value = self.transposed(dims, &before, operand.py.clone())?;
        self.in_order(&after, id, self.words.reshaped(value, sizes))
    }

    pub(super) fn concat(
        &self,
        left: DimId,
        right: DimId,
        to: DimId,
        id: InstrId,
        first: &Named,
        other: &Named,
    ) -> Result<Py, ExportError> {
        let (dtype, at) = (self.plan.instruction(id).dtype, self.place(id, to)?);
        let [a, b] = [(first, left), (other, right)].map(|(operand, dim)| {
            let dims = renamed(self.dims(operand.id), dim, to);
            let value = self.aligned(&dims, self.dims(id), self.cast(operand, dtype))?;
            if dims.len() == self.dims(id).len() {
                return Ok(value);
            }
            let mut sizes = self.plan.local_sizes(id);
            sizes[at] = self.plan.local_sizes(operand.id)[self.place(operand.id, dim)?];
            Ok(self.words.spread(value, sizes))
        });
        Ok(self.words.concatenated([a?, b?], at))
    }

    pub(super) fn append(
        &self,
        from: DimId,
        to: DimId,
        first: &Named,
        new: &Named,
    ) -> Result<Py, ExportError> {
        let value = first.py.clone();
        let dims = renamed(self.dims(new.id), from, to);
        let rows = self.transposed(&dims, self.dims(first.id), new.py.clone())?;
        let at = self.size(to) - self.size(from);
        let axis = self.place(first.id, to)?;
        Ok(match self.origin(first.id, to)? {
            None => self.words.updated(value, rows, at, axis),
            Some(origin) => Py::call("append_block", [value, rows, Py::atom(at)])
                .with("axis", Py::atom(axis))
                .with("origin", origin),
        })
    }
}

/// What a reshape of `from` to `to` takes: the order of dims before it, the order of dims after it,
/// and the local sizes after it. Where the dims `from` do not stand together, they move behind all
/// other dims first.
pub(crate) fn reshape(
    plan: &Plan,
    id: InstrId,
    dims: &[DimId],
    from: &[DimId],
    to: &[DimId],
) -> Result<([Vec<DimId>; 2], Vec<u64>), ExportError> {
    let first = from.first().and_then(|d| dims.iter().position(|o| o == d));
    let first = first.ok_or(ExportError::Internal("a reshape of nothing"))?;
    let mut before = dims.to_vec();
    if !dims[first..].starts_with(from) {
        before.retain(|d| !from.contains(d));
        before.extend(from);
    }
    let mut after = Vec::new();
    for dim in &before {
        match from.iter().position(|d| d == dim) {
            Some(0) => after.extend(to),
            Some(_) => {}
            None => after.push(*dim),
        }
    }
    let (of, local) = (&plan.instruction(id).dims, plan.local_sizes(id));
    let size = |dim: &DimId| of.iter().position(|d| d == dim).map(|at| local[at]);
    let sizes = after.iter().map(size).collect::<Option<Vec<u64>>>();
    let sizes = sizes.ok_or(ExportError::Internal("a reshape to a dim that it has not"))?;
    Ok(([before, after], sizes))
}

pub(crate) fn renamed(dims: &[DimId], from: DimId, to: DimId) -> Vec<DimId> {
    dims.iter().map(|d| if *d == from { to } else { *d }).collect()
}
