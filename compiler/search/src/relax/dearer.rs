//! Branches whose strategies cost something beside their time, and branches in which each value has
//! one strategy.

use std::sync::Arc;

use shard_ir::ValueId;

use super::branch::Branch;
use super::factors::StrategyLayouts;
use super::graph::FAR;
use super::settle::{Sweeps, settle};
use super::whole::Whole;
use crate::Limits;

impl Branch {
    /// The same plans, where a strategy takes `more` ticks than its time. The prices begin with
    /// those of `like`, a branch of the same plans.
    pub(crate) fn dearer(
        &self,
        more: &dyn Fn(ValueId, &StrategyLayouts) -> i64,
        like: &Branch,
        limits: &Limits,
    ) -> Branch {
        let Whole { problem: before, prices } = self.whole.as_ref();
        let mut problem = before.clone();
        for id in &before.live {
            let factor = &before.factors[id.index()];
            let dearer = |(s, time): (usize, &i64)| match before.layouts_of(*id, s) {
                Some(way) if *time < FAR => time.saturating_add(more(*id, &way)).min(FAR - 1),
                _ => *time,
            };
            let cost = factor.cost.iter().enumerate().map(dearer).collect();
            problem.factors[id.index()] = Arc::new(factor.with_costs(cost));
        }
        let parts = Arc::clone(&prices.sides.parts);
        let mut prices = like.whole.prices.resumed(&problem).with_parts(&problem, parts);
        let sweeps = Sweeps { fresh: false, shrink: false, near: false, rough: Some(0) };
        let (bound, _) = settle(&mut problem, &mut prices, limits, sweeps, &mut { FAR });
        let whole = Arc::new(Whole { problem, prices });
        Branch { whole, bound }
    }

    /// The first strategy of each live value; where all is decided, its only one.
    pub(crate) fn ways(&self) -> Vec<(ValueId, StrategyLayouts)> {
        let problem = &self.whole.problem;
        let live = problem.live.iter();
        live.filter_map(|id| Some((*id, problem.layouts_of(*id, 0)?))).collect()
    }

    /// The plans of the branch with these strategies.
    pub(crate) fn made_so(&self, ways: &[(ValueId, StrategyLayouts)], limits: &Limits) -> Branch {
        let mut problem = self.whole.problem.clone();
        for (id, StrategyLayouts { made, read }) in ways {
            problem = problem.allowing(*id, &|out, reads| out == *made && reads == read);
        }
        let prices = self.whole.prices.narrowed(&problem);
        let whole = Arc::new(Whole { problem, prices });
        let mut branch = Branch { whole, ..self.clone() };
        branch.settle(limits, None);
        branch
    }
}
