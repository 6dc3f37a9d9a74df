//! [`Unit`]: what runs as one, and which streams it keeps busy meanwhile.

use shard_cost::{InstrPrice, LoopPrice, PlanPrice, Streams, kernels, moved_over};
use shard_ir::{InstrId, InstrKind, Op, Picoseconds, Plan};

/// What runs as one: a kernel, a transfer, a fetch, or the loop of a collective einsum with all of
/// its chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// What it runs, in program order. A kernel has several instructions, anything else one.
    pub members: Vec<InstrId>,
    /// How long it takes.
    pub time: Picoseconds,
    /// What it keeps busy, and when.
    pub busy: Vec<Busy>,
}

/// A time in which a unit keeps a stream busy, counted from the unit's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy {
    /// The stream, as [`Streams`] numbers it.
    pub stream: usize,
    /// From when.
    pub from: Picoseconds,
    /// Until when.
    pub until: Picoseconds,
    /// What is done.
    pub part: Part,
}

/// What a unit does on a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// All of a kernel.
    Kernel,
    /// All of a transfer between chips.
    Transfer,
    /// All of a transfer from the host.
    Fetch,
    /// The multiplication of a chunk of a loop, from 0.
    Chunk(u64),
    /// A transfer of a loop, from 1. Where a loop gathers, it brings what the chunk of its number
    /// multiplies; where it scatters, it sends what the chunk before its number has made.
    Send(u64),
}

impl Unit {
    /// Its first instruction.
    pub fn first(&self) -> InstrId {
        self.members.first().copied().unwrap_or_default()
    }
}

/// Kernels, transfers, fetches and loops of a plan, in the order of their last instructions: each
/// behind all that it reads.
pub(super) fn units(plan: &Plan, price: &PlanPrice, streams: &Streams) -> Vec<Unit> {
    let mut units: Vec<Unit> = kernels(plan)
        .into_iter()
        .filter_map(|members| kernel(plan, price, streams, members))
        .collect();
    let is_move = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Move(_));
    units.extend(plan.ids().filter(is_move).map(|id| transfer(plan, price, streams, id)));
    units.sort_by_key(|unit| unit.members.last().copied());
    units
}

fn whole(stream: usize, time: Picoseconds, part: Part) -> Vec<Busy> {
    let busy = Busy { stream, from: Picoseconds(0), until: time, part };
    Vec::from_iter((time > Picoseconds(0)).then_some(busy))
}

/// A move without traffic is the device's own work, and takes no time.
fn transfer(plan: &Plan, price: &PlanPrice, streams: &Streams, id: InstrId) -> Unit {
    let time = price.of(id).time();
    let used = match price.of(id) {
        InstrPrice::Move(cost) if cost.time > Picoseconds(0) => over(plan, streams, id),
        InstrPrice::Move(_) | InstrPrice::Kernel { .. } | InstrPrice::Free => Vec::new(),
    };
    let busy = used.into_iter().flat_map(|stream| whole(stream, time, Part::Transfer)).collect();
    Unit { members: vec![id], time, busy }
}

/// The streams of what an instruction sends between chips.
fn over(plan: &Plan, streams: &Streams, id: InstrId) -> Vec<usize> {
    moved_over(plan, id).map_or_else(Vec::new, |axes| streams.of_axes(axes))
}

fn kernel(
    plan: &Plan,
    price: &PlanPrice,
    streams: &Streams,
    members: Vec<InstrId>,
) -> Option<Unit> {
    let first = *members.first()?;
    let time = price.of(first).time();
    let busy = match (price.of(first).looped(), &plan.instruction(first).kind) {
        (Some(looped), InstrKind::CollectiveEinsum(fused)) => {
            chunks(looped, fused.gathered().is_some(), &over(plan, streams, first))
        }
        (_, InstrKind::Op(Op::Fetch)) => whole(Streams::HOST, time, Part::Fetch),
        _ => whole(Streams::COMPUTE, time, Part::Kernel),
    };
    Some(Unit { members, time, busy })
}

/// The chunks of a loop one by one, and its transfers beside them.
///
/// With K chunks there are K - 1 transfers. Where links have two directions, half of what a
/// transfer brings comes from either side. A loop that gathers multiplies its own chunk first, and
/// each other when the transfer of its number has brought it; one that scatters is the same
/// backwards.
fn chunks(looped: &LoopPrice, gathers: bool, used: &[usize]) -> Vec<Busy> {
    let (count, send, time) = (looped.chunks.max(1), looped.collective.time.0, looped.time().0);
    let last = looped.einsum.0.div_ceil(count);
    let others = looped.einsum.0 - last;
    // Rounded down alike, so that no chunk waits where the sums say that none does.
    let part = |of: u64, at: u64| {
        (u128::from(of) * u128::from(at) / u128::from((count - 1).max(1))) as u64
    };
    let mut found: Vec<(Option<usize>, u64, u64, Part)> = Vec::new();
    let mut end = 0;
    for chunk in 0..count {
        let there = if chunk == 0 { 0 } else { part(send, chunk) };
        let begin = there.max(end);
        let takes =
            if chunk + 1 == count { last } else { part(others, chunk + 1) - part(others, chunk) };
        end = begin + takes;
        found.push((None, begin, end, Part::Chunk(chunk)));
    }
    for at in 1..count {
        found.extend(
            used.iter()
                .map(|stream| (Some(*stream), part(send, at - 1), part(send, at), Part::Send(at))),
        );
    }
    let place = |(stream, from, until, part): (Option<usize>, u64, u64, Part)| {
        let (from, until, part) = match (gathers, part) {
            (true, part) => (from, until, part),
            (false, Part::Chunk(at)) => (time - until, time - from, Part::Chunk(count - 1 - at)),
            (false, Part::Send(at)) => (time - until, time - from, Part::Send(count - at)),
            (false, part) => (time - until, time - from, part),
        };
        Busy {
            stream: stream.unwrap_or(Streams::COMPUTE),
            from: Picoseconds(from),
            until: Picoseconds(until),
            part,
        }
    };
    let mut busy: Vec<Busy> =
        found.into_iter().map(place).filter(|busy| busy.until > busy.from).collect();
    busy.sort_by_key(|busy| (busy.stream, busy.from));
    busy
}
