//! What each run waits for.

use std::collections::HashMap;

use shard_ir::{InstrId, Picoseconds, Plan};

use super::Timeline;
use super::place::Run;

/// For each run of [`Timeline::expanded`] the one that it waits for, as indices: what makes an operand of it, else what its
/// streams are busy with, else what leaves memory or ends an earlier copy just then. None for one that starts when an operand
/// and its streams have long been there, and at the beginning.
pub fn waits(plan: &Plan, timeline: &Timeline, most: u64) -> Vec<Option<usize>> {
    let runs = timeline.expanded(most);
    let copies = |stage: usize| timeline.copies(stage, most);
    let mut made_by: HashMap<(usize, u64), usize> = HashMap::new();
    let mut busy_until: HashMap<(usize, Picoseconds), usize> = HashMap::new();
    let mut done_at: HashMap<Picoseconds, usize> = HashMap::new();
    for (at, run) in runs.iter().enumerate() {
        let unit = &timeline.stages.units[run.unit];
        made_by.insert((run.unit, run.copy), at);
        for busy in &unit.busy {
            busy_until.insert((busy.stream, run.start + busy.until), at);
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
        let operand = makers.filter(is_last).min();
        let stream = || unit.busy.iter().find_map(|busy| busy_until.get(&(busy.stream, run.start + busy.from)));
        // What takes no time may be done before it begins, in a manner of speaking.
        let other = || done_at.get(&run.start).filter(|by| runs[**by].start < run.start);
        operand.or_else(|| stream().copied().filter(|by| *by != at)).or_else(|| other().copied())
    };
    runs.iter().enumerate().map(|(at, run)| if run.start > Picoseconds(0) { wait(at, run) } else { None }).collect()
}

/// The runs that are listed, from the first to the one that is done last, each waiting for the one before, by their
/// instructions; each instruction where it comes first.
pub(super) fn critical_path(plan: &Plan, timeline: &Timeline) -> Vec<InstrId> {
    let runs = timeline.expanded(0);
    let waits = waits(plan, timeline, 0);
    let unit = |at: usize| &timeline.stages.units[runs[at].unit];
    let mut at = (0..runs.len()).max_by_key(|at| (timeline.finish(&runs[*at]), std::cmp::Reverse(*at)));
    let mut path = Vec::new();
    // Nothing waits for itself in the end, however many steps take no time.
    for _ in 0..runs.len() {
        let Some(run) = at else { break };
        if unit(run).time > Picoseconds(0) {
            path.push(unit(run).first());
        }
        at = waits[run];
    }
    path.reverse();
    let mut seen = vec![false; plan.instructions.len()];
    path.retain(|id| !std::mem::replace(&mut seen[id.index()], true));
    path
}
