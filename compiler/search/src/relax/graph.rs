//! The layouts of one shape and what it takes to move between them, in time alone: the graph over
//! which prices spread.

mod builder;
mod spread;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use shard_ir::{AxisSet, Dtype, Layout};

use crate::rules::moves::{Freedom, Movable};
pub(crate) use spread::Queue;
use spread::spread;

/// An infinite cost, small enough that a few of them can be added.
pub(crate) const FAR: i64 = 1 << 59;

/// A layout, or a hub, by number: layouts come first.
pub(crate) type NodeId = u32;

/// The graph of values that are [`Alike`]. Times in picoseconds.
///
/// Only moves that generate all others at no loss are in it: [`generating_moves`]; and the
/// all-to-alls, permutes and exchanges that are not two others, with hubs where many of them take
/// the same time ([`Sparse`]). Between too many layouts there are no exchanges ([`MAX_EXCHANGED`]),
/// and a hub bounds permutes from below ([`builder::MAX_PERMUTED`]).
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
    /// A graph of some arcs, each from a node to another in a time.
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
        (Graph::of_arcs(layouts, index, number as usize, &arcs, self.exact), renamed)
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
