//! One value: what it costs at least to make it and to bring it to all its readers, from every
//! point of view.
//!
//! With `k` readers, `inside[set][n]` is the least price of serving the readers in `set` from node
//! `n` (Dreyfus and Wagner), `outside[set][n]` the least price of all the rest when the readers in
//! `set` are served from `n`. No set divides at a hub: a move over it is one move for each layout
//! that it leads to.

use super::graph::{FAR, Graph, NodeId, Queue};

/// So many readers are priced together however many layouts there are.
const FEW_READERS: usize = 5;

/// More readers than this are priced one by one, which bounds less: the number of sets doubles with
/// each. The checker of certificates has the same number.
const MOST_READERS: usize = 8;

/// Steps that more than [`FEW_READERS`] may take to be priced together: a few milliseconds.
const MOST_STEPS: usize = 1 << 21;

/// Whether all readers of a value of so many nodes are priced together. Where a step of training
/// reads what its layers made again, six or seven readers are the rule.
pub(crate) fn are_together(readers: usize, nodes: usize) -> bool {
    let divisions = || 3usize.pow(readers as u32).saturating_mul(nodes);
    readers <= FEW_READERS || (readers <= MOST_READERS && divisions() <= MOST_STEPS)
}

/// Scratch and results for one value.
#[derive(Debug, Default)]
pub(crate) struct ServingCosts {
    pub(crate) inside: Vec<Vec<i64>>,
    pub(crate) outside: Vec<Vec<i64>>,
    queue: Queue,
}

impl Clone for ServingCosts {
    /// What was worked out before is of no use to prices that go another way.
    fn clone(&self) -> ServingCosts {
        ServingCosts::default()
    }
}

pub(crate) fn add(a: i64, b: i64) -> i64 {
    if a >= FAR || b >= FAR { FAR } else { (a + b).clamp(-FAR, FAR) }
}

/// What it costs to serve a reader that pays a price: the price, less. A reader without use for a
/// node is not served there, nor one at a node where the value cannot be had.
fn earned(price: i64) -> i64 {
    if price.abs() >= FAR { FAR } else { -price }
}

impl ServingCosts {
    /// Fills `inside` for all sets of readers; `prices[i][n]` is what reader `i` pays at `n`.
    pub(crate) fn insides(&mut self, graph: &Graph, nodes: usize, prices: &[impl AsRef<[i64]>]) {
        let sets = 1usize << prices.len();
        self.inside.resize_with(sets.max(self.inside.len()), Vec::new);
        for set in 1..sets {
            let mut cost = std::mem::take(&mut self.inside[set]);
            cost.clear();
            if set.count_ones() == 1 {
                let paid = prices[set.trailing_zeros() as usize].as_ref();
                cost.extend(paid[..nodes].iter().map(|p| earned(*p)));
            } else {
                cost.resize(nodes, FAR);
                let low = set & set.wrapping_neg();
                let mut part = (set - 1) & set;
                while part > 0 {
                    if part & low != 0 {
                        for ((c, a), b) in
                            cost.iter_mut().zip(&self.inside[part]).zip(&self.inside[set ^ part])
                        {
                            *c = (*c).min(add(*a, *b));
                        }
                    }
                    part = (part - 1) & set;
                }
                cost[graph.hubs()].fill(FAR);
            }
            spread_within(graph, &mut cost, &mut self.queue, false);
            self.inside[set] = cost;
        }
    }

    /// Fills `outside` for the one reader that there is, given the least cost of reaching each
    /// node.
    pub(crate) fn outside_of_one(&mut self, reached: &[i64]) {
        self.outside.resize_with(2.max(self.outside.len()), Vec::new);
        self.outside[1].clear();
        self.outside[1].extend_from_slice(reached);
    }

    /// What it takes to bring a value from one node to several others, by a tree that a plan can
    /// have.
    pub(crate) fn reaching_all(&mut self, graph: &Graph, from: NodeId, wanted: &[NodeId]) -> i64 {
        graph.tree(from, wanted, &mut self.queue)
    }

    /// Fills `outside` for all sets, given what it costs to make the value at each node; `insides`
    /// comes first.
    pub(crate) fn outsides(&mut self, graph: &Graph, readers: usize, made: &[i64]) {
        let all = (1usize << readers) - 1;
        self.outside.resize_with((all + 1).max(self.outside.len()), Vec::new);
        for set in (1..=all).rev() {
            let mut cost = std::mem::take(&mut self.outside[set]);
            cost.clear();
            if set == all {
                cost.extend_from_slice(made);
            } else {
                cost.resize(made.len(), FAR);
                let rest = all ^ set;
                let mut other = rest;
                while other > 0 {
                    for ((c, o), i) in
                        cost.iter_mut().zip(&self.outside[set | other]).zip(&self.inside[other])
                    {
                        *c = (*c).min(add(*o, *i));
                    }
                    other = (other - 1) & rest;
                }
                cost[graph.hubs()].fill(FAR);
            }
            spread_within(graph, &mut cost, &mut self.queue, true);
            self.outside[set] = cost;
        }
    }

    /// The least cost of reaching each node, given that of making the value at each.
    pub(crate) fn reached(&mut self, graph: &Graph, made: &[i64]) -> Vec<i64> {
        let mut cost = made.to_vec();
        spread_within(graph, &mut cost, &mut self.queue, true);
        cost
    }

    /// Whether a value can be brought to each of some nodes from one of others.
    pub(crate) fn can_reach(&mut self, graph: &Graph, from: &[NodeId], to: &[NodeId]) -> bool {
        self.all_near(graph, from, to, true)
    }

    /// Whether a value can be brought from each of some nodes to one of others.
    pub(crate) fn can_leave(&mut self, graph: &Graph, from: &[NodeId], to: &[NodeId]) -> bool {
        self.all_near(graph, to, from, false)
    }

    fn all_near(
        &mut self,
        graph: &Graph,
        ends: &[NodeId],
        nodes: &[NodeId],
        forward: bool,
    ) -> bool {
        let known = |node: &NodeId| if ends.contains(node) { 0 } else { FAR };
        let mut cost: Vec<i64> = (0..graph.nodes() as NodeId).map(|node| known(&node)).collect();
        spread_within(graph, &mut cost, &mut self.queue, forward);
        nodes.iter().all(|node| cost.get(at(*node)).is_some_and(|cost| *cost < FAR))
    }

    /// For each node, a bound on serving all readers from it: each on its own, at a share of the
    /// cost of each move.
    pub(crate) fn shares(
        &mut self,
        graph: &Graph,
        nodes: usize,
        prices: &[impl AsRef<[i64]>],
    ) -> Vec<i64> {
        let mut sum = vec![0i64; nodes];
        for paid in prices {
            let mut cost: Vec<i64> = paid.as_ref().iter().map(|p| earned(*p)).collect();
            graph.spread_backward(&mut cost[..graph.nodes()], &mut self.queue, prices.len() as i64);
            for (s, c) in sum.iter_mut().zip(cost) {
                *s = add(*s, c);
            }
        }
        sum
    }

    /// For each node, the least total of any way that goes through it, where the least of all ways
    /// is `least`.
    ///
    /// `members` counts the readers of each group, where readers are served in groups. A way may
    /// serve one member over a node and the others elsewhere, which no set of whole groups is. Let
    /// all members of each group follow one of them, drawn by lot: on average such a way costs no
    /// more. Where it still goes through the node, it costs what a set of groups does there, else
    /// `least`; and it goes there at least as often as the lot falls on the one member. So of a set
    /// of groups, what it costs above `least` counts once for the members of its largest.
    pub(crate) fn through(
        &self,
        readers: usize,
        nodes: usize,
        members: Option<&[i64]>,
        least: i64,
    ) -> Vec<i64> {
        let mut all = vec![FAR; nodes];
        for set in 1..1usize << readers {
            let counts = scale(set, members);
            for ((known, i), o) in all.iter_mut().zip(&self.inside[set]).zip(&self.outside[set]) {
                *known = (*known).min(scaled(add(*i, *o), counts, least));
            }
        }
        all
    }
}

/// For how much what a set of groups costs above the least counts: once for the members of its
/// largest ([`ServingCosts::through`]).
pub(super) fn scale(set: usize, members: Option<&[i64]>) -> i64 {
    members.map_or(1, |members| {
        let of_set = members.iter().enumerate().filter(|(group, _)| set >> group & 1 == 1);
        of_set.map(|(_, count)| *count).max().unwrap_or(1)
    })
}

/// What ways cost on average of which one in `scale` costs so much, and no other less than `least`.
pub(super) fn scaled(total: i64, scale: i64, least: i64) -> i64 {
    match scale {
        1 => total,
        _ if total >= FAR => total,
        _ => least + (total - least).div_euclid(scale),
    }
}

/// Dijkstra over the graph's own nodes; kernel states, which lie behind them, have no moves.
fn spread_within(graph: &Graph, cost: &mut [i64], queue: &mut Queue, forward: bool) {
    let own = &mut cost[..graph.nodes()];
    if forward {
        graph.spread_forward(own, queue);
    } else {
        graph.spread_backward(own, queue, 1);
    }
}

/// The node as an index.
pub(crate) fn at(node: NodeId) -> usize {
    node as usize
}
