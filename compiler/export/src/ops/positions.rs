//! Ops that depend on the position of an element in a dim (masks, rotary embeddings, routes, taken
//! rows), and the position at which a device's block starts.

use shard_ir::{DimId, InstrId};

use super::{Named, PythonOps};
use crate::error::ExportError;
use crate::python::Py;
use crate::specs::axes_of_dim;

impl PythonOps<'_> {
    /// The position at which the block of a device starts along a dim; `None` where the dim is
    /// whole.
    pub(crate) fn origin(&self, id: InstrId, dim: DimId) -> Result<Option<Py>, ExportError> {
        let place = self.place(id, dim)?;
        let axes = self.plan.instruction(id).layout.axes_of(place);
        let Some(axes) = axes_of_dim(&self.plan.mesh, &axes) else { return Ok(None) };
        let size = self.plan.local_sizes(id)[place];
        Ok(Some(Py::binary(self.words.rank(axes), "*", Py::atom(size))))
    }

    /// A call of a helper that counts positions of the whole tensor, with the position at which the
    /// block starts.
    pub(super) fn told_origin(&self, call: Py, of: &Named, over: DimId) -> Result<Py, ExportError> {
        Ok(with_origin(call, self.origin(of.id, over)?))
    }

    pub(super) fn mask(
        &self,
        [query, key]: [DimId; 2],
        window: Option<u64>,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let later = Py::atom(self.size(key) - self.size(query));
        let mut masked = Py::call("causal", [first.py.clone()])
            .with("queries", axis(query)?)
            .with("keys", axis(key)?)
            .with("later", later);
        if let Some(window) = window {
            masked = masked.with("window", Py::atom(window.min(self.size(key))));
        }
        for (name, dim) in [("query_origin", query), ("key_origin", key)] {
            if let Some(origin) = self.origin(first.id, dim)? {
                masked = masked.with(name, origin);
            }
        }
        Ok(masked)
    }

    pub(super) fn rope(
        &self,
        over: DimId,
        at: DimId,
        extent: Option<DimId>,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let axis = |dim: DimId| self.place(first.id, dim).map(Py::atom);
        let earlier = extent.map_or(0, |extent| self.size(extent) - self.size(at));
        let origin = match (self.origin(first.id, at)?, earlier) {
            (None, 0) => None,
            (None, earlier) => Some(Py::atom(earlier)),
            (origin, 0) => origin,
            (Some(origin), earlier) => Some(Py::binary(origin, "+", Py::atom(earlier))),
        };
        let turned = self.along("rope", first, over, None)?.with("at", axis(at)?);
        Ok(with_origin(turned, origin))
    }

    pub(super) fn route(
        &self,
        [over, at, to]: [DimId; 3],
        choices: u64,
        id: InstrId,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let dims = self.dims(first.id).to_vec();
        let value = first.py.clone();
        let mut order: Vec<DimId> =
            dims.iter().copied().filter(|d| *d != over && *d != at).collect();
        order.extend([at, over]);
        let gates = self.transposed(&dims, &order, value)?;
        order.push(to);
        let routed = Py::call("route", [gates])
            .with("choices", Py::atom(choices))
            .with("places", Py::atom(self.size(to)));
        self.in_order(&order, id, routed)
    }

    /// A call that takes the largest of each part of a dim that a device has.
    pub(super) fn largest(
        &self,
        name: &str,
        [over, to]: [DimId; 2],
        parts: Option<u64>,
        first: &Named,
    ) -> Result<Py, ExportError> {
        let axis = self.place(first.id, over)?;
        let parts = parts.unwrap_or(1);
        let held = self.plan.local_sizes(first.id)[axis] * parts / self.size(over).max(1);
        Ok(Py::call(name, [first.py.clone()])
            .with("each", Py::atom(self.size(to) / parts))
            .with("parts", Py::atom(held))
            .with("axis", Py::atom(axis)))
    }

    pub(super) fn scatter_add(
        &self,
        over: &[DimId],
        to: DimId,
        id: InstrId,
        first: &Named,
        ids: &Named,
    ) -> Result<Py, ExportError> {
        let (of_rows, of_ids) = (self.dims(first.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_ids.iter().copied().filter(|d| !over.contains(d)).collect();
        let rest = of_rows.iter().copied().filter(|d| !of_ids.contains(d));
        let ids_order: Vec<DimId> = shared.iter().chain(over).copied().collect();
        let order: Vec<DimId> = ids_order.iter().copied().chain(rest.clone()).collect();
        let rows = self.transposed(of_rows, &order, first.py.clone())?;
        let at = self.transposed(of_ids, &ids_order, ids.py.clone())?;
        let added = Py::call("scatter_add", [rows, at])
            .with("places", Py::atom(self.plan.local_sizes(id)[self.place(id, to)?]))
            .with("shared", Py::atom(shared.len()));
        let added = with_origin(added, self.origin(id, to)?);
        let dims: Vec<DimId> = shared.into_iter().chain([to]).chain(rest).collect();
        self.in_order(&dims, id, added)
    }

    pub(super) fn take(
        &self,
        over: DimId,
        id: InstrId,
        table: &Named,
        ids: &Named,
    ) -> Result<Py, ExportError> {
        let (of_table, of_ids) = (self.dims(table.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_table.iter().copied().filter(|d| of_ids.contains(d)).collect();
        let in_front = |dims: &[DimId]| -> Vec<DimId> {
            shared
                .iter()
                .copied()
                .chain(dims.iter().copied().filter(|d| !shared.contains(d)))
                .collect()
        };
        let (table_order, ids_order) = (in_front(of_table), in_front(of_ids));
        let rows = self.transposed(of_table, &table_order, table.py.clone())?;
        let at = self.transposed(of_ids, &ids_order, ids.py.clone())?;
        let axis = table_order
            .iter()
            .position(|d| *d == over)
            .ok_or(ExportError::Internal("a take of no dim"))?;
        let axis = axis - shared.len();
        let origin = self.origin(table.id, over)?;
        let taken = match shared.len() {
            0 => Py::call("take_rows", [rows, at]),
            // There is a table for each position of the dims that table and ids share.
            n => Py::call("take_from_each", [Py::atom(n), rows, at]),
        };
        let taken = taken.with("axis", Py::atom(axis));
        let taken = with_origin(taken, origin);
        let mut dims = shared.clone();
        let own_table: Vec<DimId> = table_order[shared.len()..].to_vec();
        for dim in own_table {
            if dim == over { dims.extend(&ids_order[shared.len()..]) } else { dims.push(dim) }
        }
        self.in_order(&dims, id, taken)
    }
}

/// A call with the position at which a device's block starts, where the dim is split.
fn with_origin(call: Py, origin: Option<Py>) -> Py {
    match origin {
        None => call,
        Some(origin) => call.with("origin", origin),
    }
}
