//! `shardc sweep FILE -D B=1..1024:x2 --mesh x=4,y=4 --mesh x=8,y=8 --memory-limit 4GB..64GB:x2`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use shard_check::diagnostics::{ALL, Source};
use shard_check::{Diagnostic, Help};
use shard_cost::Objective;
use shard_cost::{Bytes, Capacity, Hardware, Summary};
use shard_driver::Share;
use shard_driver::compile::{layer_header, unknown_phase};
use shard_driver::hardware_choice;
use shard_driver::input::Input;
use shard_driver::lowering_diagnostics::{lower_error, no_host};
use shard_driver::nothing_fits::does_not_fit;
use shard_driver::phases::share_weights;
use shard_driver::pipeline::{self, CompileError};
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_report::paint::Paint;
use shard_report::strategy::strategies;
use shard_report::sweep::{Figures, Outcome as PointOutcome, SweepRow, mark_frontier};
use shard_search::{Limits, LowerError, LowerOptions, Stop};

use crate::args::{Format, RoleArgs, objective};
use crate::commands::compile::read_mesh;
use crate::commands::cost::{roles_or, width};
use crate::console::{Console, Outcome, Status};
use crate::input::read_program;
use crate::points::{Point, points, read_limits, read_sweeps};

/// `sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// A source file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The layer; without it, every layer that no other layer calls
    #[arg(long, value_name = "NAME")]
    pub(crate) layer: Option<String>,
    /// The phase; without it, each
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// Sizes of a dim: `-D B=1..1024:x2` doubles, `-D L=128..512:+128` adds, `-D S=2048,8192` lists
    #[arg(short = 'D', long = "dim", value_name = "DIM=SIZES")]
    pub(crate) dims: Vec<String>,
    /// A mesh, as in `--mesh x=8,y=8`; each one given is swept
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Vec<String>,
    /// The chip: a built-in name, or a hardware file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware: Option<String>,
    /// What plans are chosen for: `serial`, all steps one after another; `overlap`, computing
    /// beside communicating; `comm`, communication alone; `memory`, the bytes at the peak
    #[arg(long, value_name = "OBJECTIVE", default_value = "serial", value_parser = objective)]
    pub(crate) objective: Objective,
    /// What a device has for the program, as in `--memory-limit 15GB` or `14GiB`: several are
    /// swept, `8GB,16GB` or `4GB..64GB:x2`; without it, the chip's memory less what its file
    /// reserves
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_limit: Vec<String>,
    /// Refuse collectives that are not written as `reshard`
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let einsums gather an operand, or scatter their result, inside their loop (not in a strict
    /// layer)
    #[arg(long, conflicts_with = "strict")]
    pub(crate) fuse: bool,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    /// Draw the time of a step against the chip time of a token, or against memory where that is
    /// swept
    #[arg(long)]
    pub(crate) plot: bool,
    /// Points that are computed at a time; without it, as many as the machine has cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// The most points that are computed
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) max_points: usize,
    /// Characters to a line; without it, those of the terminal, and 80 where there is none
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// The stack of a thread that compiles, as large as that of the main thread.
const STACK_BYTES: usize = 8 << 20;

pub(crate) fn run(args: &SweepArgs, console: &mut Console) -> Outcome {
    let Input::Source(file) = read_program(&args.file, console)? else {
        return Err(
            console.usage("a sweep changes a program, and IR text is lowered already", None)
        );
    };
    let meshes =
        args.mesh.iter().map(|text| read_mesh(text, console)).collect::<Outcome<Vec<_>>>()?;
    let sweeps = read_sweeps(&args.dims, args.max_points)
        .map_err(|why| console.usage(&why, Some("-D B=1..1024:x2 -D L=1,2048".to_string())))?;
    let limits = read_limits(&args.memory_limit, args.max_points)
        .map_err(|why| console.usage(&why, Some("--memory-limit 4GB..64GB:x2".to_string())))?;
    let points = points(&meshes, &sweeps, &limits, args.max_points)
        .map_err(|why| console.usage(&why, Some("--max-points N allows more".to_string())))?;
    let tree = shard_grammar::parse(&file).file;
    let hardware = match &args.hardware {
        Some(name) => hardware_choice::from_command_line(name, console)?,
        None => hardware_choice::from_source(
            &file,
            tree.hardware().next().map(|line| &line.chip),
            console,
        )?
        .ok_or_else(|| hardware_choice::none(console))?,
    };
    // A single limit is that of every point; several are swept.
    let hardware = match limits.as_slice() {
        [bytes] => hardware.with_memory_limit(*bytes),
        _ => hardware,
    };
    let pass = console.watch.begin("search", String::new(), Share::ALL);
    let shows_progress = console.watch.shows();
    let sweeps_memory = limits.len() > 1;
    let sweep = Sweep {
        args,
        file: &file,
        hardware: &hardware,
        sweeps_memory,
        stop: pass.stop(),
        shows_progress,
    };
    let computed = sweep.compute(&points);
    drop(pass);
    let nothing_priced = computed
        .iter()
        .flat_map(|(rows, _)| rows)
        .all(|r| matches!(r.outcome, PointOutcome::Wrong { .. }));
    if nothing_priced {
        let found = computed
            .into_iter()
            .map(|(_, found)| found)
            .find(|f| !f.is_empty())
            .unwrap_or_default();
        return Err(no_point(&file, found, console));
    }
    let mut rows: Vec<SweepRow> = computed.into_iter().flat_map(|(rows, _)| rows).collect();
    mark_frontier(&mut rows);
    let (width, paint) = (width(args.width), Paint(console.result_color));
    match console.format {
        Format::Json => console.result(&shard_report::json::sweep::sweep(&rows, args.objective)),
        Format::Text if console.csv => console.result(&shard_report::sweep::csv(&rows)),
        Format::Text if args.plot => {
            console.people(&shard_report::sweep::plot(&rows, width, paint))
        }
        Format::Text => {
            let limit = shard_report::memory::line(&hardware)
                .map_or(String::new(), |line| format!("{line}\n"));
            console.people(&(shard_report::sweep::text(&rows, width, paint) + &limit))
        }
    }
}

/// Reports the problem of the first point of a sweep of which no point has a plan.
fn no_point(file: &SourceFile, found: Vec<Diagnostic>, console: &mut Console) -> Status {
    let of_command_line = |d: &Diagnostic| {
        d.code.is_empty()
            || ALL.iter().any(|(code, _, source)| *code == d.code && *source == Source::CommandLine)
    };
    let usage = found.iter().filter(|d| d.is_error()).all(of_command_line);
    console.report(Some(file), found);
    if usage { Status::Usage } else { Status::Wrong }
}

/// What every point of a sweep shares.
struct Sweep<'a> {
    args: &'a SweepArgs,
    file: &'a SourceFile,
    hardware: &'a Hardware,
    /// Whether rows show their memory limits, since several are swept.
    sweeps_memory: bool,
    /// Ends all searches.
    stop: Stop,
    shows_progress: bool,
}

/// The rows of a point, and what was found where it has no plan.
type Computed = (Vec<SweepRow>, Vec<Diagnostic>);

impl Sweep<'_> {
    /// Computes all points, several at a time; the results stand in the order of the points.
    fn compute(&self, points: &[Point]) -> Vec<Computed> {
        let done = AtomicUsize::new(0);
        let (shows_progress, is_terminal) = (self.shows_progress, std::io::stderr().is_terminal());
        let compute = |point: &Point| {
            let computed = self.point(point);
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if shows_progress {
                let (before, after) = if is_terminal { ("\r", "") } else { ("", "\n") };
                let _ =
                    write!(std::io::stderr(), "{before}{done} of {} points{after}", points.len());
            }
            computed
        };
        // 0 jobs stand for as many threads as there are cores.
        let jobs = self.args.jobs.map_or(0, usize::from).min(points.len());
        let threads = rayon::ThreadPoolBuilder::new().num_threads(jobs).stack_size(STACK_BYTES);
        let computed = match threads.build() {
            Ok(threads) => {
                threads.install(|| points.par_iter().with_max_len(1).map(compute).collect())
            }
            // Without threads this thread computes all points.
            Err(_) => points.iter().map(compute).collect(),
        };
        if shows_progress && is_terminal {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
        computed
    }

    fn point(&self, point: &Point) -> Computed {
        let hardware = &point
            .memory_limit
            .map_or(self.hardware.clone(), |bytes| self.hardware.with_memory_limit(bytes));
        let row = |program: Option<&Program>, outcome| self.row(point, program, outcome);
        let checked = pipeline::check(self.file, &point.options(self.args.strict));
        let errors: Vec<Diagnostic> =
            checked.diagnostics.into_iter().filter(Diagnostic::is_error).collect();
        if !errors.is_empty() {
            return (vec![row(None, wrong(&errors))], errors);
        }
        let phases = || checked.programs.iter().map(|p| p.phase.as_ref().map(|p| p.name.as_str()));
        let path = Path::new(&self.file.name);
        if let Some((message, help)) =
            self.args.phase.as_ref().and_then(|wanted| unknown_phase(wanted, phases(), path))
        {
            let found = vec![crate::console::problem(
                &message,
                vec![Help { text: help, edits: Vec::new() }],
            )];
            return (vec![row(None, wrong(&found))], found);
        }
        let chosen: Vec<&Program> = match &self.args.layer {
            Some(name) => checked.programs.iter().filter(|p| p.name == *name).collect(),
            None => checked.roots.iter().filter_map(|root| checked.programs.get(*root)).collect(),
        };
        if chosen.is_empty() {
            let known: Vec<&str> = checked.programs.iter().map(|p| p.name.as_str()).collect();
            let message = format!("there is no such layer; the layers are {}", known.join(", "));
            let found = vec![crate::console::problem(&message, Vec::new())];
            return (vec![row(None, wrong(&found))], found);
        }
        let options = LowerOptions {
            strict: self.args.strict,
            fuse: self.args.fuse,
            objective: self.args.objective,
            limits: Limits { stop: self.stop.clone(), ..Limits::default() },
            ..LowerOptions::default()
        };
        let mut rows = Vec::new();
        let mut found = Vec::new();
        let mut report = |program: &Program, error| {
            let errors = self.no_plan(program, hardware, error);
            rows.push(row(Some(program), wrong(&errors)));
            found.extend(errors);
        };
        // Phases store their weights in the same layouts.
        let (programs, shared) = share_weights(&chosen, hardware, &options, false, &mut report);
        let wanted =
            |program: &Program| self.args.phase.is_none() || phase_of(program) == self.args.phase;
        for (program, shared) in programs.iter().zip(&shared).filter(|(p, _)| wanted(p)) {
            let mut outcome = self.layer(program, hardware, &options).unwrap_or_else(|errors| {
                let outcome = wrong(&errors);
                found.extend(errors);
                outcome
            });
            // A plan is proven only if the stored layouts that its phases share are.
            if let (PointOutcome::Priced(figures), Some((all, _))) = (&mut outcome, shared) {
                figures.proven &= all.request.proof.is_some();
            }
            rows.push(row(Some(program), outcome));
        }
        (rows, found)
    }

    /// The diagnostics for a program without a plan. What would fit is not searched for: other
    /// points of the sweep show it.
    fn no_plan(
        &self,
        program: &Program,
        hardware: &Hardware,
        error: CompileError,
    ) -> Vec<Diagnostic> {
        match error {
            CompileError::Lower(LowerError::NoPlanFits { plan, least, proven }) => {
                let header = layer_header(&shard_grammar::parse(self.file).file, &program.name);
                vec![does_not_fit(hardware, header, &plan, least, proven)]
            }
            error => lower_error(Some((self.file, program)), None, error),
        }
    }

    fn layer(
        &self,
        program: &Program,
        hardware: &Hardware,
        options: &LowerOptions,
    ) -> Result<PointOutcome, Vec<Diagnostic>> {
        if let Some(problem) = no_host(program, hardware) {
            return Err(vec![problem]);
        }
        let compiled = pipeline::compile(program, hardware, options)
            .map_err(|error| self.no_plan(program, hardware, error))?;
        let plan = &compiled.schedule.plan;
        let roles = roles_or(plan, &self.args.roles).map_err(|name| {
            vec![crate::console::problem(&format!("there is no dim `{name}`"), Vec::new())]
        })?;
        let time = compiled.price.totals.serial_time;
        let summary = Summary::of(plan, &compiled.price, hardware, roles, time);
        let capacity = Capacity::of(hardware, self.args.roles.cache_share);
        let peak = match options.objective {
            Objective::Overlap => Bytes(compiled.timeline.whole().peak_bytes),
            Objective::Serial | Objective::Comm | Objective::Memory => {
                summary.inventory.memory.peak()
            }
        };
        Ok(PointOutcome::Priced(Box::new(Figures {
            chips: plan.mesh.devices(),
            tokens: summary.tokens,
            layer_time: time,
            time: summary.step_time,
            utilisation: summary.utilisation,
            efficiency: summary.efficiency,
            memory: peak,
            fits: capacity.holds_peak(&summary.inventory.memory, peak),
            strategy: strategies(plan),
            proven: compiled.optimality.is_some_and(|o| o.proof.is_some()),
            mesh: plan.mesh.declared().to_vec(),
        })))
    }

    fn row(&self, point: &Point, program: Option<&Program>, outcome: PointOutcome) -> SweepRow {
        SweepRow {
            layer: program.map(|p| p.name.clone()),
            phase: program.and_then(phase_of),
            mesh: point.mesh.clone(),
            dims: point.dims.clone(),
            memory_limit: point.memory_limit.filter(|_| self.sweeps_memory).map(Bytes),
            outcome,
            on_frontier: false,
        }
    }
}

fn phase_of(program: &Program) -> Option<String> {
    program.phase.as_ref().map(|phase| phase.name.clone())
}

fn wrong(found: &[Diagnostic]) -> PointOutcome {
    match found.iter().find(|d| d.is_error()).or(found.first()) {
        Some(first) => PointOutcome::Wrong { code: first.code, reason: first.message.clone() },
        None => PointOutcome::Wrong { code: "", reason: "no plan".to_string() },
    }
}
