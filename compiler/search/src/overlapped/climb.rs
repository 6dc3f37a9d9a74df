//! The best mean of sets of steps.

use std::cmp::Reverse;

use shard_ir::Picoseconds;

use super::weighed::{PARTS, Weighed};

/// Rounds over all sets, and how fine the last one is.
const ROUNDS: usize = 3;
const FINE: u64 = 500;
/// A step of so many parts that lifts the best by less than one part in [`FINE`] is the last one.
const LARGE: u64 = 16;

/// What a set takes at least, in picoseconds.
pub(super) struct Leasts {
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
pub(super) type Least<'l> = dyn FnMut(&Weighed, Option<Picoseconds>) -> Leasts + 'l;

/// The best mean of some sets. A set is given case by case, and takes the least that any case does.
pub(super) struct Climb<'l> {
    pub(super) sets: Vec<(Picoseconds, Vec<Weighed>)>,
    pub(super) best: Picoseconds,
    pub(super) enough: Picoseconds,
    pub(super) least: &'l mut Least<'l>,
    /// The most that any set says.
    pub(super) through: Through,
    /// The number of the case that took the least when cases were last looked at.
    pub(super) lowest: usize,
}

impl Climb<'_> {
    /// What every case takes at least; what is no more than the best is not looked at further. The
    /// case that took the least last time is looked at first: it mostly does again.
    fn least(&mut self, cases: &[Weighed], roughly: bool) -> Picoseconds {
        let mut found = Picoseconds(u64::MAX);
        let mut of_cases: Option<Through> = None;
        let first = Some(self.lowest).filter(|_| self.lowest < cases.len());
        let others = (0..cases.len()).filter(|at| first != Some(*at));
        for (looked_at, at) in first.into_iter().chain(others).enumerate() {
            let Leasts { all, through } = (self.least)(&cases[at], roughly.then_some(self.best));
            if all < found {
                (found, self.lowest) = (all, at);
            }
            of_cases = Some(match of_cases {
                None => through,
                Some(known) => merged(known, through, u64::min),
            });
            if found <= self.best && looked_at + 1 < cases.len() {
                return found;
            }
        }
        if let Some(through) = of_cases {
            self.through = merged(std::mem::take(&mut self.through), through, u64::max);
        }
        found
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
        if let Some((known, _)) = self.sets.iter().find(|(_, known)| *known == cases) {
            return *known;
        }
        let found = self.least(&cases, true);
        if found > self.best {
            self.best = found;
            self.sets.push((found, cases));
        }
        found
    }

    pub(super) fn add(&mut self, sets: impl Iterator<Item = Vec<Weighed>>) {
        for set in sets.filter(|cases| !cases.is_empty()) {
            if self.sets.iter().all(|(_, known)| *known != set) {
                let best = std::mem::take(&mut self.best);
                let found = self.least(&set, true);
                self.best = best.max(found);
                self.sets.push((found, set));
            }
        }
    }

    /// The least is concave in what each set counts for: as long as more of one lifts it, it is
    /// given twice as much, and where that is too much half as much again. Set by set, until a
    /// round lifts it by no more than one part in [`FINE`]. Gives the mean that is best.
    pub(super) fn climb(&mut self) -> Vec<Weighed> {
        self.sets.sort_by_key(|(least, _)| Reverse(*least));
        let Some((_, mut at)) = self.sets.first().cloned() else { return Vec::new() };
        let others: Vec<Vec<Weighed>> = self.sets.iter().map(|(_, set)| set.clone()).collect();
        for _ in 0..ROUNDS {
            let before = self.best;
            for other in &others {
                at = self.towards(at, other);
            }
            if self.best.0 - before.0 <= before.0 / FINE {
                break;
            }
        }
        at
    }

    /// Looks once more at the best mean, to the last digit.
    pub(super) fn finish(&mut self, at: &[Weighed]) {
        if self.best < self.enough && !at.is_empty() {
            self.best = self.best.max(self.least(at, false));
        }
    }

    /// The best mean of two sets that is found.
    fn towards(&mut self, at: Vec<Weighed>, other: &[Weighed]) -> Vec<Weighed> {
        let mut better = None;
        let mut part = 2;
        while part < PARTS && self.best < self.enough {
            let Some(mixed) = mixed(&at, other, PARTS - part) else { break };
            let found = self.least(&mixed, true);
            if found > self.best {
                let gain = found.0 - self.best.0;
                (self.best, better) = (found, Some(mixed));
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
        better.unwrap_or(at)
    }
}

/// The mean of two sets, case by case; none where each has cases of its own.
fn mixed(one: &[Weighed], other: &[Weighed], parts: u64) -> Option<Vec<Weighed>> {
    match (one, other) {
        (_, [other]) => Some(one.iter().map(|one| one.mixed(other, parts)).collect()),
        ([one], _) => Some(other.iter().map(|other| one.mixed(other, parts)).collect()),
        (_, _) => None,
    }
}

fn merged(mut one: Through, other: Through, of: fn(u64, u64) -> u64) -> Through {
    if one.is_empty() {
        return other;
    }
    for (one, other) in one.iter_mut().zip(other) {
        one.iter_mut().zip(other).for_each(|(one, other)| *one = of(*one, other));
    }
    one
}
