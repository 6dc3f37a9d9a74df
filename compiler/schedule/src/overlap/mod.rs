//! When everything is done if computing and communicating overlap.
//!
//! A plan becomes units (`units`: kernels, transfers, fetches, loops with their chunks) in stages
//! (`stages`), which are placed in time (`place`) within the memory of a chip (`memory`). Of a
//! stage that is run many times a few copies are placed; where those in the middle are alike, the
//! others are as they are (`steady`).

mod accesses;
mod addresses;
mod critical;
mod executable;
mod live;
mod memory;
mod order;
mod place;
mod stages;
mod steady;
mod units;
mod verify;
mod verify_execution;
mod verify_times;

use shard_cost::{Hardware, PlanPrice, Streams};
use shard_ir::{InstrId, Picoseconds, Plan, never};

pub use addresses::{Placed, placed};
pub use critical::{Wait, waits};
pub use executable::{Executable, executable};
pub use live::{Buffer, Buffers, buffers};
pub use place::Run;
pub use stages::{Stage, Stages};
pub use steady::Steady;
pub use units::{Busy, Part, Unit};
pub use verify::{TimelineError, verify_addresses, verify_timeline};
pub use verify_execution::{ExecutionError, verify_execution};
pub use verify_times::verify_times;

use order::Order;
use place::{Ahead, Asked, place};

/// A layer in time: one stream for compute, one for the link to the host and one for each resource
/// of the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// When the last step of a layer, or of a model, has finished.
    pub makespan: Picoseconds,
    /// Steps of which each waits for the one before, from the first to the one that finishes last;
    /// kernels by their first op; one of a stage that is run many times where it comes first.
    pub critical_path: Vec<InstrId>,
    /// Bytes of a chip at the peak: weights and caches of the whole stack, and what else is live.
    pub peak_bytes: u64,
    /// What is kept busy.
    pub streams: Streams,
    /// What is run.
    pub stages: Stages,
    /// When, in the order of the program.
    pub runs: Vec<Run>,
    /// Copies of stages that are run beside those in `runs`.
    pub steady: Vec<Steady>,
    /// Bytes that may be live: what the chip has, or what the steps hold in program order where
    /// that is more.
    pub limit: u64,
    /// Whether it is the timeline of a stack of layers.
    pub is_stack: bool,
    /// The whole stack, of a layer that is stacked; none where nothing of one layer runs beside
    /// another.
    pub stack: Option<Box<Timeline>>,
}

/// Copies of a stage that are placed; beyond these, those in the middle repeat.
const LISTED: u64 = 8;

/// Units beyond which nobody looks each time for the one that can start first.
const SOONEST: usize = 500;

/// Runs every kernel and every transfer as early as its operands, its streams, and the memory of
/// the chip allow. So what is ready never waits for what is not, and weights are gathered, and
/// fetched from the host, ahead. Several orders are tried in which units are placed, the program's
/// among them, and the one that is done first is taken.
///
/// The chunks of a collective einsum are run one by one, each transfer of its loop beside them. Of
/// a stack, and of a folded block, the next layer's weights come while one computes: a copy starts
/// when the one before the one before is done.
///
/// The order in memory is that of `place`: no schedule holds more than the chip has, where the plan
/// run in program order does not.
pub fn overlap(plan: &Plan, price: &PlanPrice, hardware: &Hardware) -> Timeline {
    let streams = Streams::of(hardware, &plan.mesh);
    let layer = best_of(plan, hardware, &streams, Stages::of_layer(plan, price, &streams), false);
    let stack = Stages::of_stack(plan, price, &streams);
    let stack = stack.map(|stages| Box::new(best_of(plan, hardware, &streams, stages, true)));
    Timeline { stack, ..layer }
}

impl Timeline {
    /// When the whole stack is done.
    pub fn of_all_layers(&self, plan: &Plan) -> Picoseconds {
        self.stack.as_ref().map_or_else(|| self.makespan.times(plan.repeat), |stack| stack.makespan)
    }

    /// The timeline of all that there is: the stack's, where there is one.
    pub fn whole(&self) -> &Timeline {
        self.stack.as_deref().unwrap_or(self)
    }

    /// When the unit of an instruction starts and finishes, in the first copy; none for a parameter
    /// or a constant.
    pub fn span(&self, id: InstrId) -> Option<(Picoseconds, Picoseconds)> {
        let unit = self.stages.unit_of(id)?;
        let run = self.runs.iter().find(|run| run.unit == unit)?;
        Some((run.start, run.start + self.stages.units[unit].time))
    }

    /// When a run has finished.
    pub fn finish(&self, run: &Run) -> Picoseconds {
        run.start + self.stages.units[run.unit].time
    }
}

/// The shortest of what the ways to run copies beside each other give.
fn best_of(
    plan: &Plan,
    hardware: &Hardware,
    streams: &Streams,
    stages: Stages,
    is_stack: bool,
) -> Timeline {
    // What the units hold one after another in program order: more than the plan's account where
    // the members of a kernel read and write at the same time.
    let serial =
        timeline_of(plan, streams, &stages, is_stack, u64::MAX, (Ahead::Serial, Order::Program));
    let limit = hardware.hbm_bytes.max(serial.as_ref().map_or(0, |timeline| timeline.peak_bytes));
    let made = |ahead, order| timeline_of(plan, streams, &stages, is_stack, limit, (ahead, order));

    let orders: &[Order] = if stages.units.len() <= SOONEST {
        &[Order::Program, Order::Soonest, Order::Longest, Order::Backward, Order::SoonestBackward]
    } else {
        &[Order::Program, Order::Longest]
    };
    let several = stages.stages.iter().any(|stage| stage.copies > 1) || stages.stages.len() > 1;
    let aheads: &[Ahead] = if several { &[Ahead::One, Ahead::None] } else { &[Ahead::One] };
    let ways = aheads.iter().flat_map(|ahead| orders.iter().map(|order| (*ahead, *order)));
    // Of equal ones the first.
    let best = ways
        .filter_map(|(ahead, order)| made(ahead, order))
        .min_by_key(|timeline| timeline.makespan);
    let serial = serial.map(|serial| Timeline { limit, ..serial });
    let mut best = best.or(serial).unwrap_or_else(|| {
        never!(
            "steps one after another that differ from copy to copy",
            empty(&stages, streams, limit, is_stack)
        )
    });
    best.critical_path = critical::critical_path(plan, &best);
    best
}

/// The timeline that one way gives; none where it needs more than there is, or copies never become
/// alike.
fn timeline_of(
    plan: &Plan,
    streams: &Streams,
    stages: &Stages,
    is_stack: bool,
    limit: u64,
    (ahead, order): (Ahead, Order),
) -> Option<Timeline> {
    let asked = Asked { plan, stages, streams, limit, is_stack, listed: LISTED, ahead, order };
    let runs = place(asked);
    let steady = steady::steady(stages, &runs, LISTED)?;
    let mut timeline = Timeline { runs, steady, ..empty(stages, streams, limit, is_stack) };
    timeline.makespan = timeline.makespan_of_all();
    timeline.peak_bytes = live::peak(plan, &timeline);
    (timeline.peak_bytes <= limit).then_some(timeline)
}

fn empty(stages: &Stages, streams: &Streams, limit: u64, is_stack: bool) -> Timeline {
    Timeline {
        makespan: Picoseconds(0),
        critical_path: Vec::new(),
        peak_bytes: 0,
        streams: streams.clone(),
        stages: stages.clone(),
        runs: Vec::new(),
        steady: Vec::new(),
        limit,
        is_stack,
        stack: None,
    }
}
