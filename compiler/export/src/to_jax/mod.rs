//! A module of JAX: the mesh, the specs of all parameters, for each layer and phase a sharded and
//! an unsharded function, and a check that compares the two.

mod moves;
mod words;

use shard_ir::{DimId, InstrId, Mesh, Plan, PlanOutput};

use crate::body::Form;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::{
    Exported, Layer, heading, helpers_text, host_names, plain, replaced, stack_of, stack_of_output,
    stacked_value, with_check,
};
use crate::names::Taken;
use crate::python::{Py, assignment, string};
use crate::specs::{boundary_entries, terms};
use crate::stack::{one_mesh, with_stacks};
use crate::words::Words;
pub(crate) use words::Jax;

/// How a module states layouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    /// A `shard_map` of what each device does: every collective of the plan is written out, and XLA
    /// adds none.
    #[default]
    ShardMap,
    /// Code on whole tensors, in which each value that the plan moves is held to its layout: XLA
    /// finds the collectives.
    Constraints,
}

/// How a module is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JaxOptions {
    /// How it states layouts.
    pub style: Style,
    /// Which floats it computes in.
    pub floats: Floats,
}

/// The text of a module of layers on one mesh. `origin` says in a few words where the layers come
/// from.
pub fn jax(
    layers: &[Exported<'_>],
    origin: &str,
    options: JaxOptions,
) -> Result<String, ExportError> {
    let mut module = JaxModule {
        options,
        taken: Taken::default(),
        single: layers.len() == 1,
        entries: Vec::new(),
    };
    let mesh = one_mesh(layers)?;
    let functions = with_stacks(layers, &mut |layer, kind| module.layer(layer, kind))?;
    Ok(module.assembled(&mesh, origin, &functions))
}

struct JaxModule {
    options: JaxOptions,
    taken: Taken,
    /// Whether there is one layer, whose constants need no prefix.
    single: bool,
    /// The entries of `LAYERS`.
    entries: Vec<(String, Vec<(String, Py)>)>,
}

impl JaxModule {
    /// The code of a layer; `kind` stands behind the layer's name.
    fn layer(&mut self, layer: &Exported<'_>, kind: &str) -> Result<String, ExportError> {
        let layer = Layer::new(&Jax, self.options.floats, layer, kind);
        let plan = layer.plan;
        let is_only = self.single && kind.is_empty();
        let constants = ["PARAMS", "RESULTS", "SHAPES"];
        let (function, unsharded, constants) = layer.names(&mut self.taken, is_only, constants);
        let [params, results, shapes] = &constants;
        let (form, said) = match self.options.style {
            Style::ShardMap => (Form::Devices, "on each device's own blocks"),
            Style::Constraints => {
                (Form::Constraints, "on whole tensors, held to the plan's layouts")
            }
        };
        let partial = self.options.style == Style::ShardMap;
        let spec = |id: InstrId, dims: &[DimId], partial: bool| {
            Py::call("P", spec_entries(plan, id, dims, partial))
        };
        let out = [
            format!("\n\n# {}\n", heading(plan, kind)),
            layer.of_parameters(params, |p| spec(p.id, &plan.instruction(p.id).dims, true)),
            layer.of_results(results, |output| spec(output.id, &output.dims, partial)),
            layer.shapes(shapes),
            "\n\n".to_string(),
            self.decorators(&layer, params, results),
            layer.sharded(&function, form, said)?,
            "\n\n".to_string(),
            layer.unsharded(&unsharded)?,
        ];
        let names = [
            ("sharded", &function),
            ("unsharded", &unsharded),
            ("params", params),
            ("results", results),
            ("shapes", shapes),
        ];
        let mut entry = names.map(|(key, name)| (key.to_string(), Py::atom(name))).to_vec();
        entry.extend(layer.of_data());
        entry.extend(in_front(&layer, partial));
        entry.push(layer.tolerance());
        self.entries.push((layer.title, entry));
        Ok(out.concat())
    }

    /// The decorators of a function. The memory of caches that a result replaces is donated.
    fn decorators(&self, layer: &Layer<'_>, params: &str, results: &str) -> String {
        let replaced = replaced(layer.plan);
        let donated = layer
            .parameters
            .iter()
            .enumerate()
            .filter(|(_, p)| replaced.iter().any(|(id, _)| *id == p.id))
            .map(|(at, _)| at);
        let donated: Vec<usize> = donated.collect();
        let given = match layer.outputs.as_slice() {
            [one] => format!("{results}[{}]", string(one)),
            _ => format!("tuple({results}.values())"),
        };
        let donate = |jit: Py| {
            if donated.is_empty() { jit } else { jit.with("donate_argnums", Py::numbers(&donated)) }
        };
        match self.options.style {
            Style::ShardMap => {
                let jit = donate(Py::call("@partial", [Py::atom("jax.jit")])).flat();
                let jit = if donated.is_empty() { "@jax.jit".to_string() } else { jit };
                format!(
                    "{jit}\n@partial(\n    jax.shard_map,\n    mesh=MESH,\n    \
                        in_specs=tuple({params}.values()),\n    \
                     out_specs={given},\n    check_vma=False,\n)\n"
                )
            }
            Style::Constraints => {
                let donated = if donated.is_empty() {
                    String::new()
                } else {
                    format!("    donate_argnums={},\n", Py::numbers(&donated).flat())
                };
                let host: Vec<Py> = host_names(&layer.parameters).map(Py::string).collect();
                if host.is_empty() {
                    let given = match layer.outputs.as_slice() {
                        [_] => format!("NamedSharding(MESH, {given})"),
                        _ => format!("placed({results})"),
                    };
                    return format!(
                        "@partial(\n    jax.jit,\n    in_shardings=placed({params}),\n    \
                         out_shardings={given},\n{donated})\n"
                    );
                }
                // Where a program has values in two memories, JAX turns `out_shardings` into a
                // placement of the result, which XLA for CPU cannot partition. So the results are
                // held to their layouts inside.
                let host = Py::List(host).flat();
                format!(
                    "@partial(\n    jax.jit,\n    in_shardings=placed({params}, {host}),\n{donated})\n\
                     @held({given})\n"
                )
            }
        }
    }

    fn assembled(&self, mesh: &Mesh, origin: &str, functions: &str) -> String {
        let mut axes: Vec<(&str, u64)> =
            mesh.declared().iter().map(|(name, size)| (name.as_str(), *size)).collect();
        if axes.is_empty() {
            axes.push(("devices", 1));
        }
        let sizes = Py::numbers(axes.iter().map(|(_, size)| size));
        let names = Py::Tuple(axes.iter().map(|(name, _)| Py::string(name)).collect());
        let kinds = Py::binary(Py::atom("(AxisType.Auto,)"), "*", Py::atom(axes.len()));
        let mesh_line = assignment(
            0,
            "MESH",
            &Py::call("jax.make_mesh", [sizes, names]).with("axis_types", kinds),
            "",
        );
        let before = Jax.helpers().called_by("devices_for_a_check(1)", &[]);
        let devices: u64 = axes.iter().map(|(_, size)| size).product();
        let wide = if self.options.floats == Floats::F64 {
            "jax.config.update(\"jax_enable_x64\", True)\n"
        } else {
            ""
        };
        let code = format!(
            "{}\n\n{wide}devices_for_a_check({devices})\n{mesh_line}{}",
            helpers_text(&before),
            with_check(&Jax, functions, &before, &self.entries)
        );
        format!("\"\"\"{}\"\"\"\n\n{}{code}", docstring(origin, self.options.style), imports(&code))
    }
}

/// Entries of `LAYERS` on the dims in front of parameters and results: the dim of a stack, and the
/// dims of candidates and terms.
fn in_front(layer: &Layer<'_>, partial: bool) -> [(String, Py); 2] {
    let (plan, parameters) = (layer.plan, &layer.parameters);
    let count = |count: Option<u64>| count.map_or(Py::atom("None"), Py::atom);
    let split = |id: InstrId| {
        let [candidates, terms] = terms(&plan.mesh, plan.instruction(id).layout);
        let is_split = candidates.is_some() || terms.is_some();
        is_split.then(|| Py::Tuple(vec![count(candidates), count(terms)]))
    };
    // The arrow tells a result from a parameter of the same name.
    let results: Vec<(String, &PlanOutput)> =
        layer.outputs.iter().map(|name| format!("-> {name}")).zip(&plan.outputs).collect();
    let mut of_terms: Vec<(String, Py)> =
        parameters.iter().filter_map(|p| Some((string(&p.name), split(p.id)?))).collect();
    let partial_results = results.iter().filter(|_| partial);
    of_terms.extend(partial_results.filter_map(|(name, o)| Some((string(name), split(o.id)?))));
    let stacked =
        parameters.iter().filter(|p| stack_of(plan, p.id).is_some()).map(|p| p.name.as_str());
    let stacked_results =
        results.iter().filter(|(_, o)| stack_of_output(plan, o)).map(|(name, _)| name.as_str());
    let stacked = stacked.chain(stacked_results).map(Py::string).collect();
    [("stacked".to_string(), Py::List(stacked)), ("terms".to_string(), Py::Dict(of_terms))]
}

/// The imports that a text needs, sorted as the linter sorts them.
fn imports(code: &str) -> String {
    let mut out = String::new();
    for module in ["argparse", "os", "sys"] {
        if code.contains(&format!("{module}.")) {
            out.push_str(&format!("import {module}\n"));
        }
    }
    if code.contains("@partial") {
        out.push_str("from functools import partial\n");
    }
    out.push_str("\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n");
    if code.contains("lax.") {
        out.push_str("from jax import lax\n");
    }
    out.push_str(
        "from jax.sharding import AxisType, NamedSharding\nfrom jax.sharding import \
        PartitionSpec as P\n",
    );
    out
}

fn docstring(origin: &str, style: Style) -> String {
    let said = match style {
        Style::ShardMap => {
            "Every line of a layer is one instruction of its plan; behind it stand the layout and \
                the bytes\n\
             of one device after it. PARAMS says how each parameter lies on the mesh, SHAPES how \
             large it\n\
             is as a whole. A partial value at the boundary has its terms along a dim in front."
        }
        Style::Constraints => {
            "Every value that the plan moves is held to the layout that it moves it to; XLA finds \
                the\n\
             collectives. PARAMS says how each parameter lies on the mesh, SHAPES how large it is \
             as a\n\
             whole. A partial value at the boundary has its terms along a dim in front."
        }
    };
    format!(
        "{}\n\n{said}\n\n`--check` runs the layers on made-up data beside their unsharded form.\n",
        plain(origin)
    )
}

fn spec_entries(plan: &Plan, id: InstrId, dims: &[DimId], partial: bool) -> Vec<Py> {
    let instr = plan.instruction(id);
    let order: Vec<usize> =
        dims.iter().filter_map(|d| instr.dims.iter().position(|i| i == d)).collect();
    let mut layout = instr.layout.permuted(&order);
    if !partial {
        layout = layout.partial_axes().iter().fold(layout, |l, axis| l.with_replicated(axis));
    }
    boundary_entries(
        &plan.mesh,
        layout,
        dims.len(),
        instr.fold.is_some() && stacked_value(plan, id),
    )
}
