//! Checks that the tasks of an execution take as long as the chip's prices say, on the streams that
//! they need.

use std::collections::BTreeMap;

use shard_cost::{Hardware, Streams, kernel_prices, price};
use shard_ir::{Execution, InstrId, InstrKind, Picoseconds, Work, never};

use super::ExecutionError;
use super::executable::task_parts;
use super::units::{kernel_unit, transfer_unit};

/// Checks that every task takes as long as the prices of a chip say, on the streams that it needs;
/// and that a loop has every chunk and every transfer once, each as far from the loop's start as
/// the prices put it. The execution has to have passed
/// [`verify_execution`](super::verify_execution).
pub fn verify_times(execution: &Execution, hardware: &Hardware) -> Result<(), ExecutionError> {
    let plan = &execution.plan;
    let streams = Streams::of(hardware, &plan.mesh);
    if execution.streams != streams.names() {
        let names = streams.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        return Err(ExecutionError::Streams { needed: names.join(", ") });
    }
    // The tasks of each unit, in the order in which they are listed.
    let mut units: BTreeMap<&[InstrId], Vec<usize>> = BTreeMap::new();
    for (at, task) in execution.tasks.iter().enumerate() {
        units.entry(&task.members).or_default().push(at);
    }
    let price = price(plan, hardware);
    let members: Vec<&[InstrId]> = units.keys().copied().collect();
    let kernels = kernel_prices(plan, hardware, &members);
    for ((members, tasks), (time, looped)) in units.into_iter().zip(kernels) {
        let is_move = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Move(_));
        let unit = match members {
            [id] if is_move(id) => transfer_unit(plan, &streams, *id, price.of(*id).time()),
            _ => kernel_unit(plan, &streams, members.to_vec(), time, looped.as_ref()),
        };
        let wanted =
            task_parts(&unit, members.iter().any(is_move), looped.map(|looped| looped.chunks));
        let start = tasks.iter().map(|at| execution.tasks[*at].start).min();
        let start = start.unwrap_or_else(|| never!("a unit without tasks", Picoseconds(0)));
        let done = |work: Work| tasks.iter().filter(move |at| execution.tasks[**at].work == work);
        if let Some(part) = wanted.iter().find(|part| done(part.work).count() != 1) {
            return Err(ExecutionError::Parts { id: unit.first(), work: part.work });
        }
        for at in &tasks {
            let task = &execution.tasks[*at];
            let Some(part) = wanted.iter().find(|part| part.work == task.work) else {
                return Err(ExecutionError::Parts { id: unit.first(), work: task.work });
            };
            let (found, needed) = (after(task.start, task.finish), after(part.from, part.until));
            if found != needed {
                return Err(ExecutionError::Time { task: *at, found, needed });
            }
            if after(start, task.start) != part.from.0 {
                return Err(ExecutionError::Apart { task: *at, id: unit.first() });
            }
            if task.streams != part.streams {
                return Err(ExecutionError::TaskStreams(*at));
            }
        }
    }
    Ok(())
}

/// Picoseconds from one time to another.
fn after(from: Picoseconds, until: Picoseconds) -> u64 {
    until.0.saturating_sub(from.0)
}
