//! `shardc run FILE`.

use std::path::PathBuf;
use std::sync::Arc;

use shard_check::{CheckOptions, Diagnostic};
use shard_driver::input::program_of;
use shard_driver::pipeline::{self, Ran};
use shard_driver::{Purpose, compile_input, hardware_choice, on_streams};
use shard_grammar::SourceFile;
use shard_ir::Plan;
use shard_report::json::run::{RunCollective, RunLayer, RunSchedule};
use shard_report::json::schedule::{ReadSchedule, is_schedule};
use shard_report::printable::escape_plan;
use shard_runtime::{Engine, Progress, RunError, RunOptions};

use crate::args::{Format, ProgramArgs};
use crate::commands::engine::{EngineArgs, EngineName, engine};
use crate::commands::engine_sent::describe as describe_sent;
use crate::commands::run_files::{Kept, inputs_of_layers, read_inputs};
use crate::console::{Console, Outcome, Status, problem};
use crate::input::read_text;

/// `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// A source file, IR text (`.shir`), or a schedule (`lower --emit schedule`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
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
    #[arg(long, value_name = "T", value_parser = tolerance, allow_negative_numbers = true)]
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
    let python = engine(&args.engine, args.emulate_dtypes, console)?;
    let options = RunOptions {
        seed: args.seed,
        inputs: read_inputs(&args.inputs, console)?,
        emulate_dtypes: args.emulate_dtypes,
        single: false,
        tolerance: args.tolerance,
        patient: args.full,
        progress: None,
        engine: python.clone().map(|python| python as Arc<dyn Engine>),
        spare: Arc::default(),
    };
    let file = read_text(&args.file, console)?;
    if is_schedule(&file.text) {
        return of_schedules(&file, args, &options, console);
    }
    let input = program_of(&args.file, file, console)?;
    let asked = args.program.asked(console)?;
    let compilation = compile_input(&args.file, input, &asked, Purpose::Run, console)?;
    // A layer that is too large to be written out has no plan here; running it reports that.
    let written = |plan| shard_runtime::written_out(plan, args.full).ok().map(|of| of.plan);
    let plans: Vec<Option<Plan>> =
        compilation.compiled.iter().map(|(_, of)| written(&of.schedule.plan)).collect();
    let mut files = inputs_of_layers(args.inputs_file.as_deref(), &plans, console)?;
    let mut told = Told::of(args, plans.len());
    for (at, (hardware, compiled)) in compilation.compiled.iter().enumerate() {
        let name = &compiled.schedule.plan.name;
        let program = compilation.programs.get(at);
        let progress = Arc::new(Progress::default());
        let pass = console.watch.begin_run(name, Arc::clone(&progress));
        let mut options = RunOptions { progress: Some(progress), ..options.clone() };
        files.give(at, &mut options);
        let execute = if args.schedule { on_streams::run } else { pipeline::run };
        let ran = execute(program, compiled, hardware, args.full, &options)
            .map_err(|e| run_error(name, &e, args, console))?;
        drop(pass);
        let sent = python.as_ref().and_then(|python| python.take_sent());
        let layer = RunLayer { engine_sent: sent, ..summary(&ran, args.engine.engine) };
        told.add(&compiled.schedule.plan, &ran, layer, console)?;
    }
    told.finish(console)
}

/// Runs schedules that were written down, as they stand.
fn of_schedules(
    file: &SourceFile,
    args: &RunArgs,
    options: &RunOptions,
    console: &mut Console,
) -> Outcome {
    let asked = args.program.asked(console)?;
    let changed =
        asked.check != CheckOptions::default() || asked.fuse || asked.two_kinds || args.schedule;
    if changed || args.engine.engine.is_some() {
        let message = "a schedule is executed as it stands: of the options, --layer, --phase, \
            --seed, --input, --inputs, --output, --outputs, --hardware, --full, --tolerance and \
            --emulate-dtypes apply";
        return Err(console.usage(message, None));
    }
    let wrong = |why: String, console: &mut Console| {
        console.report(None, vec![problem(&format!("`{}`: {why}", file.name), Vec::new())]);
        Status::Wrong
    };
    let schedules =
        shard_report::json::schedule::read(&file.text).map_err(|why| wrong(why, console))?;
    let is_asked = |of: &&ReadSchedule| {
        let plan = &of.execution.plan;
        asked.layer.as_ref().is_none_or(|name| *name == plan.name)
            && asked.phase.as_ref().is_none_or(|phase| plan.phase.as_ref() == Some(phase))
    };
    let schedules: Vec<&ReadSchedule> = schedules.iter().filter(is_asked).collect();
    if schedules.is_empty() {
        let message = format!("`{}` has no schedule of such a layer or phase", file.name);
        return Err(console.usage(&message, None));
    }
    let plans: Vec<Option<Plan>> =
        schedules.iter().map(|of| Some(of.execution.plan.clone())).collect();
    let mut files = inputs_of_layers(args.inputs_file.as_deref(), &plans, console)?;
    let mut told = Told::of(args, plans.len());
    for (at, ReadSchedule { hardware, execution }) in schedules.into_iter().enumerate() {
        let chip = execution.plan.hardware.as_ref().unwrap_or(hardware);
        let chip = match &args.program.hardware {
            Some(name) => hardware_choice::from_command_line(name, console)?,
            None => hardware_choice::from_plan(chip, &args.file, console)?,
        };
        if let Err(error) = on_streams::verify_written(execution, &chip) {
            let (layer, chip) = (&execution.plan.name, &chip.name);
            let why = format!("the schedule of its layer `{layer}` is not one of {chip}: {error}");
            return Err(wrong(why, console));
        }
        let mut options = options.clone();
        files.give(at, &mut options);
        let ran = on_streams::run_written(execution, &chip, &options)
            .map_err(|e| written_error(&execution.plan.name, &e, args, console))?;
        told.add(&execution.plan, &ran, summary(&ran, None), console)?;
    }
    told.finish(console)
}

/// As [`run_error`], for a schedule, whose sizes cannot be changed.
fn written_error(layer: &str, error: &RunError, args: &RunArgs, console: &mut Console) -> Status {
    if let RunError::TooLarge { .. } | RunError::TooMany { .. } = error {
        let help = "shardc lower FILE --small --emit schedule    (small sizes, scheduled again)";
        let message = format!("`{layer}` cannot be executed: {error}");
        return console.usage(&message, Some(help.to_string()));
    }
    run_error(layer, error, args, console)
}

/// The findings of the layers that were run.
struct Told<'a> {
    kept: Kept<'a>,
    layers: Vec<RunLayer>,
    text: String,
}

impl<'a> Told<'a> {
    /// No findings yet, of so many layers.
    fn of(args: &'a RunArgs, layers: usize) -> Told<'a> {
        Told { kept: Kept::of(args, layers), layers: Vec::new(), text: String::new() }
    }

    /// Keeps the results of a plan, and adds its findings.
    fn add(&mut self, plan: &Plan, ran: &Ran, layer: RunLayer, console: &mut Console) -> Outcome {
        self.kept.keep(plan, &ran.report.outputs, console)?;
        let mut shown = plan.clone();
        escape_plan(&mut shown);
        self.text.push_str(&describe(&layer, ran, &shown));
        self.layers.push(layer);
        Ok(())
    }

    /// Prints the findings; an error where a result or a count differs from what it should be.
    fn finish(self, console: &mut Console) -> Outcome {
        self.kept.write(console)?;
        match console.format {
            Format::Text => console.people(&self.text),
            Format::Json => console.result(&shard_report::json::run::run(&self.layers)),
        }?;
        if self.layers.iter().all(|l| l.equal && counted_as_modelled(l)) {
            Ok(())
        } else {
            Err(Status::Wrong)
        }
    }
}

/// Reports why a layer was not executed. What is too large to execute, or does not fit its inputs,
/// is wrong usage; anything else is a wrong plan.
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
        RunError::Engine(said) => {
            console.report(None, vec![engine_problem(layer, said)]);
            Status::Wrong
        }
        RunError::Invalid(_)
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

/// The diagnostic for an engine that failed: the first line says what happened, the others are what
/// a process printed last.
fn engine_problem(layer: &str, said: &str) -> Diagnostic {
    let mut lines = said.lines();
    let first = lines.next().unwrap_or_default();
    let mut found = problem(&format!("`{layer}` cannot be executed: {first}"), Vec::new());
    let printed: String = lines.map(|line| format!("\n    {line}")).collect();
    if !printed.is_empty() {
        found.notes.push(format!("it said last{printed}"));
    }
    found
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
        engine_sent: None,
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
    // An engine may send a value once that several collectives send in the plan: less than the plan
    // says is no fault.
    let sent = layer.engine_sent.iter().flatten().all(|one| one.elements <= one.plan_elements);
    held && sent && layer.collectives.iter().all(|c| c.wire_bytes == c.model_wire_bytes)
}

/// The buffers that were held along a schedule, in words.
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
    let far = || {
        let Some(worst) = &ran.report.worst else { return String::new() };
        let several = ran.report.outputs.len() > 1;
        let of = if several { format!(" of `{}`", worst.name) } else { String::new() };
        let (apart, scale) = (worst.max_abs_err, worst.scale);
        format!(": largest difference{of} {apart:e}, results up to {scale:e}")
    };
    let verdict = match (layer.equal, ran.report.exact) {
        (true, true) => format!("equal, exactly, on {devices}"),
        (true, false) => format!("equal on {devices}{}", far()),
        (false, _) => {
            let allowed = ran.report.tolerance;
            format!("DIFFERENT on {devices}{}, of which {allowed:.1e} is allowed", far())
        }
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
        text.push_str(&describe_sent(engine, layer.engine_sent.as_deref().unwrap_or_default()));
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

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a tolerance is a number, 0 or more".to_string()),
    }
}
