//! Each move as an expression of JAX on what one device holds.

use shard_ir::{AxisList, Collective, Reduction};

use super::words::Jax;
use crate::error::ExportError;
use crate::moved::{Moved, Written};
use crate::ops::numbers::neutral;
use crate::python::Py;
use crate::specs::axes_tuple;

/// The expressions of a move of `value`, all but the last of which are assigned to `between`.
pub(crate) fn write(
    moved: &Moved<'_>,
    collective: &Collective,
    value: &Py,
    between: &Py,
) -> Result<Written, ExportError> {
    let one = |step: Py| Ok(Written { steps: vec![step], instead: None });
    let instead =
        |step: Py, said: &str| Ok(Written { steps: vec![step], instead: Some(said.to_string()) });
    let value = value.clone();
    let mesh = moved.shape.mesh;
    let tuple = |axes: &AxisList| axes_tuple(mesh, axes.iter());
    match *collective {
        Collective::AllGather { dim, axes } => {
            one(Py::call("lax.all_gather", [value, tuple(&axes)])
                .with("axis", Py::atom(dim))
                .with("tiled", Py::atom("True")))
        }
        Collective::Slice { dim, axes } => {
            let size = moved.shape.local_sizes(moved.to)[dim];
            let at = Py::binary(Py::call("lax.axis_index", [tuple(&axes)]), "*", Py::atom(size));
            one(Py::call("lax.dynamic_slice_in_dim", [value, at, Py::atom(size)])
                .with("axis", Py::atom(dim)))
        }
        Collective::ReduceScatter { kind: Reduction::Sum, dim, axes } => {
            one(Py::call("lax.psum_scatter", [value, tuple(&axes)])
                .with("scatter_dimension", Py::atom(dim))
                .with("tiled", Py::atom("True")))
        }
        Collective::ReduceScatter { kind: Reduction::Max, dim, axes } => instead(
            Py::call("max_scatter", [value, tuple(&axes)]).with("axis", Py::atom(dim)),
            "as all-to-all and a maximum",
        ),
        Collective::AllReduce { kind, axes } => {
            let function = match kind {
                Reduction::Sum => "lax.psum",
                Reduction::Max => "lax.pmax",
            };
            one(Py::call(function, [value, axes_tuple(mesh, axes.iter())]))
        }
        Collective::AllToAll { from_dim, to_dim, axes } => {
            one(Py::call("lax.all_to_all", [value, tuple(&axes)])
                .with("split_axis", Py::atom(to_dim))
                .with("concat_axis", Py::atom(from_dim))
                .with("tiled", Py::atom("True")))
        }
        Collective::Permute { to } => {
            let (axes, pairs) = moved.permute(to)?;
            one(Py::call("lax.ppermute", [value, axes]).with("perm", pairs))
        }
        Collective::Exchange { to } => moved.exchange(&Jax, to, &value, between),
        Collective::AllGatherDims { .. } => {
            let (axes, parts) = moved.parts(collective);
            one(Py::call("gather_dims", [value, axes, parts]))
        }
        Collective::ReduceScatterDims { kind: Reduction::Sum, .. } => {
            let (axes, parts) = moved.parts(collective);
            one(Py::call("scatter_dims", [value, axes, parts]))
        }
        Collective::ReduceScatterDims { kind: Reduction::Max, .. } => {
            let (axes, parts) = moved.parts(collective);
            instead(
                Py::call("max_scatter_dims", [value, axes, parts]),
                "as all-to-all and a maximum",
            )
        }
        Collective::SoftmaxMerge { dim, axes, statistics } => instead(
            moved.softmax_merge(value, (dim, axes), statistics),
            "as a maximum of the statistics, and sums",
        ),
        Collective::ToPartial { kind, dim, axes } => {
            let rest = neutral(&Jax, kind, moved.dtype, moved.floats);
            one(match dim {
                None => Py::call("to_partial", [value, tuple(&axes), rest]),
                Some(dim) => {
                    Py::call("split_to_partial", [value, tuple(&axes), Py::atom(dim), rest])
                }
            })
        }
    }
}
