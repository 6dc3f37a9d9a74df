//! The plan space as an e-graph: an e-class is a value in a layout, its e-nodes are the ways of
//! having it.

use egg::{
    Analysis, Applier, DidMerge, EGraph, Id, Language, Rewrite, Runner, SearchMatches, Searcher,
    SimpleScheduler, StopReason, Subst, Symbol, Var,
};
use rustc_hash::FxHashMap;
use shard_cost::Hardware;
use shard_ir::op::Combined;
use shard_ir::{
    AxisSet, Binary, Collective, Def, Fused, Layout, LayoutPattern, MeshShape, Op, Program,
    Reduction, ValueId,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::Kernels;
use crate::relax::factors::CacheKey;
use crate::relax::{Region, Setting};
use crate::rules::inside::MovesInside;
use crate::rules::moves::Movable;
use crate::timeless::timeless;
use crate::{Limits, LowerError, SearchLimit};

/// A value in a layout, which is what an e-class stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct At {
    pub(crate) value: ValueId,
    pub(crate) layout: Layout,
}

/// An e-node: a way of having a value in a layout.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ENode {
    /// The class itself, before any way of having the value is known.
    Goal(At),
    /// A parameter or a constant as given.
    Source(At),
    /// A pin passes the value on.
    Pin(At, [Id; 1]),
    /// The kernel of the value with this number.
    Kernel(At, usize, Box<[Id]>),
    /// The same, led by an einsum with a collective in its loop.
    Loop(At, Box<(usize, Fused)>, Box<[Id]>),
    /// A move of the value from another layout.
    Move(At, Collective, [Id; 1]),
}

// The collective is not hashed: the library hashes a node several times, and nodes that differ in
// the collective alone are rare.
impl Hash for ENode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let kernel = match self {
            ENode::Kernel(_, kernel, _) => *kernel,
            ENode::Loop(_, with, _) => with.0,
            ENode::Goal(_) | ENode::Source(_) | ENode::Pin(..) | ENode::Move(..) => 0,
        };
        (std::mem::discriminant(self), self.at(), kernel, self.children()).hash(state);
    }
}

impl ENode {
    fn at(&self) -> At {
        match self {
            ENode::Goal(at)
            | ENode::Source(at)
            | ENode::Pin(at, _)
            | ENode::Kernel(at, ..)
            | ENode::Loop(at, ..)
            | ENode::Move(at, ..) => *at,
        }
    }
}

impl Language for ENode {
    type Discriminant =
        (std::mem::Discriminant<ENode>, At, usize, Option<Collective>, Option<Fused>);

    fn discriminant(&self) -> Self::Discriminant {
        let (number, collective, fused) = match self {
            ENode::Kernel(_, kernel, _) => (*kernel, None, None),
            ENode::Loop(_, of, _) => (of.0, None, Some(of.1)),
            ENode::Move(_, collective, _) => (0, Some(*collective), None),
            ENode::Goal(_) | ENode::Source(_) | ENode::Pin(..) => (0, None, None),
        };
        (std::mem::discriminant(self), self.at(), number, collective, fused)
    }

    fn matches(&self, other: &Self) -> bool {
        self.discriminant() == other.discriminant()
            && self.children().len() == other.children().len()
    }

    fn children(&self) -> &[Id] {
        match self {
            ENode::Goal(_) | ENode::Source(_) => &[],
            ENode::Pin(_, children) | ENode::Move(_, _, children) => children,
            ENode::Kernel(_, _, children) | ENode::Loop(_, _, children) => children,
        }
    }

    fn children_mut(&mut self) -> &mut [Id] {
        match self {
            ENode::Goal(_) | ENode::Source(_) => &mut [],
            ENode::Pin(_, children) | ENode::Move(_, _, children) => children,
            ENode::Kernel(_, _, children) | ENode::Loop(_, _, children) => children,
        }
    }
}

/// The analysis: what each class stands for, and all classes in the order in which they were added.
#[derive(Default)]
pub(crate) struct Layouts {
    /// Every class, in the order in which its goal was added.
    pub(crate) goals: Vec<(At, Id)>,
    /// For each [`RuleKind`], how many goals its rules have been applied to.
    done: [usize; 2],
    /// A class was merged with one of another value or layout: a wrong rule.
    pub(crate) clash: Option<(At, At)>,
}

impl Analysis<ENode> for Layouts {
    type Data = At;

    fn make(egraph: &mut EGraph<ENode, Self>, node: &ENode, id: Id) -> At {
        if let ENode::Goal(at) = node {
            egraph.analysis.goals.push((*at, id));
        }
        node.at()
    }

    fn merge(&mut self, a: &mut At, b: At) -> DidMerge {
        if *a != b {
            self.clash = Some((*a, b));
        }
        DidMerge(false, false)
    }
}

/// The e-graph of a region of the plan space.
pub(crate) type PlanGraph = EGraph<ENode, Layouts>;

/// The saturated e-graph of a program.
pub(crate) struct Space {
    pub(crate) kernels: Arc<Kernels>,
    pub(crate) graph: PlanGraph,
    context: Arc<Context>,
}

impl Space {
    /// Builds and saturates the e-graph. It has the values that results depend on and the
    /// parameters; with a region, only layouts and strategies of the region.
    pub(crate) fn saturate(
        kernels: Arc<Kernels>,
        hardware: &Hardware,
        region: Option<Region>,
        limits: &Limits,
    ) -> Result<Space, LowerError> {
        let too_many = limits.reached(SearchLimit::Nodes);
        let context = Context::new(kernels, hardware, region, limits).ok_or(too_many)?;
        Space::by_rules(&RuleKind::ALL, context, limits)
    }

    /// The same without moves, which are most of the e-graph: the ways of making each value in each
    /// layout of a region.
    pub(crate) fn without_moves(
        kernels: Arc<Kernels>,
        region: Region,
        limits: &Limits,
    ) -> Result<Space, LowerError> {
        let context = Context::without_moves(kernels, Some(region));
        Space::by_rules(&[RuleKind::Strategies], context, limits)
    }

    fn by_rules(
        rules: &[RuleKind],
        context: Context,
        limits: &Limits,
    ) -> Result<Space, LowerError> {
        let kernels = Arc::clone(&context.kernels);
        let program = Arc::clone(&kernels.program);
        let too_many = limits.reached(SearchLimit::Nodes);
        let context = Arc::new(context);
        let mut graph = PlanGraph::default();
        for output in &program.outputs {
            for layout in context.candidates(output.value, &output.pattern) {
                graph.add(ENode::Goal(At { value: output.value, layout }));
            }
        }
        for id in program.parameters() {
            for layout in context.allowed(id) {
                graph.add(ENode::Goal(At { value: id, layout: *layout }));
            }
        }
        if let Some(region) = &context.region {
            // All goals are added at once, so that the rules need one round, and not one for each
            // step back from the results.
            for id in program.value_ids().filter(|id| kernels.live[id.index()]) {
                let mut layouts: Vec<Layout> = region.layouts[id.index()].iter().copied().collect();
                layouts.sort_unstable();
                for layout in layouts {
                    graph.add(ENode::Goal(At { value: id, layout }));
                }
            }
        }
        let rule = |kind: &RuleKind| {
            let rule = || OnNewGoals { kind: *kind, context: Arc::clone(&context) };
            Rewrite::new(kind.name(), rule(), rule())
        };
        let rules: Vec<Rewrite<ENode, Layouts>> = rules
            .iter()
            .map(rule)
            .collect::<Result<_, String>>()
            .map_err(|e| LowerError::Internal(format!("egg refuses a rule: {e}")))?;
        // No clock may decide what is found, and with a scheduler that bans rules the plan space
        // would be incomplete.
        let runner: Runner<ENode, Layouts> = Runner::default()
            .with_egraph(graph)
            .with_scheduler(SimpleScheduler)
            .with_node_limit(limits.nodes)
            .with_iter_limit(usize::MAX)
            .with_time_limit(Duration::MAX)
            .with_hook({
                let stop = limits.stop.clone();
                move |_| if stop.is_time_up() { Err("stopped".to_string()) } else { Ok(()) }
            });
        let runner = timeless(|| runner.run(&rules));
        let graph = runner.egraph;
        if let Some((a, b)) = graph.analysis.clash {
            return Err(LowerError::Internal(format!("the e-graph merged {a:?} with {b:?}")));
        }
        limits.stop.check()?;
        match runner.stop_reason {
            Some(StopReason::Saturated) => Ok(Space { kernels, graph, context }),
            Some(StopReason::NodeLimit(_)) => Err(too_many),
            other => Err(LowerError::Internal(format!("saturation stopped: {other:?}"))),
        }
    }

    /// The layouts of a value that a pattern on it allows.
    pub(crate) fn candidates(&self, value: ValueId, pattern: &LayoutPattern) -> Vec<Layout> {
        self.context.candidates(value, pattern)
    }
}

shard_ir::worded! {
    /// The rules by how they are applied; each kind covers one or more families of
    /// [`crate::rules::RULES`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum RuleKind {
        Strategies = "strategies",
        Moves = "moves",
    }
    /// The word of it.
    fn name;
}

/// For each layout of a value, the moves from there, each with the layout that it leads to.
pub(crate) type MovesByLayout = FxHashMap<Layout, Vec<(Collective, Layout)>>;

/// What the rules are applied by.
struct Context {
    kernels: Arc<Kernels>,
    maxima: AxisSet,
    region: Option<Region>,
    /// The moves of each value; values whose moves are alike share them.
    moves: Vec<Arc<MovesByLayout>>,
    /// The layouts that the type of a parameter or a pin allows; empty for other values.
    allowed: Vec<Vec<Layout>>,
}

impl Context {
    /// The context of a region; `None` where its e-graph would have too many e-nodes. The e-graph
    /// has a goal for each layout of a value, and a node for each move from there.
    fn new(
        kernels: Arc<Kernels>,
        hardware: &Hardware,
        region: Option<Region>,
        limits: &Limits,
    ) -> Option<Context> {
        let program = Arc::clone(&kernels.program);
        let maxima = maxima(&program);
        let live = |id: &ValueId| kernels.live[id.index()];
        let movable = |id: ValueId| {
            let statistics = kernels.statistics(id);
            Movable { statistics, ..Movable::of(&program, id) }
        };
        let mut moves = vec![Arc::default(); program.values.len()];
        match &region {
            None => {
                let (mesh, sums) = (&program.mesh, program.mesh.all_axes());
                let all = |of: &Movable| {
                    let layouts = of.layouts(mesh, sums, maxima).into_iter();
                    Arc::new(layouts.map(|l| (l, of.moves_from(mesh, l, sums, maxima))).collect())
                };
                let mut alike: FxHashMap<Movable, Arc<MovesByLayout>> = FxHashMap::default();
                for id in program.value_ids().filter(live) {
                    let of = alike.entry(movable(id)).or_insert_with_key(all);
                    moves[id.index()] = Arc::clone(of);
                }
            }
            Some(region) => {
                let setting = Setting { hardware, maxima, strict: false, limits };
                let base = CacheKey::of(&kernels, setting);
                let goals = region.layouts.iter().map(|layouts| layouts.len()).sum();
                let mut left = limits.nodes.checked_sub(goals)?;
                limits.cache.with_moves(base, |known| {
                    let mut inside = MovesInside::new(&program, hardware, maxima, known);
                    for id in program.value_ids().filter(live) {
                        let found = inside.of(id, movable(id), region, left)?;
                        left -= found.values().map(Vec::len).sum::<usize>();
                        moves[id.index()] = Arc::new(found);
                    }
                    Some(())
                })?;
            }
        }
        Some(Context { moves, ..Context::without_moves(kernels, region) })
    }

    /// The context in which no value has moves.
    fn without_moves(kernels: Arc<Kernels>, region: Option<Region>) -> Context {
        let program = Arc::clone(&kernels.program);
        let (maxima, moves) = (maxima(&program), vec![Arc::default(); program.values.len()]);
        let mut context = Context { kernels, maxima, region, moves, allowed: Vec::new() };
        context.allowed = program
            .value_ids()
            .map(|id| {
                let pattern = program.value(id).def.pattern();
                let pattern = pattern.filter(|_| context.kernels.live[id.index()]);
                pattern.map_or_else(Vec::new, |pattern| context.candidates(id, pattern))
            })
            .collect();
        context
    }

    fn candidates(&self, value: ValueId, pattern: &LayoutPattern) -> Vec<Layout> {
        let program = &self.kernels.program;
        let sizes = program.sizes(&program.value(value).dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let mut found = pattern.candidates(shape, program.mesh.all_axes(), self.maxima);
        if let Some(region) = &self.region {
            found.retain(|l| region.layouts[value.index()].contains(l));
        }
        found
    }

    /// The strategies of an op alone that make its value in a layout, each with the collective in
    /// its loop.
    fn alone(&self, value: ValueId, target: Layout) -> Vec<(Option<Fused>, Vec<Layout>)> {
        let plain = |read: Vec<Layout>| (None, read);
        let is_split = !target.softmax_axes().is_empty();
        match &self.region {
            Some(region) => {
                let inside =
                    region.strategies[value.index()].get(&target).cloned().unwrap_or_default();
                if is_split || !self.kernels.may_loop(value) {
                    return inside.into_iter().map(plain).collect();
                }
                let site = self.kernels.site(value);
                let ways = |read: Vec<Layout>| {
                    let alone = (site.result_layout(&read) == Some(target)).then_some(None);
                    let looped = site.loops_between(&read, target).into_iter().map(Some);
                    alone
                        .into_iter()
                        .chain(looped)
                        .map(|fused| (fused, read.clone()))
                        .collect::<Vec<_>>()
                };
                inside.into_iter().flat_map(ways).collect()
            }
            None => {
                let Some(profile) = self.kernels.profile(value) else { return Vec::new() };
                let site = self.kernels.site(value);
                // The op that ends an attention would, alone, leave a partial sum where the
                // attention leaves a partial softmax.
                let of_op = match self.kernels.carries(value) {
                    Some(_) => target,
                    None => target
                        .softmax_axes()
                        .iter()
                        .fold(target, |layout, axis| layout.with_partial(axis, Reduction::Sum)),
                };
                let mut found: Vec<_> =
                    site.strategies(profile, of_op).into_iter().map(plain).collect();
                if !is_split && self.kernels.may_loop(value) {
                    found.extend(
                        site.loops(profile, target)
                            .into_iter()
                            .map(|(fused, read)| (Some(fused), read)),
                    );
                }
                found
            }
        }
    }

    /// Whether a parameter may be given in a layout: its type allows the layout, and the region has
    /// it as a strategy.
    fn is_given(&self, at: At) -> bool {
        let inside = |region: &Region| region.strategies[at.value.index()].contains_key(&at.layout);
        self.allowed(at.value).contains(&at.layout) && self.region.as_ref().is_none_or(inside)
    }

    fn allowed(&self, value: ValueId) -> &[Layout] {
        &self.allowed[value.index()]
    }

    /// Whether a pin lets a value through in a layout, inside a kernel too.
    fn passes(&self, pin: ValueId, layout: Layout) -> bool {
        match &self.kernels.program.value(pin).def {
            Def::Pin { pattern, .. } => pattern.admits(layout),
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => false,
        }
    }

    /// The e-nodes for a value in a layout that its definition gives; the goals of their children
    /// are added.
    fn definitions(&self, graph: &mut PlanGraph, at: At) -> Vec<ENode> {
        let program = &self.kernels.program;
        let mut goal =
            |value: ValueId, layout: Layout| graph.add(ENode::Goal(At { value, layout }));
        match &program.value(at.value).def {
            Def::Parameter { .. } if self.is_given(at) => vec![ENode::Source(at)],
            Def::Constant(_) if at.layout == Layout::REPLICATED => vec![ENode::Source(at)],
            Def::Pin { operand, .. } if self.allowed(at.value).contains(&at.layout) => {
                vec![ENode::Pin(at, [goal(*operand, at.layout)])]
            }
            Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => Vec::new(),
            Def::Op { .. } => {
                let passes = |pin: ValueId, layout: Layout| self.passes(pin, layout);
                self.kernels
                    .strategies(at.value, at.layout, &|v, l| self.alone(v, l), &passes)
                    .into_iter()
                    .map(|(kernel, fused, read)| {
                        let operands = &self.kernels.of[at.value.index()][kernel].operands;
                        let children =
                            operands.iter().zip(read).map(|(o, layout)| goal(*o, layout)).collect();
                        match fused {
                            None => ENode::Kernel(at, kernel, children),
                            Some(fused) => ENode::Loop(at, Box::new((kernel, fused)), children),
                        }
                    })
                    .collect()
            }
        }
    }
}

/// The layouts of a value that a pattern on it allows.
pub(crate) fn layouts_allowed(
    program: &Program,
    value: ValueId,
    pattern: &LayoutPattern,
) -> Vec<Layout> {
    let sizes = program.sizes(&program.value(value).dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    pattern.candidates(shape, program.mesh.all_axes(), maxima(program))
}

/// The axes over which values may be partial maxima: all axes where an op takes a maximum, where a
/// logical rule may make an op take one, or where a type names a partial maximum; else none. So all
/// forms of a program have the same layouts.
pub(crate) fn maxima(program: &Program) -> AxisSet {
    let named = |pattern: &LayoutPattern| !pattern.partial_max.is_empty();
    let any = program.outputs.iter().any(|o| named(&o.pattern))
        || program.values.iter().any(|v| match &v.def {
            Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => named(pattern),
            Def::Op { op, .. } => {
                // Logical rules make these take a maximum.
                let becomes_max = matches!(op, Op::Argmax { .. } | Op::Binary(Binary::Maximum));
                becomes_max || op.row().combines == Combined::Max
            }
            Def::Constant(_) => false,
        });
    if any { program.mesh.all_axes() } else { AxisSet::EMPTY }
}

/// A rewrite of the goals that the rules of a kind have not been applied to.
struct OnNewGoals {
    kind: RuleKind,
    context: Arc<Context>,
}

impl Searcher<ENode, Layouts> for OnNewGoals {
    fn search_with_limit(&self, graph: &PlanGraph, _: usize) -> Vec<SearchMatches<'_, ENode>> {
        let unseen = &graph.analysis.goals[graph.analysis.done[self.kind as usize]..];
        unseen
            .iter()
            .map(|(_, id)| SearchMatches { eclass: *id, substs: vec![Subst::default()], ast: None })
            .collect()
    }

    fn search_eclass_with_limit(
        &self,
        _: &PlanGraph,
        eclass: Id,
        _: usize,
    ) -> Option<SearchMatches<'_, ENode>> {
        Some(SearchMatches { eclass, substs: vec![Subst::default()], ast: None })
    }

    fn vars(&self) -> Vec<Var> {
        Vec::new()
    }
}

impl Applier<ENode, Layouts> for OnNewGoals {
    fn apply_matches(
        &self,
        graph: &mut PlanGraph,
        matches: &[SearchMatches<'_, ENode>],
        rule: Symbol,
    ) -> Vec<Id> {
        graph.analysis.done[self.kind as usize] += matches.len();
        let subst = Subst::default();
        matches.iter().flat_map(|m| self.apply_one(graph, m.eclass, &subst, None, rule)).collect()
    }

    fn apply_one(
        &self,
        graph: &mut PlanGraph,
        class: Id,
        _: &Subst,
        _: Option<&egg::PatternAst<ENode>>,
        _: Symbol,
    ) -> Vec<Id> {
        let at = graph[class].data;
        match self.kind {
            RuleKind::Strategies => {
                let nodes = self.context.definitions(graph, at);
                for node in nodes {
                    let id = graph.add(node);
                    graph.union(class, id);
                }
            }
            RuleKind::Moves => {
                let Some(moves) = self.context.moves[at.value.index()].get(&at.layout) else {
                    return Vec::new();
                };
                for (collective, to) in moves {
                    let to = At { value: at.value, layout: *to };
                    let target = graph.add(ENode::Goal(to));
                    let id = graph.add(ENode::Move(to, *collective, [class]));
                    graph.union(target, id);
                }
            }
        }
        vec![class]
    }
}
