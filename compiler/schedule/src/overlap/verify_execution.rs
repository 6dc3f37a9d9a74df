//! Checks an execution by its times and addresses alone. Whether tasks are ordered by more than
//! their times is found out by running it (`shard_runtime::run_on_streams`).

use shard_ir::{Allocation, Execution, InstrId, InstrKind, Picoseconds, Plan, Work};

use super::accesses::Accesses;

/// Why an execution cannot be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExecutionError {
    /// The plan has folded blocks, or a value whose memory is not said.
    #[error("its plan is not written out, or not each of its values lies somewhere")]
    Plan,
    /// A task of no instruction, of an instruction that does not exist, or on a stream that does
    /// not exist.
    #[error("task {0} is of an instruction or on a stream that there is not")]
    Unknown(usize),
    /// A task of a parameter or a constant, which no task makes.
    #[error("task {task} is of %{}, a parameter or a constant, which no task makes", id.0)]
    NotRun {
        /// The task.
        task: usize,
        /// The parameter or constant.
        id: InstrId,
    },
    /// A task that waits for one that does not come before it.
    #[error("task {task} waits for task {by}, which does not come before it")]
    Waits {
        /// The task.
        task: usize,
        /// What it waits for.
        by: usize,
    },
    /// A task that is done before it starts.
    #[error("task {0} is done before it starts")]
    Backwards(usize),
    /// A task that starts before a task that it waits for, or that makes its operands, is done.
    #[error("task {task} starts before task {by} is done")]
    TooEarly {
        /// The task.
        task: usize,
        /// What has to be done.
        by: usize,
    },
    /// Two tasks that are on a stream at once, or in another order than that in which they are
    /// listed.
    #[error("tasks {first} and {second} keep the stream `{stream}` busy at once")]
    StreamBusy {
        /// The task that is listed first.
        first: usize,
        /// The other.
        second: usize,
        /// The stream.
        stream: String,
    },
    /// An instruction that no task makes.
    #[error("no task makes %{}", .0.0)]
    NotMade(InstrId),
    /// A buffer of no value, or a second one of a value.
    #[error("%{} has a buffer that it cannot have", .0.0)]
    Buffer(InstrId),
    /// A value whose buffer is not held while it is touched, or to the end if it is a result.
    #[error("the buffer of %{} is not held as long as it is needed", .0.0)]
    NotHeld(InstrId),
    /// Two buffers at one address at the same time.
    #[error("the buffers of %{} and %{} share bytes at the same time", first.0, second.0)]
    Address {
        /// One buffer.
        first: InstrId,
        /// The other.
        second: InstrId,
    },
    /// The streams are not those of the chip.
    #[error("the streams of its chip are {needed}")]
    Streams {
        /// Their names.
        needed: String,
    },
    /// A unit that lacks a task, has one more than once, or has one that it should not have.
    #[error("%{} has not once each task that it needs: {}", id.0, task_name(*work))]
    Parts {
        /// The first instruction of the unit.
        id: InstrId,
        /// The task's work.
        work: Work,
    },
    /// A task that takes another time than its price.
    #[error("task {task} takes {found} ps, and the chip takes {needed} ps for it")]
    Time {
        /// The task.
        task: usize,
        /// Picoseconds that it takes.
        found: u64,
        /// Picoseconds that it should.
        needed: u64,
    },
    /// A part of a loop at another distance from the loop's start.
    #[error("task {task} starts at another place in the loop of %{} than the chip puts it", id.0)]
    Apart {
        /// The task.
        task: usize,
        /// The loop.
        id: InstrId,
    },
    /// A task on other streams than those that it needs.
    #[error("task {0} keeps other streams busy than it needs")]
    TaskStreams(usize),
    /// The peak is not that of the buffers.
    #[error("{found} bytes of buffers are live at the peak, and the schedule says {said}")]
    Peak {
        /// What is live.
        found: u64,
        /// What it says.
        said: u64,
    },
}

/// What a message calls a task's work.
fn task_name(work: Work) -> String {
    match work {
        Work::Kernel => "its kernel".to_string(),
        Work::Transfer => "its transfer".to_string(),
        Work::Chunk(at) => format!("chunk {at} of its loop"),
        Work::Send(at) => format!("transfer {at} of its loop"),
        Work::End => "the end of its loop".to_string(),
    }
}

/// Checks that tasks name streams that exist and instructions that exist and are no parameters or
/// constants; that a task starts when the tasks that it waits for and those that make what it reads
/// are done; that each stream runs one task at a time; that tasks touch only buffers that are held;
/// that no two buffers that are held at once share bytes; and that the peak is that of the buffers.
pub fn verify_execution(execution: &Execution) -> Result<(), ExecutionError> {
    verify_names(execution)?;
    verify_times(execution)?;
    let accesses = Accesses::of(execution, &execution.tasks);
    let plan = &execution.plan;
    if let Some(id) = plan.ids().find(|id| is_run(plan, *id) && !accesses.is_made(*id)) {
        return Err(ExecutionError::NotMade(id));
    }
    for (at, task) in execution.tasks.iter().enumerate() {
        let early = |by: &usize| execution.tasks[*by].finish > task.start;
        if let Some(by) = accesses.makers(at).into_iter().find(early) {
            return Err(ExecutionError::TooEarly { task: at, by });
        }
    }
    verify_allocations(execution, &accesses)?;
    verify_apart(&execution.buffers)?;
    let (found, said) = (peak(&execution.buffers), execution.peak_bytes);
    if found == said { Ok(()) } else { Err(ExecutionError::Peak { found, said }) }
}

/// Whether tasks make the value of an instruction; parameters and constants are there from the
/// start.
fn is_run(plan: &Plan, id: InstrId) -> bool {
    match plan.instruction(id).kind {
        InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => true,
        InstrKind::Parameter(_) | InstrKind::Constant(_) => false,
    }
}

fn exists(plan: &Plan, id: InstrId) -> bool {
    id.index() < plan.instructions.len()
}

/// Checks that all that is named by an index exists.
fn verify_names(execution: &Execution) -> Result<(), ExecutionError> {
    let plan = &execution.plan;
    let holds_itself = |id: InstrId| exists(plan, id) && execution.held_by[id.index()] == Some(id);
    let lies = execution.held_by.len() == plan.instructions.len()
        && execution.held_by.iter().flatten().all(|holder| holds_itself(*holder));
    if !plan.folds.is_empty() || !lies {
        return Err(ExecutionError::Plan);
    }
    for (at, task) in execution.tasks.iter().enumerate() {
        let known = task.members.iter().all(|id| exists(plan, *id))
            && task.streams.iter().all(|stream| *stream < execution.streams.len())
            && !task.members.is_empty();
        if !known {
            return Err(ExecutionError::Unknown(at));
        }
        if let Some(id) = task.members.iter().find(|id| !is_run(plan, **id)) {
            return Err(ExecutionError::NotRun { task: at, id: *id });
        }
        if let Some(by) = task.waits.iter().find(|by| **by >= at) {
            return Err(ExecutionError::Waits { task: at, by: *by });
        }
    }
    for (at, allocation) in execution.buffers.iter().enumerate() {
        let again =
            |other: &Allocation| (other.id, other.of_loop) == (allocation.id, allocation.of_loop);
        let is_of_a_value = exists(plan, allocation.id)
            && execution.held_by[allocation.id.index()].is_some() | allocation.of_loop
            && (allocation.of_loop || !execution.stays(allocation.id))
            && allocation.address.checked_add(allocation.bytes).is_some();
        if !is_of_a_value || execution.buffers[..at].iter().any(again) {
            return Err(ExecutionError::Buffer(allocation.id));
        }
    }
    Ok(())
}

/// Checks that tasks start when those that they wait for are done, and are on each stream one at a
/// time, in the order in which they are listed.
fn verify_times(execution: &Execution) -> Result<(), ExecutionError> {
    let mut last: Vec<Option<usize>> = vec![None; execution.streams.len()];
    for (at, task) in execution.tasks.iter().enumerate() {
        if task.finish < task.start {
            return Err(ExecutionError::Backwards(at));
        }
        let done = |by: usize| execution.tasks[by].finish;
        if let Some(by) = task.waits.iter().find(|by| done(**by) > task.start) {
            return Err(ExecutionError::TooEarly { task: at, by: *by });
        }
        for stream in &task.streams {
            let before = last[*stream].replace(at);
            // A task that takes no time keeps no stream busy.
            let busy = |by: &usize| done(*by) > task.start && task.finish > task.start;
            if let Some(first) = before.filter(busy) {
                let stream = execution.streams[*stream].clone();
                return Err(ExecutionError::StreamBusy { first, second: at, stream });
            }
        }
    }
    Ok(())
}

/// Checks that every buffer is held while tasks touch it, and that of a result to the end.
fn verify_allocations(
    execution: &Execution,
    accesses: &Accesses<'_>,
) -> Result<(), ExecutionError> {
    let plan = &execution.plan;
    let end = execution.makespan();
    let allocation_of = |id: InstrId| execution.buffers.iter().find(|r| r.id == id && !r.of_loop);
    for allocation in &execution.buffers {
        let touching = accesses.touching(allocation).iter().map(|at| &execution.tasks[*at]);
        let held = |task: &shard_ir::Task| {
            allocation.from <= task.start && task.finish <= allocation.until
        };
        if !touching.clone().all(held) {
            return Err(ExecutionError::NotHeld(allocation.id));
        }
    }
    for id in plan.ids() {
        let Some(holder) = execution.held_by[id.index()].filter(|id| !execution.stays(*id)) else {
            continue;
        };
        let allocation = allocation_of(holder);
        let is_result = plan.outputs.iter().any(|output| output.id == id);
        let is_touched = accesses.is_touched(holder);
        let fits = allocation.is_some_and(|allocation| {
            allocation.bytes >= plan.local_bytes(id) && (!is_result || allocation.until >= end)
        });
        if (is_touched || is_result) && !fits {
            return Err(ExecutionError::NotHeld(holder));
        }
    }
    Ok(())
}

/// Checks that no two buffers that are held at the same time share a byte.
fn verify_apart(allocations: &[Allocation]) -> Result<(), ExecutionError> {
    let mut by_time: Vec<&Allocation> = allocations.iter().collect();
    by_time.sort_by_key(|allocation| (allocation.from, allocation.id, allocation.of_loop));
    let mut held: Vec<&Allocation> = Vec::new();
    for allocation in by_time {
        held.retain(|other| other.until > allocation.from);
        let shares = |other: &&&Allocation| {
            allocation.until > allocation.from
                && other.address < allocation.address + allocation.bytes
                && allocation.address < other.address + other.bytes
        };
        if let Some(other) = held.iter().find(shares) {
            return Err(ExecutionError::Address { first: other.id, second: allocation.id });
        }
        held.push(allocation);
    }
    Ok(())
}

/// The most bytes that are held at once. At one moment buffers are freed before others are held.
fn peak(allocations: &[Allocation]) -> u64 {
    let mut changes: Vec<(Picoseconds, bool, u64)> = Vec::with_capacity(2 * allocations.len());
    for allocation in allocations {
        changes.push((allocation.from, true, allocation.bytes));
        changes.push((allocation.until, false, allocation.bytes));
    }
    changes.sort_unstable();
    let (mut live, mut most) = (0u64, 0u64);
    for (_, begins, bytes) in changes {
        live = if begins { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
        most = most.max(live);
    }
    most
}
