//! Layouts and dims as structures, beside the strings: for programs that would otherwise have to
//! read the strings.

use serde::Serialize;
use shard_ir::{AxisId, DimId, Layout, Plan, Reduction};

/// Where each axis goes.
#[derive(Debug, Serialize)]
pub(crate) struct PlacedJson {
    /// The dims, in memory order.
    dims: Vec<SplitJson>,
    partial: PartialJson,
}

/// One dim, and the axes that split it, major to minor.
#[derive(Debug, Serialize)]
struct SplitJson {
    dim: String,
    axes: Vec<String>,
}

/// The axes over which something is still to be combined.
#[derive(Debug, Serialize)]
struct PartialJson {
    sum: Vec<String>,
    max: Vec<String>,
    /// Over which it is the attention over a part of the keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    softmax: Vec<String>,
}

/// A dim of the program.
#[derive(Debug, Serialize)]
pub(crate) struct DimJson {
    name: String,
    size: u64,
    /// The size that useful work is counted with: less than the size where the dim is padded.
    useful: u64,
}

/// A layout of a value of these dims.
pub(crate) fn placed(plan: &Plan, dims: &[DimId], layout: Layout) -> PlacedJson {
    let names = |axes: &mut dyn Iterator<Item = AxisId>| -> Vec<String> {
        axes.map(|axis| plan.mesh.name(axis).to_string()).collect()
    };
    let split = |(at, dim): (usize, &DimId)| SplitJson {
        dim: plan.dims[dim.index()].name.clone(),
        axes: names(&mut layout.axes_of(at).iter()),
    };
    let partial = |kind| names(&mut layout.partial(kind).iter());
    PlacedJson {
        dims: dims.iter().enumerate().map(split).collect(),
        partial: PartialJson {
            sum: partial(Reduction::Sum),
            max: partial(Reduction::Max),
            softmax: names(&mut layout.softmax_axes().iter()),
        },
    }
}

/// The dims of a plan.
pub(crate) fn dims(plan: &Plan) -> Vec<DimJson> {
    plan.dims
        .iter()
        .map(|d| DimJson { name: d.name.clone(), size: d.size, useful: d.useful })
        .collect()
}
