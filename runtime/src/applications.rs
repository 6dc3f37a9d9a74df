//! Plans with folded blocks: their applications are written out before they are executed, each with
//! weights and caches of its own.

use shard_ir::{InstrId, Plan, Unrolled, never};

use crate::error::RunError;
use crate::execute::CollectiveTrace;
use crate::judge::Report;
use crate::limits::MAX_APPLIED;

/// How many applications of a folded block are executed unless all are asked for: a first one, one
/// between, and a last one.
pub const FEW_APPLICATIONS: u64 = 3;

/// A plan with its folded blocks written out: all applications, or [`FEW_APPLICATIONS`] of each
/// block. An error if that has more than [`MAX_APPLIED`] instructions.
pub fn written_out(plan: &Plan, all: bool) -> Result<Unrolled, RunError> {
    let most = if all { u64::MAX } else { FEW_APPLICATIONS };
    let too_many = |needed| RunError::TooMany { needed, cap: MAX_APPLIED };
    let needed =
        plan.ids().map(|id| u128::from(plan.repeat_of(id).min(most))).fold(0, u128::saturating_add);
    if needed > MAX_APPLIED { Err(too_many(needed)) } else { Ok(plan.unrolled(most)) }
}

/// The report on a plan that was written out, told of the instructions of the plan with folded
/// blocks: `of` has for each instruction that was executed the one that it is an application of. A
/// collective in a block has the figures of the application that sent most; all should send the
/// same.
pub fn folded(report: Report, of: &[InstrId]) -> Report {
    let original = |id: InstrId| {
        of.get(id.index())
            .copied()
            .unwrap_or_else(|| never!("an instruction that stands for none", id))
    };
    let mut collectives: Vec<CollectiveTrace> = Vec::new();
    for trace in report.collectives {
        let trace = CollectiveTrace { id: original(trace.id), ..trace };
        match collectives.iter_mut().find(|known| known.id == trace.id) {
            Some(known) if known.wire_bytes < trace.wire_bytes => *known = trace,
            Some(_) => {}
            None => collectives.push(trace),
        }
    }
    collectives.sort_by_key(|trace| trace.id);
    Report { collectives, first_wrong: report.first_wrong.map(original), ..report }
}
