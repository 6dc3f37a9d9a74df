//! Puts a plan in time if computing and communicating overlap.
//!
//! A plan becomes units (`units`: kernels, transfers, fetches, loops with their chunks) in stages
//! (`stages`), which are placed in time (`place`) within the memory of a chip (`memory`). Of a
//! stage that is run many times a few copies are placed; those in the middle have to be alike, and
//! the copies that are not placed repeat them (`steady`).

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

/// A layer in time: one stream for compute, one for the link to the host and some for the network
/// ([`Streams`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// When the last step of a layer, or of a model, has finished.
    pub makespan: Picoseconds,
    /// The chain of steps that ends with the step that finishes last, each waiting for the one
    /// before it. Kernels are named by their first op; a step of a stage that is run many times is
    /// listed where it comes first.
    pub critical_path: Vec<InstrId>,
    /// Bytes of a chip at the peak: weights and caches of the whole stack, and the buffers that are
    /// live.
    pub peak_bytes: u64,
    /// The streams of the chip.
    pub streams: Streams,
    /// The units, and the stages that they are in.
    pub stages: Stages,
    /// When units are run, for the copies that are listed; by stage, copy and unit.
    pub runs: Vec<Run>,
    /// The copies of stages that are not listed in `runs`.
    pub steady: Vec<Steady>,
    /// Bytes that may be live: those of the chip, or those that the units hold one after another in
    /// program order if these are more.
    pub limit: u64,
    /// Whether it is the timeline of a stack of layers.
    pub is_stack: bool,
    /// In the timeline of one layer of a stack, that of the whole stack; `None` if layers are run
    /// one after the other.
    pub stack: Option<Box<Timeline>>,
}

/// How many copies of a stage are placed; the copies beyond these repeat one of them.
const LISTED: u64 = 8;

/// How many units there may be for the orders that look each time for the unit that can start
/// first, or are made from the end backwards.
const SOONEST: usize = 500;

/// Runs every kernel and every transfer as early as its operands, its streams, and the memory of
/// the chip allow. So a unit that is ready never waits for one that is not, and weights are
/// gathered, and fetched from the host, ahead of their use. Units are placed in several orders,
/// that of the program among them, and the timeline that is done first is taken.
///
/// The chunks of a collective einsum are run one by one, with the transfers of its loop beside
/// them. In a stack, and in a folded block, the weights of the next layer come while a layer
/// computes: a copy may start when the copy two before it is done.
///
/// The timeline never holds more than the chip has, if the plan does not when its units are run one
/// after another in program order.
pub fn overlap(plan: &Plan, price: &PlanPrice, hardware: &Hardware) -> Timeline {
    let streams = Streams::of(hardware, &plan.mesh);
    let layer = best_of(plan, hardware, &streams, Stages::of_layer(plan, price, &streams), false);
    let stack = Stages::of_stack(plan, price, &streams);
    let stack = stack.map(|stages| Box::new(best_of(plan, hardware, &streams, stages, true)));
    Timeline { stack, ..layer }
}

impl Timeline {
    /// When the whole stack is done; without a timeline of the stack, `repeat` times the makespan
    /// of a layer.
    pub fn of_all_layers(&self, plan: &Plan) -> Picoseconds {
        self.stack.as_ref().map_or_else(|| self.makespan.times(plan.repeat), |stack| stack.makespan)
    }

    /// The timeline of the stack if there is one, else this one.
    pub fn whole(&self) -> &Timeline {
        self.stack.as_deref().unwrap_or(self)
    }

    /// When the unit of an instruction starts and finishes, in the first copy; `None` for a
    /// parameter or a constant.
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

/// The shortest timeline of all orders of units and all ways to run copies beside each other.
fn best_of(
    plan: &Plan,
    hardware: &Hardware,
    streams: &Streams,
    stages: Stages,
    is_stack: bool,
) -> Timeline {
    let in_turn = Asked {
        plan,
        stages: &stages,
        streams,
        limit: u64::MAX,
        is_stack,
        listed: LISTED,
        ahead: Ahead::Serial,
        order: Order::Program,
    };
    // One after the other the units may hold more than `Memory` counts for the plan, since the
    // members of a kernel read and write at the same time.
    let serial = timeline_of(in_turn);
    let limit = hardware.hbm_bytes.max(serial.as_ref().map_or(0, |timeline| timeline.peak_bytes));
    let made = |ahead, order| timeline_of(Asked { limit, ahead, order, ..in_turn });

    let orders: &[Order] = if stages.units.len() <= SOONEST {
        &[Order::Program, Order::Soonest, Order::Longest, Order::Backward, Order::SoonestBackward]
    } else {
        &[Order::Program, Order::Longest]
    };
    let several = stages.stages.iter().any(|stage| stage.copies > 1) || stages.stages.len() > 1;
    let aheads: &[Ahead] = if several { &[Ahead::One, Ahead::None] } else { &[Ahead::One] };
    let ways = aheads.iter().flat_map(|ahead| orders.iter().map(|order| (*ahead, *order)));
    // Of several that are equally short, the first.
    let best = ways
        .filter_map(|(ahead, order)| made(ahead, order))
        .min_by_key(|timeline| timeline.makespan);
    let serial = serial.map(|serial| Timeline { limit, ..serial });
    let mut best = best.or(serial).unwrap_or_else(|| {
        never!(
            "steps one after another that differ from copy to copy",
            empty(Asked { limit, ..in_turn })
        )
    });
    best.critical_path = critical::critical_path(plan, &best);
    best
}

/// The timeline of one way to place the units. `None` if it needs more memory than the limit, or
/// the copies of a stage never become alike.
fn timeline_of(asked: Asked<'_>) -> Option<Timeline> {
    let runs = place(asked);
    let steady = steady::steady(asked.stages, &runs, asked.listed)?;
    let mut timeline = Timeline { runs, steady, ..empty(asked) };
    timeline.makespan = timeline.makespan_of_all();
    timeline.peak_bytes = live::peak(asked.plan, &timeline);
    (timeline.peak_bytes <= asked.limit).then_some(timeline)
}

/// A timeline in which nothing is run.
fn empty(asked: Asked<'_>) -> Timeline {
    let Asked { stages, streams, limit, is_stack, .. } = asked;
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
