//! Attentions over parts of the keys: the statistics beside them, and their merge.
//!
//! A part is the normalised result over a device's own keys, and for each query and head the
//! logarithm of the sum of the exponentials of its scores; where no key is visible, (-inf, 0). Two
//! parts (s, a) and (t, b) make (log(exp s + exp t), (a exp s + b exp t) / (exp s + exp t)).
//!
//! | step of a merge | algorithm | sent by a device |
//! |---|---|---|
//! | the maximum of the statistics | all-reduce | 2S(K-1)/K |
//! | whole: results and weights | all-reduce | 2(R+S)(K-1)/K |
//! | along a dim of the statistics | reduce-scatter of both | (R+S)(K-1)/K |
//! | along another dim | reduce-scatter, and all-reduce of weights | (R+2S)(K-1)/K |

use std::sync::Arc;

use shard_ir::{Collective, DimSet, Dtype};

use crate::arithmetic::Arithmetic;
use crate::collectives::{Groups, Held, Move};
use crate::devices::Grid;
use crate::error::RunError;
use crate::network::Network;
use crate::scalar::maximum;
use crate::tensor::{Tensor, walk};

/// The logarithm of the sum of the exponentials of each line of scores along a dim: -inf where
/// nothing is visible.
pub(crate) fn statistics(scores: &Tensor, over: usize, arithmetic: Arithmetic) -> Tensor {
    let mut order: Vec<usize> = (0..scores.sizes.len()).filter(|dim| *dim != over).collect();
    let sizes: Vec<usize> = order.iter().map(|dim| scores.sizes[*dim]).collect();
    order.push(over);
    let lines = scores.transposed(&order);
    let of_line = |line: &[f64]| {
        let largest = line.iter().copied().fold(f64::NEG_INFINITY, maximum);
        if largest == f64::NEG_INFINITY {
            return largest;
        }
        let sum: f64 = line.iter().map(|score| (score - largest).exp()).sum();
        arithmetic.round(Dtype::F32, largest + sum.ln())
    };
    let data = lines.data.chunks(scores.sizes[over].max(1)).map(of_line).collect();
    Tensor { sizes, data }
}

/// The results and the statistics of every device after a merge.
pub(crate) struct Merged {
    pub(crate) results: Held<f64>,
    pub(crate) statistics: Vec<Tensor>,
    pub(crate) network: Network,
}

/// A merge of what devices hold: results, and statistics in the order of the dims of the value.
pub(crate) fn merge(
    step: &Move<'_>,
    grid: &Grid<'_>,
    results: &[Arc<Tensor>],
    statistics: &[Tensor],
) -> Result<Merged, RunError> {
    let Collective::SoftmaxMerge { dim, axes, statistics: by } = step.collective else {
        return Err(RunError::Internal("a move that merges nothing"));
    };
    let groups = Groups::of(grid, &axes);
    let network = sent(step, &groups, (dim, by), (results, statistics));
    let merged = step.each(grid, |device| {
        let (group, rank) = (groups.group(device), groups.rank(device));
        Ok(joined(step, group, (dim, rank), by, (results, statistics))?.0)
    })?;
    let left = (0..grid.devices())
        .map(|device| {
            let (group, rank) = (groups.group(device), groups.rank(device));
            Ok(joined(step, group, (dim, rank), by, (results, statistics))?.1)
        })
        .collect::<Result<Vec<_>, RunError>>()?;
    Ok(Merged { results: merged, statistics: left, network })
}

/// The attention over all keys of a group, as one device of it gets it, and its statistics.
fn joined(
    step: &Move<'_>,
    group: &[usize],
    (dim, rank): (Option<usize>, usize),
    by: DimSet,
    (results, statistics): (&[Arc<Tensor>], &[Tensor]),
) -> Result<(Tensor, Tensor), RunError> {
    let part = |block: &Tensor, at: Option<usize>| match at {
        Some(at) => block.part(at, group.len(), rank),
        None => block.clone(),
    };
    let on_statistics = dim.and_then(|dim| by.iter().position(|has| has == dim));
    let mut all: Vec<(Tensor, Tensor)> = Vec::with_capacity(group.len());
    for device in group {
        let result = part(&results[*device], dim);
        all.push((result, part(&statistics[*device], on_statistics)));
    }
    merged_parts(&all.iter().collect::<Vec<_>>(), by, (step.arithmetic, step.dtype))
}

/// The merge of some parts, results with their statistics, which have these dims of them.
pub(crate) fn merged_parts(
    all: &[&(Tensor, Tensor)],
    by: DimSet,
    (arithmetic, dtype): (Arithmetic, Dtype),
) -> Result<(Tensor, Tensor), RunError> {
    let (first, of_first) = all.first().ok_or(RunError::Internal("a group of no devices"))?;
    let mut largest = of_first.clone();
    for (_, other) in all {
        largest.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a = maximum(*a, *b));
    }
    let mut sum = Tensor::filled(first.sizes.clone(), 0.0);
    let mut weights = Tensor::filled(largest.sizes.clone(), 0.0);
    let strides = [sum.strides(), along(&largest, by, sum.sizes.len())];
    for (result, statistic) in all {
        let weight: Vec<f64> =
            statistic.data.iter().zip(&largest.data).map(|(s, m)| weight(*s, *m)).collect();
        weights.data.iter_mut().zip(&weight).for_each(|(all, own)| *all += own);
        walk(&result.sizes, &strides, |at| {
            let term = result.data[at[0]] * weight[at[1]];
            let sum = &mut sum.data[at[0]];
            *sum = arithmetic.round_term(dtype, *sum + term);
        });
    }
    let sizes = sum.sizes.clone();
    walk(&sizes, &strides, |at| {
        let weight = weights.data[at[1]];
        // Where no device sees a key there is nothing.
        let value = if weight > 0.0 { sum.data[at[0]] / weight } else { 0.0 };
        sum.data[at[0]] = arithmetic.round(dtype, value);
    });
    for (largest, weight) in largest.data.iter_mut().zip(&weights.data) {
        if *weight > 0.0 {
            *largest = arithmetic.round(Dtype::F32, *largest + weight.ln());
        }
    }
    Ok((sum, largest))
}

/// By how much a part counts beside the largest.
fn weight(statistic: f64, largest: f64) -> f64 {
    if statistic == f64::NEG_INFINITY { 0.0 } else { (statistic - largest).exp() }
}

/// How far apart neighbours of the value along each dim are in the statistics.
fn along(statistics: &Tensor, by: DimSet, rank: usize) -> Vec<usize> {
    let mut strides = vec![0; rank];
    by.iter().zip(statistics.strides()).for_each(|(dim, stride)| strides[dim] = stride);
    strides
}

/// What the devices send, in bits.
fn sent(
    step: &Move<'_>,
    groups: &Groups,
    (dim, by): (Option<usize>, DimSet),
    (results, statistics): (&[Arc<Tensor>], &[Tensor]),
) -> Network {
    let k = groups.size();
    let mut network = Network::new(results.len(), 1, k);
    let bits = |elements: usize, dtype: Dtype| elements as u128 * u128::from(dtype.bits());
    for device in groups.all().flatten() {
        let result = bits(results[*device].data.len(), step.dtype);
        let statistic = bits(statistics[*device].data.len(), Dtype::F32);
        // An all-reduce has twice the messages of a reduce-scatter; each is the K-th part.
        let mut send = |bits: u128, times: usize| {
            (0..times * (k - 1)).for_each(|_| network.send_charged(*device, bits));
        };
        send(statistic, 2);
        match dim {
            None => send(result + statistic, 2),
            Some(dim) if by.contains(dim) => send(result + statistic, 1),
            Some(_) => {
                send(result, 1);
                send(statistic, 2);
            }
        }
    }
    network
}

#[cfg(test)]
mod tests {
    use super::*;
    use shard_ir::{AxisSet, InstrId, Layout, Mesh, MeshShape};

    /// Parts of one query each with three values, of which some see nothing.
    fn parts(seed: u64, count: usize) -> Vec<(f64, [f64; 3])> {
        let mut random = crate::Random::new(seed);
        let mut number = || random.next_u64() as f64 / u64::MAX as f64 * 8.0 - 4.0;
        (0..count)
            .map(|at| {
                if (seed >> at) & 1 == 1 {
                    (f64::NEG_INFINITY, [0.0; 3])
                } else {
                    (number(), [number(), number(), number()])
                }
            })
            .collect()
    }

    /// The merge of some parts in one step.
    fn merged(parts: &[(f64, [f64; 3])]) -> (f64, [f64; 3]) {
        let mesh = Mesh::new([("x", parts.len().max(1) as u64)]).expect("a mesh");
        let axes = mesh.all_axes();
        let sizes = [1, 3];
        let by: DimSet = [0].into_iter().collect();
        let from = axes.iter().fold(Layout::REPLICATED, Layout::with_softmax);
        let step = Move {
            id: InstrId(0),
            collective: Collective::SoftmaxMerge {
                dim: None,
                axes: axes.iter().collect(),
                statistics: by,
            },
            shape: MeshShape { mesh: &mesh, sizes: &sizes },
            from,
            to: Layout::REPLICATED,
            dtype: Dtype::F32,
            arithmetic: Arithmetic::F32,
            spare: &Default::default(),
        };
        let result = |r: [f64; 3]| Tensor::new(vec![1, 3], r.to_vec()).expect("fits");
        let results: Vec<Arc<Tensor>> = parts.iter().map(|(_, r)| Arc::new(result(*r))).collect();
        let statistics: Vec<Tensor> =
            parts.iter().map(|(s, _)| Tensor::new(vec![1], vec![*s]).expect("fits")).collect();
        let grid = Grid::new(&mesh);
        let out = merge(&step, &grid, &results, &statistics).expect("merges");
        assert_ne!(axes, AxisSet::EMPTY);
        let data = &out.results[0].data;
        (out.statistics[0].data[0], [data[0], data[1], data[2]])
    }

    fn same(a: (f64, [f64; 3]), b: (f64, [f64; 3])) -> bool {
        let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-5;
        near(a.0, b.0) && a.1.iter().zip(b.1).all(|(a, b)| near(*a, b))
    }

    #[test]
    fn the_merge_does_not_depend_on_the_order_or_on_the_grouping() {
        for seed in 0..64 {
            let parts = parts(seed, 4);
            let all = merged(&parts);
            let reversed: Vec<_> = parts.iter().rev().copied().collect();
            assert!(same(all, merged(&reversed)), "{seed}");
            let (left, right) = parts.split_at(2);
            assert!(same(all, merged(&[merged(left), merged(right)])), "{seed}");
            assert!(all.1.iter().all(|value| value.is_finite()), "{seed}");
        }
    }

    #[test]
    fn what_sees_no_key_changes_nothing_and_makes_no_nan() {
        let nothing = (f64::NEG_INFINITY, [0.0; 3]);
        assert_eq!(merged(&[nothing, nothing]), nothing);
        for seed in 0..16 {
            let part = parts(seed << 8, 1)[0];
            assert!(same(part, merged(&[part, nothing])));
        }
    }
}
