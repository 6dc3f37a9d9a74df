//! Ops that go along one dim of a value, position after position.

use shard_ir::{DimId, InstrId};

use super::{HloOps, Operand};
use crate::error::ExportError;
use crate::to_stablehlo::builder::{Builder, Value};
use crate::to_stablehlo::einsum::in_order;
use crate::to_stablehlo::element::Element;
use crate::to_stablehlo::{positions, sorted};

impl HloOps<'_> {
    /// Scores in which a query sees no later key.
    pub(super) fn mask(
        &self,
        b: &mut Builder,
        [query, key]: [DimId; 2],
        window: Option<u64>,
        scores: &Operand,
    ) -> Result<Value, ExportError> {
        let places = [self.place(scores.id, query)?, self.place(scores.id, key)?];
        let origins = [self.origin(b, scores.id, query)?, self.origin(b, scores.id, key)?];
        let later = self.size(key) - self.size(query);
        let window = window.map(|window| window.min(self.size(key)));
        Ok(positions::mask(b, &scores.value, places, origins, later, window))
    }

    /// A causal convolution, computed in no less than 32 bits where it is of floats.
    pub(super) fn conv(
        &self,
        b: &mut Builder,
        [over, taps]: [DimId; 2],
        id: InstrId,
        [operand, weights]: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let dims = [&[taps], self.dims(operand.id)].concat();
        let own = self.dims(weights.id);
        let order: Vec<DimId> = dims.iter().copied().filter(|d| own.contains(d)).collect();
        let weights = b.convert(&weights.value, self.element(id));
        let weights = in_order(b, own, &order, &weights)?;
        let into: Vec<usize> =
            (0..dims.len()).filter(|place| order.contains(&dims[*place])).collect();
        let shape = [&[self.size(taps)], &operand.value.shape[..]].concat();
        let weights = b.broadcast(&weights, &shape, &into);
        let value = b.convert(&operand.value, self.element(id));
        let wide = wide(value.element);
        let [value, weights] = [value, weights].map(|side| b.convert(&side, wide));
        let made = positions::conv(b, &value, &weights, self.place(operand.id, over)?);
        Ok(b.convert(&made, self.element(id)))
    }

    /// A scan, computed in no less than 32 bits where it is of floats.
    pub(super) fn scan(
        &self,
        b: &mut Builder,
        over: DimId,
        id: InstrId,
        [terms, factor]: [&Operand; 2],
    ) -> Result<Value, ExportError> {
        let wide = wide(self.element(id));
        let value = b.convert(&terms.value, wide);
        let factor = Operand { value: b.convert(&factor.value, wide), ..factor.clone() };
        let factor = self.beside(b, &value, self.dims(terms.id), &factor)?;
        let made = positions::scan(b, &value, &factor, self.place(terms.id, over)?);
        Ok(b.convert(&made, self.element(id)))
    }

    /// The `to` largest values along the parts of a dim that a device has, and their positions in
    /// the whole dim.
    pub(super) fn largest(
        &self,
        b: &mut Builder,
        [over, to]: [DimId; 2],
        parts: Option<u64>,
        operand: &Operand,
    ) -> Result<[Value; 2], ExportError> {
        let at = self.place(operand.id, over)?;
        let parts = parts.unwrap_or(1);
        let held = operand.value.shape[at] * parts / self.size(over).max(1);
        let begins = self.origin(b, operand.id, over)?;
        let sizes = [self.size(to) / parts, held];
        Ok(sorted::largest(b, &operand.value, at, sizes, begins.as_ref()))
    }
}

/// The type in which a sum along a dim is computed.
fn wide(element: Element) -> Element {
    if element.is_float() { element.wide() } else { element }
}
