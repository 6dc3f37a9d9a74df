//! Weightings of steps, and the problem in which each step counts for its weight.

use std::collections::HashMap;
use std::sync::Arc;

use shard_cost::Streams;
use shard_ir::{AxisId, AxisSet, Mesh, ValueId};

use super::costs::TimedProblem;
use crate::relax::factors::Factors;
use crate::relax::graph::{FAR, Graph};

/// The shares of two sets in their mean are given in parts of which the mean has this many.
pub(super) const PARTS: u64 = 128;

/// For each value, the weights of its steps, in parts of [`Weighed::unit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Weighed {
    pub(super) computing: Vec<u64>,
    pub(super) making: Vec<u64>,
    /// The weight of the collectives in its loop or pieces.
    pub(super) sending: Vec<u64>,
    pub(super) moving: Vec<u64>,
    /// The one reader to which the moves of a value count; `None` where those to all readers do.
    pub(super) only_to: Vec<Option<ValueId>>,
    /// For each stream of the network, what a move counts for in addition if it keeps the stream
    /// busy.
    pub(super) on_stream: Vec<Vec<u64>>,
    /// The weight of a step that counts fully.
    pub(super) unit: u64,
}

impl Weighed {
    pub(super) fn nothing(values: usize, streams: usize, unit: u64) -> Weighed {
        let none = vec![0; values];
        Weighed {
            computing: none.clone(),
            making: none.clone(),
            sending: none.clone(),
            moving: none,
            only_to: vec![None; values],
            on_stream: vec![vec![0; streams]; values],
            unit,
        }
    }

    /// The mean: `parts` of [`PARTS`] of this weighting, and the rest of another. If one of them
    /// counts the moves of a value to one reader only, so does the mean. If each counts those to a
    /// different reader, those of `other` are left out.
    pub(super) fn mixed(&self, other: &Weighed, parts: u64) -> Weighed {
        let share = |a: u64, b: u64| (a * parts + b * (PARTS - parts)) / PARTS;
        let mean = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(a, b)| share(*a, *b)).collect()
        };
        let readers = || self.only_to.iter().zip(&other.only_to);
        let is_left_out: Vec<bool> = readers()
            .map(|(one, other)| one.is_some() && other.is_some() && one != other)
            .collect();
        let others: Vec<u64> = is_left_out
            .iter()
            .zip(&other.moving)
            .map(|(is_out, weight)| if *is_out { 0 } else { *weight })
            .collect();
        let on_streams = self.on_stream.iter().zip(&other.on_stream).zip(&is_left_out);
        let on_stream = on_streams.map(|((one, other), is_out)| {
            let other = if *is_out { &vec![0; one.len()] } else { other };
            mean(one, other)
        });
        let on_stream = on_stream.collect();
        Weighed {
            computing: mean(&self.computing, &other.computing),
            making: mean(&self.making, &other.making),
            sending: mean(&self.sending, &other.sending),
            moving: mean(&self.moving, &others),
            only_to: readers().map(|(one, other)| one.or(*other)).collect(),
            on_stream,
            unit: self.unit,
        }
    }

    /// The problem in which each step takes its time multiplied by its weight.
    pub(super) fn applied(
        &self,
        mesh: &Mesh,
        streams: &Streams,
        TimedProblem { problem, costs }: &TimedProblem,
    ) -> Factors {
        let mut weighed = problem.clone();
        let networks = streams.of_networks();
        let busy = |v: usize, axes: AxisSet| -> u64 {
            let on = |stream: &usize| self.on_stream[v][*stream - networks.start];
            streams.of_axes(axes).iter().map(on).sum()
        };
        let axes: Vec<AxisSet> = (0..mesh.axes().len())
            .filter(|axis| mesh.axes()[*axis].size > 1)
            .map(|axis| AxisSet::EMPTY.with(AxisId(axis as u8)))
            .collect();
        let mut graphs: HashMap<(*const Graph, u64, &[u64]), Arc<Graph>> = HashMap::new();
        for id in &problem.live {
            let v = id.index();
            let factor = &problem.factors[v];
            let counted = |s: usize| {
                let parts = [
                    (self.computing[v], costs.computing[v][s]),
                    (self.making[v], costs.whole[v][s]),
                    (self.sending[v], costs.sending[v][s]),
                ];
                let sum = |sum: i64, (weight, cost): (u64, i64)| match cost {
                    cost if cost >= FAR => FAR,
                    cost => sum.saturating_add(cost.saturating_mul(weight as i64)),
                };
                parts.into_iter().fold(0, sum).min(FAR)
            };
            let cost = (0..factor.out.len()).map(counted).collect();
            weighed.factors[v] = Arc::new(factor.with_costs(cost));
            let graph = &problem.graphs[v];
            let on_stream = self.on_stream[v].as_slice();
            let key = (Arc::as_ptr(graph), self.moving[v], on_stream);
            let longer = || {
                Arc::new(if on_stream.iter().all(|weight| *weight == 0) {
                    graph.longer(self.moving[v] as i64)
                } else {
                    // A move of which no axes are known is over some axis.
                    let least = axes.iter().map(|axis| busy(v, *axis)).min().unwrap_or(0);
                    graph.counted(&|over| {
                        let on_streams = if over.is_empty() { least } else { busy(v, over) };
                        (self.moving[v] + on_streams) as i64
                    })
                })
            };
            weighed.graphs[v] = Arc::clone(graphs.entry(key).or_insert_with(longer));
        }
        weighed
    }

    /// The values whose moves to only one reader count, each with that reader.
    pub(super) fn read_by_one(&self) -> Vec<(ValueId, ValueId)> {
        let of = |(at, reader): (usize, &Option<ValueId>)| {
            reader.map(|reader| (ValueId(at as u32), reader))
        };
        self.only_to.iter().enumerate().filter_map(of).collect()
    }
}
