//! A module of PyTorch: the mesh and its process groups, the layouts of all parameters, for each
//! layer and phase a function that one process runs on its own blocks and an unsharded function,
//! and a check that compares the two.

mod groups;
mod moves;
mod placements;
mod tp_plan;
mod words;

use std::collections::BTreeSet;

use shard_ir::{AxisId, AxisSet, Layout, Mesh, Plan, PlanOutput, Reduction};

use crate::body::Form;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::{
    Exported, Layer, Parameter, heading, plain, stack_of, stack_of_output, with_check,
};
use crate::names::Taken;
use crate::python::{Py, assignment, dictionary, string};
use crate::specs::axes_tuple;
use crate::stack::{one_mesh, with_stacks};
use words::Torch;

/// The text of a module of layers on one mesh. `origin` says in a few words where the layers come
/// from.
///
/// # Errors
///
/// A plan that PyTorch cannot express ([`ExportError`]).
pub fn torch(layers: &[Exported<'_>], origin: &str, floats: Floats) -> Result<String, ExportError> {
    let mesh = one_mesh(layers)?;
    let mut module = TorchModule {
        floats,
        taken: Taken::default(),
        single: layers.len() == 1,
        groups: Vec::new(),
        entries: Vec::new(),
    };
    let functions = with_stacks(layers, &mut |layer, kind| module.layer(layer, kind))?;
    Ok(module.assembled(&mesh, origin, &functions))
}

struct TorchModule {
    floats: Floats,
    taken: Taken,
    /// Whether there is one layer, whose constants need no prefix.
    single: bool,
    /// The axes of the process groups, each tuple once.
    groups: Vec<Vec<AxisId>>,
    /// The entries of `LAYERS`.
    entries: Vec<(String, Vec<(String, Py)>)>,
}

impl TorchModule {
    /// The code of a layer; `kind` stands behind the layer's name.
    fn layer(&mut self, layer: &Exported<'_>, kind: &str) -> Result<String, ExportError> {
        let layer = Layer::new(&Torch, self.floats, layer, kind);
        let plan = layer.plan;
        for axes in groups::groups(plan)? {
            if !self.groups.contains(&axes) {
                self.groups.push(axes);
            }
        }
        let is_only = self.single && kind.is_empty();
        let constants = ["PARAMS", "PLACEMENTS", "RESULTS", "SHAPES", "TP_PLAN"];
        let (function, unsharded, constants) = layer.names(&mut self.taken, is_only, constants);
        let [params, placements, results, shapes, tp_plan] = &constants;
        let (of_parameter, of_result) = (
            |p: &Parameter| {
                let (instr, stacked) = (plan.instruction(p.id), stack_of(plan, p.id).is_some());
                placements::entries(&plan.mesh, instr.layout, instr.dims.len(), stacked)
            },
            |output: &PlanOutput| {
                let (layout, stacked) = (plan.output_layout(output), stack_of_output(plan, output));
                placements::entries(&plan.mesh, layout, output.dims.len(), stacked)
            },
        );
        let out = [
            format!("\n\n# {}\n", heading(plan, kind)),
            layer.of_parameters(params, of_parameter),
            layer.of_results(results, of_result),
            layer.shapes(shapes),
            placements_text(plan, placements, &layer.parameters),
            tp_plan_text(plan, &layer.parameters, tp_plan),
            "\n\n".to_string(),
            layer.sharded(&function, Form::Devices, "on each process's own blocks")?,
            "\n\n".to_string(),
            layer.unsharded(&unsharded)?,
        ];
        let names = [
            ("sharded", &function),
            ("unsharded", &unsharded),
            ("params", params),
            ("placements", placements),
            ("results", results),
            ("shapes", shapes),
        ];
        let mut entry = names.map(|(key, name)| (key.to_string(), Py::atom(name))).to_vec();
        entry.extend(layer.of_data());
        entry.push(("partial".to_string(), partial_over(&layer)));
        entry.push(layer.tolerance());
        self.entries.push((layer.title, entry));
        Ok(out.concat())
    }

    fn assembled(&self, mesh: &Mesh, origin: &str, functions: &str) -> String {
        let mut axes: Vec<(String, Py)> =
            mesh.declared().iter().map(|(name, size)| (string(name), Py::atom(size))).collect();
        if axes.is_empty() {
            axes.push((string("devices"), Py::atom(1)));
        }
        let groups = self.groups.iter().map(|axes| axes_tuple(mesh, axes.iter().copied()));
        let device = "\"cuda\" if torch.cuda.is_available() else \"cpu\"";
        let constants = [
            assignment(0, "MESH", &Py::Dict(axes), ""),
            "# What is sent over: a process group for each, ranked in its order.\n".to_string(),
            assignment(0, "AXES", &Py::Tuple(groups.collect()), ""),
            "GROUPS = {}\n".to_string(),
            format!("DEVICE = {device}\n"),
        ]
        .concat();
        let code = constants + &with_check(&Torch, functions, &[], &self.entries);
        format!("\"\"\"{}\"\"\"\n\n{}{code}", docstring(origin), imports(&code))
    }
}

/// An entry of `LAYERS`: the axes over which each partial parameter or result is a maximum, and
/// those over which it is a sum.
fn partial_over(layer: &Layer<'_>) -> Py {
    let plan = layer.plan;
    let partial = |layout: Layout| {
        let [maxima, sums] = [Reduction::Max, Reduction::Sum].map(|kind| layout.partial(kind));
        let axes = |set: AxisSet| axes_tuple(&plan.mesh, set.iter());
        let is_partial = !maxima.is_empty() || !sums.is_empty();
        is_partial.then(|| Py::Tuple(vec![axes(maxima), axes(sums)]))
    };
    // The arrow tells a result from a parameter of the same name.
    let of_parameters = layer
        .parameters
        .iter()
        .filter_map(|p| Some((string(&p.name), partial(plan.instruction(p.id).layout)?)));
    let of_results = layer.outputs.iter().zip(&plan.outputs).filter_map(|(name, o)| {
        Some((string(&format!("-> {name}")), partial(plan.output_layout(o))?))
    });
    Py::Dict(of_parameters.chain(of_results).collect())
}

/// The constant with the plan of tensor parallelism; `None` with a comment that says why there is
/// none.
fn tp_plan_text(plan: &Plan, parameters: &[Parameter], name: &str) -> String {
    match tp_plan::tp_plan(plan, parameters) {
        Ok(styles) => {
            let entries = styles.into_iter().map(|(name, style)| (name, Py::string(style)));
            dictionary(0, &format!("{name} = "), &entries.collect::<Vec<_>>(), "")
        }
        Err(why) => {
            let why = format!("no plan of tensor parallelism: {why}");
            assignment(0, name, &Py::atom("None"), &why)
        }
    }
}

/// The constant with the placements of all parameters; `None` with a comment that says why, for a
/// layout that DTensor cannot say.
fn placements_text(plan: &Plan, name: &str, parameters: &[Parameter]) -> String {
    if parameters.is_empty() {
        return format!("{name} = {{}}\n");
    }
    let mut out = format!("{name} = {{\n");
    for p in parameters {
        let (instr, stacked) = (plan.instruction(p.id), stack_of(plan, p.id).is_some());
        let placed = placements::placements(&plan.mesh, instr.layout, instr.dims.len(), stacked);
        let (value, why) = placed.map_or_else(
            |why| (Py::atom("None"), format!("DTensor cannot say this: {why}")),
            |placed| (placed, String::new()),
        );
        out.push_str(&crate::python::entry(4, &string(&p.name), &value, &why));
    }
    out + "}\n"
}

/// The imports that a text needs, sorted as the linter sorts them.
fn imports(code: &str) -> String {
    let mut out = String::new();
    for module in ["argparse", "math", "os", "sys", "tempfile"] {
        if code.contains(&format!("{module}.")) {
            out.push_str(&format!("import {module}\n"));
        }
    }
    out.push_str(
        "\nimport torch\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n\
         from torch.distributed.device_mesh import init_device_mesh\n\
         from torch.distributed.tensor import ",
    );
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for name in ["Partial", "Replicate", "Shard"] {
        if code.contains(&format!("{name}(")) {
            names.insert(name);
        }
    }
    // The linter sorts classes before functions.
    let names: Vec<&str> = names.into_iter().chain(["distribute_tensor"]).collect();
    out.push_str(&format!("{}\n\n", names.join(", ")));
    out
}

fn docstring(origin: &str) -> String {
    format!(
        "{}\n\n\
         Every line of a layer is one instruction of its plan; behind it stand the layout and the \
         bytes\n\
         of one process after it. PARAMS says which axes of the mesh split each dim of a \
         parameter,\n\
         PLACEMENTS the same as DTensor has it, SHAPES how large it is as a whole. Of a partial \
         value\n\
         a process has its own term.\n\n\
         `--check` runs the layers on made-up data beside their unsharded form, on new processes \
         of\n\
         this machine, or on those that torchrun has started:\n\n    \
         torchrun --nproc-per-node 8 module.py --check\n",
        plain(origin)
    )
}
