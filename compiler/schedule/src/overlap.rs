//! When everything is done if computing and communicating overlap.

use shard_cost::{Hardware, InstrPrice, PlanPrice, kernels, moved_over, streams};
use shard_ir::{InstrId, InstrKind, Picoseconds, Plan};

/// A layer in time, with one stream for compute and one for each network that can work beside the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// When the last step has finished.
    pub makespan: Picoseconds,
    /// Steps of which each waits for the one before, from the first to the one that finishes last; kernels by their first
    /// op.
    pub critical_path: Vec<InstrId>,
}

/// What runs as one: a kernel or a move.
struct Unit {
    first: InstrId,
    members: Vec<InstrId>,
    time: Picoseconds,
    /// The streams that it keeps busy; 0 is compute.
    streams: Vec<Busy>,
}

/// A stream that a unit keeps busy, from when to when after it starts.
struct Busy {
    stream: usize,
    from: Picoseconds,
    until: Picoseconds,
}

/// Runs every kernel and every move as early as its operands and its streams allow. Where several could start at the same
/// moment, the one that comes first in the program does; so what is ready never waits for what is not.
///
/// The loop of a collective einsum keeps the cores busy throughout and its network for as long as the collective takes by
/// itself: from the start where it gathers, up to the end where it scatters. So the chunks of one loop are multiplied beside
/// its transfers, and other collectives use what the network has left.
///
/// Nothing limits how much is fetched ahead: the memory that this takes is not counted. The applications of a folded block
/// are run one after another, each as long as it takes by itself, and nothing of what stands outside runs beside them.
pub fn overlap(plan: &Plan, price: &PlanPrice, hardware: &Hardware) -> Timeline {
    let mut timeline = Timeline { makespan: Picoseconds(0), critical_path: Vec::new() };
    let units = units(plan, price, hardware);
    let fold_of = |unit: &Unit| plan.runs_in(unit.first);
    let mut rest = units.as_slice();
    while let Some(first) = rest.first() {
        let fold = fold_of(first);
        let count = rest.iter().take_while(|unit| fold_of(unit) == fold).count();
        let (part, behind) = rest.split_at(count);
        let found = overlap_units(plan, part);
        let repeat = fold.map_or(1, |fold| plan.folds[fold.index()].repeat);
        timeline.makespan = timeline.makespan + found.makespan.times(repeat);
        timeline.critical_path.extend(found.critical_path);
        rest = behind;
    }
    timeline
}

/// The steps between two points at which everything is done.
fn overlap_units(plan: &Plan, units: &[Unit]) -> Timeline {
    let mut unit_of = vec![None; plan.instructions.len()];
    for (at, unit) in units.iter().enumerate() {
        for member in &unit.members {
            unit_of[member.index()] = Some(at);
        }
    }
    let needs = |unit: &Unit| -> Vec<usize> {
        let operands = unit.members.iter().flat_map(|m| &plan.instruction(*m).operands);
        operands.filter_map(|o| unit_of[o.index()]).filter(|at| !unit.members.contains(&units[*at].first)).collect()
    };
    let needs: Vec<Vec<usize>> = units.iter().map(needs).collect();
    let stream_count = 2 + plan.mesh.axes().len();
    // When each stream is free, and the unit that it is busy with until then.
    let mut free: Vec<(Picoseconds, Option<usize>)> = vec![(Picoseconds(0), None); stream_count];
    let mut finish: Vec<Option<Picoseconds>> = vec![None; units.len()];
    let mut waited_for: Vec<Option<usize>> = vec![None; units.len()];
    let mut waiting: Vec<usize> = (0..units.len()).collect();
    while !waiting.is_empty() {
        // The earliest start of each unit whose operands are there, and what it waits for until then.
        let start = |at: usize| {
            let mut latest = (Picoseconds(0), None);
            for need in &needs[at] {
                let done = finish[*need]?;
                if done > latest.0 {
                    latest = (done, Some(*need));
                }
            }
            for Busy { stream, from, .. } in &units[at].streams {
                let (until, by) = free[*stream];
                let start = Picoseconds(until.0.saturating_sub(from.0));
                if start > latest.0 {
                    latest = (start, by);
                }
            }
            Some(latest)
        };
        let ready = waiting.iter().filter_map(|at| Some((start(*at)?, *at)));
        // Operands come before their uses, so the first that waits is ready.
        let Some(((begin, waits), at)) = ready.min_by_key(|((begin, _), at)| (*begin, *at)) else { break };
        let end = begin + units[at].time;
        finish[at] = Some(end);
        waited_for[at] = waits;
        if units[at].time > Picoseconds(0) {
            for Busy { stream, until, .. } in &units[at].streams {
                free[*stream] = (begin + *until, Some(at));
            }
        }
        waiting.retain(|other| *other != at);
    }
    let last = (0..units.len()).max_by_key(|at| (finish[*at], std::cmp::Reverse(*at)));
    let mut critical_path = Vec::new();
    let mut at = last;
    while let Some(unit) = at {
        if units[unit].time > Picoseconds(0) {
            critical_path.push(units[unit].first);
        }
        at = waited_for[unit];
    }
    critical_path.reverse();
    Timeline { makespan: finish.into_iter().flatten().max().unwrap_or_default(), critical_path }
}

/// Kernels and moves, in the order of their last instructions.
fn units(plan: &Plan, price: &PlanPrice, hardware: &Hardware) -> Vec<Unit> {
    let stream_of_axis = streams(hardware, &plan.mesh);
    let network = |id: InstrId| -> Vec<usize> {
        let axes = moved_over(plan, id).into_iter().flat_map(|axes| axes.iter().collect::<Vec<_>>());
        let mut streams: Vec<usize> = axes.map(|a| 1 + stream_of_axis[a.index()]).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    };
    let kernel = |members: Vec<InstrId>| {
        let first = *members.first()?;
        let time = price.of(first).time();
        let mut streams = vec![Busy { stream: 0, from: Picoseconds(0), until: time }];
        if let (Some(cost), InstrKind::CollectiveEinsum(fused)) =
            (price.of(first).collective(), &plan.instruction(first).kind)
        {
            let from = match fused.gathered() {
                Some(_) => Picoseconds(0),
                None => Picoseconds(time.0.saturating_sub(cost.time.0)),
            };
            let until = from + cost.time;
            streams.extend(network(first).into_iter().map(|stream| Busy { stream, from, until }));
        }
        Some(Unit { first, time, members, streams })
    };
    let mut units: Vec<Unit> = kernels(plan).into_iter().filter_map(kernel).collect();
    for id in plan.ids().filter(|id| matches!(plan.instruction(*id).kind, InstrKind::Move(_))) {
        let time = price.of(id).time();
        let streams = match price.of(id) {
            InstrPrice::Move(cost) if cost.time > Picoseconds(0) => network(id),
            InstrPrice::Move(_) | InstrPrice::Kernel { .. } | InstrPrice::Free => vec![0],
        };
        let busy = |stream| Busy { stream, from: Picoseconds(0), until: time };
        let streams = streams.into_iter().map(busy).collect();
        units.push(Unit { first: id, members: vec![id], time, streams });
    }
    units.sort_by_key(|unit| unit.members.last().copied());
    units
}
