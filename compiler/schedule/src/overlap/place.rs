//! Units in time: each as early as what it reads, its streams, and memory allow.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use shard_cost::Streams;
use shard_ir::{Picoseconds, Plan, never};

use super::memory::{Holders, Profile, Readers, kept};
use super::order::{Order, from_the_end, longest_first};
use super::stages::{Made, Stages};
use super::units::Busy;

/// A copy of a unit in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The unit.
    pub unit: usize,
    /// Which copy of its stage, from 0.
    pub copy: u64,
    /// When it starts.
    pub start: Picoseconds,
}

/// How far copies of stages may run beside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ahead {
    /// A copy starts when the one before the one before is done: its weights come while that before
    /// it computes.
    One,
    /// A copy starts when the one before is done.
    None,
    /// And every unit when the one before is done.
    Serial,
}

/// What is placed.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stages: &'a Stages,
    pub(super) streams: &'a Streams,
    /// Bytes that may be live.
    pub(super) limit: u64,
    pub(super) is_stack: bool,
    /// So many copies of each stage, at most.
    pub(super) listed: u64,
    pub(super) ahead: Ahead,
    pub(super) order: Order,
}

impl Asked<'_> {
    /// How many copies of a stage are placed.
    pub(super) fn copies(&self, stage: usize) -> u64 {
        self.stages.stages[stage].copies.min(self.listed)
    }
}

/// Places all units, copy by copy. One that waits for nothing but operands may so go into a gap
/// that those before it have left on its streams.
///
/// In program order there is always room at the end of everything that is placed: what is live
/// there is what would be live if the plan were run in program order. Other orders may need more
/// than there is, which is for the caller to see.
pub(super) fn place(asked: Asked<'_>) -> Vec<Run> {
    let mut placer = Placer::of(asked);
    let left = match asked.order {
        Order::Backward | Order::SoonestBackward => from_the_end(asked),
        Order::Program | Order::Longest | Order::Soonest => Vec::new(),
    };
    for (at, stage) in asked.stages.stages.iter().enumerate() {
        for copy in 0..asked.copies(at) {
            match asked.order {
                Order::Program => stage.units.clone().for_each(|unit| placer.put(unit, copy)),
                Order::Longest => longest_first(asked, stage.units.clone())
                    .for_each(|unit| placer.put(unit, copy)),
                Order::Soonest => placer.soonest_first(stage.units.clone(), copy, &|_| 0),
                Order::Backward => {
                    let mut units: Vec<usize> = stage.units.clone().collect();
                    units.sort_by_key(|unit| (Reverse(left[*unit]), *unit));
                    units.into_iter().for_each(|unit| placer.put(unit, copy));
                }
                Order::SoonestBackward => {
                    placer.soonest_first(stage.units.clone(), copy, &|unit| left[unit].0);
                }
            }
            placer.end_copy(at, copy);
        }
    }
    let mut runs = placer.runs;
    runs.sort_by_key(|run| (asked.stages.stage_of(run.unit), run.copy, run.unit));
    runs
}

/// A unit that waits for streams and memory alone: a moment before which it cannot start, and what
/// decides among those that start at once.
type Waiting = (Picoseconds, Reverse<u64>, usize);

/// Units of a copy that wait for what they read.
#[derive(Default)]
struct Waits {
    /// Those that wait for a copy of a unit.
    behind: HashMap<(usize, u64), Vec<usize>>,
    /// For how many each waits.
    missing: HashMap<usize, usize>,
}

impl Waits {
    fn wait(&mut self, unit: usize, makers: Vec<(usize, u64)>) {
        if !makers.is_empty() {
            self.missing.insert(unit, makers.len());
        }
        makers.into_iter().for_each(|by| self.behind.entry(by).or_default().push(unit));
    }

    /// The units that wait for nothing more now that a copy of a unit is placed.
    fn done(&mut self, by: (usize, u64)) -> Vec<usize> {
        let mut free = self.behind.remove(&by).unwrap_or_default();
        free.retain(|unit| {
            let left = self.missing.get_mut(unit);
            left.is_some_and(|left| {
                *left -= 1;
                *left == 0
            })
        });
        for unit in &free {
            self.missing.remove(unit);
        }
        free
    }

    fn are_some(&self) -> bool {
        !self.missing.is_empty()
    }
}

/// Units that are placed, one after another.
struct Placer<'a> {
    asked: Asked<'a>,
    holders: Holders<'a>,
    profile: Profile,
    readers: Readers,
    /// The bytes of each buffer.
    sizes: HashMap<Made, u64>,
    /// For each stream when it is busy, in order.
    taken: Vec<Vec<(Picoseconds, Picoseconds)>>,
    finish: HashMap<(usize, u64), Picoseconds>,
    runs: Vec<Run>,
    /// When the copy before the last one is done, the last one, and what is placed of the one that
    /// is being placed.
    ends: [Picoseconds; 3],
}

impl<'a> Placer<'a> {
    fn of(asked: Asked<'a>) -> Placer<'a> {
        let holders = Holders::of(asked.plan, asked.stages, asked.is_stack);
        let readers = expected(asked, &holders);
        let mut profile = Profile::default();
        profile.hold(Picoseconds(0), kept(asked.plan));
        let of_states = holders
            .homes()
            .map(|(_, stage, bytes)| bytes.saturating_mul(asked.stages.stages[stage].copies));
        profile.hold(Picoseconds(0), of_states.fold(0, u64::saturating_add));
        let given: HashMap<Made, u64> =
            holders.given().into_iter().filter(|(made, _)| readers.are_expected(*made)).collect();
        profile.hold(Picoseconds(0), given.values().copied().fold(0, u64::saturating_add));
        Placer {
            asked,
            holders,
            profile,
            readers,
            sizes: given,
            taken: vec![Vec::new(); asked.streams.names().len()],
            finish: HashMap::new(),
            runs: Vec::new(),
            ends: [Picoseconds(0); 3],
        }
    }

    /// When what a unit reads is made; none where it is not placed yet.
    fn ready(&self, unit: usize, copy: u64) -> Option<Picoseconds> {
        let made = |by: (usize, u64)| self.finish.get(&by).copied();
        makers(self.asked, unit, copy)
            .into_iter()
            .try_fold(Picoseconds(0), |last, by| Some(last.max(made(by)?)))
    }

    /// The first moment at which a unit can start that may not start before another.
    fn start(&self, unit: usize, copy: u64, ready: Picoseconds) -> Picoseconds {
        let [before, last, end] = self.ends;
        let behind = match self.asked.ahead {
            Ahead::One => before,
            Ahead::None => last,
            Ahead::Serial => end,
        };
        let allocated = self.holders.allocated(unit, copy);
        let bytes = allocated
            .iter()
            .map(|(_, bytes)| *bytes)
            .fold(self.holders.beside(unit), u64::saturating_add);
        // Where there is never room enough, as late as can be: the plan itself needs so much.
        let frees = self.profile.fits_from(bytes, self.asked.limit).unwrap_or(end);
        earliest_free(
            &self.taken,
            &self.asked.stages.units[unit].busy,
            ready.max(behind).max(frees),
        )
    }

    fn put(&mut self, unit: usize, copy: u64) {
        let ready = self
            .ready(unit, copy)
            .unwrap_or_else(|| never!("a unit before what it reads", self.ends[2]));
        let start = self.start(unit, copy, ready);
        self.put_at(unit, copy, start);
    }

    fn put_at(&mut self, unit: usize, copy: u64, start: Picoseconds) {
        let done = start + self.asked.stages.units[unit].time;
        occupy(&mut self.taken, &self.asked.stages.units[unit].busy, start);
        self.finish.insert((unit, copy), done);
        self.runs.push(Run { unit, copy, start });
        self.ends[2] = self.ends[2].max(done);
        let beside = self.holders.beside(unit);
        if beside > 0 {
            self.profile.hold(start, beside);
            self.profile.free(done, beside);
        }
        for (made, bytes) in self.holders.allocated(unit, copy) {
            self.profile.hold(start, bytes);
            self.sizes.insert(made, bytes);
        }
        let copies = |stage: usize| self.asked.copies(stage);
        for buffer in self.holders.touched(unit, copy, &copies) {
            self.read(buffer, held_until(start, done));
        }
    }

    /// Places the units of a copy, each time the one that can start first; of equal ones the one of
    /// which `most` says most, of these the first of the program.
    fn soonest_first(&mut self, units: Range<usize>, copy: u64, most: &dyn Fn(usize) -> u64) {
        let mut waits = Waits::default();
        let mut free: Vec<usize> = Vec::new();
        for unit in units {
            let mut missing = makers(self.asked, unit, copy);
            missing.retain(|by| !self.finish.contains_key(by));
            if missing.is_empty() {
                free.push(unit);
            }
            waits.wait(unit, missing);
        }
        let mut waiting = BTreeSet::new();
        loop {
            for unit in free {
                let ready = self
                    .ready(unit, copy)
                    .unwrap_or_else(|| never!("a unit that waits for nothing", self.ends[2]));
                waiting.insert((ready, Reverse(most(unit)), unit));
            }
            let Some((start, unit)) = self.soonest(&mut waiting, copy) else { break };
            self.put_at(unit, copy, start);
            free = waits.done((unit, copy));
        }
        if waits.are_some() {
            never!("units that wait for each other", ());
        }
    }

    /// Takes the unit that can start first out of `waiting`, and says when it starts. Each unit
    /// there has a moment before which its streams do not let it start. Streams only fill, so that
    /// moment stays a bound; a unit whose bound is no better than the best start found is not
    /// looked at.
    fn soonest(&self, waiting: &mut BTreeSet<Waiting>, copy: u64) -> Option<(Picoseconds, usize)> {
        let mut best: Option<Waiting> = None;
        let mut looked_at = Vec::new();
        while let Some(first) = waiting.pop_first() {
            if best.is_some_and(|best| best <= first) {
                waiting.insert(first);
                break;
            }
            let (earliest, most, unit) = first;
            let on_streams =
                earliest_free(&self.taken, &self.asked.stages.units[unit].busy, earliest);
            let start = (self.start(unit, copy, on_streams), most, unit);
            best = Some(best.map_or(start, |best| best.min(start)));
            looked_at.push((on_streams, most, unit));
        }
        let (start, _, unit) = best?;
        waiting.extend(looked_at.into_iter().filter(|(_, _, other)| *other != unit));
        Some((start, unit))
    }

    /// A copy of a stage is done: in a stack, nobody but the next one reads its results.
    fn end_copy(&mut self, stage: usize, copy: u64) {
        let copies = |stage: usize| self.asked.copies(stage);
        let end = self.ends[2];
        if self.asked.is_stack && copy + 1 < copies(stage) {
            for buffer in self.holders.results(stage, copy, &copies) {
                self.read(buffer, end);
            }
        }
        self.ends = [self.ends[1], end, end];
    }

    /// A buffer is read for one of the times that are expected.
    fn read(&mut self, buffer: Made, until: Picoseconds) {
        if let (Some(at), Some(bytes)) = (self.readers.done(buffer, until), self.sizes.get(&buffer))
        {
            self.profile.free(at, *bytes);
        }
    }
}

/// Until when a unit holds what it reads and makes: until it is done, and for a picosecond where it
/// takes no time, so that what it makes never lies where that lies which it is made of.
pub(super) fn held_until(start: Picoseconds, done: Picoseconds) -> Picoseconds {
    done.max(start + Picoseconds(1))
}

/// The units that make what a copy of a unit reads, or read what it writes over, with their copies.
pub(super) fn makers(asked: Asked<'_>, unit: usize, copy: u64) -> Vec<(usize, u64)> {
    let by = |(made, _, of): Made| Some((asked.stages.unit_of(made)?, of));
    let others = |by: &(usize, u64)| *by != (unit, copy);
    let before = asked.stages.read_before(unit, copy, |of| asked.copies(of));
    needs(asked, unit, copy).into_iter().filter_map(by).chain(before).filter(others).collect()
}

/// What a copy of a unit waits for.
fn needs(asked: Asked<'_>, unit: usize, copy: u64) -> Vec<Made> {
    let stage = asked.stages.stage_of(unit);
    let operands = asked.stages.units[unit]
        .members
        .iter()
        .flat_map(|id| &asked.plan.instruction(*id).operands);
    operands
        .map(|operand| asked.stages.read(*operand, stage, copy, |of| asked.copies(of)))
        .collect()
}

/// Who reads every buffer. What is a result is read by somebody who never comes, but inside a
/// stack.
fn expected(asked: Asked<'_>, holders: &Holders<'_>) -> Readers {
    let copies = |stage: usize| asked.copies(stage);
    let mut readers = Readers::default();
    for (at, stage) in asked.stages.stages.iter().enumerate() {
        for copy in 0..copies(at) {
            let touched = stage.units.clone().flat_map(|unit| holders.touched(unit, copy, &copies));
            touched.for_each(|buffer| readers.expect(buffer));
            holders
                .results(at, copy, &copies)
                .into_iter()
                .for_each(|buffer| readers.expect(buffer));
        }
    }
    let returned = holders.returned(&copies);
    let given = holders.given().into_iter().filter(|(made, _)| returned.contains(made));
    given.for_each(|(made, _)| readers.expect(made));
    readers
}

/// The first start, no earlier than asked, at which all streams are free as long as the unit keeps
/// them busy.
pub(super) fn earliest_free(
    taken: &[Vec<(Picoseconds, Picoseconds)>],
    busy: &[Busy],
    earliest: Picoseconds,
) -> Picoseconds {
    let mut start = earliest;
    loop {
        let moved = busy.iter().fold(start, |start, busy| {
            let (from, until) = (start + busy.from, start + busy.until);
            let on = &taken[busy.stream];
            let first = on.partition_point(|(_, end)| *end <= from);
            match on.get(first) {
                Some((begin, end)) if *begin < until => {
                    Picoseconds(end.0.saturating_sub(busy.from.0))
                }
                _ => start,
            }
        });
        if moved == start {
            return start;
        }
        start = moved;
    }
}

pub(super) fn occupy(
    taken: &mut [Vec<(Picoseconds, Picoseconds)>],
    busy: &[Busy],
    start: Picoseconds,
) {
    for busy in busy {
        let on = &mut taken[busy.stream];
        let at = on.partition_point(|(begin, _)| *begin < start + busy.from);
        on.insert(at, (start + busy.from, start + busy.until));
    }
}
