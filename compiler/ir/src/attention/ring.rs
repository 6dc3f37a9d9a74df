//! [`Ring`]: an attention whose blocks of keys and of values travel round the devices.

use super::{attentions, unmoved};
use crate::collective::Collective;
use crate::collective_einsum::Fused;
use crate::mesh::AxisList;
use crate::never;
use crate::op::Op;
use crate::plan::{InstrId, Plan};
use crate::tensor::DimId;

/// An attention whose blocks of keys and of values travel round the devices of a group. At each
/// step the kernel runs on the block that is there while the next block arrives, and the result is
/// merged with that of the blocks before.
///
/// In a plan it is an attention whose einsums are all collective einsums that gather the operand
/// with the keys, along the keys, over the same axes. It computes the same as its instructions one
/// after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The ops of the attention, first to last.
    pub members: Vec<InstrId>,
    /// The axes of the ring, major to minor.
    pub axes: AxisList,
    /// What travels, each value once, however often it is read: the instruction that gives the
    /// device its own block, and the all-gather that the ring replaces.
    pub travels: Vec<(InstrId, Collective)>,
}

impl Ring {
    /// The first of its ops, which stands for the whole ring where a single instruction is needed.
    pub fn first(&self) -> InstrId {
        let first = self.members.first().copied();
        first.unwrap_or_else(|| never!("a ring without ops", InstrId::default()))
    }

    /// The op that makes the value of the attention.
    pub fn last(&self) -> InstrId {
        let last = self.members.last().copied();
        last.unwrap_or_else(|| never!("a ring without ops", InstrId::default()))
    }

    /// The place in `travels` of the value that an operand is.
    pub fn travels_as(&self, plan: &Plan, operand: InstrId) -> Option<usize> {
        self.travels.iter().position(|(id, _)| is_same_data(plan, *id, operand))
    }

    /// How many steps there are: one for each device of the group.
    pub fn steps(&self, plan: &Plan) -> u64 {
        plan.mesh.group_size(self.axes.iter())
    }

    /// The bytes that the ring holds on one device besides its operands and its result: for
    /// everything that travels the block in use and the block that arrives, but no more blocks than
    /// there are besides the device's own.
    pub fn bytes(&self, plan: &Plan) -> u64 {
        let block = self.travels.iter().map(|(id, _)| plan.local_bytes(*id)).sum::<u64>();
        block.saturating_mul(self.steps(plan).saturating_sub(1).min(2))
    }
}

/// What a collective einsum gathers: the operand, the place of the dim in it, and the axes.
pub(super) fn gather_of(plan: &Plan, id: InstrId) -> Option<(InstrId, usize, AxisList)> {
    let instr = plan.instruction(id);
    let Some(Fused::AllGather { operand, dim, axes }) = instr.kind.fused() else { return None };
    Some((*instr.operands.get(operand)?, dim, axes))
}

/// The axes over which all einsums of an attention gather the operand with the keys; `None` where
/// one gathers nothing along the keys, or the axes differ.
pub(super) fn ring_axes(plan: &Plan, members: &[InstrId], keys: DimId) -> Option<AxisList> {
    let is_einsum = |id: &&InstrId| plan.instruction(**id).kind.op() == Some(&Op::Einsum);
    let mut einsums = members.iter().filter(is_einsum).map(|id| {
        let (operand, dim, axes) = gather_of(plan, *id)?;
        (plan.instruction(operand).dims.get(dim) == Some(&keys)).then_some(axes)
    });
    let axes = einsums.next()??;
    einsums.all(|other| other == Some(axes)).then_some(axes)
}

/// The rings of a plan, in program order; empty for a plan that is not legal.
pub fn rings(plan: &Plan) -> Vec<Ring> {
    let is_loop = |id: &InstrId| gather_of(plan, *id).is_some();
    if !plan.ids().any(|id| is_loop(&id)) {
        return Vec::new();
    }
    let all = attentions(plan).unwrap_or_default();
    all.into_iter().filter_map(|members| ring_of(plan, members)).collect()
}

fn ring_of(plan: &Plan, members: Vec<InstrId>) -> Option<Ring> {
    let (_, _, axes) = members.iter().find_map(|id| gather_of(plan, *id))?;
    let mut travels: Vec<(InstrId, Collective)> = Vec::new();
    for (operand, dim, axes) in members.iter().filter_map(|id| gather_of(plan, *id)) {
        if !travels.iter().any(|(other, _)| is_same_data(plan, *other, operand)) {
            travels.push((operand, Collective::AllGather { dim, axes }));
        }
    }
    Some(Ring { members, axes, travels })
}

/// Whether each device holds the same data for two instructions: the same value in the same layout.
fn is_same_data(plan: &Plan, a: InstrId, b: InstrId) -> bool {
    unmoved(plan, a) == unmoved(plan, b) && plan.instruction(a).layout == plan.instruction(b).layout
}
