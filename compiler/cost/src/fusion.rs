//! Which ops run as one kernel.
//!
//! The cost model says: "a map or binary fuses into its only producer if that is an einsum, map or
//! binary (its intermediate then touches no HBM)". Exactly, an elementwise op (map, binary, cast)
//! joins the kernel of the instruction that makes one of its operands if
//!
//! * this operand is the only one (counted once if it stands twice) that an op makes; the others
//!   are parameters or constants, moved or not,
//! * its producer is an einsum, a `conv` or elementwise, and no move lies between the two, and
//! * no other instruction reads the operand, it is not a result of the layer, and both instructions
//!   are in the same folded block or in none.
//!
//! A collective einsum that gathers an operand leads a kernel as an einsum does: the ops that join
//! it are applied to each chunk of its result. One that scatters its result is a kernel alone,
//! since its result is complete only when the terms of all devices are added.
//!
//! So a kernel is a chain: every member after the first reads the one before it.
//!
//! A chain of elementwise ops may be of any length, but a kernel may not, or the ways of cutting
//! the chain would be too many: at every [`LONGEST_KERNEL`]-th op of a chain a new kernel begins.
//! Which ops these are depends on what the ops read, moved or not, so that they are the same for a
//! program and for all of its plans.

use shard_ir::attention::{attentions, unmoved};
use shard_ir::composite::in_pieces;
use shard_ir::op::Flag;
use shard_ir::{InstrId, InstrKind, Op, Plan, never};

/// The most ops that run as one kernel.
pub const LONGEST_KERNEL: usize = 16;

/// The place of an op in a chain of elementwise ops: how many ops of the chain come before it. It
/// is 0 unless the op is elementwise and one op makes all of its operands that ops make.
///
/// `made` are the ops that make its operands, moved or not, with repeats; `place_of` gives the
/// place of one of these.
pub fn place_in_chain<V: Copy + PartialEq>(
    op: &Op,
    made: impl IntoIterator<Item = V>,
    place_of: impl FnOnce(V) -> usize,
) -> usize {
    fuses_with(op, made, |_| true).map_or(0, |producer| place_of(producer) + 1)
}

/// Whether a new kernel begins at this place of a chain, so that the op there joins none.
pub fn begins_a_kernel(place: usize) -> bool {
    place.is_multiple_of(LONGEST_KERNEL)
}

/// The rule of this module for any graph of ops: the producer whose kernel an op joins, or `None`.
///
/// `made` are the operands that ops make, moved or not, with repeats. `is_fusible` says of one of
/// them whether the second and the third condition above hold.
pub fn fuses_with<V: Copy + PartialEq>(
    op: &Op,
    made: impl IntoIterator<Item = V>,
    is_fusible: impl FnOnce(V) -> bool,
) -> Option<V> {
    if !op.is_elementwise() {
        return None;
    }
    let mut made = made.into_iter();
    let producer = made.next()?;
    (made.all(|other| other == producer) && is_fusible(producer)).then_some(producer)
}

/// Whether other ops may join this one's kernel.
pub fn may_lead_a_kernel(op: &Op) -> bool {
    op.row().is(Flag::LeadsKernel) || op.is_elementwise()
}

/// For each instruction of a plan, the instructions whose kernel it joins directly: at most one,
/// but for an instruction that adds up scores of several products in an attention.
pub fn fusion_producers(plan: &Plan) -> Vec<Vec<InstrId>> {
    let mut producers: Vec<Vec<InstrId>> =
        elementwise_joins(plan).into_iter().map(|joined| joined.into_iter().collect()).collect();
    // In a legal plan every softmax that is marked as one of an attention is part of one.
    let attentions = attentions(plan)
        .unwrap_or_else(|_| never!("a legal plan whose attention is none", Vec::new()));
    for members in attentions {
        for id in &members {
            let made = &mut producers[id.index()];
            let read = &plan.instruction(*id).operands;
            made.extend(read.iter().filter(|operand| members.contains(operand)));
            made.sort_unstable();
            made.dedup();
        }
    }
    producers
}

/// For each instruction the one whose kernel it joins as an elementwise op, if any.
pub fn elementwise_joins(plan: &Plan) -> Vec<Option<InstrId>> {
    let uses = plan.uses();
    // In a legal plan every instruction that is marked as a piece is part of a composite.
    let mut ends_a_composite = vec![false; plan.instructions.len()];
    for composite in in_pieces(plan)
        .unwrap_or_else(|_| never!("a legal plan whose pieces make no composite", Vec::new()))
    {
        ends_a_composite[composite.last().index()] = true;
    }
    let mut places = vec![0; plan.instructions.len()];
    plan.ids()
        .map(|id| {
            let instr = plan.instruction(id);
            let InstrKind::Op(op) = &instr.kind else { return None };
            let is_op = |o: &InstrId| plan.instruction(*o).kind.op().is_some();
            let makers = instr.operands.iter().map(|o| unmoved(plan, *o)).filter(is_op);
            places[id.index()] = place_in_chain(op, makers, |maker| places[maker.index()]);
            let begins = begins_a_kernel(places[id.index()]);
            if ends_a_composite[id.index()] {
                // A composite is one op of the program: its last piece starts a chain.
                places[id.index()] = 0;
            }
            if begins {
                return None;
            }
            let made = instr.operands.iter().copied().filter(|o| is_op(&unmoved(plan, *o)));
            fuses_with(op, made, |producer| {
                let leads = match &plan.instruction(producer).kind {
                    InstrKind::Op(op) => may_lead_a_kernel(op),
                    InstrKind::CollectiveEinsum(fused) => fused.gathered().is_some(),
                    InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Move(_) => false,
                };
                // The next application of a folded block reads what this one hands on.
                let is_handed_on =
                    plan.folds.iter().any(|fold| fold.to == producer || fold.from == producer);
                leads
                    && !is_handed_on
                    && plan.instruction(producer).fold == instr.fold
                    && uses[producer.index()].iter().all(|user| *user == id)
                    && plan.outputs.iter().all(|o| o.id != producer)
            })
        })
        .collect()
}

/// The kernels of a plan, in the order of their first instructions, each as its members in order.
/// Parameters, constants and moves are in no kernel.
pub fn kernels(plan: &Plan) -> Vec<Vec<InstrId>> {
    let producers = fusion_producers(plan);
    let mut kernel_of: Vec<Option<usize>> = vec![None; plan.instructions.len()];
    let mut kernels: Vec<Vec<InstrId>> = Vec::new();
    for id in plan.ids() {
        if plan.instruction(id).kind.op().is_none() {
            continue;
        }
        let mut joined: Vec<usize> =
            producers[id.index()].iter().filter_map(|p| kernel_of[p.index()]).collect();
        joined.sort_unstable();
        joined.dedup();
        let kernel = joined.first().copied().unwrap_or_else(|| {
            kernels.push(Vec::new());
            kernels.len() - 1
        });
        // An instruction that adds up scores of several products makes one kernel of theirs.
        for other in joined.into_iter().skip(1) {
            for member in std::mem::take(&mut kernels[other]) {
                kernel_of[member.index()] = Some(kernel);
                kernels[kernel].push(member);
            }
        }
        kernels[kernel].push(id);
        kernel_of[id.index()] = Some(kernel);
    }
    kernels.retain(|members| !members.is_empty());
    kernels.iter_mut().for_each(|members| members.sort_unstable());
    kernels
}
