//! Whether a chip can be had in a slice of the shape of a mesh.

use std::cmp::Reverse;

use shard_ir::Mesh;

use super::Hardware;
use crate::network::AxisNetwork;

/// Why no slice of a chip has the shape of a mesh. A shape is the size of each torus axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SliceProblem {
    /// The file lays a mesh axis over torus axes whose product is not its size.
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
    /// The slice is larger than a cube and does not consist of whole cubes.
    Cubes {
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
    },
    /// The size of every axis is a multiple of a cube's, but there are fewer than three axes: it is
    /// a face of a slice, and no slice.
    Face {
        /// The torus axes that the mesh asks for.
        shape: Vec<u64>,
    },
    /// The groups of a mesh axis neither fit into a node nor fill whole nodes.
    Straddles {
        /// The mesh axis.
        axis: String,
        /// Devices in a node.
        node: u64,
        /// How many devices along the axis could share a node.
        fits: u64,
        /// How many devices along the axis do share a node.
        inside: u64,
    },
}

impl Hardware {
    /// Why this chip has no slice of the shape of a mesh; `None` if it has one.
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

    /// For a mesh that is no slice of this chip, the nearest mesh of as many devices that is one.
    /// It has the axes of the mesh, of which some may then have size 1, and further axes if no
    /// sizes of these give a slice. Axes that the hardware file names keep their sizes. `None` if
    /// there is no such mesh, or the mesh has more than 65,536 devices.
    pub fn nearest_slice(&self, mesh: &Mesh) -> Option<Mesh> {
        if mesh.devices() > MOST_DEVICES {
            return None;
        }
        let mut axes = mesh.declared().to_vec();
        loop {
            let is_free = |(name, _): &&(String, u64)| self.network.of_axis(name).is_none();
            let free: Vec<u64> = axes.iter().filter(is_free).map(|axis| axis.1).collect();
            let with = |sizes: &[u64]| {
                let mut sizes = sizes.iter();
                let sized = |axis: &(String, u64)| {
                    let size = if is_free(&axis) { sizes.next().copied() } else { None };
                    (axis.0.clone(), size.unwrap_or(axis.1))
                };
                Mesh::new(axes.iter().map(sized).collect::<Vec<_>>()).ok()
            };
            let mut ways = Vec::new();
            parts(free.iter().product(), free.len(), &mut Vec::new(), &mut ways);
            // Of several that are equally near, the one with the larger axes in front.
            ways.sort_by_cached_key(|way| {
                let changed = way.iter().zip(&free).map(|(a, b)| a.abs_diff(*b)).sum::<u64>();
                (changed, Reverse(way.clone()))
            });
            let is_slice = |mesh: &Mesh| self.slice_problem(mesh).is_none();
            if let Some(found) = ways.iter().filter_map(|way| with(way)).find(is_slice) {
                return Some(found);
            }
            let is_new = |name: &&str| axes.iter().all(|(known, _)| known != name);
            let name = ["x", "y", "z"].into_iter().find(is_new)?;
            if free.len() >= MOST_PARTS {
                return None;
            }
            axes.push((name.to_string(), 1));
        }
    }
}

/// How many axes of more than one device a slice has at most.
const MOST_PARTS: usize = 3;
/// Up to how many devices slices are looked for: more than any slice of a built-in chip has.
const MOST_DEVICES: u64 = 1 << 16;
/// How many ways to write a number of devices as a product are looked at.
const MOST_WAYS: usize = 100_000;

/// Adds to `found` the ways to write a number as a product of `count` factors behind those of
/// `before`, of which at most `MOST_PARTS` are more than 1.
fn parts(number: u64, count: usize, before: &mut Vec<u64>, found: &mut Vec<Vec<u64>>) {
    if count == 0 {
        if number == 1 {
            found.push(before.clone());
        }
        return;
    }
    let more = before.iter().filter(|part| **part > 1).count() < MOST_PARTS;
    let most = if more { number } else { 1 };
    let low = (1..=most).take_while(|part| part * part <= number);
    let low: Vec<u64> = low.filter(|part| number.is_multiple_of(*part)).collect();
    let high = low.iter().map(|part| number / part).filter(|part| part * part > number);
    for part in low.iter().copied().chain(high.filter(|part| *part <= most)) {
        if found.len() >= MOST_WAYS {
            return;
        }
        before.push(part);
        parts(number / part, count - 1, before, found);
        before.pop();
    }
}
