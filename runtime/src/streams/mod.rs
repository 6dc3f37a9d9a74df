//! An execution on simulated devices, stream by stream: tasks start and finish at their times, and
//! buffers lie at their addresses in one arena a device.
//!
//! A task reads its operands when it finishes, and overwrites the place of its result with NaN when
//! it starts: a task that touches either meanwhile gives a wrong result. A buffer is overwritten
//! with NaN when it is held and when it is freed. Tasks are executed here in the order of their
//! times, which order nothing on a device: whether tasks that touch the same bytes are ordered is
//! asked of streams and waits alone ([`guard`]).

mod arena;
mod guard;
mod loops;
mod memory;
mod rings;
mod tasks;

use std::collections::BTreeMap;

use shard_ir::op::Flag;
use shard_ir::{Allocation, Execution, InstrId, InstrKind, Picoseconds, Plan, Task, Work};

use crate::arithmetic::Arithmetic;
use crate::blocks::Blocks;
use crate::collectives::Held;
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::execute::{CollectiveTrace, Machine, NamedTensor, RunOptions, Trace};
use crate::inputs;
use crate::limits::cost_of;
use crate::ring::passes_in;

use arena::Arena;
use guard::{Access, Bytes, Guard};
use loops::UnderWay;
use rings::RingUnderWay;
use tasks::{makers, verify_tasks};

/// What happens at a moment; of several events at one moment the first of this list comes first.
/// Each has the index of its task, or of its buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// A task is done.
    Done(usize),
    /// A buffer is free.
    Free(usize),
    /// A buffer is held.
    Hold(usize),
    /// A task starts, and is done if it takes no time.
    Start(usize),
}

/// Whether a buffer is in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    NotYet,
    Held,
    Freed,
}

/// The state of an execution on all devices, which all do the same tasks.
struct Devices<'p> {
    execution: &'p Execution,
    machine: Machine<'p>,
    arena: Arena,
    /// The values that do not lie in the arena ([`Execution::stays`]).
    kept: BTreeMap<InstrId, Held<f64>>,
    guard: Guard<'p>,
    /// The buffer of each value, and with `true` that of the chunks of each loop.
    allocations: BTreeMap<(InstrId, bool), usize>,
    /// For each value the task with whose end it is complete.
    made_by: BTreeMap<InstrId, usize>,
    states: Vec<State>,
    begun: Vec<bool>,
    done: Vec<bool>,
    loops: BTreeMap<InstrId, UnderWay>,
    rings: BTreeMap<InstrId, RingUnderWay>,
    /// The task that each stream is busy with.
    busy: Vec<Option<usize>>,
}

/// Executes the tasks of an execution in the order of their times, in some arithmetic.
pub(crate) fn execute_in(
    execution: &Execution,
    options: &RunOptions,
    arithmetic: Arithmetic,
) -> Result<Trace, RunError> {
    let plan = &execution.plan;
    let parameters = inputs::parameters(plan, &options.inputs, arithmetic, options.seed)?;
    let grid = Grid::new(&plan.mesh);
    let mut devices = Devices::of(execution, Machine::of(plan, &grid, arithmetic, &options.spare))?;
    let mut given: BTreeMap<InstrId, Held<f64>> = BTreeMap::new();
    for (id, whole) in &parameters {
        let (seed, spare) = (options.seed, &options.spare);
        let blocks = inputs::deal(plan, *id, whole, &grid, arithmetic, seed, spare)?;
        given.insert(*id, blocks.widened().into_owned());
    }
    for id in plan.ids().filter(|id| execution.stays(*id)) {
        let made = match plan.instruction(id).kind {
            InstrKind::Parameter(_) => given.remove(&id),
            InstrKind::Constant(_) => Some(devices.machine.step(id)?.widened().into_owned()),
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => None,
        };
        made.map(|blocks| devices.kept.insert(id, blocks));
    }
    let (mut held, mut peak_bytes) = (0u64, 0u64);
    for (_, event) in events(execution) {
        match event {
            Event::Done(task) => devices.finish(task, options)?,
            Event::Free(allocation) => {
                devices.states[allocation] = State::Freed;
                let Allocation { address, bytes, .. } = execution.buffers[allocation];
                devices.arena.poison(address, bytes);
                held = held.saturating_sub(bytes);
            }
            Event::Hold(allocation) => {
                devices.hold(allocation, &mut given)?;
                held = held.saturating_add(execution.buffers[allocation].bytes);
                peak_bytes = peak_bytes.max(held);
            }
            Event::Start(task) => {
                devices.start(task)?;
                if execution.tasks[task].finish == execution.tasks[task].start {
                    devices.finish(task, options)?;
                }
            }
        }
    }
    let (outputs, mut collectives) = devices.results()?;
    collectives.sort_by_key(|c| c.id);
    let devices = plan.mesh.devices();
    Ok(Trace { arithmetic, devices, parameters, outputs, collectives, peak_bytes })
}

/// All events in the order of time. Buffers of results that are held to the end are not freed.
fn events(execution: &Execution) -> Vec<(Picoseconds, Event)> {
    let end = execution.makespan();
    let mut begins: BTreeMap<InstrId, Picoseconds> = BTreeMap::new();
    for task in &execution.tasks {
        let first = task.first();
        let begin = begins.entry(first).or_insert(task.start);
        *begin = task.start.min(*begin);
    }
    let mut events = Vec::new();
    for (at, task) in execution.tasks.iter().enumerate() {
        let first = task.first();
        let in_loop = matches!(task.work, Work::Chunk(_) | Work::Send(_) | Work::End);
        let takes_time = task.finish > task.start;
        // A part of a loop that takes no time at its end is done before the buffer of the loop is
        // freed.
        if in_loop && !takes_time && Some(&task.start) > begins.get(&first) {
            events.push((task.start, Event::Done(at)));
            continue;
        }
        events.push((task.start, Event::Start(at)));
        if takes_time {
            events.push((task.finish, Event::Done(at)));
        }
    }
    let results = execution.plan.outputs.iter().map(|output| execution.held_by[output.id.index()]);
    let results: Vec<InstrId> = results.flatten().collect();
    for (at, allocation) in execution.buffers.iter().enumerate() {
        events.push((allocation.from, Event::Hold(at)));
        if allocation.until < end || allocation.of_loop || !results.contains(&allocation.id) {
            events.push((allocation.until, Event::Free(at)));
        }
    }
    events.sort_unstable();
    events
}

impl<'p> Devices<'p> {
    fn of(execution: &'p Execution, machine: Machine<'p>) -> Result<Devices<'p>, RunError> {
        let plan = &execution.plan;
        let mut allocations = BTreeMap::new();
        for (at, allocation) in execution.buffers.iter().enumerate() {
            let problem = |problem| Err(RunError::Schedule { id: allocation.id, problem });
            if allocation.id.index() >= plan.instructions.len() {
                return problem("it is no instruction, and has a buffer");
            }
            if allocations.insert((allocation.id, allocation.of_loop), at).is_some() {
                return problem("it has two buffers");
            }
        }
        verify_tasks(execution)?;
        let arena = Arena::of(execution, machine.grid.devices())?;
        Ok(Devices {
            execution,
            machine,
            arena,
            kept: BTreeMap::new(),
            guard: Guard::of(execution)?,
            allocations,
            made_by: makers(execution),
            states: vec![State::NotYet; execution.buffers.len()],
            begun: vec![false; execution.tasks.len()],
            done: vec![false; execution.tasks.len()],
            loops: BTreeMap::new(),
            rings: BTreeMap::new(),
            busy: vec![None; execution.streams.len()],
        })
    }

    fn plan(&self) -> &'p Plan {
        self.machine.plan
    }

    fn sizes(&self, id: InstrId) -> Vec<usize> {
        usizes(&self.plan().local_sizes(id))
    }

    /// What a task reads from memory: operands of its members that no member makes.
    fn reads(&self, task: &Task) -> Vec<InstrId> {
        let operands =
            task.members.iter().flat_map(|id| &self.plan().instruction(*id).operands).copied();
        let mut found: Vec<InstrId> = operands.filter(|id| !task.members.contains(id)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The values that a task writes to memory: those of its members that do not pass inside the
    /// kernel and are no views of what lies there already.
    fn writes(&self, task: &Task) -> Vec<InstrId> {
        let is_stored = |id: &InstrId| {
            self.execution.held_by[id.index()].is_some_and(|by| by == *id || !self.is_view(*id))
        };
        task.members.iter().copied().filter(is_stored).collect()
    }

    /// Whether a value is its operand under other dims, in the same memory.
    fn is_view(&self, id: InstrId) -> bool {
        let op = self.plan().instruction(id).kind.op();
        op.is_some_and(|op| op.row().is(Flag::View))
            && self.execution.held_by[id.index()] != Some(id)
    }

    /// All bytes that a task reads or writes.
    fn touched(&self, task: &Task) -> Result<Vec<Access>, RunError> {
        let first = task.first();
        let part = match task.work {
            Work::Kernel | Work::Transfer => Vec::new(),
            Work::Chunk(_) | Work::Send(_) | Work::End => self.touched_by_part(first, task.work)?,
        };
        // The chunks of a loop read all operands, and those of a loop that gathers write its
        // result. What else a chunk or a transfer touches is in `part`.
        let fused = self.plan().instruction(first).kind.fused();
        let scatters = fused.is_some_and(|fused| fused.gathered().is_none());
        let (all_reads, all_writes) = match task.work {
            Work::Kernel | Work::Transfer | Work::End => (true, true),
            Work::Chunk(_) => (true, !scatters),
            Work::Send(_) => (false, false),
        };
        let mut found = part;
        for id in self.reads(task).into_iter().filter(|_| all_reads) {
            found.push(self.place(id)?.1.read());
        }
        for id in self.writes(task).into_iter().filter(|_| all_writes) {
            found.push(self.place(id)?.1.written());
        }
        Ok(found)
    }

    /// Starts a task: takes its streams, and checks that what it touches is ordered.
    fn start(&mut self, at: usize) -> Result<(), RunError> {
        let task = &self.execution.tasks[at];
        let id = task.first();
        let problem = |problem| Err(RunError::Schedule { id, problem });
        if task.waits.iter().any(|by| !self.done[*by]) {
            return problem("it starts before what it waits for is done");
        }
        for stream in &task.streams {
            if self.busy[*stream].is_some() {
                return problem("it starts while its stream is busy");
            }
            self.busy[*stream] = Some(at);
        }
        self.begun[at] = true;
        let reads_all = !matches!(task.work, Work::Send(_));
        for maker in self.reads(task).iter().filter_map(|id| self.made_by.get(id)) {
            if reads_all {
                self.guard.reads_from(*maker, at)?;
            }
        }
        for access in self.touched(task)? {
            self.guard.touch(at, access)?;
        }
        // The result of a task that is no part of a loop is NaN until the task is done. What it
        // writes in place it still reads.
        let is_whole = matches!(task.work, Work::Kernel | Work::Transfer);
        for id in self.writes(task).into_iter().filter(|_| is_whole) {
            let own = self.execution.held_by[id.index()] == Some(id);
            if let (true, (Some(_), Bytes { from, until, .. })) = (own, self.place(id)?) {
                self.arena.poison(from, until - from);
            }
        }
        Ok(())
    }

    /// Finishes a task: does its work and leaves its streams.
    fn finish(&mut self, at: usize, options: &RunOptions) -> Result<(), RunError> {
        if !self.begun[at] {
            // A part of a loop that takes no time has no event of its start.
            self.start(at)?;
        }
        let task = &self.execution.tasks[at];
        let first = task.first();
        match task.work {
            Work::Kernel | Work::Transfer => self.work(task, None)?,
            Work::Chunk(_) | Work::Send(_) => self.part(first, task.work)?,
            Work::End => {
                let made = self.end_loop(first)?;
                self.work(task, Some(made))?;
            }
        }
        task.streams.iter().for_each(|stream| self.busy[*stream] = None);
        self.done[at] = true;
        if let Some(progress) = &options.progress {
            let is_part = matches!(task.work, Work::Chunk(_) | Work::Send(_));
            let made = task.members.iter().filter(|_| !is_part);
            made.for_each(|id| progress.add(cost_of(self.machine.plan, *id)));
        }
        Ok(())
    }

    /// Makes the values of all members of a task. `made` is the result of its loop, if it is one.
    fn work(&mut self, task: &Task, made: Option<Held<f64>>) -> Result<(), RunError> {
        let reads = self.reads(task);
        for id in &reads {
            self.machine.memory[id.index()] = Some(self.held(*id)?);
        }
        let ends = self.ring(task.first()).map_or(task.first(), |ring| ring.last());
        let mut made = made;
        for id in &task.members {
            if passes_in(&self.machine.rings, *id) {
                continue;
            }
            let blocks = match made.take_if(|_| *id == ends) {
                Some(blocks) => Blocks::Wide(blocks),
                None => self.machine.step(*id)?,
            };
            if self.is_view(*id) && *self.load(*id)? != *blocks.widened() {
                let problem = "it lies in the memory of its operand and is not what is there";
                return Err(RunError::Schedule { id: *id, problem });
            }
            self.machine.memory[id.index()] = Some(blocks);
        }
        for id in self.writes(task) {
            let blocks = self.machine.memory[id.index()].as_ref();
            let blocks = blocks.ok_or(RunError::Internal("a member has made nothing"))?;
            let blocks = blocks.widened().into_owned();
            self.store(id, blocks)?;
        }
        reads.iter().chain(&task.members).for_each(|id| self.machine.memory[id.index()] = None);
        Ok(())
    }

    /// The operands of a loop, as they are in memory now.
    fn operands_of(&self, id: InstrId) -> Result<Vec<Held<f64>>, RunError> {
        self.plan().instruction(id).operands.iter().map(|o| self.load(*o)).collect()
    }

    /// The whole results, and what every move and loop has sent.
    fn results(mut self) -> Result<(Vec<NamedTensor>, Vec<CollectiveTrace>), RunError> {
        let plan = self.plan();
        let mut outputs = Vec::new();
        for output in &plan.outputs {
            self.machine.memory[output.id.index()] = Some(self.held(output.id)?);
            let tensor = self.machine.assemble(output)?;
            outputs.push(NamedTensor { name: output.name.clone(), tensor });
        }
        Ok((outputs, self.machine.collectives))
    }
}
