//! Prices of one problem on another: on that of a program with other layout patterns, or on one of
//! which a part was dropped.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use super::factors::{Factors, NodeName, ValueUse};
use super::graph::{FAR, Graph, NodeId};
use super::kept::KeptCosts;
use super::prices::{Prices, use_index};
use super::serving::{ServingCosts, add, at, least_of};
use super::whole::Whole;

impl Prices {
    /// The same prices on a problem that differs only in layout patterns. Where a reader now reads
    /// at a node at which it had no price, because it had no use for the value there or could not
    /// have it, its price is what it costs to bring the value there from the nodes at which it has
    /// a price.
    pub(super) fn carried_to(&self, priced: &Factors, problem: &Factors) -> Prices {
        let is_open = |price: i64| price.abs() < FAR;
        let known = |paid: &[i64]| -> Vec<i64> {
            paid.iter().map(|price| if is_open(*price) { *price } else { FAR }).collect()
        };
        let (mut prices, mut serving) = (Prices::new(problem), ServingCosts::default());
        // If the same values can be had and are of use at the same nodes, no sweep is needed to
        // find out where.
        if is_as_free(priced, problem) {
            prices.paid.clone_from(&self.paid);
            let results = problem.outputs.iter().zip(&priced.outputs).enumerate();
            for (i, ((value, allowed), _)) in results.filter(|(_, (new, old))| new != old) {
                let (v, reader) = (value.index(), use_index(problem, *value, ValueUse::Output(i)));
                let known = known(&self.paid[v][reader]);
                let brought = serving.reached(&problem.graphs[v], &known);
                let paid = &mut prices.paid[v][reader];
                paid.fill(-FAR);
                for node in allowed.iter().map(|node| at(*node)) {
                    paid[node] = if known[node] < FAR { known[node] } else { brought[node] };
                }
            }
            return prices;
        }
        let mut kept = KeptCosts::default();
        prices.up(problem, true, &mut kept);
        prices.down(problem, &mut kept);
        for id in &problem.live {
            let graph = &problem.graphs[id.index()];
            for (paid, before) in prices.paid[id.index()].iter_mut().zip(&self.paid[id.index()]) {
                let known = known(before);
                let brought = serving.reached(graph, &known);
                let all = paid.iter_mut().zip(known.into_iter().zip(brought));
                for (price, (known, brought)) in all.filter(|(price, _)| is_open(**price)) {
                    *price = [known, brought].into_iter().find(|p| *p < FAR).unwrap_or(0);
                }
            }
        }
        prices
    }

    /// These prices, replaced by those of `other` at the nodes that it has. At all other nodes a
    /// price moves by as much as the prices of the same reader do on average at the nodes that
    /// `other` has. The problems differ in which nodes they have.
    pub(super) fn with_those_of(mut self, problem: &Factors, other: &Whole) -> Prices {
        // The price of a single reader follows in the next sweep from the cost of making the value.
        let shared: Vec<ValueId> =
            problem.live.iter().copied().filter(|id| self.paid[id.index()].len() > 1).collect();
        for id in shared {
            let v = id.index();
            let named = other.problem.names(id).enumerate();
            let named: FxHashMap<NodeName, usize> =
                named.filter_map(|(node, name)| Some((name?, node))).collect();
            let same: Vec<Option<usize>> = problem
                .names(id)
                .map(|name| name.and_then(|name| named.get(&name).copied()))
                .collect();
            for (paid, better) in self.paid[v].iter_mut().zip(&other.prices.paid[v]) {
                let better: Vec<Option<i64>> = same
                    .iter()
                    .map(|node| node.map(|node| better[node]).filter(|price| price.abs() < FAR))
                    .collect();
                let changes = paid.iter().zip(&better).filter(|(price, _)| price.abs() < FAR);
                let changes = changes.filter_map(|(price, better)| Some((*better)? - price));
                let (sum, count) = changes
                    .fold((0i128, 0), |(sum, count), change| (sum + i128::from(change), count + 1));
                let on_average = i64::try_from(sum / count.max(1)).unwrap_or(0);
                for (price, better) in paid.iter_mut().zip(better) {
                    *price = match better {
                        Some(better) => better,
                        None if price.abs() < FAR => *price + on_average,
                        None => *price,
                    };
                }
            }
        }
        self
    }

    /// The bound on a problem that differs only in layout patterns, as it would be after a sweep
    /// down at these prices; `None` where a sweep is needed to tell. The problem has no labels and
    /// no memory that binds.
    pub(super) fn bound_of_patterns(&self, priced: &Factors, problem: &Factors) -> Option<i64> {
        let mut bound = self.bound();
        let mut serving = ServingCosts::default();
        let replace = |bound: i64, old: i64, new: i64| add(add(bound, -old), new);
        let are_among = |few: &[NodeId], of: &[NodeId]| few.iter().all(|node| of.contains(node));
        for id in &problem.live {
            let v = id.index();
            let (factor, before) = (&problem.factors[v], &priced.factors[v]);
            if factor.arity > 0 && Arc::ptr_eq(factor, before) {
                continue;
            }
            // A value that could not be had at a node before has no price there.
            if !are_among(&factor.out, &before.out)
                && (factor.arity > 0
                    || !serving.can_reach(&problem.graphs[v], &before.out, &factor.out))
            {
                return None;
            }
            let least = least_of(self.cost_of_making(problem, *id));
            bound = replace(bound, self.op_least.of(v), least);
        }
        // At a node where a result is no longer wanted its price falls away; at a node where it is
        // wanted only now, its price is what it costs to bring the value there.
        let mut changed: Option<(Prices, Vec<ValueId>)> = None;
        for (i, ((value, allowed), (_, before))) in
            problem.outputs.iter().zip(&priced.outputs).enumerate()
        {
            let (v, graph) = (value.index(), &problem.graphs[value.index()]);
            let is_wider = !are_among(allowed, before);
            let is_grouped = problem.groups[v].is_some();
            if allowed == before || (is_grouped && !is_wider) {
                // Readers of a group pay the same, so that a price of one cannot be taken away.
                continue;
            }
            if is_wider && (is_grouped || !is_wanted_alike(&mut serving, graph, before, allowed)) {
                return None;
            }
            let (prices, values) = changed.get_or_insert_with(|| (self.clone(), Vec::new()));
            let reader = use_index(problem, *value, ValueUse::Output(i));
            let paid = &mut prices.paid[v][reader];
            if is_wider {
                let known: Vec<i64> =
                    paid.iter().map(|p| if p.abs() < FAR { *p } else { FAR }).collect();
                let brought = serving.reached(graph, &known);
                for node in allowed.iter().filter(|node| !before.contains(node)) {
                    paid[at(*node)] = brought[at(*node)];
                }
            }
            for node in before.iter().filter(|node| !allowed.contains(node)) {
                paid[at(*node)] = -FAR;
            }
            if is_wider {
                let least = least_of(allowed.iter().map(|node| paid[at(*node)]));
                bound = replace(bound, self.out_least.of(i), least);
            }
            if !values.contains(value) {
                values.push(*value);
            }
        }
        if let Some((prices, values)) = changed {
            for id in values {
                let least = prices.least_of_value(problem, id, &mut serving);
                bound = replace(bound, self.value_least.of(id.index()), least);
            }
        }
        Some(bound)
    }
}

/// Whether the same values can be had and are of use at the same nodes in two problems that differ
/// only in layout patterns, apart from the nodes of results.
fn is_as_free(before: &Factors, problem: &Factors) -> bool {
    let (mut serving, graphs) = (ServingCosts::default(), &problem.graphs);
    let values = problem.live.iter().all(|id| {
        let (old, new) = (&before.factors[id.index()], &problem.factors[id.index()]);
        let graph = &graphs[id.index()];
        Arc::ptr_eq(old, new)
            || old.out == new.out
            || (new.arity == 0 && serving.can_reach(graph, &old.out, &new.out))
    });
    let mut results = before.outputs.iter().zip(&problem.outputs);
    values
        && results.all(|((value, old), (_, new))| {
            old == new || is_wanted_alike(&mut serving, &graphs[value.index()], old, new)
        })
}

/// Whether a result that is wanted at the nodes `new` instead of `old` leaves the nodes unchanged
/// at which the value can be had and is of use: the value can be brought from `old` to each node of
/// `new`, and from each node of `new` to `old`.
fn is_wanted_alike(
    serving: &mut ServingCosts,
    graph: &Graph,
    old: &[NodeId],
    new: &[NodeId],
) -> bool {
    serving.can_reach(graph, old, new) && serving.can_leave(graph, new, old)
}
