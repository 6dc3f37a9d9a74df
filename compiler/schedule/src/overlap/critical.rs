//! For each run of a timeline the run that it waits for.

use std::collections::HashMap;

use shard_ir::{InstrId, Picoseconds, Plan};

use super::Timeline;
use super::place::Run;
use super::stages::UnitCopy;
use super::units::Busy;

/// What a run waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The run, as an index.
    pub run: usize,
    /// If it waits for a stream: the entry of [`Unit::busy`](super::Unit::busy) of `run` that keeps
    /// the stream busy, and the entry of the waiting unit that begins when that one ends, as
    /// indices. `None` if it waits for the run to be done.
    pub parts: Option<(usize, usize)>,
}

/// For each run of [`Timeline::expanded`] the run that it waits for: one that makes an operand and
/// is done when it starts, else one that keeps a stream busy until it needs the stream, else any
/// that is done when it starts, which frees memory or ends a copy. `None` for a run that starts at
/// the beginning, or waits for none of these.
pub fn waits(plan: &Plan, timeline: &Timeline, most: u64) -> Vec<Option<Wait>> {
    let runs = timeline.expanded(most);
    let copies = |stage: usize| timeline.expanded_copies(stage, most);
    let mut run_of: HashMap<UnitCopy, usize> = HashMap::new();
    let mut busy_until: HashMap<(usize, Picoseconds), (usize, usize)> = HashMap::new();
    let mut done_at: HashMap<Picoseconds, usize> = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        let unit = &timeline.stages.units[run.unit];
        run_of.insert(run.unit_copy(), at);
        for (part, busy) in unit.busy.iter().enumerate() {
            busy_until.insert((busy.stream, run.start + busy.until), (at, part));
        }
        if unit.time > Picoseconds(0) {
            done_at.entry(timeline.finish(run)).or_insert(at);
        }
    }
    let wait = |at: usize, run: &Run| {
        let unit = &timeline.stages.units[run.unit];
        let stage = timeline.stages.stage_of(run.unit);
        let operands = unit.members.iter().flat_map(|id| &plan.instruction(*id).operands);
        let makers = operands.filter_map(|operand| {
            let made = timeline.stages.read(*operand, stage, run.copy, copies);
            let unit = timeline.stages.unit_of(made.id)?;
            run_of.get(&UnitCopy { unit, copy: made.copy }).copied()
        });
        let is_last = |by: &usize| *by != at && timeline.finish(&runs[*by]) == run.start;
        let done = |run| Wait { run, parts: None };
        let before = |(part, busy): (usize, &Busy)| {
            let (run, of) = busy_until
                .get(&(busy.stream, run.start + busy.from))
                .filter(|(by, _)| *by != at)?;
            Some(Wait { run: *run, parts: Some((*of, part)) })
        };
        let stream = || unit.busy.iter().enumerate().find_map(before);
        // Of two runs that start at once neither waits for the other.
        let other =
            || done_at.get(&run.start).copied().filter(|by| runs[*by].start < run.start).map(done);
        makers.filter(is_last).min().map(done).or_else(stream).or_else(other)
    };
    runs.iter()
        .enumerate()
        .map(|(at, run)| if run.start > Picoseconds(0) { wait(at, run) } else { None })
        .collect()
}

/// The chain of listed runs that ends with the run that is done last, each waiting for the one
/// before it, by their first instructions. An instruction that several runs of the chain have is
/// listed where it comes first.
pub(super) fn critical_path(plan: &Plan, timeline: &Timeline) -> Vec<InstrId> {
    let runs = timeline.expanded(0);
    let waits = waits(plan, timeline, 0);
    let unit = |at: usize| &timeline.stages.units[runs[at].unit];
    let mut at =
        (0..runs.len()).max_by_key(|at| (timeline.finish(&runs[*at]), std::cmp::Reverse(*at)));
    let mut path = Vec::new();
    // Runs that take no time could wait for each other in a circle, so that the chain is bounded.
    for _ in 0..runs.len() {
        let Some(run) = at else { break };
        if unit(run).time > Picoseconds(0) {
            path.push(unit(run).first());
        }
        at = waits[run].map(|wait| wait.run);
    }
    path.reverse();
    let mut seen = vec![false; plan.instructions.len()];
    path.retain(|id| !std::mem::replace(&mut seen[id.index()], true));
    path
}
