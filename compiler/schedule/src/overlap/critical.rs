//! What each run waits for.

use std::collections::HashMap;

use shard_ir::{InstrId, Picoseconds, Plan};

use super::Timeline;
use super::place::Run;
use super::units::Busy;

/// What a run waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The run, as an index.
    pub run: usize,
    /// What ends when the one that waits starts: what keeps a stream busy that it needs, as indices
    /// into what each of the two keeps busy; none where it waits for the run to be done.
    pub parts: Option<(usize, usize)>,
}

/// For each run of [`Timeline::expanded`] the one that it waits for: what makes an operand of it,
/// else what its streams are busy with, else what leaves memory or ends an earlier copy just then.
/// None for one that starts when an operand and its streams have long been there, and at the
/// beginning.
pub fn waits(plan: &Plan, timeline: &Timeline, most: u64) -> Vec<Option<Wait>> {
    let runs = timeline.expanded(most);
    let copies = |stage: usize| timeline.expanded_copies(stage, most);
    let mut made_by: HashMap<(usize, u64), usize> = HashMap::new();
    let mut busy_until: HashMap<(usize, Picoseconds), (usize, usize)> = HashMap::new();
    let mut done_at: HashMap<Picoseconds, usize> = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        let unit = &timeline.stages.units[run.unit];
        made_by.insert((run.unit, run.copy), at);
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
            let (made, _, copy) = timeline.stages.read(*operand, stage, run.copy, copies);
            made_by.get(&(timeline.stages.unit_of(made)?, copy)).copied()
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
        // What takes no time may be done before it begins, in a manner of speaking.
        let other =
            || done_at.get(&run.start).copied().filter(|by| runs[*by].start < run.start).map(done);
        makers.filter(is_last).min().map(done).or_else(stream).or_else(other)
    };
    runs.iter()
        .enumerate()
        .map(|(at, run)| if run.start > Picoseconds(0) { wait(at, run) } else { None })
        .collect()
}

/// The runs that are listed, from the first to the one that is done last, each waiting for the one
/// before, by their instructions; each instruction where it comes first.
pub(super) fn critical_path(plan: &Plan, timeline: &Timeline) -> Vec<InstrId> {
    let runs = timeline.expanded(0);
    let waits = waits(plan, timeline, 0);
    let unit = |at: usize| &timeline.stages.units[runs[at].unit];
    let mut at =
        (0..runs.len()).max_by_key(|at| (timeline.finish(&runs[*at]), std::cmp::Reverse(*at)));
    let mut path = Vec::new();
    // Nothing waits for itself in the end, however many steps take no time.
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
