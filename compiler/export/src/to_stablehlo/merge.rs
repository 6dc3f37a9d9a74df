//! The merge of attentions over parts of the keys.

use shard_ir::{AxisList, DimSet, Reduction};

use super::builder::{Builder, Value};
use super::moves::HloMove;
use super::ranks::rank;

/// Merges the attentions over parts of the keys along `axes`; with `dim` each device gets its block
/// along that dim. The statistics of a part have the dims `by` of its result. If other axes still
/// split the keys, what comes out is an attention over a larger part, and its statistics are given
/// too.
pub(super) fn softmax_merge(
    b: &mut Builder,
    moved: &HloMove<'_>,
    result: &Value,
    statistics: &Value,
    dim: Option<usize>,
    axes: &AxisList,
    by: DimSet,
) -> (Value, Option<Value>) {
    let by: Vec<usize> = by.iter().collect();
    let mut largest = moved.all_reduce(b, statistics, Reduction::Max, axes);
    // A query that sees no key of a device has the weight `exp` of minus infinity there, which is
    // 0.
    let sees = b.compare_number("GT", statistics, f64::NEG_INFINITY);
    let zero = b.splat(0.0, &largest.shape, largest.element);
    let finite = b.select(&sees, &largest, &zero);
    let below = b.binary("subtract", statistics, &finite);
    let weights = b.unary("exponential", &below);

    let wide = b.convert(result, statistics.element);
    let beside = b.broadcast(&weights, &wide.shape, &by);
    let weighted = b.binary("multiply", &wide, &beside);
    let weighted = b.convert(&weighted, result.element);
    let sum = Reduction::Sum;
    let (total, weights) = match dim {
        None => {
            let total = moved.all_reduce(b, &weighted, sum, axes);
            (total, moved.all_reduce(b, &weights, sum, axes))
        }
        Some(dim) => {
            let total = moved.reduce_scatter(b, &weighted, sum, dim, axes);
            let weights = match by.iter().position(|of| *of == dim) {
                None => moved.all_reduce(b, &weights, sum, axes),
                Some(at) => {
                    let weights = moved.reduce_scatter(b, &weights, sum, at, axes);
                    let size = weights.shape[at];
                    let rank = rank(b, moved.shape.mesh, axes);
                    let start = b.with_number("multiply", &rank, size as f64);
                    largest = b.dynamic_slice(&largest, at, &start, size);
                    weights
                }
            };
            (total, weights)
        }
    };
    let seen = b.compare_number("GT", &weights, 0.0);
    let one = b.splat(1.0, &weights.shape, weights.element);
    let weights = b.select(&seen, &weights, &one);
    let wide = b.convert(&total, weights.element);
    let beside = b.broadcast(&weights, &wide.shape, &by);
    let merged = b.binary("divide", &wide, &beside);
    let merged = b.convert(&merged, result.element);
    if moved.to.softmax_axes().is_empty() {
        return (merged, None);
    }
    // Where no device sees a key, this is minus infinity plus 0.
    let logarithm = b.unary("log", &weights);
    (merged, Some(b.binary("add", &largest, &logarithm)))
}
