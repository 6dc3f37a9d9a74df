//! The costs of moves, parameters and kernels.

use std::borrow::Cow;

use shard_cost::{
    CollectiveCost, Hardware, RegroupTimes, RingShape, Work, collective_cost, loop_time, roofline,
};
use shard_ir::catalogue::Sends;
use shard_ir::{Collective, DimId, Dtype, Fused, Layout, MeshShape, Picoseconds, Program, ValueId};

use crate::cost::Cost;
use crate::in_pieces::{Held, HeldOp, InPieces, work_of};
use crate::kernel::{Kernel, Kernels};

/// The number of steps that a move counts as where plans of fewer steps are preferred.
pub(crate) fn steps_of(collective: &Collective) -> u64 {
    match (collective.row().sends, collective.terms().dims) {
        (Sends::AroundTwice, _) => 2,
        // An all-reduce of the statistics comes before the sum.
        (Sends::Weighted, [None, _]) => 4,
        (Sends::Weighted, [Some(_), _]) => 3,
        (Sends::Around | Sends::Across | Sends::Blocks | Sends::Lacking | Sends::Nothing, _) => 1,
    }
}

/// All that the cost of a move depends on, besides the sizes of dims and the hardware.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MoveKey<'d> {
    /// The dims of the value, in memory order.
    pub(crate) dims: &'d [DimId],
    pub(crate) dtype: Dtype,
    pub(crate) collective: Collective,
    pub(crate) from_layout: Layout,
    pub(crate) to_layout: Layout,
}

/// The cost of doing a move of a value once.
pub(crate) fn move_cost(
    program: &Program,
    times: &mut RegroupTimes<'_>,
    moved: &MoveKey<'_>,
) -> Cost {
    let hardware = times.hardware();
    let MoveKey { dims, dtype, collective, from_layout, to_layout } = moved;
    let sizes = program.sizes(dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let price = times.cost(collective, *from_layout, &sizes, *dtype);
    let steps = steps_of(collective);
    let elements = if collective.has_traffic() || hardware.has_free_ops() {
        0
    } else {
        shape.local_elements(*to_layout)
    };
    Cost { time: price.time.0, elements, steps, moved: price.wire_bytes.0, ..Cost::ZERO }
}

/// The cost of having a parameter in a layout.
pub(crate) fn parameter_cost(program: &Program, value: ValueId, layout: Layout) -> Cost {
    let sizes = program.sizes(&program.value(value).dims);
    let elements = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(layout);
    Cost { resident: program.value(value).dtype.bytes(elements), ..Cost::ZERO }
}

/// The cost of a kernel that reads its operands in the layouts `read` and makes its value in
/// `made`, with the collective in the loop of its first op; `None` where the layouts do not fit
/// together. Where the first op is a composite in pieces, the cost of all pieces is included; the
/// last of them lead the kernel.
pub(crate) fn kernel_cost(
    kernels: &Kernels,
    hardware: &Hardware,
    kernel: &Kernel,
    fused: Option<&Fused>,
    read: &[Layout],
    made: Layout,
) -> Option<Cost> {
    let program = kernels.program.as_ref();
    let links = kernels.links(kernel, fused, read, made)?;
    let mut chain: Vec<HeldOp<'_>> = Vec::with_capacity(kernel.chain.len());
    let mut before = Cost::ZERO;
    for (link, (id, of)) in kernel.chain.iter().zip(&links).enumerate() {
        let layouts = &of.inside;
        let site = kernels.site(*id);
        if kernels.is_in_pieces(kernel, link, layouts) {
            let pieces = InPieces::new(kernels, hardware, *id, layouts[0])?;
            before = pieces.before_the_last(hardware);
            chain = pieces.last_kernel();
            continue;
        }
        let result = Held::of(kernels, *id, of.made);
        let operands = program.value(*id).def.operands().iter().zip(layouts);
        let operands =
            operands.map(|(operand, layout)| Held::of(kernels, *operand, *layout)).collect();
        chain.push(HeldOp { op: Cow::Borrowed(site.op), operands, result });
    }
    let elements = chain.iter().fold(0u64, |n, op| n.saturating_add(op.elements()));
    let is_ring = kernel.attention > 0 && fused.is_some();
    let ring = fused.filter(|_| is_ring).map(|fused| kernels.ring_shape(kernel, fused, &links));
    let work = work_of(&chain, &program.dims, ring.unwrap_or(RingShape::NONE));
    let cost = before + work_cost(hardware, &work, elements);
    let Some(fused) = fused else { return Some(cost) };
    let first = kernel.chain[0];
    let all = match fused.gathered() {
        _ if is_ring => kernels.travelling(kernel, &links),
        Some(place) => {
            let moved = *program.value(first).def.operands().get(place)?;
            vec![(moved, *read.get(place)?, fused.collective())]
        }
        None => vec![(first, links[0].made, fused.collective())],
    };
    let price = travel_cost(program, hardware, &all);
    let chunks = fused.chunks(&program.mesh);
    let time = loop_time(price.time, &work, Picoseconds(cost.time), chunks);
    Some(Cost { time: time.0, steps: 1, moved: price.wire_bytes.0, ..cost })
}

/// The cost of some collectives, each of a value in a layout, one after the other.
pub(crate) fn travel_cost(
    program: &Program,
    hardware: &Hardware,
    all: &[(ValueId, Layout, Collective)],
) -> CollectiveCost {
    let cost = |(value, from, collective): &(ValueId, Layout, Collective)| {
        let of = program.value(*value);
        let sizes = program.sizes(&of.dims);
        collective_cost(hardware, &program.mesh, collective, *from, &sizes, of.dtype)
    };
    all.iter().map(cost).sum()
}

/// The cost of a kernel that does this work and touches so many elements.
pub(crate) fn work_cost(hardware: &Hardware, work: &Work, elements: u64) -> Cost {
    let (time, _) = roofline(hardware, work);
    // Where communication alone counts, ties are broken by flops and not by elements.
    let elements = if hardware.has_free_ops() {
        u64::try_from(work.flops.0).unwrap_or(u64::MAX)
    } else {
        elements
    };
    Cost { time: time.0, elements, ..Cost::ZERO }
}
