//! What steps count for, and the problem in which they do.

use std::collections::HashMap;
use std::sync::Arc;

use shard_cost::Streams;
use shard_ir::{AxisId, AxisSet, Mesh, ValueId};

use super::costs::Costs;
use crate::relax::factors::{Factor, Factors};
use crate::relax::graph::{FAR, Graph};

/// So many parts has the weight of a set.
pub(super) const PARTS: u64 = 128;

/// For each value what its steps count for, in parts of a [`Weighed::unit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Weighed {
    pub(super) computing: Vec<u64>,
    pub(super) making: Vec<u64>,
    /// The collectives in loops and pieces.
    pub(super) sending: Vec<u64>,
    pub(super) moving: Vec<u64>,
    /// The one reader of a value whose moves count, where not those of all do.
    pub(super) only_to: Vec<Option<ValueId>>,
    /// What a move counts for on each stream of the network that it keeps busy, beside the weight
    /// of what it moves.
    pub(super) on_stream: Vec<u64>,
    /// What a step of weight 1 counts for.
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
            on_stream: vec![0; streams],
            unit,
        }
    }

    /// So many parts of one and the rest of another. Where one counts the moves to one reader, the
    /// mean counts no others; where each counts those to another reader, what the second counts is
    /// left out.
    pub(super) fn mixed(&self, other: &Weighed, parts: u64) -> Weighed {
        let share = |a: u64, b: u64| (a * parts + b * (PARTS - parts)) / PARTS;
        let mean = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(a, b)| share(*a, *b)).collect()
        };
        let readers = || self.only_to.iter().zip(&other.only_to);
        let others: Vec<u64> = readers()
            .zip(&other.moving)
            .map(|((one, other), weight)| match (one, other) {
                (Some(one), Some(other)) if one != other => 0,
                (Some(_) | None, Some(_) | None) => *weight,
            })
            .collect();
        Weighed {
            computing: mean(&self.computing, &other.computing),
            making: mean(&self.making, &other.making),
            sending: mean(&self.sending, &other.sending),
            moving: mean(&self.moving, &others),
            only_to: readers().map(|(one, other)| one.or(*other)).collect(),
            on_stream: mean(&self.on_stream, &other.on_stream),
            unit: self.unit,
        }
    }

    /// A problem in which every step takes what it counts for.
    pub(super) fn applied(
        &self,
        (mesh, streams): (&Mesh, &Streams),
        problem: &Factors,
        costs: &Costs,
    ) -> Factors {
        let mut weighed = problem.clone();
        let networks = streams.of_networks();
        let busy = |axes: AxisSet| -> u64 {
            let on = |stream: &usize| self.on_stream[*stream - networks.start];
            streams.of_axes(axes).iter().map(on).sum()
        };
        // A move of which nothing is known is over some axis.
        let axes = mesh.axes().iter().enumerate().filter(|(_, axis)| axis.size > 1);
        let least = axes.map(|(at, _)| busy(AxisSet::EMPTY.with(AxisId(at as u8)))).min();
        let least = least.unwrap_or(0);
        let no_stream = self.on_stream.iter().all(|weight| *weight == 0);
        let mut graphs: HashMap<(*const Graph, u64), Arc<Graph>> = HashMap::new();
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
            weighed.factors[v] = Arc::new(Factor {
                out: factor.out.clone(),
                reads: factor.reads.clone(),
                cost: (0..factor.out.len()).map(counted).collect(),
                arity: factor.arity,
            });
            let graph = &problem.graphs[v];
            let key = (Arc::as_ptr(graph), self.moving[v]);
            let longer = || {
                Arc::new(if no_stream {
                    graph.longer(self.moving[v] as i64)
                } else {
                    graph.counted(&|over| {
                        let on_streams = if over.is_empty() { least } else { busy(over) };
                        (self.moving[v] + on_streams) as i64
                    })
                })
            };
            weighed.graphs[v] = Arc::clone(graphs.entry(key).or_insert_with(longer));
        }
        weighed
    }

    /// The values of which the moves to one reader alone count, each with that reader.
    pub(super) fn read_by_one(&self) -> Vec<(ValueId, ValueId)> {
        let of = |(at, reader): (usize, &Option<ValueId>)| {
            reader.map(|reader| (ValueId(at as u32), reader))
        };
        self.only_to.iter().enumerate().filter_map(of).collect()
    }
}
