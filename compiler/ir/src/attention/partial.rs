//! The attention over a part of the keys (`partialsoftmax`): its statistics, and the ops that may
//! act on it before it is merged.

use crate::layout::{DimSet, Layout, MeshShape};
use crate::op::{Op, Partial};
use crate::plan::{InstrId, InstrKind, Instruction, Plan};
use crate::tensor::{DimId, Dtype};

/// The dims of the statistics, by their places in the product that ends an attention; `scores` are
/// the dims of the scores, one of which is `keys`.
pub fn statistics_of(product: &[DimId], scores: &[DimId], keys: DimId) -> DimSet {
    let has = |dim: &DimId| *dim != keys && scores.contains(dim);
    product.iter().enumerate().filter(|(_, dim)| has(dim)).map(|(at, _)| at).collect()
}

/// The dims of the statistics beside the result of an op that acts on a `partialsoftmax` operand,
/// in the order of the result's dims; `None` where the op may not act on one. Merging the parts of
/// its result gives the same as acting on the merged operand.
///
/// An op may act if it is linear in the operand and keeps all elements apart that have statistics
/// of their own: it sums over none of the statistics' dims, and needs none of them whole. The dtype
/// of the result must be one in which parts can be merged.
pub fn carried(
    op: &Op,
    operand: usize,
    statistics: &[DimId],
    result: &[DimId],
    dtype: Dtype,
) -> Option<Vec<DimId>> {
    // A view that takes a dim of the statistics apart would have to act on the statistics, too. The
    // result then lacks the dim, so that the op is refused.
    let dims = renamed(op, statistics);
    let in_order: Vec<DimId> = result.iter().filter(|dim| dims.contains(dim)).copied().collect();
    let is_kept = in_order.len() == dims.len() && can_be_merged(dtype);
    let apart = !statistics.iter().any(|dim| op.needs_whole(operand, *dim));
    (is_kept && apart && is_linear(op, operand)).then_some(in_order)
}

/// Dims of an operand under the names that they have in the result of an op.
fn renamed(op: &Op, dims: &[DimId]) -> Vec<DimId> {
    let name = |dim: DimId| {
        let Op::Rename { from, to } = op else { return dim };
        if dim == *from { *to } else { dim }
    };
    dims.iter().copied().map(name).collect()
}

/// For an op on a `partialsoftmax` operand: the dims of the operand's statistics in their order
/// beside the operand, under the names of the result, and then the same in the order of the result.
/// `None` for any other instruction.
pub fn carried_statistics(plan: &Plan, id: InstrId) -> Option<[Vec<DimId>; 2]> {
    let instr = plan.instruction(id);
    let operand = *instr.operands.get(carried_operand(plan, id)?)?;
    let (InstrKind::Op(op), (_, by)) = (&instr.kind, partial_softmax(plan, operand)?) else {
        return None;
    };
    let dims = &plan.instruction(operand).dims;
    let lie: Vec<DimId> = by.iter().filter_map(|at| dims.get(at).copied()).collect();
    let lie = renamed(op, &lie);
    let wanted = instr.dims.iter().filter(|dim| lie.contains(dim)).copied().collect();
    Some([lie, wanted])
}

/// Whether an op is linear in one operand alone: its row lets that operand alone be a partial sum.
/// Dtypes for which this is not so (a cast to whole numbers) are refused by [`can_be_merged`].
pub(crate) fn is_linear(op: &Op, operand: usize) -> bool {
    match op.row().sums {
        Partial::First => operand == 0,
        Partial::One | Partial::Any => true,
        // Two `partialsoftmax` operands have different statistics: their sum cannot be merged.
        Partial::Together | Partial::No => false,
    }
}

/// Whether parts of an attention can be merged in a dtype: it must have the range of the
/// exponentials.
fn can_be_merged(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::Bf16)
}

/// Whether axes may split the keys of an attention with this softmax, in this dtype. A softmax with
/// sinks does not allow it: every device would count the sinks.
pub fn may_split_keys(softmax: &Op, dtype: Dtype) -> bool {
    matches!(softmax, Op::Softmax { .. }) && can_be_merged(dtype)
}

/// The softmax of the attention that ends with a product, before any casts, and the dim of its
/// keys.
fn softmax_of(plan: &Plan, product: InstrId) -> Option<(InstrId, DimId)> {
    plan.instruction(product).operands.iter().find_map(|operand| {
        let mut at = *operand;
        while let InstrKind::Op(Op::Cast(_)) = &plan.instruction(at).kind {
            at = *plan.instruction(at).operands.first()?;
        }
        let softmax = plan.instruction(at);
        let InstrKind::Op(Op::Softmax { over }) = softmax.kind else { return None };
        softmax.origin.attention.then_some((at, over))
    })
}

/// For an instruction that is `partialsoftmax`: the softmax of its attention, and the dims of its
/// statistics by their places. `None` for one that neither ends such an attention nor is made of
/// one.
pub fn partial_softmax(plan: &Plan, id: InstrId) -> Option<(InstrId, DimSet)> {
    // Go back from the instruction to the last value of the attention.
    let (mut at, mut passed) = (id, Vec::new());
    while let Some(place) = carried_operand(plan, at) {
        passed.push((at, place));
        at = *plan.instruction(at).operands.get(place)?;
    }
    let product = plan.instruction(at);
    let (softmax, keys) = softmax_of(plan, at).filter(|_| is_partial_softmax(product))?;
    let scores = &plan.instruction(softmax).dims;
    let mut by: Vec<DimId> = statistics_of(&product.dims, scores, keys)
        .iter()
        .filter_map(|at| product.dims.get(at).copied())
        .collect();
    for (at, place) in passed.into_iter().rev() {
        let instr = plan.instruction(at);
        // A move keeps the dims.
        if let InstrKind::Op(op) = &instr.kind {
            by = carried(op, place, &by, &instr.dims, instr.dtype)?;
        }
    }
    let dims = &plan.instruction(id).dims;
    Some((softmax, (0..dims.len()).filter(|at| by.contains(&dims[*at])).collect()))
}

fn is_partial_softmax(instr: &Instruction) -> bool {
    !instr.layout.softmax_axes().is_empty()
}

/// The place of the `partialsoftmax` operand of a move or an op whose result is `partialsoftmax`
/// because of it; `None` for any other instruction.
pub fn carried_operand(plan: &Plan, id: InstrId) -> Option<usize> {
    let instr = plan.instruction(id);
    let carries = matches!(instr.kind, InstrKind::Op(_) | InstrKind::Move(_));
    if !carries || !is_partial_softmax(instr) {
        return None;
    }
    instr.operands.iter().position(|o| is_partial_softmax(plan.instruction(*o)))
}

/// How many elements the statistics beside a value in a layout have on one device.
pub fn local_statistics(shape: MeshShape<'_>, layout: Layout, statistics: DimSet) -> u64 {
    let local = shape.local_sizes(layout);
    statistics.iter().filter_map(|dim| local.get(dim)).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Binary;

    #[test]
    fn what_works_along_a_dim_of_the_statistics_acts_on_no_part() {
        let [l, d, n] = [DimId(0), DimId(1), DimId(2)];
        let along = |over: DimId| {
            [
                Op::Cumsum { over },
                Op::Shift { over, by: 1 },
                Op::Scan { over },
                Op::Conv { over, taps: n },
                Op::Rope { over, at: if over == l { d } else { l }, extent: None },
            ]
        };
        let dims = [l, d];
        let acts = |op: &Op| carried(op, 0, &[l], &dims, Dtype::F32) == Some(vec![l]);
        assert!(along(d).iter().all(acts));
        assert!(!along(l).iter().any(acts));
        // An op whose operands may each be partial alone acts on either; one whose operands may be
        // partial only together acts on none.
        let second = |op: &Op| carried(op, 1, &[l], &dims, Dtype::F32).is_some();
        assert!(second(&Op::Conv { over: d, taps: n }) && second(&Op::Binary(Binary::Mul)));
        assert!(!second(&Op::Scan { over: d }) && !second(&Op::Binary(Binary::Add)));
        // An op is refused if its result lacks a dim of the statistics.
        let lacks = |op: Op, result: &[DimId]| carried(&op, 0, &[l], result, Dtype::F32).is_none();
        assert!(lacks(Op::Pad { from: l, to: n, offset: 0 }, &[n, d]));
        assert!(lacks(Op::Take { over: l }, &[n, d]));
        assert!(lacks(Op::ScatterAdd { over: vec![l], to: n }, &[n, d]));
        // Parts of an attention are merged in f32 and bf16 only.
        assert_eq!(carried(&Op::Cast(Dtype::F16), 0, &[l], &dims, Dtype::F16), None);
    }
}
