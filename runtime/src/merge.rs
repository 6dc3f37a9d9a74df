//! Attentions over parts of the keys ([`PartialAttention`]): the statistics beside them, and their
//! merge.
//!
//! A part has for each query and head a statistic s and a result a: s is the logarithm of the sum
//! of the exponentials of the scores, a is normalised over the part's own keys. Where no key is
//! visible, s is -inf and a is 0. Two parts (s, a) and (t, b) make (log(exp s + exp t), (a exp s +
//! b exp t) / (exp s + exp t)).
//!
//! K devices have a part each. A device holds R bits of results and S bits of statistics.
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
use crate::collectives::{Held, Move};
use crate::devices::{Grid, Groups};
use crate::error::RunError;
use crate::network::Network;
use crate::parallel;
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

/// An attention over some of the keys, on one device.
pub(crate) struct PartialAttention {
    /// Normalised over these keys alone.
    pub(crate) result: Tensor,
    /// For each query and head the logarithm of the sum of the exponentials of its scores, dims in
    /// the order of the result's.
    pub(crate) statistics: Tensor,
}

/// What every device has after a merge.
pub(crate) struct Merged {
    pub(crate) results: Held<f64>,
    pub(crate) statistics: Vec<Tensor>,
    pub(crate) network: Network,
}

/// Executes a softmax-merge. `results` and `statistics` are the [`PartialAttention`]s of the
/// devices.
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
    let network = sent(step, &groups, dim, by, results, statistics);
    let on_statistics = dim.and_then(|dim| by.iter().position(|has| has == dim));
    let merged = parallel::map(grid.devices(), step.copied(grid.devices()), |device| {
        let (group, rank) = (groups.group(device), groups.rank(device));
        let part = |block: &Tensor, dim: Option<usize>| match dim {
            Some(dim) => block.part(dim, group.len(), rank),
            None => block.clone(),
        };
        let of_device = |other: &usize| PartialAttention {
            result: part(&results[*other], dim),
            statistics: part(&statistics[*other], on_statistics),
        };
        let parts: Vec<PartialAttention> = group.iter().map(of_device).collect();
        merged_parts(&parts.iter().collect::<Vec<_>>(), by, step.arithmetic, step.dtype)
    })?;
    let (results, statistics) =
        merged.into_iter().map(|part| (Arc::new(part.result), part.statistics)).unzip();
    Ok(Merged { results, statistics, network })
}

/// The attention over the keys of all parts together. `by` are the dims of the result that the
/// statistics have, `dtype` is that of the result.
pub(crate) fn merged_parts(
    parts: &[&PartialAttention],
    by: DimSet,
    arithmetic: Arithmetic,
    dtype: Dtype,
) -> Result<PartialAttention, RunError> {
    let first = parts.first().ok_or(RunError::Internal("a group of no devices"))?;
    let mut largest = first.statistics.clone();
    for part in parts {
        let pairs = largest.data.iter_mut().zip(&part.statistics.data);
        pairs.for_each(|(a, b)| *a = maximum(*a, *b));
    }
    let mut sum = Tensor::filled(first.result.sizes.clone(), 0.0);
    let mut weights = Tensor::filled(largest.sizes.clone(), 0.0);
    let strides = [sum.strides(), along(&largest, by, sum.sizes.len())];
    for PartialAttention { result, statistics } in parts {
        let weight: Vec<f64> =
            statistics.data.iter().zip(&largest.data).map(|(s, m)| weight(*s, *m)).collect();
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
        // A query that sees no key on any device has a result of 0.
        let value = if weight > 0.0 { sum.data[at[0]] / weight } else { 0.0 };
        sum.data[at[0]] = arithmetic.round(dtype, value);
    });
    for (largest, weight) in largest.data.iter_mut().zip(&weights.data) {
        if *weight > 0.0 {
            *largest = arithmetic.round(Dtype::F32, *largest + weight.ln());
        }
    }
    Ok(PartialAttention { result: sum, statistics: largest })
}

/// How much the part with this statistic counts, against 1 for the part with the largest one.
fn weight(statistic: f64, largest: f64) -> f64 {
    if statistic == f64::NEG_INFINITY { 0.0 } else { (statistic - largest).exp() }
}

/// For each dim of the result, how far apart its neighbours are in the data of the statistics; 0
/// for a dim that the statistics do not have.
fn along(statistics: &Tensor, by: DimSet, rank: usize) -> Vec<usize> {
    let mut strides = vec![0; rank];
    by.iter().zip(statistics.strides()).for_each(|(dim, stride)| strides[dim] = stride);
    strides
}

/// The messages of a merge along a dim, by the table above; `by` are the dims of the result that
/// the statistics have.
fn sent(
    step: &Move<'_>,
    groups: &Groups,
    dim: Option<usize>,
    by: DimSet,
    results: &[Arc<Tensor>],
    statistics: &[Tensor],
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

    /// A [`PartialAttention`] of one query with three values.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct OneQuery {
        statistic: f64,
        values: [f64; 3],
    }

    const NOTHING: OneQuery = OneQuery { statistic: f64::NEG_INFINITY, values: [0.0; 3] };

    /// Parts of which some see no key.
    fn parts(seed: u64, count: usize) -> Vec<OneQuery> {
        let mut random = crate::Random::new(seed);
        let mut number = || random.next_u64() as f64 / u64::MAX as f64 * 8.0 - 4.0;
        (0..count)
            .map(|at| {
                if (seed >> at) & 1 == 1 {
                    NOTHING
                } else {
                    OneQuery { statistic: number(), values: [number(), number(), number()] }
                }
            })
            .collect()
    }

    /// The merge of some parts in one step.
    fn merged(parts: &[OneQuery]) -> OneQuery {
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
        let result = |p: &OneQuery| Tensor::new(vec![1, 3], p.values.to_vec()).expect("fits");
        let results: Vec<Arc<Tensor>> = parts.iter().map(|p| Arc::new(result(p))).collect();
        let statistics: Vec<Tensor> =
            parts.iter().map(|p| Tensor::new(vec![1], vec![p.statistic]).expect("fits")).collect();
        let grid = Grid::new(&mesh);
        let out = merge(&step, &grid, &results, &statistics).expect("merges");
        assert_ne!(axes, AxisSet::EMPTY);
        let data = &out.results[0].data;
        OneQuery { statistic: out.statistics[0].data[0], values: [data[0], data[1], data[2]] }
    }

    fn same(a: OneQuery, b: OneQuery) -> bool {
        let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-5;
        near(a.statistic, b.statistic) && a.values.iter().zip(b.values).all(|(a, b)| near(*a, b))
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
            assert!(all.values.iter().all(|value| value.is_finite()), "{seed}");
        }
    }

    #[test]
    fn what_sees_no_key_changes_nothing_and_makes_no_nan() {
        assert_eq!(merged(&[NOTHING, NOTHING]), NOTHING);
        for seed in 0..16 {
            let part = parts(seed << 8, 1)[0];
            assert!(same(part, merged(&[part, NOTHING])));
        }
    }
}
