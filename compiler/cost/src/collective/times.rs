//! The times of moves of whole blocks or of parts of them, for those who ask for many.

use std::collections::BTreeMap;

use shard_ir::{AxisId, Dtype, Layout, Mesh, Picoseconds};

use super::permute::{Relation, affected, relation};
use super::terms::NetworkTime;
use crate::hardware::{Fabric, Hardware, Topology};

/// What a move does to one network.
pub trait NetworkLoad: Copy {
    /// What the move between two layouts does to each network; these axes split otherwise after it.
    fn on_each(
        topology: &Topology<'_>,
        mesh: &Mesh,
        from: Layout,
        to: Layout,
        ids: &[AxisId],
    ) -> Vec<Self>;

    /// The network so loaded, where devices hold blocks of `bits`; `None` where nothing travels.
    fn under(&self, fabric: &Fabric, bits: u128) -> Option<NetworkTime>;
}

/// The times of moves of one kind on one mesh: what a move does to the networks is worked out once
/// for all that do the same.
pub struct MoveTimes<'h, L> {
    mesh: &'h Mesh,
    topology: Topology<'h>,
    /// How often the time of a move counts.
    weight: u64,
    known: BTreeMap<Relation, Vec<L>>,
}

impl<'h, L: NetworkLoad> MoveTimes<'h, L> {
    /// Nothing worked out yet.
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

    /// The same for blocks of `bits`, as the networks that they travel over.
    pub(super) fn networks(&mut self, from: Layout, to: Layout, bits: u128) -> Vec<NetworkTime> {
        let loads = self.loads(from, to).to_vec();
        let on = self.topology.fabrics.iter().zip(loads);
        on.filter_map(|(fabric, load)| load.under(fabric, bits)).collect()
    }

    /// What the move does to each network.
    pub(super) fn loads(&mut self, from: Layout, to: Layout) -> &[L] {
        let ids = affected(self.mesh, from, to);
        let (mesh, topology) = (self.mesh, &self.topology);
        self.known
            .entry(relation(&ids, from, to))
            .or_insert_with(|| L::on_each(topology, mesh, from, to, &ids))
    }
}
