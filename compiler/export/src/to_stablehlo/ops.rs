//! Each op of the catalogue as ops of StableHLO on what one device holds.

use shard_ir::attention::{carried_operand, carried_statistics, partial_softmax};
use shard_ir::{DimId, Fused, InstrId, Op, Plan};

use super::builder::{Builder, Value};
use super::einsum::{Factor, Product, Ring, in_order};
use super::element::Element;
use super::elementwise::{binary, cast, map, norm, reduce, softmax, softmax_of_part};
use super::ranks::origin;
use super::{positions, sorted, tables};
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::ops::dims::{renamed, reshape};
use crate::parts::{are_weights_of_part, dims_of_statistics};

/// What the ops of one plan are made from.
#[derive(Clone, Copy)]
pub(crate) struct HloOps<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) floats: Floats,
}

/// One operand: which instruction it is, and the value that holds its block.
#[derive(Clone)]
pub(crate) struct Operand {
    pub(crate) id: InstrId,
    pub(crate) value: Value,
    /// Those of an attention over a device's own keys.
    pub(crate) statistics: Option<Value>,
}

impl HloOps<'_> {
    pub(crate) fn element(&self, id: InstrId) -> Element {
        Element::of(self.plan.instruction(id).dtype, self.floats)
    }

    fn size(&self, dim: DimId) -> u64 {
        self.plan.dims[dim.index()].size
    }

    fn dims(&self, id: InstrId) -> &[DimId] {
        &self.plan.instruction(id).dims
    }

    /// Where a dim stands in the value of an instruction.
    fn place(&self, id: InstrId, dim: DimId) -> Result<usize, ExportError> {
        let found = self.dims(id).iter().position(|d| *d == dim);
        found.ok_or(ExportError::Internal("a dim is missing from an operand"))
    }

    /// Where the block of a device begins along a dim; `None` where the dim is whole.
    fn origin(
        &self,
        b: &mut Builder,
        id: InstrId,
        dim: DimId,
    ) -> Result<Option<Value>, ExportError> {
        let place = self.place(id, dim)?;
        let axes = self.plan.instruction(id).layout.axes_of(place);
        Ok(origin(b, &self.plan.mesh, &axes, self.plan.local_sizes(id)[place]))
    }

    /// A value whose dims are those of the result in some order, in the order of the result.
    fn arranged(
        &self,
        b: &mut Builder,
        dims: &[DimId],
        id: InstrId,
        value: &Value,
    ) -> Result<Value, ExportError> {
        in_order(b, dims, self.dims(id), value)
    }

    /// The block of the result that a device makes from its blocks of the operands.
    pub(crate) fn op(
        &self,
        b: &mut Builder,
        op: &Op,
        id: InstrId,
        operands: &[Operand],
    ) -> Result<Value, ExportError> {
        let first = operands.first().ok_or(ExportError::Internal("an op without operands"))?;
        let second =
            || operands.get(1).ok_or(ExportError::Internal("an op without its second operand"));
        let place = |dim: &DimId| self.place(first.id, *dim);
        // The dims of what is made, where they are not those of the result.
        let mut dims = self.dims(first.id).to_vec();
        let value = &first.value;
        let made = match op {
            Op::Einsum => return self.product(id).of(b, &self.factors(operands)),
            Op::Map(of) => map(b, *of, value),
            Op::Binary(of) => {
                let of_both = [first, second()?].map(|o| self.plan.instruction(o.id).dtype);
                let meets = of_both[0].meet(of_both[1]);
                let element = Element::of(meets.unwrap_or(of_both[0]), self.floats);
                let [left, right] = [first, second()?].map(|o| self.aligned(b, id, o, element));
                return Ok(binary(b, *of, &left?, &right?));
            }
            Op::Reduce { kind, over } => {
                let places = over.iter().map(place).collect::<Result<Vec<_>, _>>()?;
                let count = over.iter().map(|d| self.size(*d)).product();
                dims.retain(|d| !over.contains(d));
                reduce(b, *kind, value, &places, count)
            }
            Op::Softmax { over } => softmax(b, value, None, place(over)?),
            Op::SinkSoftmax { over } => {
                let sinks = self.beside(b, value, &dims, second()?)?;
                softmax(b, value, Some(&sinks), place(over)?)
            }
            Op::Norm { kind, over } => norm(b, *kind, value, place(over)?),
            Op::Rename { from, to } => {
                dims = renamed(&dims, *from, *to);
                value.clone()
            }
            Op::Split { from, to } => return self.reshaped(b, &[*from], to, id, first),
            Op::Merge { from, to } => return self.reshaped(b, from, &[*to], id, first),
            Op::Concat { left, right, to } => {
                return self.concat(b, [*left, *right, *to], id, [first, second()?]);
            }
            Op::SliceDim { from, to, offset } => {
                dims = renamed(&dims, *from, *to);
                b.slice(value, place(from)?, *offset, offset + self.size(*to))
            }
            Op::Append { from, to } => self.append(b, [*from, *to], [first, second()?])?,
            Op::Mask { query, key, window } => {
                let places = [place(query)?, place(key)?];
                let origins = [self.origin(b, first.id, *query)?, self.origin(b, first.id, *key)?];
                let later = self.size(*key) - self.size(*query);
                let window = window.map(|window| window.min(self.size(*key)));
                positions::mask(b, value, places, origins, later, window)
            }
            Op::Rope { over, at, extent } => {
                let earlier = extent.map_or(0, |extent| self.size(extent) - self.size(*at));
                let begins = self.origin(b, first.id, *at)?;
                positions::rope(b, value, [place(over)?, place(at)?], begins, earlier)
            }
            Op::Cumsum { over } => positions::cumsum(b, value, place(over)?),
            Op::Shift { over, by } => positions::shift(b, value, place(over)?, *by),
            Op::Conv { over, taps } => {
                let weights = second()?;
                let beside: Vec<DimId> = [*taps].into_iter().chain(dims.iter().copied()).collect();
                let own = self.dims(weights.id);
                let order: Vec<DimId> =
                    beside.iter().copied().filter(|d| own.contains(d)).collect();
                let weights = b.convert(&weights.value, self.element(id));
                let weights = in_order(b, own, &order, &weights)?;
                let into: Vec<usize> =
                    (0..beside.len()).filter(|place| order.contains(&beside[*place])).collect();
                let mut shape = vec![self.size(*taps)];
                shape.extend(&value.shape);
                let weights = b.broadcast(&weights, &shape, &into);
                let value = b.convert(value, self.element(id));
                let wide = value.element;
                let wide = if wide.is_float() { wide.wide() } else { wide };
                let [value, weights] = [value, weights].map(|side| b.convert(&side, wide));
                let made = positions::conv(b, &value, &weights, place(over)?);
                b.convert(&made, self.element(id))
            }
            Op::Argmax { over } => {
                dims.retain(|d| d != over);
                positions::argmax(b, value, place(over)?)
            }
            Op::TopK { over, to, parts } | Op::ArgTopK { over, to, parts } => {
                let at = place(over)?;
                let parts = parts.unwrap_or(1);
                let held = value.shape[at] * parts / self.size(*over).max(1);
                dims = renamed(&dims, *over, *to);
                let sizes = [self.size(*to) / parts, held];
                let begins = self.origin(b, first.id, *over)?;
                let [values, places] = sorted::largest(b, value, at, sizes, begins.as_ref());
                if matches!(op, Op::TopK { .. }) { values } else { places }
            }
            Op::ScatterAdd { over, to } => {
                return self.scatter_add(b, over, *to, id, [first, second()?]);
            }
            Op::Pad { from, to, offset } => {
                dims = renamed(&dims, *from, *to);
                positions::pad(b, value, place(from)?, [*offset, self.size(*to)])
            }
            Op::Scan { over } => {
                let element = self.element(id);
                let wide = if element.is_float() { element.wide() } else { element };
                let value = b.convert(value, wide);
                let factor = second()?;
                let converted = b.convert(&factor.value, wide);
                let factor = Operand { value: converted, ..factor.clone() };
                let factor = self.beside(b, &value, &dims, &factor)?;
                let made = positions::scan(b, &value, &factor, place(over)?);
                b.convert(&made, element)
            }
            Op::Locate { over } => {
                let at = place(over)?;
                let sought = self.beside(b, value, &dims, second()?)?;
                let begins = self.origin(b, first.id, *over)?;
                dims = without(&dims, *over);
                positions::locate(b, value, &sought, at, begins.as_ref())
            }
            Op::Where => {
                let third = operands.get(2).ok_or(ExportError::Internal("a choice of one"))?;
                let holds = self.aligned(b, id, first, value.element)?;
                let element = self.element(id);
                let [yes, no] = [second()?, third].map(|o| self.aligned(b, id, o, element));
                return Ok(b.select(&holds, &yes?, &no?));
            }
            Op::Iota { over } => {
                let begins = self.origin(b, first.id, *over)?;
                positions::places(b, &value.shape, place(over)?, begins.as_ref(), 0)
            }
            Op::Take { over } => return self.take(b, *over, id, first, second()?),
            Op::Route { over, at, to, choices } => {
                let mut order = dims.clone();
                order.retain(|d| d != over && d != at);
                order.extend([*at, *over]);
                let gates = in_order(b, &dims, &order, value)?;
                order.push(*to);
                dims = order;
                tables::route(b, &gates, *choices, self.size(*to))
            }
            Op::Fetch => {
                let text = format!(
                    "stablehlo.custom_call @annotate_device_placement({}) \
                     {{has_side_effect = true, mhlo.frontend_attributes = \
                     {{_xla_buffer_placement = \"device\"}}}} : ({}) -> {}",
                    value.name,
                    value.ty(),
                    value.ty()
                );
                b.op(value.shape.clone(), value.element, &text)
            }
            Op::Cast(to) => cast(b, value, Element::of(*to, self.floats)),
        };
        self.arranged(b, &dims, id, &made)
    }

    /// An op of an attention over a device's own keys, and its statistics; `None` of any other op.
    pub(crate) fn op_of_part(
        &self,
        b: &mut Builder,
        op: &Op,
        id: InstrId,
        operands: &[Operand],
    ) -> Result<Option<[Value; 2]>, ExportError> {
        let carried = carried_operand(self.plan, id).and_then(|place| operands.get(place));
        if let (Some(part), Some([lie, wanted])) = (carried, carried_statistics(self.plan, id)) {
            let known = part.statistics.as_ref();
            let known = known.ok_or(ExportError::Internal("a part without its statistics"))?;
            let statistics = in_order(b, &lie, &wanted, known)?;
            return Ok(Some([self.op(b, op, id, operands)?, statistics]));
        }
        let weights = operands.iter().find(|o| are_weights_of_part(self.plan, o.id));
        let statistics = |weights: &Operand| {
            let known = weights.statistics.clone();
            known.ok_or(ExportError::Internal("weights without their statistics"))
        };
        match (op, weights, partial_softmax(self.plan, id)) {
            (Op::Softmax { over }, _, _) if are_weights_of_part(self.plan, id) => {
                let [scores] = operands else {
                    return Err(ExportError::Internal("a softmax of several values"));
                };
                let [made, statistics] =
                    softmax_of_part(b, &scores.value, self.place(scores.id, *over)?);
                Ok(Some([self.arranged(b, self.dims(scores.id), id, &made)?, statistics]))
            }
            (Op::Cast(_), Some(weights), _) => {
                Ok(Some([self.op(b, op, id, operands)?, statistics(weights)?]))
            }
            (Op::Einsum, Some(weights), Some((softmax, _))) => {
                let [has, wanted] = dims_of_statistics(self.plan, softmax, id);
                let statistics = in_order(b, &has, &wanted, &statistics(weights)?)?;
                Ok(Some([self.op(b, op, id, operands)?, statistics]))
            }
            (_, None, None) => Ok(None),
            _ => Err(ExportError::Internal("an op of a part of an attention that has none")),
        }
    }

    fn product(&self, id: InstrId) -> Product<'_> {
        Product { result: self.dims(id), element: self.element(id) }
    }

    fn factors(&self, operands: &[Operand]) -> Vec<Factor> {
        let factor =
            |o: &Operand| Factor { dims: self.dims(o.id).to_vec(), value: o.value.clone() };
        operands.iter().map(factor).collect()
    }

    /// An einsum with a collective in its loop.
    pub(crate) fn looped(
        &self,
        b: &mut Builder,
        fused: &Fused,
        id: InstrId,
        operands: &[Operand],
    ) -> Result<Value, ExportError> {
        let ring = Ring { mesh: &self.plan.mesh, fused: *fused, product: self.product(id) };
        ring.of(b, &self.factors(operands))
    }

    /// An operand that has some dims of a value, along all of them.
    fn beside(
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

    /// An operand as elements of a type, along all dims of the result.
    fn aligned(
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

    fn concat(
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
    fn append(
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

    /// Dims read as others, of the same elements in the same order.
    fn reshaped(
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

    fn scatter_add(
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

    fn take(
        &self,
        b: &mut Builder,
        over: DimId,
        id: InstrId,
        table: &Operand,
        ids: &Operand,
    ) -> Result<Value, ExportError> {
        let (of_table, of_ids) = (self.dims(table.id), self.dims(ids.id));
        let shared: Vec<DimId> = of_table.iter().copied().filter(|d| of_ids.contains(d)).collect();
        // The dims that both have come first, and of the table the one that is indexed behind them.
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
}

fn without(dims: &[DimId], dim: DimId) -> Vec<DimId> {
    dims.iter().copied().filter(|d| *d != dim).collect()
}
