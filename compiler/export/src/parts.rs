//! Attention over a device's own keys. Its weights and its product have statistics beside them, by
//! which a softmax merge combines the parts.

use shard_ir::{DimId, InstrId, InstrKind, Op, Plan};

/// Whether a value is the weights of an attention over a device's own keys, and so has statistics.
pub(crate) fn are_weights_of_part(plan: &Plan, id: InstrId) -> bool {
    let instr = plan.instruction(id);
    match &instr.kind {
        InstrKind::Op(Op::Softmax { over }) => {
            let at = instr.dims.iter().position(|dim| dim == over);
            let is_split = at.is_some_and(|at| !instr.layout.axes_of(at).is_empty());
            instr.origin.attention && is_split
        }
        InstrKind::Op(Op::Cast(_)) => instr.operands.iter().any(|o| are_weights_of_part(plan, *o)),
        InstrKind::Op(_)
        | InstrKind::Parameter(_)
        | InstrKind::Constant(_)
        | InstrKind::Move(_)
        | InstrKind::CollectiveEinsum(_) => false,
    }
}

/// The dims of the statistics in the order in which the scores of a softmax have them, and in the
/// order of the dims of a product.
pub(crate) fn dims_of_statistics(
    plan: &Plan,
    softmax: InstrId,
    product: InstrId,
) -> [Vec<DimId>; 2] {
    let dims = |id: InstrId| plan.instruction(id).dims.iter().copied();
    let scores = plan.instruction(softmax).operands[0];
    let has: Vec<DimId> = dims(scores).filter(|dim| dims(product).any(|d| d == *dim)).collect();
    let wanted = dims(product).filter(|dim| has.contains(dim)).collect();
    [has, wanted]
}
