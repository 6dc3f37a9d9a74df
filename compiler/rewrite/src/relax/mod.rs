//! A relaxation of the search: a bound on all plans from prices on values, and from it the part of the plan space that can
//! hold a best plan. Time alone, no tie rule; built from the same rules as the e-graph.

mod factors;
mod graph;
mod prices;
mod tree;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::Hardware;
use shard_ir::{AxisSet, Layout, ValueId};

use crate::kernel::Kernels;
use factors::Factors;
use graph::FAR;
use prices::Prices;

/// The bound, and what each alternative of the plan space costs at least.
pub(crate) struct Relaxation {
    /// No plan takes less, in picoseconds; `None` where there is no plan.
    pub(crate) bound: Option<u64>,
    values: Vec<FxHashMap<Layout, i64>>,
    strategies: Vec<Vec<(i64, Layout, Vec<Layout>)>>,
}

/// The part of the plan space whose alternatives may all be in a plan that takes no more than some time.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// For each value, the layouts that it may pass through.
    pub(crate) layouts: Vec<FxHashSet<Layout>>,
    /// For each op, by the layout of its result, the layouts of its operands.
    pub(crate) strategies: Vec<FxHashMap<Layout, Vec<Vec<Layout>>>>,
}

/// Sweeps that lift the bound by less than one part in this many end it.
const PATIENCE: i64 = 100_000;

impl Relaxation {
    /// Bounds the plans of a program under one assignment of layouts to its labels, in at most so many sweeps.
    pub(crate) fn solve(
        kernels: &Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        labels: &[Layout],
        sweeps: usize,
    ) -> Relaxation {
        let mut problem = Factors::new(kernels, hardware, maxima);
        if !labels.is_empty() {
            problem.with_labels(&kernels.program, labels);
        }
        let mut prices = Prices::new(&problem);
        let mut bound = i64::MIN;
        for sweep in 0..sweeps {
            prices.up(sweep == 0);
            if prices.bound() >= FAR {
                break;
            }
            prices.down();
            let now = prices.bound();
            if sweep > 0 && now - bound <= bound / PATIENCE {
                bound = bound.max(now);
                break;
            }
            bound = bound.max(now);
        }
        let possible = prices.bound() < FAR;
        let mut values = Vec::with_capacity(problem.factors.len());
        let mut strategies = Vec::with_capacity(problem.factors.len());
        for v in 0..problem.factors.len() {
            let id = ValueId(v as u32);
            let through = prices.through_node[v].iter().enumerate();
            let graph = &problem.graphs[v];
            values.push(through.filter_map(|(n, t)| Some((*graph.layouts.get(n)?, *t))).collect());
            let factor = &problem.factors[v];
            let mut all = Vec::new();
            for s in 0..factor.out.len() {
                let t = prices.through_strategy[v][s];
                let read = factor.reads_of(s).iter().zip(&factor.operands);
                let read: Option<Vec<Layout>> = read.map(|(n, o)| problem.layout(*o, *n)).collect();
                if let (Some(out), Some(read), true) = (problem.layout(id, factor.out[s]), read, t < FAR) {
                    all.push((t, out, read));
                }
            }
            strategies.push(all);
        }
        let bound = possible.then(|| u64::try_from(bound.max(0)).unwrap_or(0));
        Relaxation { bound, values, strategies }
    }

    /// What may be in a plan that takes no more than `most` picoseconds.
    pub(crate) fn region(&self, most: u64) -> Region {
        let most = i64::try_from(most).unwrap_or(FAR - 1).min(FAR - 1);
        let layouts =
            self.values.iter().map(|all| all.iter().filter(|(_, t)| **t <= most).map(|(l, _)| *l).collect()).collect();
        let strategies = self
            .strategies
            .iter()
            .map(|all| {
                let mut kept: FxHashMap<Layout, Vec<Vec<Layout>>> = FxHashMap::default();
                for (t, out, read) in all {
                    if *t <= most {
                        let ways = kept.entry(*out).or_default();
                        if !ways.contains(read) {
                            ways.push(read.clone());
                        }
                    }
                }
                kept
            })
            .collect();
        Region { layouts, strategies }
    }
}
