//! Each move as expressions of JAX on the block of one device.

use shard_ir::{AxisList, Collective, Reduction};

use super::words::Jax;
use crate::error::ExportError;
use crate::moved::{PythonMove, Written};
use crate::python::Py;
use crate::specs::axes_tuple;

const A_MAXIMUM_SCATTERED: &str = "as all-to-all and a maximum";

/// The expressions of a move of `value`, all but the last of which are assigned to `between`.
pub(crate) fn write(
    moved: &PythonMove<'_>,
    collective: &Collective,
    value: &Py,
    between: &Py,
) -> Result<Written, ExportError> {
    let value = value.clone();
    let mesh = moved.shape.mesh;
    let tuple = |axes: &AxisList| axes_tuple(mesh, axes.iter());
    // For the comment: what JAX does instead of a collective that it does not have.
    let mut instead = None;
    let step = match *collective {
        Collective::AllGather { dim, axes } => Py::call("lax.all_gather", [value, tuple(&axes)])
            .with("axis", Py::atom(dim))
            .with("tiled", Py::atom("True")),
        Collective::Slice { dim, axes } => {
            let size = moved.shape.local_sizes(moved.to)[dim];
            let at = Py::binary(Py::call("lax.axis_index", [tuple(&axes)]), "*", Py::atom(size));
            Py::call("lax.dynamic_slice_in_dim", [value, at, Py::atom(size)])
                .with("axis", Py::atom(dim))
        }
        Collective::ReduceScatter { kind: Reduction::Sum, dim, axes } => {
            Py::call("lax.psum_scatter", [value, tuple(&axes)])
                .with("scatter_dimension", Py::atom(dim))
                .with("tiled", Py::atom("True"))
        }
        Collective::ReduceScatter { kind: Reduction::Max, dim, axes } => {
            instead = Some(A_MAXIMUM_SCATTERED);
            Py::call("max_scatter", [value, tuple(&axes)]).with("axis", Py::atom(dim))
        }
        Collective::AllReduce { kind, axes } => {
            let function = match kind {
                Reduction::Sum => "lax.psum",
                Reduction::Max => "lax.pmax",
            };
            Py::call(function, [value, axes_tuple(mesh, axes.iter())])
        }
        Collective::AllToAll { from_dim, to_dim, axes } => {
            Py::call("lax.all_to_all", [value, tuple(&axes)])
                .with("split_axis", Py::atom(to_dim))
                .with("concat_axis", Py::atom(from_dim))
                .with("tiled", Py::atom("True"))
        }
        Collective::Permute { to } => {
            let (axes, pairs) = moved.permute(to)?;
            Py::call("lax.ppermute", [value, axes]).with("perm", pairs)
        }
        Collective::Exchange { to } => return moved.exchange(&Jax, to, &value, between),
        Collective::AllGatherDims { .. } => {
            let (axes, parts) = moved.parts(collective);
            Py::call("gather_dims", [value, axes, parts])
        }
        Collective::ReduceScatterDims { kind, .. } => {
            let function = match kind {
                Reduction::Sum => "scatter_dims",
                Reduction::Max => {
                    instead = Some(A_MAXIMUM_SCATTERED);
                    "max_scatter_dims"
                }
            };
            let (axes, parts) = moved.parts(collective);
            Py::call(function, [value, axes, parts])
        }
        Collective::SoftmaxMerge { dim, axes, statistics } => {
            instead = Some("as a maximum of the statistics, and sums");
            moved.softmax_merge(value, dim, axes, statistics)
        }
        Collective::ToPartial { kind, dim, axes } => moved.as_terms(&Jax, value, kind, dim, axes),
    };
    Ok(Written { steps: vec![step], instead: instead.map(str::to_string) })
}
