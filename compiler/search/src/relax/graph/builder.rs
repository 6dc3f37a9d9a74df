//! The arcs of a graph: single moves, and hubs that stand for many.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::{
    Hardware, PermuteTimes, RegroupTimes, axes_key, collective_cost, least_permute_time,
};
use shard_ir::catalogue::Sends;
use shard_ir::{AxisSet, Collective, Dtype, Layout, MeshShape, Picoseconds, Reduction};

use super::super::regroup::Sparse;
use super::{FAR, Graph, GraphKey, NodeId};
use crate::rules::moves::{Freedom, MAX_EXCHANGED, Movable, all_to_alls, generating_moves};

/// Between more layouts of one local shape than this, permutes go through a hub that bounds their
/// times from below: the number of single permutes is the square of the number of layouts.
pub(super) const MAX_PERMUTED: usize = 48;

impl Graph {
    /// The graph of the values that are alike in `of`.
    pub(crate) fn new(times: &mut RegroupTimes<'_>, of: &GraphKey, maxima: AxisSet) -> Graph {
        Graph::once(times, &of.movable, of.dtype, maxima).done(of.times)
    }

    fn done(mut self, times: u64) -> Graph {
        for (_, cost) in self.from.arcs.iter_mut().chain(&mut self.into.arcs) {
            *cost = cost.saturating_mul(i64::try_from(times).unwrap_or(FAR)).min(FAR);
        }
        self
    }

    /// The graph of a value whose step is executed once.
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
        let mut made = GraphBuilder {
            hardware,
            shape,
            dtype,
            layouts: &layouts,
            index: &index,
            known_times: FxHashMap::default(),
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
        Graph::of_arcs(layouts, index, nodes, &arcs, exact)
    }
}

/// A graph in the making: its layouts, and its arcs so far.
struct GraphBuilder<'a> {
    hardware: &'a Hardware,
    shape: MeshShape<'a>,
    dtype: Dtype,
    layouts: &'a [Layout],
    index: &'a FxHashMap<Layout, NodeId>,
    /// Times of moves by kind, local elements and group of devices, which determine the
    /// time of all moves of a kind.
    known_times: FxHashMap<(TimeKind, u64, u64), i64>,
    /// The sets of axes that split the value in more than [`MAX_EXCHANGED`] layouts; these have no
    /// exchanges between them.
    unpaired: FxHashSet<AxisSet>,
    nodes: usize,
    arcs: Vec<(NodeId, NodeId, i64)>,
    exact: bool,
}

impl GraphBuilder<'_> {
    /// Adds the moves from a layout, and empties the list.
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
                match time_kind(&collective) {
                    Some(kind) => {
                        *self.known_times.entry((kind, local, group)).or_insert_with(priced)
                    }
                    None => priced(),
                }
            } else {
                0
            };
            self.arcs.push((from as NodeId, *to, cost));
        }
    }

    /// Adds all-to-alls, exchanges and permutes between layouts that the same axes split. Between
    /// more than [`MAX_EXCHANGED`] layouts only all-to-alls are added.
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
            // The moves between layouts are the same whatever axes the layouts are partial over.
            let sparse = sparse.entry(layouts[0].split_axes()).or_insert_with(|| {
                let moves = times.between(&layouts);
                let time = |kind| arc_cost(times.time_of_kind(kind, local, self.dtype));
                let kind = |from, to| moves.kind(from, to);
                Sparse::new(group.len(), times.kinds(), kind, time)
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

    /// Adds permutes between layouts that different axes of the same sizes split, and between those
    /// layouts of `unpaired` that `add_regroupings` gave no permutes.
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
                // Where all permutes take the same time, the least time is their time.
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

/// Whether the devices may exchange the blocks of a value in a layout: some axis splits the value,
/// and the value is no attention over a part of the keys, which is merged before it moves so.
fn may_regroup(layout: Layout) -> bool {
    !layout.split_axes().is_empty() && layout.softmax_axes().is_empty()
}

fn arc_cost(time: Picoseconds) -> i64 {
    i64::try_from(time.0).unwrap_or(FAR).min(FAR)
}

/// Moves of one kind take the same time at the same group and local size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum TimeKind {
    Gathering,
    Combining,
    AroundTwice,
    Across,
    Blocks,
    Nothing,
}

/// The kind of a move; `None` where its time depends on the size of the statistics, too.
fn time_kind(collective: &Collective) -> Option<TimeKind> {
    Some(match (collective.row().sends, collective.row().combines) {
        // Whether the move is along one dim or several does not change its time.
        (Sends::Around, false) => TimeKind::Gathering,
        (Sends::Around, true) => TimeKind::Combining,
        (Sends::AroundTwice, _) => TimeKind::AroundTwice,
        (Sends::Across, _) => TimeKind::Across,
        (Sends::Blocks | Sends::Lacking, _) => TimeKind::Blocks,
        (Sends::Nothing, _) => TimeKind::Nothing,
        (Sends::Weighted, _) => return None,
    })
}
