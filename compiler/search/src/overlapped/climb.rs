//! Climbing to the best mean of sets of steps.

use std::cmp::Reverse;

use shard_ir::Picoseconds;

use super::weighed::{PARTS, Weighed};

/// The most rounds over all sets. A round that raises the bound by at most one part in [`FINE`] is
/// the last.
const ROUNDS: usize = 3;
const FINE: u64 = 500;
/// While a set is added to a mean in ever larger steps, a step of this many of [`PARTS`] or more
/// that raises the bound by at most one part in [`FINE`] is the last.
const LARGE: u64 = 16;

/// The sum of the shares of all sets in a mean.
const WHOLE: u64 = 1 << 20;

/// The result of a climb.
pub(super) struct Climbed {
    /// A lower bound on all plans.
    pub(super) least: Picoseconds,
    /// For each strategy, the largest bound that any set or mean gives.
    pub(super) through: Through,
    pub(super) sets: Vec<StepSet>,
    /// The best mean, with a weighting for each case; and the bounds that it gives for strategies.
    pub(super) at: Vec<Weighed>,
    pub(super) of_mean: Through,
}

impl<'l> Climb<'l> {
    /// A climb for some of the plans of a branch, from the sets and the mean of that branch.
    pub(super) fn of_part(
        known: &Climbed,
        enough: Picoseconds,
        bounder: &'l mut SetBounder<'l>,
    ) -> (Climb<'l>, Vec<Weighed>) {
        let mut climb = Climb::new(enough, bounder);
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

/// Lower bounds by one weighting of steps.
pub(super) struct SetBound {
    /// The bound on all plans.
    pub(super) all: Picoseconds,
    /// The bounds on the plans with each strategy.
    pub(super) through: Through,
}

/// For each value and strategy, a lower bound on the plans that make the value so, in picoseconds.
pub(super) type Through = Vec<Vec<u64>>;

/// Computes the bounds of a weighting. With a floor the bounds need only be rough, and one that
/// seems to come no higher than the floor may be less than could be shown; without one the bound is
/// exact.
pub(super) type SetBounder<'l> = dyn FnMut(&Weighed, Option<Picoseconds>) -> SetBound + 'l;

/// A set of steps of which no two are done at the same time, in each case, and the bounds that it
/// gives.
#[derive(Clone)]
pub(super) struct StepSet {
    pub(super) least: Picoseconds,
    pub(super) cases: Vec<Weighed>,
    /// The bounds on the plans with each strategy.
    pub(super) through: Through,
    /// The share of the set in the mean, of [`WHOLE`].
    pub(super) share: u64,
}

/// A climb: the sets found so far, and the best bound of them and of their means. A set has a
/// weighting for each case, and its bound is the least over all cases.
pub(super) struct Climb<'l> {
    pub(super) sets: Vec<StepSet>,
    pub(super) best: Picoseconds,
    pub(super) enough: Picoseconds,
    pub(super) bounder: &'l mut SetBounder<'l>,
    /// For each strategy, the largest bound so far.
    pub(super) through: Through,
    /// The number of the case that had the least bound when cases were last looked at.
    pub(super) lowest: usize,
}

impl<'l> Climb<'l> {
    pub(super) fn new(enough: Picoseconds, bounder: &'l mut SetBounder<'l>) -> Climb<'l> {
        let (sets, through) = (Vec::new(), Through::new());
        Climb { sets, best: Picoseconds(0), enough, bounder, through, lowest: 0 }
    }

    /// The least bound over all cases, and the bounds of strategies. A case of which the bound is
    /// at most the best so far ends this early, and then nothing is known of strategies. The case
    /// that had the least bound last time comes first, since it mostly has again.
    fn least(&mut self, cases: &[Weighed], roughly: bool) -> (Picoseconds, Option<Through>) {
        let mut found = Picoseconds(u64::MAX);
        let mut of_cases: Option<Through> = None;
        let first = Some(self.lowest).filter(|_| self.lowest < cases.len());
        let others = (0..cases.len()).filter(|at| first != Some(*at));
        for (looked_at, at) in first.into_iter().chain(others).enumerate() {
            let SetBound { all, through } =
                (self.bounder)(&cases[at], roughly.then_some(self.best));
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

    /// A lower bound on all plans: each plan makes each value by one of its strategies. It may be
    /// larger than that of any mean, since a mean is the same for all plans.
    pub(super) fn best_of_strategies(&self) -> Picoseconds {
        let of_value = |bounds: &Vec<u64>| bounds.iter().copied().min();
        let most = self.through.iter().filter_map(of_value).max();
        self.best.max(Picoseconds(most.unwrap_or(0)))
    }

    /// The bound of a set without cases. The set is added if its bound is better than the best.
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

    /// Adds a set, unless it is there already; returns whether it was added.
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

    /// The best mean that a climb from the set of largest bound finds.
    pub(super) fn climb(&mut self) -> Vec<Weighed> {
        self.sets.sort_by_key(|set| Reverse(set.least));
        for (at, set) in self.sets.iter_mut().enumerate() {
            set.share = if at == 0 { WHOLE } else { 0 };
        }
        let first = self.sets.first().map(|set| set.cases.clone());
        first.map_or_else(Vec::new, |first| self.climb_from(first))
    }

    /// The best mean that a climb from `at` finds. The bound is concave in the share of each set.
    /// So the share of a set is doubled as long as the bound rises, and where doubling is too much,
    /// half as much again is tried. All sets are gone through until a round raises the bound by at
    /// most one part in [`FINE`].
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

    /// The mean with more of one set, if that is better.
    pub(super) fn with_more_of(&mut self, at: Vec<Weighed>, number: usize) -> Vec<Weighed> {
        let other = self.sets[number].cases.clone();
        let Some((mixed, parts)) = self.towards(&at, &other) else { return at };
        self.sets.iter_mut().for_each(|set| set.share = set.share * parts / PARTS);
        self.sets[number].share += WHOLE * (PARTS - parts) / PARTS;
        mixed
    }

    /// The result, given the best mean and its bounds of strategies.
    pub(super) fn ended(self, at: Vec<Weighed>, of_mean: Through) -> Climbed {
        let least = self.best_of_strategies();
        Climbed { least, through: self.through, sets: self.sets, at, of_mean }
    }

    /// The exact bounds of strategies by the best mean; empty where the bound is enough already.
    pub(super) fn finish(&mut self, at: &[Weighed]) -> Through {
        if self.best >= self.enough || at.is_empty() {
            return Through::new();
        }
        let (found, through) = self.least(at, false);
        self.best = self.best.max(found);
        through.unwrap_or_default()
    }

    /// The best mean of `at` and `other` that is found, if one is better than `at`, and how many of
    /// [`PARTS`] are `at` in it.
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

/// The mean of two sets, case by case. All sets that have cases have the same ones; a set without
/// cases is mixed into each case. `None` where the cases differ.
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
