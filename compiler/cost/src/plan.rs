//! [`PlanPrice`]: the figures of each instruction of a plan, and their totals.

use std::collections::BTreeSet;

use shard_ir::attention::{Ring, rings, softmax_over, unmoved};
use shard_ir::{
    Collective, DimId, Dtype, InstrId, InstrKind, Layout, MeshShape, Op, Picoseconds, Plan,
};

use crate::attention::{RingPairs, RingShape, Stripes, stripes};
use crate::collective::{CollectiveCost, collective_cost};
use crate::fusion::kernels;
use crate::hardware::Hardware;
use crate::looped::{LoopPrice, full_step};
use crate::memory::Memory;
use crate::op::{KernelOp, LocalTensor, Work, kernel_reads, ring_work};
use crate::roofline::{Bound, compute_time, memory_time, roofline};
use crate::units::{Bytes, Flops};

/// What one instruction costs each device; in a folded block, in one application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InstrPrice {
    /// A parameter or a constant.
    Free,
    /// An op. The first op of a kernel has the figures of the whole kernel, the others have zeros.
    Kernel {
        /// Floating-point operations.
        flops: Flops,
        /// The arithmetic that they are done in.
        arithmetic: Dtype,
        /// Bytes read from and written to HBM.
        hbm_bytes: Bytes,
        /// The time of the kernel: that of its roofline, or [`LoopPrice::time`].
        time: Picoseconds,
        /// The side of the roofline that it hits; a loop, without its collective.
        bound: Bound,
        /// The first op of the kernel, if this is not it.
        fused_into: Option<InstrId>,
        /// The price of the loop, if the kernel is a collective einsum or a ring.
        looped: Option<LoopPrice>,
    },
    /// A move.
    Move(CollectiveCost),
}

impl InstrPrice {
    /// The time of the step.
    pub fn time(&self) -> Picoseconds {
        match self {
            InstrPrice::Free => Picoseconds(0),
            InstrPrice::Kernel { time, .. } => *time,
            InstrPrice::Move(cost) => cost.time,
        }
    }

    /// The price of the loop, if the instruction is the first of a collective einsum or a ring.
    pub fn looped(&self) -> Option<&LoopPrice> {
        match self {
            InstrPrice::Kernel { looped, .. } => looped.as_ref(),
            InstrPrice::Move(_) | InstrPrice::Free => None,
        }
    }

    /// What the move, or the collective inside a loop, costs by itself.
    pub fn collective(&self) -> Option<&CollectiveCost> {
        match self {
            InstrPrice::Move(cost) => Some(cost),
            InstrPrice::Kernel { looped: Some(looped), .. } => Some(&looped.collective),
            InstrPrice::Kernel { .. } | InstrPrice::Free => None,
        }
    }
}

/// The sums over a plan, for one layer on one device; every application of a folded block counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Time of all moves, and of the collectives inside loops, each by itself.
    pub comm_time: Picoseconds,
    /// Time of all arithmetic at the rate reached.
    pub compute_time: Picoseconds,
    /// Time of all HBM traffic at full bandwidth.
    pub memory_time: Picoseconds,
    /// Time of all moves, kernels and loops one after another.
    pub serial_time: Picoseconds,
    /// Bytes that the busiest device of each move and each loop sends, summed.
    pub comm_bytes: Bytes,
    /// Floating-point operations.
    pub flops: Flops,
    /// Bytes read from and written to HBM.
    pub hbm_bytes: Bytes,
    /// The largest number of bytes that one layer alone holds at once ([`Memory::layer_peak`]);
    /// what the stack needs is in [`PlanPrice::memory`].
    pub peak_hbm_bytes: Bytes,
}

/// A plan's price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanPrice {
    /// The price of each instruction.
    pub instructions: Vec<InstrPrice>,
    /// The sums of the prices.
    pub totals: Totals,
    /// What a device holds, which every report shows and every limit is compared with.
    pub memory: Memory,
    /// The arithmetic types that the hardware file has no figure for, each once; they are priced as
    /// bf16.
    pub arithmetic_as_bf16: Vec<Dtype>,
}

impl PlanPrice {
    /// The price of an instruction.
    pub fn of(&self, id: InstrId) -> &InstrPrice {
        &self.instructions[id.index()]
    }
}

/// Prices every instruction of a plan on some hardware.
pub fn price(plan: &Plan, hw: &Hardware) -> PlanPrice {
    let mut instructions = vec![InstrPrice::Free; plan.instructions.len()];
    let memory = Memory::of(plan);
    let mut totals = Totals { peak_hbm_bytes: memory.layer_peak(), ..Totals::default() };
    let mut arithmetic_as_bf16 = Vec::new();

    for id in plan.ids() {
        let instr = plan.instruction(id);
        let (InstrKind::Move(collective), [operand]) = (&instr.kind, instr.operands.as_slice())
        else {
            continue;
        };
        let from = plan.instruction(*operand);
        let cost = collective_cost(
            hw,
            &plan.mesh,
            collective,
            from.layout,
            &plan.sizes(&from.dims),
            from.dtype,
        );
        let repeat = plan.repeat_of(id);
        totals.comm_time = totals.comm_time + cost.time.times(repeat);
        totals.serial_time = totals.serial_time + cost.time.times(repeat);
        totals.comm_bytes = totals.comm_bytes + cost.wire_bytes.times(repeat);
        instructions[id.index()] = InstrPrice::Move(cost);
    }

    let local: Vec<Vec<u64>> = plan.ids().map(|id| plan.local_sizes(id)).collect();
    let rings = rings(plan);
    for kernel in kernels(plan) {
        let ring = ring_in(&rings, &kernel);
        let shape = shape_of(plan, ring);
        let work = with_chain(plan, &local, &kernel, |chain| ring_work(chain, &plan.dims, shape));
        let (time, bound) = roofline(hw, &work);
        let looped = loop_price(plan, kernel[0], ring, time, &work, hw);
        let repeat = plan.repeat_of(kernel[0]);
        if let Some(looped) = &looped {
            totals.comm_time = totals.comm_time + looped.collective.time.times(repeat);
            totals.comm_bytes = totals.comm_bytes + looped.collective.wire_bytes.times(repeat);
        }
        let time = looped.map_or(time, |looped| looped.time());
        totals.compute_time = totals.compute_time + compute_time(hw, &work).times(repeat);
        totals.memory_time = totals.memory_time + memory_time(hw, &work).times(repeat);
        totals.serial_time = totals.serial_time + time.times(repeat);
        totals.flops = totals.flops + work.flops.times(repeat);
        totals.hbm_bytes = totals.hbm_bytes + work.hbm_bytes().times(repeat);
        if work.flops > Flops(0)
            && !hw.knows_arithmetic(work.arithmetic)
            && !arithmetic_as_bf16.contains(&work.arithmetic)
        {
            arithmetic_as_bf16.push(work.arithmetic);
        }
        for (i, id) in kernel.iter().enumerate() {
            instructions[id.index()] = match i {
                0 => InstrPrice::Kernel {
                    flops: work.flops,
                    arithmetic: work.arithmetic,
                    hbm_bytes: work.hbm_bytes(),
                    time,
                    bound,
                    fused_into: None,
                    looped,
                },
                _ => InstrPrice::Kernel {
                    flops: Flops(0),
                    arithmetic: work.arithmetic,
                    hbm_bytes: Bytes(0),
                    time: Picoseconds(0),
                    bound,
                    fused_into: Some(kernel[0]),
                    looped: None,
                },
            };
        }
    }
    PlanPrice { instructions, totals, memory, arithmetic_as_bf16 }
}

/// The ring that is part of a kernel.
fn ring_in<'r>(rings: &'r [Ring], kernel: &[InstrId]) -> Option<&'r Ring> {
    rings.iter().find(|ring| kernel.contains(&ring.last()))
}

/// The shape of a ring; [`RingShape::NONE`] if there is none.
fn shape_of(plan: &Plan, ring: Option<&Ring>) -> RingShape {
    ring.map_or(RingShape::NONE, |ring| {
        let last = plan.instruction(ring.last());
        let along = last.layout.split_by(ring.axes).and_then(|at| last.dims.get(at).copied());
        RingShape { steps: ring.steps(plan), along }
    })
}

/// The price of the loop that a kernel is, if it is one: of a collective einsum, or of a ring.
/// `einsum` is the time of the kernel without the collective.
fn loop_price(
    plan: &Plan,
    first: InstrId,
    ring: Option<&Ring>,
    einsum: Picoseconds,
    work: &Work,
    hw: &Hardware,
) -> Option<LoopPrice> {
    let cost = |collective: &Collective, moved: InstrId, from: Layout| {
        let moved = plan.instruction(moved);
        collective_cost(hw, &plan.mesh, collective, from, &plan.sizes(&moved.dims), moved.dtype)
    };
    if let Some(ring) = ring {
        let of = |(moved, collective): &(InstrId, Collective)| {
            cost(collective, *moved, plan.instruction(*moved).layout)
        };
        let collective = ring.travels.iter().map(of).sum();
        let (chunks, full) = (ring.steps(plan), full_step(work, einsum));
        return Some(LoopPrice { collective, einsum, chunks, full });
    }
    let (collective, moved, from) = plan.fused_collective(first)?;
    let chunks = plan.mesh.group_size(collective.axes(&plan.mesh, from).iter());
    let collective = cost(&collective, moved, from);
    Some(LoopPrice { collective, einsum, chunks, full: None })
}

/// The time of each of some kernels, given by their instructions, and the price of its loop if it
/// is one. They need not be the kernels that [`kernels`] finds: in a plan that is written out those
/// may be longer than the kernels of the folded block that it was written from.
pub fn kernel_prices(
    plan: &Plan,
    hw: &Hardware,
    kernels: &[&[InstrId]],
) -> Vec<(Picoseconds, Option<LoopPrice>)> {
    let local: Vec<Vec<u64>> = plan.ids().map(|id| plan.local_sizes(id)).collect();
    let rings = rings(plan);
    let price = |kernel: &&[InstrId]| {
        let ring = ring_in(&rings, kernel);
        let shape = shape_of(plan, ring);
        let work = with_chain(plan, &local, kernel, |chain| ring_work(chain, &plan.dims, shape));
        let (time, _) = roofline(hw, &work);
        let first = kernel.first();
        let looped = first.and_then(|first| loop_price(plan, *first, ring, time, &work, hw));
        (looped.map_or(time, |looped| looped.time()), looped)
    };
    kernels.iter().map(price).collect()
}

/// A value that a kernel reads, and the bytes.
pub type Read = (InstrId, Bytes);

/// The values that a kernel, given by its instructions, reads from HBM, each once; and its work.
pub fn kernel_traffic(plan: &Plan, kernel: &[InstrId]) -> (Vec<Read>, Work) {
    let local: Vec<Vec<u64>> = plan.ids().map(|id| plan.local_sizes(id)).collect();
    let mut reads = Vec::new();
    let rings = rings(plan);
    let shape = shape_of(plan, ring_in(&rings, kernel));
    let work = with_chain(plan, &local, kernel, |chain| {
        kernel_reads(chain, &plan.dims, shape.steps, |member, at, bytes| {
            reads.push((plan.instruction(kernel[member]).operands[at], bytes))
        });
        ring_work(chain, &plan.dims, shape)
    });
    (reads, work)
}

/// The time of a kernel that is an attention if its queries and keys lay in striped blocks, split
/// as in the plan: position p in block p mod n. `None` if the busiest device would not see fewer
/// pairs, or if an op that cannot be given positions depends on the order of these dims. Masks and
/// rotary embeddings can.
pub fn striped(plan: &Plan, hw: &Hardware, kernel: &[InstrId]) -> Option<(Stripes, Picoseconds)> {
    let rings = rings(plan);
    let ring = ring_in(&rings, kernel);
    let shape = shape_of(plan, ring);
    let local: Vec<Vec<u64>> = plan.ids().map(|id| plan.local_sizes(id)).collect();
    let (found, mut work) = with_chain(plan, &local, kernel, |chain| {
        Some((stripes(chain, &plan.dims, shape)?, ring_work(chain, &plan.dims, shape)))
    })?;
    let [contiguous, striped] = found.pairs;
    if striped >= contiguous || !may_be_striped(plan, found.dims) {
        return None;
    }
    // Every product of an attention goes over all pairs in sight, so that their number divides its
    // flops.
    work.flops = Flops((work.flops.0 / contiguous).saturating_mul(striped));
    // With striped blocks all steps are equal.
    let equal_steps = RingPairs { fullest: 1, all: u128::from(shape.steps) };
    work.ring = work.ring.map(|_| equal_steps);
    let (time, _) = roofline(hw, &work);
    let looped = loop_price(plan, *kernel.first()?, ring, time, &work, hw);
    Some((found, looped.map_or(time, |looped| looped.time())))
}

/// Whether no op depends on the order of some dims, but for those that can be given positions. Dims
/// that a rename makes of each other have one order.
fn may_be_striped(plan: &Plan, dims: [DimId; 2]) -> bool {
    let mut ordered: BTreeSet<DimId> = dims.into_iter().collect();
    loop {
        let before = ordered.len();
        for instr in &plan.instructions {
            if let InstrKind::Op(Op::Rename { from, to }) = &instr.kind
                && (ordered.contains(from) || ordered.contains(to))
            {
                ordered.extend([*from, *to]);
            }
        }
        if ordered.len() == before {
            break;
        }
    }
    plan.instructions.iter().filter_map(|instr| instr.kind.op()).all(|op| {
        let goes_by_positions = softmax_over(op).is_some()
            || matches!(op, Op::Mask { .. } | Op::Rope { .. } | Op::Rename { .. });
        goes_by_positions || !op.dims().iter().any(|dim| ordered.contains(dim))
    })
}

/// Calls `of` with the ops of a kernel and the local tensors that they read and make.
fn with_chain<T>(
    plan: &Plan,
    local: &[Vec<u64>],
    kernel: &[InstrId],
    of: impl FnOnce(&[KernelOp<'_>]) -> T,
) -> T {
    let tensor = |id: InstrId| local_tensor(plan, local, id);
    // In a loop every chunk is multiplied: as many elements as if the operand were gathered, or the
    // product not scattered.
    let inside: Vec<Option<LoopSizes>> = kernel.iter().map(|id| LoopSizes::of(plan, *id)).collect();
    let operands: Vec<Vec<LocalTensor<'_>>> = kernel
        .iter()
        .zip(&inside)
        .map(|(id, inside)| {
            let sized = |(at, o): (usize, &InstrId)| match inside {
                Some(inside) => LocalTensor { sizes: &inside.operands[at], ..tensor(*o) },
                None => tensor(*o),
            };
            plan.instruction(*id).operands.iter().enumerate().map(sized).collect()
        })
        .collect();
    let chain: Vec<KernelOp<'_>> = kernel
        .iter()
        .zip(&operands)
        .zip(&inside)
        .filter_map(|((id, operands), inside)| {
            let result = match inside {
                Some(inside) => LocalTensor { sizes: &inside.product, ..tensor(*id) },
                None => tensor(*id),
            };
            Some(KernelOp { op: plan.instruction(*id).kind.op()?, operands, result })
        })
        .collect();
    of(&chain)
}

/// The local sizes of the operands and of the product of a collective einsum, in all chunks
/// together.
struct LoopSizes {
    operands: Vec<Vec<u64>>,
    product: Vec<u64>,
}

impl LoopSizes {
    fn of(plan: &Plan, id: InstrId) -> Option<LoopSizes> {
        let (_, layouts) = plan.loop_layouts(id)?;
        let local = |id: InstrId, layout: Layout| {
            let sizes = plan.sizes(&plan.instruction(id).dims);
            MeshShape { mesh: &plan.mesh, sizes: &sizes }.local_sizes(layout)
        };
        let operands = plan
            .instruction(id)
            .operands
            .iter()
            .zip(&layouts.operands)
            .map(|(o, l)| local(*o, *l))
            .collect();
        Some(LoopSizes { operands, product: local(id, layouts.product) })
    }
}

fn local_tensor<'a>(plan: &'a Plan, local: &'a [Vec<u64>], id: InstrId) -> LocalTensor<'a> {
    let instr = plan.instruction(id);
    let made = unmoved(plan, id);
    LocalTensor {
        value: made.0,
        dims: &instr.dims,
        sizes: &local[id.index()],
        dtype: instr.dtype,
        // Also a number that a move has made partial: every device knows it.
        constant: plan.constant(made),
        statistics: plan.local_statistics(id),
    }
}
