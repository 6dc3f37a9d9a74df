//! Ops that change which dims a value has and in which order, and the look-ups that put ids in
//! place of a dim.

use shard_ir::{DimId, InstrId};

use super::{HloOps, Operand};
use crate::error::ExportError;
use crate::ops::dims::{renamed, reshape};
use crate::to_stablehlo::builder::{Builder, Value};
use crate::to_stablehlo::einsum::in_order;
use crate::to_stablehlo::element::Element;
use crate::to_stablehlo::{positions, tables};

impl HloOps<'_> {
    /// An operand that has some dims of a value, broadcast along all dims of the value.
    pub(super) fn beside(
        &self,
        b: &mut Builder,
        value: &Value,
        dims: &[DimId],
        operand: &Operand,
    ) -> Result<Value, ExportError> {
        let own = self.dims(operand.id);
        let order: Vec<DimId> = dims.iter().copied().filter(|d| own.contains(d)).collect();
        let ordered = in_order(b, own, &order, &operand.value)?;
        let into: Vec<usize> =
            (0..dims.len()).filter(|place| own.contains(&dims[*place])).collect();
        Ok(b.broadcast(&ordered, &value.shape, &into))
    }

    /// An operand as elements of a type, broadcast along all dims of the result.
    pub(super) fn aligned(
        &self,
        b: &mut Builder,
        id: InstrId,
        operand: &Operand,
        element: Element,
    ) -> Result<Value, ExportError> {
        let (dims, result) = (self.dims(operand.id), self.dims(id));
        let order: Vec<DimId> = result.iter().copied().filter(|d| dims.contains(d)).collect();
        let value = b.convert(&operand.value, element);
        let value = in_order(b, dims, &order, &value)?;
        let into: Vec<usize> =
            (0..result.len()).filter(|place| dims.contains(&result[*place])).collect();
        Ok(b.broadcast(&value, &self.plan.local_sizes(id), &into))
    }

    /// Two operands one behind the other along a dim of the result.
    pub(super) fn concat(
        &self,
        b: &mut Builder,
        [left, right, to]: [DimId; 3],
        id: InstrId,
        [first, other]: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let (result, at) = (self.dims(id), self.place(id, to)?);
        let [a, c] = [(first, left), (other, right)].map(|(operand, dim)| {
            let dims = renamed(self.dims(operand.id), dim, to);
            let value = b.convert(&operand.value, self.element(id));
            let order: Vec<DimId> = result.iter().copied().filter(|d| dims.contains(d)).collect();
            let value = in_order(b, &dims, &order, &value)?;
            if order.len() == result.len() {
                return Ok(value);
            }
            let mut sizes = self.plan.local_sizes(id);
            sizes[at] = self.plan.local_sizes(operand.id)[self.place(operand.id, dim)?];
            let into: Vec<usize> =
                (0..result.len()).filter(|place| dims.contains(&result[*place])).collect();
            Ok(b.broadcast(&value, &sizes, &into))
        });
        Ok(b.concatenate(&a?, &c?, at))
    }

    /// The cache with the new positions at its end, in the order of the cache's dims.
    pub(super) fn append(
        &self,
        b: &mut Builder,
        [from, to]: [DimId; 2],
        [cache, new]: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let dims = self.dims(cache.id);
        let rows = in_order(b, &renamed(self.dims(new.id), from, to), dims, &new.value)?;
        let place = self.place(cache.id, to)?;
        let first = self.size(to) - self.size(from);
        Ok(match self.origin(b, cache.id, to)? {
            None => {
                let start = b.count(first);
                b.update(&cache.value, &rows, place, &start)
            }
            Some(begins) => positions::append_block(b, &cache.value, &rows, place, begins, first),
        })
    }

    /// A reshape: the dims `from` are read as the dims `to`, of the same elements in the same
    /// order.
    pub(super) fn reshaped(
        &self,
        b: &mut Builder,
        from: &[DimId],
        to: &[DimId],
        id: InstrId,
        operand: &Operand,
    ) -> Result<Value, ExportError> {
        let dims = self.dims(operand.id);
        let ([before, after], sizes) = reshape(self.plan, id, dims, from, to)?;
        let value = in_order(b, dims, &before, &operand.value)?;
        let value = b.reshape(&value, &sizes);
        self.arranged(b, &after, id, &value)
    }

    /// Rows added up by the place that their id names.
    pub(super) fn scatter_add(
        &self,
        b: &mut Builder,
        over: &[DimId],
        to: DimId,
        id: InstrId,
        [rows, ids]: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let (of_rows, of_ids) = (self.dims(rows.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_ids.iter().copied().filter(|d| !over.contains(d)).collect();
        let rest: Vec<DimId> = of_rows.iter().copied().filter(|d| !of_ids.contains(d)).collect();
        let asked = [&shared[..], over].concat();
        let own = in_order(b, of_rows, &[&asked[..], &rest].concat(), &rows.value)?;
        let at = in_order(b, of_ids, &asked, &ids.value)?;
        let places = self.plan.local_sizes(id)[self.place(id, to)?];
        let begins = self.origin(b, id, to)?;
        let added = tables::scatter_add(b, &own, &at, shared.len(), places, begins);
        self.arranged(b, &[&shared[..], &[to], &rest].concat(), id, &added)
    }

    /// The rows of a table that ids name.
    pub(super) fn take(
        &self,
        b: &mut Builder,
        over: DimId,
        id: InstrId,
        table: &Operand,
        ids: &Operand,
    ) -> Result<Value, ExportError> {
        let (of_table, of_ids) = (self.dims(table.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_table.iter().copied().filter(|d| of_ids.contains(d)).collect();
        // `tables::take` wants the shared dims first, and behind them the dim of the table that ids
        // index.
        let rest = |dims: &[DimId]| -> Vec<DimId> {
            dims.iter().copied().filter(|d| *d != over && !shared.contains(d)).collect()
        };
        let (kept, asked) = (rest(of_table), rest(of_ids));
        let order = [&shared[..], &[over], &kept].concat();
        let rows = in_order(b, of_table, &order, &table.value)?;
        let order = [&shared[..], &asked].concat();
        let at = in_order(b, of_ids, &order, &ids.value)?;
        let begins = self.origin(b, table.id, over)?;
        let taken = tables::take(b, &rows, &at, shared.len(), begins);
        self.arranged(b, &[&shared[..], &asked, &kept].concat(), id, &taken)
    }

    /// The routing of tokens to the places of experts.
    pub(super) fn route(
        &self,
        b: &mut Builder,
        [over, at, to]: [DimId; 3],
        choices: u64,
        id: InstrId,
        gates: &Operand,
    ) -> Result<Value, ExportError> {
        let dims = self.dims(gates.id);
        let mut order: Vec<DimId> =
            dims.iter().copied().filter(|d| *d != over && *d != at).collect();
        order.extend([at, over]);
        let gates = in_order(b, dims, &order, &gates.value)?;
        order.push(to);
        let routed = tables::route(b, &gates, choices, self.size(to));
        self.arranged(b, &order, id, &routed)
    }
}
