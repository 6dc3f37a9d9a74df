//! [`DimRoles`]: which dims of a layer count tokens, which sequences, which positions; read off its
//! parameters.

use shard_ir::{DimId, InstrKind, Op, ParameterKind, Plan};

use shard_ir::attention::unmoved;

/// The dims of a layer that say how much is done at a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DimRoles {
    /// The dims of the layer's first input that no weight has: the product of their sizes is the
    /// number of tokens of a step.
    pub tokens: Vec<DimId>,
    /// The dims of `tokens` that a cache has, and that are no positions: they count sequences.
    pub batch: Vec<DimId>,
    /// The dims that count the positions that a cache holds. If an `append` writes a cache, they
    /// are the dims along which appends write; if a `rope` counts along some of these, the others
    /// are a window or a chunk of them and left out. In a layer without an append they are the dims
    /// of the caches that neither a weight nor the first input has; a cache that a result replaces,
    /// as a state or the last few tokens, holds no positions.
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
        let mut counted: Vec<DimId> = Vec::new();
        for instr in &plan.instructions {
            if let InstrKind::Op(Op::Rope { extent: Some(extent), .. }) = &instr.kind {
                counted.push(*extent);
            }
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
        if context.iter().any(|dim| counted.contains(dim)) {
            context.retain(|dim| counted.contains(dim));
        }
        if context.is_empty() {
            context = grown(plan);
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

/// The dims of the caches that no result replaces. A result of the same dims and dtype, which is no
/// parameter, replaces a cache.
fn grown(plan: &Plan) -> Vec<DimId> {
    let results = plan.outputs.iter().map(|output| plan.instruction(output.id));
    let made: Vec<_> =
        results.filter(|made| !matches!(made.kind, InstrKind::Parameter(_))).collect();
    let mut dims: Vec<DimId> = Vec::new();
    for cache in &plan.instructions {
        let is_replaced = made.iter().any(|r| (&r.dims, r.dtype) == (&cache.dims, cache.dtype));
        if cache.kind == InstrKind::Parameter(ParameterKind::Cache) && !is_replaced {
            dims.extend(cache.dims.iter().filter(|dim| !dims.contains(dim)).collect::<Vec<_>>());
        }
    }
    dims
}

/// The product of the useful sizes of some dims.
pub fn useful_product(plan: &Plan, dims: &[DimId]) -> u64 {
    dims.iter().fold(1, |n, d| n.saturating_mul(plan.dims[d.index()].useful))
}
