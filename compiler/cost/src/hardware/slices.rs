//! Whether a chip comes in slices of the shape of a mesh.

use shard_ir::Mesh;

use super::Hardware;
use crate::network::AxisNetwork;

/// Why no slice of a chip has the shape of a mesh. Shapes are of torus axes, or of mesh axes where
/// they are the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SliceProblem {
    /// The file lays a mesh axis over torus axes that do not multiply to its size.
    Fold {
        /// The mesh axis.
        axis: String,
        /// Its size.
        size: u64,
        /// The torus axes of the file.
        torus: Vec<u64>,
    },
    /// The torus axes do not fit into the largest slice.
    Pod {
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
        /// The largest slice.
        pod: Vec<u64>,
        /// A mesh axis, and torus axes that it could stand for, with which the mesh would fit.
        fold: Option<(String, Vec<u64>)>,
    },
    /// The slice is larger than a cube and not made of whole ones.
    Cubes {
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
    },
    /// Every axis is a multiple of a cube's, but there are fewer than three: a face of a slice, and
    /// no slice.
    Face {
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
    },
    /// The groups of a mesh axis fit into no node, and cannot be cut so that they fill nodes.
    Straddles {
        /// The mesh axis.
        axis: String,
        /// Devices in a node.
        node: u64,
        /// So many of the axis could share a node.
        fits: u64,
        /// So many do.
        inside: u64,
    },
}

impl Hardware {
    /// What is wrong with a mesh on this chip, if anything: a mesh that is not wrong can be had as
    /// a slice of its own.
    pub fn slice_problem(&self, mesh: &Mesh) -> Option<SliceProblem> {
        for axis in mesh.axis_ids() {
            let (name, size) = (mesh.name(axis), mesh.size(axis));
            if let Some(AxisNetwork::TorusAxes(torus)) = self.network.of_axis(name)
                && torus.iter().product::<u64>() != size
            {
                return Some(SliceProblem::Fold {
                    axis: name.to_string(),
                    size,
                    torus: torus.clone(),
                });
            }
        }
        self.network.slice_problem(mesh)
    }
}
