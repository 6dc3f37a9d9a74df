//! The best mean of sets of steps.

use std::cmp::Reverse;

use shard_ir::Picoseconds;

use super::weighed::{PARTS, Weighed};

/// Rounds over all sets, and how fine the last one is.
const ROUNDS: usize = 3;
const FINE: u64 = 500;
/// A step of so many parts that lifts the best by less than one part in [`FINE`] is the last one.
const LARGE: u64 = 16;

/// What all of a mean is, in shares of sets.
const WHOLE: u64 = 1 << 20;

/// What is known when a climb has ended.
pub(super) struct Climbed {
    /// What any plan takes at least.
    pub(super) least: Picoseconds,
    /// The most that any set or mean says, of each way.
    pub(super) through: Through,
    pub(super) sets: Vec<StepSet>,
    /// The best mean, case by case, and what it says of each way.
    pub(super) at: Vec<Weighed>,
    pub(super) of_mean: Through,
}

impl<'l> Climb<'l> {
    /// A climb in a part of the plan space, from the sets and the mean of all of it.
    pub(super) fn of_part(
        known: &Climbed,
        enough: Picoseconds,
        least: &'l mut BoundSet<'l>,
    ) -> (Climb<'l>, Vec<Weighed>) {
        let mut climb = Climb::new(enough, least);
        let (best, _) = climb.least(&known.at, true);
        if best < enough {
            for set in &known.sets {
                climb.add_one(set.cases.clone());
                climb.sets.last_mut().into_iter().for_each(|last| last.share = set.share);
            }
        }
        climb.best = climb.best.max(best);
        let at = climb.climb_from(known.at.clone());
        (climb, at)
    }
}

/// What a set takes at least, in picoseconds.
pub(super) struct SetBound {
    /// In any plan.
    pub(super) all: Picoseconds,
    /// For each value and strategy, in any plan that makes the value so.
    pub(super) through: Through,
}

/// For each value and strategy what any plan takes at least that makes the value so, in
/// picoseconds.
pub(super) type Through = Vec<Vec<u64>>;

/// What a set takes: to the last digit, or roughly, and where it seems to be no more than the given
/// time no more than it takes.
pub(super) type BoundSet<'l> = dyn FnMut(&Weighed, Option<Picoseconds>) -> SetBound + 'l;

/// Steps of which no two are at once, in each case, and what they take at least.
#[derive(Clone)]
pub(super) struct StepSet {
    pub(super) least: Picoseconds,
    pub(super) cases: Vec<Weighed>,
    /// What they take in any plan that makes a value in a way.
    pub(super) through: Through,
    /// How much of them is in the mean.
    pub(super) share: u64,
}

/// A set is given case by case, and takes the least that any case does: the best mean of some.
pub(super) struct Climb<'l> {
    pub(super) sets: Vec<StepSet>,
    pub(super) best: Picoseconds,
    pub(super) enough: Picoseconds,
    pub(super) least: &'l mut BoundSet<'l>,
    /// The most that any set says.
    pub(super) through: Through,
    /// The number of the case that took the least when cases were last looked at.
    pub(super) lowest: usize,
}

impl<'l> Climb<'l> {
    pub(super) fn new(enough: Picoseconds, least: &'l mut BoundSet<'l>) -> Climb<'l> {
        let (sets, through) = (Vec::new(), Through::new());
        Climb { sets, best: Picoseconds(0), enough, least, through, lowest: 0 }
    }

    /// What every case takes at least; what is no more than the best is not looked at further, and
    /// nothing is said of ways then. The case that took the least last time is looked at first: it
    /// mostly does again.
    fn least(&mut self, cases: &[Weighed], roughly: bool) -> (Picoseconds, Option<Through>) {
        let mut found = Picoseconds(u64::MAX);
        let mut of_cases: Option<Through> = None;
        let first = Some(self.lowest).filter(|_| self.lowest < cases.len());
        let others = (0..cases.len()).filter(|at| first != Some(*at));
        for (looked_at, at) in first.into_iter().chain(others).enumerate() {
            let SetBound { all, through } = (self.least)(&cases[at], roughly.then_some(self.best));
            if all < found {
                (found, self.lowest) = (all, at);
            }
            of_cases = Some(match of_cases {
                None => through,
                Some(known) => merged(known, &through, u64::min),
            });
            if found <= self.best && looked_at + 1 < cases.len() {
                return (found, None);
            }
        }
        if let Some(through) = &of_cases {
            self.through = merged(std::mem::take(&mut self.through), through, u64::max);
        }
        (found, of_cases)
    }

    /// What any plan takes at least: it makes each value in one of its ways. That may be more than
    /// any mean says, which is one mean for all plans.
    pub(super) fn best_of_strategies(&self) -> Picoseconds {
        let of_value = |ways: &Vec<u64>| ways.iter().copied().min();
        let most = self.through.iter().filter_map(of_value).max();
        self.best.max(Picoseconds(most.unwrap_or(0)))
    }

    /// What a set takes that has no cases; it is among the sets if that is more than the best.
    pub(super) fn of(&mut self, set: &Weighed) -> Picoseconds {
        let cases = vec![set.clone()];
        if let Some(known) = self.sets.iter().find(|known| known.cases == cases) {
            return known.least;
        }
        let (found, through) = self.least(&cases, true);
        if found > self.best {
            self.best = found;
            self.sets.push(StepSet::of(found, cases, through));
        }
        found
    }

    /// Adds a set, unless it is there.
    pub(super) fn add_one(&mut self, set: Vec<Weighed>) -> bool {
        let count = self.sets.len();
        self.add(std::iter::once(set));
        self.sets.len() > count
    }

    pub(super) fn add(&mut self, sets: impl Iterator<Item = Vec<Weighed>>) {
        for set in sets.filter(|cases| !cases.is_empty()) {
            if self.sets.iter().all(|known| known.cases != set) {
                let best = std::mem::take(&mut self.best);
                let (found, through) = self.least(&set, true);
                self.best = best.max(found);
                self.sets.push(StepSet::of(found, set, through));
            }
        }
    }

    /// The best mean that is found from the set that takes most.
    pub(super) fn climb(&mut self) -> Vec<Weighed> {
        self.sets.sort_by_key(|set| Reverse(set.least));
        for (at, set) in self.sets.iter_mut().enumerate() {
            set.share = if at == 0 { WHOLE } else { 0 };
        }
        let first = self.sets.first().map(|set| set.cases.clone());
        first.map_or_else(Vec::new, |first| self.climb_from(first))
    }

    /// The least is concave in what each set counts for: as long as more of one lifts it, it is
    /// given twice as much, and where that is too much half as much again. StepSet by set, until a
    /// round lifts it by no more than one part in [`FINE`]. Gives the mean that is best.
    pub(super) fn climb_from(&mut self, mut at: Vec<Weighed>) -> Vec<Weighed> {
        for _ in 0..ROUNDS {
            let before = self.best;
            for number in 0..self.sets.len() {
                at = self.with_more_of(at, number);
            }
            if self.best.0 - before.0 <= before.0 / FINE {
                break;
            }
        }
        at
    }

    /// A mean with more of one of the sets, if that is better.
    pub(super) fn with_more_of(&mut self, at: Vec<Weighed>, number: usize) -> Vec<Weighed> {
        let other = self.sets[number].cases.clone();
        let Some((mixed, parts)) = self.towards(&at, &other) else { return at };
        self.sets.iter_mut().for_each(|set| set.share = set.share * parts / PARTS);
        self.sets[number].share += WHOLE * (PARTS - parts) / PARTS;
        mixed
    }

    /// What is known at the end.
    pub(super) fn ended(self, at: Vec<Weighed>, of_mean: Through) -> Climbed {
        let least = self.best_of_strategies();
        Climbed { least, through: self.through, sets: self.sets, at, of_mean }
    }

    /// Looks once more at the best mean, to the last digit, and says what it says of ways.
    pub(super) fn finish(&mut self, at: &[Weighed]) -> Through {
        if self.best >= self.enough || at.is_empty() {
            return Through::new();
        }
        let (found, through) = self.least(at, false);
        self.best = self.best.max(found);
        through.unwrap_or_default()
    }

    /// The best mean of two sets that is found, if one is better than the first of them, and how
    /// many parts of it are the first.
    fn towards(&mut self, at: &[Weighed], other: &[Weighed]) -> Option<(Vec<Weighed>, u64)> {
        let mut better = None;
        let mut part = 2;
        while part < PARTS && self.best < self.enough {
            let Some(mixed) = mixed(at, other, PARTS - part) else { break };
            let (found, _) = self.least(&mixed, true);
            if found > self.best {
                let gain = found.0 - self.best.0;
                (self.best, better) = (found, Some((mixed, PARTS - part)));
                if part >= LARGE && gain <= self.best.0 / FINE {
                    break;
                }
                part *= 2;
            } else if better.is_some() && part.is_power_of_two() {
                part = part / 4 * 3;
            } else {
                break;
            }
        }
        better
    }
}

impl StepSet {
    fn of(least: Picoseconds, cases: Vec<Weighed>, through: Option<Through>) -> StepSet {
        StepSet { least, cases, through: through.unwrap_or_default(), share: 0 }
    }
}

/// The mean of two sets, case by case: all sets that have cases have the same.
fn mixed(one: &[Weighed], other: &[Weighed], parts: u64) -> Option<Vec<Weighed>> {
    match (one, other) {
        (_, _) if one.len() == other.len() => {
            Some(one.iter().zip(other).map(|(one, other)| one.mixed(other, parts)).collect())
        }
        (_, [other]) => Some(one.iter().map(|one| one.mixed(other, parts)).collect()),
        ([one], _) => Some(other.iter().map(|other| one.mixed(other, parts)).collect()),
        (_, _) => None,
    }
}

fn merged(mut one: Through, other: &Through, of: fn(u64, u64) -> u64) -> Through {
    if one.is_empty() {
        return other.clone();
    }
    for (one, other) in one.iter_mut().zip(other) {
        one.iter_mut().zip(other).for_each(|(one, other)| *one = of(*one, *other));
    }
    one
}
