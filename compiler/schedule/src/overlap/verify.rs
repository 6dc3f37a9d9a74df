//! Checks a timeline against the plan, its price and the chip, whatever made it.

use std::collections::HashMap;

use shard_cost::{Hardware, InstrPrice, PlanPrice, Streams, kernels, moved_over};
use shard_ir::{InstrId, InstrKind, Op, Picoseconds, Plan};

use super::addresses::{Placed, placed};
use super::live::buffers;
use super::place::Run;
use super::stages::UnitCopy;
use super::units::{Part, Unit};
use super::{Buffer, Timeline};

/// Why a timeline cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimelineError {
    /// An instruction that is not run once in each copy, or whose unit is not its kernel.
    #[error("instruction {} is not run as its kernel is, once in each copy", .0.0)]
    NotOnce(InstrId),
    /// A step that starts before an operand is made.
    #[error("instruction {} of copy {copy} starts before its operand {} is made", id.0, operand.0)]
    TooEarly {
        /// The step.
        id: InstrId,
        /// The copy that it is of.
        copy: u64,
        /// The operand.
        operand: InstrId,
    },
    /// A step that overwrites a value which another step has still to read.
    #[error("instruction {} of copy {copy} overwrites what {} is still to read", id.0, by.0)]
    Overwritten {
        /// The step.
        id: InstrId,
        /// The copy that it is of.
        copy: u64,
        /// What reads it.
        by: InstrId,
    },
    /// A step that does other work than its price says, or on other streams.
    #[error("instruction {} keeps a stream busy for another time than its price says", .0.0)]
    Work(InstrId),
    /// A chunk that is multiplied before it is there, or sent before it is made.
    #[error("chunk {chunk} of the loop {} comes too early", id.0)]
    Chunk {
        /// The loop.
        id: InstrId,
        /// The chunk.
        chunk: u64,
    },
    /// Two steps at once on one stream.
    #[error("instructions {} and {} keep the stream `{stream}` busy at once", first.0, second.0)]
    StreamBusy {
        /// The step that starts first.
        first: InstrId,
        /// The other.
        second: InstrId,
        /// The stream.
        stream: String,
    },
    /// A copy that starts before the copy two before it is done.
    #[error("copy {copy} of instruction {} runs beside more than its neighbours", id.0)]
    TooFarAhead {
        /// A step of the copy.
        id: InstrId,
        /// The copy.
        copy: u64,
    },
    /// More bytes are live at once than the limit of the timeline.
    #[error("{needed} bytes are live at once, and there are {limit}")]
    Memory {
        /// What is needed.
        needed: u64,
        /// What there is.
        limit: u64,
    },
    /// The makespan or the peak is not that of the steps.
    #[error(
        "the timeline says that it is done after {found} ps and holds {bytes} bytes at its peak"
    )]
    Figures {
        /// The time that it says.
        found: u64,
        /// The bytes that it says.
        bytes: u64,
    },
    /// Two buffers at one address at the same time.
    #[error("the buffers of {} and {} share bytes at the same time", first.0, second.0)]
    Address {
        /// One buffer.
        first: InstrId,
        /// The other.
        second: InstrId,
    },
}

/// How many of the copies that are not listed are looked at. With three, copies have all the
/// neighbours that they have with any larger number.
const LOOKED_AT: u64 = 3;

/// Checks that a timeline runs every unit once in each copy, after its operands and for as long as
/// its price says; that each stream does one thing at a time, so that no link carries more than it
/// can; that its buffers can be placed at addresses where none overlap, and fit into the limit; and
/// that its makespan and its peak are those of its steps.
pub fn verify_timeline(
    plan: &Plan,
    price: &PlanPrice,
    hardware: &Hardware,
    timeline: &Timeline,
) -> Result<(), TimelineError> {
    let runs = timeline.expanded(LOOKED_AT);
    verify_units(plan, timeline, &runs)?;
    timeline.stages.units.iter().try_for_each(|unit| verify_work(plan, price, hardware, unit))?;
    verify_order(plan, timeline, &runs)?;
    verify_streams(timeline, &runs)?;
    let held = buffers(plan, timeline, LOOKED_AT);
    if held.peak() > timeline.limit {
        return Err(TimelineError::Memory { needed: held.peak(), limit: timeline.limit });
    }
    verify_addresses(&placed(&held))?;
    let (time, bytes) = (timeline.makespan_of_all(), buffers(plan, timeline, 0).peak());
    if (time, bytes) != (timeline.makespan, timeline.peak_bytes) || held.peak() != bytes {
        return Err(TimelineError::Figures {
            found: timeline.makespan.0,
            bytes: timeline.peak_bytes,
        });
    }
    match &timeline.stack {
        Some(stack) => verify_timeline(plan, price, hardware, stack),
        None => Ok(()),
    }
}

/// Checks that the units are the kernels and the moves of the plan, and that each is run once in
/// each copy.
fn verify_units(plan: &Plan, timeline: &Timeline, runs: &[Run]) -> Result<(), TimelineError> {
    let kernels = kernels(plan);
    let mut kernel_of: Vec<Option<&[InstrId]>> = vec![None; plan.instructions.len()];
    for kernel in &kernels {
        kernel.iter().for_each(|id| kernel_of[id.index()] = Some(kernel));
    }
    for id in plan.ids() {
        let own = [id];
        let wanted = match plan.instruction(id).kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => None,
            InstrKind::Move(_) => Some(own.as_slice()),
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => kernel_of[id.index()],
        };
        let unit = timeline.stages.unit_of(id);
        let found = unit
            .and_then(|unit| timeline.stages.units.get(unit))
            .map(|unit| unit.members.as_slice());
        if found != wanted {
            return Err(TimelineError::NotOnce(id));
        }
    }
    let mut times: HashMap<UnitCopy, u64> = HashMap::new();
    runs.iter().for_each(|run| *times.entry(run.unit_copy()).or_default() += 1);
    for (at, unit) in timeline.stages.units.iter().enumerate() {
        let stage = timeline.stages.stage_of(at);
        let copies = timeline.expanded_copies(stage, LOOKED_AT);
        let all = timeline.stages.stages[stage].copies;
        let wanted = match (timeline.is_stack, plan.runs_in(unit.first())) {
            (true, _) => plan.repeat,
            (false, Some(fold)) => plan.folds[fold.index()].repeat,
            (false, None) => 1,
        };
        let is_run_once = |copy| times.get(&UnitCopy { unit: at, copy }) == Some(&1);
        if all != wanted || !(0..copies).all(is_run_once) {
            return Err(TimelineError::NotOnce(unit.first()));
        }
    }
    Ok(())
}

/// Checks that a unit keeps its streams busy for as long as its price says: the cores, the link to
/// the host, and all streams of the mesh axes that it sends over.
fn verify_work(
    plan: &Plan,
    price: &PlanPrice,
    hardware: &Hardware,
    unit: &Unit,
) -> Result<(), TimelineError> {
    let first = unit.first();
    let wrong = Err(TimelineError::Work(first));
    let streams = Streams::of(hardware, &plan.mesh);
    let on = |stream: usize| -> Picoseconds {
        unit.busy
            .iter()
            .filter(|b| b.stream == stream)
            .map(|b| Picoseconds(b.until.0.saturating_sub(b.from.0)))
            .sum()
    };
    if unit.busy.iter().any(|busy| busy.until > unit.time || busy.from >= busy.until) {
        return wrong;
    }
    let listed = |at: usize| {
        unit.busy[..at]
            .iter()
            .any(|b| (b.stream, b.part) == (unit.busy[at].stream, unit.busy[at].part))
    };
    if (0..unit.busy.len()).any(listed) {
        return wrong;
    }
    let over = moved_over(plan, first).map_or_else(Vec::new, |axes| streams.of_axes(axes));
    let (compute, host, sent) = match (price.of(first), &plan.instruction(first).kind) {
        (InstrPrice::Kernel { looped: Some(looped), .. }, _) => {
            verify_chunks(plan, unit, looped.chunks)?;
            (looped.einsum, Picoseconds(0), looped.collective.time)
        }
        (InstrPrice::Kernel { time, .. }, InstrKind::Op(Op::Fetch)) => {
            (Picoseconds(0), *time, Picoseconds(0))
        }
        (InstrPrice::Kernel { time, .. }, _) => (*time, Picoseconds(0), Picoseconds(0)),
        (InstrPrice::Move(cost), _) => (Picoseconds(0), Picoseconds(0), cost.time),
        (InstrPrice::Free, _) => return wrong,
    };
    let sends = |stream: usize| if over.contains(&stream) { sent } else { Picoseconds(0) };
    let right = on(Streams::COMPUTE) == compute
        && on(Streams::HOST) == host
        && streams.of_networks().all(|stream| on(stream) == sends(stream))
        && unit.time == price.of(first).time();
    if right { Ok(()) } else { wrong }
}

/// Checks that a chunk that is gathered arrives before it is multiplied, and that one that is
/// scattered is made before it is sent; and that there are no more than two chunks at once beside
/// the device's own.
fn verify_chunks(plan: &Plan, unit: &Unit, chunks: u64) -> Result<(), TimelineError> {
    let id = unit.first();
    let gathers = plan.instruction(id).kind.gathers_in_a_loop();
    let of = |wanted: Part| unit.busy.iter().filter(move |busy| busy.part == wanted);
    for at in 1..chunks {
        // A part of less than a picosecond is not listed.
        let too_early = if gathers {
            of(Part::Send(at)).any(|send| of(Part::Chunk(at)).any(|chunk| chunk.from < send.until))
        } else {
            of(Part::Send(at))
                .any(|send| of(Part::Chunk(at - 1)).any(|chunk| send.from < chunk.until))
        };
        // There is room for two chunks beside the device's own.
        let has_no_room = if gathers {
            of(Part::Send(at + 2))
                .any(|send| of(Part::Chunk(at)).any(|chunk| send.from < chunk.until))
        } else {
            of(Part::Chunk(at + 1))
                .any(|chunk| of(Part::Send(at)).any(|send| chunk.from < send.until))
        };
        if too_early || has_no_room {
            return Err(TimelineError::Chunk { id, chunk: at });
        }
    }
    Ok(())
}

/// Checks that a unit starts when all units that it waits for are done, and no copy before the copy
/// two before it is done.
fn verify_order(plan: &Plan, timeline: &Timeline, runs: &[Run]) -> Result<(), TimelineError> {
    let stages = &timeline.stages;
    let copies = |stage: usize| timeline.expanded_copies(stage, LOOKED_AT);
    let run_of: HashMap<UnitCopy, &Run> = runs.iter().map(|run| (run.unit_copy(), run)).collect();
    let is_done =
        |by: &UnitCopy, at: Picoseconds| run_of.get(by).is_some_and(|by| timeline.finish(by) <= at);
    for run in runs {
        let stage = stages.stage_of(run.unit);
        for by in stages.read_before(run.unit_copy(), copies) {
            if !is_done(&by, run.start) {
                let (id, by) = (stages.units[run.unit].first(), stages.units[by.unit].first());
                return Err(TimelineError::Overwritten { id, copy: run.copy, by });
            }
        }
        for id in &stages.units[run.unit].members {
            for operand in &plan.instruction(*id).operands {
                let made = stages.read(*operand, stage, run.copy, copies);
                let by = stages.unit_of(made.id).map(|unit| UnitCopy { unit, copy: made.copy });
                let by = by.filter(|by| *by != run.unit_copy());
                if by.is_some_and(|by| !is_done(&by, run.start)) {
                    return Err(TimelineError::TooEarly {
                        id: *id,
                        copy: run.copy,
                        operand: *operand,
                    });
                }
            }
        }
    }
    // Copies that are not listed can stand between listed ones only since each copy runs beside its
    // two neighbours at most (`steady`).
    let mut ends: Vec<Picoseconds> = Vec::new();
    let place = |run: &Run| (stages.stage_of(run.unit), run.copy);
    for copy in runs.chunk_by(|a, b| place(a) == place(b)) {
        let before = ends.len().checked_sub(2).map_or(Picoseconds(0), |at| ends[at]);
        if let Some(run) = copy.iter().find(|run| run.start < before) {
            return Err(TimelineError::TooFarAhead {
                id: stages.units[run.unit].first(),
                copy: run.copy,
            });
        }
        let end = copy.iter().map(|run| timeline.finish(run)).max().unwrap_or_default();
        ends.push(ends.last().map_or(end, |last| end.max(*last)));
    }
    Ok(())
}

/// Checks that each stream does one thing at a time.
fn verify_streams(timeline: &Timeline, runs: &[Run]) -> Result<(), TimelineError> {
    let mut on: Vec<Vec<(Picoseconds, Picoseconds, InstrId)>> =
        vec![Vec::new(); timeline.streams.names().len()];
    for run in runs {
        let unit = &timeline.stages.units[run.unit];
        for busy in &unit.busy {
            on[busy.stream].push((run.start + busy.from, run.start + busy.until, unit.first()));
        }
    }
    for (stream, on) in timeline.streams.names().iter().zip(&mut on) {
        on.sort_unstable();
        if let Some(pair) = on.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            let stream = stream.clone();
            return Err(TimelineError::StreamBusy { first: pair[0].2, second: pair[1].2, stream });
        }
    }
    Ok(())
}

/// Checks that no two buffers that are live at the same time share a byte.
pub fn verify_addresses(placed: &[Placed]) -> Result<(), TimelineError> {
    let end = |p: &Placed| p.address.saturating_add(p.buffer.bytes);
    let shared = |a: &Buffer, b: &Buffer| a.from < b.until && b.from < a.until;
    for (at, one) in placed.iter().enumerate() {
        let clash = |other: &&Placed| {
            shared(&one.buffer, &other.buffer)
                && one.address < end(other)
                && other.address < end(one)
        };
        if let Some(other) = placed[..at].iter().find(clash) {
            return Err(TimelineError::Address { first: other.buffer.id, second: one.buffer.id });
        }
    }
    Ok(())
}
