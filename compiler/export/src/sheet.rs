//! The document of `export specs`: the layout of every parameter, value and result, for programs
//! that place tensors themselves.

use serde::Serialize;
use shard_ir::{AxisId, DimId, InstrId, InstrKind, Layout, Mesh, Place, Plan, Reduction, never};

use crate::error::ExportError;
use crate::layer::{Exported, replaced, stack_of};
use crate::sends::{SendSheet, sends};

/// One layout as other systems write it.
pub struct Texts {
    /// A `PartitionSpec` of JAX.
    pub jax: String,
    /// The placements of a `DTensor`.
    pub dtensor: String,
    /// A sharding of Shardy, without the name of the mesh.
    pub shardy: String,
}

/// Writes the layout of a value whose dims have these names.
pub type Writer<'a> = &'a dyn Fn(&Mesh, Layout, &[&str]) -> Texts;

#[derive(Serialize)]
struct Sheet {
    schema: &'static str,
    layers: Vec<LayerSheet>,
}

#[derive(Serialize)]
struct LayerSheet {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    mesh_axes: Vec<(String, u64)>,
    /// How many times the layer is stacked.
    repeat: u64,
    dims: Vec<DimSheet>,
    parameters: Vec<ValueSheet>,
    values: Vec<ValueSheet>,
    results: Vec<ValueSheet>,
    /// Every collective that sends something, in program order.
    collectives: Vec<SendSheet>,
    /// The layer as the source has it, unsharded, as IR text.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// A dim of the layer.
#[derive(Serialize)]
struct DimSheet {
    name: String,
    size: u64,
    /// The part of the size that is no padding.
    useful: u64,
}

#[derive(Serialize)]
struct ValueSheet {
    id: u32,
    name: Option<String>,
    /// Of a parameter: activation, weight or cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    dtype: &'static str,
    dims: Vec<String>,
    shape: Vec<u64>,
    local_shape: Vec<u64>,
    /// In a folded block: the number of applications, with a tensor for each along a dim in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    stacked: Option<u64>,
    /// Of an einsum: the dtype in which a device adds up products.
    #[serde(skip_serializing_if = "Option::is_none")]
    accumulates_in: Option<&'static str>,
    /// Of a result: the number of the cache parameter whose memory it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<u32>,
    /// Of a result whose dims are in another order than those of its value: for each dim its place
    /// in the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    transposed: Option<Vec<usize>>,
    layout: String,
    /// For each dim the axes that split it, major to minor.
    partition_spec: Vec<Vec<String>>,
    /// The axes over which the value is a partial sum.
    unreduced: Vec<String>,
    /// The axes over which the value is a partial maximum, which `PartitionSpec` and Shardy cannot
    /// say.
    unreduced_max: Vec<String>,
    /// For each axis of the mesh, in the order of the mesh line, what the layout uses it for.
    placements: Vec<PlacementSheet>,
    jax: String,
    dtensor: String,
    shardy: String,
}

#[derive(Serialize)]
struct PlacementSheet {
    axis: String,
    place: &'static str,
    /// Of a split: the index of the dim.
    #[serde(skip_serializing_if = "Option::is_none")]
    dim: Option<usize>,
    /// Of a split: its place among the axes of the dim, 0 the major-most.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
}

/// The document of `export specs` for some plans, as JSON.
pub fn specs(layers: &[Exported<'_>], writer: Writer<'_>) -> Result<String, ExportError> {
    let layers = layers.iter().map(|exported| layer(exported, writer));
    let sheet =
        Sheet { schema: "shardc.specs/1", layers: layers.collect::<Result<_, ExportError>>()? };
    // Serialisation cannot fail: every key is a string, and there are no floats.
    let text = serde_json::to_string_pretty(&sheet)
        .map_err(|_| ExportError::Internal("specs that JSON cannot hold"))?;
    Ok(text + "\n")
}

fn layer(exported: &Exported<'_>, writer: Writer<'_>) -> Result<LayerSheet, ExportError> {
    let plan = exported.plan;
    let is_parameter = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let value = |id: InstrId| {
        let instr = plan.instruction(id);
        let stacked = if is_parameter(&id) { stack_of(plan, id) } else { None };
        ValueSheet { stacked, ..of_layout(plan, id, &instr.dims, instr.layout, writer) }
    };
    let replaced = replaced(plan);
    let results = plan.outputs.iter().enumerate().map(|(place, output)| {
        let of_output =
            of_layout(plan, output.id, &output.dims, plan.output_layout(output), writer);
        let stacked = if output.state { stack_of(plan, output.id) } else { None };
        let of_value = &plan.instruction(output.id).dims;
        let places = output.dims.iter().filter_map(|d| of_value.iter().position(|v| v == d));
        ValueSheet {
            name: Some(output.name.clone()),
            stacked,
            kind: None,
            accumulates_in: None,
            replaces: replaced.iter().find(|(_, of)| *of == place).map(|(id, _)| id.0),
            transposed: (output.dims != *of_value).then(|| places.collect()),
            ..of_output
        }
    });
    let dims = plan.dims.iter();
    let dim = |d: &shard_ir::Dim| DimSheet { name: d.name.clone(), size: d.size, useful: d.useful };
    Ok(LayerSheet {
        name: plan.name.clone(),
        phase: plan.phase.clone(),
        mesh_axes: plan.mesh.declared().to_vec(),
        repeat: plan.repeat,
        dims: dims.map(dim).collect(),
        parameters: plan.ids().filter(is_parameter).map(value).collect(),
        values: plan.ids().filter(|id| !is_parameter(id)).map(value).collect(),
        results: results.collect(),
        collectives: sends(plan)?,
        source: exported.source.map(shard_ir::text::print),
    })
}

fn of_layout(
    plan: &Plan,
    id: InstrId,
    dims: &[DimId],
    layout: Layout,
    writer: Writer<'_>,
) -> ValueSheet {
    let (instr, mesh) = (plan.instruction(id), &plan.mesh);
    let named = |axes: &mut dyn Iterator<Item = AxisId>| -> Vec<String> {
        axes.map(|axis| mesh.name(axis).to_string()).collect()
    };
    let names = plan.dim_names(dims);
    let local = plan.local_sizes(id);
    let local_of = |dim: &DimId| {
        let place = instr.dims.iter().position(|d| d == dim);
        place.map_or_else(|| never!("a result has a dim that its value lacks", 1), |at| local[at])
    };
    let Texts { jax, dtensor, shardy } = writer(mesh, layout, &names);
    ValueSheet {
        id: id.0,
        name: instr.name.clone(),
        kind: instr.kind.parameter().map(|kind| kind.word().unwrap_or("activation")),
        dtype: instr.dtype.name(),
        dims: names.iter().map(ToString::to_string).collect(),
        shape: plan.sizes(dims),
        local_shape: dims.iter().map(local_of).collect(),
        stacked: None,
        accumulates_in: (instr.kind.op() == Some(&shard_ir::Op::Einsum))
            .then(|| if instr.dtype.is_float() { "f32" } else { "int32" }),
        replaces: None,
        transposed: None,
        layout: layout.text(mesh, &names),
        partition_spec: (0..dims.len()).map(|dim| named(&mut layout.axes_of(dim).iter())).collect(),
        unreduced: named(&mut layout.partial(Reduction::Sum).iter()),
        unreduced_max: named(&mut layout.partial(Reduction::Max).iter()),
        placements: mesh.declared().iter().map(|(axis, _)| placement(mesh, layout, axis)).collect(),
        jax,
        dtensor,
        shardy,
    }
}

fn placement(mesh: &Mesh, layout: Layout, axis: &str) -> PlacementSheet {
    // An axis of size 1 is none of the mesh's axes, since it splits nothing.
    let place = mesh.axis(axis).map_or(Place::Replicated, |id| layout.place(id));
    let (place, dim, position) = match place {
        Place::Replicated => ("replicate", None, None),
        Place::Partial(Reduction::Sum) => ("partial-sum", None, None),
        Place::Partial(Reduction::Max) => ("partial-max", None, None),
        Place::PartialSoftmax => ("partial-softmax", None, None),
        Place::Split { dim, position } => ("shard", Some(dim), Some(position)),
    };
    PlacementSheet { axis: axis.to_string(), place, dim, position }
}
