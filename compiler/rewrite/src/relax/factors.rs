//! The program as a graph of factors: for each op its strategies with their times, for each value its graph of layouts.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_cost::{Bytes, Hardware, LocalTensor, Work, collective_cost, looped_time, op_work, roofline};
use shard_ir::composite::composite_dim;
use shard_ir::{
    AxisList, AxisSet, Def, DimId, Dtype, Fused, LabelId, Layout, LayoutPattern, MeshShape, Op, Picoseconds, Program,
    ValueId,
};

use super::graph::{Alike, FAR, Graph, Node};
use crate::demand::may_move_to;
use crate::in_pieces::{InPieces, work_of};
use crate::kernel::Kernels;
use crate::labels::label_layout;
use crate::rules::moves::{Freedom, Movable};
use crate::{Limits, LowerError};

/// The ways of making a value, in flat arrays. Nodes at or above the graph's own are *kernel states*: the value in a layout
/// inside a fused kernel, with so many bytes of memory traffic still to come in the rest of the kernel.
#[derive(Debug, Default)]
pub(crate) struct Factor {
    /// The layout made, for each strategy.
    pub(crate) out: Vec<Node>,
    /// The layouts read, `arity` for each strategy.
    pub(crate) reads: Vec<Node>,
    /// The time of each strategy.
    pub(crate) cost: Vec<i64>,
    /// How many values a strategy reads.
    pub(crate) arity: usize,
}

impl Factor {
    /// What is given, in the layouts allowed.
    fn given(allowed: &[Node]) -> Factor {
        let mut factor = Factor::default();
        for node in allowed {
            factor.push(*node, [], 0);
        }
        factor
    }

    /// Another value, in the layouts allowed.
    fn passed(allowed: &[Node]) -> Factor {
        let mut factor = Factor { arity: 1, ..Factor::default() };
        for node in allowed {
            factor.push(*node, [*node], 0);
        }
        factor
    }

    pub(crate) fn reads_of(&self, strategy: usize) -> &[Node] {
        &self.reads[strategy * self.arity..(strategy + 1) * self.arity]
    }

    pub(crate) fn push(&mut self, out: Node, reads: impl IntoIterator<Item = Node>, cost: i64) {
        self.out.push(out);
        self.reads.extend(reads);
        self.cost.push(cost);
    }
}

/// One use of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// As the n-th operand of the op or pin that makes another value.
    Operand(ValueId, usize),
    /// As a result.
    Output(usize),
}

/// The layouts of one value inside fused kernels: `(layout, bytes to come)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelStates {
    index: FxHashMap<(Node, i64), Node>,
    /// Of each state the layout and the bytes to come.
    pub(crate) of: Vec<(Node, i64)>,
    /// The graph whose numbers the layouts of the states are, where it is not the value's own any more.
    names: Option<Arc<Graph>>,
}

/// For each value the new number of each node, where it is kept.
pub(crate) type Renamed = Vec<Vec<Option<Node>>>;

/// The program as the relaxation sees it. All of one assignment of layouts to labels.
#[derive(Clone, Debug)]
pub(crate) struct Factors {
    pub(crate) live: Vec<ValueId>,
    pub(crate) graphs: Vec<Arc<Graph>>,
    pub(crate) states: Arc<Vec<KernelStates>>,
    pub(crate) factors: Vec<Arc<Factor>>,
    /// The values that the op or pin of each value reads.
    pub(crate) operands: Arc<Vec<Vec<ValueId>>>,
    pub(crate) uses: Arc<Vec<Vec<Use>>>,
    /// For each result the layouts allowed.
    pub(crate) outputs: Vec<(ValueId, Vec<Node>)>,
    /// Whether the times are those of plans, and not only bounds on them: no kernel may read one value twice, no
    /// hub stand for permutes of several times.
    pub(crate) exact: bool,
    /// How many ticks, in which all its times are, a picosecond has.
    pub(crate) ticks: i64,
}

/// The ticks of a picosecond where times are short enough: prices that share a cost among readers are rounded to a tick, and
/// a bound less than a picosecond below a plan is that of the plan.
const TICKS: i64 = 1 << 10;

impl Factors {
    pub(crate) fn new(
        kernels: &Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        strict: bool,
        limits: &Limits,
    ) -> Result<Factors, LowerError> {
        let whole = Part { of: kernels.live.clone(), shared: &mut Shared::new(1) };
        Factors::of_part(kernels, hardware, maxima, (strict, limits), whole)
    }

    /// The factors of some live values alone. What they read has a graph, and no factor. No kernel reaches out of the part:
    /// an op that may join the kernel of another is in it where the other is.
    pub(crate) fn of_part(
        kernels: &Kernels,
        hardware: &Hardware,
        maxima: AxisSet,
        (strict, limits): (bool, &Limits),
        Part { of, shared }: Part<'_>,
    ) -> Result<Factors, LowerError> {
        let program = kernels.program.as_ref();
        let live: Vec<ValueId> = program.value_ids().filter(|id| of[id.index()]).collect();
        let mut has_graph = of;
        for operand in live.iter().flat_map(|id| program.value(*id).def.operands()) {
            has_graph[operand.index()] = true;
        }
        let Shared { ticks, graphs: shared, factors: known } = shared;
        let make = |of: &Alike| {
            let graph = Graph::new(&program.mesh, of, maxima, hardware);
            Arc::new(if *ticks == 1 { graph } else { graph.longer(*ticks) })
        };
        let empty = Arc::clone(shared.entry(Alike::nothing()).or_insert_with_key(make));
        // In a strict layer only what a `reshard` names may move.
        let may_move = |id: ValueId| {
            let asks = |by: ValueId| program.value(by).def.operands().contains(&id) && may_move_to(program, by);
            !strict || program.value_ids().any(asks)
        };
        let graphs: Vec<Arc<Graph>> = program
            .value_ids()
            .map(|id| {
                if !has_graph[id.index()] {
                    return Arc::clone(&empty);
                }
                let value = program.value(id);
                let mut movable = Movable::of(program, id);
                if !may_move(id) {
                    movable.freedom = Freedom::Fixed;
                }
                let alike = Alike { movable, dtype: value.dtype, times: value.times };
                Arc::clone(shared.entry(alike).or_insert_with_key(make))
            })
            .collect();
        let count = program.values.len();
        // Where a hub stands for permutes of several times, they are bounded and not known.
        let exact = !strict && graphs.iter().all(|graph| graph.exact);
        let mut built = Builder {
            graphs,
            states: vec![KernelStates::default(); count],
            factors: (0..count).map(|_| Arc::default()).collect(),
            known,
            exact,
            room: limits.strategies,
        };
        let mut uses = vec![Vec::new(); count];
        let mut outputs = Vec::new();
        for (i, output) in program.outputs.iter().enumerate() {
            let allowed = allowed(&built.graphs, program, output.value, &output.pattern, maxima);
            outputs.push((output.value, allowed));
            uses[output.value.index()].push(Use::Output(i));
        }
        // Readers before what they read: they say which kernel states there are.
        for id in live.iter().rev().copied() {
            let operands = program.value(id).def.operands();
            for (place, operand) in operands.iter().enumerate() {
                uses[operand.index()].push(Use::Operand(id, place));
            }
            let factor = match &program.value(id).def {
                Def::Parameter { pattern, .. } => Factor::given(&allowed(&built.graphs, program, id, pattern, maxima)),
                Def::Constant(_) => Factor::given(built.node(id, Layout::REPLICATED).as_slice()),
                Def::Pin { operand, pattern, .. } => {
                    let allowed = allowed(&built.graphs, program, id, pattern, maxima);
                    built.pin(id, *operand, &allowed)
                }
                Def::Op { op, .. } => {
                    limits.stop.check()?;
                    built.factors[id.index()] = built
                        .op_shared(kernels, hardware, id, op)
                        .ok_or(LowerError::Limit { limit: "strategies", count: limits.strategies })?;
                    continue;
                }
            };
            built.factors[id.index()] = Arc::new(Factor { arity: operands.len(), ..factor });
        }
        for uses in &mut uses {
            uses.reverse();
        }
        Ok(Factors {
            live,
            graphs: built.graphs,
            states: Arc::new(built.states),
            factors: built.factors,
            operands: Arc::new(program.values.iter().map(|v| v.def.operands().to_vec()).collect()),
            uses: Arc::new(uses),
            outputs,
            exact: built.exact,
            ticks: *ticks,
        })
    }

    /// The same with times in parts of a picosecond, unless they are too long for that.
    pub(crate) fn in_ticks(mut self) -> Factors {
        let longest = |times: &mut dyn Iterator<Item = i64>| times.filter(|time| *time < FAR).max().unwrap_or(0);
        let of_value = |id: &ValueId| {
            let (factor, graph) = (&self.factors[id.index()], &self.graphs[id.index()]);
            // A value is brought to each of its readers, by a few moves.
            let moves = (self.uses[id.index()].len() as i64 + 1).saturating_mul(MOVES_OF_A_READER);
            let moved = longest(&mut graph.times()).saturating_mul(moves);
            longest(&mut factor.cost.iter().copied()).saturating_add(moved)
        };
        let all = self.live.iter().map(of_value).fold(0i64, i64::saturating_add);
        if all > FAR / TICKS / 16 {
            return self;
        }
        // What values have in common they have in common afterwards.
        let mut graphs: FxHashMap<*const Graph, Arc<Graph>> = FxHashMap::default();
        let mut factors: FxHashMap<*const Factor, Arc<Factor>> = FxHashMap::default();
        for graph in &mut self.graphs {
            let scaled = graphs.entry(Arc::as_ptr(graph)).or_insert_with(|| Arc::new(graph.longer(TICKS)));
            *graph = Arc::clone(scaled);
        }
        for factor in &mut self.factors {
            let longer = |time: &i64| if *time >= FAR { FAR } else { time.saturating_mul(TICKS) };
            let scaled = factors.entry(Arc::as_ptr(factor)).or_insert_with(|| {
                let Factor { out, reads, cost, arity } = factor.as_ref();
                let cost = cost.iter().map(longer).collect();
                Arc::new(Factor { out: out.clone(), reads: reads.clone(), cost, arity: *arity })
            });
            *factor = Arc::clone(scaled);
        }
        Factors { ticks: TICKS, ..self }
    }

    /// The same for a program that differs in its layout patterns alone; `None` where a pin lies within a kernel.
    pub(crate) fn with_patterns(&self, program: &Program, maxima: AxisSet) -> Option<Factors> {
        let mut other = self.clone();
        for id in &self.live {
            let v = id.index();
            let factor = match &program.value(*id).def {
                Def::Parameter { pattern, .. } => Factor::given(&allowed(&self.graphs, program, *id, pattern, maxima)),
                Def::Pin { .. } if !self.states[v].of.is_empty() => return None,
                Def::Pin { pattern, .. } => Factor::passed(&allowed(&self.graphs, program, *id, pattern, maxima)),
                Def::Constant(_) | Def::Op { .. } => continue,
            };
            other.factors[v] = Arc::new(factor);
        }
        for (output, (value, nodes)) in program.outputs.iter().zip(&mut other.outputs) {
            *nodes = allowed(&self.graphs, program, *value, &output.pattern, maxima);
        }
        Some(other)
    }

    /// Whether another program, which may differ from this one in layout patterns, has the same on pins and results.
    pub(crate) fn differs_in_parameters_alone(&self, other: &Factors) -> bool {
        let same = |id: &ValueId| {
            let (a, b) = (&self.factors[id.index()], &other.factors[id.index()]);
            a.arity == 0 || Arc::ptr_eq(a, b) || a.out == b.out
        };
        self.outputs == other.outputs && self.live.iter().all(same)
    }

    /// How many nodes a value has, kernel states included.
    pub(crate) fn nodes(&self, value: ValueId) -> usize {
        self.graphs[value.index()].nodes() + self.states[value.index()].of.len()
    }

    /// The layout that a node stands for; none for a hub.
    pub(crate) fn layout(&self, value: ValueId, node: Node) -> Option<Layout> {
        let graph = &self.graphs[value.index()];
        let Some(state) = (node as usize).checked_sub(graph.nodes()) else {
            return graph.layouts.get(node as usize).copied();
        };
        let states = &self.states[value.index()];
        states.names.as_ref().unwrap_or(graph).layouts.get(states.of[state].0 as usize).copied()
    }

    /// The factors with labels fixed: parameters, pins and results that bear one have its layout alone.
    pub(crate) fn with_labels(&self, program: &Program, labels: &[Layout]) -> Factors {
        let mut narrowed = self.clone();
        let wanted = |pattern: &LayoutPattern| pattern.label.map(|LabelId(l)| labels[l as usize]);
        for id in &self.live {
            let (Def::Parameter { pattern, .. } | Def::Pin { pattern, .. }) = &program.value(*id).def else { continue };
            let Some(wanted) = wanted(pattern) else { continue };
            let factor = &self.factors[id.index()];
            let mut kept = Factor { arity: factor.arity, ..Factor::default() };
            for s in 0..factor.out.len() {
                if self.has_label_layout(program, *id, factor.out[s], wanted) {
                    kept.push(factor.out[s], factor.reads_of(s).iter().copied(), factor.cost[s]);
                }
            }
            narrowed.factors[id.index()] = Arc::new(kept);
        }
        for (output, (value, allowed)) in program.outputs.iter().zip(&mut narrowed.outputs) {
            if let Some(wanted) = wanted(&output.pattern) {
                allowed.retain(|n| self.has_label_layout(program, *value, *n, wanted));
            }
        }
        narrowed
    }

    /// The factors without the strategies of one value for which `allowed` says no, given the layouts of its result and of
    /// what is read.
    pub(crate) fn allowing(&self, value: ValueId, allowed: &dyn Fn(Layout, &[Layout]) -> bool) -> Factors {
        let mut narrowed = self.clone();
        let factor = &self.factors[value.index()];
        let mut kept = Factor { arity: factor.arity, ..Factor::default() };
        for s in 0..factor.out.len() {
            let read = factor.reads_of(s).iter().zip(&self.operands[value.index()]);
            let read: Option<Vec<Layout>> = read.map(|(n, o)| self.layout(*o, *n)).collect();
            let out = self.layout(value, factor.out[s]);
            if out.zip(read).is_some_and(|(out, read)| allowed(out, &read)) {
                kept.push(factor.out[s], factor.reads_of(s).iter().copied(), factor.cost[s]);
            }
        }
        narrowed.factors[value.index()] = Arc::new(kept);
        narrowed
    }

    /// The layouts in which a parameter may be given; none for other values.
    pub(crate) fn given(&self, program: &Program, value: ValueId) -> Vec<Layout> {
        match program.value(value).def {
            Def::Parameter { .. } => {
                self.factors[value.index()].out.iter().filter_map(|n| self.layout(value, *n)).collect()
            }
            Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => Vec::new(),
        }
    }

    /// The layouts of a value that it reaches from one without traffic, that one too.
    pub(crate) fn reached_free(&self, value: ValueId, from: Layout) -> Vec<Layout> {
        let graph = &self.graphs[value.index()];
        let mut cost = vec![FAR; graph.nodes()];
        if let Some(node) = graph.node(from) {
            cost[node as usize] = 0;
        }
        graph.spread_forward(&mut cost, &mut super::graph::Queue::default());
        graph.layouts.iter().zip(&cost).filter(|(_, c)| **c == 0).map(|(l, _)| *l).collect()
    }

    /// The factors of what is kept: for each value its nodes, for each factor its strategies, as `keep` says.
    pub(crate) fn shrunk(&self, keep_nodes: &[Vec<bool>], keep_strategies: &[Vec<bool>]) -> (Factors, Renamed) {
        let mut small = self.clone();
        let mut states = self.states.as_ref().clone();
        let mut renamed: Renamed = vec![Vec::new(); self.factors.len()];
        for id in &self.live {
            let v = id.index();
            let (graph, mut names) = self.graphs[v].restricted(&keep_nodes[v]);
            let base = graph.nodes() as Node;
            let old = std::mem::take(&mut states[v].of);
            for (i, (layout, extra)) in old.into_iter().enumerate() {
                let kept = keep_nodes[v][self.graphs[v].nodes() + i];
                // The layout of a state is only a name; where the layout itself is gone, the state goes by the old list.
                names.push(kept.then_some(base + states[v].of.len() as Node));
                if kept {
                    states[v].of.push((layout, extra));
                }
            }
            states[v].names = Some(states[v].names.clone().unwrap_or_else(|| Arc::clone(&self.graphs[v])));
            small.graphs[v] = Arc::new(graph);
            renamed[v] = names;
        }
        for id in &self.live {
            let v = id.index();
            let factor = &self.factors[v];
            let mut kept = Factor { arity: factor.arity, ..Factor::default() };
            for s in (0..factor.out.len()).filter(|s| keep_strategies[v][*s]) {
                let out = renamed[v][factor.out[s] as usize];
                let reads: Option<Vec<Node>> = factor
                    .reads_of(s)
                    .iter()
                    .zip(&self.operands[v])
                    .map(|(n, o)| renamed[o.index()][*n as usize])
                    .collect();
                if let (Some(out), Some(reads)) = (out, reads) {
                    kept.push(out, reads, factor.cost[s]);
                }
            }
            small.factors[v] = Arc::new(kept);
        }
        for (value, allowed) in &mut small.outputs {
            *allowed = allowed.iter().filter_map(|n| renamed[value.index()][*n as usize]).collect();
        }
        small.states = Arc::new(states);
        (small, renamed)
    }

    /// Whether a node of a labelled value stands for the label's layout.
    pub(crate) fn has_label_layout(&self, program: &Program, value: ValueId, node: Node, wanted: Layout) -> bool {
        self.layout(value, node).is_some_and(|l| label_layout(&program.value(value).dims, l) == wanted)
    }
}

/// No reader needs more moves in a row than this to have a value.
const MOVES_OF_A_READER: i64 = 8;

/// The layouts of a value that a pattern on it allows.
fn allowed(
    graphs: &[Arc<Graph>],
    program: &Program,
    value: ValueId,
    pattern: &LayoutPattern,
    maxima: AxisSet,
) -> Vec<Node> {
    let sizes = program.sizes(&program.value(value).dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let node = |layout: Layout| graphs[value.index()].node(layout);
    match pattern.exact(shape) {
        Some(layout) => node(layout).into_iter().collect(),
        None => pattern.candidates(shape, program.mesh.all_axes(), maxima).into_iter().filter_map(node).collect(),
    }
}

/// What two ops must have in common to have the same strategies at the same times: the op, dims and dtypes of operands and
/// result, which operands are the same value or a number, and the kernel states of the result with the first of their
/// numbers (two values of one type differ in the nodes below, where one of them never moves).
#[derive(PartialEq, Eq, Hash)]
struct Site {
    op: Op,
    operands: Vec<(Vec<DimId>, Dtype, usize, bool)>,
    /// Whether an op makes the operand of a composite: its pieces are other kernels then.
    by_op: bool,
    result: (Vec<DimId>, Dtype),
    states: Vec<(Node, i64)>,
    first_state: usize,
    times: u64,
}

/// What factors are made of.
pub(crate) struct Part<'a> {
    /// For each value, whether it has one.
    pub(crate) of: Vec<bool>,
    /// What other factors of the same source, mesh and chip have in common with them.
    pub(crate) shared: &'a mut Shared,
}

/// Graphs and factors that forms of one program have in common.
pub(crate) struct Shared {
    /// How many ticks of the graphs' times are a picosecond. Those of factors are in picoseconds.
    ticks: i64,
    graphs: FxHashMap<Alike, Arc<Graph>>,
    factors: FxHashMap<Site, Arc<Factor>>,
}

impl Shared {
    /// Nothing as yet.
    pub(crate) fn new(ticks: i64) -> Shared {
        Shared { ticks, graphs: FxHashMap::default(), factors: FxHashMap::default() }
    }
}

struct Builder<'s> {
    graphs: Vec<Arc<Graph>>,
    states: Vec<KernelStates>,
    factors: Vec<Arc<Factor>>,
    known: &'s mut FxHashMap<Site, Arc<Factor>>,
    exact: bool,
    /// How many strategies there may still be.
    room: usize,
}

impl Builder<'_> {
    fn node(&self, value: ValueId, layout: Layout) -> Option<Node> {
        self.graphs[value.index()].node(layout)
    }

    fn state(&mut self, value: ValueId, layout: Node, extra: i64) -> Node {
        let base = self.graphs[value.index()].nodes() as Node;
        let states = &mut self.states[value.index()];
        *states.index.entry((layout, extra)).or_insert_with(|| {
            states.of.push((layout, extra));
            base + states.of.len() as Node - 1
        })
    }

    fn pin(&mut self, id: ValueId, operand: ValueId, allowed: &[Node]) -> Factor {
        let mut factor = Factor::passed(allowed);
        let base = self.graphs[id.index()].nodes() as Node;
        for i in 0..self.states[id.index()].of.len() {
            let (layout, extra) = self.states[id.index()].of[i];
            if allowed.contains(&layout) {
                let read = self.state(operand, layout, extra);
                factor.push(base + i as Node, [read], 0);
            }
        }
        factor
    }

    /// The factor of an op, which the same op elsewhere may share. One that joins a kernel also makes kernel states of what
    /// it reads, so it is its own.
    fn op_shared(&mut self, kernels: &Kernels, hardware: &Hardware, id: ValueId, op: &Op) -> Option<Arc<Factor>> {
        let program = kernels.program.as_ref();
        let value = program.value(id);
        let operands = value.def.operands();
        let arity = operands.len();
        if kernels.fusible_operand(id).is_some() {
            return Some(Arc::new(Factor { arity, ..self.op(kernels, hardware, id, op)? }));
        }
        let origins: Vec<ValueId> = operands.iter().map(|o| kernels.origin_of(*o)).collect();
        let site = Site {
            op: op.clone(),
            operands: operands
                .iter()
                .zip(&origins)
                .map(|(operand, origin)| {
                    let same = origins.iter().position(|o| o == origin).unwrap_or(0);
                    let constant = matches!(program.value(*origin).def, Def::Constant(_));
                    (program.value(*operand).dims.clone(), program.value(*operand).dtype, same, constant)
                })
                .collect(),
            by_op: composite_dim(op).is_some()
                && origins.iter().any(|o| matches!(program.value(*o).def, Def::Op { .. })),
            result: (value.dims.clone(), value.dtype),
            states: self.states[id.index()].of.clone(),
            first_state: self.graphs[id.index()].nodes(),
            times: value.times,
        };
        if let Some(known) = self.known.get(&site) {
            return Some(Arc::clone(known));
        }
        let factor = Arc::new(Factor { arity, ..self.op(kernels, hardware, id, op)? });
        self.known.insert(site, Arc::clone(&factor));
        Some(factor)
    }

    /// The strategies of an op: alone, as the head of a kernel, and as a later member of one; `None` where there are too
    /// many.
    fn op(&mut self, kernels: &Kernels, hardware: &Hardware, id: ValueId, op: &Op) -> Option<Factor> {
        let program = kernels.program.as_ref();
        let site = kernels.site(id);
        let Some(profile) = kernels.profile(id) else { return Some(Factor::default()) };
        let operands = program.value(id).def.operands();
        let steps = program.value(id).times;
        let mut works = Works::new(kernels, id, op);
        let fused = kernels.fusible_operand(id);
        let skipped: Vec<bool> = match &fused {
            // What an earlier member of the kernel reads already is not read again; to count it as free keeps a bound.
            Some((places, producer, _)) => {
                let longest = kernels.of[producer.index()].last().map_or(&[][..], |k| k.operands.as_slice());
                let origins: Vec<ValueId> = longest.iter().map(|v| kernels.origin_of(*v)).collect();
                (0..operands.len())
                    .map(|i| places.contains(&i) || origins.contains(&kernels.origin_of(operands[i])))
                    .collect()
            }
            None => Vec::new(),
        };
        if let Some((places, ..)) = &fused {
            self.exact &= (0..operands.len()).all(|i| places.contains(&i) || !skipped[i]);
        }
        let mut by_layout: FxHashMap<Node, Vec<(Node, i64)>> = FxHashMap::default();
        let base = self.graphs[id.index()].nodes() as Node;
        for (i, (layout, extra)) in self.states[id.index()].of.iter().enumerate() {
            by_layout.entry(*layout).or_default().push((base + i as Node, *extra));
        }
        let result_layouts = match op {
            Op::Split { .. } | Op::Merge { .. } => self.graphs[id.index()].layouts.clone(),
            _ => Vec::new(),
        };
        let graphs: Vec<Arc<Graph>> = operands.iter().map(|o| Arc::clone(&self.graphs[o.index()])).collect();
        let own = Arc::clone(&self.graphs[id.index()]);
        let mut factor = Factor::default();
        let mut reads: Vec<Node> = Vec::with_capacity(operands.len());
        let mut loops = kernels.may_loop(id).then(|| Loops { kernels, hardware, id, known: FxHashMap::default() });
        let room = self.room;
        let whole = site.for_each_strategy(profile, &result_layouts, &mut |result, layouts| {
            let next = ControlFlow::Continue(());
            if factor.out.len() > room {
                return ControlFlow::Break(());
            }
            let Some(out) = own.node(result) else { return next };
            reads.clear();
            for (graph, layout) in graphs.iter().zip(layouts) {
                match graph.node(*layout) {
                    Some(node) => reads.push(node),
                    None => return next,
                }
            }
            // Of a composite in pieces the last kernel is the one that others join.
            let pieces = if site.is_in_pieces(layouts) { in_pieces(kernels, hardware, id, layouts[0]) } else { None };
            let (before, work) = pieces.unwrap_or_else(|| (0, works.of(layouts, result)));
            let kernel_time = |extra: i64| {
                let write = (work.write.0 as i64).saturating_add(extra).max(0) as u64;
                let (time, _) = roofline(hardware, &Work { write: Bytes(write), ..work });
                Picoseconds(before.saturating_add(time.0))
            };
            let in_steps = |time: Picoseconds| i64::try_from(time.0.saturating_mul(steps)).unwrap_or(FAR).min(FAR);
            let time = |extra: i64| in_steps(kernel_time(extra));
            factor.push(out, reads.iter().copied(), time(0));
            let states = by_layout.get(&out).map_or(&[][..], |v| v.as_slice());
            for (state, extra) in states {
                factor.push(*state, reads.iter().copied(), time(*extra));
            }
            if let Some(loops) = &mut loops {
                site.for_each_gather(layouts, &mut |fused, given| {
                    let Some(read) = graphs.iter().zip(given).map(|(g, l)| g.node(*l)).collect::<Option<Vec<_>>>()
                    else {
                        return;
                    };
                    let (collective, chunks) = loops.collective(&fused, given, result);
                    let looped = |extra: i64| in_steps(looped_time(collective, kernel_time(extra), chunks));
                    factor.push(out, read.iter().copied(), looped(0));
                    for (state, extra) in by_layout.get(&out).map_or(&[][..], |v| v.as_slice()) {
                        factor.push(*state, read.iter().copied(), looped(*extra));
                    }
                });
                site.for_each_scatter(result, &mut |fused, scattered| {
                    let Some(out) = own.node(scattered) else { return };
                    let (collective, chunks) = loops.collective(&fused, layouts, result);
                    factor.push(out, reads.iter().copied(), in_steps(looped_time(collective, kernel_time(0), chunks)));
                });
            }
            let Some((places, producer, _)) = &fused else { return next };
            let between = layouts[places[0]];
            if !kernels.may_be_joined(*producer, between) || places.iter().any(|p| layouts[*p] != between) {
                return next;
            }
            // As a later member: its own reads and the larger result are the kernel's to pay, at its head.
            let added = works.added(layouts, result, &skipped, places[0]);
            for (out, to_come) in std::iter::once((out, 0)).chain(states.iter().copied()) {
                let mut member = reads.clone();
                for place in places {
                    member[*place] = self.state(operands[*place], reads[*place], added + to_come);
                }
                factor.push(out, member, 0);
            }
            next
        });
        self.room = self.room.saturating_sub(factor.out.len());
        whole.is_continue().then_some(factor)
    }
}

/// The collectives in the loops of one einsum. Their times depend on little, and few of them differ.
struct Loops<'a> {
    kernels: &'a Kernels,
    hardware: &'a Hardware,
    id: ValueId,
    /// By the operand that is gathered (none for the product), the local elements of the larger buffer, and the axes.
    known: FxHashMap<(Option<usize>, u64, AxisList), Picoseconds>,
}

impl Loops<'_> {
    /// The time of a collective by itself and the chunks of its loop, given the operands and the layout of the product.
    fn collective(&mut self, fused: &Fused, given: &[Layout], product: Layout) -> (Picoseconds, u64) {
        let program = self.kernels.program.as_ref();
        let (moved, from) = match fused.gathered() {
            Some(place) => (program.value(self.id).def.operands()[place], given[place]),
            None => (self.id, product),
        };
        let value = program.value(moved);
        let sizes = program.sizes(&value.dims);
        let elements = MeshShape { mesh: &program.mesh, sizes: &sizes }.local_elements(from);
        let chunks = fused.chunks(&program.mesh);
        let time = self.known.entry((fused.gathered(), elements, fused.axes())).or_insert_with(|| {
            collective_cost(self.hardware, &program.mesh, &fused.collective(), from, &sizes, value.dtype).time
        });
        (*time, chunks)
    }
}

/// Of a composite in pieces: the time of all but the last kernel, and the work of that.
fn in_pieces(kernels: &Kernels, hardware: &Hardware, id: ValueId, operand: Layout) -> Option<(u64, Work)> {
    let pieces = InPieces::new(kernels, hardware, id, operand)?;
    Some((pieces.before_the_last(hardware).time, work_of(&pieces.last_kernel())))
}

/// The work of one op in all its strategies. It depends on the local sizes alone, and few of them differ.
struct Works<'a> {
    program: &'a Program,
    op: &'a Op,
    operands: Vec<(u32, ValueId, bool)>,
    result: ValueId,
    known: FxHashMap<Vec<u64>, Work>,
    key: Vec<u64>,
}

impl<'a> Works<'a> {
    fn new(kernels: &'a Kernels, id: ValueId, op: &'a Op) -> Works<'a> {
        let program = kernels.program.as_ref();
        let operands = program.value(id).def.operands();
        Works {
            program,
            op,
            operands: operands
                .iter()
                .map(|o| {
                    let origin = kernels.origin_of(*o);
                    (origin.0, *o, matches!(program.value(origin).def, Def::Constant(_)))
                })
                .collect(),
            result: id,
            known: FxHashMap::default(),
            key: Vec::new(),
        }
    }

    fn local(&self, value: ValueId, layout: Layout, into: &mut Vec<u64>) {
        let mesh = &self.program.mesh;
        let start = into.len();
        into.extend(self.program.value(value).dims.iter().map(|d| self.program.dims[d.index()].size));
        for axis in mesh.axis_ids() {
            if let shard_ir::Place::Split { dim, .. } = layout.place(axis) {
                into[start + dim] /= mesh.size(axis);
            }
        }
    }

    fn of(&mut self, layouts: &[Layout], result: Layout) -> Work {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        for ((_, value, _), layout) in self.operands.iter().zip(layouts) {
            self.local(*value, *layout, &mut key);
        }
        self.local(self.result, result, &mut key);
        let work = match self.known.get(&key) {
            Some(work) => *work,
            None => {
                let mut at = 0;
                let mut tensor = |value: ValueId, name: u32, constant: bool| {
                    let v = self.program.value(value);
                    let sizes = &key[at..at + v.dims.len()];
                    at += v.dims.len();
                    LocalTensor { value: name, dims: &v.dims, sizes, dtype: v.dtype, constant }
                };
                let operands: Vec<LocalTensor<'_>> =
                    self.operands.iter().map(|(name, value, constant)| tensor(*value, *name, *constant)).collect();
                let result = tensor(self.result, self.result.0, false);
                let work = op_work(self.op, &operands, result);
                self.known.insert(key.clone(), work);
                work
            }
        };
        self.key = key;
        work
    }

    /// The bytes that an elementwise op adds to the kernel that makes the operand at `fed`: what it reads beside it, and
    /// how much larger its result is.
    fn added(&self, layouts: &[Layout], result: Layout, skipped: &[bool], fed: usize) -> i64 {
        let bytes = |value: ValueId, layout: Layout| {
            let mut sizes = Vec::new();
            self.local(value, layout, &mut sizes);
            self.program.value(value).dtype.bytes(sizes.iter().product()) as i64
        };
        let read: i64 = self
            .operands
            .iter()
            .enumerate()
            .filter(|(i, (_, _, constant))| !constant && !skipped[*i])
            .map(|(i, (_, value, _))| bytes(*value, layouts[i]))
            .sum();
        read + bytes(self.result, result) - bytes(self.operands[fed].1, layouts[fed])
    }
}
