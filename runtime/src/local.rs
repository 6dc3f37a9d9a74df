//! What one device makes of its blocks, for each op.

use shard_ir::{DimId, Dtype, InstrId, Op, Plan, Reduce};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT, round_to};
use crate::error::RunError;
use crate::local_shape;
use crate::positions;
use crate::product::{Factor, How, Numbers, Precision, product};
use crate::route;
use crate::scalar;
use crate::spare::Spare;
use crate::tensor::{Tensor, walk};

/// One operand, or the result, on one device.
pub(crate) struct View<'a> {
    pub(crate) dims: &'a [DimId],
    pub(crate) block: &'a Tensor,
    /// Where the block starts in the whole tensor.
    pub(crate) origin: &'a [usize],
}

impl View<'_> {
    pub(crate) fn place(&self, dim: DimId) -> Result<usize, RunError> {
        place(self.dims, dim)
    }

    /// For each dim of a list, how far apart in this block neighbours are; 0 for a dim that it does
    /// not have.
    pub(crate) fn strides_along(&self, dims: &[DimId]) -> Vec<usize> {
        let strides = self.block.strides();
        dims.iter()
            .map(|d| self.dims.iter().position(|o| o == d).map_or(0, |at| strides[at]))
            .collect()
    }
}

/// The place of a dim in a list.
pub(crate) fn place(dims: &[DimId], dim: DimId) -> Result<usize, RunError> {
    dims.iter()
        .position(|d| *d == dim)
        .ok_or(RunError::Internal("a dim is missing from an operand"))
}

/// The result that a device is to make.
pub(crate) struct Target<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) id: InstrId,
    /// The size of each dim on this device.
    pub(crate) sizes: &'a [usize],
    /// Where the block starts in the whole tensor.
    pub(crate) origin: &'a [usize],
    /// Whether the result is a term of a sum that is not taken yet.
    pub(crate) is_term: bool,
    pub(crate) arithmetic: Arithmetic,
}

impl Target<'_> {
    pub(crate) fn dims(&self) -> &[DimId] {
        &self.plan.instruction(self.id).dims
    }

    pub(crate) fn global_size(&self, dim: DimId) -> usize {
        self.plan.dims[dim.index()].size as usize
    }

    /// An error if in exact arithmetic a sum of `terms` numbers of at most this absolute value may
    /// not be exact.
    pub(crate) fn bound(&self, terms: usize, largest: f64) -> Result<(), RunError> {
        if self.arithmetic == Arithmetic::Exact && largest * terms as f64 > EXACT_LIMIT {
            Err(RunError::Overflow { id: self.id })
        } else {
            Ok(())
        }
    }

    /// A tensor that has the dims of the result, put into the order of the result's dims.
    pub(crate) fn in_order(&self, dims: &[DimId], tensor: Tensor) -> Result<Tensor, RunError> {
        let order = self.dims().iter().map(|d| place(dims, *d)).collect::<Result<Vec<_>, _>>()?;
        Ok(tensor.into_transposed(&order))
    }
}

/// The block of the result that a device makes from its blocks of the operands.
pub(crate) fn evaluate(
    op: &Op,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let dtype = target.plan.instruction(target.id).dtype;
    let mut out = match op {
        Op::Einsum => einsum(operands, target)?,
        Op::Map(map) => pointwise(&operands[..1], target, |v| scalar::map(*map, v[0])),
        Op::Binary(binary) => {
            pointwise(operands, target, |v| scalar::binary(*binary, v[0], v[1], !dtype.is_float()))
        }
        Op::Where => pointwise(operands, target, |v| if v[0] != 0.0 { v[1] } else { v[2] }),
        Op::Iota { over } => local_shape::iota(*over, &operands[0], target)?,
        Op::Fetch => pointwise(&operands[..1], target, |v| v[0]),
        Op::Cast(to) => pointwise(&operands[..1], target, |v| cast(*to, v[0])),
        Op::Reduce { kind, over } => reduce(*kind, over, &operands[0], target)?,
        // A device may have keys of an attention of which some query sees none.
        Op::Softmax { over } if target.plan.instruction(target.id).origin.attention => {
            along_line(*over, &operands[0], target, softmax_of_part)?
        }
        Op::Softmax { over } => along_line(*over, &operands[0], target, softmax)?,
        Op::SinkSoftmax { over } => local_shape::sink_softmax(*over, operands, target)?,
        Op::Norm { kind, over } => {
            along_line(*over, &operands[0], target, |line| norm(*kind, line))?
        }
        Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. } => {
            local_shape::reshape(op, &operands[0], target)?
        }
        Op::Concat { left, right, to } => {
            local_shape::concat(*left, *right, *to, operands, target)?
        }
        Op::SliceDim { from, to, offset } => {
            local_shape::slice(*from, *to, *offset, &operands[0], target)?
        }
        Op::Append { from, to } => local_shape::append(*from, *to, operands, target)?,
        Op::Mask { query, key, window } => {
            local_shape::mask([*query, *key], *window, &operands[0], target)?
        }
        Op::Rope { over, at, extent } => {
            local_shape::rope([*over, *at], *extent, &operands[0], target)?
        }
        Op::Route { over, at, to, choices } => {
            route::route([*over, *at, *to], *choices, &operands[0], target)?
        }
        Op::Cumsum { over } => {
            let length = operands[0].block.sizes[operands[0].place(*over)?];
            target.bound(length, operands[0].block.max_abs())?;
            along_line(*over, &operands[0], target, sums)?
        }
        Op::Shift { over, by } => along_line(*over, &operands[0], target, |line| shift(*by, line))?,
        Op::Conv { over, taps } => {
            let count = operands[1].block.sizes[operands[1].place(*taps)?];
            let largest = operands.iter().map(|o| o.block.max_abs()).product();
            target.bound(count, largest)?;
            local_shape::conv(*over, *taps, operands, target)?
        }
        Op::Argmax { over } => local_shape::argmax(*over, &operands[0], target)?,
        Op::TopK { over, to, parts } => {
            positions::largest([*over, *to], *parts, &operands[0], target, |(value, _)| value)?
        }
        Op::ArgTopK { over, to, parts } => {
            positions::largest([*over, *to], *parts, &operands[0], target, |(_, place)| place)?
        }
        Op::ScatterAdd { over, to } => positions::scatter_add(over, *to, operands, target)?,
        Op::Pad { from, to, offset } => positions::pad(*from, *to, *offset, &operands[0], target)?,
        Op::Scan { over } => positions::scan(*over, operands, target)?,
        Op::Locate { over } => local_shape::locate(*over, operands, target)?,
        Op::Take { over } => local_shape::take(*over, operands, target)?,
    };
    if out.sizes != target.sizes {
        return Err(RunError::Internal("an op gave a block of the wrong size"));
    }
    let rounded = target.arithmetic.round_all(dtype, target.is_term, &mut out.data);
    rounded.map(|()| out).ok_or(RunError::Overflow { id: target.id })
}

/// A cast truncates and saturates to an integer dtype in every arithmetic; rounding to a float
/// dtype is emulation.
pub(crate) fn cast(to: Dtype, value: f64) -> f64 {
    if to.is_float() { value } else { round_to(to, value) }
}

/// Applies a function to the elements at each position of the result, one of each operand.
fn pointwise(operands: &[View<'_>], target: &Target<'_>, f: impl Fn(&[f64]) -> f64) -> Tensor {
    // Operands that have the dims of the result in its order are walked without strides.
    let in_order = operands.iter().all(|o| o.dims == target.dims());
    let data: Option<Vec<f64>> = match operands {
        [a] if in_order => Some(a.block.data.iter().map(|a| f(&[*a])).collect()),
        [a, b] if in_order => {
            Some(a.block.data.iter().zip(&b.block.data).map(|(a, b)| f(&[*a, *b])).collect())
        }
        _ => None,
    };
    if let Some(data) = data {
        return Tensor { sizes: target.sizes.to_vec(), data };
    }
    let strides: Vec<Vec<usize>> =
        operands.iter().map(|o| o.strides_along(target.dims())).collect();
    let mut values = vec![0.0; operands.len()];
    let mut data = Vec::with_capacity(target.sizes.iter().product());
    walk(target.sizes, &strides, |at| {
        for ((value, operand), at) in values.iter_mut().zip(operands).zip(at) {
            *value = operand.block.data[*at];
        }
        data.push(f(&values));
    });
    Tensor { sizes: target.sizes.to_vec(), data }
}

/// An einsum: of two operands a product of matrices, else a walk over the dims of the result and
/// the contracted dims, which adds each product to its element.
fn einsum(operands: &[View<'_>], target: &Target<'_>) -> Result<Tensor, RunError> {
    let mut dims = target.dims().to_vec();
    let mut sizes = target.sizes.to_vec();
    for operand in operands {
        for (dim, size) in operand.dims.iter().zip(&operand.block.sizes) {
            match dims.iter().position(|d| d == dim) {
                Some(at) if sizes[at] != *size => {
                    return Err(RunError::Internal("operands split a dim differently"));
                }
                Some(_) => {}
                None => {
                    dims.push(*dim);
                    sizes.push(*size);
                }
            }
        }
    }
    let terms = sizes[target.sizes.len()..].iter().product();
    let largest = match target.arithmetic {
        Arithmetic::Exact => operands.iter().map(|o| o.block.max_abs()).product(),
        Arithmetic::F32 | Arithmetic::Single | Arithmetic::Emulated => 0.0,
    };
    target.bound(terms, largest)?;
    if let [a, b] = operands {
        let data = [&a.block.data[..], &b.block.data];
        let precision = Precision::of(target.arithmetic, data, terms);
        let factors = [a, b].map(|o| Factor {
            dims: o.dims,
            sizes: &o.block.sizes,
            data: Numbers::Wide(&o.block.data),
        });
        let how = How { precision, on_all_cores: false, spare: &Spare::default() };
        let data = product(factors, target.dims(), how)?;
        return Ok(Tensor { sizes: target.sizes.to_vec(), data });
    }
    let mut out = Tensor::filled(target.sizes.to_vec(), 0.0);
    let mut strides: Vec<Vec<usize>> = operands.iter().map(|o| o.strides_along(&dims)).collect();
    let mut into = out.strides();
    into.resize(dims.len(), 0);
    strides.push(into);
    let last = operands.len();
    walk(&sizes, &strides, |at| {
        out.data[at[last]] +=
            operands.iter().zip(at).map(|(o, at)| o.block.data[*at]).product::<f64>();
    });
    Ok(out)
}

fn reduce(
    kind: Reduce,
    over: &[DimId],
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let start = if kind == Reduce::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut out = Tensor::filled(target.sizes.to_vec(), start);
    let into = out.strides();
    let into = operand
        .dims
        .iter()
        .map(|d| target.dims().iter().position(|t| t == d).map_or(0, |at| into[at]))
        .collect();
    let strides = [operand.block.strides(), into];
    target.bound(
        if kind == Reduce::Max { 1 } else { operand.block.data.len() },
        operand.block.max_abs(),
    )?;
    walk(&operand.block.sizes, &strides, |at| {
        let (value, place) = (operand.block.data[at[0]], &mut out.data[at[1]]);
        *place = if kind == Reduce::Max { scalar::maximum(*place, value) } else { *place + value };
    });
    if kind == Reduce::Mean {
        // Of a dim that is split a device sums its part. Divided by the whole count, the sums of
        // all devices are terms of the mean.
        let count: usize = over.iter().map(|d| target.global_size(*d)).product();
        out.data.iter_mut().for_each(|v| *v /= count as f64);
    }
    Ok(out)
}

/// Applies a function to every line along a dim that is whole on the device.
fn along_line(
    over: DimId,
    operand: &View<'_>,
    target: &Target<'_>,
    f: impl Fn(&mut [f64]),
) -> Result<Tensor, RunError> {
    let at = operand.place(over)?;
    let mut order: Vec<usize> = (0..operand.dims.len()).filter(|d| *d != at).collect();
    order.push(at);
    let mut lines = operand.block.transposed(&order);
    let length = operand.block.sizes[at].max(1);
    lines.data.chunks_mut(length).for_each(f);
    let dims: Vec<DimId> = order.iter().map(|d| operand.dims[*d]).collect();
    target.in_order(&dims, lines)
}

fn softmax(line: &mut [f64]) {
    let largest = line.iter().copied().fold(f64::NEG_INFINITY, scalar::maximum);
    line.iter_mut().for_each(|v| *v = (*v - largest).exp());
    let sum: f64 = line.iter().sum();
    line.iter_mut().for_each(|v| *v /= sum);
}

/// [`softmax`], and zeros where all scores are minus infinity.
fn softmax_of_part(line: &mut [f64]) {
    if line.iter().all(|v| *v == f64::NEG_INFINITY) {
        line.fill(0.0);
    } else {
        softmax(line);
    }
}

/// The sum up to each place.
fn sums(line: &mut [f64]) {
    let mut sum = 0.0;
    for value in line {
        sum += *value;
        *value = sum;
    }
}

/// Moves the elements so many places back, and puts zeros in front.
fn shift(by: u64, line: &mut [f64]) {
    let by = usize::try_from(by).unwrap_or(line.len()).min(line.len());
    line.rotate_right(by);
    line[..by].fill(0.0);
}

fn norm(kind: shard_ir::Norm, line: &mut [f64]) {
    let count = line.len() as f64;
    let mean = match kind {
        shard_ir::Norm::Rms => 0.0,
        shard_ir::Norm::Layer => line.iter().sum::<f64>() / count,
    };
    let variance = line.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
    let scale = 1.0 / (variance + shard_ir::op::NORM_EPSILON).sqrt();
    line.iter_mut().for_each(|v| *v = (*v - mean) * scale);
}
