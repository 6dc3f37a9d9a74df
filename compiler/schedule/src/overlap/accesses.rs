//! Which values the tasks of an execution read and write, and so which tasks each has to wait for.

use std::collections::{BTreeMap, HashMap};

use shard_ir::attention::{Ring, rings};
use shard_ir::{Allocation, Execution, InstrId, InstrKind, Task, Work};

/// Which values each task reads and writes, and which task makes which value.
pub(super) struct Accesses<'a> {
    execution: &'a Execution,
    tasks: &'a [Task],
    rings: Vec<Ring>,
    /// For each instruction the task that is done when its value is made.
    made_by: HashMap<InstrId, usize>,
    /// For each value that has memory of its own, the tasks that touch that memory.
    touching: HashMap<InstrId, Vec<usize>>,
    /// The tasks of every loop, by its first instruction.
    of_loop: HashMap<InstrId, Vec<usize>>,
    /// The task of each part of a loop, by its first instruction.
    parts: BTreeMap<(InstrId, Work), usize>,
}

impl<'a> Accesses<'a> {
    pub(super) fn of(execution: &'a Execution, tasks: &'a [Task]) -> Accesses<'a> {
        let mut found = Accesses {
            execution,
            tasks,
            rings: rings(&execution.plan),
            made_by: HashMap::new(),
            touching: HashMap::new(),
            of_loop: HashMap::new(),
            parts: BTreeMap::new(),
        };
        for (at, task) in tasks.iter().enumerate() {
            let is_whole = match task.work {
                Work::Kernel | Work::Transfer | Work::End => true,
                Work::Chunk(_) | Work::Send(_) => false,
            };
            if is_whole {
                task.members.iter().for_each(|id| {
                    found.made_by.insert(*id, at);
                });
            }
            if let Some(first) = task.members.first() {
                found.parts.insert((*first, task.work), at);
                match task.work {
                    Work::Kernel | Work::Transfer => {}
                    Work::Chunk(_) | Work::Send(_) | Work::End => {
                        found.of_loop.entry(*first).or_default().push(at);
                    }
                }
            }
            for holder in found.touched(at) {
                found.touching.entry(holder).or_default().push(at);
            }
        }
        found
    }

    /// The values that a task reads or writes, without the chunks that travel in a loop. The chunks
    /// of a loop read all its operands; its first transfer reads what the loop gathers, the others
    /// none.
    fn values(&self, task: &Task) -> Vec<InstrId> {
        let plan = &self.execution.plan;
        let read = task.members.iter().flat_map(|id| plan.instruction(*id).operands.clone());
        match task.work {
            Work::Kernel | Work::Transfer | Work::Chunk(_) | Work::End => {
                read.chain(task.members.iter().copied()).collect()
            }
            Work::Send(1) => self.gathered(task),
            Work::Send(_) => Vec::new(),
        }
    }

    /// The values that a loop gathers: those that travel in a ring, one operand of another loop
    /// that gathers, none of one that scatters.
    fn gathered(&self, task: &Task) -> Vec<InstrId> {
        let Some(first) = task.members.first() else { return Vec::new() };
        if let Some(ring) = self.rings.iter().find(|ring| ring.first() == *first) {
            return ring.travels.iter().map(|(id, _)| *id).collect();
        }
        let instr = self.execution.plan.instruction(*first);
        let place = instr.kind.fused().and_then(|fused| fused.gathered());
        place.and_then(|place| instr.operands.get(place).copied()).into_iter().collect()
    }

    /// The values in whose memory a task reads or writes, each once.
    pub(super) fn touched(&self, at: usize) -> Vec<InstrId> {
        let held_by = |id: InstrId| self.execution.held_by[id.index()];
        let mut found: Vec<InstrId> =
            self.values(&self.tasks[at]).into_iter().filter_map(held_by).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The tasks that touch a buffer.
    pub(super) fn touching(&self, allocation: &Allocation) -> &[usize] {
        let of = if allocation.of_loop {
            self.of_loop.get(&allocation.id)
        } else {
            self.touching.get(&allocation.id)
        };
        of.map_or(&[], Vec::as_slice)
    }

    /// Whether a task touches what lies in the memory of a value.
    pub(super) fn is_touched(&self, holder: InstrId) -> bool {
        self.touching.contains_key(&holder)
    }

    /// Whether a task makes the value of an instruction.
    pub(super) fn is_made(&self, id: InstrId) -> bool {
        self.made_by.contains_key(&id)
    }

    /// All tasks that have to be done before a task starts, in no order; some several times.
    pub(super) fn before(&self, at: usize) -> Vec<usize> {
        let task = &self.tasks[at];
        let mut found: Vec<usize> = self.parts_before(task);
        found.extend(self.makers(at));
        for id in &task.members {
            found.extend(self.before_writing(at, *id));
        }
        found
    }

    /// The tasks that make what a task reads.
    pub(super) fn makers(&self, at: usize) -> Vec<usize> {
        let task = &self.tasks[at];
        let values = self.values(task);
        let read = values.iter().filter(|id| !task.members.contains(id));
        read.filter_map(|id| self.made_by.get(id).copied()).collect()
    }

    /// Whether a task writes the value of an instruction, or the chunks of its loop.
    fn writes(&self, task: &Task, of_loop: bool) -> bool {
        let scatters = self.gathered(task).is_empty();
        match task.work {
            Work::Kernel | Work::Transfer => !of_loop,
            Work::Chunk(_) => !of_loop || scatters,
            Work::Send(_) => of_loop,
            Work::End => false,
        }
    }

    /// The earlier tasks that have touched the memory in which a task writes a value.
    fn before_writing(&self, at: usize, id: InstrId) -> Vec<usize> {
        let held_by = self.execution.held_by[id.index()];
        if let Some(holder) = held_by.filter(|holder| *holder != id) {
            // An append that overwrites its cache comes behind all tasks that read the cache.
            let writes = matches!(
                self.execution.plan.instruction(id).kind,
                InstrKind::Op(shard_ir::Op::Append { .. })
            );
            let others = self.touching.get(&holder).into_iter().flatten().copied();
            return others.filter(|by| writes && *by < at).collect();
        }
        let allocations = self.execution.buffers.iter();
        let task = &self.tasks[at];
        let own = allocations
            .clone()
            .filter(|allocation| allocation.id == id && self.writes(task, allocation.of_loop));
        own.flat_map(|own| {
            let end = own.address.saturating_add(own.bytes);
            let was_there = move |allocation: &&Allocation| {
                allocation.until <= own.from
                    && allocation.address < end
                    && own.address < allocation.address.saturating_add(allocation.bytes)
            };
            allocations
                .clone()
                .filter(was_there)
                .flat_map(|allocation| self.touching(allocation).iter().copied())
        })
        .collect()
    }

    /// The parts of a loop that another part of it waits for. In a loop that gathers, a chunk waits
    /// for the transfer that brings it, and a transfer for the chunk whose place it fills. In one
    /// that scatters, a transfer waits for the chunk whose term it sends, and a chunk for the
    /// transfer that has sent what lay in its place. The end waits for all parts.
    fn parts_before(&self, task: &Task) -> Vec<usize> {
        let Some(first) = task.members.first() else { return Vec::new() };
        let gathers = self.execution.plan.instruction(*first).kind.gathers_in_a_loop();
        let earlier = |at: u64, by: u64| at.checked_sub(by);
        let waits = match (task.work, gathers) {
            (Work::Kernel | Work::Transfer, _) => None,
            (Work::Chunk(at), true) => Some(Work::Send(at)),
            (Work::Send(at), true) => earlier(at, 2).filter(|chunk| *chunk > 0).map(Work::Chunk),
            (Work::Chunk(at), false) => earlier(at, 1).map(Work::Send),
            (Work::Send(at), false) => earlier(at, 1).map(Work::Chunk),
            (Work::End, _) => {
                let of = self.of_loop.get(first).into_iter().flatten();
                return of.copied().filter(|at| self.tasks[*at].work != Work::End).collect();
            }
        };
        let part = |work: Work| self.parts.get(&(*first, work)).copied();
        waits.and_then(part).into_iter().collect()
    }
}
