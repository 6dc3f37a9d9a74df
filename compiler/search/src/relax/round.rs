//! Rounding: from prices to one plan.

use std::cmp::Reverse;
use std::sync::Arc;

use shard_ir::ValueId;

use super::branch::Branch;
use super::factors::{Factor, Factors};
use super::graph::FAR;
use super::prices::Prices;
use super::settle::{Sweeps, settle};
use super::whole::Whole;
use crate::Limits;

/// The number of sweeps after each round of decisions.
const SWEEPS: usize = 3;

/// If a round of several decisions raises the bound by more than one part in this many, fewer
/// values are decided at once.
const LIFTED: i64 = 1 << 13;

impl Branch {
    /// A branch with one plan to which prices lead. The values whose best strategy is clearest are
    /// decided first, the prices are swept again, and so on. The plan is near the bound if any plan
    /// is near it. `None` where the decisions leave no plan, or time is up.
    pub(crate) fn rounded(&self, limits: &Limits) -> Option<Branch> {
        let Whole { problem, prices } = self.whole.as_ref();
        let (mut problem, mut prices) = (problem.clone(), prices.clone());
        let few = Limits { sweeps: SWEEPS, ..limits.clone() };
        let sweeps = Sweeps { fresh: false, shrink: false, near: false, rough: None };
        let (mut bound, mut most) = (self.bound, problem.live.len());
        loop {
            let decided = most_decided(&problem, &prices, most);
            if decided.is_empty() {
                break;
            }
            let mut next = problem.clone();
            for (value, strategy) in &decided {
                next.factors[value.index()] =
                    Arc::new(only(&problem.factors[value.index()], *strategy));
            }
            let mut then = prices.narrowed(&next);
            let (now, _) = settle(&mut next, &mut then, &few, sweeps, &mut { FAR });
            if limits.stop.is_time_up() {
                return None;
            }
            if decided.len() > 1 && now.saturating_sub(bound) > bound / LIFTED {
                most = decided.len() / 2;
                continue;
            }
            if now >= FAR {
                return None;
            }
            (problem, prices, bound) = (next, then, now.max(bound));
            most = decided.len() * 2;
        }
        let whole = Arc::new(Whole { problem, prices });
        Some(Branch { whole, bound })
    }
}

/// Of the values with several strategies, at most `most` whose best strategy is furthest ahead of
/// the next best, each with that strategy. No two of them read each other.
fn most_decided(problem: &Factors, prices: &Prices, most: usize) -> Vec<(ValueId, usize)> {
    let open = problem.live.iter().filter(|id| problem.factors[id.index()].out.len() > 1);
    let mut open: Vec<(Reverse<i64>, ValueId, usize)> = open
        .filter_map(|id| {
            let through = &prices.through_strategy[id.index()];
            let best = (0..through.len()).min_by_key(|s| through[*s])?;
            let next = (0..through.len()).filter(|s| *s != best).map(|s| through[s]).min()?;
            Some((Reverse(next - through[best]), *id, best))
        })
        .collect();
    open.sort_unstable();
    let mut taken: Vec<(ValueId, usize)> = Vec::new();
    let mut is_taken = vec![false; problem.factors.len()];
    let mut is_read = is_taken.clone();
    for (_, id, best) in open {
        if taken.len() == most {
            break;
        }
        let operands = &problem.operands[id.index()];
        if is_read[id.index()] || operands.iter().any(|operand| is_taken[operand.index()]) {
            continue;
        }
        is_taken[id.index()] = true;
        operands.iter().for_each(|operand| is_read[operand.index()] = true);
        taken.push((id, best));
    }
    taken
}

fn only(factor: &Factor, strategy: usize) -> Factor {
    let mut only = Factor { arity: factor.arity, ..Factor::default() };
    let reads = factor.reads_of(strategy).iter().copied();
    only.push(factor.out[strategy], reads, factor.cost[strategy]);
    only
}
