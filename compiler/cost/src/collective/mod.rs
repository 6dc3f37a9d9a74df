//! What a move costs: its bytes and its time.

mod digits;
mod exchange;
mod parts;
mod permute;
mod regroup;
mod steps;
mod terms;
mod times;
mod weighted;

use shard_ir::catalogue::Sends;
use shard_ir::{
    AxisList, Collective, Dtype, Layout, Mesh, MeshShape, Picoseconds, kept_by_each, never,
};

use crate::hardware::{Fabric, Hardware};
use crate::units::{Bytes, time_at_rate};
use exchange::ExchangeTimes;
pub(crate) use exchange::{ExchangeLoad, Fraction};
pub(crate) use permute::PermuteLoad;
pub use permute::PermuteTimes;
pub use regroup::{RegroupTimes, Regroupings};
use steps::Networks;
pub use terms::{CollectiveTime, How, NetworkTime, Term};
pub use weighted::Weighted;

/// What one move costs each device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CollectiveCost {
    /// The bytes on one device of the larger buffer: the result of an all-gather, the operand of
    /// any other move. Those of a softmax-merge include its statistics.
    pub bytes: Bytes,
    /// The bytes that the busiest device sends.
    pub wire_bytes: Bytes,
    /// The time.
    pub time: Picoseconds,
}

impl std::iter::Sum for CollectiveCost {
    /// Several moves, one after the other.
    fn sum<I: Iterator<Item = CollectiveCost>>(iter: I) -> CollectiveCost {
        iter.fold(CollectiveCost::default(), |a, b| CollectiveCost {
            bytes: a.bytes + b.bytes,
            wire_bytes: a.wire_bytes + b.wire_bytes,
            time: a.time + b.time,
        })
    }
}

/// What a move of a value of these global `sizes` from the layout `from` costs. With D = `bytes`
/// and K = devices in a group:
///
/// | move | wire bytes |
/// |---|---|
/// | all-gather, reduce-scatter, all-to-all | D(K-1)/K |
/// | all-reduce | 2D(K-1)/K, and the time of a reduce-scatter and an all-gather |
/// | collective-permute | D |
/// | softmax-merge | what the all-reduce of the statistics and the sum behind it send ([`Weighted`]) |
/// | exchange | D (1 - o), o the least part of its new block that any device has already |
/// | slice, to-partial | 0, and no time |
///
/// The time depends on the networks that the axes run over; `spec/cost.md` derives it for each. It
/// is never below what the hops (or steps) take at least. Bytes are exact where D(K-1)/K is whole
/// and rounded up otherwise; the time is computed from bits, so that half bytes (int4) are not
/// lost.
///
/// The move has to apply to `from`.
pub fn collective_cost(
    hw: &Hardware,
    mesh: &Mesh,
    collective: &Collective,
    from: Layout,
    sizes: &[u64],
    dtype: Dtype,
) -> CollectiveCost {
    cost_in(
        collective_time(hw, mesh, collective, from, sizes, dtype).total(),
        mesh,
        collective,
        from,
        sizes,
        dtype,
    )
}

/// The cost of a move that takes this time.
fn cost_in(
    time: Picoseconds,
    mesh: &Mesh,
    collective: &Collective,
    from: Layout,
    sizes: &[u64],
    dtype: Dtype,
) -> CollectiveCost {
    let axes = collective.axes(mesh, from);
    let group = mesh.group_size(axes.iter());
    let elements = larger_buffer(mesh, collective, from, sizes);
    let bits = u128::from(elements) * u128::from(dtype.bits());
    let part_of = |bits: u128| {
        let sent = bits.saturating_mul(u128::from(group - 1));
        sent.div_ceil(u128::from(group) * 8)
    };
    let all_but_own = |times: u128| part_of(bits.saturating_mul(times));
    let weighted = Weighted::of(mesh, collective, from, sizes, dtype);
    let wire = match collective.row().sends {
        Sends::Nothing => 0,
        Sends::Around | Sends::Across => all_but_own(1),
        Sends::AroundTwice => all_but_own(2),
        Sends::Blocks => bits.div_ceil(8),
        // Each device keeps one of as many parts as the group has devices, or nothing.
        Sends::Lacking => match collective.terms().to.and_then(|to| kept_by_each(mesh, from, to)) {
            Some(_) => all_but_own(1),
            None => bits.div_ceil(8),
        },
        Sends::Weighted => match weighted {
            Some(weighted) => part_of(weighted.sent_bits()),
            None => never!("a merge without statistics", 0),
        },
    };
    CollectiveCost {
        bytes: Bytes(dtype.bytes(elements))
            + weighted.map_or(Bytes(0), |weighted| weighted.statistics_bytes()),
        wire_bytes: Bytes(u64::try_from(wire).unwrap_or(u64::MAX)),
        time,
    }
}

/// The time of a move ([`collective_cost`]) with the terms that it is made of.
pub fn collective_time(
    hw: &Hardware,
    mesh: &Mesh,
    collective: &Collective,
    from: Layout,
    sizes: &[u64],
    dtype: Dtype,
) -> CollectiveTime {
    let axes = collective.axes(mesh, from);
    let bits = u128::from(larger_buffer(mesh, collective, from, sizes)) * u128::from(dtype.bits());
    let networks = || Networks::of(hw, mesh, &axes);
    let to = || {
        collective
            .terms()
            .to
            .unwrap_or_else(|| never!("a move of blocks that does not say where to", from))
    };
    let (networks, times) = match collective.row().sends {
        Sends::Nothing => (Vec::new(), 1),
        Sends::Around => (networks().gather(bits), 1),
        Sends::AroundTwice => (networks().gather(bits), 2),
        Sends::Across => (networks().exchange(bits), 1),
        Sends::Lacking => (ExchangeTimes::new(hw, mesh).networks(from, to(), bits), 1),
        Sends::Weighted => match Weighted::of(mesh, collective, from, sizes, dtype) {
            Some(weighted) => (weighted.networks(&networks()), 1),
            None => never!("a merge without statistics", (Vec::new(), 1)),
        },
        Sends::Blocks => (PermuteTimes::new(hw, mesh).networks(from, to(), bits), 1),
    };
    CollectiveTime { bits, networks, times: times * hw.move_weight() }
}

/// Elements on one device of the larger buffer of a move.
fn larger_buffer(mesh: &Mesh, collective: &Collective, from: Layout, sizes: &[u64]) -> u64 {
    let before = MeshShape { mesh, sizes }.local_elements(from);
    let group = mesh.group_size(collective.axes(mesh, from).iter());
    if collective.makes_more() { before.saturating_mul(group) } else { before }
}

/// A lower bound of the time of any permute of a value with so many elements on a device: a block
/// that moves crosses at least one link, and none is faster than the fastest.
pub fn least_permute_time(
    hw: &Hardware,
    mesh: &Mesh,
    local_elements: u64,
    dtype: Dtype,
) -> Picoseconds {
    let bits = u128::from(local_elements) * u128::from(dtype.bits());
    let topology = hw.network.topology(mesh);
    let on = |fabric: &&Fabric| {
        let fabric = fabric.kind();
        time_at_rate(bits, 8, fabric.fastest()).max(fabric.latency())
    };
    let least = topology.fabrics.iter().map(on).min();
    let least = least.unwrap_or_else(|| never!("a mesh without a network", Picoseconds(0)));
    Picoseconds(least.0.saturating_mul(hw.move_weight()))
}

/// A key of a list of axes: moves of one kind over lists with the same key take the same time for
/// the same local size. Not for permutes and exchanges, whose time depends on their layouts.
pub fn axes_key(hw: &Hardware, mesh: &Mesh, axes: &AxisList) -> u64 {
    if hw.network.treats_axes_alike(mesh) {
        mesh.group_size(axes.iter())
    } else {
        axes.iter().fold(0, |set, axis| set | 1 << axis.index())
    }
}
