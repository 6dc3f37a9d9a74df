//! What a chip holds in memory: the one account of weights, caches and activations that every
//! report and limit uses.

use shard_ir::{DimId, InstrId, InstrKind, Liveness, Op, ParameterKind, Plan};

use crate::fusion::fusion_producers;
use crate::units::Bytes;

/// What one chip holds. Weights and caches are those of one layer, and are there `repeat` times,
/// since every layer of the stack has its own; activations are those of the layer that runs. A
/// model is one layer here, in which the weights and caches of a folded block count once for each
/// application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// How many times the layer is stacked.
    pub repeat: u64,
    /// Bytes of the weights of one layer.
    pub weights: Bytes,
    /// Bytes of the caches of one layer.
    pub caches: Bytes,
    /// The largest number of bytes of anything else that is held at once.
    pub activations: Bytes,
}

impl Memory {
    /// The account of a plan, run in program order.
    pub fn of(plan: &Plan) -> Memory {
        let kept = |kind: ParameterKind| {
            plan.ids()
                .filter(|id| plan.instruction(*id).kind == InstrKind::Parameter(kind))
                .map(|id| Bytes(plan.local_bytes(id)).times(plan.copies_of(id)))
                .sum::<Bytes>()
        };
        let (weights, caches) = (kept(ParameterKind::Weight), kept(ParameterKind::Cache));
        let peak = Liveness::in_buffers(plan, &buffers(plan)).peak_bytes();
        Memory {
            repeat: plan.repeat,
            weights,
            caches,
            activations: Bytes(peak.saturating_sub((weights + caches).0)),
        }
    }

    /// The peak of one layer: what a stack of one needs.
    pub fn layer_peak(&self) -> Bytes {
        self.weights + self.caches + self.activations
    }

    /// The weights of all layers.
    pub fn all_weights(&self) -> Bytes {
        self.weights.times(self.repeat)
    }

    /// The caches of all layers.
    pub fn all_caches(&self) -> Bytes {
        self.caches.times(self.repeat)
    }

    /// What the whole stack needs at its peak.
    pub fn peak(&self) -> Bytes {
        self.all_weights() + self.all_caches() + self.activations
    }
}

/// Whose memory holds each instruction's value: its own, an earlier instruction's, or none at all.
///
/// * What rename, split and merge give is their operand under another name: the same memory, unless
///   the elements lie in another order then, as where dims are merged that are not neighbours.
/// * An append writes into the cache where nobody reads the cache of before any more. The result of
///   a step's append is so the cache that the step began with, and no second one.
/// * What passes between the members of a kernel is in no memory ([`fusion`](crate::fusion)).
pub fn buffers(plan: &Plan) -> Vec<Option<InstrId>> {
    let mut passed_on = vec![false; plan.instructions.len()];
    for producer in fusion_producers(plan).into_iter().flatten() {
        passed_on[producer.index()] = true;
    }
    let uses = plan.uses();
    let mut buffer_of: Vec<Option<InstrId>> = Vec::with_capacity(plan.instructions.len());
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let shared = match (&instr.kind, instr.operands.first()) {
            (
                InstrKind::Op(op @ (Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. })),
                Some(operand),
            ) if lies_as_before(op, &plan.instruction(*operand).dims, &instr.dims) => {
                buffer_of[operand.index()]
            }
            (InstrKind::Op(Op::Append { .. }), Some(cache)) => {
                buffer_of[cache.index()].filter(|buffer| {
                    let stays = plan.instruction(*buffer).kind
                        == InstrKind::Parameter(ParameterKind::Weight);
                    let read_later = plan.ids().take(id.index()).any(|old| {
                        buffer_of[old.index()] == Some(*buffer)
                            && (uses[old.index()].iter().any(|user| *user > id)
                                || instr.operands.get(1) == Some(&old)
                                || plan.outputs.iter().any(|output| output.id == old))
                    });
                    // What comes from outside of a block is read by every application.
                    let is_shared = plan.instruction(*buffer).fold != instr.fold;
                    !stays && !read_later && !is_shared
                })
            }
            (
                InstrKind::Op(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_)
                | InstrKind::Parameter(_)
                | InstrKind::Constant(_),
                _,
            ) => None,
        };
        buffer_of.push(if passed_on[id.index()] { None } else { shared.or(Some(id)) });
    }
    buffer_of
}

/// Whether the elements of a value lie in the same order once some of its dims have other names.
fn lies_as_before(op: &Op, before: &[DimId], after: &[DimId]) -> bool {
    let Some([from, to]) = op.renames() else { return false };
    let at = before.windows(from.len().max(1)).position(|dims| dims == from);
    at.is_some_and(|at| {
        let renamed = before[..at].iter().chain(&to).chain(&before[at + from.len()..]);
        renamed.eq(after)
    })
}
