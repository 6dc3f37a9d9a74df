//! `shardc run FILE`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shard_check::CheckOptions;
use shard_driver::input::program_of;
use shard_driver::pipeline::{self, Compiled, Ran};
use shard_driver::{Purpose, compile_input, hardware_choice, on_streams};
use shard_grammar::SourceFile;
use shard_ir::InstrKind;
use shard_report::json::run::{RunCollective, RunLayer, RunSchedule};
use shard_report::json::schedule::{ReadSchedule, is_schedule};
use shard_report::printable::escape_plan;
use shard_runtime::{NamedTensor, Progress, RunError, RunOptions, Tensor};

use crate::args::{Format, ProgramArgs};
use crate::commands::engine::{EngineArgs, EngineName, engine};
use crate::console::{Console, Outcome, Status, problem};
use crate::input::read_text;
use crate::output::file_name;
use crate::tensor_files::{npy, safetensors};

/// `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A source file, IR text (`.shir`), or a schedule (`lower --emit schedule`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Execute the sizes as they are, not small ones of the same divisibility
    #[arg(long)]
    pub(crate) full: bool,
    /// Execute the overlapped schedule, stream by stream, with buffers at their addresses, and look
    /// for races
    #[arg(long, conflicts_with = "engine")]
    pub(crate) schedule: bool,
    /// Round every result to its own dtype
    #[arg(long)]
    pub(crate) emulate_dtypes: bool,
    /// The largest difference allowed, as a part of the result's largest value
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub(crate) tolerance: Option<f64>,
    /// Data for a parameter, as a .npy file; the others are random
    #[arg(long = "input", value_name = "NAME=FILE.npy")]
    pub(crate) inputs: Vec<String>,
    /// Data for parameters, by their names, as a .safetensors file
    #[arg(long = "inputs", value_name = "FILE.safetensors")]
    pub(crate) inputs_file: Option<PathBuf>,
    /// Write each result to DIR/NAME.npy
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Write all results to one .safetensors file
    #[arg(long = "outputs", value_name = "FILE.safetensors")]
    pub(crate) outputs_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}

pub(crate) fn run(args: &RunArgs, console: &mut Console) -> Outcome {
    let options = RunOptions {
        seed: args.seed,
        inputs: read_inputs(&args.inputs, console)?,
        emulate_dtypes: args.emulate_dtypes,
        tolerance: args.tolerance,
        patient: args.full,
        progress: None,
        engine: engine(&args.engine, args.emulate_dtypes, console)?,
    };
    let file = read_text(&args.file, console)?;
    if is_schedule(&file.text) {
        return of_schedules(&file, args, &options, console);
    }
    let input = program_of(&args.file, file, console)?;
    let asked = args.program.asked(console)?;
    let compilation = compile_input(&args.file, input, &asked, Purpose::Run, console)?;
    let many = compilation.compiled.len() > 1;
    let mut files = match &args.inputs_file {
        Some(path) => inputs_of_layers(path, &compilation.compiled, args.full, console)?,
        None => Vec::new(),
    };
    let mut results: Vec<NamedTensor> = Vec::new();
    let mut layers = Vec::new();
    let mut text = String::new();
    for (at, (hardware, compiled)) in compilation.compiled.iter().enumerate() {
        let name = &compiled.schedule.plan.name;
        let program = compilation.programs.get(at);
        let progress = Arc::new(Progress::default());
        let pass = console.watch.begin_run(name, Arc::clone(&progress));
        let mut options = RunOptions { progress: Some(progress), ..options.clone() };
        if let Some(inputs) = files.get_mut(at) {
            // What is named by itself comes before what a file has of that name.
            std::mem::take(inputs).into_iter().for_each(|(name, tensor)| {
                options.inputs.entry(name).or_insert(tensor);
            });
        }
        let execute = if args.schedule { on_streams::run } else { pipeline::run };
        let ran = execute(program, compiled, hardware, args.full, &options)
            .map_err(|e| run_error(name, &e, args, console))?;
        drop(pass);
        if let Some(folder) = &args.output {
            let folder = match &compiled.schedule.plan.phase {
                _ if !many => folder.clone(),
                Some(phase) => folder.join(file_name(&format!("{name}.{phase}"))),
                None => folder.join(file_name(name)),
            };
            for output in &ran.report.outputs {
                npy::write(&folder, output).map_err(|why| console.usage(&why, None))?;
            }
        }
        if args.outputs_file.is_some() {
            let prefix = match &compiled.schedule.plan.phase {
                _ if !many => String::new(),
                Some(phase) => format!("{name}.{phase}."),
                None => format!("{name}."),
            };
            results.extend(ran.report.outputs.iter().map(|output| NamedTensor {
                name: format!("{prefix}{}", output.name),
                tensor: output.tensor.clone(),
            }));
        }
        let layer = summary(&ran, args.engine.engine);
        let mut asked = compiled.schedule.plan.clone();
        escape_plan(&mut asked);
        text.push_str(&describe(&layer, &ran, &asked));
        layers.push(layer);
    }
    if let Some(path) = &args.outputs_file {
        safetensors::write(path, &results).map_err(|why| console.usage(&why, None))?;
    }
    give(&layers, &text, console)
}

/// Runs schedules that were written down, as they stand.
fn of_schedules(
    file: &SourceFile,
    args: &RunArgs,
    options: &RunOptions,
    console: &mut Console,
) -> Outcome {
    let asked = args.program.asked(console)?;
    let changed = asked.check != CheckOptions::default() || asked.fuse || args.schedule;
    let with_files =
        args.inputs_file.is_some() || args.outputs_file.is_some() || args.output.is_some();
    if changed
        || with_files
        || args.engine.engine.is_some()
        || asked.layer.is_some()
        || asked.phase.is_some()
    {
        let message = "a schedule is executed as it stands: of the options, --seed, --input, \
            --hardware, --full, --tolerance and --emulate-dtypes apply";
        return Err(console.usage(message, None));
    }
    let wrong = |why: String, console: &mut Console| {
        console.report(None, vec![problem(&format!("`{}`: {why}", file.name), Vec::new())]);
        Status::Wrong
    };
    let schedules =
        shard_report::json::schedule::read(&file.text).map_err(|why| wrong(why, console))?;
    let (mut layers, mut text) = (Vec::new(), String::new());
    for ReadSchedule { hardware, execution } in &schedules {
        let chip = execution.plan.hardware.as_ref().unwrap_or(hardware);
        let chip = match &args.program.hardware {
            Some(name) => hardware_choice::from_command_line(name, console)?,
            None => hardware_choice::from_plan(chip, &args.file, console)?,
        };
        let ran = on_streams::run_written(execution, &chip, options)
            .map_err(|e| written_error(&execution.plan.name, &e, args, console))?;
        let layer = summary(&ran, None);
        let mut shown = execution.plan.clone();
        escape_plan(&mut shown);
        text.push_str(&describe(&layer, &ran, &shown));
        layers.push(layer);
    }
    give(&layers, &text, console)
}

/// As [`run_error`], of a schedule whose sizes are what they are.
fn written_error(layer: &str, error: &RunError, args: &RunArgs, console: &mut Console) -> Status {
    match error {
        RunError::TooLarge { .. } | RunError::TooMany { .. } => {
            let help =
                "shardc lower FILE --small --emit schedule    (small sizes, scheduled again)";
            let message = format!("`{layer}` cannot be executed: {error}");
            console.usage(&message, Some(help.to_string()))
        }
        RunError::TooLong { .. }
        | RunError::Input { .. }
        | RunError::Invalid(_)
        | RunError::Engine(_)
        | RunError::Overflow { .. }
        | RunError::Schedule { .. }
        | RunError::Race { .. }
        | RunError::ReplicasDiffer { .. }
        | RunError::Internal(_) => run_error(layer, error, args, console),
    }
}

/// Prints what was found, and says whether all of it is as it should be.
fn give(layers: &[RunLayer], text: &str, console: &mut Console) -> Outcome {
    match console.format {
        Format::Text => console.people(text),
        Format::Json => console.result(&shard_report::json::run::run(layers)),
    }?;
    if layers.iter().all(|l| l.equal && counted_as_modelled(l)) {
        Ok(())
    } else {
        Err(Status::Wrong)
    }
}

/// What is too large to execute, or does not fit its inputs, is wrong usage; anything else is a
/// wrong plan.
fn run_error(layer: &str, error: &RunError, args: &RunArgs, console: &mut Console) -> Status {
    let message = format!("`{layer}` cannot be executed: {error}");
    match error {
        RunError::TooLarge { .. } | RunError::TooMany { .. } => {
            let help = if args.full {
                "leave --full out: small dims of the same divisibility are executed then"
            } else {
                "a smaller mesh: --mesh x=2,y=2"
            };
            console.usage(&message, Some(help.to_string()))
        }
        RunError::TooLong { .. } => {
            let help = "a smaller mesh: --mesh x=2,y=2; or --full, which takes its time, and the \
                sizes of the file";
            console.usage(&message, Some(help.to_string()))
        }
        RunError::Input { .. } => {
            let help = "inputs have the sizes that are executed: --full executes those of the file";
            console.usage(&message, (!args.full).then(|| help.to_string()))
        }
        RunError::Invalid(_)
        | RunError::Engine(_)
        | RunError::Overflow { .. }
        | RunError::Schedule { .. }
        | RunError::Race { .. }
        | RunError::ReplicasDiffer { .. }
        | RunError::Internal(_) => {
            console.report(None, vec![problem(&message, Vec::new())]);
            Status::Wrong
        }
    }
}

fn summary(ran: &Ran, engine: Option<EngineName>) -> RunLayer {
    let collectives = ran.report.collectives.iter().map(|c| RunCollective {
        id: c.id.0,
        wire_bytes: c.wire_bytes,
        model_wire_bytes: ran.price.of(c.id).collective().map_or(0, |cost| cost.wire_bytes.0),
    });
    RunLayer {
        name: ran.plan.name.clone(),
        phase: ran.plan.phase.clone(),
        equal: ran.report.equal,
        max_abs_err: ran.report.max_abs_err,
        devices: ran.report.devices,
        engine: engine.map(|engine| match engine {
            EngineName::Jax => "jax",
            EngineName::Torch => "torch",
        }),
        collectives: collectives.collect(),
        dims: ran.plan.dims.iter().map(|d| (d.name.clone(), d.size)).collect(),
        schedule: ran.streams.map(|streams| RunSchedule {
            tasks: streams.tasks,
            copies: streams.copies,
            peak_bytes: streams.peak_bytes,
            model_peak_bytes: streams.model_peak_bytes,
            address_bytes: streams.address_bytes,
        }),
    }
}

fn counted_as_modelled(layer: &RunLayer) -> bool {
    let held = layer.schedule.as_ref().is_none_or(|s| s.peak_bytes == s.model_peak_bytes);
    held && layer.collectives.iter().all(|c| c.wire_bytes == c.model_wire_bytes)
}

/// What was held along a schedule, in words.
fn describe_streams(streams: &RunSchedule) -> String {
    let copies = match streams.copies {
        1 => String::new(),
        copies => format!(" of {copies} layers"),
    };
    let RunSchedule { tasks, peak_bytes, model_peak_bytes, address_bytes, .. } = streams;
    let told = if peak_bytes == model_peak_bytes {
        "as the schedule says".to_string()
    } else {
        format!("and the schedule says {model_peak_bytes}")
    };
    format!(
        "  {tasks} tasks{copies} on their streams, without a race; buffers held {peak_bytes} bytes \
         at the peak, {told}, in {address_bytes} bytes of addresses\n"
    )
}

fn describe(layer: &RunLayer, ran: &Ran, asked: &shard_ir::Plan) -> String {
    let devices = format!("{} device{}", layer.devices, if layer.devices == 1 { "" } else { "s" });
    let devices = layer.engine.map_or(devices.clone(), |engine| format!("{devices} of {engine}"));
    let verdict = match (layer.equal, ran.report.exact) {
        (true, true) => format!("equal, exactly, on {devices}"),
        (true, false) => format!(
            "equal on {devices}: largest difference {:e}, results up to {:e}",
            layer.max_abs_err, ran.report.scale
        ),
        (false, _) => format!(
            "DIFFERENT on {devices}: largest difference {:e}, results up to {:e}",
            layer.max_abs_err, ran.report.scale
        ),
    };
    let mut text = format!("{}: {verdict}\n", shard_report::notation::layer_name(asked));
    let shrunk: Vec<String> = asked
        .dims
        .iter()
        .zip(&ran.plan.dims)
        .filter(|(asked, ran)| asked.size != ran.size)
        .map(|(asked, ran)| format!("{}={} for {}", ran.name, ran.size, asked.size))
        .collect();
    if !shrunk.is_empty() {
        text.push_str(&format!("  small dims: {}\n", shrunk.join(", ")));
    }
    let sent: u64 = layer.collectives.iter().map(|c| c.wire_bytes).sum();
    let moves = layer.collectives.len();
    if let Some(engine) = layer.engine {
        text.push_str(&format!("  what {engine} sent is not counted\n"));
    } else if counted_as_modelled(layer) {
        text.push_str(&format!(
            "  {moves} moves sent {sent} bytes from the busiest devices, as the cost model says\n"
        ));
    }
    text.extend(layer.schedule.as_ref().map(describe_streams));
    for c in layer.collectives.iter().filter(|c| c.wire_bytes != c.model_wire_bytes) {
        text.push_str(&format!(
            "  move %{} sent {} bytes, and the cost model says {}\n",
            c.id, c.wire_bytes, c.model_wire_bytes
        ));
    }
    text
}

fn read_inputs(inputs: &[String], console: &mut Console) -> Outcome<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for text in inputs {
        let Some((name, path)) = text.split_once('=') else {
            let help = "--input x=x.npy".to_string();
            return Err(console.usage(&format!("`--input {text}` names no file"), Some(help)));
        };
        let tensor = npy::read(Path::new(path))
            .map_err(|why| console.usage(&format!("cannot read `{path}`: {why}"), None))?;
        tensors.insert(name.to_string(), tensor);
    }
    Ok(tensors)
}

/// Of each layer, the tensors of a file that have the names of its parameters. A tensor that is of
/// none is a mistake: nobody would see that random data took its place.
fn inputs_of_layers(
    path: &Path,
    layers: &[(shard_cost::Hardware, Compiled)],
    full: bool,
    console: &mut Console,
) -> Outcome<Vec<BTreeMap<String, Tensor>>> {
    let shown = path.display();
    let file = safetensors::File::open(path)
        .map_err(|why| console.usage(&format!("cannot read `{shown}`: {why}"), None))?;
    let mut of_layers = Vec::new();
    let there: BTreeSet<String> = file.names();
    let mut unknown = there.clone();
    let mut known: BTreeSet<String> = BTreeSet::new();
    for (_, compiled) in layers {
        let plan = &compiled.schedule.plan;
        // Where it is too large to be written out, running it says so.
        let names = shard_runtime::written_out(plan, full).map(|p| parameters(&p.plan));
        let names = names.unwrap_or_default();
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
    Ok(of_layers)
}

/// Names that are listed in a message, at most.
const SHOWN: usize = 12;

fn parameters(plan: &shard_ir::Plan) -> BTreeSet<String> {
    let is_parameter = |i: &&shard_ir::Instruction| matches!(i.kind, InstrKind::Parameter(_));
    plan.instructions.iter().filter(is_parameter).filter_map(|i| i.name.clone()).collect()
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a tolerance is a number, 0 or more".to_string()),
    }
}
