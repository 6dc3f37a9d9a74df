//! Meshes, shapes and layouts that laws are tested on.

use shard_ir::*;

/// A mesh of up to three axes.
pub(crate) fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied())).unwrap()
}

/// Every mesh and shape that the laws are tested on; some dims do not divide over some groups.
pub(crate) fn each_shape(mut test: impl FnMut(MeshShape<'_>)) {
    let meshes: [&[u64]; 6] = [&[], &[2], &[2, 3], &[4, 2], &[2, 2, 2], &[2, 3, 2]];
    let shapes: [&[u64]; 7] = [&[], &[12], &[8], &[8, 8], &[12, 4], &[8, 8, 8], &[12, 6, 4]];
    for axes in meshes {
        let mesh = mesh(axes);
        for sizes in shapes {
            test(MeshShape { mesh: &mesh, sizes });
        }
    }
}

/// Every layout, partial sums and maxima included.
pub(crate) fn each_layout(mut test: impl FnMut(MeshShape<'_>, Layout)) {
    each_shape(|shape| {
        for layout in shape.layouts(shape.mesh.all_axes(), shape.mesh.all_axes()) {
            test(shape, layout);
        }
    });
}

/// A list of one axis.
pub(crate) fn one(axis: AxisId) -> AxisList {
    AxisList::EMPTY.then(axis)
}
