//! Questions about a program that differs from a priced one in its layout patterns alone.

use shard_ir::{AxisSet, Program};

use super::factors::Factors;
use super::prices::Prices;
use super::settle::{Sweeps, settle};
use super::whole::Whole;
use crate::Limits;

/// Sweeps in which prices of nearly the same program may show that it has no plan of interest; they
/// end sooner where they would not.
const QUESTION_SWEEPS: usize = 32;

/// Sweeps after which little more is dropped of what no better plan is made of.
const SWEEPS_TO_NARROW: usize = 2;

/// What prices say of plans that are better than one known.
pub(crate) enum Better<T> {
    /// There are none.
    None,
    /// None takes less than `least`, in picoseconds.
    Plans { least: u64, known: T },
    /// Nothing.
    Unknown,
}

/// What is known of a program, for a question about one that differs from it in its layout patterns
/// alone.
#[derive(Clone, Copy)]
pub(crate) struct Like<'a> {
    pub(crate) whole: &'a Whole,
    /// The program itself, where its own plans are not wanted: then the prices are those that show
    /// what they take.
    pub(crate) unwanted: Option<&'a Program>,
}

impl Like<'_> {
    /// What the wanted plans of a program are made of; `None` where that is not known from this.
    pub(super) fn problem_of(&self, program: &Program, maxima: AxisSet) -> Option<Factors> {
        let problem = self.whole.problem.with_patterns(program, maxima)?;
        Some(match self.unwanted {
            Some(unwanted) => problem.without_plans_of(unwanted, program),
            None => problem,
        })
    }

    /// What prices show at once that any wanted plan of a program takes, in picoseconds.
    pub(crate) fn shows(&self, program: &Program, maxima: AxisSet) -> Option<u64> {
        let problem = self.problem_of(program, maxima)?;
        let bound = self.whole.bound_beside(&problem)?;
        Some(problem.picoseconds(bound).unwrap_or(u64::MAX))
    }

    /// Prices on such a problem, the bound that they show, and what there was before anything was
    /// dropped, if it was. `plan` is the time of a plan known, in ticks. `None` where prices had
    /// better begin anew.
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
        // Prices that are nearly right mostly show at once that there is nothing. Where there is
        // something, those of a program that allows more are good enough to search with; others
        // leave much that is dear looking cheap, so that prices begin anew, on what is left.
        let narrows = whole.problem.narrows(problem);
        let mut prices = whole.prices.resumed(problem);
        let few = Limits { sweeps: QUESTION_SWEEPS, ..limits.clone() };
        let sweeps = Sweeps { fresh: false, shrink: false, near: true, rough: None };
        let (bound, _) = settle(problem, &mut prices, &few, sweeps, plan);
        (bound > *plan || narrows).then_some((bound, prices, None))
    }
}

impl Whole {
    /// What the prices say, after a sweep down, of the plans of a program that differs in its
    /// layout patterns ([`Factors::with_patterns`]); `None` where that takes a sweep.
    fn bound_beside(&self, problem: &Factors) -> Option<i64> {
        let is_plain = self.prices.sides.is_empty();
        is_plain.then(|| self.prices.bound_of_patterns(&self.problem, problem)).flatten()
    }

    /// Of the plans of `own`, which these are, without what no plan of `wider`, which allows more,
    /// is made of that takes less than `best` picoseconds: at the prices of `settled`, what was
    /// left of them when prices stood still.
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
        prices.up(&own, false);
        prices.down(&own);
        Better::Plans { least, known: Whole { problem: own, prices } }
    }
}
