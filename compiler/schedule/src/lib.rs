//! Puts a [`Plan`] in time: when each instruction runs, on which stream, and what is in memory
//! meanwhile.
//!
//! * [`schedule`] gives the [`Schedule`] in which instructions run one after another; [`verify`]
//!   checks any schedule.
//! * [`overlap()`] gives the [`Timeline`] in which computing and communicating overlap;
//!   [`verify_timeline`] checks any timeline.

pub mod overlap;
mod verify;

use shard_cost::{PlanPrice, buffers};
use shard_ir::{Liveness, Picoseconds, Plan, Schedule, Step};

pub use overlap::{Timeline, TimelineError, overlap, verify_timeline};
pub use verify::{ScheduleError, verify};

/// The serial schedule of a plan: its instructions one after another in program order, each as long
/// as its price says.
///
/// Its makespan is the plan's serial time. Parameters and constants take no time, and neither do
/// the members of a fused kernel behind the first, which has the time of the kernel. The steps of a
/// folded block are those of its first application; the step behind the block starts when its last
/// application has finished.
pub fn schedule(plan: Plan, price: &PlanPrice) -> Schedule {
    let Liveness { live_bytes, frees } = Liveness::in_buffers(&plan, &buffers(&plan));
    let mut now = Picoseconds(0);
    let mut steps = Vec::with_capacity(plan.instructions.len());
    let ranges = plan.fold_ranges();
    let mut begun = Picoseconds(0);
    for (id, live_bytes) in plan.ids().zip(live_bytes) {
        let start = now;
        now = now + price.of(id).time();
        steps.push(Step {
            id,
            stream: plan.instruction(id).kind.stream(),
            start,
            finish: now,
            live_bytes,
        });
        for (fold, (first, last)) in
            plan.folds.iter().zip(&ranges).filter_map(|(fold, range)| Some((fold, (*range)?)))
        {
            if id == first {
                begun = start;
            }
            if id == last {
                let once = Picoseconds(now.0.saturating_sub(begun.0));
                now = now + once.times(fold.repeat.saturating_sub(1));
            }
        }
    }
    Schedule { plan, steps, frees }
}
