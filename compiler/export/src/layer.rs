//! What the modules of every system contain for a layer: its heading, the names of its parameters
//! and results, its constants and its functions.

use std::collections::BTreeSet;

use shard_ir::{InstrId, InstrKind, ParameterKind, Plan, PlanOutput};

use crate::body::{Form, PythonBody, seen_by};
use crate::data::Data;
use crate::dtypes::Floats;
use crate::error::ExportError;
use crate::names::{Taken, identifier};
use crate::python::{Py, call_line, dictionary, string};
use crate::stack::STACK;
use crate::words::Words;

/// A layer to export, in one phase.
#[derive(Clone, Copy, Debug)]
pub struct Exported<'a> {
    /// Its plan, verified.
    pub plan: &'a Plan,
    /// The source, unsharded ([`Plan::unsharded`]), of the same sizes. Without it the check
    /// compares with the plan's own ops on whole tensors.
    pub source: Option<&'a Plan>,
}

/// A parameter of a function.
pub(crate) struct Parameter {
    pub(crate) id: InstrId,
    /// Its name in the source; where it has none, or the name stands twice, a name of its own.
    pub(crate) name: String,
    /// Its name in Python.
    pub(crate) argument: String,
    pub(crate) kind: ParameterKind,
}

/// A layer of a module while it is written.
pub(crate) struct Layer<'l> {
    words: &'static dyn Words,
    floats: Floats,
    pub(crate) plan: &'l Plan,
    /// The source on whole tensors, or the plan's own ops where no source is given.
    source: Plan,
    pub(crate) title: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) outputs: Vec<String>,
}

impl<'l> Layer<'l> {
    /// A layer in its phase; `kind` stands behind its name.
    pub(crate) fn new(
        words: &'static dyn Words,
        floats: Floats,
        layer: &Exported<'l>,
        kind: &str,
    ) -> Layer<'l> {
        let plan = layer.plan;
        Layer {
            words,
            floats,
            plan,
            source: seen_by(layer.source.unwrap_or(plan), Form::Alone),
            title: title_of(plan, kind),
            parameters: parameters(words, plan),
            outputs: output_names(plan),
        }
    }

    /// The names of the layer's function, of its unsharded function and of its constants. Constants
    /// have the name of the function as a prefix, unless the layer is the only one (`is_only`).
    pub(crate) fn names<const N: usize>(
        &self,
        taken: &mut Taken,
        is_only: bool,
        constants: [&str; N],
    ) -> (String, String, [String; N]) {
        let function = taken.fresh(&identifier(self.words, &self.title));
        let unsharded = taken.fresh(&format!("{function}_unsharded"));
        let prefix = if is_only { String::new() } else { format!("{}_", function.to_uppercase()) };
        let constants = constants.map(|word| taken.fresh(&format!("{prefix}{word}")));
        (function, unsharded, constants)
    }

    /// A constant of the module: a dictionary with `of` of each parameter.
    pub(crate) fn of_parameters(&self, name: &str, of: impl Fn(&Parameter) -> Py) -> String {
        let entries: Vec<_> = self.parameters.iter().map(|p| (p.name.clone(), of(p))).collect();
        dictionary(0, &format!("{name} = "), &entries, "")
    }

    /// A constant of the module: a dictionary with `of` of each result.
    pub(crate) fn of_results(&self, name: &str, of: impl Fn(&PlanOutput) -> Py) -> String {
        let results = self.outputs.iter().zip(&self.plan.outputs);
        let entries: Vec<_> = results.map(|(name, output)| (name.clone(), of(output))).collect();
        dictionary(0, &format!("{name} = "), &entries, "")
    }

    /// A constant of the module: for each parameter its global shape and its dtype.
    pub(crate) fn shapes(&self, name: &str) -> String {
        self.of_parameters(name, |p| {
            let instr = self.plan.instruction(p.id);
            let sizes = stack_of(self.plan, p.id).into_iter().chain(self.plan.sizes(&instr.dims));
            let dtype = Py::atom(self.words.dtype(instr.dtype, self.floats));
            Py::Tuple(vec![Py::numbers(sizes), dtype])
        })
    }

    /// The function of the plan in a form; `said` tells in the docstring on what it computes.
    pub(crate) fn sharded(
        &self,
        name: &str,
        form: Form,
        said: &str,
    ) -> Result<String, ExportError> {
        let named = self.parameters.iter().map(|p| (p.id, p.argument.clone()));
        self.function(name, said, self.plan, form, named.collect())
    }

    /// The function of the source on whole tensors.
    pub(crate) fn unsharded(&self, name: &str) -> Result<String, ExportError> {
        let named = as_source_has(&self.source, self.plan, &self.parameters)?;
        let said = "as the source has it, on whole tensors";
        self.function(name, said, &self.source, Form::Alone, named)
    }

    fn function(
        &self,
        name: &str,
        said: &str,
        plan: &Plan,
        form: Form,
        named: Vec<(InstrId, String)>,
    ) -> Result<String, ExportError> {
        let arguments: Vec<String> = self.parameters.iter().map(|p| p.argument.clone()).collect();
        let head = call_line(0, &format!("def {name}"), &arguments, ":");
        let seen = seen_by(plan, form);
        let body = PythonBody::new(self.words, plan, &seen, form, self.floats).write(&named)?;
        Ok(format!("{head}    \"\"\"`{}` {said}.\"\"\"\n{body}", plain(&self.title)))
    }

    /// Entries of `LAYERS` by which the check makes data for the parameters.
    pub(crate) fn of_data(&self) -> Vec<(String, Py)> {
        let data = Data::of(self.plan);
        let below = |p: &Parameter| Some((string(&p.name), Py::atom(data.below[p.id.index()]?)));
        let host = host_names(&self.parameters).map(Py::string);
        vec![
            ("below".to_string(), Py::Dict(self.parameters.iter().filter_map(below).collect())),
            ("positive".to_string(), Py::atom(if data.positive { "True" } else { "False" })),
            ("host".to_string(), Py::List(host.collect())),
        ]
    }

    /// The entry of `LAYERS` that says by how much results may differ.
    pub(crate) fn tolerance(&self) -> (String, Py) {
        let tolerance = self.floats.tolerance(self.plan.instructions.iter().map(|i| i.dtype));
        ("tolerance".to_string(), Py::atom(format!("{tolerance:?}")))
    }
}

/// Helpers as a module has them, one below the other.
pub(crate) fn helpers_text(texts: &[&str]) -> String {
    texts.iter().map(|text| format!("\n\n{text}\n")).collect()
}

/// The code of a module: `functions`, the check, and the helpers that either calls, less those in
/// `known`. `entries` are the entries of `LAYERS`, from which the check reads what it needs of each
/// layer.
pub(crate) fn with_check(
    words: &dyn Words,
    functions: &str,
    known: &[&'static str],
    entries: &[(String, Vec<(String, Py)>)],
) -> String {
    let of_layers = words.helpers().called_by(functions, known);
    let known = [known, &of_layers].concat();
    let of_check = words.helpers().called_by("main()", &known);
    let layers: String = entries
        .iter()
        .map(|(name, entry)| dictionary(4, &format!("{}: ", string(name)), entry, ","))
        .collect();
    let (of_layers, of_check) = (helpers_text(&of_layers), helpers_text(&of_check));
    format!(
        "{of_layers}{functions}{of_check}\n\nLAYERS = {{\n{layers}}}\n\n\n\
         if __name__ == \"__main__\":\n    sys.exit(main())\n"
    )
}

/// A text in which what would end a docstring or a comment is replaced by `?`.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '"' || c == '\\' { '?' } else { c }).collect()
}

/// What stands above the functions of a layer; `kind` stands behind its name.
pub(crate) fn heading(plan: &Plan, kind: &str) -> String {
    let dims: Vec<String> = plan.dims.iter().map(|d| format!("{}={}", d.name, d.size)).collect();
    let repeat = match (plan.repeat, kind == STACK) {
        (..2, _) => String::new(),
        (n, true) => format!(", all {n}"),
        (n, false) => format!(", one of {n}"),
    };
    let hardware = plan.hardware.as_ref().map_or(String::new(), |name| format!(" on {name}"));
    let title = title_of(plan, kind);
    plain(&format!("{title}{hardware}{repeat}: {}", dims.join(", ")))
}

/// The number of applications that a value of a folded block has one tensor for each of; `None` for
/// a value outside folded blocks.
pub(crate) fn stack_of(plan: &Plan, id: InstrId) -> Option<u64> {
    let fold = plan.instruction(id).fold?;
    plan.folds.get(fold.index()).map(|fold| fold.repeat)
}

pub(crate) fn stack_of_output(plan: &Plan, output: &PlanOutput) -> bool {
    output.state && plan.runs_in(output.id).is_some()
}

/// Whether a value of a folded block has a tensor for each application: whether it is a parameter
/// or a state.
pub(crate) fn stacked_value(plan: &Plan, id: InstrId) -> bool {
    plan.instruction(id).kind.parameter().is_some()
        || plan.outputs.iter().any(|output| output.id == id && output.state)
}

/// The name of a parameter in the source; IR may leave it out.
fn given_name(plan: &Plan, id: InstrId) -> Option<&str> {
    let instr = plan.instruction(id);
    instr.kind.parameter().and(instr.name.as_deref())
}

/// The parameters of a plan, in its order, each with a name that no other has.
pub(crate) fn parameters(words: &dyn Words, plan: &Plan) -> Vec<Parameter> {
    let (mut names, mut arguments) = (Taken::default(), Taken::default());
    let given: BTreeSet<&str> = plan.ids().filter_map(|id| given_name(plan, id)).collect();
    let mut out = Vec::new();
    for id in plan.ids() {
        if let InstrKind::Parameter(kind) = plan.instruction(id).kind {
            let name = match given_name(plan, id) {
                Some(name) if !names.has(name) => name.to_string(),
                Some(name) => names.free(name, |name| given.contains(name)),
                None => names.free(&format!("p{}", id.0), |name| given.contains(name)),
            };
            names.take(&name);
            let argument = arguments.fresh(&identifier(words, &name));
            out.push(Parameter { id, name, argument, kind });
        }
    }
    out
}

/// The parameters that stay in the memory of the host.
pub(crate) fn host_names(parameters: &[Parameter]) -> impl Iterator<Item = &str> {
    parameters.iter().filter(|p| p.kind == ParameterKind::HostWeight).map(|p| p.name.as_str())
}

/// The names of the results; a name that stands twice gets a number.
pub(crate) fn output_names(plan: &Plan) -> Vec<String> {
    let mut taken = Taken::default();
    plan.outputs.iter().map(|output| taken.fresh(&output.name)).collect()
}

/// The caches whose memory a result may take, each with the index of the result. Such a result is
/// the cache with something appended, in the layout of the cache.
pub(crate) fn replaced(plan: &Plan) -> Vec<(InstrId, usize)> {
    let mut found: Vec<(InstrId, usize)> = Vec::new();
    for (place, output) in plan.outputs.iter().enumerate() {
        let mut at = output.id;
        loop {
            let instr = plan.instruction(at);
            match &instr.kind {
                InstrKind::Op(shard_ir::Op::Append { .. }) => at = instr.operands[0],
                InstrKind::Parameter(ParameterKind::Cache) => {
                    let result = plan.instruction(output.id);
                    let alike = result.layout == instr.layout
                        && result.dims == instr.dims
                        && output.dims == instr.dims;
                    if alike && at != output.id && !found.iter().any(|(id, _)| *id == at) {
                        found.push((at, place));
                    }
                    break;
                }
                InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_) => break,
            }
        }
    }
    found
}

/// The parameters of `source` that are the plan's `parameters`, each with the name of its argument.
/// They have the same name, or none, and the same type; several of one name and type are paired in
/// order.
pub(crate) fn as_source_has(
    source: &Plan,
    plan: &Plan,
    parameters: &[Parameter],
) -> Result<Vec<(InstrId, String)>, ExportError> {
    let mut found: Vec<(InstrId, String)> = Vec::with_capacity(parameters.len());
    for p in parameters {
        let asked = plan.instruction(p.id);
        let same = |id: &InstrId| {
            let instr = source.instruction(*id);
            let is_parameter = matches!(instr.kind, InstrKind::Parameter(_));
            is_parameter
                && instr.name == asked.name
                && instr.dims == asked.dims
                && instr.dtype == asked.dtype
                && !found.iter().any(|(taken, _)| taken == id)
        };
        let of_source =
            source.ids().find(same).ok_or(ExportError::Internal("the source lacks a parameter"))?;
        found.push((of_source, p.argument.clone()));
    }
    Ok(found)
}

/// A layer in its phase; `kind` stands behind its name.
pub(crate) fn title_of(plan: &Plan, kind: &str) -> String {
    match &plan.phase {
        Some(phase) => format!("{}.{phase}{kind}", plan.name),
        None => format!("{}{kind}", plan.name),
    }
}
