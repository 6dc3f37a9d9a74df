//! What the page's script draws from: how each value lies on the mesh.

use serde::Serialize;
use shard_cost::Bytes;
use shard_ir::{InstrId, Reduction};

use crate::notation::value_name;
use crate::{Layer, object, scale};

/// What the script draws from.
pub(super) fn layer_data<'a>(layer: &Layer<'a>) -> impl Serialize + use<'a> {
    let plan = layer.plan();
    let mesh = &plan.mesh;
    let value = |id: InstrId| {
        let instr = plan.instruction(id);
        let dim_data = |at: usize| {
            let axes = instr.layout.axes_of(at).iter().map(|axis| mesh.name(axis));
            object!(DimData { axes: axes.collect::<Vec<_>>() }) // major to minor
        };
        let sizes: Vec<String> = plan.local_sizes(id).iter().map(u64::to_string).collect();
        let partial = instr.layout.partial_axes().iter().map(|axis| mesh.name(axis));
        let shape = if sizes.is_empty() { "a scalar".to_string() } else { sizes.join(" × ") };
        object!(ValueData {
            name: value_name(plan, id),
            dtype: instr.dtype.name(),
            layout: layer.layout_text(id),
            words: words(layer, id),
            bytes: format!("{shape}, {} on each device", scale::bytes(Bytes(plan.local_bytes(id)))),
            dims: (0..instr.dims.len()).map(dim_data).collect::<Vec<_>>(),
            partial: partial.collect::<Vec<_>>(),
        })
    };
    // The axes that have more than one place, and a value for each instruction.
    object!(LayerData {
        mesh: mesh.axis_ids().map(|axis| (mesh.name(axis), mesh.size(axis))).collect::<Vec<_>>(),
        values: plan.ids().map(value).collect::<Vec<_>>(),
    })
}

/// A layout in words.
fn words(layer: &Layer<'_>, id: InstrId) -> String {
    let plan = layer.plan();
    let (instr, mesh) = (plan.instruction(id), &plan.mesh);
    let names = |axes: &mut dyn Iterator<Item = shard_ir::AxisId>| -> String {
        axes.map(|axis| mesh.name(axis)).collect::<Vec<_>>().join(", ")
    };
    let (mut parts, mut whole) = (Vec::new(), Vec::new());
    for (at, (name, local)) in
        plan.dim_names(&instr.dims).into_iter().zip(plan.local_sizes(id)).enumerate()
    {
        let axes = instr.layout.axes_of(at);
        if axes.is_empty() {
            whole.push(name)
        } else {
            parts.push(format!(
                "{name} is cut into {} parts of {local} over {}",
                mesh.group_size(axes.iter()),
                names(&mut axes.iter())
            ))
        }
    }
    if !whole.is_empty() {
        parts.push(format!(
            "{} {} whole",
            whole.join(", "),
            if whole.len() == 1 { "is" } else { "are" }
        ));
    }
    for (kind, word) in [(Reduction::Sum, "sum"), (Reduction::Max, "maximum")] {
        let axes = instr.layout.partial(kind);
        if !axes.is_empty() {
            parts.push(format!(
                "each device along {} holds a term of a {word}",
                names(&mut axes.iter())
            ));
        }
    }
    let keys = instr.layout.softmax_axes();
    if !keys.is_empty() {
        let axes = names(&mut keys.iter());
        parts.push(format!("each device along {axes} holds the attention over its own keys"));
    }
    let replicated = instr.layout.replicated_axes(mesh);
    if !replicated.is_empty() {
        parts.push(format!("the devices along {} hold the same", names(&mut replicated.iter())));
    }
    parts.join("; ")
}
