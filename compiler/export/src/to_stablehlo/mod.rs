//! A module of StableHLO: a mesh of Shardy, and for each layer and phase a function whose body is
//! what each device does (`sdy.manual_computation`), with every collective written out.

mod body;
mod builder;
mod einsum;
mod element;
mod elementwise;
mod merge;
mod moves;
mod ops;
mod positions;
mod ranks;
mod sorted;
mod tables;

use shard_ir::{DimId, InstrId, Layout, Mesh, ParameterKind, Plan};

use body::HloBody;
use builder::{Builder, Value, list, types};
use element::Element;

use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::{
    heading, output_names, parameters, plain, replaced, stack_of, stack_of_output, title_of,
};
use crate::names::Taken;
use crate::specs::terms;
use crate::stack::{STACK, stack};
use crate::to_jax::Jax;

/// The largest mesh, in devices. Each collective lists the devices of its groups, so that the text
/// for a larger mesh would be too long to use.
const MOST_DEVICES: u64 = crate::sends::MOST_DEVICES;

/// The text of a module of layers on one mesh: a function for each layer, and one for the stack of
/// a repeated layer. A single function is called `main`. `origin` says in a few words where the
/// layers come from.
pub fn stablehlo(plans: &[&Plan], origin: &str, floats: Floats) -> Result<String, ExportError> {
    let mesh = plans.first().map_or_else(Mesh::default, |plan| plan.mesh.clone());
    if plans.iter().any(|plan| plan.mesh != mesh) {
        return Err(ExportError::Meshes);
    }
    if mesh.devices() > MOST_DEVICES {
        return Err(ExportError::Devices { devices: mesh.devices(), most: MOST_DEVICES });
    }
    let mut layers: Vec<(&str, Plan)> = Vec::new();
    for plan in plans {
        layers.push(("", (*plan).clone()));
        if let Some(stack) = stack(plan) {
            layers.push((STACK, stack));
        }
    }
    let mut text = format!("// {}\n", plain(origin));
    text.push_str(SAID);
    text.push_str(&format!(
        "module attributes {{mhlo.num_partitions = {} : i32, mhlo.num_replicas = 1 : i32}} {{\n",
        mesh.devices()
    ));
    let axes = declared(&mesh);
    let axes = axes.iter().map(|(name, size)| format!("{}={size}", quoted(name)));
    text.push_str(&format!("  sdy.mesh @mesh = <[{}]>\n", list(axes)));
    let mut taken = Taken::default();
    for (kind, plan) in &layers {
        let title = if layers.len() == 1 { "main".to_string() } else { title_of(plan, kind) };
        let name = taken.fresh(&title);
        text.push_str(&format!("\n  // {}\n", heading(plan, kind)));
        text.push_str(&function(plan, &name, floats)?);
    }
    text.push_str("}\n");
    Ok(text)
}

const SAID: &str = "// Inside `sdy.manual_computation` stands what each device does with its own \
                    blocks: every collective is\n// written out. A partial value at the boundary \
                    has its terms along a dim in front.\n";

/// The axes of the mesh; a plan for one device has one axis of size 1.
fn declared(mesh: &Mesh) -> Vec<(String, u64)> {
    match mesh.declared() {
        [] => vec![("devices".to_string(), 1)],
        axes => axes.to_vec(),
    }
}

/// A string of MLIR.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => out.push_str(&format!("\\{:02X}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A parameter or result of a function: as a whole tensor, and as the block of a device.
struct Boundary {
    whole: Value,
    local: Value,
    sharding: String,
}

/// Makes the parameters and results of a plan's function.
struct Edge<'p> {
    plan: &'p Plan,
    floats: Floats,
}

impl Edge<'_> {
    /// A parameter or a result of these dims in a layout; `copies` is the size of the dim of
    /// applications in front, if there is one.
    fn of(
        &self,
        b: &mut Builder,
        name: &str,
        id: InstrId,
        dims: &[DimId],
        layout: Layout,
        copies: Option<u64>,
    ) -> Boundary {
        let mesh = &self.plan.mesh;
        let sizes = self.plan.sizes(dims);
        let local = shard_ir::MeshShape { mesh, sizes: &sizes }.local_sizes(layout);
        let partial: Vec<u64> = terms(mesh, layout).into_iter().flatten().collect();
        let copies: Vec<u64> = copies.into_iter().collect();
        let whole: Vec<u64> = [&copies[..], &partial, &sizes].concat();
        let local: Vec<u64> = [&copies[..], &vec![1; partial.len()], &local].concat();
        let element = Element::of(self.plan.instruction(id).dtype, self.floats);
        Boundary {
            whole: b.fresh_value(&format!("all_{name}"), &whole, element),
            local: b.fresh_value(name, &local, element),
            sharding: sharding(mesh, layout, dims.len(), !copies.is_empty()),
        }
    }
}

/// The sharding of a tensor at the boundary, `<@mesh, [{}, {"x", "y"}]>`. The dim of applications
/// is whole; the dims of candidates and of terms are split over the axes over which the value is
/// partial.
fn sharding(mesh: &Mesh, layout: Layout, rank: usize, stacked: bool) -> String {
    let axes = |axes: &mut dyn Iterator<Item = shard_ir::AxisId>| {
        format!("{{{}}}", list(axes.map(|axis| quoted(mesh.name(axis)))))
    };
    let mut dims = if stacked { vec!["{}".to_string()] } else { Vec::new() };
    for kind in [shard_ir::Reduction::Max, shard_ir::Reduction::Sum] {
        let partial = layout.partial(kind);
        if !partial.is_empty() {
            dims.push(axes(&mut partial.iter()));
        }
    }
    dims.extend((0..rank).map(|dim| axes(&mut layout.axes_of(dim).iter())));
    format!("<@mesh, [{}]>", list(dims))
}

/// A function of whole tensors, whose body is what each device does.
fn function(plan: &Plan, name: &str, floats: Floats) -> Result<String, ExportError> {
    let mut b = Builder::at(6);
    let all = b.fresh("results");
    let edge = Edge { plan, floats };
    let parameters = parameters(&Jax, plan);
    let taken: Vec<Boundary> = parameters
        .iter()
        .map(|p| {
            let instr = plan.instruction(p.id);
            edge.of(&mut b, &p.name, p.id, &instr.dims, instr.layout, stack_of(plan, p.id))
        })
        .collect();
    let mut edges = Builder::at(0);
    let given: Vec<Boundary> = plan
        .outputs
        .iter()
        .map(|o| {
            let copies = if stack_of_output(plan, o) { plan.repeat_of(o.id) } else { 0 };
            let copies = (copies > 0).then_some(copies);
            edge.of(&mut edges, "r", o.id, &o.dims, plan.output_layout(o), copies)
        })
        .collect();
    let replaced = replaced(plan);
    let arguments = parameters.iter().zip(&taken).map(|(p, boundary)| {
        let mut attributes = vec![format!("sdy.sharding = #sdy.sharding{}", boundary.sharding)];
        if p.kind == ParameterKind::HostWeight {
            attributes.push("mhlo.memory_kind = \"pinned_host\"".to_string());
        }
        if let Some((_, output)) = replaced.iter().find(|(of, _)| *of == p.id) {
            attributes.push(format!("tf.aliasing_output = {output} : i32"));
        }
        let (value, ty) = (&boundary.whole.name, boundary.whole.ty());
        format!("\n      {value}: {ty} {{{}}}", attributes.join(", "))
    });
    let results = output_names(plan).into_iter().zip(&given).map(|(name, boundary)| {
        let (ty, sharding) = (boundary.whole.ty(), &boundary.sharding);
        format!(
            "\n      {ty} {{jax.result_info = {}, sdy.sharding = #sdy.sharding{sharding}}}",
            quoted(&name)
        )
    });
    let mut out = format!(
        "  func.func public @{}({}\n    ) -> ({}\n    ) {{\n",
        quoted(name),
        arguments.collect::<Vec<_>>().join(","),
        results.collect::<Vec<_>>().join(",")
    );
    let wholes = taken.iter().map(|boundary| &boundary.whole);
    let shardings = |of: &[Boundary]| list(of.iter().map(|boundary| &boundary.sharding));
    let locals = taken.iter().map(|b| format!("{}: {}", b.local.name, b.local.ty()));
    let axes = declared(&plan.mesh);
    out.push_str(&format!(
        "    {all}:{} = sdy.manual_computation({})\n        in_shardings=[{}]\n        \
         out_shardings=[{}]\n        manual_axes={{{}}} ({}) {{\n",
        given.len(),
        builder::names(wholes.clone()),
        shardings(&taken),
        shardings(&given),
        list(axes.iter().map(|(axis, _)| quoted(axis))),
        list(locals)
    ));
    let held: Vec<(InstrId, Value)> =
        parameters.iter().zip(&taken).map(|(p, boundary)| (p.id, boundary.local.clone())).collect();
    HloBody::new(plan, floats).write(&mut b, &held)?;
    out.push_str(&b.into_text());
    let of_results = types(given.iter().map(|boundary| &boundary.whole));
    out.push_str(&format!(
        "    }} : ({}) -> ({of_results})\n    return {} : {of_results}\n  }}\n",
        types(wholes),
        list((0..given.len()).map(|at| format!("{all}#{at}")))
    ));
    Ok(out)
}
