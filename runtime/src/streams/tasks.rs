//! What is asked of the tasks of an execution before it is run.

use std::collections::BTreeMap;

use shard_ir::{Execution, InstrId, InstrKind, Task, Work};

use crate::error::RunError;

/// For each value that tasks make, the task with whose end the value is complete.
pub(super) fn makers(execution: &Execution) -> BTreeMap<InstrId, usize> {
    let is_last = |task: &Task| matches!(task.work, Work::Kernel | Work::Transfer | Work::End);
    let tasks = execution.tasks.iter().enumerate().filter(|(_, task)| is_last(task));
    tasks.flat_map(|(at, task)| task.members.iter().map(move |id| (*id, at))).collect()
}

/// Checks that every op and every move is done once by a task of its kind: whole, or as all chunks
/// and transfers of its loop.
pub(super) fn verify_tasks(execution: &Execution) -> Result<(), RunError> {
    let plan = &execution.plan;
    let problem = |id: InstrId, problem| Err(RunError::Schedule { id, problem });
    if execution.held_by.len() != plan.instructions.len() {
        return Err(RunError::Internal("a value of which nobody knows where it lies"));
    }
    if execution.held_by.iter().flatten().any(|id| id.index() >= plan.instructions.len()) {
        return Err(RunError::Internal("a value lies in the memory of none"));
    }
    let mut done: BTreeMap<InstrId, Vec<Work>> = BTreeMap::new();
    for task in &execution.tasks {
        let first = task.first();
        let part = match task.work {
            Work::Kernel | Work::Transfer => None,
            Work::Chunk(at) | Work::Send(at) => Some(at),
            Work::End => Some(0),
        };
        let fused = plan.instructions.get(first.index()).and_then(|instr| instr.kind.fused());
        let chunks = fused.map_or(0, |fused| fused.chunks(&plan.mesh));
        if task.members.is_empty() || part.is_some_and(|at| at >= chunks) {
            return problem(first, "it is done in parts that it has not");
        }
        for id in &task.members {
            if id.index() >= plan.instructions.len() {
                return problem(*id, "it is no instruction");
            }
            done.entry(*id).or_default().push(task.work);
        }
    }
    for id in plan.ids() {
        let mut works = done.remove(&id).unwrap_or_default();
        works.sort_unstable();
        let fits = match &plan.instruction(id).kind {
            InstrKind::Parameter(_) | InstrKind::Constant(_) => works.is_empty(),
            InstrKind::Move(_) => works == [Work::Transfer],
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                let chunks = works.iter().filter(|w| matches!(w, Work::Chunk(_))).count() as u64;
                let all = (0..chunks).map(Work::Chunk).chain((1..chunks).map(Work::Send));
                let all: Vec<Work> = all.chain([Work::End]).collect();
                works == [Work::Kernel] || (chunks > 0 && works == all)
            }
        };
        if !fits {
            return problem(id, "it is not done once");
        }
    }
    Ok(())
}
