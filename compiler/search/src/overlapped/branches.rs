//! Branches of the plan space, each with sets and a mean of its own.
//!
//! One mean is a bound on all plans at once: of two plans of which the one is held up by the cores
//! and the other by a link, it says what lies between. Where each of them makes a value in another
//! layout, plans that make it in the one and plans that make it in the other are bounded apart, and
//! the least of both stands.

use std::collections::BTreeMap;
use std::rc::Rc;

use shard_ir::{Layout, Picoseconds, ValueId};

use super::climb::{Climb, Climbed, Through};
use super::costs::TimedProblem;
use super::exclusive::{FirstOrLast, Steps};
use super::weighed::Weighed;
use super::{KnownPrices, OverlapSearch};

/// What is this part of what is known below it is good enough not to divide further.
const NEAR: u64 = 100;
/// Layouts are told apart in which the mean says that a value is made in no more time than this
/// part of the way from the bound to what is known.
const TIED: u64 = 4;

/// Some of the plans, those that make values in the ways of a problem, and what is known of them.
pub(super) struct OverlapBranch {
    pub(super) timed: TimedProblem,
    /// What each of them takes at least.
    pub(super) best: Picoseconds,
    pub(super) climbed: Climbed,
    /// The cases that its sets tell apart.
    pub(super) cases: Vec<Vec<FirstOrLast>>,
}

/// Plans of a branch that make a value in some of its ways, before sets and means are looked at.
struct BranchPart {
    of: Rc<OverlapBranch>,
    value: usize,
    /// Of the ways of the value.
    kept: Vec<bool>,
}

/// A branch or a part of one, of which no other is a part, with what its plans take at least.
enum OpenBranch {
    OverlapBranch(Rc<OverlapBranch>),
    BranchPart(BranchPart, Picoseconds),
}

impl OpenBranch {
    fn best(&self) -> Picoseconds {
        match self {
            OpenBranch::OverlapBranch(branch) => branch.best,
            OpenBranch::BranchPart(_, best) => *best,
        }
    }
}

impl OverlapSearch<'_> {
    /// What any plan takes at least: the least of some branches that together have all plans. The
    /// one of least bound is divided; a part of it is looked at when its turn comes.
    pub(super) fn divided(&self, root: OverlapBranch, begun: &mut KnownPrices) -> Picoseconds {
        let enough = self.enough;
        let mut open = vec![OpenBranch::OverlapBranch(Rc::new(root))];
        let mut divided = 0;
        while !self.limits.stop.is_time_up() {
            let Some(at) = (0..open.len()).min_by_key(|at| (open[*at].best(), *at)) else { break };
            if open[at].best() + Picoseconds(enough.0 / NEAR) >= enough {
                break;
            }
            match &open[at] {
                OpenBranch::BranchPart(part, _) => {
                    let branch = self.branch(part, begun);
                    open.swap_remove(at);
                    open.extend(branch.map(|branch| OpenBranch::OverlapBranch(Rc::new(branch))));
                }
                OpenBranch::OverlapBranch(branch) => {
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
                        OpenBranch::BranchPart(part, best)
                    }));
                }
            }
        }
        open.iter().map(OpenBranch::best).min().unwrap_or(enough).min(enough)
    }

    /// The plans of a part; `None` where there is none, or each takes enough.
    fn branch(&self, part: &BranchPart, begun: &mut KnownPrices) -> Option<OverlapBranch> {
        let (of, enough) = (&part.of, self.enough);
        let is_kept =
            |v: usize, s: usize| (v != part.value || part.kept[s]) && !of.is_dear(v, s, enough);
        let timed = of.timed.keeping(&is_kept);
        let mut none = false;
        let mut least = |weights: &Weighed, floor: Option<Picoseconds>| {
            self.of_set(weights, floor, &timed, begun, &mut none)
        };
        let (mut climb, at) = Climb::of_part(&of.climbed, enough, &mut least);
        let steps = Steps::of(self.kernels, &timed, self.streams, self.stack);
        let (at, of_mean) = steps.add_cuts(&mut climb, at, &of.cases, self.streams);
        let climbed = climb.ended(at, of_mean);
        let best = climbed.least.max(part.least());
        let branch = OverlapBranch { timed, best, climbed, cases: of.cases.clone() };
        (!none && best < enough).then_some(branch)
    }
}

impl BranchPart {
    /// The lower bound that the parent branch gives for the plans of this part.
    fn least(&self) -> Picoseconds {
        let through = self.of.climbed.through.get(self.value);
        let times = through.into_iter().flatten().zip(&self.kept).filter(|(_, kept)| **kept);
        let least = times.map(|(time, _)| *time).min().unwrap_or(0);
        self.of.best.max(Picoseconds(least))
    }
}

impl OverlapBranch {
    /// Whether any plan that makes a value in a way takes enough.
    fn is_dear(&self, value: usize, way: usize, enough: Picoseconds) -> bool {
        let of_way = self.climbed.through.get(value).and_then(|of| of.get(way));
        of_way.is_some_and(|time| *time >= enough.0)
    }

    /// The ways that are not too dear; `None` where that is all of them.
    pub(super) fn without_dear_ways(&self, enough: Picoseconds) -> Option<TimedProblem> {
        let problem = &self.timed.problem;
        let is_dear = |v: usize, s: usize| self.is_dear(v, s, enough);
        let has_dear = |id: &ValueId| {
            (0..problem.factors[id.index()].out.len()).any(|s| is_dear(id.index(), s))
        };
        let any = problem.live.iter().any(has_dear);
        any.then(|| self.timed.keeping(&|v, s| !is_dear(v, s)))
    }

    /// The least that any plan takes by what is said of ways, for each layout in which it makes a
    /// value.
    fn by_layout(&self, value: ValueId, through: &Through) -> BTreeMap<Option<Layout>, u64> {
        let factor = &self.timed.problem.factors[value.index()];
        let times = through.get(value.index()).filter(|of| of.len() == factor.out.len());
        let mut least = BTreeMap::new();
        for (way, time) in times.into_iter().flatten().enumerate() {
            let layout = self.timed.problem.layout(value, factor.out[way]);
            let known = least.entry(layout).or_insert(u64::MAX);
            *known = (*known).min(*time);
        }
        least
    }

    /// A value and its ways in one of two kinds of layouts: those in which some set of the mean
    /// says least, and those in which it says most, of those that the mean does not tell apart.
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

    /// A value and its ways in the layouts of least time, where all others take most.
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
