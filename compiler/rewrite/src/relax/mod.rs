//! A relaxation of the search: a bound on all plans from prices on values, and from it the part of the plan space that can
//! hold a best plan. Time alone, no tie rule; built from the same rules as the e-graph.

pub(crate) mod factors;
pub(crate) mod graph;
pub(crate) mod prices;
pub(crate) mod tree;

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::Hardware;
use shard_ir::{AxisSet, Def, LabelId, Layout, LayoutPattern, Program, ValueId};

use crate::demand::Forced;
use crate::kernel::Kernels;
use crate::memory::Room;
use crate::{Limits, LowerError};
use factors::Factors;
use graph::{FAR, Node};
use prices::Prices;

/// A program's plan space with prices on it.
pub(crate) struct Relaxation<'a> {
    kernels: &'a Kernels,
    /// What the sweeps came to, nothing dear in it unless labels are still open.
    settled: Arc<Whole>,
    /// The same without what is dearer than a plan of some assignment of labels, and the time of that plan.
    near: RefCell<(i64, Arc<Whole>)>,
    /// What there was before anything dear was dropped.
    before: Option<Arc<Whole>>,
    limits: Limits,
    /// Whether what is dearer than a plan known may be dropped on the way.
    shrink: bool,
    /// What the prices say that any plan takes, in picoseconds; `FAR` where there is none.
    bound: i64,
    /// For each assignment of layouts to labels that was asked about: a first bound, before any sweep of its own.
    label_bounds: Vec<i64>,
}

/// Which plans a relaxation is to bound: all of them by default.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// Those alone that make values so.
    pub(crate) forced: Option<&'a Forced>,
    /// Those alone that have room.
    pub(crate) room: Option<&'a Room<'a>>,
    /// Those alone that take less time, in picoseconds.
    pub(crate) below: Option<u64>,
    /// All that the plans of a program are made of that differs from this one in its layout patterns alone.
    pub(crate) like: Option<&'a Whole>,
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

/// Sweeps in which prices of nearly the same program may show that it has no plan of interest.
const QUESTION_SWEEPS: usize = 6;

impl<'a> Relaxation<'a> {
    /// Bounds the plans of a program. `assignments` are layouts for its labels that will be asked
    /// about.
    pub(crate) fn new(
        kernels: &'a Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        assignments: &[Vec<Layout>],
        (strict, limits): (bool, &Limits),
        Wanted { forced, room, below, like }: Wanted<'_>,
    ) -> Result<Relaxation<'a>, LowerError> {
        let like = like.and_then(|whole| Some((whole, whole.problem.with_patterns(&kernels.program, maxima)?)));
        let (like, mut problem) = match like {
            Some((whole, problem)) => (Some(whole), problem),
            None => (None, Factors::new(kernels, hardware, maxima, strict, limits)?),
        };
        if let Some(Forced(keep)) = forced {
            for id in kernels.program.value_ids().filter(|id| matches!(kernels.program.value(*id).def, Def::Op { .. }))
            {
                problem = problem.allowing(id, &|out, read| keep(id, out, read));
            }
        }
        if let Some(room) = room {
            for value in problem.live.clone() {
                if let Some(fits) = room.strategies_of(kernels, value) {
                    problem = problem.allowing(value, &fits);
                }
            }
        }
        // What is dearer than a plan known is not to be dropped where that plan may not fit.
        let shrink = room.is_none();
        let mut plan = below.and_then(|time| i64::try_from(time).ok()).map_or(FAR, |time| time - 1);
        let shrinks = shrink && kernels.program.labels.is_empty();
        // Prices that are nearly right mostly show at once that there is nothing. Where there is something they leave much
        // that is dear looking cheap, so that prices begin anew, on what is left.
        let mut settled = None;
        // (Labels are bounded by a sweep up.)
        if let Some(whole) = like.filter(|_| kernels.program.labels.is_empty()) {
            settled =
                whole.bound_beside(&problem).filter(|bound| *bound > plan).map(|bound| (bound, Prices::new(&problem)));
        }
        if let (Some(whole), None) = (like, &settled) {
            let mut prices = whole.prices.resumed(&problem);
            let few = Limits { sweeps: QUESTION_SWEEPS, ..limits.clone() };
            let (bound, _) = settle(&mut problem, &mut prices, &few, false, false, &mut plan);
            settled = (bound > plan).then_some((bound, prices));
        }
        let (bound, mut prices, before) = match settled {
            Some((bound, prices)) => (bound, prices, None),
            None => {
                let mut prices = Prices::new(&problem);
                let (bound, before) = settle(&mut problem, &mut prices, limits, true, shrinks, &mut plan);
                (bound, prices, before)
            }
        };
        limits.stop.check()?;
        let label_bounds = label_bounds(kernels, &problem, &mut prices, bound, assignments);
        let settled = Arc::new(Whole { problem, prices });
        let near = RefCell::new((FAR, Arc::clone(&settled)));
        let (before, limits) = (before.map(Arc::new), limits.clone());
        Ok(Relaxation { kernels, settled, near, before, limits, shrink, bound, label_bounds })
    }

    /// The first bound of the n-th assignment, in picoseconds; `None` where it has no plan.
    pub(crate) fn first_bound(&self, assignment: usize) -> Option<u64> {
        picoseconds(self.label_bounds[assignment])
    }

    /// The bound under one assignment, and what each alternative costs at least. `known` is what a plan is known to take:
    /// what is dearer is left out.
    pub(crate) fn under(&self, labels: &[Layout], known: Option<u64>) -> Priced {
        if labels.is_empty() {
            return Priced::read(&self.settled.problem, &self.settled.prices, self.bound);
        }
        let known = known.and_then(|k| i64::try_from(k).ok()).filter(|_| self.shrink).unwrap_or(FAR);
        let mut near = self.near.borrow_mut();
        let mut plan = near.0.min(known);
        let Whole { problem, prices } = near.1.as_ref();
        let mut problem = problem.with_labels(&self.kernels.program, labels);
        let mut prices = prices.narrowed(&problem);
        let (bound, _) = settle(&mut problem, &mut prices, &self.limits, false, self.shrink, &mut plan);
        // A plan of one assignment bounds what is of interest in all the others.
        if plan < near.0 {
            let Whole { problem, prices } = near.1.as_ref();
            let (problem, prices) =
                narrowed_to(problem, prices, &cheap_nodes(problem, prices, plan), plan, &|_, _| true);
            *near = (plan, Arc::new(Whole { problem, prices }));
        }
        Priced::read(&problem, &prices, bound)
    }

    /// All that plans are made of, the dear ones too, for questions about them.
    pub(crate) fn whole(&self) -> Arc<Whole> {
        Arc::clone(self.before.as_ref().unwrap_or(&self.settled))
    }
}

/// A first bound under each assignment: the better of what results and what parameters say.
fn label_bounds(
    kernels: &Kernels,
    problem: &Factors,
    prices: &mut Prices,
    bound: i64,
    assignments: &[Vec<Layout>],
) -> Vec<i64> {
    let program = kernels.program.as_ref();
    if bound >= FAR || program.labels.is_empty() {
        return vec![bound; assignments.len()];
    }
    let wanted = |pattern: &LayoutPattern, labels: &[Layout]| pattern.label.map(|LabelId(l)| labels[l as usize]);
    let fits = |pattern: &LayoutPattern, labels: &[Layout], value: ValueId, node: Node| {
        wanted(pattern, labels).is_none_or(|l| problem.has_label_layout(program, value, node, l))
    };
    let by_parameters: Vec<i64> = assignments
        .iter()
        .map(|labels| {
            prices.bound_of_parameters(problem, &|id, node| match &program.value(id).def {
                Def::Parameter { pattern, .. } => fits(pattern, labels, id, node),
                Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => true,
            })
        })
        .collect();
    prices.up(problem, false);
    let by_outputs = assignments.iter().map(|labels| {
        prices.bound_of_outputs(problem, &|i, node| {
            let output = &program.outputs[i];
            fits(&output.pattern, labels, output.value, node)
        })
    });
    by_parameters.into_iter().zip(by_outputs).map(|(a, b)| a.max(b).max(bound)).collect()
}

/// Sweeps until the bound stands still or a plan meets it.
///
/// With `shrink`, what is dearer than a plan known is dropped on the way; not where plans of other labels are still wanted.
/// `plan` is the time of a plan known, and of a better one once one is met. Returns the bound and, where something was
/// dropped, the problem as it was before.
fn settle(
    problem: &mut Factors,
    prices: &mut Prices,
    limits: &Limits,
    fresh: bool,
    shrink: bool,
    plan: &mut i64,
) -> (i64, Option<Whole>) {
    let mut bound = i64::MIN;
    let mut whole = None;
    for sweep in 0..limits.sweeps.max(1) {
        // Whoever called looks whether it was stopped, and takes no result then.
        if limits.stop.is_time_up() {
            break;
        }
        prices.up(problem, fresh && sweep == 0);
        if prices.bound() >= FAR {
            return (FAR, whole);
        }
        if shrink && problem.exact {
            *plan = (*plan).min(prices.favoured(problem));
        }
        prices.down(problem);
        let now = prices.bound();
        let gain = now.saturating_sub(bound);
        let still = sweep > 0 && (gain <= 0 || (gain <= bound / PATIENCE && nodes(problem) > SMALL));
        bound = bound.max(now);
        // One sweep more than the bound needs, since the first leaves the dearer alternatives looking cheap.
        if still || (bound >= *plan && sweep > 0) {
            break;
        }
        if *plan < FAR
            && let Some(before) = drop_dearer(problem, prices, *plan)
        {
            whole.get_or_insert(before);
        }
    }
    (bound, whole)
}

/// Nodes below which a problem is not worth shrinking.
const WORTH_SHRINKING: usize = 100;

/// Nodes below which sweeps are cheap, so that even a small gain is taken.
const SMALL: usize = 1000;

fn nodes(problem: &Factors) -> usize {
    problem.live.iter().map(|id| problem.nodes(*id)).sum()
}

/// Drops what no plan that takes at most `plan` picoseconds can use, where that is a good part of the whole; returns what
/// was there before.
fn drop_dearer(problem: &mut Factors, prices: &mut Prices, plan: i64) -> Option<Whole> {
    let nodes = cheap_nodes(problem, prices, plan);
    let all: usize = nodes.iter().map(Vec::len).sum();
    let kept = nodes.iter().flatten().filter(|k| **k).count();
    if all < WORTH_SHRINKING || kept * 4 > all * 3 {
        return None;
    }
    let (small, fewer) = narrowed_to(problem, prices, &nodes, plan, &|_, _| true);
    Some(Whole { problem: std::mem::replace(problem, small), prices: std::mem::replace(prices, fewer) })
}

/// For each value, which nodes may be in a plan that takes at most `most` picoseconds.
fn cheap_nodes(problem: &Factors, prices: &Prices, most: i64) -> Vec<Vec<bool>> {
    let mut nodes = vec![Vec::new(); problem.factors.len()];
    for id in &problem.live {
        nodes[id.index()] = prices.through_node[id.index()].iter().map(|t| *t <= most).collect();
    }
    nodes
}

/// The problem with those nodes alone, and those strategies between them that may be in a plan that takes at most `most`
/// picoseconds and that `keep` keeps, given the value and the number of the strategy.
fn narrowed_to(
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
                    && factor.reads_of(s).iter().zip(&problem.operands[v]).all(|(n, o)| nodes[o.index()][*n as usize])
                    && keep(*id, s)
            })
            .collect::<Vec<bool>>();
    }
    let (small, renamed) = problem.shrunk(nodes, &strategies);
    let prices = prices.shrunk(&small, &renamed, &strategies);
    (small, prices)
}

/// A problem with prices on all of it, for questions about plans dearer than the best.
#[derive(Debug)]
pub(crate) struct Whole {
    problem: Factors,
    prices: Prices,
}

/// What is asked of a [`Whole`]: plans that make one value in some ways alone.
pub(crate) struct Question<'a> {
    whole: &'a Whole,
    value: ValueId,
    /// Of each strategy of the value, whether it is one of them.
    kept: Vec<bool>,
}

impl Whole {
    /// What the prices say, after a sweep down, of the plans of a program that allows other layouts of its parameters; `None`
    /// where more differs.
    fn bound_beside(&self, problem: &Factors) -> Option<i64> {
        let alone = self.problem.differs_in_parameters_alone(problem);
        alone.then(|| self.prices.bound_of_parameters(problem, &|_, _| true))
    }

    /// The same with labels fixed.
    pub(crate) fn under(&self, program: &Program, labels: &[Layout]) -> Whole {
        let problem = self.problem.with_labels(program, labels);
        let mut prices = self.prices.narrowed(&problem);
        prices.up(&problem, false);
        prices.down(&problem);
        Whole { problem, prices }
    }

    /// How many strategies there are.
    pub(crate) fn strategies(&self) -> usize {
        self.problem.factors.iter().map(|factor| factor.out.len()).sum()
    }

    /// A question about a value: it may be made by the strategies for which `keep` says yes, given the layouts of the result
    /// and of what is read.
    pub(crate) fn question(&self, value: ValueId, keep: &dyn Fn(Layout, &[Layout]) -> bool) -> Question<'_> {
        let factor = &self.problem.factors[value.index()];
        let kept = (0..factor.out.len())
            .map(|s| {
                let read = factor.reads_of(s).iter().zip(&self.problem.operands[value.index()]);
                let read: Option<Vec<Layout>> = read.map(|(n, o)| self.problem.layout(*o, *n)).collect();
                let out = self.problem.layout(value, factor.out[s]);
                out.zip(read).is_some_and(|(out, read)| keep(out, &read))
            })
            .collect();
        Question { whole: self, value, kept }
    }

    /// The layouts of a value that it reaches from one without traffic, that one too.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        self.problem.reached_free(value, from)
    }
}

impl Question<'_> {
    /// No such plan takes less, in picoseconds; `None` where there is no such plan.
    pub(crate) fn least(&self) -> Option<u64> {
        let through = &self.whole.prices.through_strategy[self.value.index()];
        through.iter().zip(&self.kept).filter(|(_, kept)| **kept).filter_map(|(t, _)| picoseconds(*t)).min()
    }

    /// The part of the problem that such plans of at most `most` picoseconds are made of, priced.
    pub(crate) fn within(&self, most: u64, limits: &Limits) -> Priced {
        let most = i64::try_from(most).unwrap_or(FAR - 1).min(FAR - 1);
        let Whole { problem, prices } = self.whole;
        let keep = |v: ValueId, s: usize| v != self.value || self.kept[s];
        let nodes = cheap_nodes(problem, prices, most);
        let (mut problem, mut prices) = narrowed_to(problem, prices, &nodes, most, &keep);
        let mut plan = FAR;
        let (bound, _) = settle(&mut problem, &mut prices, limits, false, true, &mut plan);
        Priced::read(&problem, &prices, bound)
    }
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

    /// What the dearest alternative costs at least, in picoseconds: in a region this wide nothing is left out.
    pub(crate) fn dearest(&self) -> u64 {
        let values = self.values.iter().flatten().map(|(_, t)| *t);
        let dearest = values.chain(self.strategies.iter().flatten().map(|(t, _, _)| *t)).filter(|t| *t < FAR).max();
        picoseconds(dearest.unwrap_or(0)).unwrap_or(0)
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
