//! The moves of a value: its layouts, and the time that it takes to move it from one layout to
//! another.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::FxHashMap;
use shard_cost::{Hardware, PermuteTimes, RegroupTimes, collective_cost, least_permute_time};
use shard_ir::{
    AxisList, AxisSet, Collective, DimSet, Dtype, Layout, Mesh, MeshShape, Picoseconds, Reduction,
};

use crate::sums::{NEVER, Sum};

/// A layout of a value, by its place in the order of layouts; or a hub, numbered behind all
/// layouts.
pub(crate) type Node = u32;

/// Which moves a value has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Freedom {
    /// All.
    Any,
    /// Those without traffic: the value lies in host memory, and each device fetches the block that
    /// it wants.
    WithoutTraffic,
    /// None: the value is stored before any step, or it is in a strict layer and no `reshard` moves
    /// it.
    Fixed,
}

/// Everything that the moves of a value depend on besides mesh and chip. Values that are alike in
/// it share their moves.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Alike {
    /// The global sizes of its dims.
    pub(crate) sizes: Vec<u64>,
    pub(crate) dtype: Dtype,
    pub(crate) freedom: Freedom,
    /// How often the step of the value is taken: times of moves are multiplied by it.
    pub(crate) times: u64,
    /// The dims of its statistics, if it may be `partialsoftmax`.
    pub(crate) statistics: Option<DimSet>,
}

impl Alike {
    /// The layouts, sorted; `partialsoftmax` layouts stand behind all others, so that a pin of the
    /// value, which allows none of these, numbers its layouts alike.
    fn layouts(&self, mesh: &Mesh, maxima: AxisSet) -> Vec<Layout> {
        let shape = MeshShape { mesh, sizes: &self.sizes };
        let mut layouts = shape.layouts(mesh.all_axes(), maxima);
        if self.statistics.is_some() {
            layouts.extend(shape.softmax_layouts());
        }
        layouts
    }
}

/// Whether blocks of a value in a layout may change places: some axis splits it, and it is not
/// `partialsoftmax`, which has to be merged first.
fn may_regroup(layout: Layout) -> bool {
    !layout.split_axes().is_empty() && layout.softmax_axes().is_empty()
}

/// The moves of values that are alike. Times are in picoseconds, for all repetitions of the step.
#[derive(Debug)]
pub(crate) struct Moves {
    pub(crate) layouts: Vec<Layout>,
    index: FxHashMap<Layout, Node>,
    /// For each node the moves that start there and the moves that end there: the other node and
    /// the time.
    from: Vec<Vec<(Node, i64)>>,
    into: Vec<Vec<(Node, i64)>>,
}

/// If the same axes split more layouts than this, exchanges between them are not in the plan space.
const MOST_EXCHANGED: usize = 128;

/// If more layouts than this have one local shape, permutes between them go through a hub.
const MOST_PERMUTED: usize = 48;

impl Moves {
    pub(crate) fn new(mesh: &Mesh, of: &Alike, maxima: AxisSet, hardware: &Hardware) -> Moves {
        let shape = MeshShape { mesh, sizes: &of.sizes };
        let layouts = of.layouts(mesh, maxima);
        let index = layouts.iter().zip(0..).map(|(layout, node)| (*layout, node)).collect();
        let mut moves =
            Moves { from: vec![Vec::new(); layouts.len()], into: Vec::new(), layouts, index };
        if of.freedom != Freedom::Fixed {
            moves.add_collectives(shape, of, maxima, hardware);
        }
        if of.freedom == Freedom::Any {
            moves.add_regroupings(shape, of, hardware);
            moves.add_permutes(shape, of, hardware);
        }
        moves.into = vec![Vec::new(); moves.from.len()];
        for (node, arcs) in moves.from.iter_mut().enumerate() {
            for (to, time) in arcs {
                *time = time.saturating_mul(i64::try_from(of.times).unwrap_or(i64::MAX));
                moves.into[*to as usize].push((node as Node, *time));
            }
        }
        moves
    }

    /// Adds every collective but permutes and exchanges. A move without traffic over several axes
    /// is left out: it is the same as moves over one axis each, one after another.
    fn add_collectives(
        &mut self,
        shape: MeshShape<'_>,
        of: &Alike,
        maxima: AxisSet,
        hardware: &Hardware,
    ) {
        // The time of most collectives depends only on their kind, on the elements on a device and
        // on their axes.
        let mut known: FxHashMap<(std::mem::Discriminant<Collective>, u64, AxisList), i64> =
            FxHashMap::default();
        for node in 0..self.layouts.len() {
            let layout = self.layouts[node];
            let local = shape.local_elements(layout);
            let all = shape.mesh.all_axes();
            let moves = match of.statistics {
                Some(statistics) if !layout.softmax_axes().is_empty() => {
                    Collective::merges_from(shape, layout, statistics)
                }
                Some(_) | None => Collective::all_but_exchanges_from(shape, layout, all, maxima),
            };
            for (collective, to) in moves {
                let axes = collective.axes(shape.mesh, layout);
                let is_taken = match (collective.has_traffic(), of.freedom) {
                    (false, _) => axes.len() == 1,
                    (true, Freedom::Any) => !matches!(collective, Collective::Permute { .. }),
                    (true, Freedom::WithoutTraffic | Freedom::Fixed) => false,
                };
                let (true, Some(to)) = (is_taken, self.index.get(&to)) else { continue };
                let priced = || {
                    let cost = collective_cost(
                        hardware,
                        shape.mesh,
                        &collective,
                        layout,
                        &of.sizes,
                        of.dtype,
                    );
                    i64::try_from(cost.time.0).unwrap_or(i64::MAX)
                };
                let time = if is_told_by_its_axes(&collective) {
                    *known
                        .entry((std::mem::discriminant(&collective), local, axes))
                        .or_insert_with(priced)
                } else {
                    priced()
                };
                self.from[node].push((*to, time));
            }
        }
    }

    /// Adds one all-to-all, permute or exchange from each layout to each other that is split and
    /// partial over the same axes, where there are not too many of these layouts.
    fn add_regroupings(&mut self, shape: MeshShape<'_>, of: &Alike, hardware: &Hardware) {
        let mut groups: BTreeMap<[u32; 3], Vec<Node>> = BTreeMap::new();
        for (layout, node) in
            self.layouts.iter().zip(0..).filter(|(layout, _)| may_regroup(**layout))
        {
            let [sum, max] =
                [Reduction::Sum, Reduction::Max].map(|kind| bits(layout.partial(kind)));
            groups.entry([bits(layout.split_axes()), sum, max]).or_default().push(node);
        }
        let mut times = RegroupTimes::new(hardware, shape.mesh);
        for group in groups.into_values().filter(|group| group.len() > 1) {
            let local = shape.local_elements(self.layouts[group[0] as usize]);
            if group.len() > MOST_EXCHANGED {
                continue;
            }
            let layouts: Vec<Layout> =
                group.iter().map(|node| self.layouts[*node as usize]).collect();
            let moves = times.between(&layouts);
            let of_kind: Vec<_> =
                (0..times.kinds()).map(|kind| times.time_of_kind(kind, local, of.dtype)).collect();
            for (from, node) in group.iter().enumerate() {
                let others = (0..group.len()).filter(|to| *to != from);
                self.from[*node as usize]
                    .extend(others.map(|to| (group[to], whole(of_kind[moves.kind(from, to)]))));
            }
        }
    }

    /// Adds permutes between all layouts with the same local shape and the same partial axes, also
    /// where other axes split them. The permutes go through a hub where they all take the same
    /// time, and where there are too many layouts.
    fn add_permutes(&mut self, shape: MeshShape<'_>, of: &Alike, hardware: &Hardware) {
        let mut groups: BTreeMap<(Vec<u64>, [u32; 2]), Vec<Node>> = BTreeMap::new();
        for (layout, node) in
            self.layouts.iter().zip(0..).filter(|(layout, _)| may_regroup(**layout))
        {
            let partials = [Reduction::Sum, Reduction::Max].map(|kind| bits(layout.partial(kind)));
            groups.entry((shape.local_sizes(*layout), partials)).or_default().push(node);
        }
        let all_alike = hardware.network.treats_axes_alike(shape.mesh);
        let mut times = PermuteTimes::new(hardware, shape.mesh);
        for group in groups.into_values() {
            let split = |node: Node| self.layouts[node as usize].split_axes();
            let is_exchanged = || self.ways(split(group[0])) <= MOST_EXCHANGED;
            if group.iter().all(|node| split(*node) == split(group[0])) && is_exchanged() {
                continue;
            }
            let local = shape.local_elements(self.layouts[group[0] as usize]);
            if all_alike || group.len() > MOST_PERMUTED {
                self.add_hub(
                    &group,
                    whole(least_permute_time(hardware, shape.mesh, local, of.dtype)),
                );
                continue;
            }
            for (from, to) in group.iter().flat_map(|from| group.iter().map(move |to| (*from, *to)))
            {
                let (one, other) = (self.layouts[from as usize], self.layouts[to as usize]);
                if from != to {
                    self.from[from as usize]
                        .push((to, whole(times.time(one, other, local, of.dtype))));
                }
            }
        }
    }

    /// How many complete layouts are split by exactly these axes.
    fn ways(&self, split: AxisSet) -> usize {
        self.layouts.iter().filter(|l| l.is_complete() && l.split_axes() == split).count()
    }

    /// Adds a hub between some layouts: to go from one of them to another through it takes `time`.
    fn add_hub(&mut self, group: &[Node], time: i64) {
        let hub = self.from.len() as Node;
        self.from.push(group.iter().map(|node| (*node, 0)).collect());
        for node in group {
            self.from[*node as usize].push((hub, time));
        }
    }

    /// All moves: the node where it starts, the node where it ends, and the time.
    #[cfg(test)]
    pub(crate) fn arcs(&self) -> Vec<(Node, Node, i64)> {
        let of = |(from, arcs): (usize, &Vec<(Node, i64)>)| -> Vec<(Node, Node, i64)> {
            arcs.iter().map(|(to, time)| (from as Node, *to, *time)).collect()
        };
        self.from.iter().enumerate().flat_map(of).collect()
    }

    /// How many nodes there are: layouts and hubs.
    pub(crate) fn nodes(&self) -> usize {
        self.from.len()
    }

    pub(crate) fn node(&self, layout: Layout) -> Option<Node> {
        self.index.get(&layout).copied()
    }

    /// Marks every node that moves reach from a marked node.
    pub(crate) fn mark_reached(&self, marked: &mut [bool]) {
        mark(&self.from, marked);
    }

    /// Marks every node from which moves reach a marked node.
    pub(crate) fn mark_reaching(&self, marked: &mut [bool]) {
        mark(&self.into, marked);
    }

    /// Lowers each sum to the least with which its node is reached from others, by shortest paths.
    /// Times are multiplied by `scale`.
    pub(crate) fn spread(&self, sums: &mut [Sum], scale: i64) {
        shortest(&self.from, sums, scale, 1);
    }

    /// Lowers each sum to the least with which its node reaches others, by shortest paths. Times
    /// are multiplied by `scale` and divided by `share`.
    pub(crate) fn spread_back(&self, sums: &mut [Sum], scale: i64, share: i64) {
        shortest(&self.into, sums, scale, share);
    }
}

/// Whether the time of a collective follows from its kind, its axes and the elements on a device.
/// If not, it depends on where each block goes, or on statistics.
fn is_told_by_its_axes(collective: &Collective) -> bool {
    collective.terms().axes.is_some() && !matches!(collective, Collective::SoftmaxMerge { .. })
}

fn bits(axes: AxisSet) -> u32 {
    axes.iter().fold(0, |bits, axis| bits | 1 << axis.index())
}

fn whole(time: Picoseconds) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

fn mark(arcs: &[Vec<(Node, i64)>], marked: &mut [bool]) {
    let mut open: Vec<usize> = (0..marked.len()).filter(|node| marked[*node]).collect();
    while let Some(node) = open.pop() {
        for (to, _) in &arcs[node] {
            if !std::mem::replace(&mut marked[*to as usize], true) {
                open.push(*to as usize);
            }
        }
    }
}

/// Dijkstra's algorithm from all nodes that have a sum; sums may be negative, times are not.
fn shortest(arcs: &[Vec<(Node, i64)>], sums: &mut [Sum], scale: i64, share: i64) {
    let mut open: BinaryHeap<Reverse<(Sum, usize)>> = sums
        .iter()
        .enumerate()
        .filter(|(_, sum)| **sum < NEVER)
        .map(|(node, sum)| Reverse((*sum, node)))
        .collect();
    while let Some(Reverse((sum, node))) = open.pop() {
        if sum > sums[node] {
            continue;
        }
        for (to, time) in &arcs[node] {
            let through = sum + Sum::from(*time) * Sum::from(scale) / Sum::from(share);
            if through < sums[*to as usize] {
                sums[*to as usize] = through;
                open.push(Reverse((through, *to as usize)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least times from each layout to each other, by the definition of moves: all moves, each
    /// with its own price.
    fn by_definition(
        mesh: &Mesh,
        of: &Alike,
        maxima: AxisSet,
        hardware: &Hardware,
    ) -> Vec<Vec<i64>> {
        let shape = MeshShape { mesh, sizes: &of.sizes };
        let layouts = shape.layouts(mesh.all_axes(), maxima);
        let mut least = vec![vec![i64::MAX / 2; layouts.len()]; layouts.len()];
        for (i, from) in layouts.iter().enumerate() {
            least[i][i] = 0;
            for (collective, to) in Collective::all_from(shape, *from, mesh.all_axes(), maxima) {
                let cost = collective_cost(hardware, mesh, &collective, *from, &of.sizes, of.dtype);
                let Ok(j) = layouts.binary_search(&to) else { continue };
                least[i][j] = least[i][j].min(cost.time.0 as i64);
            }
        }
        for k in 0..layouts.len() {
            let via = least[k].clone();
            for from in &mut least {
                let first = from[k];
                from.iter_mut()
                    .zip(&via)
                    .for_each(|(time, rest)| *time = (*time).min(first + rest));
            }
        }
        least
    }

    #[test]
    fn moves_take_what_all_collectives_take_by_their_own_prices() {
        let mut compared = 0;
        for name in ["tpu-v4-flat", "tpu-v5e", "tpu-v4", "h100"] {
            let hardware = Hardware::built_in(name).expect("built in");
            for (axes, sizes) in [
                (vec![("x", 4), ("y", 2)], vec![64, 256]),
                (vec![("x", 2), ("y", 2), ("z", 2)], vec![4096, 8]),
                (vec![("x", 2), ("y", 3)], vec![6, 12, 8]),
            ] {
                let mesh = Mesh::new(axes).expect("a mesh");
                for maxima in [AxisSet::EMPTY, mesh.all_axes()]
                    .into_iter()
                    .take(if mesh.axes().len() > 2 { 1 } else { 2 })
                {
                    let of = Alike {
                        sizes: sizes.clone(),
                        dtype: Dtype::Bf16,
                        freedom: Freedom::Any,
                        times: 1,
                        statistics: None,
                    };
                    let moves = Moves::new(&mesh, &of, maxima, &hardware);
                    for (from, least) in
                        by_definition(&mesh, &of, maxima, &hardware).into_iter().enumerate()
                    {
                        let mut sums = vec![NEVER; moves.nodes()];
                        sums[from] = 0;
                        moves.spread(&mut sums, 1);
                        let found: Vec<i64> =
                            sums[..least.len()].iter().map(|s| *s as i64).collect();
                        assert_eq!(found, least, "{name} {mesh} from {:?}", moves.layouts[from]);
                        compared += least.len();
                    }
                }
            }
        }
        assert!(compared > 40_000, "{compared}");
    }
}
