//! [`Plan`] to [`Schedule`]: when each instruction runs, on which stream, and what is in memory
//! meanwhile; and the judge of every schedule, [`verify`]; and the plan in time if computing and
//! communicating overlap, [`overlap()`], with a judge of its own, [`verify_timeline`].

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
/// the later members of a fused kernel, whose time is its first member's. The steps of a folded
/// block are those of its first application; what follows starts when the last has finished.
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
