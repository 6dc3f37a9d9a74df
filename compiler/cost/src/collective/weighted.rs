//! What a softmax-merge sends, which makes of attentions over parts of the keys the one over all.

use shard_ir::attention::local_statistics;
use shard_ir::{Collective, Dtype, Layout, Mesh, MeshShape};

use super::steps::Networks;
use super::terms::NetworkTime;
use crate::units::Bytes;

/// The sizes and the steps of a softmax-merge. With R the result and S its statistics on one
/// device:
///
/// | merge | first | then |
/// |---|---|---|
/// | whole | all-reduce of the maximum of S | all-reduce of R and S |
/// | along a dim of the statistics | the same | reduce-scatter of R and S |
/// | along another dim | the same | reduce-scatter of R, all-reduce of S |
///
/// Each step waits for the one before it. R is sent in its own dtype, S in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weighted {
    /// R, in bits.
    pub result: u128,
    /// S, in bits.
    pub statistics: u128,
    /// Whether each device gets a block of the result, and not all of it.
    pub scatters: bool,
    /// Whether each device gets a block of the statistics, and not all of them.
    pub scatters_statistics: bool,
}

impl Weighted {
    /// The sizes and steps of a move; `None` if it is no softmax-merge.
    pub fn of(
        mesh: &Mesh,
        collective: &Collective,
        from: Layout,
        sizes: &[u64],
        dtype: Dtype,
    ) -> Option<Weighted> {
        let Collective::SoftmaxMerge { dim, statistics, .. } = *collective else { return None };
        let shape = MeshShape { mesh, sizes };
        let bits = |elements: u64, dtype: Dtype| u128::from(elements) * u128::from(dtype.bits());
        Some(Weighted {
            result: bits(shape.local_elements(from), dtype),
            statistics: bits(local_statistics(shape, from, statistics), Dtype::F32),
            scatters: dim.is_some(),
            scatters_statistics: dim.is_some_and(|dim| statistics.contains(dim)),
        })
    }

    /// The bits of all that the steps reduce or gather. A device sends (K-1)/K of them.
    pub(super) fn sent_bits(&self) -> u128 {
        let times = |scatters: bool| if scatters { 1 } else { 2 };
        let maximum = self.statistics.saturating_mul(2);
        let weights = self.statistics.saturating_mul(times(self.scatters_statistics));
        let result = self.result.saturating_mul(times(self.scatters));
        maximum.saturating_add(weights).saturating_add(result)
    }

    /// The bytes of the statistics: they are sent twice, once for the maximum, once beside the
    /// result.
    pub(super) fn statistics_bytes(&self) -> Bytes {
        Bytes(u64::try_from(self.statistics.div_ceil(8)).unwrap_or(u64::MAX)).times(2)
    }

    /// The networks of all steps, one after the other. An all-reduce is a reduce-scatter and an
    /// all-gather.
    pub(super) fn networks(&self, over: &Networks<'_>) -> Vec<NetworkTime> {
        let Weighted { result, statistics, scatters, scatters_statistics } = *self;
        let steps: &[u128] = match (scatters, scatters_statistics) {
            (false, _) => &[statistics, statistics, result + statistics, result + statistics],
            (true, true) => &[statistics, statistics, result + statistics],
            (true, false) => &[statistics, statistics, result, statistics, statistics],
        };
        steps.iter().flat_map(|bits| over.gather(*bits)).collect()
    }
}
