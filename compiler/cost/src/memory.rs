//! [`Memory`]: the bytes of weights, caches and activations on a chip, which every report and every
//! limit uses.

use shard_ir::{DimId, InstrId, InstrKind, Liveness, Op, ParameterKind, Plan};

use crate::fusion::fusion_producers;
use crate::units::Bytes;

/// The memory of one chip. Weights and caches are those of one layer; every layer of a stack has
/// its own. Activations are those of the layer that runs. A model is one layer here, in which the
/// weights and caches of a folded block count once for each application.
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
    /// The memory of a plan that is run in program order.
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

    /// The most bytes that one layer alone holds at once.
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

    /// The most bytes that the whole stack holds at once.
    pub fn peak(&self) -> Bytes {
        self.all_weights() + self.all_caches() + self.activations
    }
}

/// For each instruction the instruction in whose memory its value lies: itself, or an earlier one;
/// `None` if the value is in no memory.
///
/// * The result of a rename, split or merge lies in the memory of its operand, unless its elements
///   are in another order, as if dims are merged that are not neighbours.
/// * The result of an append lies in the memory of its cache, if no later instruction reads the old
///   cache. So a step holds one cache, and not one before and one after the append.
/// * Values that pass between the members of a kernel are in no memory ([`fusion`](crate::fusion)).
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
            (InstrKind::Op(op), Some(operand))
                if lies_as_before(op, &plan.instruction(*operand).dims, &instr.dims) =>
            {
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
                    // Every application of a block reads a value from outside of it.
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

/// Whether an op is a rename, split or merge whose result has its elements in the order of its
/// operand's.
fn lies_as_before(op: &Op, before: &[DimId], after: &[DimId]) -> bool {
    let Some([from, to]) = op.renames() else { return false };
    let at = before.windows(from.len().max(1)).position(|dims| dims == from);
    at.is_some_and(|at| {
        let renamed = before[..at].iter().chain(&to).chain(&before[at + from.len()..]);
        renamed.eq(after)
    })
}
