//! The layouts of a value and the times of moves between them: the graph over which prices spread.

mod builder;
mod spread;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use shard_ir::{AxisSet, Dtype, Layout};

use crate::rules::moves::{Freedom, Movable};
pub(crate) use spread::Queue;
use spread::spread;

/// An infinite cost. It is small enough that a few of them can be added.
pub(crate) const FAR: i64 = 1 << 59;

/// The number of a layout or a hub in a graph; layouts come first. In a factor, kernel states have
/// the numbers behind both.
pub(crate) type NodeId = u32;

/// The graph that all values of one [`GraphKey`] share. Times are in picoseconds, or in ticks.
///
/// The graph has single moves such that every other move takes as long as a way over them: the
/// moves of [`generating_moves`](crate::rules::moves::generating_moves), and those all-to-alls,
/// permutes and exchanges that are not two other moves. Where many moves take the same time, a hub
/// stands for them ([`Sparse`](super::regroup::Sparse)). Above
/// [`MAX_EXCHANGED`](crate::rules::moves::MAX_EXCHANGED) layouts there are no exchanges, and above
/// [`builder::MAX_PERMUTED`] a hub bounds the time of permutes from below.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The layouts in ascending order; behind them, also ascending, the layouts in which the value
    /// is the attention over a part of the keys.
    pub(crate) layouts: Arc<Vec<Layout>>,
    index: Arc<FxHashMap<Layout, NodeId>>,
    /// Computed when it is first asked for, and shared with the graphs that differ in their times.
    busy_axes: OnceLock<Arc<AxesOfMoves>>,
    nodes: usize,
    from: ArcRows,
    into: ArcRows,
    /// Whether all times are those of real moves; otherwise some are only lower bounds.
    pub(crate) exact: bool,
}

/// All that the graph of a value depends on, beside the mesh, the hardware and the partials of its
/// program. The graph is made from this alone, so that values whose moves differ never share one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GraphKey {
    /// The sizes of the value, and which moves of it are allowed.
    pub(crate) movable: Movable,
    pub(crate) dtype: Dtype,
    /// How often the step that makes the value is executed.
    pub(crate) times: u64,
}

impl GraphKey {
    /// The key of a scalar without moves, whose graph stands in for those of values that need none.
    pub(crate) fn nothing() -> GraphKey {
        let scalar = Movable { sizes: Vec::new(), freedom: Freedom::Fixed, statistics: None };
        GraphKey { movable: scalar, dtype: Dtype::F32, times: 0 }
    }
}

/// Which arcs of each node an array has: those that begin there, or those that end there.
#[derive(Clone, Copy)]
enum Direction {
    From,
    Into,
}

/// For each arc, the mesh axes that its move surely keeps busy.
#[derive(Debug)]
struct AxesOfMoves {
    /// The sets of axes, each once.
    axes: Vec<AxisSet>,
    /// For each direction and arc, the index of its set in `axes`.
    of_arcs: [Vec<u32>; 2],
}

/// The arcs of all nodes in one array.
#[derive(Debug, Default)]
struct ArcRows {
    /// For each node, the index of its first arc; shared with the graphs that differ in their
    /// times.
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
    /// The graph of these arcs, given as `(from, to, time)`.
    fn of_arcs(
        layouts: Vec<Layout>,
        index: FxHashMap<Layout, NodeId>,
        nodes: usize,
        arcs: &[(NodeId, NodeId, i64)],
        exact: bool,
    ) -> Graph {
        let back: Vec<(NodeId, NodeId, i64)> = arcs.iter().map(|(a, b, c)| (*b, *a, *c)).collect();
        Graph {
            from: ArcRows::new(nodes, arcs),
            into: ArcRows::new(nodes, &back),
            layouts: Arc::new(layouts),
            index: Arc::new(index),
            busy_axes: OnceLock::new(),
            nodes,
            exact,
        }
    }

    /// The graph of the nodes for which `keep` says yes, and for each node its new number, if it is
    /// kept.
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
        (Graph::of_arcs(layouts, index, number as usize, &arcs, self.exact), renamed)
    }

    /// The number of arcs.
    pub(crate) fn arcs(&self) -> usize {
        self.from.arcs.len()
    }

    /// The times of the arcs.
    pub(crate) fn times(&self) -> impl Iterator<Item = i64> {
        self.from.arcs.iter().map(|(_, time)| *time)
    }

    /// The same graph, each arc `factor` times as long.
    pub(crate) fn longer(&self, factor: i64) -> Graph {
        self.with_times(&|_, time| time.saturating_mul(factor).min(FAR))
    }

    /// The same graph, each arc `count` times as long. `count` is given the mesh axes that the move
    /// surely keeps busy: those over which it gathers or combines. For a regrouping or an arc of a
    /// hub the set is empty, since these may stand for several moves.
    pub(crate) fn counted(&self, count: &dyn Fn(AxisSet) -> i64) -> Graph {
        let over = self.busy_axes.get_or_init(|| self.axes_of_moves());
        let count: Vec<i64> = over.axes.iter().map(|axes| count(*axes)).collect();
        self.with_times(&|(direction, at), time| {
            let kind = over.of_arcs[direction as usize][at];
            time.saturating_mul(count[kind as usize]).min(FAR)
        })
    }

    /// The same graph with other times; `time` is given the direction, the index and the old time
    /// of each arc.
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
            busy_axes: self.busy_axes.clone(),
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

    /// The axes over which a move gathers or combines; empty where the move regroups, or leads over
    /// a hub.
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

    /// The node of a layout, if the graph has that layout.
    pub(crate) fn node(&self, layout: Layout) -> Option<NodeId> {
        self.index.get(&layout).copied()
    }

    /// The number of nodes: layouts and hubs.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// The nodes that are hubs.
    pub(crate) fn hubs(&self) -> Range<usize> {
        self.layouts.len()..self.nodes
    }

    /// Lowers the cost of each node to the least of reaching that node from one that has a cost.
    pub(crate) fn spread_forward(&self, cost: &mut [i64], queue: &mut Queue) {
        spread(&self.from, cost, queue, |arc| arc);
    }

    /// The same, where a move counts for its time divided by `share`.
    pub(crate) fn spread_forward_at(&self, cost: &mut [i64], queue: &mut Queue, share: i64) {
        spread(&self.from, cost, queue, |arc| arc / share);
    }

    /// The time of a tree of moves from one layout to several: each wanted layout in turn, the
    /// nearest first, is reached from the nearest layout that the value has been in by then. The
    /// tree takes hardly more than the least, and never less. It does not branch at a hub: one
    /// permute would then be counted for two.
    pub(crate) fn tree_time(&self, from: NodeId, wanted: &[NodeId], queue: &mut Queue) -> i64 {
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
            // Walks the way back; no node is on it twice.
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

    /// Lowers the cost of each node to the least of reaching, from that node, one that has a cost;
    /// a move counts for its time divided by `share`.
    pub(crate) fn spread_backward(&self, cost: &mut [i64], queue: &mut Queue, share: i64) {
        match share {
            1 => spread(&self.into, cost, queue, |arc| arc),
            _ => spread(&self.into, cost, queue, |arc| arc / share),
        }
    }
}
