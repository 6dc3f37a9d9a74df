//! [`Execution`] of a timeline: its streams, what waits for what, and where every buffer lies.

use std::collections::HashMap;

use shard_cost::{InstrPrice, PlanPrice, buffers as shared_memory};
use shard_ir::{
    Allocation, Execution, HappensBefore, InstrId, InstrKind, Picoseconds, Plan, Task, Unrolled,
    Work, never,
};

use super::accesses::Accesses;
use super::addresses::placed;
use super::live::buffers;
use super::place::Run;
use super::units::{Part, Unit};
use super::{LISTED, Timeline};

/// A timeline as an execution, in which folded blocks and stacks are written out.
#[derive(Clone, PartialEq, Debug)]
pub struct Executable {
    /// The execution, with a plan of its own.
    pub execution: Execution,
    /// For each instruction of that plan the one of the timeline's plan that it is an application
    /// of.
    pub of: Vec<InstrId>,
}

/// The timeline as devices execute it, with no more than `most` of the copies of each stage that
/// are not listed. `None` for a stack whose layers cannot be written out
/// ([`Plan::stack_as_block`]), or that returns its parameter.
///
/// A task waits for the tasks that make its operands, and for the tasks before it on its streams.
/// If a buffer that it writes lies at the address of an earlier buffer, it waits for all tasks that
/// touch that one. A wait that follows from others is left out.
pub fn executable(
    plan: &Plan,
    price: &PlanPrice,
    timeline: &Timeline,
    most: u64,
) -> Option<Executable> {
    // If a layer returns its parameter, the result of the stack is the parameter of its last layer.
    let taken = plan.ids().find(|id| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_)));
    if timeline.is_stack && plan.outputs.iter().any(|output| Some(output.id) == taken) {
        return None;
    }
    let copies =
        (0..timeline.stages.stages.len()).map(|stage| timeline.expanded_copies(stage, most));
    let written = if timeline.is_stack {
        plan.stack_as_block()?.unrolled(copies.max().unwrap_or(1))
    } else {
        plan.unrolled(LISTED.saturating_add(most))
    };
    let writer = Writer { price, timeline, at: applications(&written) };
    let mut tasks = writer.tasks(&timeline.expanded(most));
    let held = buffers(plan, timeline, most);
    let allocations: Vec<Allocation> = placed(&held)
        .into_iter()
        .map(|placed| Allocation {
            id: writer.flat(placed.buffer.id, placed.buffer.copy),
            of_loop: placed.buffer.of_loop,
            bytes: placed.buffer.bytes,
            address: placed.address,
            from: placed.buffer.from,
            until: placed.buffer.until,
        })
        .collect();
    let mut execution = Execution {
        held_by: held_by(plan, &written),
        plan: written.plan,
        streams: timeline.streams.names().to_vec(),
        tasks: Vec::new(),
        buffers: allocations,
        peak_bytes: held.peak().saturating_sub(held.kept),
    };
    let waits = waits(&execution, &tasks);
    tasks.iter_mut().zip(waits).for_each(|(task, waits)| task.waits = waits);
    execution.tasks = tasks;
    Some(Executable { execution, of: written.of })
}

/// For each instruction and the number of its application the instruction that was written for it.
fn applications(written: &Unrolled) -> HashMap<(InstrId, u64), InstrId> {
    let mut copies: HashMap<InstrId, u64> = HashMap::new();
    let mut number = |of: InstrId| {
        let copy = copies.entry(of).or_default();
        *copy += 1;
        *copy - 1
    };
    let flat = (0u32..).map(InstrId);
    written.of.iter().zip(flat).map(|(of, id)| ((*of, number(*of)), id)).collect()
}

/// For each instruction that was written the value in whose memory its own lies.
fn held_by(plan: &Plan, written: &Unrolled) -> Vec<Option<InstrId>> {
    let shared = shared_memory(plan);
    let mut found: Vec<Option<InstrId>> = Vec::with_capacity(written.of.len());
    for (id, of) in written.plan.ids().zip(&written.of) {
        let operand = written.plan.instruction(id).operands.first();
        found.push(match shared[of.index()] {
            Some(holder) if holder == *of => Some(id),
            Some(_) => operand.and_then(|operand| found[operand.index()]),
            None => None,
        });
    }
    found
}

/// Makes the tasks of an execution.
struct Writer<'a> {
    price: &'a PlanPrice,
    timeline: &'a Timeline,
    /// See [`applications`].
    at: HashMap<(InstrId, u64), InstrId>,
}

impl Writer<'_> {
    fn flat(&self, id: InstrId, copy: u64) -> InstrId {
        let found = self.at.get(&(id, copy)).or_else(|| self.at.get(&(id, 0)));
        found.copied().unwrap_or_else(|| never!("an instruction that is not written out", id))
    }

    /// All tasks in the order of their times, each behind those that make what it reads; without
    /// waits.
    fn tasks(&self, runs: &[Run]) -> Vec<Task> {
        let mut tasks = Vec::with_capacity(runs.len());
        for run in runs {
            let unit = &self.timeline.stages.units[run.unit];
            let members: Vec<InstrId> =
                unit.members.iter().map(|id| self.flat(*id, run.copy)).collect();
            tasks.extend(self.parts(unit).into_iter().map(|part| Task {
                work: part.work,
                members: members.clone(),
                streams: part.streams,
                waits: Vec::new(),
                start: run.start + part.from,
                finish: run.start + part.until,
            }));
        }
        // A task that takes no time comes before others that start at the same moment: they may
        // wait for it.
        tasks.sort_by_key(|task| (task.start, task.finish));
        tasks
    }

    fn parts(&self, unit: &Unit) -> Vec<TaskPart> {
        let first = self.price.of(unit.first());
        let chunks = first.looped().map(|looped| looped.chunks);
        task_parts(unit, matches!(first, InstrPrice::Move(_)), chunks)
    }
}

/// The tasks of a unit: one, or those of the chunks of a loop. `chunks` is how many a loop has.
pub(super) fn task_parts(unit: &Unit, is_move: bool, chunks: Option<u64>) -> Vec<TaskPart> {
    if let Some(chunks) = chunks {
        return loop_parts(unit, chunks);
    }
    let work = if is_move { Work::Transfer } else { Work::Kernel };
    let mut streams: Vec<usize> = unit.busy.iter().map(|busy| busy.stream).collect();
    streams.dedup();
    vec![TaskPart { work, streams, from: Picoseconds(0), until: unit.time }]
}

/// A task of a unit: what it does, on which streams, and when, counted from the unit's start.
pub(super) struct TaskPart {
    pub(super) work: Work,
    pub(super) streams: Vec<usize>,
    pub(super) from: Picoseconds,
    pub(super) until: Picoseconds,
}

/// The chunks and transfers of a loop, in the order in which they start, and its end.
///
/// A part of less than a picosecond keeps no stream busy in a timeline. Its task comes when the
/// part before it is done.
fn loop_parts(unit: &Unit, chunks: u64) -> Vec<TaskPart> {
    let on = |part: Part| -> Vec<usize> {
        unit.busy.iter().filter(|busy| busy.part == part).map(|busy| busy.stream).collect()
    };
    let all = |is: fn(&Part) -> bool| -> Vec<usize> {
        let mut all: Vec<usize> =
            unit.busy.iter().filter(|busy| is(&busy.part)).map(|busy| busy.stream).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let computing = all(|part| matches!(part, Part::Chunk(_)));
    let sending = all(|part| matches!(part, Part::Send(_)));
    let mut found = Vec::new();
    let mut add = |work: Work, part: Part, streams: &Vec<usize>, before: Picoseconds| {
        let busy = unit.busy.iter().find(|busy| busy.part == part);
        let (from, until) = busy.map_or((before, before), |busy| (busy.from, busy.until));
        debug_assert!(busy.is_none() || on(part) == *streams);
        found.push(TaskPart { work, streams: streams.clone(), from, until });
        until
    };
    let (mut chunk_done, mut send_done) = (Picoseconds(0), Picoseconds(0));
    for at in 0..chunks {
        if at > 0 {
            send_done = add(Work::Send(at), Part::Send(at), &sending, send_done.max(chunk_done));
        }
        chunk_done = add(Work::Chunk(at), Part::Chunk(at), &computing, send_done.max(chunk_done));
    }
    found.push(TaskPart {
        work: Work::End,
        streams: Vec::new(),
        from: unit.time,
        until: unit.time,
    });
    found
}

/// What each task waits for.
fn waits(execution: &Execution, tasks: &[Task]) -> Vec<Vec<usize>> {
    let accesses = Accesses::of(execution, tasks);
    let mut order = HappensBefore::of(execution.streams.len());
    let of_task = |(at, task): (usize, &Task)| {
        let mut wanted = accesses.before(at);
        // The latest first: a task that one of these waits for need not be waited for.
        wanted.sort_unstable_by_key(|by| std::cmp::Reverse(*by));
        wanted.dedup();
        let mut waits: Vec<usize> = Vec::new();
        let mut clock = order.on_streams(&task.streams);
        for by in wanted.into_iter().filter(|by| *by < at) {
            if !order.knows(&clock, by) {
                order.join(&mut clock, by);
                waits.push(by);
            }
        }
        waits.sort_unstable();
        order.push(&task.streams, clock);
        waits
    };
    tasks.iter().enumerate().map(of_task).collect()
}
