//! Plans that may come near the bound.
//!
//! For each strategy, the sets give a lower bound on the plans that use it
//! ([`SetBound::through`](super::climb::SetBound)). A plan near the bound uses only strategies
//! whose bounds are near it. So the plan that is fastest without overlap among those of such
//! strategies is worth scheduling; weighing all computing against all communicating mostly finds
//! other plans.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::Hardware;
use shard_ir::{Picoseconds, Plan, ValueId};

use super::branches::OverlapBranch;
use crate::forced::Forced;
use crate::logical::Form;
use crate::lower::lower_form;
use crate::relax::StrategyLayouts;
use crate::{Limits, LowerError, LowerOptions};

/// For each strategy of a form, a lower bound on the plans that use it. Strategies whose bound is
/// `enough` are left out.
pub(super) struct StrategyBounds {
    /// The lower bound on all plans by the sets.
    least: Picoseconds,
    /// The time that is enough as a bound.
    enough: Picoseconds,
    /// The bounds, in picoseconds.
    through: Arc<FxHashMap<(ValueId, StrategyLayouts), u64>>,
}

/// A form, and the bounds of its strategies.
pub(super) struct Near {
    pub(super) form: Form,
    pub(super) bounds: StrategyBounds,
}

/// Each part gives a plan, of strategies whose bounds exceed the least bound by at most that part,
/// of [`PARTS`], of the way from the least bound to `enough`.
const NEAR: [u64; 5] = [0, 1, 4, 16, 32];
const PARTS: u64 = 64;

/// The search for one such plan has the limits of a search, divided by this.
const PART_OF_LIMITS: usize = 20;

impl StrategyBounds {
    /// The bounds of the strategies of a branch.
    pub(super) fn of(all: &OverlapBranch, enough: Picoseconds) -> StrategyBounds {
        let problem = &all.timed.problem;
        let mut through: FxHashMap<(ValueId, StrategyLayouts), u64> = FxHashMap::default();
        for id in &problem.live {
            let v = id.index();
            let times = all.climbed.through.get(v);
            for strategy in 0..problem.factors[v].out.len() {
                // A strategy without a known bound has the bound 0.
                let time = times.and_then(|of| of.get(strategy)).copied().unwrap_or(0);
                let layouts = problem.layouts_of(*id, strategy).filter(|_| time < enough.0);
                if let Some(layouts) = layouts {
                    let known = through.entry((*id, layouts)).or_insert(time);
                    *known = (*known).min(time);
                }
            }
        }
        StrategyBounds { least: all.best, enough, through: Arc::new(through) }
    }

    pub(super) fn least(&self) -> Picoseconds {
        self.least
    }

    /// The first `count` limits on the bounds of strategies that [`NEAR`] gives. A limit is left
    /// out if no bound lies between the last one and it, since it allows the same strategies.
    fn near(&self, count: usize) -> Vec<u64> {
        let (least, enough) = (self.least.0, self.enough.0);
        let all = NEAR.map(|parts| least + enough.saturating_sub(least) / PARTS * parts);
        let mut near: Vec<u64> = Vec::new();
        for most in all.into_iter().take(count) {
            let since = |last: u64| self.through.values().any(|time| last < *time && *time <= most);
            if near.last().is_none_or(|last| since(*last)) {
                near.push(most);
            }
        }
        near
    }

    fn within(&self, most: u64) -> Forced {
        let through = Arc::clone(&self.through);
        Forced::ops(move |value, made, read| {
            let strategy = (value, StrategyLayouts { made, read: read.to_vec() });
            through.get(&strategy).is_some_and(|time| *time <= most)
        })
    }
}

impl Near {
    /// The fastest plan for each limit on the bounds of strategies, each plan once. A plan that the
    /// search does not find soon is left out.
    pub(super) fn plans(
        &self,
        hardware: &Hardware,
        options: &LowerOptions,
    ) -> Result<Vec<Plan>, LowerError> {
        let limits = Limits {
            tie_expansions: options.limits.tie_expansions / PART_OF_LIMITS,
            ..options.limits.part(PART_OF_LIMITS)
        };
        let options = LowerOptions { limits, ..options.clone() };
        let mut plans: Vec<Plan> = Vec::new();
        for most in self.bounds.near(options.limits.overlap_plans) {
            match lower_form(&self.form, hardware, &options, &self.bounds.within(most)) {
                Ok(found) if !plans.contains(&found.plan) => plans.push(found.plan),
                Ok(_) | Err(LowerError::Unreachable { .. } | LowerError::Limit { .. }) => {}
                Err(LowerError::OutOfTime) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(plans)
    }
}
