//! Which ops run as one kernel.
//!
//! The cost model says: "a map or binary fuses into its only producer if that is an einsum, map or
//! binary (its intermediate then touches no HBM)". Read exactly: an elementwise op (map, binary,
//! cast) joins the kernel of the instruction that makes one of its operands when
//!
//! * that operand is the only one of its operands (counted once where it stands twice) that comes
//!   from an op; the others are parameters or constants, moved or not,
//! * its producer is an einsum, a `conv` or itself elementwise, and no move lies between, and
//! * nothing else reads it, it is not a result of the layer, and both are in the same folded block
//!   or in none.
//!
//! A collective einsum that gathers an operand leads a kernel as an einsum does: each chunk of the
//! result is finished by the ops that join it. One that scatters its result is a kernel alone:
//! terms are added up after it has made them.
//!
//! A kernel is so a chain: every member after the first reads the one before it.
//!
//! A chain of elementwise ops may be of any length and a kernel may not, or the ways of cutting the
//! chain would grow without end: at every [`LONGEST_KERNEL`]-th op of a chain a new kernel begins,
//! whatever else is so. Which ops those are follows from what the ops read, moved or not, so that
//! it is the same for a program and for all of its plans.

use shard_ir::attention::{attentions, unmoved};
use shard_ir::composite::in_pieces;
use shard_ir::op::Flag;
use shard_ir::{InstrId, InstrKind, Op, Plan, never};

/// The most ops that run as one kernel.
pub const LONGEST_KERNEL: usize = 16;

/// How many ops of a chain come before an op: none unless it is elementwise and one op makes all of
/// its operands that ops make.
///
/// `made` are the ops that make them, behind moves, repeats included; `place_of` says the place of
/// one of them.
pub fn place_in_chain<V: Copy + PartialEq>(
    op: &Op,
    made: impl IntoIterator<Item = V>,
    place_of: impl FnOnce(V) -> usize,
) -> usize {
    fuses_with(op, made, |_| true).map_or(0, |producer| place_of(producer) + 1)
}

/// Whether a kernel begins at this place of a chain, and so none goes on there.
pub fn begins_a_kernel(place: usize) -> bool {
    place.is_multiple_of(LONGEST_KERNEL)
}

/// The rule over any graph of ops: the producer whose kernel an op joins, or none.
///
/// `made` are the operands that come from an op (behind moves or not), repeats included;
/// `is_fusible` says of one of them whether an einsum or elementwise op makes it, without a move
/// between, nothing else reads it and it is no result of the layer.
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

/// For each instruction of a plan, the instructions whose kernel it joins directly: one, unless it
/// adds scores up in an attention.
pub fn fusion_producers(plan: &Plan) -> Vec<Vec<InstrId>> {
    let mut producers: Vec<Vec<InstrId>> =
        elementwise_joins(plan).into_iter().map(|joined| joined.into_iter().collect()).collect();
    // A plan that is legal has no softmax that says so and is part of none.
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

/// For each instruction the one whose kernel it joins as an elementwise op.
pub fn elementwise_joins(plan: &Plan) -> Vec<Option<InstrId>> {
    let uses = plan.uses();
    // A plan that is legal says of no other instructions that they are pieces.
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
                // A composite is one op of the program, so that its last piece counts as one.
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
                // What one application hands on is read by the next.
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

/// The kernels of a plan, in the order of their first instructions; each is its members in order.
/// Ops alone: parameters, constants and moves are in none.
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
        // Scores that are added up come from several products, each the first of what is one.
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
