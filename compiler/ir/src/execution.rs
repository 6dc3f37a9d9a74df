//! [`Execution`]: a schedule as devices execute it, and a stack of layers as one plan.

use crate::plan::{InstrId, InstrKind, Plan, PlanFold};
use crate::program::{FoldId, ParameterKind};
use crate::schedule::Picoseconds;

/// A schedule as devices execute it: the tasks of each stream in order, the tasks that each task
/// waits for, and the address of each buffer in the memory of a device.
///
/// A stream does one task after another, in the order of [`Execution::tasks`]. Apart from this,
/// only a wait orders two tasks; times are expectations and order nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Execution {
    /// The plan that is executed, with every application of a folded block and every layer of a
    /// stack written out: it has no folds.
    pub plan: Plan,
    /// The names of the streams.
    pub streams: Vec<String>,
    /// The tasks, each behind all tasks that it waits for.
    pub tasks: Vec<Task>,
    /// The buffers. Weights, caches and numbers stay in memory and have none.
    pub buffers: Vec<Allocation>,
    /// For each instruction the one whose buffer holds its value: itself, or one that it shares
    /// memory with. `None` for a value that passes between two members of a kernel.
    pub held_by: Vec<Option<InstrId>>,
    /// The most bytes of buffers that are in use at once.
    pub peak_bytes: u64,
}

/// Work that one stream, or several at once, do without a pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// What is done.
    pub work: Work,
    /// The instructions that it is a part of: those of a kernel, or one.
    pub members: Vec<InstrId>,
    /// The streams that it keeps busy. A task without a stream starts when the tasks that it waits
    /// for are done.
    pub streams: Vec<usize>,
    /// The tasks, as indices, that must be done before it starts, except those before it on one of
    /// its streams.
    pub waits: Vec<usize>,
    /// When it is expected to start.
    pub start: Picoseconds,
    /// When it is expected to be done.
    pub finish: Picoseconds,
}

impl Task {
    /// The first of its instructions; the plan's first for a task without any, which no verifier
    /// accepts.
    pub fn first(&self) -> InstrId {
        self.members.first().copied().unwrap_or_default()
    }
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Work {
    /// All ops of a kernel; a fetch from the host is one, too.
    Kernel,
    /// A move.
    Transfer,
    /// The multiplication of a chunk in the loop of a collective einsum, from 0.
    Chunk(u64),
    /// A transfer of a loop, from 1. In a loop that gathers, it brings what the chunk with its
    /// number multiplies; in one that scatters, it sends what the chunk before its number has made.
    Send(u64),
    /// The end of a loop: its last chunk and its last transfer are done.
    End,
}

/// A buffer: bytes of a device that hold something for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The instruction whose value it holds first; or, for chunks that are under way, the
    /// instruction of the loop.
    pub id: InstrId,
    /// Whether it holds the chunks of a loop that are under way.
    pub of_loop: bool,
    /// Its bytes.
    pub bytes: u64,
    /// Its first byte, counted from the first byte that is not of a weight or a cache.
    pub address: u64,
    /// The time from which it is in use.
    pub from: Picoseconds,
    /// The time until which it is in use.
    pub until: Picoseconds,
}

impl Execution {
    /// The bytes from the first address of the buffers to the end of the last buffer.
    pub fn extent(&self) -> u64 {
        self.buffers.iter().map(|b| b.address.saturating_add(b.bytes)).max().unwrap_or(0)
    }

    /// When the last task is expected to be done.
    pub fn makespan(&self) -> Picoseconds {
        self.tasks.iter().map(|task| task.finish).max().unwrap_or_default()
    }

    /// Whether a value stays in memory and has no buffer: a parameter other than an activation, a
    /// number, or a value in host memory.
    pub fn stays(&self, id: InstrId) -> bool {
        let is_kept = match self.plan.instruction(id).kind {
            InstrKind::Parameter(kind) => kind != ParameterKind::Activation,
            InstrKind::Constant(_) => true,
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => false,
        };
        is_kept || self.plan.in_host_memory(id)
    }
}

impl Plan {
    /// The stack of the plan's layers as one folded block: each layer takes the first result of the
    /// layer before in place of the first parameter, and has weights and caches of its own. Other
    /// activations are the same for all layers. `None` where there is no stack, where the layer has
    /// folded blocks of its own, or where a parameter stands behind the first op.
    pub fn stack_as_block(&self) -> Option<Plan> {
        let is_run = |id: &InstrId| {
            matches!(
                self.instruction(*id).kind,
                InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_)
            )
        };
        let is_parameter =
            |id: &InstrId| matches!(self.instruction(*id).kind, InstrKind::Parameter(_));
        let first = self.ids().find(is_run)?;
        let has_own_blocks = self.repeat < 2 || !self.folds.is_empty();
        if has_own_blocks || self.ids().any(|id| id > first && is_parameter(&id)) {
            return None;
        }
        let (from, to) = (self.ids().find(is_parameter)?, self.results().next()?.id);
        let mut block = Plan { repeat: 1, ..self.clone() };
        for (id, instr) in self.ids().zip(&mut block.instructions) {
            // Everything but activations belongs to each layer; constants, too, since those of
            // composites in pieces must be next to them.
            let of_each = instr.kind.parameter() != Some(ParameterKind::Activation);
            instr.fold = (of_each && id != from).then_some(FoldId(0));
        }
        block.folds = vec![PlanFold { layer: self.name.clone(), repeat: self.repeat, from, to }];
        Some(block)
    }
}
