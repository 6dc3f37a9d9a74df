//! Layouts as JAX's `PartitionSpec` has them.

use shard_ir::{AxisId, AxisList, Layout, Mesh, Reduction};

use crate::python::Py;

/// The axes that split a dim: `"x"`, `("x", "y")`; none where the dim is whole.
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

/// The entries of the spec of a tensor that holds a value in a layout: those of a dim of copies (of
/// a folded block), of the candidates and of the terms of a partial value, each in front where
/// there are any; then those of its dims.
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

/// How many candidates and how many terms a partial value has in front.
pub(crate) fn terms(mesh: &Mesh, layout: Layout) -> [Option<u64>; 2] {
    [Reduction::Max, Reduction::Sum].map(|kind| {
        let axes = layout.partial(kind);
        (!axes.is_empty()).then(|| mesh.group_size(axes.iter()))
    })
}
