//! The definition of each op: what an element of its result is, by the elements of its operands.

use shard_ir::{Binary, DimId, InstrId, Norm, Op, Plan, Reduce};

use super::{Named, Positions, each, with};
use crate::arithmetic::{Arithmetic, EXACT_LIMIT};
use crate::error::RunError;
use crate::local::cast;
use crate::parallel;
use crate::product::{Factor, How, Numbers, Precision, product};
use crate::scalar;
use crate::spare::Spare;

/// Multiplications up to which an einsum is evaluated by its definition alone.
const BY_DEFINITION: u128 = 1 << 22;

/// How many elements of a larger einsum are evaluated by its definition too.
const CHECKED: usize = 256;

/// A sum, while its terms are added.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) value: f64,
    /// The sum of the absolute values of the terms, against which rounding errors are measured.
    pub(super) magnitude: f64,
}

impl Sum {
    pub(super) fn add(&mut self, term: f64) {
        self.value += term;
        self.magnitude += term.abs();
    }
}

/// Evaluates one instruction.
pub(super) struct Evaluator<'p> {
    pub(super) plan: &'p Plan,
    pub(super) id: InstrId,
    pub(super) arithmetic: Arithmetic,
}

impl Evaluator<'_> {
    pub(super) fn size(&self, dim: DimId) -> usize {
        self.plan.dims[dim.index()].size as usize
    }

    /// One number for each assignment of positions to some dims, the last dim fastest.
    pub(super) fn build(
        &self,
        dims: &[DimId],
        mut element: impl FnMut(&mut Positions) -> f64,
    ) -> Vec<f64> {
        let mut data = Vec::new();
        each(self.plan, dims, &mut vec![0; self.plan.dims.len()], &mut |p| data.push(element(p)));
        data
    }

    /// The sum of a term over all positions along some dims; the positions along others are those
    /// of `at`.
    fn sum(&self, over: &[DimId], at: &mut Positions, term: impl Fn(&Positions) -> f64) -> Sum {
        let mut sum = Sum::default();
        self.add_terms(over, at, &term, &mut sum);
        sum
    }

    fn add_terms<F: Fn(&Positions) -> f64>(
        &self,
        over: &[DimId],
        at: &mut Positions,
        term: &F,
        sum: &mut Sum,
    ) {
        let Some((first, rest)) = over.split_first() else { return sum.add(term(at)) };
        let before = at[first.index()];
        for position in 0..self.size(*first) {
            at[first.index()] = position;
            self.add_terms(rest, at, term, sum);
        }
        at[first.index()] = before;
    }

    /// The elements of the result; and the largest [`Sum::magnitude`] of them, 0 for an op that
    /// sums nothing.
    pub(super) fn op(
        &self,
        op: &Op,
        operands: &[&Named],
        dims: &[DimId],
    ) -> Result<(Vec<f64>, f64), RunError> {
        let a = *operands.first().ok_or(RunError::Internal("an op without operands"))?;
        let mut largest: f64 = 0.0;
        let data = match op {
            Op::Einsum => {
                let mut summed: Vec<DimId> =
                    operands.iter().flat_map(|o| o.dims.iter().copied()).collect();
                summed.sort_unstable();
                summed.dedup();
                summed.retain(|d| !dims.contains(d));
                if let Some((data, magnitude)) = self.large_einsum(operands, dims, &summed)? {
                    return self.checked(data, magnitude);
                }
                self.build(dims, |p| {
                    let sum = self.sum(&summed, p, |p| {
                        operands.iter().fold(1.0, |product, o| product * o.at(p))
                    });
                    largest = largest.max(sum.magnitude);
                    sum.value
                })
            }
            Op::Map(map) if a.dims == dims => {
                let mut data = a.data.clone();
                parallel::in_parts(&mut data, |part| {
                    part.iter_mut().for_each(|v| *v = scalar::map(*map, *v));
                    Ok::<(), RunError>(())
                })?;
                data
            }
            Op::Map(map) => self.build(dims, |p| scalar::map(*map, a.at(p))),
            Op::Binary(binary) => {
                let whole =
                    *binary == Binary::Div && !self.plan.instruction(self.id).dtype.is_float();
                let is_sum = matches!(binary, Binary::Add | Binary::Sub);
                self.build(dims, |p| {
                    let (a, b) = (a.at(p), operands[1].at(p));
                    if is_sum && a.is_finite() && b.is_finite() {
                        largest = largest.max(a.abs() + b.abs());
                    }
                    scalar::binary(*binary, a, b, whole)
                })
            }
            Op::Reduce { kind: Reduce::Max, over } => {
                self.build(dims, |p| self.maximum(a, over, p))
            }
            Op::Reduce { kind, over } => {
                let mean = *kind == Reduce::Mean;
                let count =
                    if mean { over.iter().map(|d| self.size(*d) as f64).product() } else { 1.0 };
                self.build(dims, |p| {
                    let sum = self.sum(over, p, |p| a.at(p));
                    largest = largest.max(sum.magnitude / count);
                    sum.value / count
                })
            }
            Op::Softmax { over } => self.softmax(a, *over, dims),
            Op::SinkSoftmax { over } => self.sink_softmax([a, operands[1]], *over, dims),
            Op::Norm { kind, over } => self.norm(*kind, a, *over, dims),
            Op::Rename { from, to } => self.build(dims, |p| {
                let position = p[to.index()];
                with(p, *from, position, |p| a.at(p))
            }),
            Op::Split { from, to } => self.build(dims, |p| {
                let position = to.iter().fold(0, |n, d| n * self.size(*d) + p[d.index()]);
                with(p, *from, position, |p| a.at(p))
            }),
            Op::Merge { from, to } => self.merge(a, from, *to, dims),
            Op::Concat { left, right, to } => {
                self.concat([a, operands[1]], [*left, *right], *to, dims)
            }
            Op::SliceDim { from, to, offset } => self.build(dims, |p| {
                let position = p[to.index()] + *offset as usize;
                with(p, *from, position, |p| a.at(p))
            }),
            Op::Append { from, to } => self.append([a, operands[1]], *from, *to, dims),
            Op::Mask { query, key, window } => self.mask(a, [*query, *key], *window, dims),
            Op::Rope { over, at, extent } => self.rope(a, *over, *at, *extent, dims),
            Op::Cumsum { over } => {
                let (data, magnitude) = self.cumsum(a, *over, dims);
                largest = magnitude;
                data
            }
            Op::Shift { over, by } => self.build(dims, |p| {
                let position = p[over.index()] as u64;
                let before = position.checked_sub(*by).map_or(usize::MAX, |at| at as usize);
                if before == usize::MAX { 0.0 } else { with(p, *over, before, |p| a.at(p)) }
            }),
            Op::Conv { over, taps } => self.build(dims, |p| {
                let own = p[over.index()];
                let mut sum = Sum::default();
                for tap in 0..self.size(*taps) {
                    let Some(position) = (own + tap + 1).checked_sub(self.size(*taps)) else {
                        continue;
                    };
                    let weight = with(p, *taps, tap, |p| operands[1].at(p));
                    sum.add(with(p, *over, position, |p| a.at(p)) * weight);
                }
                largest = largest.max(sum.magnitude);
                sum.value
            }),
            Op::Argmax { over } => self.build(dims, |p| {
                let largest = self.maximum(a, &[*over], p);
                self.first_of(a, *over, largest, p).unwrap_or(0) as f64
            }),
            Op::TopK { over, to, parts } => {
                let found = self.largest(a, [*over, *to], parts.unwrap_or(1) as usize);
                self.build(dims, |p| {
                    let place = found.at(p) as usize;
                    with(p, *over, place, |p| a.at(p))
                })
            }
            Op::ArgTopK { over, to, parts } => {
                let found = self.largest(a, [*over, *to], parts.unwrap_or(1) as usize);
                self.build(dims, |p| found.at(p))
            }
            Op::ScatterAdd { over, to } => {
                let (data, magnitude) = self.scatter_add([a, operands[1]], over, *to, dims);
                largest = magnitude;
                data
            }
            Op::Pad { from, to, offset } => self.build(dims, |p| {
                let place = p[to.index()].checked_sub(*offset as usize);
                match place.filter(|place| *place < self.size(*from)) {
                    Some(place) => with(p, *from, place, |p| a.at(p)),
                    None => 0.0,
                }
            }),
            Op::Scan { over } => {
                let (data, magnitude) = self.scan([a, operands[1]], *over, dims);
                largest = magnitude;
                data
            }
            Op::Locate { over } => self.build(dims, |p| {
                let sought = operands[1].at(p);
                let found = self.first_of(a, *over, sought, p);
                found.map_or(f64::from(i32::MIN), |at| -(at as f64))
            }),
            Op::Where => self.build(dims, |p| {
                let of = if a.at(p) == 0.0 { 2 } else { 1 };
                operands[of].at(p)
            }),
            Op::Iota { over } => self.build(dims, |p| p[over.index()] as f64),
            Op::Take { over } => self.build(dims, |p| {
                let id = operands[1].at(p);
                let rows = self.size(*over) as f64;
                if id >= 0.0 && id < rows && id.fract() == 0.0 {
                    with(p, *over, id as usize, |p| a.at(p))
                } else {
                    0.0
                }
            }),
            Op::Route { over, at, to, choices } => {
                let placed = self.places(a, [*over, *at, *to], *choices as usize);
                self.build(dims, |p| if placed.at(p) == p[to.index()] as f64 { 1.0 } else { 0.0 })
            }
            Op::Fetch => self.build(dims, |p| a.at(p)),
            Op::Cast(dtype) => self.build(dims, |p| cast(*dtype, a.at(p))),
        };
        self.checked(data, largest)
    }

    /// Elements with the largest magnitude of their sums; an error where sums may have left the
    /// range in which whole numbers are exact.
    fn checked(&self, data: Vec<f64>, largest: f64) -> Result<(Vec<f64>, f64), RunError> {
        if self.arithmetic == Arithmetic::Exact && largest > EXACT_LIMIT {
            Err(RunError::Overflow { id: self.id })
        } else {
            Ok((data, if largest.is_finite() { largest } else { 0.0 }))
        }
    }

    /// The product of two operands by the kernel, if evaluation by the definition would take long.
    /// Beside the elements it gives the largest [`Sum::magnitude`] among those that are checked; in
    /// exact arithmetic a bound of that of all elements.
    fn large_einsum(
        &self,
        operands: &[&Named],
        dims: &[DimId],
        summed: &[DimId],
    ) -> Result<Option<(Vec<f64>, f64)>, RunError> {
        let [a, b] = operands else { return Ok(None) };
        let work = dims.iter().chain(summed).map(|d| self.size(*d) as u128).product::<u128>();
        if work <= BY_DEFINITION {
            return Ok(None);
        }
        let sizes = [a, b].map(|o| o.dims.iter().map(|d| self.size(*d)).collect::<Vec<_>>());
        let factor = |at: usize| Factor {
            dims: &operands[at].dims,
            sizes: &sizes[at],
            data: Numbers::Wide(&operands[at].data),
        };
        let terms: usize = summed.iter().map(|d| self.size(*d)).product();
        let bound = match self.arithmetic {
            Arithmetic::Exact => a.max_abs() * b.max_abs() * terms as f64,
            Arithmetic::F32 | Arithmetic::Single | Arithmetic::Emulated => 0.0,
        };
        let precision = Precision::of(self.arithmetic, [&a.data, &b.data], terms);
        let how = How { precision, on_all_cores: true, spare: &Spare::default() };
        let data: Vec<f64> = product([factor(0), factor(1)], dims, how)?;
        let mut largest = bound;
        // An odd stride has few factors in common with usual sizes, so that elements of many rows
        // and columns are checked.
        let step = (data.len() / CHECKED).max(1) | 1;
        for place in (0..data.len()).step_by(step) {
            let mut positions = vec![0; self.plan.dims.len()];
            let mut rest = place;
            for dim in dims.iter().rev() {
                positions[dim.index()] = rest % self.size(*dim);
                rest /= self.size(*dim);
            }
            let sum = self.sum(summed, &mut positions, |p| a.at(p) * b.at(p));
            let allowed = match precision {
                Precision::Single => 1e-6 * sum.magnitude,
                Precision::Double => 1e-13 * sum.magnitude,
            };
            let is_right = (sum.value - data[place]).abs() <= allowed || !sum.value.is_finite();
            if !is_right {
                return Err(RunError::Internal("the kernel for products is not what it should be"));
            }
            largest = largest.max(sum.magnitude);
        }
        Ok(Some((data, largest)))
    }

    fn mask(
        &self,
        a: &Named,
        [query, key]: [DimId; 2],
        window: Option<u64>,
        dims: &[DimId],
    ) -> Vec<f64> {
        let behind = self.size(key) - self.size(query);
        let is_seen = |p: &Positions| {
            let ends = p[query.index()] + behind + 1;
            let begins = window.map_or(0, |window| ends.saturating_sub(window as usize));
            (begins..ends).contains(&p[key.index()])
        };
        self.build(dims, |p| if is_seen(p) { a.at(p) } else { f64::NEG_INFINITY })
    }

    fn merge(&self, a: &Named, from: &[DimId], to: DimId, dims: &[DimId]) -> Vec<f64> {
        self.build(dims, |p| {
            let mut inner = p.clone();
            let mut rest = p[to.index()];
            for dim in from.iter().rev() {
                inner[dim.index()] = rest % self.size(*dim);
                rest /= self.size(*dim);
            }
            a.at(&inner)
        })
    }

    fn concat(
        &self,
        [a, b]: [&Named; 2],
        [left, right]: [DimId; 2],
        to: DimId,
        dims: &[DimId],
    ) -> Vec<f64> {
        self.build(dims, |p| {
            let position = p[to.index()];
            match position.checked_sub(self.size(left)) {
                None => with(p, left, position, |p| a.at(p)),
                Some(position) => with(p, right, position, |p| b.at(p)),
            }
        })
    }

    fn append(&self, [a, b]: [&Named; 2], from: DimId, to: DimId, dims: &[DimId]) -> Vec<f64> {
        self.build(dims, |p| match p[to.index()].checked_sub(self.size(to) - self.size(from)) {
            None => a.at(p),
            Some(position) => with(p, from, position, |p| b.at(p)),
        })
    }

    /// Pairs of positions of `over`, turned by an angle that grows with the place along `at`.
    fn rope(
        &self,
        a: &Named,
        over: DimId,
        at: DimId,
        extent: Option<DimId>,
        dims: &[DimId],
    ) -> Vec<f64> {
        self.build(dims, |p| {
            let (size, place) = (self.size(over), p[over.index()]);
            let pair = place % (size / 2);
            let position = match extent {
                // The last position of `at` is the last position of the extent.
                Some(extent) => self.size(extent) - (self.size(at) - p[at.index()]),
                None => p[at.index()],
            };
            let angle = position as f64 / 10_000f64.powf(2.0 * pair as f64 / size as f64);
            let (low, high) =
                (with(p, over, pair, |p| a.at(p)), with(p, over, pair + size / 2, |p| a.at(p)));
            if place < size / 2 {
                low * angle.cos() - high * angle.sin()
            } else {
                high * angle.cos() + low * angle.sin()
            }
        })
    }

    fn softmax(&self, a: &Named, over: DimId, dims: &[DimId]) -> Vec<f64> {
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let largest =
            Named::new(self.plan, &rest, self.build(&rest, |p| self.maximum(a, &[over], p)));
        let term = |p: &Positions| (a.at(p) - largest.at(p)).exp();
        let sums =
            Named::new(self.plan, &rest, self.build(&rest, |p| self.sum(&[over], p, term).value));
        self.build(dims, |p| term(p) / sums.at(p))
    }

    fn sink_softmax(&self, [a, sinks]: [&Named; 2], over: DimId, dims: &[DimId]) -> Vec<f64> {
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let largest =
            self.build(&rest, |p| scalar::maximum(self.maximum(a, &[over], p), sinks.at(p)));
        let largest = Named::new(self.plan, &rest, largest);
        let sums = self.build(&rest, |p| {
            let most = largest.at(p);
            self.sum(&[over], p, |p| (a.at(p) - most).exp()).value + (sinks.at(p) - most).exp()
        });
        let sums = Named::new(self.plan, &rest, sums);
        self.build(dims, |p| (a.at(p) - largest.at(p)).exp() / sums.at(p))
    }

    fn norm(&self, kind: Norm, a: &Named, over: DimId, dims: &[DimId]) -> Vec<f64> {
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let count = self.size(over) as f64;
        let means = self.build(&rest, |p| match kind {
            Norm::Rms => 0.0,
            Norm::Layer => self.sum(&[over], p, |p| a.at(p)).value / count,
        });
        let means = Named::new(self.plan, &rest, means);
        let squares = self.build(&rest, |p| {
            self.sum(&[over], p, |p| (a.at(p) - means.at(p)).powi(2)).value / count
        });
        let squares = Named::new(self.plan, &rest, squares);
        self.build(dims, |p| {
            (a.at(p) - means.at(p)) / (squares.at(p) + shard_ir::op::NORM_EPSILON).sqrt()
        })
    }
}
