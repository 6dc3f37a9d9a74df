//! [`Network`]: what connects the chips, and which mesh axes run over what.
//!
//! A kind of network is one file: `flat`, `torus`, `switched`. Each implements [`kind::Kind`]: how
//! a hardware file states it, what its wires are, how long moves take on it, which slices there
//! are. Moves that are followed part by part or block by block ([`collective`](crate::collective))
//! see [`Wire`]s alone.

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

/// What connects the chips: one fabric for all mesh axes, but for those that have another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// The chips' own fabric: every mesh axis that is not named in `axes` runs over it.
    pub fabric: Fabric,
    /// What the other mesh axes run over, sorted by the names of the axes.
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
    /// The networks.
    pub(crate) fabrics: Vec<&'h Fabric>,
    /// For each mesh axis what it runs over.
    pub(crate) axes: Vec<RunsOver>,
}

/// What a mesh axis runs over.
pub(crate) struct RunsOver {
    /// The network, as an index into [`Topology::fabrics`].
    pub(crate) network: usize,
    /// The wires, major to minor.
    pub(crate) wires: Vec<Wire>,
}

/// The slice that a mesh asks for: the mesh axes that run over the chips' own fabric, major to
/// minor.
pub(crate) struct Slice(pub(crate) Vec<SliceAxis>);

/// A mesh axis of a slice.
pub(crate) struct SliceAxis {
    pub(crate) name: String,
    pub(crate) size: u64,
    /// The torus axes that it stands for.
    pub(crate) torus: Vec<u64>,
}

impl Network {
    /// What the file says that a mesh axis of this name runs over, if it names the axis.
    pub(crate) fn of_axis(&self, name: &str) -> Option<&AxisNetwork> {
        self.axes.iter().find(|(n, _)| n == name).map(|(_, network)| network)
    }

    /// Whether a collective over several axes of this mesh takes exactly as long as a chain of
    /// collectives over one axis each: on one flat network without latency.
    pub fn adds_up(&self, mesh: &Mesh) -> bool {
        self.fabric.kind().latency().0 == 0 && self.treats_axes_alike(mesh)
    }

    /// Whether the time of a move on this mesh depends on how many devices it connects and not on
    /// which: on one flat network.
    pub fn treats_axes_alike(&self, mesh: &Mesh) -> bool {
        let on_the_fabric = |axis: &shard_ir::mesh::MeshAxis| {
            !matches!(self.of_axis(&axis.name), Some(AxisNetwork::Own(_)))
        };
        self.fabric.kind().is_uniform() && mesh.axes().iter().all(on_the_fabric)
    }

    /// Whether a mesh axis runs over rings of a torus, each end linked to the other.
    pub fn wraps_around(&self, mesh: &Mesh, axis: AxisId) -> bool {
        let topology = self.topology(mesh);
        let RunsOver { network, wires } = &topology.axes[axis.index()];
        topology.fabrics[*network].kind().has_links()
            && wires.iter().all(|wire| wire.kind == WireKind::Ring)
    }

    /// The sizes of the torus axes that a mesh axis on the chips' own torus stands for. Torus axes
    /// whose product is not the size of the axis are ignored;
    /// [`Hardware::slice_problem`](super::Hardware::slice_problem) reports them.
    pub(crate) fn torus_sizes(&self, mesh: &Mesh, axis: AxisId) -> Vec<u64> {
        match self.of_axis(mesh.name(axis)) {
            Some(AxisNetwork::TorusAxes(sizes))
                if sizes.iter().product::<u64>() == mesh.size(axis) =>
            {
                sizes.iter().copied().filter(|s| *s > 1).collect()
            }
            Some(AxisNetwork::TorusAxes(_) | AxisNetwork::Own(_)) | None => vec![mesh.size(axis)],
        }
    }

    /// The mesh axes that run over the chips' own fabric, major to minor.
    pub(crate) fn own_axes(&self, mesh: &Mesh) -> Vec<AxisId> {
        let own = |a: &AxisId| !matches!(self.of_axis(mesh.name(*a)), Some(AxisNetwork::Own(_)));
        mesh.axis_ids().filter(own).collect()
    }

    /// Why there is no slice of the shape of a mesh, if there is none.
    pub(crate) fn slice_problem(&self, mesh: &Mesh) -> Option<SliceProblem> {
        let axis = |a: AxisId| SliceAxis {
            name: mesh.name(a).to_string(),
            size: mesh.size(a),
            torus: self.torus_sizes(mesh, a),
        };
        self.fabric
            .kind()
            .slice_problem(&Slice(self.own_axes(mesh).into_iter().map(axis).collect()))
    }

    /// The networks of a mesh: the chips' own first, then those of mesh axes that have one.
    pub(crate) fn topology(&self, mesh: &Mesh) -> Topology<'_> {
        let mut fabrics = vec![&self.fabric];
        let nothing = |_| RunsOver { network: 0, wires: Vec::new() };
        let mut axes: Vec<RunsOver> = mesh.axis_ids().map(nothing).collect();
        let own = self.own_axes(mesh);
        let torus: Vec<Vec<u64>> = own.iter().map(|a| self.torus_sizes(mesh, *a)).collect();
        for (id, wires) in own.iter().zip(self.fabric.kind().wires(&torus)) {
            axes[id.index()].wires = wires;
        }
        for id in mesh.axis_ids() {
            if let Some(AxisNetwork::Own(fabric)) = self.of_axis(mesh.name(id)) {
                let wires = fabric.kind().wires(&[vec![mesh.size(id)]]).concat();
                axes[id.index()] = RunsOver { network: fabrics.len(), wires };
                fabrics.push(fabric);
            }
        }
        Topology { fabrics, axes }
    }
}
