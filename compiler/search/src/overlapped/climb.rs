//! The best mean of sets of steps.

use std::cmp::Reverse;

use shard_ir::Picoseconds;

use super::weighed::{PARTS, Weighed};

/// Rounds over all sets, and how fine the last one is.
const ROUNDS: usize = 3;
const FINE: u64 = 500;

/// The best mean of some sets. A set is given case by case, and takes the least that any case does.
pub(super) struct Climb<'l> {
    pub(super) sets: Vec<(Picoseconds, Vec<Weighed>)>,
    pub(super) best: Picoseconds,
    pub(super) enough: Picoseconds,
    pub(super) least: &'l mut dyn FnMut(&Weighed) -> Picoseconds,
}

impl Climb<'_> {
    /// What every case takes at least; what is no more than the best is not looked at further.
    fn least(&mut self, cases: &[Weighed]) -> Picoseconds {
        let mut found = Picoseconds(u64::MAX);
        for case in cases {
            found = found.min((self.least)(case));
            if found <= self.best {
                break;
            }
        }
        found
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
