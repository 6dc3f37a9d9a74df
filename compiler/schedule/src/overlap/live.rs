//! [`Buffer`]: memory of a chip, and the time in which it is held.

use std::collections::HashMap;

use shard_ir::{InstrId, Picoseconds, Plan};

use super::Timeline;
use super::memory::{Holders, kept};
use super::place::{Run, held_until};
use super::stages::Made;

/// Memory of a chip that is held for some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// The instruction whose value it holds first, or the loop whose chunks it holds.
    pub id: InstrId,
    /// The copy of its stage.
    pub copy: u64,
    /// Whether it holds the chunks of a loop that are under way.
    pub of_loop: bool,
    /// Its bytes; at least one.
    pub bytes: u64,
    /// From when it is written.
    pub from: Picoseconds,
    /// Until when it is read.
    pub until: Picoseconds,
}

/// What a chip holds along a timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Bytes that are held throughout: of weights and caches, and of the states of copies that are
    /// not listed.
    pub kept: u64,
    /// Everything else, in the order of the program.
    pub buffers: Vec<Buffer>,
}

/// What a chip holds along the timeline, of each stage no more than so many of the copies that are
/// not listed.
pub fn buffers(plan: &Plan, timeline: &Timeline, most: u64) -> Buffers {
    let copies = |stage: usize| timeline.expanded_copies(stage, most);
    let holders = Holders::of(plan, &timeline.stages, timeline.is_stack);
    let runs = timeline.expanded(most);
    let until = |run: &Run| held_until(run.start, timeline.finish(run));
    // A layer that runs nothing still holds its results, for a moment.
    let end = runs.iter().map(until).max().unwrap_or_default().max(Picoseconds(1));
    let mut found: Vec<Buffer> = Vec::new();
    let mut of: HashMap<Made, usize> = HashMap::new();
    let mut hold = |made: Made, bytes: u64, from: Picoseconds, found: &mut Vec<Buffer>| {
        of.insert(made, found.len());
        found.push(Buffer {
            id: made.id,
            copy: made.copy,
            of_loop: false,
            bytes,
            from,
            until: from,
        });
    };
    for (made, bytes) in holders.given() {
        hold(made, bytes, Picoseconds(0), &mut found);
    }
    let mut of_others = 0u64;
    for home in holders.homes() {
        let listed = copies(home.stage);
        let others = timeline.stages.stages[home.stage].copies.saturating_sub(listed);
        of_others = of_others.saturating_add(home.bytes.saturating_mul(others));
        for made in home.of_copies(listed) {
            hold(made, home.bytes, Picoseconds(0), &mut found);
        }
    }
    for run in &runs {
        for (made, bytes) in holders.allocated(run.unit_copy()) {
            hold(made, bytes, run.start, &mut found);
        }
    }
    let mut reach = |made: &Made, until: Picoseconds| {
        if let Some(buffer) = of.get(made).and_then(|at| found.get_mut(*at)) {
            buffer.until = buffer.until.max(until);
        }
    };
    let states = holders.homes().flat_map(|home| home.of_copies(copies(home.stage)));
    states.for_each(|made| reach(&made, end));
    holders.returned(&copies).iter().for_each(|made| reach(made, end));
    for run in &runs {
        let touched = holders.touched(run.unit_copy(), &copies);
        touched.iter().for_each(|made| reach(made, until(run)));
    }
    for alike in runs.chunk_by(|a, b| in_copy(timeline, a) == in_copy(timeline, b)) {
        let (stage, copy) = in_copy(timeline, &alike[0]);
        let is_last = copy + 1 == copies(stage);
        let done = alike.iter().map(|run| timeline.finish(run)).max().unwrap_or_default();
        let until = if timeline.is_stack && !is_last { done } else { end };
        holders.results(stage, copy, &copies).iter().for_each(|made| reach(made, until));
    }
    found.extend(runs.iter().filter(|run| holders.beside(run.unit) > 0).map(|run| Buffer {
        id: timeline.stages.units[run.unit].first(),
        copy: run.copy,
        of_loop: true,
        bytes: holders.beside(run.unit),
        from: run.start,
        until: timeline.finish(run),
    }));
    // A buffer that is never read, or for no time, is not in memory.
    found.retain(|buffer| buffer.until > buffer.from && buffer.bytes > 0);
    Buffers { kept: kept(plan).saturating_add(of_others), buffers: found }
}

/// The stage and the copy that a run is in.
fn in_copy(timeline: &Timeline, run: &Run) -> (usize, u64) {
    (timeline.stages.stage_of(run.unit), run.copy)
}

impl Buffers {
    /// The moments at which the live bytes change, in order, each with the bytes from then on. At
    /// one moment buffers are freed before others are held.
    pub fn live(&self) -> Vec<(Picoseconds, u64)> {
        let mut changes: Vec<(Picoseconds, bool, u64)> =
            Vec::with_capacity(2 * self.buffers.len() + 1);
        for buffer in &self.buffers {
            changes.push((buffer.from, true, buffer.bytes));
            changes.push((buffer.until, false, buffer.bytes));
        }
        changes.sort_unstable();
        let mut live = self.kept;
        let mut found = vec![(Picoseconds(0), live)];
        for (at, begins, bytes) in changes {
            live = if begins { live.saturating_add(bytes) } else { live.saturating_sub(bytes) };
            match found.last_mut() {
                Some(last) if last.0 == at => last.1 = live,
                _ => found.push((at, live)),
            }
        }
        found
    }

    /// The most bytes that are live at once.
    pub fn peak(&self) -> u64 {
        self.live().into_iter().map(|(_, live)| live).max().unwrap_or(self.kept)
    }
}

/// The most bytes that are live at once in a timeline. Copies that are not listed add nothing to
/// it: they hold what the copy that they are like holds.
pub(super) fn peak(plan: &Plan, timeline: &Timeline) -> u64 {
    buffers(plan, timeline, 0).peak()
}
