//! Estimates of the memory and the time of an execution, and the limits of both.

use shard_ir::liveness::Liveness;
use shard_ir::{DimId, InstrId, InstrKind, Op, Plan};

/// Bytes that an execution may take: the blocks of all devices at the fullest step, the reference's
/// whole tensors, and the inputs.
pub const MAX_BYTES: u128 = 2 << 30;

/// Seconds that an execution may take unless [`RunOptions::patient`](crate::RunOptions::patient) is
/// set. They are estimated and not measured, so that all machines refuse the same plans.
pub const MAX_SECONDS: u64 = 60;

/// Multiplications past which products of numbers that are not whole are taken in `f32`.
pub(crate) const SINGLE_WORK: u128 = 1 << 28;

/// Multiplications of matrix products that a laptop with a few cores does in a second, those of the
/// devices and of the reference counted once.
const PRODUCTS_A_SECOND: u128 = 4_000_000_000;

/// Elements that the same laptop walks one by one in a second.
const ELEMENTS_A_SECOND: u128 = 20_000_000;

/// Instructions that a plan may have once its folded blocks are written out.
pub const MAX_APPLIED: u128 = 1 << 16;

/// Bookkeeping of one block on one device.
const BLOCK_OVERHEAD: u128 = 96;

/// The bytes that an execution of a verified plan takes at most: those of the fullest step, since
/// blocks are freed after their last use, and a copy of the inputs.
pub fn bytes_needed(plan: &Plan) -> u128 {
    let frees = Liveness::of(plan).frees;
    let devices = u128::from(plan.mesh.devices());
    let global = |id: shard_ir::InstrId| -> u128 {
        plan.sizes(&plan.instruction(id).dims).iter().map(|s| u128::from(*s)).product::<u128>() * 8
    };
    let local = |id| devices * (u128::from(plan.local_elements(id)) * 8 + BLOCK_OVERHEAD);
    let (mut held, mut most, mut kept) = (0u128, 0u128, 0u128);
    for id in plan.ids() {
        if let InstrKind::Parameter(_) = plan.instruction(id).kind {
            // The input, and one whole tensor for each term of a partial parameter while its blocks
            // are made.
            let terms = plan.mesh.group_size(plan.instruction(id).layout.partial_axes());
            kept += global(id) * (1 + u128::from(terms));
        }
        // A collective holds its operand's data and the result, an all-reduce the sums as well.
        held += local(id) + global(id);
        let working = match &plan.instruction(id).kind {
            InstrKind::Move(_) => local(id),
            // Parts of all operands, and the terms of each device of a group.
            InstrKind::CollectiveEinsum(fused) => {
                let operands =
                    plan.instruction(id).operands.iter().map(|o| local(*o)).sum::<u128>();
                operands + 2 * local(id) * u128::from(fused.chunks(&plan.mesh))
            }
            InstrKind::Op(_) | InstrKind::Parameter(_) | InstrKind::Constant(_) => local(id),
        };
        most = most.max(held + working);
        held -= frees[id.index()].iter().map(|f| local(*f) + global(*f)).sum::<u128>();
    }
    most + kept
}

/// The multiplications that the execution of a verified plan takes on all devices.
pub fn work_needed(plan: &Plan) -> u128 {
    plan.ids().map(|id| work_of(plan, id)).fold(0, u128::saturating_add)
}

/// About how many seconds the execution of a verified plan takes, with the unsharded program beside
/// it.
pub fn seconds_needed(plan: &Plan) -> u128 {
    cost_needed(plan) / PRODUCTS_A_SECOND
}

/// The work of the execution of a verified plan, in multiplications of a matrix product.
pub(crate) fn cost_needed(plan: &Plan) -> u128 {
    plan.ids().map(|id| cost_of(plan, id)).fold(0, u128::saturating_add)
}

/// The work of an instruction, in multiplications of a matrix product.
pub(crate) fn cost_of(plan: &Plan, id: InstrId) -> u128 {
    let instr = plan.instruction(id);
    let is_product = instr.kind.op() == Some(&Op::Einsum) && instr.operands.len() == 2;
    let each = if is_product { 1 } else { PRODUCTS_A_SECOND / ELEMENTS_A_SECOND };
    work_of(plan, id).saturating_mul(each)
}

/// The multiplications that an instruction takes on all devices.
pub(crate) fn work_of(plan: &Plan, id: InstrId) -> u128 {
    let instr = plan.instruction(id);
    let count = |dims: &[DimId]| -> u128 {
        plan.sizes(dims).iter().fold(1, |n, s| n.saturating_mul(u128::from(*s)))
    };
    let mut dims = instr.dims.clone();
    if instr.kind.op() == Some(&Op::Einsum) {
        for dim in instr.operands.iter().flat_map(|o| &plan.instruction(*o).dims) {
            if !dims.contains(dim) {
                dims.push(*dim);
            }
        }
    } else if let Some(operand) = instr.operands.first() {
        // A reduction reads more than it writes.
        return count(&plan.instruction(*operand).dims).max(count(&dims));
    }
    let split = plan.mesh.group_size(match plan.loop_layouts(id) {
        // Every device of the group multiplies all chunks.
        Some((_, inside)) => {
            inside.operands.iter().fold(inside.product.split_axes(), |s, l| s.union(l.split_axes()))
        }
        None => instr.operands.iter().fold(instr.layout.split_axes(), |s, o| {
            s.union(plan.instruction(*o).layout.split_axes())
        }),
    });
    let replicas = u128::from(plan.mesh.devices() / split.max(1));
    count(&dims).saturating_mul(replicas.max(1))
}
