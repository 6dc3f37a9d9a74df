//! The plan that prices favour, and its time.

use shard_ir::ValueId;

use super::factors::{Factors, ValueUse};
use super::graph::{FAR, Graph, NodeId};
use super::kept::KeptCosts;
use super::prices::{Prices, due, use_index, uses_of};
use super::serving::{add, at};

/// Up to this many layouts of a value are reached by the best tree of moves.
const FEW_WANTED: usize = 5;

/// For so many lists of wanted nodes of a value, the times of bringing the value to them are kept.
const FEW_KEPT: usize = 4;

impl Prices {
    /// The time of the plan that takes, value by value from the results back, the strategy that is
    /// cheapest at the prices; called after a sweep up. With `beside`, the price of an operand is
    /// the cost of reaching it from the layouts in which other readers have chosen to have it;
    /// without, each reader chooses by its own prices alone.
    pub(super) fn favoured(
        &mut self,
        problem: &Factors,
        beside: bool,
        kept: &mut KeptCosts,
    ) -> i64 {
        let mut wanted: Vec<Vec<NodeId>> = vec![Vec::new(); problem.factors.len()];
        let want = |wanted: &mut Vec<Vec<NodeId>>, v: usize, node: NodeId| {
            if !wanted[v].contains(&node) {
                wanted[v].push(node);
            }
        };
        for (i, (value, allowed)) in problem.outputs.iter().enumerate() {
            let paid = &self.paid[value.index()][use_index(problem, *value, ValueUse::Output(i))];
            let Some(node) = allowed.iter().copied().min_by_key(|n| paid[at(*n)]) else {
                return FAR;
            };
            want(&mut wanted, value.index(), node);
        }
        let mut total = 0;
        for id in problem.live.iter().rev() {
            let (v, factor) = (id.index(), &problem.factors[id.index()]);
            if wanted[v].is_empty() {
                continue;
            }
            let served = self.bringing_to(problem, *id, &wanted[v], kept);
            let uses = uses_of(problem, *id);
            let mut reached = Vec::with_capacity(uses.len());
            for (operand, _) in &uses {
                let chosen: &[NodeId] = if beside { &wanted[*operand] } else { &[] };
                reached.push(self.reached_beside(problem, *operand, chosen, kept));
            }
            let paid = uses.iter().zip(&reached).map(|((operand, reader), reached)| {
                reached.as_ref().unwrap_or(&self.paid[*operand][*reader])
            });
            let paid: Vec<&Vec<i64>> = paid.collect();
            let best = (0..factor.out.len()).min_by_key(|s| {
                let own = add(served[at(factor.out[*s])], factor.cost[*s]);
                paid.iter()
                    .zip(factor.reads_of(*s))
                    .fold(own, |sum, (paid, node)| add(sum, due(paid[at(*node)])))
            });
            let Some(best) = best else { return FAR };
            let (graph, out) = (&problem.graphs[v], factor.out[best]);
            let moved = served[at(out)];
            // Moves that several ways share are counted once.
            let layouts = wanted[v].iter().chain([&out]).all(|n| at(*n) < graph.nodes());
            let moved = if wanted[v].len() > FEW_WANTED && moved < FAR && layouts {
                self.serving.reaching_all(graph, out, &wanted[v])
            } else {
                moved
            };
            total = add(total, add(moved, factor.cost[best]));
            for ((operand, _), node) in uses.iter().zip(factor.reads_of(best)) {
                want(&mut wanted, *operand, *node);
            }
        }
        total
    }

    /// For each node, the time of bringing a value from the node to all `wanted` nodes: by a tree,
    /// or to each on its own if they are many.
    fn bringing_to(
        &mut self,
        problem: &Factors,
        id: ValueId,
        wanted: &[NodeId],
        kept: &mut KeptCosts,
    ) -> Vec<i64> {
        let (nodes, graph) = (problem.nodes(id), &problem.graphs[id.index()]);
        let known = kept.brought(id.index(), graph);
        // Kernel states are no nodes of the graph, so that their number is compared by itself.
        if let Some(known) = known.get(wanted).filter(|known| known.len() == nodes) {
            return known.clone();
        }
        if known.len() >= FEW_KEPT {
            known.clear();
        }
        let brought = self.tree_to(graph, nodes, wanted);
        known.insert(wanted.to_vec(), brought.clone());
        brought
    }

    /// The same for a value with so many nodes, worked out anew.
    fn tree_to(&mut self, graph: &Graph, nodes: usize, wanted: &[NodeId]) -> Vec<i64> {
        let only = |node: &NodeId| {
            let mut paid = vec![-FAR; nodes];
            paid[at(*node)] = 0;
            paid
        };
        if wanted.len() <= FEW_WANTED {
            let prices: Vec<Vec<i64>> = wanted.iter().map(only).collect();
            self.serving.insides(graph, nodes, &prices);
            return self.serving.inside[(1 << wanted.len()) - 1].clone();
        }
        let mut served = vec![0; nodes];
        for node in wanted {
            self.serving.insides(graph, nodes, &[only(node)]);
            for (s, more) in served.iter_mut().zip(&self.serving.inside[1]) {
                *s = add(*s, *more);
            }
        }
        served
    }

    /// For each node, the least cost of making a value and having it at that node and at all
    /// `chosen` nodes; `None` if no nodes are chosen, or too many. Called after a sweep up.
    fn reached_beside(
        &mut self,
        problem: &Factors,
        value: usize,
        chosen: &[NodeId],
        kept: &mut KeptCosts,
    ) -> Option<Vec<i64>> {
        if chosen.is_empty() || chosen.len() > FEW_WANTED {
            return None;
        }
        let graph = &problem.graphs[value];
        let mut all = self.bringing_to(problem, ValueId(value as u32), chosen, kept);
        let made = kept.reached(value, &mut self.serving, graph, &self.made[value]);
        all.iter_mut().zip(made).for_each(|(all, made)| *all = add(*all, *made));
        all[graph.hubs()].fill(FAR);
        Some(self.serving.reached(graph, &all))
    }
}
