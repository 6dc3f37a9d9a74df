//! Which tokens go to which experts, on one device: it holds all tokens and all experts of some
//! groups.

use shard_ir::DimId;

use crate::error::RunError;
use crate::local::{Target, View};
use crate::tensor::Tensor;

/// For each token, expert and place, 1 if the token has that place at the expert, else 0. Each
/// token asks for its `choices` experts of largest gate. Places are given to the first choices of
/// all tokens, in the order of the tokens, then to the second choices, until an expert has none
/// left.
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
    // NaN counts as minus infinity, and minus zero as zero.
    let wanted = |expert: &usize| {
        if gates[*expert].is_nan() { f64::NEG_INFINITY } else { gates[*expert] + 0.0 }
    };
    let mut experts: Vec<usize> = (0..gates.len()).collect();
    experts.sort_by(|a, b| wanted(b).total_cmp(&wanted(a)));
    experts
}
