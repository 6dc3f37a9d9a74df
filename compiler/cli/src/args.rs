//! Arguments that several commands have, and the words that they may be.

use std::time::Duration;

use clap::ValueEnum;
use shard_cost::Objective;
use shard_report::layout_notation::Notation;

/// How results and diagnostics are shown.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DisplayArgs {
    /// How results are printed; `csv` is for `sweep`, `github` and `sarif` are for `check` and
    /// `snapshot`
    #[arg(long, global = true, value_enum)]
    #[arg(default_value_t = ResultFormat::Text, value_name = "FORMAT")]
    pub(crate) format: ResultFormat,
    /// How diagnostics are printed
    #[arg(long, global = true, value_enum)]
    #[arg(default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    pub(crate) error_format: ReportFormat,
    /// Whether diagnostics are coloured; NO_COLOR turns `auto` off
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) color: When,
}

/// How searches are watched, and when they end.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// End searches after this time with the best plan found by then; another run may find another
    /// one
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) time_limit: Option<Duration>,
    /// Say on standard error how long each pass took
    #[arg(long, global = true)]
    pub(crate) timings: bool,
    /// Whether standard error shows how far a search is that takes more than 2 s; `auto`: on a
    /// terminal
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) progress: When,
}

/// When to show progress or colours, which depend on the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum When {
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
    #[arg(allow_hyphen_values = true)]
    pub(crate) memory_limit: Option<u64>,
    /// Refuse collectives that are not written as `reshard`
    #[arg(long)]
    pub(crate) strict: bool,
    /// Let einsums gather an operand, or scatter their result, inside their loop (not in a strict
    /// layer)
    #[arg(long, conflicts_with = "strict")]
    pub(crate) fuse: bool,
    /// Let the layers of a stack (`repeat N`) be of two kinds, each with layouts of its own, where
    /// memory is short and that takes less time
    #[arg(long)]
    pub(crate) two_kinds: bool,
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
            || self.two_kinds
    }
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

pub(crate) fn notation(text: &str) -> Result<Notation, String> {
    Notation::ALL.into_iter().find(|notation| notation.name() == text).ok_or_else(|| {
        let known: Vec<&str> = Notation::ALL.iter().map(|notation| notation.name()).collect();
        format!("the notations are {}", known.join(", "))
    })
}

pub(crate) fn objective(text: &str) -> Result<Objective, String> {
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
