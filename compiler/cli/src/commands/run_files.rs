//! Files of tensors that `run` reads and writes, of layers and of schedules alike.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use shard_ir::{InstrKind, Instruction, Plan};
use shard_runtime::{NamedTensor, RunOptions, Tensor};

use crate::commands::run::RunArgs;
use crate::console::{Console, Outcome};
use crate::output::file_name;
use crate::tensor_files::{npy, safetensors};

/// Where results go: `--output` and `--outputs`.
pub(crate) struct Kept<'a> {
    args: &'a RunArgs,
    /// Whether several layers are run, so that the names of results begin with those of their
    /// layers.
    many: bool,
    /// The results for the file of `--outputs`.
    results: Vec<NamedTensor>,
}

impl<'a> Kept<'a> {
    /// No results yet, of so many layers.
    pub(crate) fn of(args: &'a RunArgs, layers: usize) -> Kept<'a> {
        Kept { args, many: layers > 1, results: Vec::new() }
    }

    /// Writes the results of a layer to its folder, and remembers them for the file of all.
    pub(crate) fn keep(
        &mut self,
        plan: &Plan,
        outputs: &[NamedTensor],
        console: &mut Console,
    ) -> Outcome {
        let own = match &plan.phase {
            _ if !self.many => None,
            Some(phase) => Some(format!("{}.{phase}", plan.name)),
            None => Some(plan.name.clone()),
        };
        if let Some(folder) = &self.args.output {
            let folder = own.as_ref().map_or(folder.clone(), |own| folder.join(file_name(own)));
            for output in outputs {
                npy::write(&folder, output).map_err(|why| console.usage(&why, None))?;
            }
        }
        if self.args.outputs_file.is_some() {
            let prefix = own.map_or(String::new(), |own| format!("{own}."));
            self.results.extend(outputs.iter().map(|output| NamedTensor {
                name: format!("{prefix}{}", output.name),
                tensor: output.tensor.clone(),
            }));
        }
        Ok(())
    }

    /// Writes the file of all results.
    pub(crate) fn write(&self, console: &mut Console) -> Outcome {
        match &self.args.outputs_file {
            Some(path) => {
                safetensors::write(path, &self.results).map_err(|why| console.usage(&why, None))
            }
            None => Ok(()),
        }
    }
}

/// The tensors of `--input`, by the names of their parameters.
pub(crate) fn read_inputs(
    inputs: &[String],
    console: &mut Console,
) -> Outcome<BTreeMap<String, Arc<Tensor>>> {
    let mut tensors = BTreeMap::new();
    for text in inputs {
        let Some((name, path)) = text.split_once('=') else {
            let help = "--input x=x.npy".to_string();
            return Err(console.usage(&format!("`--input {text}` names no file"), Some(help)));
        };
        let tensor = npy::read(Path::new(path))
            .map_err(|why| console.usage(&format!("cannot read `{path}`: {why}"), None))?;
        tensors.insert(name.to_string(), Arc::new(tensor));
    }
    Ok(tensors)
}

/// The tensors of `--inputs` that each layer takes.
#[derive(Default)]
pub(crate) struct Inputs {
    of_layers: Vec<BTreeMap<String, Tensor>>,
}

impl Inputs {
    /// Moves the tensors of the `at`-th layer into its options. A tensor of `--input` comes before
    /// one of the file with the same name.
    pub(crate) fn give(&mut self, at: usize, options: &mut RunOptions) {
        for (name, tensor) in self.of_layers.get_mut(at).map(std::mem::take).unwrap_or_default() {
            options.inputs.entry(name).or_insert_with(|| Arc::new(tensor));
        }
    }
}

/// For each layer, given as it is executed, the tensors of a file with the names of its parameters.
/// A tensor that no layer takes is an error: nobody would see that random data took its place.
pub(crate) fn inputs_of_layers(
    path: Option<&Path>,
    plans: &[Option<Plan>],
    console: &mut Console,
) -> Outcome<Inputs> {
    let Some(path) = path else { return Ok(Inputs::default()) };
    let shown = path.display();
    let file = safetensors::File::open(path)
        .map_err(|why| console.usage(&format!("cannot read `{shown}`: {why}"), None))?;
    let mut of_layers = Vec::new();
    let there: BTreeSet<String> = file.names();
    let mut unknown = there.clone();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for plan in plans {
        let names = plan.as_ref().map(parameters).unwrap_or_default();
        let mut inputs = BTreeMap::new();
        for name in names.intersection(&there) {
            let tensor = file.tensor(name).map_err(|why| {
                let message = format!("cannot read the tensor `{name}` of `{shown}`: {why}");
                console.usage(&message, None)
            })?;
            inputs.insert(name.clone(), tensor);
            unknown.remove(name);
        }
        known.extend(names);
        of_layers.push(inputs);
    }
    if let Some(name) = unknown.first() {
        let shape = file.shape(name);
        let message =
            format!("`{shown}` has a tensor `{name}` of shape {shape}: no parameter has that name");
        let known: Vec<String> = known.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
        let help = format!("parameters: {}", known.join(", "));
        return Err(console.usage(&message, Some(help)));
    }
    Ok(Inputs { of_layers })
}

/// The most names that a message lists.
const SHOWN: usize = 12;

fn parameters(plan: &Plan) -> BTreeSet<String> {
    let is_parameter = |i: &&Instruction| matches!(i.kind, InstrKind::Parameter(_));
    plan.instructions.iter().filter(is_parameter).filter_map(|i| i.name.clone()).collect()
}
