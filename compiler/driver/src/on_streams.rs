//! Running the overlapped schedule of a plan, stream by stream, and schedules that were written
//! down.

use shard_cost::{Hardware, PlanPrice};
use shard_ir::verify::verify;
use shard_ir::{Execution, Plan, Program};
use shard_runtime::{
    FEW_APPLICATIONS, MAX_APPLIED, Report, RunError, RunOptions, folded, resized_as,
    run_on_streams, shrink,
};
use shard_schedule::overlap::{Executable, ExecutionError, executable, verify_times};

use crate::pipeline::{Compiled, Ran};

/// The buffers that the devices held along a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OnStreams {
    /// How many tasks there were: kernels, transfers, and the chunks and transfers of loops.
    pub tasks: usize,
    /// The layers of the stack that were executed, or the applications of each block, at most.
    pub copies: u64,
    /// The most bytes of buffers that a device has held at once.
    pub peak_bytes: u64,
    /// The same as the schedule states it.
    pub model_peak_bytes: u64,
    /// The bytes that buffers lie in, from the first to the last.
    pub address_bytes: u64,
}

/// Like [`pipeline::run`](crate::pipeline::run), for the schedule in which computing and
/// communicating overlap, with buffers at their addresses. Unless `full`, the dims are made small
/// and scheduled again, and a few copies of a stack and of every block are executed.
pub fn run(
    program: Option<&Program>,
    compiled: &Compiled,
    hardware: &Hardware,
    full: bool,
    options: &RunOptions,
) -> Result<Ran, RunError> {
    let asked = &compiled.schedule.plan;
    let plan = if full {
        asked.clone()
    } else {
        // The stack is shrunk as a block, since the errors of one layer grow in the next.
        let block = asked.stack_as_block().filter(|block| verify(block).is_ok());
        let small = shrink(block.as_ref().unwrap_or(asked));
        let small = resized_as(&small, asked);
        few_copies(&small.ok_or(RunError::Internal("a stack has not the dims of its layer"))?)
    };
    let copies = plan.folds.iter().map(|fold| fold.repeat).chain([plan.repeat]).max();
    let needed = plan.instructions.len() as u128 * u128::from(copies.unwrap_or(1));
    if needed > MAX_APPLIED {
        return Err(RunError::TooMany { needed, cap: MAX_APPLIED });
    }
    let price = shard_cost::price(&plan, hardware);
    let timeline = shard_schedule::overlap(&plan, &price, hardware);
    let stack = timeline.stack.as_deref();
    let of_stack = stack.and_then(|stack| executable(&plan, &price, stack, u64::MAX));
    let is_stack = of_stack.is_some();
    let made = of_stack.or_else(|| executable(&plan, &price, &timeline, u64::MAX));
    let Executable { execution, of } =
        made.ok_or(RunError::Internal("a layer that cannot be written out"))?;
    let source = match program.map(Plan::unsharded) {
        None => execution.plan.clone(),
        Some(source) => written_as(&source, &plan, is_stack)?,
    };
    let report = run_on_streams(&source, &execution, options)?;
    let copies = if is_stack { plan.repeat } else { copies_of(&plan) };
    let streams = Some(on_streams(&execution, copies, &report));
    Ok(Ran { plan, price, report: folded(report, &of), streams })
}

/// Whether every task of a schedule that was written down takes as long as a chip takes for it.
pub fn verify_written(execution: &Execution, hardware: &Hardware) -> Result<(), ExecutionError> {
    verify_times(execution, hardware)
}

/// Runs a schedule that was written down, as it stands: against its own ops, unsharded.
pub fn run_written(
    execution: &Execution,
    hardware: &Hardware,
    options: &RunOptions,
) -> Result<Ran, RunError> {
    let price: PlanPrice = shard_cost::price(&execution.plan, hardware);
    let report = run_on_streams(&execution.plan, execution, options)?;
    let streams = Some(on_streams(execution, 1, &report));
    Ok(Ran { plan: execution.plan.clone(), price, report, streams })
}

fn copies_of(plan: &Plan) -> u64 {
    plan.folds.iter().map(|fold| fold.repeat).max().unwrap_or(1)
}

fn on_streams(execution: &Execution, copies: u64, report: &Report) -> OnStreams {
    OnStreams {
        tasks: execution.tasks.len(),
        copies,
        peak_bytes: report.peak_bytes,
        model_peak_bytes: execution.peak_bytes,
        address_bytes: execution.extent(),
    }
}

/// The plan with a few copies of its layer, or of each of its blocks.
fn few_copies(plan: &Plan) -> Plan {
    let mut few = Plan { repeat: plan.repeat.min(FEW_APPLICATIONS), ..plan.clone() };
    few.folds.iter_mut().for_each(|fold| fold.repeat = fold.repeat.min(FEW_APPLICATIONS));
    few
}

/// The program as the source states it, with the sizes and the copies of a plan, written out as the
/// plan is.
fn written_as(source: &Plan, plan: &Plan, is_stack: bool) -> Result<Plan, RunError> {
    let not = RunError::Internal("the program has not the sizes of its plan");
    let mut source = resized_as(plan, source).ok_or(not)?;
    source.repeat = plan.repeat;
    for (fold, of_plan) in source.folds.iter_mut().zip(&plan.folds) {
        fold.repeat = of_plan.repeat;
    }
    if !is_stack {
        return Ok(source.unrolled(u64::MAX).plan);
    }
    let not = RunError::Internal("the program is no stack, and its plan is");
    Ok(source.stack_as_block().ok_or(not)?.unrolled(u64::MAX).plan)
}
