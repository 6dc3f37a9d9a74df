//! Each op of the catalogue as ops of StableHLO on the blocks of one device.

mod along;
mod dims;
mod elementwise;

use shard_ir::attention::{carried_operand, carried_statistics, partial_softmax};
use shard_ir::{DimId, Fused, InstrId, Op, Plan};

use super::builder::{Builder, Value};
use super::einsum::{Factor, Product, Ring, in_order};
use super::element::Element;
use super::elementwise::{cast, map, norm, reduce, softmax, softmax_of_part};
use super::positions;
use super::ranks::origin;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::ops::dims_made;
use crate::parts::{are_weights_of_part, dims_of_statistics};

/// Writes the ops of one plan.
#[derive(Clone, Copy)]
pub(crate) struct HloOps<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) floats: Floats,
}

/// An operand: its instruction, and the value of the text that holds its block.
#[derive(Clone)]
pub(crate) struct Operand {
    pub(crate) id: InstrId,
    pub(crate) value: Value,
    /// The statistics of an attention over a device's own keys.
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
        let made = self.made(b, op, id, operands)?;
        match dims_made(op, self.dims(first.id)) {
            Some(dims) => self.arranged(b, &dims, id, &made),
            None => Ok(made),
        }
    }

    /// What an op makes, in the order of dims in which it makes it.
    fn made(
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
        let value = &first.value;
        Ok(match op {
            Op::Einsum => self.product(id).of(b, &self.factors(operands))?,
            Op::Map(of) => map(b, *of, value),
            Op::Binary(of) => self.binary(b, *of, id, [first, second()?])?,
            Op::Where => self.either(b, id, operands)?,
            Op::Reduce { kind, over } => {
                let places = over.iter().map(place).collect::<Result<Vec<_>, _>>()?;
                let count = over.iter().map(|d| self.size(*d)).product();
                reduce(b, *kind, value, &places, count)
            }
            Op::Cast(to) => cast(b, value, Element::of(*to, self.floats)),
            Op::Softmax { over } => softmax(b, value, None, place(over)?),
            Op::SinkSoftmax { over } => {
                let sinks = self.beside(b, value, self.dims(first.id), second()?)?;
                softmax(b, value, Some(&sinks), place(over)?)
            }
            Op::Norm { kind, over } => norm(b, *kind, value, place(over)?),
            Op::Rename { .. } => value.clone(),
            Op::Split { from, to } => self.reshaped(b, &[*from], to, id, first)?,
            Op::Merge { from, to } => self.reshaped(b, from, &[*to], id, first)?,
            Op::Concat { left, right, to } => {
                self.concat(b, [*left, *right, *to], id, [first, second()?])?
            }
            Op::SliceDim { from, to, offset } => {
                b.slice(value, place(from)?, *offset, offset + self.size(*to))
            }
            Op::Append { from, to } => self.append(b, [*from, *to], [first, second()?])?,
            Op::Mask { query, key, window } => self.mask(b, [*query, *key], *window, first)?,
            Op::Rope { over, at, extent } => {
                let earlier = extent.map_or(0, |extent| self.size(extent) - self.size(*at));
                let begins = self.origin(b, first.id, *at)?;
                positions::rope(b, value, [place(over)?, place(at)?], begins, earlier)
            }
            Op::Cumsum { over } => positions::cumsum(b, value, place(over)?),
            Op::Shift { over, by } => positions::shift(b, value, place(over)?, *by),
            Op::Conv { over, taps } => self.conv(b, [*over, *taps], id, [first, second()?])?,
            Op::Argmax { over } => positions::argmax(b, value, place(over)?),
            Op::TopK { over, to, parts } => {
                let [values, _] = self.largest(b, [*over, *to], *parts, first)?;
                values
            }
            Op::ArgTopK { over, to, parts } => {
                let [_, places] = self.largest(b, [*over, *to], *parts, first)?;
                places
            }
            Op::ScatterAdd { over, to } => {
                self.scatter_add(b, over, *to, id, [first, second()?])?
            }
            Op::Pad { from, to, offset } => {
                positions::pad(b, value, place(from)?, [*offset, self.size(*to)])
            }
            Op::Scan { over } => self.scan(b, *over, id, [first, second()?])?,
            Op::Locate { over } => {
                let sought = self.beside(b, value, self.dims(first.id), second()?)?;
                let begins = self.origin(b, first.id, *over)?;
                positions::locate(b, value, &sought, place(over)?, begins.as_ref())
            }
            Op::Iota { over } => {
                let begins = self.origin(b, first.id, *over)?;
                positions::places(b, &value.shape, place(over)?, begins.as_ref(), 0)
            }
            Op::Take { over } => self.take(b, *over, id, first, second()?)?,
            Op::Route { over, at, to, choices } => {
                self.route(b, [*over, *at, *to], *choices, id, first)?
            }
            Op::Fetch => fetched(b, value),
        })
    }

    /// The result and the statistics of an op that belongs to an attention over a device's own
    /// keys; `None` of any other op.
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

    /// A collective einsum.
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
}

/// A value in host memory, moved to the device.
fn fetched(b: &mut Builder, value: &Value) -> Value {
    let text = format!(
        "stablehlo.custom_call @annotate_device_placement({}) {{has_side_effect = true, \
         mhlo.frontend_attributes = {{_xla_buffer_placement = \"device\"}}}} : ({}) -> {}",
        value.name,
        value.ty(),
        value.ty()
    );
    b.op(value.shape.clone(), value.element, &text)
}
