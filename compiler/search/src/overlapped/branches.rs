//! Branches of the plan space, each with sets and a mean of its own.
//!
//! A mean of sets is a bound on all plans at once. If one plan is held up by the cores and another
//! by a link, the mean gives a bound between what both take. If these plans make a value in
//! different layouts, the plans of each layout can be bounded apart, and the least of both bounds
//! stands.

use std::collections::BTreeMap;
use std::rc::Rc;

use shard_ir::{Layout, Picoseconds, ValueId};

use super::climb::{Climb, Climbed, Through};
use super::costs::TimedProblem;
use super::exclusive::{FirstOrLast, Steps};
use super::weighed::Weighed;
use super::{KnownPrices, OverlapSearch};

/// A branch is not divided further if its bound falls short of `enough` by at most one part in this
/// many.
const NEAR: u64 = 100;
/// Layouts of a value count as tied if the bounds that the mean gives for them lie no further than
/// one part in this many of the way from the bound of the branch to `enough`.
const TIED: u64 = 4;

/// Some of the plans of a form, and what is known of them.
pub(super) struct OverlapBranch {
    pub(super) timed: TimedProblem,
    /// A lower bound on the plans.
    pub(super) best: Picoseconds,
    pub(super) climbed: Climbed,
    /// The cases by which its sets are divided.
    pub(super) cases: Vec<Vec<FirstOrLast>>,
}

/// The plans of a branch that make one value by some of its strategies, before sets and means are
/// looked at.
struct BranchPart {
    of: Rc<OverlapBranch>,
    value: usize,
    /// For each strategy of the value, whether the plans may use it.
    kept: Vec<bool>,
}

/// A branch, or a part of one with a lower bound on it, that is still to be looked at.
enum OpenBranch {
    Whole(Rc<OverlapBranch>),
    Part(BranchPart, Picoseconds),
}

impl OpenBranch {
    fn best(&self) -> Picoseconds {
        match self {
            OpenBranch::Whole(branch) => branch.best,
            OpenBranch::Part(_, best) => *best,
        }
    }
}

impl OverlapSearch<'_> {
    /// A lower bound on all plans: the least bound of branches that together have all plans. The
    /// branch of least bound is divided again and again; a part of a branch is looked at when its
    /// bound is the least.
    pub(super) fn divided(
        &self,
        root: OverlapBranch,
        known_prices: &mut KnownPrices,
    ) -> Picoseconds {
        let enough = self.enough;
        let mut open = vec![OpenBranch::Whole(Rc::new(root))];
        let mut divided = 0;
        while !self.limits.stop.is_time_up() {
            let Some(at) = (0..open.len()).min_by_key(|at| (open[*at].best(), *at)) else { break };
            if open[at].best() + Picoseconds(enough.0 / NEAR) >= enough {
                break;
            }
            match &open[at] {
                OpenBranch::Part(part, _) => {
                    let branch = self.branch(part, known_prices);
                    open.swap_remove(at);
                    open.extend(branch.map(|branch| OpenBranch::Whole(Rc::new(branch))));
                }
                OpenBranch::Whole(branch) => {
                    let parts = branch.told_apart(enough);
                    let Some((value, one)) =
                        parts.filter(|_| divided < self.limits.overlap_branches)
                    else {
                        break;
                    };
                    divided += 1;
                    let of = Rc::clone(branch);
                    open.swap_remove(at);
                    open.extend([true, false].map(|is_one| {
                        let kept = one.iter().map(|one| *one == is_one).collect();
                        let part = BranchPart { of: Rc::clone(&of), value, kept };
                        let best = part.least();
                        OpenBranch::Part(part, best)
                    }));
                }
            }
        }
        open.iter().map(OpenBranch::best).min().unwrap_or(enough).min(enough)
    }

    /// The plans of a part, with sets and means of their own; `None` where there are no plans, or
    /// each takes `enough`.
    fn branch(&self, part: &BranchPart, known_prices: &mut KnownPrices) -> Option<OverlapBranch> {
        let (of, enough) = (&part.of, self.enough);
        let is_kept =
            |v: usize, s: usize| (v != part.value || part.kept[s]) && !of.is_dear(v, s, enough);
        let timed = of.timed.keeping(&is_kept);
        let mut none = false;
        let mut least = |weights: &Weighed, floor: Option<Picoseconds>| {
            self.of_set(weights, floor, &timed, known_prices, &mut none)
        };
        let (mut climb, at) = Climb::of_part(&of.climbed, enough, &mut least);
        let steps = Steps::of(self.kernels, &timed, self.streams, self.stack);
        let (at, of_mean) = steps.add_cuts(&mut climb, at, &of.cases);
        let climbed = climb.ended(at, of_mean);
        let best = climbed.least.max(part.least());
        let branch = OverlapBranch { timed, best, climbed, cases: of.cases.clone() };
        (!none && best < enough).then_some(branch)
    }
}

impl BranchPart {
    /// The lower bound on the plans of this part that its branch gives.
    fn least(&self) -> Picoseconds {
        let through = self.of.climbed.through.get(self.value);
        let times = through.into_iter().flatten().zip(&self.kept).filter(|(_, kept)| **kept);
        let least = times.map(|(time, _)| *time).min().unwrap_or(0);
        self.of.best.max(Picoseconds(least))
    }
}

impl OverlapBranch {
    /// Whether every plan with a strategy takes `enough`.
    fn is_dear(&self, value: usize, strategy: usize, enough: Picoseconds) -> bool {
        let of_strategy = self.climbed.through.get(value).and_then(|of| of.get(strategy));
        of_strategy.is_some_and(|time| *time >= enough.0)
    }

    /// The plans without the strategies that are too dear; `None` where none is.
    pub(super) fn without_dear_strategies(&self, enough: Picoseconds) -> Option<TimedProblem> {
        let problem = &self.timed.problem;
        let is_dear = |v: usize, s: usize| self.is_dear(v, s, enough);
        let has_dear = |id: &ValueId| {
            (0..problem.factors[id.index()].out.len()).any(|s| is_dear(id.index(), s))
        };
        let any = problem.live.iter().any(has_dear);
        any.then(|| self.timed.keeping(&|v, s| !is_dear(v, s)))
    }

    /// For each layout of a value, the least bound of the strategies that make the value in it.
    fn by_layout(&self, value: ValueId, through: &Through) -> BTreeMap<Option<Layout>, u64> {
        let factor = &self.timed.problem.factors[value.index()];
        let times = through.get(value.index()).filter(|of| of.len() == factor.out.len());
        let mut least = BTreeMap::new();
        for (strategy, time) in times.into_iter().flatten().enumerate() {
            let layout = self.timed.problem.layout(value, factor.out[strategy]);
            let known = least.entry(layout).or_insert(u64::MAX);
            *known = (*known).min(*time);
        }
        least
    }

    /// A value, and for each of its strategies whether it is of the first of two kinds. Only
    /// layouts are compared that the mean does not tell apart. The kinds are those for which one
    /// set of the mean gives a low bound and those for which it gives a high bound; value and set
    /// are those with the largest difference, weighted by the share of the set.
    fn told_apart(&self, enough: Picoseconds) -> Option<(usize, Vec<bool>)> {
        let near = self.best.0 + enough.0.saturating_sub(self.best.0) / TIED;
        let mut widest: Option<(u128, ValueId, usize, u64)> = None;
        for id in &self.timed.problem.live {
            let of_mean = self.by_layout(*id, &self.climbed.of_mean);
            if of_mean.len() < 2 {
                continue;
            }
            let tied = || of_mean.iter().filter(|(_, time)| **time <= near);
            for (number, set) in self.climbed.sets.iter().enumerate().filter(|(_, s)| s.share > 0) {
                let of_set = self.by_layout(*id, &set.through);
                let times = || tied().filter_map(|(layout, _)| of_set.get(layout)).copied();
                let Some((low, high)) = times().min().zip(times().max()) else { continue };
                let (low, high) = (low.min(enough.0), high.min(enough.0));
                let width = u128::from(high - low) * u128::from(set.share);
                if width > widest.map_or(0, |(known, ..)| known) {
                    widest = Some((width, *id, number, low + (high - low) / 2));
                }
            }
        }
        let Some((_, value, set, middle)) = widest else { return self.least_apart() };
        let of_set = self.by_layout(value, &self.climbed.sets[set].through);
        let out = self.timed.problem.factors[value.index()].out.iter();
        let is_low = |out: &_| {
            of_set.get(&self.timed.problem.layout(value, *out)).is_some_and(|time| *time <= middle)
        };
        Some((value.index(), out.map(is_low).collect()))
    }

    /// A value, and for each of its strategies whether it makes the value in the layout of least
    /// bound. The value is that for which the next layout has the largest bound.
    fn least_apart(&self) -> Option<(usize, Vec<bool>)> {
        let mut widest: Option<(u64, ValueId, u64)> = None;
        for id in &self.timed.problem.live {
            let by_layout = self.by_layout(*id, &self.climbed.through);
            let Some(low) = by_layout.values().copied().min() else { continue };
            let Some(next) = by_layout.values().copied().filter(|t| *t > low).min() else {
                continue;
            };
            if widest.is_none_or(|(known, ..)| next > known) {
                widest = Some((next, *id, low));
            }
        }
        let (_, value, low) = widest?;
        let by_layout = self.by_layout(value, &self.climbed.through);
        let out = self.timed.problem.factors[value.index()].out.iter();
        let is_low = |out: &_| {
            by_layout.get(&self.timed.problem.layout(value, *out)).is_some_and(|t| *t <= low)
        };
        Some((value.index(), out.map(is_low).collect()))
    }
}
