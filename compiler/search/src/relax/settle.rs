//! Sweeps of prices until the bound stands still, and what is dropped meanwhile.

use shard_ir::ValueId;

use super::factors::Factors;
use super::graph::FAR;
use super::kept::KeptCosts;
use super::leap::Leaps;
use super::parts::PartKind;
use super::prices::Prices;
use super::whole::Whole;
use crate::Limits;

/// Sweeps end when one raises the bound by at most one part in this many, unless the problem is
/// small.
const PATIENCE: i64 = 10_000_000;

/// The same where branching on labels and memory raises the bound as well, and no plan is known.
/// Where a plan is known, sweeps end when more than [`WORTH_SWEEPING`] like the last one would be
/// needed to reach it.
const PATIENCE_OF_BRANCHES: i64 = 2_000;

/// The same where a rough bound is enough.
const PATIENCE_IF_ROUGH: i64 = 2_000;

/// See [`PATIENCE_OF_BRANCHES`].
const WORTH_SWEEPING: i64 = 16;

/// All later sweeps together mostly raise the bound by less than this many times what the last one
/// did.
const STILL_TO_COME: i64 = 4;

/// How prices are swept.
#[derive(Clone, Copy)]
pub(super) struct Sweeps {
    /// Whether the prices begin with nothing known.
    pub(super) fresh: bool,
    /// Whether alternatives are dropped that are dearer than the plan that the prices favour.
    pub(super) shrink: bool,
    /// Whether the known plan is close by: sweeps end when it would take too many to reach it.
    pub(super) near: bool,
    /// For a bound of which only the largest of several counts, so that it need not be exact:
    /// sweeps end when the bound does not look as if it would come above this.
    pub(super) rough: Option<i64>,
}

/// Sweeps prices until the bound stands still or meets a plan.
///
/// With `shrink`, alternatives that are dearer than a known plan are dropped meanwhile; not to be
/// used where plans of other labels are still wanted. `plan` is the time of a known plan in ticks,
/// and is lowered when a better one is found. Returns the bound in ticks and, if something was
/// dropped, the problem as it was before.
pub(super) fn settle(
    problem: &mut Factors,
    prices: &mut Prices,
    limits: &Limits,
    Sweeps { fresh, shrink, near, rough }: Sweeps,
    plan: &mut i64,
) -> (i64, Option<Whole>) {
    let patience = match (rough, shrink || prices.sides.is_empty()) {
        (Some(_), _) => PATIENCE_IF_ROUGH,
        (None, true) => PATIENCE,
        (None, false) => PATIENCE_OF_BRANCHES,
    };
    let mut bound = i64::MIN;
    let mut whole = None;
    let mut has_met = false;
    let (mut leaps, mut kept) = (Leaps::default(), KeptCosts::default());
    let sweeps = limits.sweeps.max(1);
    for sweep in 0..sweeps {
        // The caller checks the stop, and takes no result when time is up.
        if limits.stop.is_time_up() {
            break;
        }
        prices.up(problem, fresh && sweep == 0, &mut kept);
        if prices.bound() >= FAR {
            return (FAR, whole);
        }
        if shrink && problem.exact {
            *plan = (*plan).min(prices.favoured(problem, sweep % 2 == 1, &mut kept));
        }
        prices.down(problem, &mut kept);
        if leaps.take_back(prices, bound) {
            continue;
        }
        let now = prices.bound();
        let gain = now.saturating_sub(bound);
        let slow = match *plan {
            plan if plan >= FAR || (!near && (shrink || prices.sides.is_empty())) => {
                gain <= bound / patience
            }
            plan => gain <= plan.saturating_sub(now) / WORTH_SWEEPING,
        };
        let still = sweep > 0
            && (gain <= problem.ticks / 16
                || (slow && (rough.is_some() || problem.all_nodes() > SMALL)));
        bound = bound.max(now);
        let still_to_come = if sweep > 0 { gain.saturating_mul(STILL_TO_COME) } else { FAR };
        if rough.is_some_and(|floor| floor >= (*plan).min(now.saturating_add(still_to_come))) {
            break;
        }
        let rates = prices.sides.at_a_rate
            && prices.sides.parts.iter().any(|p| matches!(p.kind, PartKind::Memory { .. }));
        if still && rates {
            prices.sides.at_a_rate = false;
            continue;
        }
        // One more sweep is made than the bound needs: the sweep in which the bound meets the plan
        // leaves dearer alternatives looking cheap.
        let before = std::mem::replace(&mut has_met, bound > plan.saturating_sub(problem.ticks));
        if still || (before && has_met) {
            break;
        }
        if *plan < FAR
            && let Some(before) = drop_dearer(problem, prices, *plan)
        {
            whole.get_or_insert(before);
            leaps.start_anew();
        } else if sweep + 1 < sweeps {
            leaps.leap(prices, gain);
        }
    }
    (bound, whole)
}

/// Problems of fewer nodes are not worth shrinking.
const WORTH_SHRINKING: usize = 100;

/// In problems of up to this many nodes sweeps are cheap, so that even a small gain is worth one.
const SMALL: usize = 300;

/// Drops what no plan of at most `plan` ticks can use, if that is a good part of the whole; returns
/// the problem as it was before.
pub(super) fn drop_dearer(problem: &mut Factors, prices: &mut Prices, plan: i64) -> Option<Whole> {
    let nodes = cheap_nodes(problem, prices, plan);
    let all: usize = nodes.iter().map(Vec::len).sum();
    let kept = nodes.iter().flatten().filter(|k| **k).count();
    if all < WORTH_SHRINKING || kept * 4 > all * 3 {
        return None;
    }
    let (small, fewer) = narrowed_to(problem, prices, &nodes, plan, &|_, _| true);
    Some(Whole {
        problem: std::mem::replace(problem, small),
        prices: std::mem::replace(prices, fewer),
    })
}

/// For each value, whether each node may be in a plan of at most `most` ticks.
pub(super) fn cheap_nodes(problem: &Factors, prices: &Prices, most: i64) -> Vec<Vec<bool>> {
    let mut nodes = vec![Vec::new(); problem.factors.len()];
    for id in &problem.live {
        nodes[id.index()] = prices.through_node[id.index()].iter().map(|t| *t <= most).collect();
    }
    nodes
}

/// The problem with these nodes alone, and with those strategies between them that may be in a plan
/// of at most `most` ticks and for which `keep` says yes, given the value and the strategy.
pub(super) fn narrowed_to(
    problem: &Factors,
    prices: &Prices,
    nodes: &[Vec<bool>],
    most: i64,
    keep: &dyn Fn(ValueId, usize) -> bool,
) -> (Factors, Prices) {
    let mut strategies = vec![Vec::new(); problem.factors.len()];
    for id in &problem.live {
        let v = id.index();
        let factor = &problem.factors[v];
        strategies[v] = (0..factor.out.len())
            .map(|s| {
                prices.through_strategy[v][s] <= most
                    && nodes[v][factor.out[s] as usize]
                    && factor
                        .reads_of(s)
                        .iter()
                        .zip(&problem.operands[v])
                        .all(|(n, o)| nodes[o.index()][*n as usize])
                    && keep(*id, s)
            })
            .collect::<Vec<bool>>();
    }
    let (small, renamed) = problem.shrunk(nodes, &strategies);
    let prices = prices.shrunk(&small, &renamed, &strategies);
    (small, prices)
}
