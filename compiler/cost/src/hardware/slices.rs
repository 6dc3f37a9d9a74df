//! Whether a chip comes in slices of the shape of a mesh.

use shard_ir::Mesh;

use super::Hardware;
use super::network::{AxisNetwork, CUBE, CUBE_AXES, Fabric, Wraparound, inside_nodes};

/// Why no slice of a chip has the shape of a mesh. Shapes are of torus axes, or of mesh axes where they are the same.
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
    /// Every axis is a multiple of a cube's, but there are fewer than three: a face of a slice, and no slice.
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
        room: u64,
        /// So many do.
        inside: u64,
    },
}

impl Hardware {
    /// What is wrong with a mesh on this chip, if anything: a mesh that is not wrong can be had as a slice of its own.
    pub fn slice_problem(&self, mesh: &Mesh) -> Option<SliceProblem> {
        for axis in mesh.axis_ids() {
            let (name, size) = (mesh.name(axis), mesh.size(axis));
            if let Some(AxisNetwork::TorusAxes(torus)) = self.network.of_axis(name)
                && torus.iter().product::<u64>() != size
            {
                return Some(SliceProblem::Fold { axis: name.to_string(), size, torus: torus.clone() });
            }
        }
        let own = self.network.own_axes(mesh);
        match &self.network.fabric {
            Fabric::Flat { .. } => None,
            Fabric::Torus { wraparound, pod, face, .. } => {
                let shape: Vec<u64> = own.iter().flat_map(|a| self.network.torus_sizes(mesh, *a)).collect();
                if !pod.is_empty() && !fits(&shape, pod) {
                    let fold = own.iter().find_map(|a| {
                        let rest = own.iter().filter(|b| *b != a).flat_map(|b| self.network.torus_sizes(mesh, *b));
                        let rest: Vec<u64> = rest.collect();
                        fold(mesh.size(*a), &rest, pod).map(|torus| (mesh.name(*a).to_string(), torus))
                    });
                    return Some(SliceProblem::Pod { shape, pod: pod.clone(), fold });
                }
                let cubes = *wraparound == Wraparound::WholeCubes;
                let within = shape.iter().all(|s| *s <= CUBE);
                let whole = shape.iter().all(|s| s.is_multiple_of(CUBE));
                match (within, whole) {
                    _ if !cubes => None,
                    (_, true) => {
                        (!face && !shape.is_empty() && shape.len() < CUBE_AXES).then_some(SliceProblem::Face { shape })
                    }
                    (true, false) => None,
                    (false, false) => Some(SliceProblem::Cubes { shape }),
                }
            }
            Fabric::Switched { node, .. } => {
                let sizes: Vec<u64> = own.iter().map(|a| mesh.size(*a)).collect();
                let mut room = *node;
                for ((axis, size), inside) in own.iter().zip(&sizes).zip(inside_nodes(&sizes, *node)).rev() {
                    if inside < room.min(*size) {
                        let axis = mesh.name(*axis).to_string();
                        return Some(SliceProblem::Straddles { axis, node: *node, room, inside });
                    }
                    room = if inside == *size { room / size.max(&1) } else { 1 };
                }
                None
            }
        }
    }
}

/// Whether a shape fits into a pod with its axes in some order.
fn fits(shape: &[u64], pod: &[u64]) -> bool {
    let sorted = |sizes: &[u64]| {
        let mut sizes: Vec<u64> = sizes.iter().copied().filter(|s| *s > 1).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    };
    let (shape, pod) = (sorted(shape), sorted(pod));
    shape.len() <= pod.len() && shape.iter().zip(&pod).all(|(s, p)| s <= p)
}

/// The torus axes nearest to each other that multiply to a size and fit into a pod beside the rest; longest first.
fn fold(size: u64, rest: &[u64], pod: &[u64]) -> Option<Vec<u64>> {
    let free = pod.len().checked_sub(rest.len()).filter(|free| *free > 1)?;
    let mut best: Option<Vec<u64>> = None;
    let mut open: Vec<Vec<u64>> = vec![vec![]];
    while let Some(found) = open.pop() {
        let left = size / found.iter().product::<u64>();
        let most = found.last().copied().unwrap_or(u64::MAX).min(pod.iter().copied().max()?);
        if left == 1 {
            let whole: Vec<u64> = found.iter().chain(rest).copied().collect();
            let better = best.as_ref().is_none_or(|b| found[0] < b[0]);
            if found.len() > 1 && fits(&whole, pod) && better {
                best = Some(found);
            }
        } else if found.len() < free {
            open.extend((2..=most.min(left)).filter(|f| left.is_multiple_of(*f)).map(|f| [&found[..], &[f]].concat()));
        }
    }
    best
}
