//! What the dims of a layer stand for, read off its parameters: which count tokens, which
//! sequences, which positions.

use shard_ir::{DimId, InstrKind, Op, ParameterKind, Plan};

use shard_ir::attention::unmoved;

/// The dims of a layer that say how much is done at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DimRoles {
    /// Those of the layer's first input that no weight has: their product is the tokens of a step.
    pub tokens: Vec<DimId>,
    /// Those of the caches that are among `tokens`: the sequences.
    pub batch: Vec<DimId>,
    /// The positions that a cache holds: the dim that an `append` writes along; in a layer without
    /// one, those of the caches that neither a weight nor the first input has.
    pub context: Vec<DimId>,
}

impl DimRoles {
    /// The roles in a plan.
    pub fn of(plan: &Plan) -> DimRoles {
        let of_kind = |kind: ParameterKind| {
            plan.instructions
                .iter()
                .filter(move |i| i.kind == InstrKind::Parameter(kind))
                .map(|i| i.dims.as_slice())
        };
        let weights = of_kind(ParameterKind::Weight).chain(of_kind(ParameterKind::HostWeight));
        let in_weights: Vec<DimId> = weights.flatten().copied().collect();
        let first_input = of_kind(ParameterKind::Activation).next().unwrap_or(&[]);
        let mut in_caches: Vec<DimId> = Vec::new();
        for dim in of_kind(ParameterKind::Cache).flatten() {
            if !in_caches.contains(dim) {
                in_caches.push(*dim);
            }
        }
        let mut context: Vec<DimId> = Vec::new();
        for instr in &plan.instructions {
            let (InstrKind::Op(Op::Append { to, .. }), Some(cache)) =
                (&instr.kind, instr.operands.first())
            else {
                continue;
            };
            let made = &plan.instruction(unmoved(plan, *cache)).kind;
            if *made == InstrKind::Parameter(ParameterKind::Cache) && !context.contains(to) {
                context.push(*to);
            }
        }
        if context.is_empty() {
            context = in_caches.clone();
            context.retain(|d| !in_weights.contains(d) && !first_input.contains(d));
        }
        let tokens: Vec<DimId> =
            first_input.iter().copied().filter(|d| !in_weights.contains(d)).collect();
        let batch = tokens
            .iter()
            .copied()
            .filter(|d| in_caches.contains(d) && !context.contains(d))
            .collect();
        DimRoles { tokens, batch, context }
    }
}

/// The product of the useful sizes of some dims.
pub fn useful_product(plan: &Plan, dims: &[DimId]) -> u64 {
    dims.iter().fold(1, |n, d| n.saturating_mul(plan.dims[d.index()].useful))
}
