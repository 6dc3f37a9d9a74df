//! [`Execution`]: a schedule as devices execute it, and a stack of layers as one plan.

use crate::plan::{InstrId, InstrKind, Plan, PlanFold};
use crate::program::{FoldId, ParameterKind};
use crate::schedule::Picoseconds;

/// A schedule as devices execute it: what each stream does, in which order, what waits for what,
/// and where each buffer lies in the memory of a device.
///
/// A stream does one task after another, in the order of [`Execution::tasks`]. Nothing else orders
/// two tasks but that one waits for the other: times say what is expected and order nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Execution {
    /// What is executed: every copy of a block and every layer of a stack written out, so that it
    /// has no folds.
    pub plan: Plan,
    /// The names of the streams.
    pub streams: Vec<String>,
    /// Each behind all that it waits for.
    pub tasks: Vec<Task>,
    /// What is in memory for a while. Weights, caches and numbers stay, and have none.
    pub buffers: Vec<Allocation>,
    /// For each instruction the one in whose memory its value lies: itself, or what it shares
    /// memory with. None for a value that passes between two members of a kernel.
    pub held_by: Vec<Option<InstrId>>,
    /// The most bytes of buffers that are held at once.
    pub peak_bytes: u64,
}

/// What one stream, or several at once, do without a pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// What is done.
    pub work: Work,
    /// The instructions that it is a part of: those of a kernel, or one.
    pub members: Vec<InstrId>,
    /// The streams that it keeps busy. One that takes none starts when what it waits for is done.
    pub streams: Vec<usize>,
    /// Tasks, as indices, that are done before it starts, and that no stream puts before it anyway.
    pub waits: Vec<usize>,
    /// When it is expected to start.
    pub start: Picoseconds,
    /// When it is expected to be done.
    pub finish: Picoseconds,
}

impl Task {
    /// The first of its instructions; of a task of none, which no verifier lets pass, that of the
    /// plan.
    pub fn first(&self) -> InstrId {
        self.members.first().copied().unwrap_or_default()
    }
}

/// What a task does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Work {
    /// All ops of a kernel, a fetch from the host among them.
    Kernel,
    /// A move.
    Transfer,
    /// The multiplication of a chunk in the loop of a collective einsum, from 0.
    Chunk(u64),
    /// A transfer of a loop, from 1. Where the loop gathers, it brings what the chunk of its number
    /// multiplies; where it scatters, it sends what the chunk before its number has made.
    Send(u64),
    /// A loop is done: its last chunk and its last transfer are.
    End,
}

/// A buffer: bytes of a device that hold something for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The instruction whose value it holds first; the loop that needs it, where it holds chunks
    /// under way.
    pub id: InstrId,
    /// Whether it holds the chunks of a loop that are under way.
    pub of_loop: bool,
    /// Its bytes.
    pub bytes: u64,
    /// Its first byte, counted from the first byte that is not of a weight or a cache.
    pub address: u64,
    /// From when it is held.
    pub from: Picoseconds,
    /// Until when.
    pub until: Picoseconds,
}

impl Execution {
    /// The bytes that buffers lie in, from the first to the last.
    pub fn extent(&self) -> u64 {
        self.buffers.iter().map(|b| b.address.saturating_add(b.bytes)).max().unwrap_or(0)
    }

    /// When the last task is expected to be done.
    pub fn makespan(&self) -> Picoseconds {
        self.tasks.iter().map(|task| task.finish).max().unwrap_or_default()
    }

    /// Whether a value is of those that stay where they are: parameters but activations, numbers,
    /// and what lies in the memory of the host.
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
    /// A stack of layers as one block that is folded: each layer takes, in place of the first
    /// parameter, the first result of the layer before, and has weights and caches of its own.
    /// Other activations are the same for all. None where there is no stack, or the layer has
    /// blocks of its own, or a weight stands between its ops.
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
            // The pieces of a softmax have numbers of their own in each layer.
            let of_each = instr.kind.parameter() != Some(ParameterKind::Activation);
            instr.fold = (of_each && id != from).then_some(FoldId(0));
        }
        block.folds = vec![PlanFold { layer: self.name.clone(), repeat: self.repeat, from, to }];
        Some(block)
    }
}
