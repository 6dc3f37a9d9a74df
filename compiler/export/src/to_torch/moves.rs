//! Each move as a call of PyTorch on the block of one process.

use shard_ir::{AxisList, Collective, Reduction};

use super::words::Torch;
use crate::error::ExportError;
use crate::moved::{PythonMove, Written};
use crate::python::Py;
use crate::specs::axes_tuple;
use crate::words::Words;

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
    let of = |kind: Reduction, call: Py| match kind {
        Reduction::Sum => call,
        Reduction::Max => call.with("op", Py::atom("dist.ReduceOp.MAX")),
    };
    let step = match *collective {
        Collective::AllGather { dim, axes } => {
            Py::call("all_gather", [value, tuple(&axes)]).with("dim", Py::atom(dim))
        }
        Collective::Slice { dim, axes } => {
            let size = moved.shape.local_sizes(moved.to)[dim];
            let at = Py::binary(Torch.rank(tuple(&axes)), "*", Py::atom(size));
            Py::call("torch.narrow", [value, Py::atom(dim), at, Py::atom(size)])
        }
        Collective::ReduceScatter { kind, dim, axes } => {
            let call = Py::call("reduce_scatter", [value, tuple(&axes)]);
            of(kind, call.with("dim", Py::atom(dim)))
        }
        Collective::AllReduce { kind, axes } => {
            of(kind, Py::call("all_reduce", [value, axes_tuple(mesh, axes.iter())]))
        }
        Collective::AllToAll { from_dim, to_dim, axes } => {
            Py::call("all_to_all", [value, tuple(&axes)])
                .with("split", Py::atom(to_dim))
                .with("concat", Py::atom(from_dim))
        }
        Collective::Permute { to } => {
            let (axes, pairs) = moved.permute(to)?;
            Py::call("permute", [value, axes]).with("pairs", pairs)
        }
        Collective::Exchange { to } => return moved.exchange(&Torch, to, &value, between),
        Collective::AllGatherDims { .. } => {
            let (axes, parts) = moved.parts(collective);
            Py::call("gather_dims", [value, axes, parts])
        }
        Collective::ReduceScatterDims { kind, .. } => {
            let (axes, parts) = moved.parts(collective);
            of(kind, Py::call("scatter_dims", [value, axes, parts]))
        }
        Collective::SoftmaxMerge { dim, axes, statistics } => {
            moved.softmax_merge(value, dim, axes, statistics)
        }
        Collective::ToPartial { kind, dim, axes } => moved.as_terms(&Torch, value, kind, dim, axes),
    };
    Ok(Written { steps: vec![step], instead: None })
}
