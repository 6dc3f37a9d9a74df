//! What one sweep of prices computes and the next needs again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::graph::{Graph, NodeId};
use super::serving::ServingCosts;

/// Costs of serving the readers of values, kept from one sweep to the next. A sweep down leaves the
/// prices of a value as the next sweep up finds them, unless something else changes them in
/// between; and a sweep up leaves the costs of making a value as the next sweep down finds them.
///
/// What is kept is used only where it was computed from the same numbers on the same graph, so that
/// it changes no result.
#[derive(Debug, Default)]
pub(crate) struct KeptCosts(Vec<KeptValue>);

/// What is kept of one value.
#[derive(Debug, Default)]
struct KeptValue {
    /// The graph that all of this was computed on.
    graph: Option<Arc<Graph>>,
    /// [`ServingCosts::insides`] at these prices; no prices where nothing is kept.
    inside: Vec<Vec<i64>>,
    prices: Vec<Vec<i64>>,
    /// [`ServingCosts::reached`] at these costs of making the value.
    reached: Vec<i64>,
    made: Vec<i64>,
    /// See [`KeptCosts::brought`].
    brought: FxHashMap<Vec<NodeId>, Vec<i64>>,
}

impl KeptCosts {
    fn of(&mut self, value: usize, graph: &Arc<Graph>) -> &mut KeptValue {
        if self.0.len() <= value {
            self.0.resize_with(value + 1, KeptValue::default);
        }
        let kept = &mut self.0[value];
        if kept.graph.as_ref().is_none_or(|known| !Arc::ptr_eq(known, graph)) {
            *kept = KeptValue { graph: Some(Arc::clone(graph)), ..KeptValue::default() };
        }
        kept
    }

    /// Fills [`ServingCosts::inside`] for a value. What is kept of it is handed over.
    pub(super) fn insides(
        &mut self,
        value: usize,
        serving: &mut ServingCosts,
        graph: &Arc<Graph>,
        nodes: usize,
        prices: &[impl AsRef<[i64]>],
    ) {
        let kept = self.of(value, graph);
        if kept.prices.iter().map(Vec::as_slice).eq(prices.iter().map(AsRef::as_ref)) {
            serving.inside = std::mem::take(&mut kept.inside);
            kept.prices = Vec::new();
        } else {
            serving.insides(graph, nodes, prices);
        }
    }

    /// Takes [`ServingCosts::inside`] over, as computed for a value at some prices.
    pub(super) fn keep_insides(
        &mut self,
        value: usize,
        serving: &mut ServingCosts,
        graph: &Arc<Graph>,
        prices: &[impl AsRef<[i64]>],
    ) {
        let kept = self.of(value, graph);
        kept.inside = std::mem::take(&mut serving.inside);
        kept.inside.truncate(1 << prices.len());
        kept.prices = prices.iter().map(|price| price.as_ref().to_vec()).collect();
    }

    /// The least cost of reaching each node, where `made` is the cost of making the value at each.
    pub(super) fn reached(
        &mut self,
        value: usize,
        serving: &mut ServingCosts,
        graph: &Arc<Graph>,
        made: &[i64],
    ) -> &[i64] {
        let kept = self.of(value, graph);
        if kept.made != made {
            kept.reached = serving.reached(graph, made);
            made.clone_into(&mut kept.made);
        }
        &kept.reached
    }

    /// Forgets the least cost of reaching the nodes of a value, whose maker is now paid otherwise.
    pub(super) fn forget_reached(&mut self, value: usize) {
        if let Some(kept) = self.0.get_mut(value) {
            (kept.made, kept.reached) = (Vec::new(), Vec::new());
        }
    }

    /// For some lists of nodes at which a value was wanted: the time of bringing it there from each
    /// node.
    pub(super) fn brought(
        &mut self,
        value: usize,
        graph: &Arc<Graph>,
    ) -> &mut FxHashMap<Vec<NodeId>, Vec<i64>> {
        &mut self.of(value, graph).brought
    }
}
