//! The program as a graph of factors: for each op its strategies with their times, and for each
//! value its graph of layouts.

mod builder;
mod narrowed;
mod shared;
mod strategies;
mod works;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_ir::{AxisSet, Def, Layout, LayoutPattern, MeshShape, Program, ValueId};

use super::Setting;
use super::graph::{FAR, Graph, NodeId};
use super::groups::Groups;
use crate::LowerError;
use crate::kernel::Kernels;
use builder::Builder;
pub use shared::SearchCache;
pub(crate) use shared::{CacheKey, SharedFactors};

/// The strategies of one value, in flat arrays. Node numbers from the size of the graph on are
/// *kernel states*: the value in a layout inside a fused kernel ([`InKernel`]).
#[derive(Debug, Default)]
pub(crate) struct Factor {
    /// For each strategy, the node at which it makes the value.
    pub(crate) out: Vec<NodeId>,
    /// For each strategy, the `arity` nodes at which it reads its operands, one strategy after the
    /// other.
    pub(crate) reads: Vec<NodeId>,
    /// For each strategy, its time; [`FAR`] where it takes longer than can be counted.
    pub(crate) cost: Vec<i64>,
    /// The number of values that each strategy reads.
    pub(crate) arity: usize,
}

impl Factor {
    /// The factor of a parameter or a constant: one strategy of no time for each allowed layout.
    fn given(allowed: &[NodeId]) -> Factor {
        let mut factor = Factor::default();
        for node in allowed {
            factor.push(*node, [], 0);
        }
        factor
    }

    /// The factor of a pin: one strategy for each allowed layout, which reads and makes that
    /// layout.
    fn passed(allowed: &[NodeId]) -> Factor {
        let mut factor = Factor { arity: 1, ..Factor::default() };
        for node in allowed {
            factor.push(*node, [*node], 0);
        }
        factor
    }

    pub(crate) fn reads_of(&self, strategy: usize) -> &[NodeId] {
        &self.reads[strategy * self.arity..(strategy + 1) * self.arity]
    }

    /// For each strategy, whether `left` has it too; `left` has some of these strategies in the
    /// same order.
    pub(crate) fn kept_in(&self, left: &Factor) -> Vec<bool> {
        let mut next = 0;
        let is_kept = |s: usize| {
            let kept = next < left.out.len()
                && self.out[s] == left.out[next]
                && self.reads_of(s) == left.reads_of(next);
            next += usize::from(kept);
            kept
        };
        (0..self.out.len()).map(is_kept).collect()
    }

    /// The same strategies with other times.
    pub(crate) fn with_costs(&self, cost: Vec<i64>) -> Factor {
        Factor { out: self.out.clone(), reads: self.reads.clone(), cost, arity: self.arity }
    }

    /// The factor with only the strategies for which `keep` says yes.
    pub(crate) fn keeping(&self, keep: &dyn Fn(usize) -> bool) -> Factor {
        let mut kept = Factor { arity: self.arity, ..Factor::default() };
        for s in (0..self.out.len()).filter(|s| keep(*s)) {
            kept.push(self.out[s], self.reads_of(s).iter().copied(), self.cost[s]);
        }
        kept
    }

    pub(crate) fn push(&mut self, out: NodeId, reads: impl IntoIterator<Item = NodeId>, cost: i64) {
        self.out.push(out);
        self.reads.extend(reads);
        self.cost.push(cost);
    }
}

/// The layouts of one strategy of a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StrategyLayouts {
    /// The layout in which the value is made.
    pub(crate) made: Layout,
    /// The layouts in which its operands are read.
    pub(crate) read: Vec<Layout>,
}

/// One use of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ValueUse {
    /// As the n-th operand of the op or pin that makes another value.
    Operand(ValueId, usize),
    /// As a result.
    Output(usize),
}

/// Where in a kernel a kernel state is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum InKernel {
    /// The rest of the kernel adds this many bytes to those that its head reads and writes.
    BytesToCome(i64),
    /// Within an attention, whose last op pays its time. In a ring, `ring` is the number of the
    /// arrangement of its axes.
    Attention { ring: Option<usize> },
    /// Within an attention that has the concats of its keys and values in it.
    JoinedAttention,
}

/// The kernel states of one value: its layouts inside fused kernels.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelStates {
    index: FxHashMap<(NodeId, InKernel), NodeId>,
    /// For each state, the node of its layout, and where it is in a kernel.
    pub(crate) of: Vec<(NodeId, InKernel)>,
    /// The graph that numbers the layouts of the states, once it is no longer the graph of the
    /// value.
    names: Option<Arc<Graph>>,
}

/// What a node stands for: a layout, and for a kernel state where it is in the kernel.
pub(super) type NodeName = (Layout, Option<InKernel>);

/// For each value, the new number of each node that is kept.
pub(crate) type Renamed = Vec<Vec<Option<NodeId>>>;

/// The program as the relaxation sees it: all of its plans, under all layouts of its labels.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    pub(crate) live: Vec<ValueId>,
    pub(crate) graphs: Vec<Arc<Graph>>,
    pub(crate) states: Arc<Vec<KernelStates>>,
    pub(crate) factors: Vec<Arc<Factor>>,
    /// For each value, the operands of the op or pin that makes it.
    pub(crate) operands: Arc<Vec<Vec<ValueId>>>,
    pub(crate) uses: Arc<Vec<Vec<ValueUse>>>,
    /// For each value with more readers than are priced together, the groups of readers that pay
    /// the same price, if these are few enough to be priced together.
    pub(super) groups: Arc<Vec<Option<Groups>>>,
    /// For each result, its value and the nodes of the layouts that are allowed.
    pub(crate) outputs: Vec<(ValueId, Vec<NodeId>)>,
    /// Whether all times are those of plans; otherwise some are only lower bounds: a kernel may
    /// read a value twice, a hub stands for permutes of several times, or the layer is strict.
    pub(crate) exact: bool,
    /// The number of ticks in a picosecond; all times are in ticks.
    pub(crate) ticks: i64,
}

/// The ticks of a picosecond where times are short enough. A price that shares a cost among readers
/// is rounded to a tick, and plans take whole picoseconds, so a bound that is less than a
/// picosecond below the time of a plan still proves that plan.
const TICKS: i64 = 1 << 10;

impl Factors {
    pub(crate) fn new(kernels: &Kernels, setting: Setting<'_>) -> Result<Factors, LowerError> {
        setting.limits.cache.with(CacheKey::of(kernels, setting), |shared| {
            let whole = Extent { has_factor: kernels.live.clone(), shared };
            Factors::of_part(kernels, setting, whole)
        })
    }

    /// The factors of some live values alone. A value that one of them reads has a graph and no
    /// factor. No kernel may reach out of the part: an op that may join the kernel of another is in
    /// the part if the other is.
    pub(crate) fn of_part(
        kernels: &Kernels,
        setting: Setting<'_>,
        Extent { has_factor, shared }: Extent<'_>,
    ) -> Result<Factors, LowerError> {
        let program = kernels.program.as_ref();
        let live: Vec<ValueId> = program.value_ids().filter(|id| has_factor[id.index()]).collect();
        let mut has_graph = has_factor;
        for operand in live.iter().flat_map(|id| program.value(*id).def.operands()) {
            has_graph[operand.index()] = true;
        }
        let graphs = shared.graphs_of(kernels, setting, &has_graph);
        let count = program.values.len();
        // A graph that is not exact, and so has bounds in place of times, makes the problem
        // inexact.
        let exact = !setting.strict && graphs.iter().all(|graph| graph.exact);
        let mut built = Builder {
            graphs,
            states: vec![KernelStates::default(); count],
            factors: (0..count).map(|_| Arc::default()).collect(),
            known: &mut shared.factors,
            counted: FxHashSet::default(),
            exact,
            strategies_left: setting.limits.strategies,
        };
        let mut uses = vec![Vec::new(); count];
        let mut outputs = Vec::new();
        for (i, output) in program.outputs.iter().enumerate() {
            let (value, pattern) = (output.value, &output.pattern);
            outputs.push((value, allowed(&built.graphs, program, value, pattern, setting.maxima)));
            uses[output.value.index()].push(ValueUse::Output(i));
        }
        // Readers come before what they read, since they determine which kernel states there are.
        for id in live.iter().rev().copied() {
            let operands = program.value(id).def.operands();
            for (place, operand) in operands.iter().enumerate() {
                uses[operand.index()].push(ValueUse::Operand(id, place));
            }
            built.factors[id.index()] = built.factor(kernels, setting, id)?;
        }
        for uses in &mut uses {
            uses.reverse();
        }
        let operands: Arc<Vec<Vec<ValueId>>> =
            Arc::new(program.values.iter().map(|v| v.def.operands().to_vec()).collect());
        let groups = Groups::of_all(&live, &built.graphs, &built.factors, &operands, &uses);
        Ok(Factors {
            live,
            graphs: built.graphs,
            states: Arc::new(built.states),
            factors: built.factors,
            operands,
            uses: Arc::new(uses),
            groups: Arc::new(groups),
            outputs,
            exact: built.exact,
            ticks: shared.ticks,
        })
    }

    /// The same problem with times in ticks of 1/1024 picosecond, or in picoseconds where times are
    /// too long for ticks.
    pub(crate) fn in_ticks(self) -> Factors {
        self.in_some_of(&[TICKS], FAR / 16)
    }

    /// The same problem with times in the finest ticks in which they stay below [`FAR`]. This
    /// leaves less room for prices than [`Factors::in_ticks`] does. It is for the prices of
    /// certificates, which give a true bound whatever they are.
    pub(crate) fn in_fine_ticks(self) -> Factors {
        self.in_some_of(&[TICKS, TICKS / 4, TICKS / 16, TICKS / 64, TICKS / 256], FAR)
    }

    fn in_some_of(mut self, ticks: &[i64], most: i64) -> Factors {
        let longest = |times: &mut dyn Iterator<Item = i64>| {
            times.filter(|time| *time < FAR).max().unwrap_or(0)
        };
        let of_value = |id: &ValueId| {
            let (factor, graph) = (&self.factors[id.index()], &self.graphs[id.index()]);
            // A value is brought to each of its readers by a few moves.
            let moves = (self.uses[id.index()].len() as i64 + 1).saturating_mul(MOVES_OF_A_READER);
            let moved = longest(&mut graph.times()).saturating_mul(moves);
            longest(&mut factor.cost.iter().copied()).saturating_add(moved)
        };
        let all = self.live.iter().map(of_value).fold(0i64, i64::saturating_add);
        let Some(ticks) = ticks.iter().copied().find(|ticks| all <= most / ticks) else {
            return self;
        };
        // Graphs and factors that several values share are converted once, and stay shared.
        let mut graphs: FxHashMap<*const Graph, Arc<Graph>> = FxHashMap::default();
        let mut factors: FxHashMap<*const Factor, Arc<Factor>> = FxHashMap::default();
        for graph in &mut self.graphs {
            let scaled =
                graphs.entry(Arc::as_ptr(graph)).or_insert_with(|| Arc::new(graph.longer(ticks)));
            *graph = Arc::clone(scaled);
        }
        for factor in &mut self.factors {
            let longer = |time: &i64| if *time >= FAR { FAR } else { time.saturating_mul(ticks) };
            let scaled = factors.entry(Arc::as_ptr(factor)).or_insert_with(|| {
                Arc::new(factor.with_costs(factor.cost.iter().map(longer).collect()))
            });
            *factor = Arc::clone(scaled);
        }
        Factors { ticks, ..self }
    }

    /// For each node of a value, the layout that it stands for and, for a kernel state, the bytes
    /// to come; `None` for a hub.
    pub(super) fn names(&self, value: ValueId) -> impl Iterator<Item = Option<NodeName>> {
        let (graph, states) = (&self.graphs[value.index()], &self.states[value.index()]);
        (0..self.nodes(value)).map(move |node| {
            let layout = self.layout(value, node as NodeId)?;
            Some((layout, node.checked_sub(graph.nodes()).map(|state| states.of[state].1)))
        })
    }

    /// The number of strategies of all values.
    pub(crate) fn strategies(&self) -> usize {
        self.factors.iter().map(|factor| factor.out.len()).sum()
    }

    /// The number of nodes of all values, kernel states included.
    pub(crate) fn all_nodes(&self) -> usize {
        self.live.iter().map(|id| self.nodes(*id)).sum()
    }

    /// The number of nodes of a value, kernel states included.
    pub(crate) fn nodes(&self, value: ValueId) -> usize {
        self.graphs[value.index()].nodes() + self.states[value.index()].of.len()
    }

    /// The layout that a node stands for; `None` for a hub.
    pub(crate) fn layout(&self, value: ValueId, node: NodeId) -> Option<Layout> {
        let graph = &self.graphs[value.index()];
        let Some(state) = (node as usize).checked_sub(graph.nodes()) else {
            return graph.layouts.get(node as usize).copied();
        };
        let states = &self.states[value.index()];
        states.names.as_ref().unwrap_or(graph).layouts.get(states.of[state].0 as usize).copied()
    }

    /// The layouts of a strategy; `None` where a node of it is a hub, or the value has fewer
    /// strategies.
    pub(crate) fn layouts_of(&self, value: ValueId, strategy: usize) -> Option<StrategyLayouts> {
        let factor = &self.factors[value.index()];
        let made = self.layout(value, *factor.out.get(strategy)?)?;
        let read = factor.reads_of(strategy).iter().zip(&self.operands[value.index()]);
        let read = read.map(|(node, operand)| self.layout(*operand, *node)).collect::<Option<_>>();
        Some(StrategyLayouts { made, read: read? })
    }

    /// The layouts in which a parameter may be given; empty for other values.
    pub(crate) fn given(&self, program: &Program, value: ValueId) -> Vec<Layout> {
        match program.value(value).def {
            Def::Parameter { .. } => self.factors[value.index()]
                .out
                .iter()
                .filter_map(|n| self.layout(value, *n))
                .collect(),
            Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => Vec::new(),
        }
    }

    /// The layouts that a value reaches from a layout by moves without traffic, that layout
    /// included.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        let graph = &self.graphs[value.index()];
        let mut cost = vec![FAR; graph.nodes()];
        if let Some(node) = graph.node(from) {
            cost[node as usize] = 0;
        }
        graph.spread_forward(&mut cost, &mut super::graph::Queue::default());
        graph.layouts.iter().zip(&cost).filter(|(_, c)| **c == 0).map(|(l, _)| *l).collect()
    }
}

/// A reader is assumed to need at most this many moves in a row to have a value.
const MOVES_OF_A_READER: i64 = 8;

/// The nodes of the layouts of a value that a pattern allows.
fn allowed(
    graphs: &[Arc<Graph>],
    program: &Program,
    value: ValueId,
    pattern: &LayoutPattern,
    maxima: AxisSet,
) -> Vec<NodeId> {
    let sizes = program.sizes(&program.value(value).dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let node = |layout: Layout| graphs[value.index()].node(layout);
    match pattern.exact(shape) {
        Some(layout) => node(layout).into_iter().collect(),
        None => pattern
            .candidates(shape, program.mesh.all_axes(), maxima)
            .into_iter()
            .filter_map(node)
            .collect(),
    }
}

/// The values that factors are made of, and the store of shared graphs and factors.
pub(crate) struct Extent<'a> {
    /// For each value, whether a factor is made of it.
    pub(crate) has_factor: Vec<bool>,
    /// Graphs and factors that were made for other programs of the same dims, mesh and chip.
    pub(crate) shared: &'a mut SharedFactors,
}
