//! Layouts as JAX's `PartitionSpec` has them.

use shard_ir::{AxisId, AxisList, Layout, Mesh, Reduction};

use crate::python::Py;

/// The axes that split a dim, `"x"` or `("x", "y")`; `None` where the dim is whole.
pub(crate) fn axes_of_dim(mesh: &Mesh, axes: &AxisList) -> Option<Py> {
    (!axes.is_empty()).then(|| axes_tuple(mesh, axes.iter()))
}

/// Axes as a collective takes them: one by its name, several as a tuple.
pub(crate) fn axes_tuple(mesh: &Mesh, axes: impl IntoIterator<Item = AxisId>) -> Py {
    let mut names: Vec<Py> = axes.into_iter().map(|axis| Py::string(mesh.name(axis))).collect();
    match names.len() {
        1 => names.remove(0),
        _ => Py::Tuple(names),
    }
}

/// The entries of the `PartitionSpec` of a tensor at the boundary. In front stand, where there are
/// any, the dim of the applications of a folded block, the dim of the candidates and the dim of the
/// terms of a partial value; the dims of the value follow.
pub(crate) fn boundary_entries(mesh: &Mesh, layout: Layout, rank: usize, stacked: bool) -> Vec<Py> {
    let none = || Py::atom("None");
    let mut entries = if stacked { vec![none()] } else { Vec::new() };
    for kind in [Reduction::Max, Reduction::Sum] {
        let axes: AxisList = layout.partial(kind).iter().collect();
        entries.extend(axes_of_dim(mesh, &axes));
    }
    entries
        .extend((0..rank).map(|dim| axes_of_dim(mesh, &layout.axes_of(dim)).unwrap_or_else(none)));
    entries
}

/// The number of candidates and the number of terms of a partial value; `None` where it has none.
pub(crate) fn terms(mesh: &Mesh, layout: Layout) -> [Option<u64>; 2] {
    [Reduction::Max, Reduction::Sum].map(|kind| {
        let axes = layout.partial(kind);
        (!axes.is_empty()).then(|| mesh.group_size(axes.iter()))
    })
}
