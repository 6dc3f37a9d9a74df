//! [`Network`]: what connects the chips, and which mesh axes run over what.
//!
//! A kind of network is one file: `flat`, `torus`, `switched`. Each says what [`kind::Kind`] asks:
//! how a hardware file states it, what its wires are, what moves take on it, which slices there
//! are. What is followed part by part and block by block ([`collective`](crate::collective)) knows
//! [`Wire`]s alone.

mod flat;
mod kind;
mod switched;
mod torus;
mod wires;

use shard_ir::{AxisId, Mesh};

use crate::hardware::SliceProblem;

pub use flat::Flat;
pub use kind::{Fabric, Figure};
pub(crate) use kind::{Gathered, KINDS, Moved};
pub use switched::Switched;
#[cfg(test)]
pub(crate) use switched::inside_nodes;
pub use torus::{CUBE, Torus, Wraparound};
pub(crate) use wires::{Wire, WireKind, inside};

/// What connects the chips: one fabric, but for mesh axes that have another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// What every mesh axis runs over that is not named in `axes`.
    pub fabric: Fabric,
    /// Mesh axes of their own kind, by name, sorted.
    pub axes: Vec<(String, AxisNetwork)>,
}

/// What one mesh axis runs over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AxisNetwork {
    /// Several axes of the chips' own torus, major to minor.
    TorusAxes(Vec<u64>),
    /// A network of its own.
    Own(Fabric),
}

/// The networks of a mesh, and what each axis runs over.
pub struct Topology<'h> {
    pub(crate) fabrics: Vec<&'h Fabric>,
    /// By mesh axis: the index of its network, and its wires, major to minor.
    pub(crate) axes: Vec<(usize, Vec<Wire>)>,
}

/// The slice that a mesh asks for: the mesh axes that run over the chips' own fabric, major to
/// minor, each with its size and the torus axes that it stands for.
pub(crate) struct Slice(pub(crate) Vec<(String, u64, Vec<u64>)>);

impl Network {
    /// What a mesh axis of this name runs over, where that is not the chips' own fabric axis by
    /// axis.
    pub(crate) fn of_axis(&self, name: &str) -> Option<&AxisNetwork> {
        self.axes.iter().find(|(n, _)| n == name).map(|(_, network)| network)
    }

    /// Whether a collective over several axes takes, on this mesh, exactly as long as a chain of
    /// single ones: one flat network without latency.
    pub fn adds_up(&self, mesh: &Mesh) -> bool {
        self.fabric.kind().latency().0 == 0 && self.treats_axes_alike(mesh)
    }

    /// Whether what a move takes, on this mesh, depends on how many devices it connects and not on
    /// which: one flat network.
    pub fn treats_axes_alike(&self, mesh: &Mesh) -> bool {
        let on_the_fabric = |axis: &shard_ir::mesh::MeshAxis| {
            !matches!(self.of_axis(&axis.name), Some(AxisNetwork::Own(_)))
        };
        self.fabric.kind().is_uniform() && mesh.axes().iter().all(on_the_fabric)
    }

    /// Whether a mesh axis runs over rings of a torus, each end linked to the other.
    pub fn wraps_around(&self, mesh: &Mesh, axis: AxisId) -> bool {
        let topology = self.topology(mesh);
        let (network, wires) = &topology.axes[axis.index()];
        topology.fabrics[*network].kind().has_links()
            && wires.iter().all(|wire| wire.kind == WireKind::Ring)
    }

    /// The torus axes of a mesh axis on the chips' own torus. A fold that does not give the size of
    /// the axis is passed over; [`Hardware::slice_problem`](super::Hardware::slice_problem) reports
    /// it.
    pub(crate) fn torus_sizes(&self, mesh: &Mesh, axis: AxisId) -> Vec<u64> {
        match self.of_axis(mesh.name(axis)) {
            Some(AxisNetwork::TorusAxes(sizes))
                if sizes.iter().product::<u64>() == mesh.size(axis) =>
            {
                sizes.iter().copied().filter(|s| *s > 1).collect()
            }
            _ => vec![mesh.size(axis)],
        }
    }

    /// The mesh axes that run over the chips' own fabric, major to minor.
    pub(crate) fn own_axes(&self, mesh: &Mesh) -> Vec<AxisId> {
        let own = |a: &AxisId| !matches!(self.of_axis(mesh.name(*a)), Some(AxisNetwork::Own(_)));
        mesh.axis_ids().filter(own).collect()
    }

    /// What is wrong with the slice that a mesh asks for, if anything.
    pub(crate) fn slice_problem(&self, mesh: &Mesh) -> Option<SliceProblem> {
        let axis = |a: AxisId| (mesh.name(a).to_string(), mesh.size(a), self.torus_sizes(mesh, a));
        self.fabric
            .kind()
            .slice_problem(&Slice(self.own_axes(mesh).into_iter().map(axis).collect()))
    }

    pub(crate) fn topology(&self, mesh: &Mesh) -> Topology<'_> {
        let mut fabrics = vec![&self.fabric];
        let mut axes: Vec<(usize, Vec<Wire>)> = vec![(0, Vec::new()); mesh.axes().len()];
        let own = self.own_axes(mesh);
        let torus: Vec<Vec<u64>> = own.iter().map(|a| self.torus_sizes(mesh, *a)).collect();
        for (id, wires) in own.iter().zip(self.fabric.kind().wires(&torus)) {
            axes[id.index()].1 = wires;
        }
        for id in mesh.axis_ids() {
            if let Some(AxisNetwork::Own(fabric)) = self.of_axis(mesh.name(id)) {
                let wires = fabric.kind().wires(&[vec![mesh.size(id)]]).concat();
                axes[id.index()] = (fabrics.len(), wires);
                fabrics.push(fabric);
            }
        }
        Topology { fabrics, axes }
    }
}
