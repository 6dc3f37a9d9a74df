//! Places units in time: each as early as what it reads, its streams, and memory allow.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use shard_cost::Streams;
use shard_ir::{Picoseconds, Plan, never};

use super::memory::{Holders, Profile, Readers, kept};
use super::order::{Order, from_the_end, longest_first};
use super::stages::{Made, Stages, UnitCopy};
use super::units::Busy;

/// A unit of one copy of its stage, placed in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The unit, as an index.
    pub unit: usize,
    /// Which copy of its stage, from 0.
    pub copy: u64,
    /// When it starts.
    pub start: Picoseconds,
}

impl Run {
    /// What is run.
    pub(super) fn unit_copy(&self) -> UnitCopy {
        UnitCopy { unit: self.unit, copy: self.copy }
    }
}

/// How far copies of stages may run beside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Ahead {
    /// A copy may start when the copy two before it is done: its weights come while the copy before
    /// it computes.
    One,
    /// A copy may start when the copy before it is done.
    None,
    /// A unit may start when all units before it are done.
    Serial,
}

/// What is to be placed, in which way and within which limits.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) plan: &'a Plan,
    pub(super) stages: &'a Stages,
    pub(super) streams: &'a Streams,
    /// Bytes that may be live.
    pub(super) limit: u64,
    /// Whether the stage is the layer of a stack.
    pub(super) is_stack: bool,
    /// How many copies of each stage are placed at most.
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

/// Places all units, copy by copy. A unit may start in a gap that the units placed before it have
/// left on its streams.
///
/// In program order there is always room in memory at the end of everything that is placed: what is
/// live there is what would be live if the plan were run in program order. In other orders the
/// units may need more than the limit; the caller checks it.
pub(super) fn place(asked: Asked<'_>) -> Vec<Run> {
    let mut placer = Placer::of(asked);
    let left = match asked.order {
        Order::Backward | Order::SoonestBackward => from_the_end(asked),
        Order::Program | Order::Longest | Order::Soonest => Vec::new(),
    };
    for (at, stage) in asked.stages.stages.iter().enumerate() {
        for copy in 0..asked.copies(at) {
            let put = |unit| placer.put(UnitCopy { unit, copy });
            match asked.order {
                Order::Program => stage.units.clone().for_each(put),
                Order::Longest => longest_first(asked, stage.units.clone()).for_each(put),
                Order::Soonest => placer.soonest_first(stage.units.clone(), copy, &|_| 0),
                Order::Backward => {
                    let mut units: Vec<usize> = stage.units.clone().collect();
                    units.sort_by_key(|unit| (Reverse(left[*unit]), *unit));
                    units.into_iter().for_each(put);
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

/// A unit that waits for streams and memory alone: a moment before which it cannot start, then what
/// decides among units that can start at the same moment: the preference that the order gives, and
/// the unit itself.
type Waiting = (Picoseconds, Reverse<u64>, usize);

/// Units of a copy that wait for what they read.
#[derive(Default)]
struct Waits {
    /// The units that wait for a unit.
    behind: HashMap<UnitCopy, Vec<usize>>,
    /// For how many units each still waits.
    missing: HashMap<usize, usize>,
}

impl Waits {
    fn wait(&mut self, unit: usize, makers: Vec<UnitCopy>) {
        if !makers.is_empty() {
            self.missing.insert(unit, makers.len());
        }
        makers.into_iter().for_each(|by| self.behind.entry(by).or_default().push(unit));
    }

    /// The units that wait for nothing more now that `placed` is.
    fn done(&mut self, placed: UnitCopy) -> Vec<usize> {
        let mut free = self.behind.remove(&placed).unwrap_or_default();
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
    /// The times in which each stream is busy, in order.
    taken: Vec<Vec<(Picoseconds, Picoseconds)>>,
    finish: HashMap<UnitCopy, Picoseconds>,
    runs: Vec<Run>,
    /// When the copy two before the one that is being placed is done, when the copy before it is,
    /// and when all that is placed is.
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
            .map(|home| home.bytes.saturating_mul(asked.stages.stages[home.stage].copies));
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

    /// When all that a unit reads is made; `None` if a unit that makes some of it is not placed
    /// yet.
    fn ready(&self, of: UnitCopy) -> Option<Picoseconds> {
        makers(self.asked, of)
            .into_iter()
            .try_fold(Picoseconds(0), |last, by| Some(last.max(*self.finish.get(&by)?)))
    }

    /// The first moment from `ready` on at which the streams, the memory and the copies before it
    /// let a unit start.
    fn start(&self, of: UnitCopy, ready: Picoseconds) -> Picoseconds {
        let [before, last, end] = self.ends;
        let behind = match self.asked.ahead {
            Ahead::One => before,
            Ahead::None => last,
            Ahead::Serial => end,
        };
        let allocated = self.holders.allocated(of);
        let bytes = allocated
            .iter()
            .map(|(_, bytes)| *bytes)
            .fold(self.holders.beside(of.unit), u64::saturating_add);
        // If there is never room enough, as late as can be: the plan itself needs so much.
        let frees = self.profile.fits_from(bytes, self.asked.limit).unwrap_or(end);
        earliest_free(
            &self.taken,
            &self.asked.stages.units[of.unit].busy,
            ready.max(behind).max(frees),
        )
    }

    /// Places a unit whose makers are placed, as early as it can start.
    fn put(&mut self, of: UnitCopy) {
        let ready =
            self.ready(of).unwrap_or_else(|| never!("a unit before what it reads", self.ends[2]));
        let start = self.start(of, ready);
        self.put_at(of, start);
    }

    fn put_at(&mut self, of: UnitCopy, start: Picoseconds) {
        let unit = &self.asked.stages.units[of.unit];
        let done = start + unit.time;
        occupy(&mut self.taken, &unit.busy, start);
        self.finish.insert(of, done);
        self.runs.push(Run { unit: of.unit, copy: of.copy, start });
        self.ends[2] = self.ends[2].max(done);
        let beside = self.holders.beside(of.unit);
        if beside > 0 {
            self.profile.hold(start, beside);
            self.profile.free(done, beside);
        }
        for (made, bytes) in self.holders.allocated(of) {
            self.profile.hold(start, bytes);
            self.sizes.insert(made, bytes);
        }
        let copies = |stage: usize| self.asked.copies(stage);
        for buffer in self.holders.touched(of, &copies) {
            self.read(buffer, held_until(start, done));
        }
    }

    /// Places the units of a copy, each time the one that can start first: of several the one for
    /// which `most` is largest, of these the first of the program.
    fn soonest_first(&mut self, units: Range<usize>, copy: u64, most: &dyn Fn(usize) -> u64) {
        let mut waits = Waits::default();
        let mut free: Vec<usize> = Vec::new();
        for unit in units {
            let mut missing = makers(self.asked, UnitCopy { unit, copy });
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
                    .ready(UnitCopy { unit, copy })
                    .unwrap_or_else(|| never!("a unit that waits for nothing", self.ends[2]));
                waiting.insert((ready, Reverse(most(unit)), unit));
            }
            let Some((start, unit)) = self.soonest(&mut waiting, copy) else { break };
            self.put_at(UnitCopy { unit, copy }, start);
            free = waits.done(UnitCopy { unit, copy });
        }
        if waits.are_some() {
            never!("units that wait for each other", ());
        }
    }

    /// Takes the unit that can start first out of `waiting`, and says when it starts. The time of a
    /// unit in `waiting` is a lower bound of its start. Streams only fill up, so that it stays one;
    /// a unit whose bound is not before the best start found so far is not looked at.
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
            let start = (self.start(UnitCopy { unit, copy }, on_streams), most, unit);
            best = Some(best.map_or(start, |best| best.min(start)));
            looked_at.push((on_streams, most, unit));
        }
        let (start, _, unit) = best?;
        waiting.extend(looked_at.into_iter().filter(|(_, _, other)| *other != unit));
        Some((start, unit))
    }

    /// Ends a copy of a stage. In a stack its results are read by the next copy alone.
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

    /// Records one of the expected reads of a buffer. After the last of them the buffer is freed.
    fn read(&mut self, buffer: Made, until: Picoseconds) {
        if let (Some(at), Some(bytes)) = (self.readers.done(buffer, until), self.sizes.get(&buffer))
        {
            self.profile.free(at, *bytes);
        }
    }
}

/// Until when a unit holds what it reads and makes: until it is done; for a picosecond if it takes
/// no time, so that its result and its operands never share an address.
pub(super) fn held_until(start: Picoseconds, done: Picoseconds) -> Picoseconds {
    done.max(start + Picoseconds(1))
}

/// The units that make what a unit reads, or read what it overwrites: those that it waits for.
pub(super) fn makers(asked: Asked<'_>, of: UnitCopy) -> Vec<UnitCopy> {
    let stage = asked.stages.stage_of(of.unit);
    let members = asked.stages.units[of.unit].members.iter();
    let operands = members.flat_map(|id| &asked.plan.instruction(*id).operands);
    let made_by = operands.filter_map(|operand| {
        let made = asked.stages.read(*operand, stage, of.copy, |stage| asked.copies(stage));
        Some(UnitCopy { unit: asked.stages.unit_of(made.id)?, copy: made.copy })
    });
    let before = asked.stages.read_before(of, |stage| asked.copies(stage));
    made_by.chain(before).filter(|by| *by != of).collect()
}

/// The reads of every buffer that are to come. A result of the plan has one more, which never
/// comes, so that its buffer is not freed; a result of a copy inside a stack is read when the copy
/// ends.
fn expected(asked: Asked<'_>, holders: &Holders<'_>) -> Readers {
    let copies = |stage: usize| asked.copies(stage);
    let mut readers = Readers::default();
    for (at, stage) in asked.stages.stages.iter().enumerate() {
        for copy in 0..copies(at) {
            let touched = |unit| holders.touched(UnitCopy { unit, copy }, &copies);
            let touched = stage.units.clone().flat_map(touched);
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

/// The first start, not before `earliest`, at which every stream is free for as long as the unit
/// keeps it busy.
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

/// Records that a unit that starts at a moment keeps its streams busy.
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
