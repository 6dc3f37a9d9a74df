//! A relaxation of the search: a bound on all plans from prices on values, and from it the part of the plan space that can
//! hold a best plan. Time alone, no tie rule; built from the same rules as the e-graph.

pub(crate) mod factors;
pub(crate) mod graph;
pub(crate) mod prices;
pub(crate) mod tree;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::Hardware;
use shard_ir::{AxisSet, Def, LabelId, Layout, LayoutPattern, ValueId};

use crate::kernel::Kernels;
use crate::{Limits, LowerError};
use factors::Factors;
use graph::{FAR, Node};
use prices::Prices;

/// A program's plan space with prices on it.
pub(crate) struct Relaxation<'a> {
    kernels: &'a Kernels,
    problem: Factors,
    prices: Prices,
    sweeps: usize,
    /// What the prices say that any plan takes, in picoseconds; `FAR` where there is none.
    bound: i64,
    /// For each assignment of layouts to labels that was asked about: a first bound, before any sweep of its own.
    label_bounds: Vec<i64>,
}

/// The part of the plan space whose alternatives may all be in a plan that takes no more than some time.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// For each value, the layouts that it may pass through.
    pub(crate) layouts: Vec<FxHashSet<Layout>>,
    /// For each op, by the layout of its result, the layouts of its operands.
    pub(crate) strategies: Vec<FxHashMap<Layout, Vec<Vec<Layout>>>>,
}

/// Sweeps that lift the bound by less than one part in this many end it, unless they are cheap.
const PATIENCE: i64 = 10_000_000;

impl<'a> Relaxation<'a> {
    /// Bounds the plans of a program. `assignments` are layouts for its labels that will be asked
    /// about.
    pub(crate) fn new(
        kernels: &'a Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        assignments: &[Vec<Layout>],
        strict: bool,
        limits: &Limits,
    ) -> Result<Relaxation<'a>, LowerError> {
        let sweeps = limits.sweeps;
        let mut problem = Factors::new(kernels, hardware, maxima, strict, limits)?;
        let mut prices = Prices::new(&problem);
        let bound = settle(&mut problem, &mut prices, sweeps, true, kernels.program.labels.is_empty());
        let mut relaxed = Relaxation { kernels, problem, prices, sweeps, bound, label_bounds: Vec::new() };
        relaxed.label_bounds = relaxed.bound_labels(assignments);
        Ok(relaxed)
    }

    /// A first bound under each assignment: the better of what results and what parameters say.
    fn bound_labels(&mut self, assignments: &[Vec<Layout>]) -> Vec<i64> {
        let program = self.kernels.program.as_ref();
        if self.bound >= FAR || program.labels.is_empty() {
            return vec![self.bound; assignments.len()];
        }
        let problem = &self.problem;
        let wanted = |pattern: &LayoutPattern, labels: &[Layout]| pattern.label.map(|LabelId(l)| labels[l as usize]);
        let fits = |pattern: &LayoutPattern, labels: &[Layout], value: ValueId, node: Node| {
            wanted(pattern, labels).is_none_or(|l| problem.has_label_layout(program, value, node, l))
        };
        let by_parameters: Vec<i64> = assignments
            .iter()
            .map(|labels| {
                self.prices.bound_of_parameters(problem, &|id, node| match &program.value(id).def {
                    Def::Parameter { pattern, .. } => fits(pattern, labels, id, node),
                    Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => true,
                })
            })
            .collect();
        self.prices.up(problem, false);
        let by_outputs = assignments.iter().map(|labels| {
            self.prices.bound_of_outputs(problem, &|i, node| {
                let output = &program.outputs[i];
                fits(&output.pattern, labels, output.value, node)
            })
        });
        by_parameters.into_iter().zip(by_outputs).map(|(a, b)| a.max(b).max(self.bound)).collect()
    }

    /// The first bound of the n-th assignment, in picoseconds; `None` where it has no plan.
    pub(crate) fn first_bound(&self, assignment: usize) -> Option<u64> {
        picoseconds(self.label_bounds[assignment])
    }

    /// The relaxation of one assignment of labels, for questions about it: nothing is dropped, whatever it costs.
    pub(crate) fn of_labels(
        kernels: &'a Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        labels: &[Layout],
        limits: &Limits,
    ) -> Result<Relaxation<'a>, LowerError> {
        let mut problem = Factors::new(kernels, hardware, maxima, false, limits)?;
        if !labels.is_empty() {
            problem = problem.with_labels(&kernels.program, labels);
        }
        let mut prices = Prices::new(&problem);
        let bound = settle(&mut problem, &mut prices, QUESTION_SWEEPS, true, false);
        Ok(Relaxation { kernels, problem, prices, sweeps: limits.sweeps, bound, label_bounds: Vec::new() })
    }

    /// The bound, and what each alternative costs at least, when one value must not be made in some ways.
    pub(crate) fn without(&self, value: ValueId, keep: &dyn Fn(Layout, &[Layout]) -> bool) -> Priced {
        let mut problem = self.problem.without(value, keep);
        let mut prices = self.prices.narrowed(&problem);
        let bound = settle(&mut problem, &mut prices, self.sweeps, false, true);
        Priced::read(&problem, &prices, bound)
    }

    /// The layouts of a value that it reaches from one without traffic, that one too.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        self.problem.reached_free(value, from)
    }

    /// The bound under one assignment, and what each alternative costs at least.
    pub(crate) fn under(&self, labels: &[Layout]) -> Priced {
        if labels.is_empty() {
            return Priced::read(&self.problem, &self.prices, self.bound);
        }
        let mut problem = self.problem.with_labels(&self.kernels.program, labels);
        let mut prices = self.prices.narrowed(&problem);
        let bound = settle(&mut problem, &mut prices, self.sweeps, false, true);
        Priced::read(&problem, &prices, bound)
    }
}

/// Sweeps until the bound stands still or a plan meets it.
///
/// With `shrink`, what is dearer than a plan known is dropped on the way; not where plans of other labels are still wanted.
fn settle(problem: &mut Factors, prices: &mut Prices, sweeps: usize, fresh: bool, shrink: bool) -> i64 {
    let mut bound = i64::MIN;
    let mut plan = FAR;
    for sweep in 0..sweeps.max(1) {
        prices.up(problem, fresh && sweep == 0);
        if prices.bound() >= FAR {
            return FAR;
        }
        if shrink && problem.exact {
            plan = plan.min(prices.favoured(problem));
        }
        prices.down(problem);
        let now = prices.bound();
        let gain = now.saturating_sub(bound);
        let still = sweep > 0 && (gain <= 0 || (gain <= bound / PATIENCE && nodes(problem) > SMALL));
        bound = bound.max(now);
        // One sweep more than the bound needs, since the first leaves the dearer alternatives looking cheap.
        if still || (bound >= plan && sweep > 0) {
            break;
        }
        if plan < FAR {
            drop_dearer(problem, prices, plan);
        }
    }
    bound
}

/// Sweeps before questions are asked; each question sweeps on for itself.
const QUESTION_SWEEPS: usize = 2;

/// Nodes below which a problem is not worth shrinking.
const WORTH_SHRINKING: usize = 100;

/// Nodes below which sweeps are cheap, so that even a small gain is taken.
const SMALL: usize = 1000;

fn nodes(problem: &Factors) -> usize {
    problem.live.iter().map(|id| problem.nodes(*id)).sum()
}

/// Drops what no plan that takes at most `plan` picoseconds can use, where that is a good part of the whole.
fn drop_dearer(problem: &mut Factors, prices: &mut Prices, plan: i64) {
    let count = problem.factors.len();
    let (mut nodes, mut strategies) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    let (mut all, mut kept) = (0, 0);
    for id in &problem.live {
        let v = id.index();
        nodes[v] = prices.through_node[v].iter().map(|t| *t <= plan).collect::<Vec<bool>>();
        all += nodes[v].len();
        kept += nodes[v].iter().filter(|k| **k).count();
    }
    if all < WORTH_SHRINKING || kept * 4 > all * 3 {
        return;
    }
    for id in &problem.live {
        let v = id.index();
        let factor = &problem.factors[v];
        strategies[v] = (0..factor.out.len())
            .map(|s| {
                prices.through_strategy[v][s] <= plan
                    && nodes[v][factor.out[s] as usize]
                    && factor.reads_of(s).iter().zip(&problem.operands[v]).all(|(n, o)| nodes[o.index()][*n as usize])
            })
            .collect::<Vec<bool>>();
    }
    let (small, renamed) = problem.shrunk(&nodes, &strategies);
    *prices = prices.shrunk(&small, &renamed, &strategies);
    *problem = small;
}

fn picoseconds(bound: i64) -> Option<u64> {
    (bound < FAR).then(|| u64::try_from(bound).unwrap_or(0))
}

/// The bound, and what each alternative of the plan space costs at least.
pub(crate) struct Priced {
    /// No plan takes less, in picoseconds; `None` where there is no plan.
    pub(crate) bound: Option<u64>,
    values: Vec<Vec<(Layout, i64)>>,
    strategies: Vec<Vec<(i64, Layout, Vec<Layout>)>>,
}

impl Priced {
    fn read(problem: &Factors, prices: &Prices, bound: i64) -> Priced {
        let mut values = Vec::with_capacity(problem.factors.len());
        let mut strategies = Vec::with_capacity(problem.factors.len());
        for v in 0..problem.factors.len() {
            let id = ValueId(v as u32);
            let layouts = problem.graphs[v].layouts.iter().copied();
            values.push(layouts.zip(prices.through_node[v].iter().copied()).collect());
            let factor = &problem.factors[v];
            let mut all = Vec::new();
            for s in 0..factor.out.len() {
                let t = prices.through_strategy[v][s];
                if t >= FAR {
                    continue;
                }
                let read = factor.reads_of(s).iter().zip(&problem.operands[v]);
                let read: Option<Vec<Layout>> = read.map(|(n, o)| problem.layout(*o, *n)).collect();
                if let (Some(out), Some(read)) = (problem.layout(id, factor.out[s]), read) {
                    all.push((t, out, read));
                }
            }
            strategies.push(all);
        }
        Priced { bound: picoseconds(bound), values, strategies }
    }

    /// What may be in a plan that takes no more than `most` picoseconds.
    pub(crate) fn region(&self, most: u64) -> Region {
        let most = i64::try_from(most).unwrap_or(FAR - 1).min(FAR - 1);
        let layouts =
            self.values.iter().map(|all| all.iter().filter(|(_, t)| *t <= most).map(|(l, _)| *l).collect()).collect();
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
