//! What one device makes of its blocks, for ops that move elements or depend on their positions.

use shard_ir::{DimId, Op};

use crate::error::RunError;
use crate::local::{Target, View};
use crate::scalar;
use crate::tensor::{Tensor, walk};

/// Rename, split and merge: the same elements in the same order, under other dims.
pub(crate) fn reshape(
    op: &Op,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [from, to] = op.renames().ok_or(RunError::Internal("not a reshape"))?;
    // The dims that change are put last, in their order; the same data has the new dims there.
    let mut order: Vec<usize> =
        (0..operand.dims.len()).filter(|d| !from.contains(&operand.dims[*d])).collect();
    let mut dims: Vec<DimId> = order.iter().map(|d| operand.dims[*d]).collect();
    for dim in &from {
        order.push(operand.place(*dim)?);
    }
    dims.extend(to);
    let mut moved = operand.block.transposed(&order);
    let sizes: Vec<usize> = dims
        .iter()
        .map(|d| crate::local::place(target.dims(), *d).map(|at| target.sizes[at]))
        .collect::<Result<_, _>>()?;
    if sizes.iter().product::<usize>() != moved.data.len() {
        return Err(RunError::Internal("a reshape cuts blocks"));
    }
    moved.sizes = sizes;
    target.in_order(&dims, moved)
}

/// Dims of which one has another name.
pub(crate) fn renamed(dims: &[DimId], from: DimId, to: DimId) -> Vec<DimId> {
    dims.iter().map(|d| if *d == from { to } else { *d }).collect()
}

/// Two operands one behind the other along a dim that is whole on the device.
pub(crate) fn concat(
    left: DimId,
    right: DimId,
    to: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let mut out = Tensor::filled(target.sizes.to_vec(), 0.0);
    let (at, mut origin) = (crate::local::place(target.dims(), to)?, vec![0; out.sizes.len()]);
    for (operand, dim) in operands.iter().zip([left, right]) {
        let dims = renamed(operand.dims, dim, to);
        let mut sizes = target.sizes.to_vec();
        sizes[at] = operand.block.sizes[operand.place(dim)?];
        // Along a dim that the operand lacks its elements repeat.
        let strides = View { dims: &dims, ..*operand }.strides_along(target.dims());
        let mut data = Vec::with_capacity(sizes.iter().product());
        walk(&sizes, &[strides], |at| data.push(operand.block.data[at[0]]));
        origin[at] += sizes[at];
        let mut from = origin.clone();
        from[at] -= sizes[at];
        out.write_block(&from, &Tensor { sizes, data });
    }
    Ok(out)
}

/// Positions of a dim that is whole on the device, from an offset on.
pub(crate) fn slice(
    from: DimId,
    to: DimId,
    offset: u64,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let at = operand.place(from)?;
    let (mut origin, mut sizes) = (vec![0; operand.dims.len()], operand.block.sizes.clone());
    origin[at] = offset as usize;
    sizes[at] = target.global_size(to);
    target.in_order(&renamed(operand.dims, from, to), operand.block.block(&origin, &sizes))
}

/// A cache with new positions at its end. The device holds a part of the cache, and all new
/// positions.
pub(crate) fn append(
    from: DimId,
    to: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [cache, new] = operands else {
        return Err(RunError::Internal("an append of two operands"));
    };
    let mut out = target.in_order(cache.dims, cache.block.clone())?;
    let at = crate::local::place(target.dims(), to)?;
    let new_dims = renamed(new.dims, from, to);
    let new_block = target.in_order(&new_dims, new.block.clone())?;
    let first = target.global_size(to) - new_block.sizes[at];
    for position in 0..out.sizes[at] {
        let global = target.origin[at] + position;
        if global >= first {
            let (mut origin, mut sizes) = (vec![0; out.sizes.len()], new_block.sizes.clone());
            origin[at] = global - first;
            sizes[at] = 1;
            let row = new_block.block(&origin, &sizes);
            origin[at] = position;
            out.write_block(&origin, &row);
        }
    }
    Ok(out)
}

/// Minus infinity where a query does not see a key: one behind its own position, or before its
/// window. The queries are the last positions of the keys.
pub(crate) fn mask(
    [query, key]: [DimId; 2],
    window: Option<u64>,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let (q, k) = (operand.place(query)?, operand.place(key)?);
    let earlier = target.global_size(key) - target.global_size(query);
    let mut out = operand.block.clone();
    let mut position = vec![0usize; out.sizes.len()];
    for value in &mut out.data {
        let own = earlier + operand.origin[q] + position[q];
        let seen = operand.origin[k] + position[k];
        let is_past = |window: u64| own.saturating_sub(seen) as u64 >= window;
        if seen > own || window.is_some_and(is_past) {
            *value = f64::NEG_INFINITY;
        }
        advance(&mut position, &operand.block.sizes);
    }
    target.in_order(operand.dims, out)
}

/// The place of every element along a dim, in the whole tensor.
pub(crate) fn iota(
    over: DimId,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let at = operand.place(over)?;
    let mut out = operand.block.clone();
    let mut position = vec![0usize; out.sizes.len()];
    for value in &mut out.data {
        *value = (operand.origin[at] + position[at]) as f64;
        advance(&mut position, &operand.block.sizes);
    }
    target.in_order(operand.dims, out)
}

/// The next index in row-major order.
fn advance(position: &mut [usize], sizes: &[usize]) {
    for (p, size) in position.iter_mut().zip(sizes).rev() {
        *p += 1;
        if *p < *size {
            return;
        }
        *p = 0;
    }
}

/// Rotates pairs `(a[i], a[i + n/2])` by the angle `position · 10000^(-2i/n)`. Positions are those
/// of the whole tensor; with an extent, the last position is the last one of the extent.
pub(crate) fn rope(
    [over, at]: [DimId; 2],
    extent: Option<DimId>,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let earlier = extent.map_or(0, |extent| target.global_size(extent) - target.global_size(at));
    let (dim, position_dim) = (operand.place(over)?, operand.place(at)?);
    let strides = operand.block.strides();
    let size = operand.block.sizes[dim];
    let half = size / 2;
    let mut out = operand.block.clone();
    let mut sizes = operand.block.sizes.clone();
    sizes[dim] = half;
    let mut index = vec![0usize; sizes.len()];
    walk(&sizes, std::slice::from_ref(&strides), |offset| {
        let position = (earlier + operand.origin[position_dim] + index[position_dim]) as f64;
        let angle = position * 10_000f64.powf(-2.0 * index[dim] as f64 / size as f64);
        let (low, high) = (offset[0], offset[0] + half * strides[dim]);
        let (a, b) = (operand.block.data[low], operand.block.data[high]);
        out.data[low] = a * angle.cos() - b * angle.sin();
        out.data[high] = b * angle.cos() + a * angle.sin();
        advance(&mut index, &sizes);
    });
    target.in_order(operand.dims, out)
}

/// Rows of the part of the table that the device holds. An id of a row that another device holds
/// gives zeros: the result is a term of a sum.
pub(crate) fn take(
    over: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [table, ids] = operands else { return Err(RunError::Internal("a take of two operands")) };
    let at = table.place(over)?;
    let row_stride = table.block.strides()[at];
    let (first, rows) = (table.origin[at], table.block.sizes[at]);
    let strides = [ids.strides_along(target.dims()), table.strides_along(target.dims())];
    let mut data = Vec::with_capacity(target.sizes.iter().product());
    walk(target.sizes, &strides, |offset| {
        let id = ids.block.data[offset[0]];
        let held = id >= first as f64 && id < (first + rows) as f64 && id.fract() == 0.0;
        data.push(if held {
            table.block.data[offset[1] + (id as usize - first) * row_stride]
        } else {
            0.0
        });
    });
    Ok(Tensor { sizes: target.sizes.to_vec(), data })
}

/// A softmax along a dim that is whole on the device; the exponential of a sink is added to its
/// sum.
pub(crate) fn sink_softmax(
    over: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [a, sinks] = operands else {
        return Err(RunError::Internal("a softmax with sinks of two operands"));
    };
    let at = a.place(over)?;
    let (step, count) = (a.block.strides()[at], a.block.sizes[at]);
    let strides = [a.strides_along(a.dims), sinks.strides_along(a.dims)];
    let mut lines = a.block.sizes.clone();
    lines[at] = 1;
    let mut out = a.block.clone();
    walk(&lines, &strides, |offset| {
        let sink = sinks.block.data[offset[1]];
        let places = (0..count).map(|place| offset[0] + place * step);
        let largest = places.clone().map(|place| a.block.data[place]).fold(sink, scalar::maximum);
        let sum: f64 = places.clone().map(|place| (a.block.data[place] - largest).exp()).sum();
        let sum = sum + (sink - largest).exp();
        for place in places {
            out.data[place] = (a.block.data[place] - largest).exp() / sum;
        }
    });
    target.in_order(a.dims, out)
}

/// At each position the sum of the elements there and before it, each times its tap.
pub(crate) fn conv(
    over: DimId,
    taps: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [a, weights] = operands else {
        return Err(RunError::Internal("a convolution of two operands"));
    };
    let (step, tap_step) =
        (a.block.strides()[a.place(over)?], weights.block.strides()[weights.place(taps)?]);
    let count = weights.block.sizes[weights.place(taps)?];
    let at = target.dims().iter().position(|d| *d == over);
    let at = at.ok_or(RunError::Internal("a convolution keeps its dim"))?;
    let strides = [a.strides_along(target.dims()), weights.strides_along(target.dims())];
    let mut index = vec![0usize; target.sizes.len()];
    let mut data = Vec::with_capacity(target.sizes.iter().product());
    walk(target.sizes, &strides, |offset| {
        // The last tap is the position's own.
        let reach = (index[at] + 1).min(count);
        let term = |back: usize| {
            a.block.data[offset[0] - back * step]
                * weights.block.data[offset[1] + (count - 1 - back) * tap_step]
        };
        data.push((0..reach).map(term).sum());
        advance(&mut index, target.sizes);
    });
    Ok(Tensor { sizes: target.sizes.to_vec(), data })
}

/// The first position of the largest along a dim that is whole on the device.
pub(crate) fn argmax(
    over: DimId,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let step = operand.block.strides()[operand.place(over)?];
    let count = operand.block.sizes[operand.place(over)?];
    let strides = [operand.strides_along(target.dims())];
    let mut data = Vec::with_capacity(target.sizes.iter().product());
    walk(target.sizes, &strides, |offset| {
        let line = (0..count).map(|place| operand.block.data[offset[0] + place * step]);
        let (mut best, mut largest) = (0, f64::NEG_INFINITY);
        for (place, value) in line.enumerate() {
            if value > largest || (value.is_nan() && !largest.is_nan()) {
                (best, largest) = (place, value);
            }
        }
        data.push(best as f64);
    });
    Ok(Tensor { sizes: target.sizes.to_vec(), data })
}

/// Minus the first position at which the value that is sought stands, along the part of a dim that
/// the device holds: a candidate for a maximum. Where the value is not found, it is the least
/// int32.
pub(crate) fn locate(
    over: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [a, sought] = operands else {
        return Err(RunError::Internal("a locate of two operands"));
    };
    let at = a.place(over)?;
    let (step, first, count) = (a.block.strides()[at], a.origin[at], a.block.sizes[at]);
    let strides = [a.strides_along(target.dims()), sought.strides_along(target.dims())];
    let mut data = Vec::with_capacity(target.sizes.iter().product());
    walk(target.sizes, &strides, |offset| {
        let value = sought.block.data[offset[1]];
        let found = (0..count).find(|place| same(a.block.data[offset[0] + place * step], value));
        data.push(found.map_or(f64::from(i32::MIN), |place| -((first + place) as f64)));
    });
    Ok(Tensor { sizes: target.sizes.to_vec(), data })
}

/// Whether two numbers are equal, or both NaN.
fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}
