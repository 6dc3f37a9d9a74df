//! Values that the plans of a branch may make in several layouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::{Layout, ValueId};

use super::{Branch, Whole};

/// A value that plans may make in several layouts; the layouts of plans with the least bound come
/// first.
pub(crate) struct Undecided {
    pub(crate) value: ValueId,
    pub(crate) layouts: Vec<Layout>,
}

impl Branch {
    /// The results of ops and pins that plans of at most `most` picoseconds may make in several
    /// layouts.
    pub(crate) fn undecided(&self, most: u64) -> Vec<Undecided> {
        let Whole { problem, prices } = self.whole.as_ref();
        let most = problem.in_time(most);
        let of_value = |value: ValueId| {
            let factor = &problem.factors[value.index()];
            let mut least: BTreeMap<Layout, i64> = BTreeMap::new();
            for (out, through) in factor.out.iter().zip(&prices.through_strategy[value.index()]) {
                if let Some(layout) = problem.layout(value, *out).filter(|_| *through <= most) {
                    let known = least.entry(layout).or_insert(*through);
                    *known = (*known).min(*through);
                }
            }
            let mut layouts: Vec<(i64, Layout)> = least.into_iter().map(|(l, t)| (t, l)).collect();
            layouts.sort_unstable();
            let layouts = layouts.into_iter().map(|(_, layout)| layout).collect();
            Undecided { value, layouts }
        };
        let is_made = |value: &ValueId| problem.factors[value.index()].arity > 0;
        let made = problem.live.iter().copied().filter(is_made);
        made.map(of_value).filter(|of_value| of_value.layouts.len() > 1).collect()
    }

    /// The plans of the branch that make a value in a layout for which `keep` says yes.
    pub(crate) fn making(&self, value: ValueId, keep: &dyn Fn(Layout) -> bool) -> Branch {
        let Whole { problem, prices } = self.whole.as_ref();
        let problem = problem.allowing(value, &|out, _| keep(out));
        let prices = prices.narrowed(&problem);
        Branch { whole: Arc::new(Whole { problem, prices }), bound: self.bound }
    }
}
