//! [`Unit`]: what runs as one, and which streams it keeps busy meanwhile.

use shard_cost::{LoopPrice, PlanPrice, Streams, kernels, moved_over};
use shard_ir::{InstrId, InstrKind, Op, Picoseconds, Plan, never};

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
        first_of(&self.members)
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

fn first_of(members: &[InstrId]) -> InstrId {
    let first = members.first().copied();
    first.unwrap_or_else(|| never!("a unit without instructions", InstrId::default()))
}

fn whole(stream: usize, time: Picoseconds, part: Part) -> Vec<Busy> {
    let busy = Busy { stream, from: Picoseconds(0), until: time, part };
    Vec::from_iter((time > Picoseconds(0)).then_some(busy))
}

/// A move without traffic is the device's own work, and takes no time.
fn transfer(plan: &Plan, price: &PlanPrice, streams: &Streams, id: InstrId) -> Unit {
    transfer_unit(plan, streams, id, price.of(id).time())
}

/// A move that takes a time.
pub(super) fn transfer_unit(
    plan: &Plan,
    streams: &Streams,
    id: InstrId,
    time: Picoseconds,
) -> Unit {
    let used = if time > Picoseconds(0) { over(plan, streams, id) } else { Vec::new() };
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
    let of_first = price.of(*members.first()?);
    Some(kernel_unit(plan, streams, members, (of_first.time(), of_first.looped())))
}

/// A kernel or a loop of its price.
pub(super) fn kernel_unit(
    plan: &Plan,
    streams: &Streams,
    members: Vec<InstrId>,
    (time, looped): (Picoseconds, Option<&LoopPrice>),
) -> Unit {
    let first = first_of(&members);
    let busy = match (looped, &plan.instruction(first).kind) {
        (Some(looped), InstrKind::CollectiveEinsum(fused)) => {
            chunks(looped, fused.gathered().is_some(), &over(plan, streams, first))
        }
        (_, InstrKind::Op(Op::Fetch)) => whole(Streams::HOST, time, Part::Fetch),
        _ => whole(Streams::COMPUTE, time, Part::Kernel),
    };
    Unit { members, time, busy }
}

/// The chunks of a loop one by one, and its transfers beside them.
///
/// With K chunks there are K - 1 transfers. Where links have two directions, half of what a
/// transfer brings comes from either side. A loop that gathers multiplies its own chunk first, and
/// each other when the transfer of its number has brought it; one that scatters is the same
/// backwards.
///
/// While a chunk is multiplied the next one comes, and no other: the loop has room for two
/// ([`Plan::loops_held`]), and where the one that is multiplied lies the one behind the next is to
/// come.
fn chunks(looped: &LoopPrice, gathers: bool, used: &[usize]) -> Vec<Busy> {
    let (count, send, time) = (looped.chunks.max(1), looped.collective.time.0, looped.time().0);
    let beside = count - 1;
    let last = looped.full.map_or(looped.einsum.0.div_ceil(count), |full| full.0);
    let last = if beside == 0 { looped.einsum.0 } else { last };
    let (windows, multiplied, sent) = match looped.full {
        Some(_) => of_ring(looped.einsum.0, last, send, beside),
        None => {
            let others = looped.einsum.0 - last;
            let windows = parts(send.max(others), beside);
            let (multiplied, sent) = (within(others, &windows), within(send, &windows));
            (windows, multiplied, sent)
        }
    };
    let mut found: Vec<(Option<usize>, u64, u64, Part)> = Vec::new();
    let mut begin = 0;
    for (at, window) in windows.iter().enumerate() {
        let at = at as u64;
        found.push((None, begin, begin + multiplied[at as usize], Part::Chunk(at)));
        let until = begin + sent[at as usize];
        let send = |stream: &usize| (Some(*stream), begin, until, Part::Send(at + 1));
        found.extend(used.iter().map(send));
        begin += window;
    }
    found.push((None, begin, begin + last, Part::Chunk(beside)));
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

/// Of a ring the time of each step but the last, and what is worked on and what is sent in it: the
/// first step takes what the full ones leave, and the transfers are equal.
fn of_ring(attention: u64, full: u64, send: u64, beside: u64) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let first = attention.saturating_sub(full.saturating_mul(beside));
    let worked: Vec<u64> = (0..beside).map(|at| if at == 0 { first } else { full }).collect();
    let sent = parts(send, beside);
    let windows = worked.iter().zip(&sent).map(|(work, sent)| *work.max(sent)).collect();
    (windows, worked, sent)
}

/// So many whole parts of a time, as equal as they can be.
fn parts(of: u64, count: u64) -> Vec<u64> {
    let until = |at: u64| (u128::from(of) * u128::from(at) / u128::from(count.max(1))) as u64;
    (0..count).map(|at| until(at + 1) - until(at)).collect()
}

/// Parts of a time, as equal as they can be where none is longer than its window; all windows
/// together are no shorter than the time.
fn within(of: u64, windows: &[u64]) -> Vec<u64> {
    let mut left = 0;
    let equal = parts(of, windows.len() as u64);
    equal
        .into_iter()
        .zip(windows)
        .map(|(part, window)| {
            let takes = (part + left).min(*window);
            left = part + left - takes;
            takes
        })
        .collect()
}
