//! Questions about a program that differs from a solved one only in layout patterns.

use shard_ir::{AxisSet, Program};

use super::factors::Factors;
use super::kept::KeptCosts;
use super::prices::Prices;
use super::settle::{Sweeps, settle};
use super::whole::Whole;
use crate::Limits;

/// The most sweeps in which the prices of a similar program may show that a program has no plan of
/// interest.
const QUESTION_SWEEPS: usize = 32;

/// The number of sweeps after which little more is dropped that no better plan uses.
const SWEEPS_TO_NARROW: usize = 2;

/// What prices say of plans that are better than a known one.
pub(crate) enum Better<T> {
    /// There are no such plans.
    None,
    /// No such plan takes less than `least`, in picoseconds; `known` is what else is known of them.
    Plans { least: u64, known: T },
    /// Prices cannot tell.
    Unknown,
}

/// A solved program, for a question about one that differs only in layout patterns.
#[derive(Clone, Copy)]
pub(crate) struct Like<'a> {
    pub(crate) whole: &'a Whole,
    /// The solved program, if its own plans are not wanted; the prices are then those that proved
    /// what these plans take.
    pub(crate) unwanted: Option<&'a Program>,
}

impl Like<'_> {
    /// The problem of the wanted plans of a program; `None` where it cannot be made from the solved
    /// one.
    pub(super) fn problem_of(&self, program: &Program, maxima: AxisSet) -> Option<Factors> {
        let problem = self.whole.problem.with_patterns(program, maxima)?;
        Some(match self.unwanted {
            Some(unwanted) => problem.without_plans_of(unwanted, program),
            None => problem,
        })
    }

    /// A lower bound on the wanted plans of a program, in picoseconds, that needs no sweep; `None`
    /// where a sweep is needed.
    pub(crate) fn shows(&self, program: &Program, maxima: AxisSet) -> Option<u64> {
        let problem = self.problem_of(program, maxima)?;
        let bound = self.whole.bound_beside(&problem)?;
        Some(problem.picoseconds(bound).unwrap_or(u64::MAX))
    }

    /// The bound on such a problem, the prices that show it, and the problem as it was before
    /// anything was dropped, if something was. `plan` is the time of a known plan, in ticks. `None`
    /// where it is better to begin with new prices.
    pub(super) fn settled(
        &self,
        problem: &mut Factors,
        limits: &Limits,
        plan: &mut i64,
    ) -> Option<(i64, Prices, Option<Whole>)> {
        let Like { whole, unwanted } = self;
        if let Some(bound) = whole.bound_beside(problem).filter(|bound| bound > plan) {
            return Some((bound, Prices::new(problem), None));
        }
        if unwanted.is_some() {
            let mut prices = whole.prices.carried_to(&whole.problem, problem);
            let sweeps = Sweeps { fresh: false, shrink: true, near: false, rough: None };
            let (bound, before) = settle(problem, &mut prices, limits, sweeps, plan);
            return Some((bound, prices, before));
        }
        // Prices of a similar program mostly show soon that there is no plan of interest. If they
        // do not, and the similar program allows more, its prices are good enough to search with.
        // Other prices leave many dear alternatives looking cheap, so new prices are found on what
        // was not dropped.
        let narrows = whole.problem.narrows(problem);
        let mut prices = whole.prices.resumed(problem);
        let few = Limits { sweeps: QUESTION_SWEEPS, ..limits.clone() };
        let sweeps = Sweeps { fresh: false, shrink: false, near: true, rough: None };
        let (bound, _) = settle(problem, &mut prices, &few, sweeps, plan);
        (bound > *plan || narrows).then_some((bound, prices, None))
    }
}

impl Whole {
    /// The bound of the prices, after a sweep down, on a program that differs only in layout
    /// patterns ([`Factors::with_patterns`]); `None` where a sweep is needed.
    fn bound_beside(&self, problem: &Factors) -> Option<i64> {
        let is_plain = self.prices.sides.is_empty();
        is_plain.then(|| self.prices.bound_of_patterns(&self.problem, problem)).flatten()
    }

    /// The plans of `own`, of which this is the problem, without what no plan of `wider` below
    /// `best` picoseconds uses; `wider` is a program that allows more. The prices are improved by
    /// those of `settled`, which is what was left of this problem when its prices stood still.
    pub(crate) fn for_better_plans(
        &self,
        settled: &Whole,
        own: &Program,
        wider: &Program,
        maxima: AxisSet,
        best: u64,
        limits: &Limits,
    ) -> Better<Whole> {
        let Some(mut problem) = self.problem.with_patterns(wider, maxima) else {
            return Better::Unknown;
        };
        if !(self.prices.sides.is_empty() && settled.prices.sides.is_empty()) {
            return Better::Unknown;
        }
        let nearly_right = self.prices.clone().with_those_of(&self.problem, settled);
        let mut prices = nearly_right.carried_to(&self.problem, &problem);
        let mut plan = problem.in_time(best.saturating_sub(1));
        let few = Limits { sweeps: SWEEPS_TO_NARROW, ..limits.clone() };
        let sweeps = Sweeps { fresh: false, shrink: false, near: true, rough: None };
        let (bound, _) = settle(&mut problem, &mut prices, &few, sweeps, &mut plan);
        let Some(least) = problem.picoseconds(bound).filter(|least| *least < best) else {
            return Better::None;
        };
        let Some(own) = problem.with_patterns(own, maxima) else { return Better::Unknown };
        let mut prices = prices.with_those_of(&problem, settled).carried_to(&problem, &own);
        let mut kept = KeptCosts::default();
        prices.up(&own, false, &mut kept);
        prices.down(&own, &mut kept);
        Better::Plans { least, known: Whole { problem: own, prices } }
    }
}
