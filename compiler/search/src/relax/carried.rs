//! Prices of one problem on another: of a program that differs in its layout patterns, or of one of
//! which a part was dropped.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use super::factors::{Factors, NodeName, ValueUse};
use super::graph::{FAR, Graph, NodeId};
use super::prices::{Prices, use_index};
use super::serving::{ServingCosts, add, at};
use super::whole::Whole;

impl Prices {
    /// The same prices on a problem that differs from that of these in its layout patterns. Where a
    /// reader had no use for the value, or could not have it, and now has and can, it pays what it
    /// takes to bring the value there from where it pays something.
    pub(super) fn carried_to(&self, priced: &Factors, problem: &Factors) -> Prices {
        let is_open = |price: i64| price.abs() < FAR;
        let known = |paid: &[i64]| -> Vec<i64> {
            paid.iter().map(|price| if is_open(*price) { *price } else { FAR }).collect()
        };
        let (mut prices, mut serving) = (Prices::new(problem), ServingCosts::default());
        // What can be had, and what is of use, does not hang on prices.
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
        prices.up(problem, true);
        prices.down(problem);
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

    /// These prices, but those of `other` where that has the node; elsewhere they go up or down as
    /// its prices do on average. Both are of problems that differ in which nodes they have.
    pub(super) fn with_those_of(mut self, problem: &Factors, other: &Whole) -> Prices {
        // What one reader alone pays follows from what the value takes to make.
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

    /// What the bound would be, after a sweep down, of a problem that differs from the one priced
    /// in its layout patterns; `None` where that takes a sweep. Nothing is paid to parts that reach
    /// across the program.
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
            // What could not be had of a value before has no price.
            if !are_among(&factor.out, &before.out)
                && (factor.arity > 0
                    || !serving.can_reach(&problem.graphs[v], &before.out, &factor.out))
            {
                return None;
            }
            let least = self.cost_of_making(problem, *id).into_iter().min().unwrap_or(FAR);
            bound = replace(bound, self.op_least.of(v), least);
        }
        // What a result is not wanted in, nobody pays for; where it is wanted now, as much as it
        // takes to bring it there.
        let mut changed: Option<(Prices, Vec<ValueId>)> = None;
        for (i, ((value, allowed), (_, before))) in
            problem.outputs.iter().zip(&priced.outputs).enumerate()
        {
            let (v, graph) = (value.index(), &problem.graphs[value.index()]);
            let is_wider = !are_among(allowed, before);
            let is_grouped = problem.alike[v].is_some();
            if allowed == before || (is_grouped && !is_wider) {
                // Of readers in groups each pays what the others do.
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
                let least = allowed.iter().map(|node| paid[at(*node)]).min().unwrap_or(FAR);
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

/// Whether what a problem allows instead of another lets nothing be had, and nothing be of use,
/// that was not before, but for the results themselves. Both differ in layout patterns alone.
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

/// Whether a result that is wanted in some layouts instead of others can be had there wherever it
/// could before, and nothing is of use that was not: it is brought to them from those before, and
/// from each of them back to one of those.
fn is_wanted_alike(
    serving: &mut ServingCosts,
    graph: &Graph,
    old: &[NodeId],
    new: &[NodeId],
) -> bool {
    serving.can_reach(graph, old, new) && serving.can_leave(graph, new, old)
}
