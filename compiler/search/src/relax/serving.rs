//! What it costs at least to serve the readers of one value: to make the value, and to bring it to
//! all of its readers.
//!
//! With `k` readers, `inside[set][n]` is the least cost of serving the readers in `set` from node
//! `n` (Dreyfus and Wagner, 1971), less what they pay. `outside[set][n]` is the least cost of
//! making the value, having it at `n`, and serving all other readers. A set does not divide at a
//! hub: a move over a hub would then be counted once for several layouts, where a plan needs one
//! move for each.

use super::graph::{FAR, Graph, NodeId, Queue};

/// Up to this many readers are always priced together, however many nodes the value has.
const FEW_READERS: usize = 5;

/// More readers than this are priced one by one, which gives a smaller bound: the number of sets
/// doubles with each reader. The checker of certificates has the same number.
const MOST_READERS: usize = 8;

/// Steps that pricing more than [`FEW_READERS`] together may take: a few milliseconds.
const MOST_STEPS: usize = 1 << 21;

/// Whether the readers of a value are priced together, given the number of its nodes. In training,
/// a value that is computed again for the backward pass often has six or seven readers.
pub(crate) fn are_together(readers: usize, nodes: usize) -> bool {
    let divisions = || 3usize.pow(readers as u32).saturating_mul(nodes);
    readers <= FEW_READERS || (readers <= MOST_READERS && divisions() <= MOST_STEPS)
}

/// The costs of serving the readers of one value, with the memory that computing them needs.
#[derive(Debug, Default)]
pub(crate) struct ServingCosts {
    pub(crate) inside: Vec<Vec<i64>>,
    pub(crate) outside: Vec<Vec<i64>>,
    queue: Queue,
}

impl Clone for ServingCosts {
    /// A clone starts empty: the costs are computed anew before each use.
    fn clone(&self) -> ServingCosts {
        ServingCosts::default()
    }
}

/// The sum of two costs; [`FAR`] if one of them is.
pub(crate) fn add(a: i64, b: i64) -> i64 {
    if a >= FAR || b >= FAR { FAR } else { (a + b).clamp(-FAR, FAR) }
}

/// The least of some costs; [`FAR`] of none.
pub(super) fn least_of(costs: impl IntoIterator<Item = i64>) -> i64 {
    costs.into_iter().min().unwrap_or(FAR)
}

/// The cost of serving a reader that pays a price: the price, negated. It is [`FAR`] where the
/// reader has no use for the node, or the value cannot be had at the node.
fn earned(price: i64) -> i64 {
    if price.abs() >= FAR { FAR } else { -price }
}

impl ServingCosts {
    /// Fills `inside` for all sets of readers; `prices[i][n]` is what reader `i` pays at node `n`.
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

    /// The time of a tree of moves from one node to several that a plan can have; see
    /// [`Graph::tree_time`].
    pub(crate) fn reaching_all(&mut self, graph: &Graph, from: NodeId, wanted: &[NodeId]) -> i64 {
        graph.tree_time(from, wanted, &mut self.queue)
    }

    /// Fills `outside` for all sets; `reached` is [`ServingCosts::reached`].
    /// [`ServingCosts::insides`] must have been called for the same readers.
    pub(crate) fn outsides(&mut self, graph: &Graph, readers: usize, reached: &[i64]) {
        let all = (1usize << readers) - 1;
        self.outside.resize_with((all + 1).max(self.outside.len()), Vec::new);
        reached.clone_into(&mut self.outside[all]);
        for set in (1..all).rev() {
            let mut cost = std::mem::take(&mut self.outside[set]);
            cost.clear();
            cost.resize(reached.len(), FAR);
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
            spread_within(graph, &mut cost, &mut self.queue, true);
            self.outside[set] = cost;
        }
    }

    /// The least cost of reaching each node; `made` is the cost of making the value at each node.
    pub(crate) fn reached(&mut self, graph: &Graph, made: &[i64]) -> Vec<i64> {
        let mut cost = made.to_vec();
        spread_within(graph, &mut cost, &mut self.queue, true);
        cost
    }

    /// Whether a value can be brought to each node of `to` from some node of `from`.
    pub(crate) fn can_reach(&mut self, graph: &Graph, from: &[NodeId], to: &[NodeId]) -> bool {
        self.all_near(graph, from, to, true)
    }

    /// Whether a value can be brought from each node of `from` to some node of `to`.
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

    /// For each node, a lower bound on serving all readers from the node: each reader by itself,
    /// where each move counts for its time divided by the number of readers.
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

    /// For each node, a lower bound on serving all readers by a way through the node; `least` is
    /// the least cost of any way.
    ///
    /// `members` counts the readers of each group, where readers are served in groups. Then a way
    /// may serve one member of a group through the node and the other members elsewhere, and no set
    /// of whole groups does that. The bound follows by drawing one member of each group at random,
    /// and letting all members go its way: on average, the resulting way costs no more than the
    /// first. If the drawn member goes through the node, the resulting way costs what a set of
    /// whole groups does there; otherwise it costs at least `least`. The drawn member is a given
    /// one in one of as many cases as the group has members. So what a set of groups costs above
    /// `least` is divided by the number of members of its largest group.
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

/// By how much [`ServingCosts::through`] divides what a set of groups costs above the least: the
/// number of members of its largest group.
pub(super) fn scale(set: usize, members: Option<&[i64]>) -> i64 {
    members.map_or(1, |members| {
        let of_set = members.iter().enumerate().filter(|(group, _)| set >> group & 1 == 1);
        of_set.map(|(_, count)| *count).max().unwrap_or(1)
    })
}

/// The least average cost of `scale` ways, of which one costs `total` and no other less than
/// `least`.
pub(super) fn scaled(total: i64, scale: i64, least: i64) -> i64 {
    match scale {
        1 => total,
        _ if total >= FAR => total,
        _ => least + (total - least).div_euclid(scale),
    }
}

/// Spreads costs over the graph's own nodes. Kernel states, which come behind these, have no moves.
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
