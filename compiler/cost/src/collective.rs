//! What a move costs.

use shard_ir::{Collective, Dtype, Layout, Mesh, MeshShape, Picoseconds};

use crate::hardware::{Hardware, Network};
use crate::units::{Bytes, time_at_rate};

/// What one move costs each device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectiveCost {
    /// The bytes on one device of the larger buffer: what an all-gather gives, what a reduce-scatter or all-reduce takes,
    /// what an all-to-all or a permute holds.
    pub bytes: Bytes,
    /// The bytes that the busiest device sends.
    pub wire_bytes: Bytes,
    /// The time.
    pub time: Picoseconds,
}

/// What a move of a value of these global `sizes` from the layout `from` costs. With D = `bytes` and K = devices in a
/// group, on a flat network of bandwidth W:
///
/// | move | wire bytes | time |
/// |---|---|---|
/// | all-gather, reduce-scatter, all-to-all | D(K-1)/K | D(K-1)/K / W |
/// | all-reduce | 2D(K-1)/K | a reduce-scatter and an all-gather |
/// | collective-permute | D | D / W |
/// | slice, to-partial | 0 | 0 |
///
/// The time of D(K-1)/K is taken as that of D less that of D/K, each in whole picoseconds: so the times of a chain of
/// all-gathers (or reduce-scatters) over neighbouring axes add up to exactly that of the one over them all, and plans that
/// are equal in bytes are equal in time.
///
/// The time is never below the network's latency (twice for an all-reduce). Bytes are exact where D(K-1)/K is whole and
/// rounded up otherwise; the time is computed from bits, so that half bytes (int4) are not lost.
///
/// The caller sees to it that the move applies to `from`.
pub fn collective_cost(
    hw: &Hardware,
    mesh: &Mesh,
    collective: &Collective,
    from: Layout,
    sizes: &[u64],
    dtype: Dtype,
) -> CollectiveCost {
    let group = mesh.group_size(collective.axes(mesh, from).iter());
    let before = MeshShape { mesh, sizes }.local_elements(from);
    let (elements, traffic) = match collective {
        Collective::AllGather { .. } => (before.saturating_mul(group), Traffic::AllButOwn { steps: 1 }),
        Collective::ReduceScatter { .. } | Collective::AllToAll { .. } => (before, Traffic::AllButOwn { steps: 1 }),
        Collective::AllReduce { .. } => (before, Traffic::AllButOwn { steps: 2 }),
        Collective::Permute { .. } => (before, Traffic::Everything),
        Collective::Slice { .. } | Collective::ToPartial { dim: None, .. } => (before, Traffic::None),
        Collective::ToPartial { dim: Some(_), .. } => (before.saturating_mul(group), Traffic::None),
    };
    let bits = u128::from(elements) * u128::from(dtype.bits());
    // Bits sent in one step, times `parts`.
    let (sent, parts, steps) = match traffic {
        Traffic::None => return CollectiveCost { bytes: Bytes(dtype.bytes(elements)), ..CollectiveCost::default() },
        Traffic::Everything => (bits, 1, 1),
        Traffic::AllButOwn { steps } => (bits.saturating_mul(u128::from(group - 1)), group, steps),
    };
    let wire = sent.saturating_mul(u128::from(steps)).div_ceil(u128::from(parts) * 8);
    let one_step = match hw.network {
        Network::Flat { bandwidth, latency } => {
            let all = time_at_rate(bits, 8, bandwidth);
            let own = match traffic {
                Traffic::AllButOwn { .. } => time_at_rate(bits, group.saturating_mul(8), bandwidth),
                Traffic::None | Traffic::Everything => Picoseconds(0),
            };
            Picoseconds(all.0.saturating_sub(own.0)).max(latency)
        }
    };
    CollectiveCost {
        bytes: Bytes(dtype.bytes(elements)),
        wire_bytes: Bytes(u64::try_from(wire).unwrap_or(u64::MAX)),
        time: Picoseconds(one_step.0.saturating_mul(steps)),
    }
}

/// What each device sends of the larger buffer.
#[derive(Clone, Copy)]
enum Traffic {
    None,
    Everything,
    /// All but its own share of the group's, `steps` times over.
    AllButOwn {
        steps: u64,
    },
}
