//! [`Network`]: what connects the chips, and which mesh axes run over what.

use shard_ir::{AxisId, Mesh, Picoseconds};

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

/// One kind of network with its figures. Bandwidths are bytes per second in one direction, efficiency included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fabric {
    /// Every device sends and receives at one bandwidth, whichever the mesh axis.
    Flat {
        /// Bytes per second that a device sends.
        bandwidth: u64,
        /// No collective takes less (an all-reduce, twice this).
        latency: Picoseconds,
    },
    /// Every device has two links along each torus axis.
    Torus {
        /// Bytes per second over one link, one way.
        link_bandwidth: u64,
        /// What a hop from a chip to its neighbour takes at least.
        hop_latency: Picoseconds,
        /// Which torus axes are rings.
        wraparound: Wraparound,
        /// The largest slice, axis by axis; empty where the file does not say.
        pod: Vec<u64>,
        /// The mesh is a face of a larger slice, whose other axes it does not name.
        face: bool,
    },
    /// Devices behind one switch form a node; each has an adapter to those of other nodes.
    Switched {
        /// Devices in a node.
        node: u64,
        /// Bytes per second that a device sends inside its node.
        node_bandwidth: u64,
        /// Bytes per second that a device sends to other nodes.
        nic_bandwidth: u64,
        /// What a step takes at least.
        alpha: Picoseconds,
    },
}

/// Which axes of a torus wrap around, so that they are rings; the others are lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wraparound {
    /// All.
    Always,
    /// None.
    Never,
    /// `multiple-of-4`: all, if the slice consists of whole 4x4x4 cubes (it has three axes, multiples of 4), else none.
    WholeCubes,
    /// `full-axis-N`: an axis that is as long as the pod's, N chips.
    FullAxis(u64),
}

/// Edge of the cube of `multiple-of-4`, in chips.
pub const CUBE: u64 = 4;

/// Axes of the cube.
pub(super) const CUBE_AXES: usize = 3;

/// One axis of a torus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TorusAxis {
    pub(crate) size: u64,
    pub(crate) ring: bool,
}

/// How a mesh axis runs over its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wires {
    Flat,
    /// The torus axes it stands for, major to minor; their sizes multiply to its own.
    Torus(Vec<TorusAxis>),
    /// So many of its devices share a node, times so many nodes.
    Switched {
        inside: u64,
        outside: u64,
    },
}

/// The networks of a mesh, and what each axis runs over.
pub(crate) struct Topology<'h> {
    pub(crate) fabrics: Vec<&'h Fabric>,
    /// By mesh axis: the index of its network, and its wires.
    pub(crate) axes: Vec<(usize, Wires)>,
}

impl Network {
    /// What a mesh axis of this name runs over, where that is not the chips' own fabric axis by axis.
    pub(crate) fn of_axis(&self, name: &str) -> Option<&AxisNetwork> {
        self.axes.iter().find(|(n, _)| n == name).map(|(_, network)| network)
    }

    /// Whether a collective over several axes takes, on this mesh, exactly as long as a chain of single ones: one flat
    /// network without latency.
    pub fn adds_up(&self, mesh: &Mesh) -> bool {
        matches!(self.fabric, Fabric::Flat { latency: Picoseconds(0), .. }) && self.treats_axes_alike(mesh)
    }

    /// Whether what a move takes, on this mesh, depends on how many devices it connects and not on which: one flat network.
    pub fn treats_axes_alike(&self, mesh: &Mesh) -> bool {
        let on_the_fabric =
            |axis: &shard_ir::mesh::MeshAxis| !matches!(self.of_axis(&axis.name), Some(AxisNetwork::Own(_)));
        matches!(self.fabric, Fabric::Flat { .. }) && mesh.axes().iter().all(on_the_fabric)
    }

    /// Whether a mesh axis runs over rings of a torus, each end linked to the other.
    pub fn wraps_around(&self, mesh: &Mesh, axis: AxisId) -> bool {
        match &self.topology(mesh).axes[axis.index()].1 {
            Wires::Torus(torus) => torus.iter().all(|t| t.ring),
            Wires::Flat | Wires::Switched { .. } => false,
        }
    }

    /// The torus axes of a mesh axis on the chips' own torus. A fold that does not give the size of the axis is passed
    /// over; [`Hardware::slice_problem`](super::Hardware::slice_problem) reports it.
    pub(crate) fn torus_sizes(&self, mesh: &Mesh, axis: AxisId) -> Vec<u64> {
        match self.of_axis(mesh.name(axis)) {
            Some(AxisNetwork::TorusAxes(sizes)) if sizes.iter().product::<u64>() == mesh.size(axis) => {
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

    pub(crate) fn topology(&self, mesh: &Mesh) -> Topology<'_> {
        let mut fabrics = vec![&self.fabric];
        let mut axes: Vec<(usize, Wires)> = mesh.axis_ids().map(|_| (0, Wires::Flat)).collect();
        let own = self.own_axes(mesh);
        let torus: Vec<Vec<u64>> = own.iter().map(|a| self.torus_sizes(mesh, *a)).collect();
        for ((axis, wires), id) in wires_of(&self.fabric, &torus).into_iter().zip(&own).map(|(w, a)| ((0, w), *a)) {
            axes[id.index()] = (axis, wires);
        }
        for id in mesh.axis_ids() {
            if let Some(AxisNetwork::Own(fabric)) = self.of_axis(mesh.name(id)) {
                fabrics.push(fabric);
                let wires = wires_of(fabric, &[vec![mesh.size(id)]]).pop().unwrap_or(Wires::Flat);
                axes[id.index()] = (fabrics.len() - 1, wires);
            }
        }
        Topology { fabrics, axes }
    }
}

/// The wires of each mesh axis of one network, major to minor; `torus` has for each the torus axes that it stands for.
fn wires_of(fabric: &Fabric, torus: &[Vec<u64>]) -> Vec<Wires> {
    match fabric {
        Fabric::Flat { .. } => torus.iter().map(|_| Wires::Flat).collect(),
        Fabric::Torus { wraparound, face, .. } => {
            // The links that close a ring run between the faces of cubes: a slice with an axis of one chip has none.
            let solid = *face || torus.iter().flatten().count() >= CUBE_AXES;
            let cubes = solid && torus.iter().flatten().all(|size| size.is_multiple_of(CUBE));
            let ring = |size: u64| match wraparound {
                Wraparound::Always => true,
                Wraparound::Never => false,
                Wraparound::WholeCubes => cubes,
                Wraparound::FullAxis(full) => size == *full,
            };
            let axis = |sizes: &Vec<u64>| sizes.iter().map(|s| TorusAxis { size: *s, ring: ring(*s) }).collect();
            torus.iter().map(|sizes| Wires::Torus(axis(sizes))).collect()
        }
        Fabric::Switched { node, .. } => {
            let sizes: Vec<u64> = torus.iter().map(|sizes| sizes.iter().product()).collect();
            let inside = inside_nodes(&sizes, *node);
            let wires =
                sizes.iter().zip(inside).map(|(size, inside)| Wires::Switched { inside, outside: size / inside });
            wires.collect()
        }
    }
}

/// How many devices along each mesh axis, major to minor, share a node.
///
/// Nodes are filled from the last axis on. An axis whose groups, with all that lies behind them, fit into a node lies in it
/// altogether; the first that does not is cut into the fewest parts of one size that do; those before it are between nodes.
/// So every node bears equally many devices of the mesh, side by side, and has perhaps others that the mesh does not take.
pub(super) fn inside_nodes(sizes: &[u64], node: u64) -> Vec<u64> {
    let mut room = node;
    let mut inside: Vec<u64> = sizes
        .iter()
        .rev()
        .map(|size| {
            let part = (1..=room.min(*size)).rev().find(|part| size.is_multiple_of(*part)).unwrap_or(1);
            room = if part == *size { room / size.max(&1) } else { 1 };
            part
        })
        .collect();
    inside.reverse();
    inside
}
