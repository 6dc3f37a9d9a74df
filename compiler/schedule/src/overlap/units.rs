//! [`Unit`]: instructions that run as one, and which streams they keep busy meanwhile.

use shard_cost::{LoopPrice, PlanPrice, Streams, kernels, moved_over};
use shard_ir::{InstrId, InstrKind, Op, Picoseconds, Plan, never};

/// Instructions that run as one: a kernel, a transfer, a fetch, or the loop of a collective einsum
/// with all of its chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its instructions, in program order. Only a kernel may have several.
    pub members: Vec<InstrId>,
    /// How long it takes.
    pub time: Picoseconds,
    /// Which streams it keeps busy, and when.
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
    /// What the unit does on the stream meanwhile.
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

/// The units of a plan, in the order of their last instructions, so that each comes behind the
/// units that make what it reads.
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

/// The unit of a move. A move without traffic takes no time.
fn transfer(plan: &Plan, price: &PlanPrice, streams: &Streams, id: InstrId) -> Unit {
    transfer_unit(plan, streams, id, price.of(id).time())
}

/// The unit of a move that takes a time.
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

/// The streams of the mesh axes that an instruction sends over.
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
    Some(kernel_unit(plan, streams, members, of_first.time(), of_first.looped()))
}

/// A kernel that takes `time`, or a loop of this price.
pub(super) fn kernel_unit(
    plan: &Plan,
    streams: &Streams,
    members: Vec<InstrId>,
    time: Picoseconds,
    looped: Option<&LoopPrice>,
) -> Unit {
    let first = first_of(&members);
    let busy = match (looped, &plan.instruction(first).kind) {
        (Some(looped), InstrKind::CollectiveEinsum(fused)) => {
            chunks(looped, fused.gathered().is_some(), &over(plan, streams, first))
        }
        (_, InstrKind::Op(Op::Fetch)) => whole(Streams::HOST, time, Part::Fetch),
        (
            _,
            InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_)
            | InstrKind::Move(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_),
        ) => whole(Streams::COMPUTE, time, Part::Kernel),
    };
    Unit { members, time, busy }
}

/// When a loop multiplies its chunks, and when its transfers keep the streams `used` busy.
///
/// With K chunks there are K - 1 transfers. Where links have two directions, half of what a
/// transfer brings comes from either side. A loop that gathers multiplies its own chunk first, and
/// each other chunk when the transfer of its number has brought it. One that scatters is the same
/// backwards.
///
/// While a chunk is multiplied, the next one comes and no other: the loop has room for two chunks
/// ([`Plan::loops_held`]), and the chunk behind the next one comes into the place of the chunk that
/// is multiplied.
fn chunks(looped: &LoopPrice, gathers: bool, used: &[usize]) -> Vec<Busy> {
    let (count, send) = (looped.chunks.max(1), looped.collective.time.0);
    let beside = count - 1;
    let last = looped.full.map_or(looped.einsum.0.div_ceil(count), |full| full.0);
    let last = if beside == 0 { looped.einsum.0 } else { last };
    let steps = match looped.full {
        Some(_) => steps_of_ring(looped.einsum.0, last, send, beside),
        None => steps_of_einsum(looped.einsum.0 - last, send, beside),
    };
    let busy = |stream: usize, from: u64, time: u64, part: Part| {
        let (from, until) = (Picoseconds(from), Picoseconds(from + time));
        Busy { stream, from, until, part }
    };
    let mut found: Vec<Busy> = Vec::new();
    let mut begin = 0;
    for (at, step) in (0..).zip(steps) {
        found.push(busy(Streams::COMPUTE, begin, step.multiplied, Part::Chunk(at)));
        found.extend(used.iter().map(|stream| busy(*stream, begin, step.sent, Part::Send(at + 1))));
        begin += step.time;
    }
    found.push(busy(Streams::COMPUTE, begin, last, Part::Chunk(beside)));
    if !gathers {
        let end = looped.time();
        for busy in &mut found {
            let backwards = |time: Picoseconds| Picoseconds(end.0 - time.0);
            (busy.from, busy.until) = (backwards(busy.until), backwards(busy.from));
            busy.part = match busy.part {
                Part::Chunk(at) => Part::Chunk(count - 1 - at),
                Part::Send(at) => Part::Send(count - at),
                part @ (Part::Kernel | Part::Transfer | Part::Fetch) => part,
            };
        }
    }
    found.retain(|busy| busy.until > busy.from);
    found.sort_by_key(|busy| (busy.stream, busy.from));
    found
}

/// A step of a loop in which a chunk is multiplied while another is sent; in picoseconds.
struct LoopStep {
    /// How long the step takes: no less than either of the two.
    time: u64,
    multiplied: u64,
    sent: u64,
}

/// The steps of the loop of an einsum, all equal: those of `beside` chunks, whose multiplication
/// and whose transfers take these times together.
fn steps_of_einsum(einsum: u64, send: u64, beside: u64) -> Vec<LoopStep> {
    let times = parts(send.max(einsum), beside);
    let multiplied = within(einsum, &times).into_iter();
    let both = multiplied.zip(within(send, &times));
    let step = |(time, (multiplied, sent))| LoopStep { time, multiplied, sent };
    times.into_iter().zip(both).map(step).collect()
}

/// The steps of a ring but the last: the first one multiplies what the full ones leave of the
/// attention, and the transfers are equal.
fn steps_of_ring(attention: u64, full: u64, send: u64, beside: u64) -> Vec<LoopStep> {
    let first = attention.saturating_sub(full.saturating_mul(beside));
    let multiplied = (0..beside).map(|at| if at == 0 { first } else { full });
    let both = multiplied.zip(parts(send, beside));
    both.map(|(multiplied, sent)| LoopStep { time: multiplied.max(sent), multiplied, sent })
        .collect()
}

/// A time cut into `count` whole parts, as equal as they can be.
fn parts(of: u64, count: u64) -> Vec<u64> {
    let until = |at: u64| (u128::from(of) * u128::from(at) / u128::from(count.max(1))) as u64;
    (0..count).map(|at| until(at + 1) - until(at)).collect()
}

/// A time cut into one part for each window, no longer than the window and else as equal as they
/// can be. All windows together are no shorter than the time.
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
