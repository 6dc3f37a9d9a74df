//! The layouts of one shape and what it takes to move between them, in time alone: the graph over
//! which prices spread.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::{
    Hardware, PermuteTimes, RegroupTimes, axes_key, collective_cost, least_permute_time,
};
use shard_ir::catalogue::Sends;
use shard_ir::{AxisSet, Collective, Dtype, Layout, MeshShape, Picoseconds, Reduction};

use super::regroup::Sparse;
use crate::rules::moves::{Freedom, MAX_EXCHANGED, Movable, all_to_alls, generating_moves};

/// An infinite cost, small enough that a few of them can be added.
pub(crate) const FAR: i64 = 1 << 59;

/// A layout, or a hub, by number: layouts come first.
pub(crate) type NodeId = u32;

/// The graph of values that are [`Alike`]. Times in picoseconds.
///
/// Only moves that generate all others at no loss are in it: [`generating_moves`]; and the
/// all-to-alls, permutes and exchanges that are not two others, with hubs where many of them take
/// the same time ([`Sparse`]). Between too many layouts there are no exchanges ([`MAX_EXCHANGED`]),
/// and a hub bounds permutes from below ([`MAX_PERMUTED`]).
#[derive(Debug)]
pub(crate) struct Graph {
    /// The layouts, sorted; those of an attention over a part of the keys behind the others.
    pub(crate) layouts: Arc<Vec<Layout>>,
    index: Arc<FxHashMap<Layout, NodeId>>,
    /// Worked out when it is first asked for; graphs with other times have it in common.
    over: OnceLock<Arc<AxesOfMoves>>,
    nodes: usize,
    from: ArcRows,
    into: ArcRows,
    /// Whether the times are those of moves, and not only bounds on them.
    pub(crate) exact: bool,
}

/// Layouts of one local shape, beyond which permutes between them go through a hub that bounds them
/// from below: their number is the square of this.
const MAX_PERMUTED: usize = 48;

/// All that the graph of a value depends on, beside the mesh, the hardware and the partials of its
/// program. It is made from this alone, so that no value has the graph of another whose moves
/// differ.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Alike {
    /// Its sizes, and which moves there are.
    pub(crate) movable: Movable,
    pub(crate) dtype: Dtype,
    /// How often its step is taken.
    pub(crate) times: u64,
}

impl Alike {
    /// A number that is never made: what has no graph of its own has this one's.
    pub(crate) fn nothing() -> Alike {
        let scalar = Movable { sizes: Vec::new(), freedom: Freedom::Fixed, statistics: None };
        Alike { movable: scalar, dtype: Dtype::F32, times: 0 }
    }
}

/// Which arcs are meant: those from each node, or those into it.
#[derive(Clone, Copy)]
enum Direction {
    From,
    Into,
}

/// The mesh axes that each move is known to keep busy.
#[derive(Debug)]
struct AxesOfMoves {
    /// Each of them once.
    axes: Vec<AxisSet>,
    /// For each direction and arc, which of these.
    of_arcs: [Vec<u32>; 2],
}

/// Arcs by node, in one array.
#[derive(Debug, Default)]
struct ArcRows {
    /// Where the arcs of each node begin; graphs with other times have it in common.
    start: Arc<Vec<u32>>,
    arcs: Vec<(NodeId, i64)>,
}

impl ArcRows {
    fn new(nodes: usize, arcs: &[(NodeId, NodeId, i64)]) -> ArcRows {
        let mut start = vec![0u32; nodes + 1];
        for (a, _, _) in arcs {
            start[*a as usize + 1] += 1;
        }
        for i in 0..nodes {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut rows = vec![(0, 0); arcs.len()];
        for (a, b, cost) in arcs {
            rows[next[*a as usize] as usize] = (*b, *cost);
            next[*a as usize] += 1;
        }
        ArcRows { start: Arc::new(start), arcs: rows }
    }

    fn row(&self, node: NodeId) -> &[(NodeId, i64)] {
        &self.arcs[self.start[node as usize] as usize..self.start[node as usize + 1] as usize]
    }
}

impl Graph {
    /// The graph of what is alike in this.
    pub(crate) fn new(times: &mut RegroupTimes<'_>, of: &Alike, maxima: AxisSet) -> Graph {
        Graph::once(times, &of.movable, of.dtype, maxima).done(of.times)
    }

    fn done(mut self, times: u64) -> Graph {
        for (_, cost) in self.from.arcs.iter_mut().chain(&mut self.into.arcs) {
            *cost = cost.saturating_mul(i64::try_from(times).unwrap_or(FAR)).min(FAR);
        }
        self
    }

    /// The graph of a value whose step is taken once.
    fn once(
        times: &mut RegroupTimes<'_>,
        movable: &Movable,
        dtype: Dtype,
        maxima: AxisSet,
    ) -> Graph {
        let Movable { sizes, freedom, statistics } = movable;
        let (hardware, mesh) = (times.hardware(), times.mesh());
        let shape = MeshShape { mesh, sizes };
        let layouts = movable.layouts(mesh, mesh.all_axes(), maxima);
        let index: FxHashMap<Layout, NodeId> =
            layouts.iter().enumerate().map(|(i, l)| (*l, i as NodeId)).collect();
        let arcs = Vec::with_capacity(layouts.len() * 16);
        let known = FxHashMap::default();
        let mut made = GraphBuilder {
            hardware,
            shape,
            dtype,
            layouts: &layouts,
            index: &index,
            known,
            unpaired: FxHashSet::default(),
            nodes: layouts.len(),
            arcs,
            exact: true,
        };
        if *freedom != Freedom::Fixed {
            let adds_up = hardware.network.adds_up(mesh);
            let mut moves = Vec::new();
            for (from, layout) in layouts.iter().enumerate() {
                match statistics {
                    Some(statistics) if !layout.softmax_axes().is_empty() => {
                        moves.extend(Collective::merges_from(shape, *layout, *statistics));
                    }
                    _ => generating_moves(
                        shape,
                        *layout,
                        mesh.all_axes(),
                        maxima,
                        adds_up,
                        &mut moves,
                    ),
                }
                moves.retain(|(collective, _)| {
                    *freedom == Freedom::Any || !collective.has_traffic()
                });
                made.add(from, &mut moves);
            }
        }
        if *freedom == Freedom::Any {
            made.add_regroupings(times);
            made.add_permutes();
        }
        let GraphBuilder { nodes, arcs, exact, .. } = made;
        let backward: Vec<(NodeId, NodeId, i64)> =
            arcs.iter().map(|(a, b, c)| (*b, *a, *c)).collect();
        Graph {
            from: ArcRows::new(nodes, &arcs),
            into: ArcRows::new(nodes, &backward),
            layouts: Arc::new(layouts),
            index: Arc::new(index),
            over: OnceLock::new(),
            nodes,
            exact,
        }
    }

    /// The graph of some of the nodes alone, and the new number of each node that is kept.
    pub(crate) fn restricted(&self, keep: &[bool]) -> (Graph, Vec<Option<NodeId>>) {
        let mut number = 0;
        let renamed: Vec<Option<NodeId>> = keep[..self.nodes]
            .iter()
            .map(|keep| {
                number += NodeId::from(*keep);
                keep.then(|| number - 1)
            })
            .collect();
        let mut arcs = Vec::new();
        for (from, new_from) in renamed.iter().enumerate() {
            let Some(new_from) = new_from else { continue };
            for (to, cost) in self.from.row(from as NodeId) {
                if let Some(new_to) = renamed[*to as usize] {
                    arcs.push((*new_from, new_to, *cost));
                }
            }
        }
        let kept = self.layouts.iter().zip(&renamed).filter(|(_, new)| new.is_some());
        let layouts: Vec<Layout> = kept.map(|(l, _)| *l).collect();
        let index = layouts.iter().enumerate().map(|(i, l)| (*l, i as NodeId)).collect();
        let backward: Vec<(NodeId, NodeId, i64)> =
            arcs.iter().map(|(a, b, c)| (*b, *a, *c)).collect();
        let nodes = number as usize;
        let (from, into) = (ArcRows::new(nodes, &arcs), ArcRows::new(nodes, &backward));
        let (layouts, index) = (Arc::new(layouts), Arc::new(index));
        let over = OnceLock::new();
        let graph = Graph { from, into, layouts, index, over, nodes, exact: self.exact };
        (graph, renamed)
    }

    /// How many moves it has.
    pub(crate) fn arcs(&self) -> usize {
        self.from.arcs.len()
    }

    /// The times of its moves.
    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        self.from.arcs.iter().map(|(_, time)| *time)
    }

    /// The same with each move so many times as long.
    pub(crate) fn longer(&self, factor: i64) -> Graph {
        self.with_times(&|_, time| time.saturating_mul(factor).min(FAR))
    }

    /// The same with each move as long as it counts for, which `count` says of the mesh axes that
    /// it is known to keep busy: those over which it gathers or combines. Of other moves, which may
    /// stand for several, it is asked for none.
    pub(crate) fn counted(&self, count: &dyn Fn(AxisSet) -> i64) -> Graph {
        let over = self.over.get_or_init(|| self.axes_of_moves());
        let count: Vec<i64> = over.axes.iter().map(|axes| count(*axes)).collect();
        self.with_times(&|(direction, at), time| {
            let kind = over.of_arcs[direction as usize][at];
            time.saturating_mul(count[kind as usize]).min(FAR)
        })
    }

    /// The same with other times, given the direction and the number of each arc and its time.
    fn with_times(&self, time: &dyn Fn((Direction, usize), i64) -> i64) -> Graph {
        let rows = |rows: &ArcRows, direction: Direction| {
            let arcs = rows.arcs.iter().enumerate();
            let arcs = arcs.map(|(at, (to, old))| (*to, time((direction, at), *old))).collect();
            ArcRows { start: Arc::clone(&rows.start), arcs }
        };
        Graph {
            from: rows(&self.from, Direction::From),
            into: rows(&self.into, Direction::Into),
            layouts: Arc::clone(&self.layouts),
            index: Arc::clone(&self.index),
            over: self.over.clone(),
            nodes: self.nodes,
            exact: self.exact,
        }
    }

    fn axes_of_moves(&self) -> Arc<AxesOfMoves> {
        let mut axes = Vec::new();
        let mut known: FxHashMap<AxisSet, u32> = FxHashMap::default();
        let mut of_rows = |rows: &ArcRows, direction: Direction| {
            let mut of_arcs = Vec::with_capacity(rows.arcs.len());
            for node in 0..self.nodes as NodeId {
                for (other, _) in rows.row(node) {
                    let over = match direction {
                        Direction::From => self.surely_over(node, *other),
                        Direction::Into => self.surely_over(*other, node),
                    };
                    of_arcs.push(*known.entry(over).or_insert_with(|| {
                        axes.push(over);
                        axes.len() as u32 - 1
                    }));
                }
            }
            of_arcs
        };
        let of_arcs = [of_rows(&self.from, Direction::From), of_rows(&self.into, Direction::Into)];
        Arc::new(AxesOfMoves { axes, of_arcs })
    }

    /// The axes over which a move gathers or combines; none where it regroups, or leads over a hub.
    fn surely_over(&self, from: NodeId, to: NodeId) -> AxisSet {
        let ends = (self.layouts.get(from as usize), self.layouts.get(to as usize));
        let (Some(from), Some(to)) = ends else { return AxisSet::EMPTY };
        let combined = from.partial_axes().difference(to.partial_axes());
        let (split, left) = (from.split_axes(), to.split_axes());
        match (combined.is_empty(), split.difference(left).is_empty()) {
            (false, true) => combined,
            (true, false) if left.difference(split).is_empty() => split.difference(left),
            (true | false, true | false) => AxisSet::EMPTY,
        }
    }

    /// The number of a layout.
    pub(crate) fn node(&self, layout: Layout) -> Option<NodeId> {
        self.index.get(&layout).copied()
    }

    /// Layouts and hubs.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Where the hubs are among the nodes.
    pub(crate) fn hubs(&self) -> Range<usize> {
        self.layouts.len()..self.nodes
    }

    /// The least cost of reaching each node from those that have one.
    pub(crate) fn spread_forward(&self, cost: &mut [i64], queue: &mut Queue) {
        spread(&self.from, cost, queue, |arc| arc);
    }

    /// The same at a share of the cost of each move.
    pub(crate) fn spread_forward_at(&self, cost: &mut [i64], queue: &mut Queue, share: i64) {
        spread(&self.from, cost, queue, |arc| arc / share);
    }

    /// What it takes to bring a value from one layout to several: each in turn, the nearest first,
    /// from the nearest layout that it has been in by then. Hardly more than the least, and never
    /// less: to branch at a hub would pay one permute for two.
    pub(crate) fn tree(&self, from: NodeId, wanted: &[NodeId], queue: &mut Queue) -> i64 {
        let (mut total, mut left) = (0, wanted.to_vec());
        let mut had = vec![false; self.nodes];
        had[from as usize] = true;
        while !left.is_empty() {
            let mut cost: Vec<i64> = had.iter().map(|had| if *had { 0 } else { FAR }).collect();
            self.spread_forward(&mut cost, queue);
            let Some(nearest) = (0..left.len()).min_by_key(|i| cost[left[*i] as usize]) else {
                break;
            };
            let mut at = left.swap_remove(nearest);
            if cost[at as usize] >= FAR {
                return FAR;
            }
            total += cost[at as usize];
            // Back along the way, which has no node twice.
            for _ in 0..self.nodes {
                if had[at as usize] {
                    break;
                }
                had[at as usize] = (at as usize) < self.layouts.len();
                let before = self
                    .into
                    .row(at)
                    .iter()
                    .find(|(n, arc)| cost[*n as usize] + arc == cost[at as usize]);
                let Some((before, _)) = before else { break };
                at = *before;
            }
        }
        total
    }

    /// The least cost of reaching, from each node, those that have one, at a share of the cost of
    /// each move.
    pub(crate) fn spread_backward(&self, cost: &mut [i64], queue: &mut Queue, share: i64) {
        match share {
            1 => spread(&self.into, cost, queue, |arc| arc),
            _ => spread(&self.into, cost, queue, |arc| arc / share),
        }
    }
}

/// The queue of [`spread`], kept between uses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The nodes to start from and their costs, as they stand and nearly in order.
    given: Vec<(i64, NodeId)>,
    ordered: Vec<(i64, NodeId)>,
    next: VecDeque<NodeId>,
    /// Whether a node is in `next`.
    waits: Vec<bool>,
}

/// Lowers the cost of each node to the least of reaching it from those that have one; costs may be
/// negative to start with, arcs are not.
///
/// The nodes to start from are taken nearly in order of cost, then those whose cost fell, the first
/// to fall first and those reached for nothing at once. That looks at a fifth more arcs than taking
/// always the nearest (Dijkstra): most costs fall several times, but what it takes to keep the
/// nearest at hand is more than that.
fn spread(rows: &ArcRows, cost: &mut [i64], queue: &mut Queue, share: impl Fn(i64) -> i64) {
    let Queue { given, ordered, next, waits } = queue;
    given.clear();
    given.extend(cost.iter().copied().zip(0..).filter(|(cost, _)| *cost < FAR));
    order_nearly(given, ordered);
    next.clear();
    next.extend(ordered.iter().map(|(_, node)| *node));
    waits.clear();
    waits.extend(cost.iter().map(|cost| *cost < FAR));
    while let Some(node) = next.pop_front() {
        waits[node as usize] = false;
        let near = cost[node as usize];
        for (to, arc) in rows.row(node) {
            let (through, known) = (near + share(*arc), &mut cost[*to as usize]);
            if through < *known {
                *known = through;
                let waits = &mut waits[*to as usize];
                match (*waits, through == near) {
                    (true, _) => continue,
                    (false, true) => next.push_front(*to),
                    (false, false) => next.push_back(*to),
                }
                *waits = true;
            }
        }
    }
}

/// Fewer nodes than this are sorted.
const FEW_TO_SORT: usize = 64;

/// Costs are told apart by so many steps between the least and the most.
const STEPS: usize = 256;

/// Puts nodes in order of cost, those of nearly the same cost as they stand: [`spread`] comes to
/// the same costs from any order, and to put them wholly in order takes longer than it saves.
fn order_nearly(given: &mut Vec<(i64, NodeId)>, ordered: &mut Vec<(i64, NodeId)>) {
    if given.len() < FEW_TO_SORT {
        given.sort_unstable();
        std::mem::swap(given, ordered);
        return;
    }
    let (least, most) =
        given.iter().fold((FAR, -FAR), |(low, high), (cost, _)| (low.min(*cost), high.max(*cost)));
    // Powers of two: a shift for each node and no division.
    let shift = (64 - ((most - least) as u64).leading_zeros()).saturating_sub(STEPS.ilog2());
    let step = |cost: i64| ((cost - least) >> shift) as usize;
    let mut begin = [0u32; STEPS + 1];
    for (cost, _) in given.iter() {
        begin[step(*cost) + 1] += 1;
    }
    for at in 0..STEPS {
        begin[at + 1] += begin[at];
    }
    ordered.clear();
    ordered.resize(given.len(), (0, 0));
    for node in given.iter() {
        let at = &mut begin[step(node.0)];
        ordered[*at as usize] = *node;
        *at += 1;
    }
}

/// The arcs of a graph that is being made.
struct GraphBuilder<'a> {
    hardware: &'a Hardware,
    shape: MeshShape<'a>,
    dtype: Dtype,
    layouts: &'a [Layout],
    index: &'a FxHashMap<Layout, NodeId>,
    /// What a move costs depends on its kind, the local size and the group alone, so few are really
    /// worked out.
    known: FxHashMap<(u8, u64, u64), i64>,
    /// Axes that split the value in so many ways that there are no exchanges between them.
    unpaired: FxHashSet<AxisSet>,
    nodes: usize,
    arcs: Vec<(NodeId, NodeId, i64)>,
    exact: bool,
}

impl GraphBuilder<'_> {
    /// Adds moves from a layout, each over the axes of a group.
    fn add(&mut self, from: usize, moves: &mut Vec<(Collective, Layout)>) {
        let (layout, MeshShape { mesh, sizes }) = (self.layouts[from], self.shape);
        let local = self.shape.local_elements(layout);
        for (collective, to) in moves.drain(..) {
            let Some(to) = self.index.get(&to) else { continue };
            let cost = if collective.has_traffic() {
                let (hardware, dtype) = (self.hardware, self.dtype);
                let priced = || {
                    let cost = collective_cost(hardware, mesh, &collective, layout, sizes, dtype);
                    arc_cost(cost.time)
                };
                let group = axes_key(hardware, mesh, &collective.axes(mesh, layout));
                match kind(&collective) {
                    Some(kind) => *self.known.entry((kind, local, group)).or_insert_with(priced),
                    None => priced(),
                }
            } else {
                0
            };
            self.arcs.push((from as NodeId, *to, cost));
        }
    }

    /// Adds all-to-alls, exchanges, and permutes between layouts that the same axes split; of too
    /// many layouts all-to-alls alone.
    fn add_regroupings(&mut self, times: &mut RegroupTimes<'_>) {
        let mut groups: BTreeMap<(AxisSet, AxisSet, AxisSet), Vec<NodeId>> = BTreeMap::new();
        for (layout, node) in
            self.layouts.iter().zip(0..).filter(|(layout, _)| may_regroup(**layout))
        {
            let partials = (layout.partial(Reduction::Sum), layout.partial(Reduction::Max));
            groups.entry((layout.split_axes(), partials.0, partials.1)).or_default().push(node);
        }
        let mut sparse: FxHashMap<AxisSet, Sparse> = FxHashMap::default();
        for group in groups.into_values().filter(|group| group.len() > 1) {
            let layouts: Vec<Layout> =
                group.iter().map(|node| self.layouts[*node as usize]).collect();
            let local = self.shape.local_elements(layouts[0]);
            if group.len() > MAX_EXCHANGED {
                let mut moves = Vec::new();
                for node in &group {
                    all_to_alls(self.shape, self.layouts[*node as usize], &mut moves);
                    self.add(*node as usize, &mut moves);
                }
                self.unpaired.insert(layouts[0].split_axes());
                continue;
            }
            // Layouts that are partial over other axes have the same moves between them.
            let sparse = sparse.entry(layouts[0].split_axes()).or_insert_with(|| {
                let moves = times.between(&layouts);
                let of_kind: Vec<i64> =
                    times.times(local, self.dtype).into_iter().map(arc_cost).collect();
                Sparse::new(group.len(), &of_kind, |from, to| moves.kind(from, to))
            });
            self.arcs.extend(
                sparse.arcs.iter().map(|(from, to, time)| (group[*from], group[*to], *time)),
            );
            for hub in &sparse.hubs {
                self.add_hub(
                    hub.time,
                    hub.from.iter().map(|from| group[*from]),
                    hub.to.iter().map(|to| group[*to]),
                );
            }
        }
    }

    /// Adds permutes between layouts that other axes of the same sizes split, and those that have
    /// no arcs of their own yet.
    fn add_permutes(&mut self) {
        let mut groups: BTreeMap<(Vec<u64>, AxisSet, AxisSet), Vec<NodeId>> = BTreeMap::new();
        for (layout, node) in
            self.layouts.iter().zip(0..).filter(|(layout, _)| may_regroup(**layout))
        {
            let partials = (layout.partial(Reduction::Sum), layout.partial(Reduction::Max));
            groups
                .entry((self.shape.local_sizes(*layout), partials.0, partials.1))
                .or_default()
                .push(node);
        }
        let split = |node: &NodeId| self.layouts[*node as usize].split_axes();
        let is_known = |node: &NodeId, other: &NodeId| {
            split(node) == split(other) && !self.unpaired.contains(&split(node))
        };
        let groups = groups
            .into_values()
            .filter(|group| group.iter().any(|node| !is_known(node, &group[0])));
        let groups: Vec<Vec<NodeId>> = groups.filter(|group| group.len() > 1).collect();
        let all_alike = self.hardware.network.treats_axes_alike(self.shape.mesh);
        let mut times = PermuteTimes::new(self.hardware, self.shape.mesh);
        for group in groups {
            let local = self.shape.local_elements(self.layouts[group[0] as usize]);
            if all_alike || group.len() > MAX_PERMUTED {
                // Where all permutes take the same time, this is it.
                let least =
                    arc_cost(least_permute_time(self.hardware, self.shape.mesh, local, self.dtype));
                self.add_hub(least, group.iter().copied(), group.iter().copied());
                self.exact &= all_alike;
                continue;
            }
            for (from, to) in group.iter().flat_map(|from| group.iter().map(move |to| (*from, *to)))
            {
                let (one, other) = (self.layouts[from as usize], self.layouts[to as usize]);
                if one.split_axes() != other.split_axes()
                    || (from != to && self.unpaired.contains(&one.split_axes()))
                {
                    self.arcs.push((from, to, arc_cost(times.time(one, other, local, self.dtype))));
                }
            }
        }
    }

    fn add_hub(
        &mut self,
        time: i64,
        from: impl Iterator<Item = NodeId>,
        to: impl Iterator<Item = NodeId>,
    ) {
        let hub = self.nodes as NodeId;
        self.nodes += 1;
        self.arcs.extend(from.map(|node| (node, hub, time)));
        self.arcs.extend(to.map(|node| (hub, node, 0)));
    }
}

/// Whether blocks of a value in a layout may change places: something splits it, and it need not be
/// merged first.
fn may_regroup(layout: Layout) -> bool {
    !layout.split_axes().is_empty() && layout.softmax_axes().is_empty()
}

fn arc_cost(time: Picoseconds) -> i64 {
    i64::try_from(time.0).unwrap_or(FAR).min(FAR)
}

/// Moves of a kind take the same for the same group and local size; `None` where the statistics
/// count as well.
fn kind(collective: &Collective) -> Option<u8> {
    Some(match (collective.row().sends, collective.row().combines) {
        // Along one dim or several, what counts is the group.
        (Sends::Around, false) => 0,
        (Sends::Around, true) => 1,
        (Sends::AroundTwice, _) => 2,
        (Sends::Across, _) => 3,
        (Sends::Blocks | Sends::Lacking, _) => 4,
        (Sends::Nothing, _) => 5,
        (Sends::Weighted, _) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_ordered_to_a_step_and_none_is_lost() {
        for count in [1, FEW_TO_SORT - 1, FEW_TO_SORT, 1000] {
            for most in [0, 1, 300, 1 << 40, FAR - 1] {
                // Of both signs, and not in order.
                let cost = |node: NodeId| (i64::from(node) * 7919 % 1009 - 504) * (most / 504);
                let mut given: Vec<(i64, NodeId)> =
                    (0..count as NodeId).map(|node| (cost(node), node)).collect();
                let (all, mut ordered) = (given.clone(), Vec::new());
                order_nearly(&mut given, &mut ordered);
                let range = |(low, high): (i64, i64), (cost, _): &(i64, NodeId)| {
                    (low.min(*cost), high.max(*cost))
                };
                let (low, high) = all.iter().fold((FAR, -FAR), range);
                let step = (high - low) / (STEPS as i64 / 2) + 1;
                assert!(ordered.iter().is_sorted_by(|a, b| a.0 < b.0 + step), "{count} {most}");
                ordered.sort_unstable_by_key(|(_, node)| *node);
                assert_eq!(ordered, all);
            }
        }
    }
}
