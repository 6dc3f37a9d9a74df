//! A solved relaxation, kept for questions about plans dearer than the best.

use std::sync::Arc;

use shard_ir::{Layout, Program, ValueId};

use super::factors::{Factors, StrategyLayouts};
use super::graph::FAR;
use super::kept::KeptCosts;
use super::priced::Priced;
use super::prices::Prices;
use super::settle::{Sweeps, cheap_nodes, narrowed_to, settle};
use crate::Limits;

/// A problem with prices on all of its alternatives.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(super) problem: Factors,
    pub(super) prices: Prices,
}

/// A question about a [`Whole`]: what plans take that make one value by some of its strategies.
pub(crate) struct Question<'a> {
    whole: &'a Whole,
    value: ValueId,
    /// For each strategy of the value, whether the question allows it.
    kept: Vec<bool>,
}

impl Whole {
    /// The same problem with labels fixed.
    pub(crate) fn under(&self, program: &Program, labels: &[Layout]) -> Whole {
        let problem = self.problem.with_labels(program, labels);
        let mut prices = self.prices.narrowed(&problem);
        let mut kept = KeptCosts::default();
        prices.up(&problem, false, &mut kept);
        prices.down(&problem, &mut kept);
        Whole { problem, prices }
    }

    /// A lower bound on the plans with each alternative.
    pub(crate) fn priced(self: &Arc<Self>) -> Priced {
        Priced::read(Arc::clone(self), self.prices.bound())
    }

    /// The number of strategies of all values.
    pub(crate) fn strategies(&self) -> usize {
        self.problem.strategies()
    }

    /// The question about plans that make `value` by strategies for which `keep` says yes, given
    /// the layouts of the result and of the operands.
    pub(crate) fn question(
        &self,
        value: ValueId,
        keep: &dyn Fn(Layout, &[Layout]) -> bool,
    ) -> Question<'_> {
        let factor = &self.problem.factors[value.index()];
        let kept = (0..factor.out.len())
            .map(|s| {
                let layouts = self.problem.layouts_of(value, s);
                layouts.is_some_and(|StrategyLayouts { made, read }| keep(made, &read))
            })
            .collect();
        Question { whole: self, value, kept }
    }

    /// The layouts of a value that it reaches from a layout by moves without traffic, that layout
    /// included.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        self.problem.reached_free(value, from)
    }
}

impl Question<'_> {
    /// A lower bound on such plans, in picoseconds; `None` where there are none.
    pub(crate) fn least(&self) -> Option<u64> {
        let through = &self.whole.prices.through_strategy[self.value.index()];
        let least =
            through.iter().zip(&self.kept).filter(|(_, kept)| **kept).map(|(t, _)| *t).min()?;
        self.whole.problem.picoseconds(least)
    }

    /// The part of the problem that such plans of at most `most` picoseconds may use, with prices.
    pub(crate) fn within(&self, most: u64, limits: &Limits) -> Priced {
        let Whole { problem, prices } = self.whole;
        let most = problem.in_time(most);
        let keep = |v: ValueId, s: usize| v != self.value || self.kept[s];
        let nodes = cheap_nodes(problem, prices, most);
        let (mut problem, mut prices) = narrowed_to(problem, prices, &nodes, most, &keep);
        let mut plan = FAR;
        let (bound, _) = settle(
            &mut problem,
            &mut prices,
            limits,
            Sweeps { fresh: false, shrink: true, near: false, rough: None },
            &mut plan,
        );
        Priced::read(Arc::new(Whole { problem, prices }), bound)
    }
}
