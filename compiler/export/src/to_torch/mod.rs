//! A module of PyTorch: the mesh and its process groups, how all parameters lie, a function for
//! each layer and phase that one process runs on its own blocks, the unsharded function beside it,
//! and a check that compares the two.

mod groups;
mod moves;
mod placements;
mod tp_plan;
mod words;

use std::collections::BTreeSet;

use shard_ir::{AxisId, InstrId, Mesh, Plan, PlanOutput, Reduction};

use crate::body::{Body, Form, seen_by};
use crate::data::Data;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::layer::{
    Exported, Parameter, as_source_has, heading, host_names, output_names, parameters, plain,
    stack_of, stack_of_output,
};
use crate::names::{Taken, identifier};
use crate::python::{Py, assignment, call_line, dictionary, string};
use crate::specs::axes_tuple;
use crate::stack::{one_mesh, with_stacks};
use crate::words::Words;
use words::Torch;

/// A module of layers on one mesh; `origin` says in a few words what they come from.
///
/// # Errors
///
/// What PyTorch has no way to say ([`ExportError`]).
pub fn torch(layers: &[Exported<'_>], origin: &str, floats: Floats) -> Result<String, ExportError> {
    let mesh = one_mesh(layers)?;
    let mut module = Module {
        floats,
        taken: Taken::default(),
        single: layers.len() == 1,
        groups: Vec::new(),
        entries: Vec::new(),
    };
    let functions = with_stacks(layers, &mut |layer, kind| module.layer(layer, kind))?;
    Ok(module.assembled(&mesh, origin, &functions))
}

struct Module {
    floats: Floats,
    taken: Taken,
    /// There is one layer: its constants need no prefix.
    single: bool,
    /// The axes of the process groups, each tuple once.
    groups: Vec<Vec<AxisId>>,
    /// The entries of `LAYERS`.
    entries: Vec<(String, Vec<(String, Py)>)>,
}

/// The names of a layer's function and constants.
struct Names {
    function: String,
    unsharded: String,
    params: String,
    placements: String,
    results: String,
    shapes: String,
    tp_plan: String,
}

impl Module {
    /// A layer; `kind` stands behind its name.
    fn layer(&mut self, layer: &Exported<'_>, kind: &str) -> Result<String, ExportError> {
        let plan = layer.plan;
        let title = match &plan.phase {
            Some(phase) => format!("{}.{phase}{kind}", plan.name),
            None => format!("{}{kind}", plan.name),
        };
        for axes in groups::groups(plan)? {
            if !self.groups.contains(&axes) {
                self.groups.push(axes);
            }
        }
        let names = self.names(&title, kind);
        let parameters = parameters(&Torch, plan);
        let outputs = output_names(plan);
        let mut out = format!("\n\n# {}\n", heading(plan, &title));
        out.push_str(&self.constants(plan, &names, &parameters, &outputs));

        let arguments: Vec<String> = parameters.iter().map(|p| p.argument.clone()).collect();
        let held: Vec<(InstrId, String)> =
            parameters.iter().map(|p| (p.id, p.argument.clone())).collect();
        let seen = seen_by(plan, Form::Devices);
        out.push_str("\n\n");
        out.push_str(&call_line(0, &format!("def {}", names.function), &arguments, ":"));
        out.push_str(&format!(
            "    \"\"\"`{}` on each process's own blocks.\"\"\"\n",
            plain(&title)
        ));
        out.push_str(&Body::new(&Torch, plan, &seen, Form::Devices, self.floats).write(&held)?);

        let source = seen_by(layer.source.unwrap_or(plan), Form::Alone);
        let held = as_source_has(&source, plan, &parameters)?;
        out.push_str("\n\n");
        out.push_str(&call_line(0, &format!("def {}", names.unsharded), &arguments, ":"));
        out.push_str(&format!(
            "    \"\"\"`{}` as the source has it, on whole tensors.\"\"\"\n",
            plain(&title)
        ));
        out.push_str(&Body::new(&Torch, &source, &source, Form::Alone, self.floats).write(&held)?);

        let entry = self.entry(plan, &names, &parameters, &outputs);
        self.entries.push((title, entry));
        Ok(out)
    }

    fn names(&mut self, title: &str, kind: &str) -> Names {
        let function = self.taken.fresh(&identifier(&Torch, title));
        let unsharded = self.taken.fresh(&format!("{function}_unsharded"));
        let prefix = if self.single && kind.is_empty() {
            String::new()
        } else {
            format!("{}_", function.to_uppercase())
        };
        let mut constant = |word: &str| self.taken.fresh(&format!("{prefix}{word}"));
        Names {
            params: constant("PARAMS"),
            placements: constant("PLACEMENTS"),
            results: constant("RESULTS"),
            shapes: constant("SHAPES"),
            tp_plan: constant("TP_PLAN"),
            function,
            unsharded,
        }
    }

    /// How parameters and results lie: by axes, as placements of DTensor, and as a plan of tensor
    /// parallelism, each where there is one.
    fn constants(
        &self,
        plan: &Plan,
        names: &Names,
        parameters: &[Parameter],
        outputs: &[String],
    ) -> String {
        let mesh = &plan.mesh;
        let mut out = String::new();
        let spec = |p: &Parameter| {
            let (instr, stacked) = (plan.instruction(p.id), stack_of(plan, p.id).is_some());
            placements::entries(mesh, instr.layout, instr.dims.len(), stacked)
        };
        let entries: Vec<_> = parameters.iter().map(|p| (p.name.clone(), spec(p))).collect();
        out.push_str(&dictionary(0, &format!("{} = ", names.params), &entries, ""));
        let spec = |o: &PlanOutput| {
            placements::entries(mesh, plan.output_layout(o), o.dims.len(), stack_of_output(plan, o))
        };
        let entries: Vec<_> =
            outputs.iter().zip(&plan.outputs).map(|(name, o)| (name.clone(), spec(o))).collect();
        out.push_str(&dictionary(0, &format!("{} = ", names.results), &entries, ""));
        let shape = |p: &Parameter| {
            let instr = plan.instruction(p.id);
            let sizes = stack_of(plan, p.id).into_iter().chain(plan.sizes(&instr.dims));
            Py::Tuple(vec![Py::numbers(sizes), Py::atom(Torch.dtype(instr.dtype, self.floats))])
        };
        let entries: Vec<_> = parameters.iter().map(|p| (p.name.clone(), shape(p))).collect();
        out.push_str(&dictionary(0, &format!("{} = ", names.shapes), &entries, ""));
        out.push_str(&placements_text(plan, &names.placements, parameters));
        match tp_plan::tp_plan(plan) {
            Ok(styles) => {
                let entries: Vec<_> =
                    styles.into_iter().map(|(name, style)| (name, Py::string(style))).collect();
                out.push_str(&dictionary(0, &format!("{} = ", names.tp_plan), &entries, ""));
            }
            Err(why) => out.push_str(&assignment(
                0,
                &names.tp_plan,
                &Py::atom("None"),
                &format!("no plan of tensor parallelism: {why}"),
            )),
        }
        out
    }

    /// What the check has to know of a layer.
    fn entry(
        &self,
        plan: &Plan,
        names: &Names,
        parameters: &[Parameter],
        outputs: &[String],
    ) -> Vec<(String, Py)> {
        let data = Data::of(plan);
        let below = parameters
            .iter()
            .filter_map(|p| Some((string(&p.name), Py::atom(data.below[p.id.index()]?))));
        let partial = |layout: shard_ir::Layout| {
            let [maxima, sums] = [Reduction::Max, Reduction::Sum].map(|kind| layout.partial(kind));
            (!maxima.is_empty() || !sums.is_empty()).then(|| {
                Py::Tuple([maxima, sums].map(|a| axes_tuple(&plan.mesh, a.iter())).to_vec())
            })
        };
        // Results are told from parameters of the same name.
        let of_parameters = parameters
            .iter()
            .filter_map(|p| Some((string(&p.name), partial(plan.instruction(p.id).layout)?)));
        let of_results = outputs.iter().zip(&plan.outputs).filter_map(|(name, o)| {
            Some((string(&format!("-> {name}")), partial(plan.output_layout(o))?))
        });
        let host = Py::List(host_names(parameters).map(Py::string).collect());
        let tolerance = self.floats.tolerance(plan.instructions.iter().map(|i| i.dtype));
        let mut entry: Vec<(String, Py)> = [
            ("sharded", &names.function),
            ("unsharded", &names.unsharded),
            ("params", &names.params),
            ("placements", &names.placements),
            ("results", &names.results),
            ("shapes", &names.shapes),
        ]
        .map(|(key, name)| (key.to_string(), Py::atom(name)))
        .to_vec();
        entry.extend([
            ("below".to_string(), Py::Dict(below.collect())),
            ("positive".to_string(), Py::atom(if data.positive { "True" } else { "False" })),
            ("host".to_string(), host),
            ("partial".to_string(), Py::Dict(of_parameters.chain(of_results).collect())),
            ("tolerance".to_string(), Py::atom(format!("{tolerance:?}"))),
        ]);
        entry
    }

    fn assembled(&self, mesh: &Mesh, origin: &str, functions: &str) -> String {
        let mut tail = String::from("\n\nLAYERS = {\n");
        for (name, entry) in &self.entries {
            tail.push_str(&dictionary(4, &format!("{}: ", string(name)), entry, ","));
        }
        tail.push_str("}\n\n\nif __name__ == \"__main__\":\n    sys.exit(main())\n");
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
        let written =
            |texts: &[&str]| texts.iter().map(|text| format!("\n\n{text}\n")).collect::<String>();
        let of_layers = Torch.helpers().called_by(functions, &[]);
        let of_check = Torch.helpers().called_by("main()", &of_layers);
        let [of_layers, of_check] = [of_layers, of_check].map(|texts| written(&texts));
        let code = format!("{constants}{of_layers}{functions}{of_check}{tail}");
        format!("\"\"\"{}\"\"\"\n\n{}{code}", docstring(origin), imports(&code))
    }
}

/// The placements of all parameters; those that DTensor cannot say are `None`, and why.
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

/// The imports that a text needs, in the order of the linter.
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
    // As the linter sorts them: classes before functions.
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
