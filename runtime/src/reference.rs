//! The unsharded program, evaluated by its definition: for each element of a result, by dim names,
//! one at a time.
//!
//! Written apart from the devices' evaluator, of which it is the judge: it knows no blocks, no
//! strides by place and no collectives, and moves mean nothing to it.
//!
//! A large einsum would take hours by its definition. It goes through the kernel that the devices
//! use, on all cores; elements of it, spread over the result, are evaluated by the definition as
//! well, and have to be the same.

mod along;

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::op::Flag;
use shard_ir::{Binary, DimId, InstrId, InstrKind, Norm, Op, Plan, Reduce};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT};
use crate::error::RunError;
use crate::local::cast;
use crate::parallel;
use crate::product::{Factor, How, Numbers, Precision, product};
use crate::scalar;
use crate::spare::Spare;
use crate::tensor::Tensor;

/// Multiplications up to which an einsum is evaluated by its definition alone.
const BY_DEFINITION: u128 = 1 << 22;

/// Elements of a larger one that are evaluated by its definition too.
const CHECKED: usize = 256;

/// An assignment of a position to every dim of the program.
type Positions = Vec<usize>;

/// A value with its dims.
struct Named {
    dims: Vec<DimId>,
    /// How far apart neighbours along each dim are.
    steps: Vec<usize>,
    data: Vec<f64>,
}

impl Named {
    fn new(plan: &Plan, dims: &[DimId], data: Vec<f64>) -> Named {
        let mut steps = vec![0; dims.len()];
        let mut step = 1;
        for (i, dim) in dims.iter().enumerate().rev() {
            steps[i] = step;
            step *= plan.dims[dim.index()].size as usize;
        }
        Named { dims: dims.to_vec(), steps, data }
    }

    fn max_abs(&self) -> f64 {
        largest_finite(&self.data)
    }

    fn at(&self, positions: &Positions) -> f64 {
        // A plain loop: this is where the reference spends its time.
        let mut at = 0;
        let mut i = 0;
        while i < self.dims.len() {
            at += positions[self.dims[i].0 as usize] * self.steps[i];
            i += 1;
        }
        self.data[at]
    }
}

/// One result of the unsharded program.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    /// The whole tensor, dims in the declared order.
    pub tensor: Tensor,
    /// What rounding errors are measured against: the largest absolute value; where the result is a
    /// sum, the largest sum of absolute terms; and what of its operands' scales its op hands on.
    /// The mean of a layernorm is 0, and its error is not, nor that of its relu.
    pub scale: f64,
}

/// Evaluates the whole plan and gives every result of it, dims in the declared order.
pub fn reference(
    plan: &Plan,
    parameters: &BTreeMap<InstrId, Arc<Tensor>>,
    arithmetic: Arithmetic,
) -> Result<Vec<Expected>, RunError> {
    let frees = shard_ir::Liveness::of(plan).frees;
    let mut values: Vec<Option<Named>> = Vec::new();
    let mut scales: Vec<f64> = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let mut operands = Vec::new();
        for operand in &instr.operands {
            let value = values.get(operand.index()).and_then(Option::as_ref);
            operands
                .push(value.ok_or(RunError::Internal("the reference reads a value that is gone"))?);
        }
        let inherited: Vec<f64> = instr.operands.iter().map(|o| scales[o.index()]).collect();
        let (mut data, mut scale) = match &instr.kind {
            InstrKind::Parameter(_) => (
                parameters
                    .get(&id)
                    .ok_or(RunError::Internal("a parameter has no data"))?
                    .data
                    .clone(),
                0.0,
            ),
            InstrKind::Constant(number) => (vec![plan.number(*number)], 0.0),
            InstrKind::Move(_) => (operands[0].data.clone(), largest_of(&inherited)),
            kind @ (InstrKind::Op(_) | InstrKind::CollectiveEinsum(_)) => {
                let op = kind.op().ok_or(RunError::Internal("an op does nothing"))?;
                let (data, magnitude) =
                    Evaluator { plan, id, arithmetic }.op(op, &operands, &instr.dims)?;
                (data, magnitude.max(handed_on(op, &inherited, &operands)))
            }
        };
        let scales_of_parts = parallel::in_parts(&mut data, |part| {
            let rounded = arithmetic.round_all(instr.dtype, false, part);
            rounded.map(|()| largest_finite(part)).ok_or(RunError::Overflow { id })
        })?;
        scale = scale.max(largest_of(&scales_of_parts));
        scales.push(scale);
        values.push(Some(Named::new(plan, &instr.dims, data)));
        for freed in &frees[id.index()] {
            values[freed.index()] = None;
        }
    }
    plan.outputs
        .iter()
        .map(|output| {
            let value = values.get(output.id.index()).and_then(Option::as_ref);
            let value = value.ok_or(RunError::Internal("a result of the reference is gone"))?;
            let mut data = Vec::with_capacity(value.data.len());
            let mut positions = vec![0; plan.dims.len()];
            each(plan, &output.dims, &mut positions, &mut |p| data.push(value.at(p)));
            let sizes = output.dims.iter().map(|d| plan.dims[d.index()].size as usize).collect();
            Ok(Expected { tensor: Tensor { sizes, data }, scale: scales[output.id.index()] })
        })
        .collect()
}

/// The largest absolute value among the finite ones. Eight are looked for at once, since each
/// comparison waits for the one before.
fn largest_finite(numbers: &[f64]) -> f64 {
    let mut largest = [0.0f64; 8];
    for numbers in numbers.chunks(largest.len()) {
        for (largest, number) in largest.iter_mut().zip(numbers) {
            let size = number.abs();
            *largest = if size > *largest && size < f64::INFINITY { size } else { *largest };
        }
    }
    largest_of(&largest)
}

fn largest_of(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(0.0, f64::max)
}

/// What of its operands' scales an op hands on: an error of an operand is one of the result, no
/// larger where values are copied or chosen from, times the other factor in a product. 0 where that
/// is not known; the magnitude of the result is then its scale.
fn handed_on(op: &Op, scales: &[f64], operands: &[&Named]) -> f64 {
    match op {
        Op::Binary(Binary::Mul) => {
            let of = |at: usize, other: usize| scales[at] * operands[other].max_abs();
            f64::max(of(0, 1), of(1, 0))
        }
        op if op.row().is(Flag::KeepsValues) || op.row().is(Flag::KeepsErrors) => {
            largest_of(scales)
        }
        _ => 0.0,
    }
}

/// Visits every assignment of positions to some dims, the last fastest.
fn each(
    plan: &Plan,
    dims: &[DimId],
    positions: &mut Positions,
    visit: &mut dyn FnMut(&mut Positions),
) {
    let Some((first, rest)) = dims.split_first() else { return visit(positions) };
    let before = positions[first.index()];
    for position in 0..plan.dims[first.index()].size as usize {
        positions[first.index()] = position;
        each(plan, rest, positions, visit);
    }
    positions[first.index()] = before;
}

struct Evaluator<'p> {
    plan: &'p Plan,
    id: InstrId,
    arithmetic: Arithmetic,
}

impl Evaluator<'_> {
    fn size(&self, dim: DimId) -> usize {
        self.plan.dims[dim.index()].size as usize
    }

    /// One number for each assignment of the dims.
    fn build(&self, dims: &[DimId], mut element: impl FnMut(&mut Positions) -> f64) -> Vec<f64> {
        let mut data = Vec::new();
        each(self.plan, dims, &mut vec![0; self.plan.dims.len()], &mut |p| data.push(element(p)));
        data
    }

    /// The sum of a term over some dims, beside positions that are fixed; and the sum of the
    /// absolute values.
    fn sum(
        &self,
        over: &[DimId],
        at: &mut Positions,
        term: impl Fn(&Positions) -> f64,
    ) -> (f64, f64) {
        let mut sums = (0.0, 0.0);
        self.add_terms(over, at, &term, &mut sums);
        sums
    }

    fn add_terms<F: Fn(&Positions) -> f64>(
        &self,
        over: &[DimId],
        at: &mut Positions,
        term: &F,
        sums: &mut (f64, f64),
    ) {
        let Some((first, rest)) = over.split_first() else {
            let value = term(at);
            sums.0 += value;
            sums.1 += value.abs();
            return;
        };
        let before = at[first.index()];
        for position in 0..self.size(*first) {
            at[first.index()] = position;
            self.add_terms(rest, at, term, sums);
        }
        at[first.index()] = before;
    }

    /// The data, and of a sum the largest sum of absolute terms.
    fn op(
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
                    let (sum, magnitude) = self.sum(&summed, p, |p| {
                        operands.iter().fold(1.0, |product, o| product * o.at(p))
                    });
                    largest = largest.max(magnitude);
                    sum
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
                    let (sum, magnitude) = self.sum(over, p, |p| a.at(p));
                    largest = largest.max(magnitude / count);
                    sum / count
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
                let (mut sum, mut magnitude) = (0.0, 0.0);
                for tap in 0..self.size(*taps) {
                    let Some(position) = (own + tap + 1).checked_sub(self.size(*taps)) else {
                        continue;
                    };
                    let weight = with(p, *taps, tap, |p| operands[1].at(p));
                    let term = with(p, *over, position, |p| a.at(p)) * weight;
                    sum += term;
                    magnitude += term.abs();
                }
                largest = largest.max(magnitude);
                sum
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

    fn checked(&self, data: Vec<f64>, largest: f64) -> Result<(Vec<f64>, f64), RunError> {
        if self.arithmetic == Arithmetic::Exact && largest > EXACT_LIMIT {
            Err(RunError::Overflow { id: self.id })
        } else {
            Ok((data, if largest.is_finite() { largest } else { 0.0 }))
        }
    }

    /// The product of two operands by the kernel, and the largest sum of absolute terms among the
    /// elements that are checked; in exact arithmetic a bound of all of them. `None` where the
    /// definition is fast enough.
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
        // A stride that shares no factor with usual sizes, so that all rows and columns are met.
        let step = (data.len() / CHECKED).max(1) | 1;
        for place in (0..data.len()).step_by(step) {
            let mut positions = vec![0; self.plan.dims.len()];
            let mut rest = place;
            for dim in dims.iter().rev() {
                positions[dim.index()] = rest % self.size(*dim);
                rest /= self.size(*dim);
            }
            let (sum, magnitude) = self.sum(summed, &mut positions, |p| a.at(p) * b.at(p));
            let allowed = match precision {
                Precision::Single => 1e-6 * magnitude,
                Precision::Double => 1e-13 * magnitude,
            };
            let is_so = (sum - data[place]).abs() <= allowed || !sum.is_finite();
            if !is_so {
                return Err(RunError::Internal("the kernel for products is not what it should be"));
            }
            largest = largest.max(magnitude);
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
                // The last place of `at` is the last of the extent.
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
            Named::new(self.plan, &rest, self.build(&rest, |p| self.sum(&[over], p, term).0));
        self.build(dims, |p| term(p) / sums.at(p))
    }

    fn sink_softmax(&self, [a, sinks]: [&Named; 2], over: DimId, dims: &[DimId]) -> Vec<f64> {
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let largest =
            self.build(&rest, |p| scalar::maximum(self.maximum(a, &[over], p), sinks.at(p)));
        let largest = Named::new(self.plan, &rest, largest);
        let sums = self.build(&rest, |p| {
            let most = largest.at(p);
            self.sum(&[over], p, |p| (a.at(p) - most).exp()).0 + (sinks.at(p) - most).exp()
        });
        let sums = Named::new(self.plan, &rest, sums);
        self.build(dims, |p| (a.at(p) - largest.at(p)).exp() / sums.at(p))
    }

    fn norm(&self, kind: Norm, a: &Named, over: DimId, dims: &[DimId]) -> Vec<f64> {
        let rest: Vec<DimId> = a.dims.iter().copied().filter(|d| *d != over).collect();
        let count = self.size(over) as f64;
        let means = self.build(&rest, |p| match kind {
            Norm::Rms => 0.0,
            Norm::Layer => self.sum(&[over], p, |p| a.at(p)).0 / count,
        });
        let means = Named::new(self.plan, &rest, means);
        let squares = self
            .build(&rest, |p| self.sum(&[over], p, |p| (a.at(p) - means.at(p)).powi(2)).0 / count);
        let squares = Named::new(self.plan, &rest, squares);
        self.build(dims, |p| {
            (a.at(p) - means.at(p)) / (squares.at(p) + shard_ir::op::NORM_EPSILON).sqrt()
        })
    }
}

/// Looks at another position along one dim.
fn with(
    positions: &mut Positions,
    dim: DimId,
    position: usize,
    look: impl FnOnce(&Positions) -> f64,
) -> f64 {
    let before = std::mem::replace(&mut positions[dim.index()], position);
    let value = look(positions);
    positions[dim.index()] = before;
    value
}
