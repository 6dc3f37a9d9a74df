//! What steps count for, and the problem in which they do.

use std::collections::HashMap;
use std::sync::Arc;

use shard_cost::Streams;
use shard_ir::{AxisId, AxisSet, Mesh, ValueId};

use super::costs::TimedProblem;
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
    /// What a move counts for on each stream of the network that it keeps busy, beside that.
    pub(super) on_stream: Vec<Vec<u64>>,
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
            on_stream: vec![vec![0; streams]; values],
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

    /// A problem in which every step takes what it counts for.
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
            weighed.factors[v] = Arc::new(Factor {
                out: factor.out.clone(),
                reads: factor.reads.clone(),
                cost: (0..factor.out.len()).map(counted).collect(),
                arity: factor.arity,
            });
            let graph = &problem.graphs[v];
            let on_stream = self.on_stream[v].as_slice();
            let key = (Arc::as_ptr(graph), self.moving[v], on_stream);
            let longer = || {
                Arc::new(if on_stream.iter().all(|weight| *weight == 0) {
                    graph.longer(self.moving[v] as i64)
                } else {
                    // A move of which nothing is known is over some axis.
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

    /// The values of which the moves to one reader alone count, each with that reader.
    pub(super) fn read_by_one(&self) -> Vec<(ValueId, ValueId)> {
        let of = |(at, reader): (usize, &Option<ValueId>)| {
            reader.map(|reader| (ValueId(at as u32), reader))
        };
        self.only_to.iter().enumerate().filter_map(of).collect()
    }
}
