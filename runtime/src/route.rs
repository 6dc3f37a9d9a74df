//! Which tokens go to which experts, on what one device holds: all tokens and all experts of some
//! groups.

use shard_ir::DimId;

use crate::error::RunError;
use crate::local::{Target, View};
use crate::tensor::Tensor;

/// One-hot over the places of the experts. Choices are made token by token, and places given choice
/// by choice.
pub(crate) fn route(
    [expert, token, place]: [DimId; 3],
    choices: u64,
    gates: &View<'_>,
    target: &Target<'_>,
) -> Result<Tensor, RunError> {
    let (x, t) = (gates.place(expert)?, gates.place(token)?);
    let mut order: Vec<usize> = (0..gates.dims.len()).filter(|d| *d != x && *d != t).collect();
    order.extend([t, x]);
    let lines = gates.block.transposed(&order);
    let (tokens, experts, places) =
        (gates.block.sizes[t], gates.block.sizes[x], target.global_size(place));
    let mut out = Tensor::filled(lines.sizes.iter().copied().chain([places]).collect(), 0.0);
    let group = (tokens * experts).max(1);
    for (gates, out) in lines.data.chunks(group).zip(out.data.chunks_mut(group * places)) {
        let wanted: Vec<Vec<usize>> = gates.chunks(experts.max(1)).map(by_gate).collect();
        let mut taken = vec![0; experts];
        for choice in 0..choices as usize {
            for (token, wanted) in wanted.iter().enumerate() {
                let expert = wanted[choice];
                if taken[expert] < places {
                    out[(token * experts + expert) * places + taken[expert]] = 1.0;
                    taken[expert] += 1;
                }
            }
        }
    }
    let mut dims: Vec<DimId> = order.iter().map(|d| gates.dims[*d]).collect();
    dims.push(place);
    target.in_order(&dims, out)
}

/// The experts of one token, largest gate first, the lower numbered first among equals.
fn by_gate(gates: &[f64]) -> Vec<usize> {
    // What is no number counts as minus infinity, and the two zeros are one.
    let wanted = |expert: &usize| {
        if gates[*expert].is_nan() { f64::NEG_INFINITY } else { gates[*expert] + 0.0 }
    };
    let mut experts: Vec<usize> = (0..gates.len()).collect();
    experts.sort_by(|a, b| wanted(b).total_cmp(&wanted(a)));
    experts
}
