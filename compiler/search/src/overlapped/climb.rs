//! The best mean of sets of steps.

use std::cmp::Reverse;

use shard_ir::Picoseconds;

use super::weighed::{PARTS, Weighed};

/// Rounds over all sets, and how fine the last one is.
const ROUNDS: usize = 3;
const FINE: u64 = 500;

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

/// The best mean of some sets. A set is given case by case, and takes the least that any case does.
pub(super) struct Climb<'l> {
    pub(super) sets: Vec<(Picoseconds, Vec<Weighed>)>,
    pub(super) best: Picoseconds,
    pub(super) enough: Picoseconds,
    pub(super) least: &'l mut dyn FnMut(&Weighed) -> Leasts,
    /// The most that any set says.
    pub(super) through: Through,
}

impl Climb<'_> {
    /// What every case takes at least; what is no more than the best is not looked at further.
    fn least(&mut self, cases: &[Weighed]) -> Picoseconds {
        let mut found = Picoseconds(u64::MAX);
        let mut of_cases: Option<Through> = None;
        for (at, case) in cases.iter().enumerate() {
            let Leasts { all, through } = (self.least)(case);
            found = found.min(all);
            of_cases = Some(match of_cases {
                None => through,
                Some(known) => merged(known, through, u64::min),
            });
            if found <= self.best && at + 1 < cases.len() {
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

    pub(super) fn add(&mut self, sets: impl Iterator<Item = Vec<Weighed>>) {
        for set in sets.filter(|cases| !cases.is_empty()) {
            if self.sets.iter().all(|(_, known)| *known != set) {
                let best = std::mem::take(&mut self.best);
                let found = self.least(&set);
                self.best = best.max(found);
                self.sets.push((found, set));
            }
        }
    }

    /// The least is concave in what each set counts for: as long as more of one lifts it, it is
    /// given twice as much, and where that is too much half as much again. Set by set, until a
    /// round lifts it by no more than one part in [`FINE`].
    pub(super) fn climb(&mut self) {
        self.sets.sort_by_key(|(least, _)| Reverse(*least));
        let Some((_, mut at)) = self.sets.first().cloned() else { return };
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
    }

    /// The best mean of two sets that is found.
    fn towards(&mut self, at: Vec<Weighed>, other: &[Weighed]) -> Vec<Weighed> {
        let mut better = None;
        let mut part = 2;
        while part < PARTS && self.best < self.enough {
            let Some(mixed) = mixed(&at, other, PARTS - part) else { break };
            let found = self.least(&mixed);
            if found > self.best {
                (self.best, better) = (found, Some(mixed));
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
