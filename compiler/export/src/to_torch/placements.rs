//! Layouts as placements of DTensor, as far as DTensor can say them.

use shard_ir::{AxisId, AxisList, Layout, Mesh, Place, Reduction};

use crate::python::Py;
use crate::specs::axes_of_dim;

/// For each dim of a tensor the axes that split it, `None` for a whole dim. A stack has a whole dim
/// in front.
pub(crate) fn entries(mesh: &Mesh, layout: Layout, rank: usize, stacked: bool) -> Py {
    let none = || Py::atom("None");
    let front = stacked.then(none);
    let dims = (0..rank).map(|dim| axes_of_dim(mesh, &layout.axes_of(dim)).unwrap_or_else(none));
    Py::Tuple(front.into_iter().chain(dims).collect())
}

/// The placements for the axes of the mesh, in the order of the mesh line; or a clause that says
/// why DTensor has none.
pub(crate) fn placements(
    mesh: &Mesh,
    layout: Layout,
    rank: usize,
    stacked: bool,
) -> Result<Py, String> {
    let partial = [Reduction::Sum, Reduction::Max].map(|kind| layout.partial(kind));
    if partial.iter().all(|axes| !axes.is_empty()) {
        return Err("a maximum of sums".to_string());
    }
    for dim in 0..rank {
        let axes = layout.axes_of(dim);
        let in_order: AxisList = mesh.axis_ids().filter(|a| axes.set().contains(*a)).collect();
        if !axes.iter().eq(in_order.iter()) {
            let first = |axes: &AxisList| axes.iter().next().map_or("", |a| mesh.name(a));
            let cut = mesh.axes_text(axes.iter());
            return Err(format!(
                "{cut} cuts a dim {} first, and the mesh has {} before it",
                first(&axes),
                first(&in_order)
            ));
        }
    }
    let dim_of = |dim: usize| dim + usize::from(stacked);
    let placement = |(name, _): &(String, u64)| {
        // An axis of size 1 is none of the mesh's axes, since it splits nothing.
        let place = mesh.axis(name).map_or(Place::Replicated, |axis: AxisId| layout.place(axis));
        match place {
            Place::Replicated => Py::call("Replicate", []),
            Place::Partial(Reduction::Sum) => Py::call("Partial", [Py::string("sum")]),
            Place::Partial(Reduction::Max) => Py::call("Partial", [Py::string("max")]),
            Place::PartialSoftmax => Py::call("Partial", [Py::string("softmax")]),
            Place::Split { dim, .. } => Py::call("Shard", [Py::atom(dim_of(dim))]),
        }
    };
    let placed: Vec<Py> = mesh.declared().iter().map(placement).collect();
    Ok(Py::List(if placed.is_empty() { vec![Py::call("Replicate", [])] } else { placed }))
}
