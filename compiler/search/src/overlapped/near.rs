//! Plans that may come near the bound.
//!
//! The sets say of each way of making a value what any plan takes at least that makes it so
//! ([`SetBound::through`](super::climb::SetBound)). A plan near the bound has none but ways that are
//! near it: so the fastest of the plans that have no others, one step after another, is worth
//! scheduling, and is mostly not one that weighing all computing against all communicating finds.

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

/// Of each way of making a value what any plan takes at least that makes it so; none of ways that
/// take as much as what is known.
pub(super) struct StrategyBounds {
    /// What any plan takes at least by the sets alone.
    least: Picoseconds,
    /// What is known to be enough.
    enough: Picoseconds,
    /// In picoseconds.
    through: Arc<FxHashMap<(ValueId, StrategyLayouts), u64>>,
}

/// A form, and the ways in which its plans make values.
pub(super) struct Near {
    pub(super) form: Form,
    pub(super) bounds: StrategyBounds,
}

/// A way is near that is no farther from the bound than these parts of [`PARTS`] of what lies
/// between the bound and what is known: each gives a plan.
const NEAR: [u64; 5] = [0, 1, 4, 16, 32];
const PARTS: u64 = 64;

/// A plan is worth this part of what a search for the fastest may take.
const PART_OF_LIMITS: usize = 20;

impl StrategyBounds {
    /// The ways of making values that plans of a form may have, given the bounds known of ways.
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

    /// What any plan takes at least with a way that is as near as the first so many of [`NEAR`]
    /// ask, each time once: where no way lies between two of them, the same ways are as near as
    /// either.
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
    /// Plans of near ways alone, each once. What a search does not find soon is not among them.
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
