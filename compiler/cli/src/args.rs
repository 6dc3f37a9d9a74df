//! The command line as data.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use shard_cost::Objective;
use shard_driver::new_program::Template;
use shard_report::layout_notation::Notation;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "shardc", version, max_term_width = 100)]
#[command(about = "Lowers sharded tensor programs to per-device ops and collectives, and explains \
    them", long_about = None)]
#[command(
    after_help = "Exit status: 0 fine, 1 the program is wrong or a check failed, 2 usage or \
        I/O.\n`-` as a FILE reads standard input."
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) display: DisplayArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a layer from a template, or from the configuration of a model
    New(NewArgs),
    /// Print diagnostics, and nothing else
    Check(CheckArgs),
    /// Compare lowered programs with their snapshots
    Snapshot(SnapshotArgs),
    /// Format files in place
    Fmt(FmtArgs),
    /// Show what each layer is lowered to, what it costs, and why
    Explain(ExplainArgs),
    /// Show what each step costs, where the time goes, what is in memory and how well the chips are
    /// used
    Cost(CostArgs),
    /// Compute the cost over ranges of dims and meshes, one row a point
    Sweep(SweepArgs),
    /// Show what differs between two plans: two files, two meshes, two sizes, or a plan of before
    Diff(DiffArgs),
    /// Print the lowered program as IR text, JSON or a graph
    Lower(LowerArgs),
    /// Write when each step runs, on which stream and beside what: a trace for Perfetto or Chrome,
    /// or text
    Trace(TraceArgs),
    /// Check a certificate that no plan takes less time than the one in it
    VerifyCertificate(VerifyCertificateArgs),
    /// Print the page of a diagnostic: what it means, an example, and how to mend it
    ExplainCode(ExplainCodeArgs),
    /// Execute the lowered program on simulated devices and compare it with the unsharded one
    Run(RunArgs),
    /// Write the plan as a program of another system
    Export(ExportArgs),
    /// Show what a program that XLA compiled sends, line by line, and what it need not
    Audit(AuditArgs),
    /// List the built-in chips, or print the hardware file of one
    Hardware(HardwareArgs),
    /// Serve an editor over standard input and output, by the language server protocol
    Lsp,
    /// Print a shell's completions
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// How results and diagnostics are shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DisplayArgs {
    /// How results are printed; `csv` is for `sweep`, `github` and `sarif` are for `check` and
    /// `snapshot`
    #[arg(long, global = true, value_enum, default_value_t = ResultFormat::Text, value_name = "FORMAT")]
    pub(crate) format: ResultFormat,
    /// How diagnostics are printed
    #[arg(long, global = true, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    pub(crate) error_format: ReportFormat,
    /// Whether diagnostics are coloured; NO_COLOR turns `auto` off
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// How searches are watched, and when they end.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// End searches after this time with the best plan found by then; another run may find another
    /// one
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) time_limit: Option<Duration>,
    /// Say on standard error how long each pass took
    #[arg(long, global = true)]
    pub(crate) timings: bool,
    /// Whether standard error shows how far a search is that takes more than 2 s; `auto`: on a
    /// terminal
    #[arg(long, global = true, value_enum, default_value_t = Progress::Auto, value_name = "WHEN")]
    pub(crate) progress: Progress,
}

/// When to show progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Progress {
    Auto,
    Always,
    Never,
}

/// Which program is compiled, and for what.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ProgramArgs {
    /// The layer; without it, every layer that no other layer calls
    #[arg(long, value_name = "NAME")]
    pub(crate) layer: Option<String>,
    /// The phase; without it, all phases of the file
    #[arg(long, value_name = "NAME")]
    pub(crate) phase: Option<String>,
    /// Give a dim another right side, as in `-D B=64,L=1` or `-D 'H=32 pad 64'`; dims derived from
    /// it follow
    #[arg(short = 'D', long = "dim", value_name = "DIM=N", value_delimiter = ',')]
    pub(crate) dims: Vec<String>,
    /// Replace the mesh line, as in `--mesh x=8,y=8`
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// The chip: a built-in name, or a hardware file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware: Option<String>,
    /// What the plan is chosen for: `serial`, all steps one after another; `overlap`, computing
    /// beside communicating; `comm`, communication alone; `memory`, the bytes at the peak
    #[arg(long, value_name = "OBJECTIVE", default_value = "serial", value_parser = objective)]
    pub(crate) objective: Objective,
    /// What a device has for the program, as in `--memory-limit 15GB` or `14GiB`; without it, the
    /// chip's memory less what its file reserves
    #[arg(long, value_name = "BYTES", value_parser = crate::memory_limit::read)]
    pub(crate) memory_limit: Option<u64>,
    /// Refuse collectives that are not written as `reshard`
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let einsums gather an operand, or scatter their result, inside their loop (not in a strict
    /// layer)
    #[arg(long, conflicts_with = "strict")]
    pub(crate) fuse: bool,
}

impl ProgramArgs {
    /// Whether any of them was given.
    pub(crate) fn changes_anything(&self) -> bool {
        self.layer.is_some()
            || self.phase.is_some()
            || !self.dims.is_empty()
            || self.mesh.is_some()
            || self.hardware.is_some()
            || self.memory_limit.is_some()
            || self.objective != Objective::Serial
            || self.strict
            || self.fuse
    }
}

/// `new`.
#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// What to start from; without it, llama-block
    #[arg(long, value_parser = templates(), value_name = "NAME", conflicts_with = "from_config")]
    pub(crate) template: Option<Template>,
    #[arg(long, value_name = "FILE", help = from_config())]
    pub(crate) from_config: Option<PathBuf>,
    /// The name of the layer
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The chip: a built-in name, or a hardware file
    #[arg(long, value_name = "NAME|FILE", default_value = "tpu-v5p")]
    pub(crate) hardware: String,
    /// How many chips; without it, as few as hold weights and caches well
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) chips: Option<u32>,
    /// The mesh, as in `--mesh data=4,model=8`: the first axis is for the batch, the last for heads
    /// and d_ff
    #[arg(long, value_name = "AXES", conflicts_with = "chips")]
    pub(crate) mesh: Option<String>,
    /// Write to this file, and not to standard output
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

/// `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Source files
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Hold each layer's plan to what its `expect` lines say
    #[arg(long)]
    pub(crate) expect: bool,
    /// Leave out what needs a search, and name it
    #[arg(long, conflicts_with = "expect")]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// `snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Source files; the snapshot of `mlp.shard` is `mlp.lowered.snap` beside it
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Compare, and exit with 1 if a plan differs or an `expect` line fails (the default)
    #[arg(long, conflicts_with = "update")]
    pub(crate) check: bool,
    /// Write the snapshots anew
    #[arg(long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// `fmt`.
#[derive(Debug, clap::Args)]
pub(crate) struct FmtArgs {
    /// Source files; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; show what would change, and exit with 1 if anything would
    #[arg(long)]
    pub(crate) check: bool,
    /// Write the chosen plan back as a strict file, each collective a `reshard` line
    #[arg(long)]
    pub(crate) explicit: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// What is said about the plans that lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Alternatives {
    /// The best plan without each collective
    Plans,
    /// What such a plan takes at least
    Bounds,
    /// Nothing
    None,
}

/// `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// What each collective was preferred to: the plans themselves (a search for each), or what
    /// they take at least. By default plans where the program is small, else bounds
    #[arg(long, value_enum, value_name = "DETAIL")]
    pub(crate) alternatives: Option<Alternatives>,
    /// The same as `--alternatives none`
    #[arg(long, conflicts_with = "alternatives")]
    pub(crate) no_alternatives: bool,
    /// What to print: text (the default), JSON, one HTML page, or a Graphviz graph
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) emit: Option<ExplainEmit>,
    /// How layouts are written: esti, book, jax, dtensor or shardy
    #[arg(long, value_name = "NOTATION", default_value = "esti", value_parser = notation)]
    pub(crate) notation: Notation,
    /// Write why no plan takes less time, for `verify-certificate` to check
    #[arg(long, value_name = "OUT")]
    pub(crate) certificate: Option<PathBuf>,
    /// Derive one value or instruction: a name, or a number as `lower` prints it
    #[arg(long, value_name = "NAME|ID", conflicts_with = "why_not")]
    pub(crate) why: Option<String>,
    /// The best plan that has something: a layout ('h: BLF_x'), a collective (all-gather:x) or a
    /// strategy (x-weight-gathered)
    #[arg(long, value_name = "WHAT")]
    pub(crate) why_not: Option<String>,
    /// With --why-not: the dim whose sizes are tried; by default the first of the activations that
    /// no weight has
    #[arg(long, value_name = "DIM", requires = "why_not")]
    pub(crate) vary: Option<String>,
    /// Say what no plan falls below, and search for none
    #[arg(long, conflicts_with_all = ["alternatives", "no_alternatives", "certificate", "why", "why_not"])]
    pub(crate) bound_only: bool,
    /// Columns of the text; by default those of the terminal, else 80
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// `cost`.
#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    /// Show how the figures of one step come about, by its number in the report
    #[arg(long, value_name = "N")]
    pub(crate) why: Option<u32>,
    /// Say what no plan falls below, and search for none
    #[arg(long, conflicts_with = "why")]
    pub(crate) bound_only: bool,
    /// Characters to a line; without it, those of the terminal, and 80 where there is none
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

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
    /// What plans are chosen for: `serial`, all steps one after another, or `comm`, communication
    /// alone
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

/// Which dims count what, and how much memory there is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RoleArgs {
    /// The dims that count sequences, as in `--batch B`; without it, those that the caches share
    /// with the first input
    #[arg(long, value_name = "DIM", value_delimiter = ',')]
    pub(crate) batch: Vec<String>,
    /// The dims that count the positions of a cache; without it, those that `append` writes along
    #[arg(long, value_name = "DIM", value_delimiter = ',')]
    pub(crate) context: Vec<String>,
    /// The share of a chip's memory that caches may take, as in `--cache-share 0.3`
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    pub(crate) cache_share: f64,
}

/// `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// A source file, IR text (`.shir`), a snapshot of what `lower` printed, or what `explain
    /// --emit json` wrote
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The other; without it, A again, with what the options for B change
    #[arg(value_name = "B")]
    pub(crate) b: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// As -D, for A alone
    #[arg(long, value_name = "DIM=N", value_delimiter = ',')]
    pub(crate) dim_a: Vec<String>,
    /// As -D, for B alone
    #[arg(long, value_name = "DIM=N", value_delimiter = ',')]
    pub(crate) dim_b: Vec<String>,
    /// As --mesh, for A alone
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh_a: Option<String>,
    /// As --mesh, for B alone
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh_b: Option<String>,
    /// As --hardware, for A alone
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware_a: Option<String>,
    /// As --hardware, for B alone
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware_b: Option<String>,
    /// As --layer, for B alone
    #[arg(long, value_name = "NAME")]
    pub(crate) layer_b: Option<String>,
    /// As --phase, for B alone
    #[arg(long, value_name = "NAME")]
    pub(crate) phase_b: Option<String>,
    /// Exit with 1 where anything differs
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Columns of the text; by default those of the terminal, else 80
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// `audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// The text of the optimised HLO, as `jitted.lower(..).compile().as_text()` gives it
    pub(crate) after: PathBuf,
    /// The program before it was partitioned: StableHLO, as `jitted.lower(..).as_text()` gives it;
    /// with `debug_info=True` it has lines
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// The mesh, axes major to minor in the order of the devices; without it, that of `--before`,
    /// else groups of devices are shown
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// The chip on which the time of each collective is computed: a built-in name, or a hardware
    /// file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware: Option<String>,
    /// Exit with status 1 where a device sends more in one run, as in `--max-bytes 100MB`
    #[arg(long, value_name = "BYTES", value_parser = max_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// What is printed; `--format json` is `--emit json`
    #[arg(long, value_enum, default_value_t = AuditEmit::Text, value_name = "WHAT")]
    pub(crate) emit: AuditEmit,
}

/// What `audit` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AuditEmit {
    /// For people
    Text,
    /// The document `shardc.audit/1`
    Json,
    /// Workflow commands, which GitHub shows beside the lines
    Github,
    /// A page
    Html,
}

/// Reads a budget; nothing at all is one too.
fn max_bytes(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    crate::memory_limit::read(text)
        .map_err(|_| "a budget is a number of bytes: 100000000, 100MB or 100MiB".to_string())
}

/// `verify-certificate`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyCertificateArgs {
    /// What `explain --certificate` wrote
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// `lower`.
#[derive(Debug, clap::Args)]
pub(crate) struct LowerArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// What to print: IR text (the default), JSON, a Graphviz graph, or the schedule that `run`
    /// takes
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) emit: Option<Emit>,
    /// How layouts are written: esti, book, jax, dtensor or shardy
    #[arg(long, value_name = "NOTATION", default_value = "esti", value_parser = notation)]
    pub(crate) notation: Notation,
    /// Small sizes of the same divisibility, as `run` executes them
    #[arg(long, conflicts_with = "bound_only")]
    pub(crate) small: bool,
    /// Say what no plan falls below, and search for none
    #[arg(long)]
    pub(crate) bound_only: bool,
}

/// What a timeline is written as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TraceEmit {
    /// A trace that Perfetto and Chrome open
    Json,
    /// Rows of marks and a list of steps, for a terminal
    Text,
}

/// `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Write to this file, and not to standard output
    #[arg(short = 'o', long = "out", value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,
    /// What to write: a trace (the default), or text
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = TraceEmit::Json)]
    pub(crate) emit: TraceEmit,
    /// How layouts are written: esti, book, jax, dtensor or shardy
    #[arg(long, value_name = "NOTATION", default_value = "esti", value_parser = notation)]
    pub(crate) notation: Notation,
    /// Characters to a line of text; without it, those of the terminal, and 80 where there is none
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

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

/// Which system `run` executes on, and how it is started.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineArgs {
    /// Execute the plan there, and not on simulated devices; results are compared all the same
    #[arg(long, value_enum, value_name = "ENGINE")]
    pub(crate) engine: Option<EngineName>,
    /// The Python that has the engine; by default that of SHARDC_PYTHON, else python3
    #[arg(long, value_name = "PATH", requires = "engine")]
    pub(crate) python: Option<PathBuf>,
    /// How many processes share the devices of the plan, each with as many
    #[arg(long, value_name = "N", default_value_t = 1, requires = "engine")]
    pub(crate) processes: u64,
    /// What starts a process, in front of its command; {} is its number: "ssh host{}"
    #[arg(long, value_name = "COMMAND", requires = "engine")]
    pub(crate) launch: Option<String>,
    /// Where several processes meet: a port of the machine of process 0
    #[arg(long, value_name = "HOST:PORT", requires = "engine")]
    pub(crate) coordinator: Option<String>,
    /// A folder that all processes see, for their data; without it, a temporary one
    #[arg(long, value_name = "DIR", requires = "engine")]
    pub(crate) scratch: Option<PathBuf>,
}

/// A system that `run` executes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EngineName {
    Jax,
    Torch,
}

/// `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The system
    #[command(subcommand)]
    pub(crate) to: ExportTo,
}

/// The systems that plans are written for.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportTo {
    /// Write a module of JAX: a `shard_map` a layer, one line an instruction, and a check beside it
    Jax(ExportJaxArgs),
    /// Write text of StableHLO: a mesh of Shardy, and what each device does with every collective
    /// written out
    Stablehlo(ExportStablehloArgs),
    /// Write a module of PyTorch: what each process does, one line an instruction, placements of
    /// DTensor, and a check beside it
    Torch(ExportTorchArgs),
    /// Say how every parameter, value and result lies, as JSON: a PartitionSpec, placements of a
    /// DTensor, text of Shardy
    Specs(ExportedArgs),
}

/// What is exported, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportedArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Small sizes of the same divisibility, as `run` executes them
    #[arg(long)]
    pub(crate) small: bool,
    /// Write to a file of the source's name in this folder (NAME.py, NAME_torch.py or
    /// NAME.specs.json), and not to standard output
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `export jax`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportJaxArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// How the module says where data lie: each collective written out, or whole tensors held to
    /// the plan's layouts, for which XLA finds the collectives
    #[arg(long, value_enum, default_value_t = ExportStyle::ShardMap, value_name = "STYLE")]
    pub(crate) style: ExportStyle,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, default_value_t = ExportFloats::Stated, value_name = "DTYPE")]
    pub(crate) dtype: ExportFloats,
}

/// `export stablehlo`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportStablehloArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, value_name = "FLOATS", default_value_t = ExportFloats::Stated)]
    pub(crate) dtype: ExportFloats,
}

/// `export torch`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportTorchArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, default_value_t = ExportFloats::Stated, value_name = "DTYPE")]
    pub(crate) dtype: ExportFloats,
}

/// How an exported module says where data lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportStyle {
    ShardMap,
    Constraints,
}

/// Which floats an exported module computes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportFloats {
    Stated,
    F32,
    F64,
}

/// `hardware`.
#[derive(Debug, clap::Args)]
pub(crate) struct HardwareArgs {
    /// A built-in chip, whose file is printed
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// `explain-code`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainCodeArgs {
    /// The code, as diagnostics bear it: E0806
    #[arg(value_name = "CODE", required_unless_present = "list")]
    pub(crate) code: Option<String>,
    /// List all codes
    #[arg(long, conflicts_with = "code")]
    pub(crate) list: bool,
}

/// `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// A command, whose own page is printed
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

/// Text for people or JSON for scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Text,
    Json,
}

/// How results may be printed: every command has text and JSON, some have more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ResultFormat {
    Text,
    Json,
    Csv,
    Github,
    Sarif,
}

/// How diagnostics may be printed: for people, scripts, GitHub's workflows, and tools that read
/// SARIF.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
    Github,
    Sarif,
}

/// When to colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// What `lower` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Emit {
    Ir,
    Json,
    Dot,
    Schedule,
}

/// What `explain` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExplainEmit {
    Text,
    Json,
    Html,
    Dot,
}

fn templates() -> impl TypedValueParser<Value = Template> {
    let values =
        Template::ALL.map(|template| PossibleValue::new(template.name()).help(template.about()));
    let named = |name: String| Template::ALL.into_iter().find(|template| template.name() == name);
    PossibleValuesParser::new(values)
        .try_map(move |name| named(name).ok_or("there is no such template"))
}

fn from_config() -> String {
    let types: Vec<&str> = shard_driver::new_program::config::types().collect();
    format!("The `config.json` of a Hugging Face model, of one of the types {}", types.join(", "))
}

fn notation(text: &str) -> Result<Notation, String> {
    Notation::ALL.into_iter().find(|notation| notation.name() == text).ok_or_else(|| {
        let known: Vec<&str> = Notation::ALL.iter().map(|notation| notation.name()).collect();
        format!("the notations are {}", known.join(", "))
    })
}

fn objective(text: &str) -> Result<Objective, String> {
    match Objective::from_name(text) {
        Some(chosen) => Ok(chosen),
        None => {
            let known: Vec<&str> = Objective::ALL.iter().map(|o| o.name()).collect();
            Err(format!("the objectives are {}", known.join(", ")))
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("a share is a number from 0 to 1".to_string()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<f64>().ok().filter(|value| *value > 0.0 && *value <= 1e9);
    parsed
        .and_then(|value| Duration::try_from_secs_f64(value).ok())
        .ok_or_else(|| "a time is a number of seconds above 0".to_string())
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err("a tolerance is a number, 0 or more".to_string()),
    }
}
