//! Lower bounds on the plans with each alternative, and the part of the plan space that they leave
//! within some time.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_ir::{Layout, ValueId};

use super::factors::{Factors, StrategyLayouts};
use super::graph::FAR;
use super::moves_within::MovesWithin;
use super::whole::Whole;

/// The part of the plan space that plans within some time may use.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// For each value, the layouts that it may have.
    pub(crate) layouts: Vec<FxHashSet<Layout>>,
    /// For each op and each layout of its result, the layouts of its operands.
    pub(crate) strategies: Vec<FxHashMap<Layout, Vec<Vec<Layout>>>>,
    /// For each value, the moves between these layouts; `None`, or no entry, where all of its moves
    /// are allowed.
    moves: Vec<Option<MovesWithin>>,
}

impl Region {
    /// For moves of a value from a layout to another, the longest time that such a move may take,
    /// in picoseconds, all executions of the step counted; `None` where no such move is in a plan
    /// within the time.
    pub(crate) fn longest_move(
        &self,
        value: ValueId,
        from: Layout,
    ) -> impl Fn(Layout) -> Option<u64> {
        let inside = &self.layouts[value.index()];
        let within = self.moves.get(value.index()).and_then(Option::as_ref);
        let within = within.map(|within| within.from(from));
        move |to| match &within {
            Some(within) => within.longest(to),
            None => inside.contains(&to).then_some(u64::MAX),
        }
    }
}

impl Factors {
    /// A bound in ticks as a bound in picoseconds, rounded up since plans take whole picoseconds;
    /// `None` where it says that there is no plan.
    pub(super) fn picoseconds(&self, bound: i64) -> Option<u64> {
        picoseconds(bound, self.ticks)
    }

    /// A time of picoseconds in ticks; less than [`FAR`].
    pub(crate) fn in_time(&self, time: u64) -> i64 {
        in_time(time, self.ticks)
    }
}

fn picoseconds(bound: i64, ticks: i64) -> Option<u64> {
    (bound < FAR).then(|| u64::try_from(bound).unwrap_or(0).div_ceil(ticks.unsigned_abs().max(1)))
}

fn in_time(time: u64, ticks: i64) -> i64 {
    i64::try_from(time).unwrap_or(FAR).saturating_mul(ticks).min(FAR - 1)
}

/// A lower bound on all plans, and one on the plans with each alternative.
pub(crate) struct Priced {
    /// The bound on all plans, in picoseconds; `None` where there is no plan.
    pub(crate) bound: Option<u64>,
    /// For each value, the bounds on plans with each layout, in ticks.
    values: Vec<Vec<(Layout, i64)>>,
    /// For each value, the bounds on plans with each strategy, in ticks.
    strategies: Vec<Vec<(i64, StrategyLayouts)>>,
    whole: Arc<Whole>,
}

impl Priced {
    pub(super) fn read(whole: Arc<Whole>, bound: i64) -> Priced {
        let Whole { problem, prices } = whole.as_ref();
        let mut values = Vec::with_capacity(problem.factors.len());
        let mut strategies = Vec::with_capacity(problem.factors.len());
        for v in 0..problem.factors.len() {
            let id = ValueId(v as u32);
            let layouts = problem.graphs[v].layouts.iter().copied();
            values.push(layouts.zip(prices.through_node[v].iter().copied()).collect());
            let mut all = Vec::new();
            for s in 0..problem.factors[v].out.len() {
                let least = prices.through_strategy[v][s];
                let layouts = if least < FAR { problem.layouts_of(id, s) } else { None };
                all.extend(layouts.map(|layouts| (least, layouts)));
            }
            strategies.push(all);
        }
        Priced { bound: problem.picoseconds(bound), values, strategies, whole }
    }

    /// The largest bound of an alternative, in picoseconds: a region of this time leaves nothing
    /// out.
    pub(crate) fn dearest(&self) -> u64 {
        let values = self.values.iter().flatten().map(|(_, t)| *t);
        let dearest = values
            .chain(self.strategies.iter().flatten().map(|(t, _)| *t))
            .filter(|t| *t < FAR)
            .max();
        picoseconds(dearest.unwrap_or(0), self.whole.problem.ticks).unwrap_or(0)
    }

    /// What plans of at most `most` picoseconds may use.
    pub(crate) fn region(&self, most: u64) -> Region {
        let is_all = most >= self.dearest();
        let most = self.whole.problem.in_time(most);
        let layouts: Vec<FxHashSet<Layout>> = self
            .values
            .iter()
            .map(|all| all.iter().filter(|(_, t)| *t <= most).map(|(l, _)| *l).collect())
            .collect();
        let strategies = self
            .strategies
            .iter()
            .map(|all| {
                let mut kept: FxHashMap<Layout, Vec<Vec<Layout>>> = FxHashMap::default();
                for (t, StrategyLayouts { made, read }) in all {
                    if *t <= most {
                        let ways = kept.entry(*made).or_default();
                        if !ways.contains(read) {
                            ways.push(read.clone());
                        }
                    }
                }
                kept
            })
            .collect();
        let moves =
            if is_all { Vec::new() } else { MovesWithin::of_all(&self.whole, &layouts, most) };
        Region { layouts, strategies, moves }
    }
}
