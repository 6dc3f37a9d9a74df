//! Einsums as chains of products of two operands, and collective einsums as loops.

use shard_ir::{DimId, Fused, Mesh, never};

use super::builder::{Builder, Value};
use super::element::Element;
use super::moves::permuted;
use super::ranks::rank;
use crate::devices::ring_pairs;
use crate::error::ExportError;

/// The most chunks for which a ring is written out; one of more chunks is a loop.
const MOST_WRITTEN_OUT: u64 = 8;

/// An operand of an einsum, with the dim that each of its dims is.
#[derive(Clone)]
pub(crate) struct Factor {
    pub(crate) dims: Vec<DimId>,
    pub(crate) value: Value,
}

/// An einsum: the dims of its result, and the type in which it is accumulated.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) result: &'a [DimId],
    pub(crate) element: Element,
}

impl Product<'_> {
    /// The product of all factors. Of all pairs, the one whose product has the fewest elements is
    /// multiplied first, until one factor is left.
    pub(crate) fn of(self, b: &mut Builder, factors: &[Factor]) -> Result<Value, ExportError> {
        let mut factors = factors.to_vec();
        while factors.len() > 1 {
            let pairs =
                (0..factors.len()).flat_map(|i| (i + 1..factors.len()).map(move |j| (i, j)));
            let smallest = pairs.min_by_key(|(i, j)| (self.elements(&factors, *i, *j), *i, *j));
            let (i, j) = smallest.ok_or(ExportError::Internal("an einsum without a pair"))?;
            let others = self.others(&factors, &[i, j]);
            let (right, left) = (factors.remove(j), factors.remove(i));
            let both = self.pair(b, left, right, &others)?;
            factors.insert(i, both);
        }
        let last = factors.pop().ok_or(ExportError::Internal("an einsum without operands"))?;
        let last = summed(b, last, |dim| self.result.contains(&dim));
        let value = b.convert(&last.value, self.element);
        in_order(b, &last.dims, self.result, &value)
    }

    /// The dims of the result, and those of all factors but the ones at these places.
    fn others(self, factors: &[Factor], but: &[usize]) -> Vec<DimId> {
        let rest = factors.iter().enumerate().filter(|(at, _)| !but.contains(at));
        self.result.iter().copied().chain(rest.flat_map(|(_, f)| f.dims.iter().copied())).collect()
    }

    /// How many elements the product of two factors has.
    fn elements(self, factors: &[Factor], i: usize, j: usize) -> u128 {
        let others = self.others(factors, &[i, j]);
        let mut dims: Vec<DimId> = Vec::new();
        let mut elements: u128 = 1;
        for factor in [&factors[i], &factors[j]] {
            for (dim, size) in factor.dims.iter().zip(&factor.value.shape) {
                if others.contains(dim) && !dims.contains(dim) {
                    dims.push(*dim);
                    elements = elements.saturating_mul(u128::from(*size));
                }
            }
        }
        elements
    }

    fn pair(
        self,
        b: &mut Builder,
        left: Factor,
        right: Factor,
        others: &[DimId],
    ) -> Result<Factor, ExportError> {
        // A dim that only one factor has, and nothing else needs, is summed before the product.
        let of_right = right.dims.clone();
        let left = summed(b, left, |d| others.contains(&d) || of_right.contains(&d));
        let of_left = left.dims.clone();
        let right = summed(b, right, |d| others.contains(&d) || of_left.contains(&d));
        let element = common(left.value.element, right.value.element);
        let [a, c] = [&left, &right].map(|factor| b.convert(&factor.value, element));

        let shared = |dim: &&DimId| right.dims.contains(dim);
        let batch: Vec<DimId> =
            left.dims.iter().filter(shared).filter(|d| others.contains(d)).copied().collect();
        let contracted: Vec<DimId> =
            left.dims.iter().filter(shared).filter(|d| !others.contains(d)).copied().collect();
        let places = |dims: &[DimId], of: &[DimId]| -> Vec<usize> {
            dims.iter().filter_map(|d| of.iter().position(|o| o == d)).collect()
        };
        let alone = |of: &[DimId]| -> Vec<DimId> {
            of.iter().filter(|d| !batch.contains(d) && !contracted.contains(d)).copied().collect()
        };
        let mut dims = batch.clone();
        dims.extend(alone(&left.dims));
        let of_left = dims.len();
        dims.extend(alone(&right.dims));
        let size = |(at, dim): (usize, &DimId)| {
            let (factor, value) = if at < of_left { (&left, &a) } else { (&right, &c) };
            let place = factor.dims.iter().position(|d| d == dim);
            place.map_or_else(|| never!("a factor lacks a dim of its own", 1), |at| value.shape[at])
        };
        let shape: Vec<u64> = dims.iter().enumerate().map(size).collect();
        let batching = if batch.is_empty() {
            String::new()
        } else {
            format!(
                "batching_dims = {:?} x {:?}, ",
                places(&batch, &left.dims),
                places(&batch, &right.dims)
            )
        };
        let text = format!(
            "stablehlo.dot_general {}, {}, {batching}contracting_dims = {:?} x {:?} : \
             ({}, {}) -> {}",
            a.name,
            c.name,
            places(&contracted, &left.dims),
            places(&contracted, &right.dims),
            a.ty(),
            c.ty(),
            super::builder::tensor(&shape, self.element)
        );
        Ok(Factor { value: b.op(shape, self.element, &text), dims })
    }
}

/// The type in which two factors are multiplied: the wider of the two, floats before whole numbers.
fn common(a: Element, b: Element) -> Element {
    let rank = |element: Element| match element {
        Element::Bool => 0,
        Element::I4 => 1,
        Element::I8 => 2,
        Element::Unsigned | Element::I32 => 3,
        Element::F4 => 4,
        Element::F8 => 5,
        Element::F16 => 6,
        Element::Bf16 => 7,
        Element::F32 => 8,
        Element::F64 => 9,
    };
    if rank(a) < rank(b) { b } else { a }
}

/// A factor summed over the dims that are not kept.
fn summed(b: &mut Builder, factor: Factor, kept: impl Fn(DimId) -> bool) -> Factor {
    let over: Vec<usize> =
        (0..factor.dims.len()).filter(|place| !kept(factor.dims[*place])).collect();
    let value = b.sum(&factor.value, &over);
    Factor { dims: factor.dims.into_iter().filter(|dim| kept(*dim)).collect(), value }
}

/// A value of these dims in another order of them.
pub(crate) fn in_order(
    b: &mut Builder,
    dims: &[DimId],
    order: &[DimId],
    value: &Value,
) -> Result<Value, ExportError> {
    let places: Option<Vec<usize>> =
        order.iter().map(|d| dims.iter().position(|o| o == d)).collect();
    let places = places.filter(|places| places.len() == dims.len());
    let places = places.ok_or(ExportError::Internal("a dim is missing from a result"))?;
    Ok(b.transpose(value, &places))
}

/// A collective einsum, written as a ring: blocks travel round the devices of a group.
pub(crate) struct Ring<'a> {
    pub(crate) mesh: &'a Mesh,
    pub(crate) fused: Fused,
    pub(crate) product: Product<'a>,
}

impl Ring<'_> {
    /// The result of the ring on the blocks of one device.
    pub(crate) fn of(&self, b: &mut Builder, factors: &[Factor]) -> Result<Value, ExportError> {
        let missing = ExportError::Internal("a loop along a dim that is not there");
        match self.fused {
            Fused::AllGather { operand, dim, .. } => {
                let gathered = factors.get(operand).and_then(|f| f.dims.get(dim)).copied();
                self.gathering(b, factors, operand, gathered.ok_or(missing)?)
            }
            Fused::ReduceScatter { dim, .. } => {
                let scattered = self.product.result.get(dim).copied().ok_or(missing)?;
                self.scattering(b, factors, scattered)
            }
        }
    }

    fn pass_on(&self, b: &mut Builder, held: &Value) -> Value {
        permuted(b, held, &ring_pairs(self.mesh, &self.fused.axes()))
    }

    /// The number of the chunk at a turn: `ahead` of the device's own chunk at turn 0, and one less
    /// at each further turn.
    fn chunk(&self, b: &mut Builder, rank: &Value, step: &Value, ahead: u64) -> Value {
        let k = self.fused.chunks(self.mesh);
        let from_above = b.with_number("add", rank, (k + ahead) as f64);
        let chunk = b.binary("subtract", &from_above, step);
        b.with_number("remainder", &chunk, k as f64)
    }

    /// The factors, each cut to a chunk of `size` positions of a dim. The factor at the place of
    /// `given` is that value instead.
    fn parts(
        &self,
        b: &mut Builder,
        factors: &[Factor],
        dim: DimId,
        size: u64,
        chunk: &Value,
        given: Option<(usize, &Value)>,
    ) -> Vec<Factor> {
        let start = b.with_number("multiply", chunk, size as f64);
        let mut parts = Vec::new();
        for (at, factor) in factors.iter().enumerate() {
            let value = match (given, factor.dims.iter().position(|d| *d == dim)) {
                (Some((place, held)), _) if place == at => held.clone(),
                (_, Some(place)) => b.dynamic_slice(&factor.value, place, &start, size),
                (_, None) => factor.value.clone(),
            };
            parts.push(Factor { dims: factor.dims.clone(), value });
        }
        parts
    }

    fn gathering(
        &self,
        b: &mut Builder,
        factors: &[Factor],
        place: usize,
        dim: DimId,
    ) -> Result<Value, ExportError> {
        let axes = self.fused.axes();
        let k = self.fused.chunks(self.mesh);
        let own = &factors[place];
        let along = own.dims.iter().position(|d| *d == dim);
        let along = along.ok_or(ExportError::Internal("a loop gathers a dim that is not there"))?;
        let size = own.value.shape[along];
        let into = self.product.result.iter().position(|d| *d == dim);
        let rank = rank(b, self.mesh, &axes);
        let add = |b: &mut Builder,
                   factors: &[Factor],
                   rank: &Value,
                   step: &Value,
                   held: &Value,
                   out: Option<&Value>| {
            let chunk = self.chunk(b, rank, step, 0);
            let parts = self.parts(b, factors, dim, size, &chunk, Some((place, held)));
            let part = self.product.of(b, &parts)?;
            Ok(match (into, out) {
                (None, None) => part,
                (None, Some(out)) => b.binary("add", out, &part),
                (Some(into), out) => {
                    let out = match out {
                        Some(out) => out.clone(),
                        None => {
                            let mut shape = part.shape.clone();
                            shape[into] *= k;
                            b.splat(0.0, &shape, part.element)
                        }
                    };
                    let start = b.with_number("multiply", &chunk, size as f64);
                    b.update(&out, &part, into, &start)
                }
            })
        };
        let first = b.count(0);
        let out = add(b, factors, &rank, &first, &own.value, None)?;
        self.turned(
            b,
            factors,
            vec![own.value.clone(), out],
            rank,
            |b, factors, rank, step, held| {
                let arrived = self.pass_on(b, &held[0]);
                let out = add(b, factors, rank, step, &arrived, Some(&held[1]))?;
                Ok(vec![arrived, out])
            },
        )
    }

    fn scattering(
        &self,
        b: &mut Builder,
        factors: &[Factor],
        dim: DimId,
    ) -> Result<Value, ExportError> {
        let k = self.fused.chunks(self.mesh);
        let whole = factors
            .iter()
            .find_map(|f| f.dims.iter().position(|d| *d == dim).map(|place| f.value.shape[place]));
        let whole =
            whole.ok_or(ExportError::Internal("a loop scatters a dim that is not there"))?;
        let rank = rank(b, self.mesh, &self.fused.axes());
        let term = |b: &mut Builder, factors: &[Factor], rank: &Value, step: &Value| {
            let chunk = self.chunk(b, rank, step, k - 1);
            let parts = self.parts(b, factors, dim, whole / k, &chunk, None);
            self.product.of(b, &parts)
        };
        let first = b.count(0);
        let own = term(b, factors, &rank, &first)?;
        self.turned(b, factors, vec![own], rank, |b, factors, rank, step, held| {
            let arrived = self.pass_on(b, &held[0]);
            let own = term(b, factors, rank, step)?;
            Ok(vec![b.binary("add", &arrived, &own)])
        })
    }

    /// Runs the turns 1 to k - 1 on the values that are `held`, and gives the last of them at the
    /// end.
    fn turned(
        &self,
        b: &mut Builder,
        factors: &[Factor],
        mut held: Vec<Value>,
        rank: Value,
        turn: impl Fn(
            &mut Builder,
            &[Factor],
            &Value,
            &Value,
            &[Value],
        ) -> Result<Vec<Value>, ExportError>,
    ) -> Result<Value, ExportError> {
        let k = self.fused.chunks(self.mesh);
        let last = |held: Vec<Value>| {
            held.into_iter().next_back().ok_or(ExportError::Internal("a ring that holds nothing"))
        };
        if k <= MOST_WRITTEN_OUT {
            for step in 1..k {
                let step = b.count(step);
                held = turn(b, factors, &rank, &step, &held)?;
            }
            return last(held);
        }
        // A loop reads nothing from outside, so that factors and rank are carried through all
        // turns.
        let carried: Vec<(&str, Value)> = held
            .iter()
            .map(|value| ("held", value.clone()))
            .chain(factors.iter().map(|factor| ("whole", factor.value.clone())))
            .chain([("rank", rank)])
            .collect();
        let count = held.len();
        let after = b.turns(1..k, &carried, |b, step, inside| {
            let factors: Vec<Factor> = factors
                .iter()
                .zip(&inside[count..])
                .map(|(factor, value)| Factor { dims: factor.dims.clone(), value: value.clone() })
                .collect();
            let rank = &inside[inside.len() - 1];
            let mut given = turn(b, &factors, rank, step, &inside[..count])?;
            given.extend_from_slice(&inside[count..]);
            Ok(given)
        })?;
        last(after.into_iter().take(count).collect())
    }
}
