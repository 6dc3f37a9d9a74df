//! Names for how attention lies: by what the axes that split its scores stand for.

use shard_ir::{DimId, Plan};

use super::Strategy;
use super::roles::Roles;

pub(super) fn names(plan: &Plan, roles: &Roles) -> Vec<Strategy> {
    let mut names = Vec::new();
    for attention in &roles.attentions {
        let scores = plan.instruction(attention.scores);
        let is_split = |dim: &DimId| {
            scores
                .dims
                .iter()
                .position(|d| d == dim)
                .is_some_and(|at| !scores.layout.axes_of(at).is_empty())
        };
        if attention.heads.iter().any(is_split) {
            names.push(Strategy::HeadShardedAttention);
        }
        if attention.batch.iter().any(is_split) {
            names.push(Strategy::BatchShardedAttention);
        }
        if is_split(&attention.keys) || attention.queries.iter().any(is_split) {
            names.push(Strategy::SequenceShardedAttention);
        }
    }
    names
}
