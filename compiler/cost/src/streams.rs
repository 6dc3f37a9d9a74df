//! Which transfers can go on at the same time.

use shard_ir::Mesh;

use crate::hardware::{AxisNetwork, Hardware};

/// The stream of each mesh axis, in the order of the mesh: collectives over axes of different streams do not disturb each
/// other, those that share a stream go one after the other.
///
/// On a torus every mesh axis has links, and so a stream, of its own; all that a flat network or a switch connects shares
/// what a device sends at, and is one stream. A mesh axis with a network of its own has a stream of its own.
pub fn streams(hw: &Hardware, mesh: &Mesh) -> Vec<usize> {
    let shared = mesh.axes().len();
    let stream = |(at, axis): (usize, &shard_ir::MeshAxis)| match hw.network.of_axis(&axis.name) {
        Some(AxisNetwork::Own(_)) => at,
        Some(AxisNetwork::TorusAxes(_)) | None if hw.network.fabric.kind().has_links() => at,
        Some(AxisNetwork::TorusAxes(_)) | None => shared,
    };
    mesh.axes().iter().enumerate().map(stream).collect()
}
