//! What one device makes of its blocks, for choices of the largest, sums by ids, padding and
//! recurrences.

use shard_ir::DimId;

use crate::error::RunError;
use crate::local::{Target, View, place};
use crate::local_shape::renamed;
use crate::tensor::{Tensor, walk};

/// The largest elements of each of `parts` equal parts of the dim `over`, one behind the other
/// along `to`. `gives` makes an element of the result from a value and its position in the whole
/// dim. The device holds some of the parts, each whole.
pub(crate) fn largest(
    [over, to]: [DimId; 2],
    parts: Option<u64>,
    operand: &View<'_>,
    target: &Target<'_>,
    gives: impl Fn((f64, f64)) -> f64,
) -> Result<Tensor, RunError> {
    let parts = parts.unwrap_or(1) as usize;
    let at = operand.place(over)?;
    let (length, chosen) = (target.global_size(over) / parts, target.global_size(to) / parts);
    let (step, first, held) =
        (operand.block.strides()[at], operand.origin[at], operand.block.sizes[at]);
    let into = place(target.dims(), to)?;
    if length == 0 || held % length != 0 || target.sizes[into] != held / length * chosen {
        return Err(RunError::Internal("a part of which the largest are chosen is cut"));
    }
    let mut out = Tensor::filled(target.sizes.to_vec(), 0.0);
    let out_step = out.strides()[into];
    let mut lines = target.sizes.to_vec();
    lines[into] = 1;
    // The operand has `over` in place of `to`, so that its offset is that of the front of the line.
    let strides = [operand.strides_along(target.dims()), out.strides()];
    walk(&lines, &strides, |offset| {
        for part in 0..held / length {
            let mut line: Vec<(f64, f64)> = (0..length)
                .map(|place| part * length + place)
                .map(|place| (operand.block.data[offset[0] + place * step], (first + place) as f64))
                .collect();
            line.sort_by(|(a, _), (b, _)| falling(*a, *b));
            for (n, found) in line.into_iter().take(chosen).enumerate() {
                out.data[offset[1] + (part * chosen + n) * out_step] = gives(found);
            }
        }
    });
    Ok(out)
}

/// An order in which larger values come first, and NaN before all others.
pub(crate) fn falling(a: f64, b: f64) -> std::cmp::Ordering {
    let key = |value: f64| (value.is_nan(), if value.is_nan() { 0.0 } else { value + 0.0 });
    let ((a_nan, a), (b_nan, b)) = (key(a), key(b));
    b_nan.cmp(&a_nan).then(b.total_cmp(&a))
}

/// The sums of the elements by their ids, for the places of the result that the device has. Only
/// the elements that the device holds are summed; where these are not all, the result is a term of
/// a sum.
pub(crate) fn scatter_add(
    over: &[DimId],
    to: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [a, ids] = operands else {
        return Err(RunError::Internal("a scatter-add of two operands"));
    };
    let terms =
        over.iter().map(|d| Ok(a.block.sizes[a.place(*d)?])).product::<Result<usize, _>>()?;
    target.bound(terms, a.block.max_abs())?;
    let into = place(target.dims(), to)?;
    let mut out = Tensor::filled(target.sizes.to_vec(), 0.0);
    let (step, places) = (out.strides()[into], target.sizes[into]);
    let first = target.origin[into] as f64;
    let of_result = out.strides();
    let along: Vec<usize> = a
        .dims
        .iter()
        .map(|d| target.dims().iter().position(|t| t == d).map_or(0, |at| of_result[at]))
        .collect();
    let strides = [a.block.strides(), ids.strides_along(a.dims), along];
    walk(&a.block.sizes, &strides, |offset| {
        let id = ids.block.data[offset[1]] - first;
        if id >= 0.0 && id < places as f64 && id.fract() == 0.0 {
            let sum = &mut out.data[offset[2] + id as usize * step];
            *sum += a.block.data[offset[0]];
        }
    });
    Ok(out)
}

/// The operand, at an offset along a dim that is whole on the device, and zeros beside it.
pub(crate) fn pad(
    from: DimId,
    to: DimId,
    offset: u64,
    operand: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let block = target.in_order(&renamed(operand.dims, from, to), operand.block.clone())?;
    let mut out = Tensor::filled(target.sizes.to_vec(), 0.0);
    let mut origin = vec![0; out.sizes.len()];
    origin[place(target.dims(), to)?] = offset as usize;
    out.write_block(&origin, &block);
    Ok(out)
}

/// A linear recurrence along a dim that is whole on the device: each element is that of `a` plus
/// `factor` times the one before it.
pub(crate) fn scan(
    over: DimId,
    operands: &[View<'_>],
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let [a, factor] = operands else { return Err(RunError::Internal("a scan of two operands")) };
    let at = a.place(over)?;
    let (step, count) = (a.block.strides()[at], a.block.sizes[at]);
    let strides = [a.strides_along(a.dims), factor.strides_along(a.dims)];
    let factor_step = strides[1][at];
    let mut lines = a.block.sizes.clone();
    lines[at] = 1;
    let mut out = a.block.clone();
    let mut largest: f64 = 0.0;
    walk(&lines, &strides, |offset| {
        let mut last = 0.0;
        for place in 0..count {
            let by = factor.block.data[offset[1] + place * factor_step];
            last = a.block.data[offset[0] + place * step] + by * last;
            largest = largest.max(last.abs());
            out.data[offset[0] + place * step] = last;
        }
    });
    target.bound(1, largest)?;
    target.in_order(a.dims, out)
}
