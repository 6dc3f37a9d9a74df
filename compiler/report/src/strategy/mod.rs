//! The strategy of a plan by its name in the field, recognised from how its weights and its
//! attention lie on the mesh.
//!
//! Nothing is read off the names of dims: which dims are heads, batch, sequence or experts follows
//! from what the plan does with them (`roles`). The definitions in words are in
//! `spec/strategies.md`. A plan may bear more than one name; one that bears none is `unnamed`.

mod attention;
mod roles;
mod weights;

use std::collections::BTreeSet;

use shard_ir::Plan;

pub use roles::Attention;
use roles::Roles;

shard_ir::worded! {
    /// A name.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Strategy {
        /// Weights stay, split along one side of their product.
        OneDWeightStationary = "1d-weight-stationary",
        /// Weights stay, split along both sides of their product.
        TwoDWeightStationary = "2d-weight-stationary",
        /// Weights are gathered over one mesh axis, which splits the tokens.
        XWeightGathered = "x-weight-gathered",
        /// Weights are gathered over two mesh axes.
        XyWeightGathered = "xy-weight-gathered",
        /// Weights are gathered over three mesh axes.
        XyzWeightGathered = "xyz-weight-gathered",
        /// Weights are gathered along one dim over axes that split the tokens, and at most one axis
        /// is left on them.
        Fsdp = "fsdp",
        /// Weights are replicated over axes that split the tokens.
        DataParallel = "data-parallel",
        /// The heads of attention are split.
        HeadShardedAttention = "head-sharded-attention",
        /// The sequences of attention are split.
        BatchShardedAttention = "batch-sharded-attention",
        /// The positions within the sequences of attention are split.
        SequenceShardedAttention = "sequence-sharded-attention",
        /// The experts, each of which has weights of its own, are split.
        ExpertParallel = "expert-parallel",
        /// None of these.
        Unnamed = "unnamed",
    }
    /// The name in reports.
    fn name;
}

impl Strategy {
    /// Those that have a name of the field, in the same order.
    pub fn named() -> impl Iterator<Item = Strategy> {
        Strategy::ALL.into_iter().filter(|strategy| *strategy != Strategy::Unnamed)
    }
}

/// The attentions of a plan, in program order: which einsum gives the scores of each, and what the
/// dims of these stand for.
pub fn attentions(plan: &Plan) -> Vec<Attention> {
    Roles::of(plan).attentions
}

/// The names that a plan deserves, in the order of [`Strategy`]; never empty.
pub fn strategy(plan: &Plan) -> Vec<Strategy> {
    // What is gathered or scattered inside a loop is gathered or scattered.
    let plan = &plan.unfused();
    let roles = Roles::of(plan);
    let mut names = BTreeSet::new();
    names.extend(weights::names(plan, &roles));
    names.extend(attention::names(plan, &roles));
    if names.is_empty() {
        names.insert(Strategy::Unnamed);
    }
    names.into_iter().collect()
}

/// The same as words.
pub fn strategies(plan: &Plan) -> Vec<&'static str> {
    strategy(plan).into_iter().map(Strategy::name).collect()
}
