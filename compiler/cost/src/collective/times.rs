//! [`MoveTimes`]: the times of many permutes or exchanges on one mesh.

use std::collections::BTreeMap;

use shard_ir::{AxisId, AxisSet, Dtype, Layout, Mesh, Picoseconds};

use super::permute::{Relation, affected, relation};
use super::terms::NetworkTime;
use crate::hardware::{Fabric, Hardware, Topology};

/// The load that a move puts on one network.
pub trait NetworkLoad: Copy {
    /// The load of the move between two layouts on each network; `ids` are the affected axes.
    fn on_each(
        topology: &Topology<'_>,
        mesh: &Mesh,
        from: Layout,
        to: Layout,
        ids: &[AxisId],
    ) -> Vec<Self>;

    /// The time on a network with this load, if devices hold blocks of `bits`; `None` if nothing
    /// travels over it.
    fn under(&self, fabric: &Fabric, bits: u128) -> Option<NetworkTime>;
}

/// The times of moves of one kind on one mesh. Loads are computed once for all moves of the same
/// [`Relation`].
pub struct MoveTimes<'h, L> {
    mesh: &'h Mesh,
    topology: Topology<'h>,
    /// How often the time of a move counts.
    weight: u64,
    known: BTreeMap<Relation, Vec<L>>,
}

impl<'h, L: NetworkLoad> MoveTimes<'h, L> {
    /// No load is computed yet.
    pub fn new(hw: &'h Hardware, mesh: &'h Mesh) -> MoveTimes<'h, L> {
        let (topology, weight) = (hw.network.topology(mesh), hw.move_weight());
        MoveTimes { mesh, topology, weight, known: BTreeMap::new() }
    }

    /// The time of the move from one layout to another of a value with so many elements on a
    /// device.
    pub fn time(
        &mut self,
        from: Layout,
        to: Layout,
        local_elements: u64,
        dtype: Dtype,
    ) -> Picoseconds {
        let bits = u128::from(local_elements) * u128::from(dtype.bits());
        let once: Picoseconds = self.networks(from, to, bits).iter().map(NetworkTime::time).sum();
        Picoseconds(once.0.saturating_mul(self.weight))
    }

    /// The time of the move on each network that it travels over, if devices hold blocks of `bits`.
    pub(super) fn networks(&mut self, from: Layout, to: Layout, bits: u128) -> Vec<NetworkTime> {
        let loads = self.loads(from, to).to_vec();
        self.under(&loads, bits)
    }

    /// The same for a move with these loads.
    pub(super) fn under(&self, loads: &[L], bits: u128) -> Vec<NetworkTime> {
        let on = self.topology.fabrics.iter().zip(loads);
        on.filter_map(|(fabric, load)| load.under(fabric, bits)).collect()
    }

    /// The load of the move on each network.
    pub(super) fn loads(&mut self, from: Layout, to: Layout) -> &[L] {
        let axes = affected(self.mesh, from, to);
        self.loads_of(axes, relation(axes, from, to), from, to)
    }

    /// The same for a move that affects these axes and has this relation.
    pub(super) fn loads_of(
        &mut self,
        axes: AxisSet,
        relation: Relation,
        from: Layout,
        to: Layout,
    ) -> &[L] {
        let (mesh, topology) = (self.mesh, &self.topology);
        self.known.entry(relation).or_insert_with(|| {
            let ids: Vec<AxisId> = axes.iter().collect();
            L::on_each(topology, mesh, from, to, &ids)
        })
    }
}
