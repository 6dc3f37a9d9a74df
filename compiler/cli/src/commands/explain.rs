//! `shardc explain FILE [--emit text|json|html|dot]`.

use std::path::PathBuf;

use clap::ValueEnum;
use shard_cost::Objective;
use shard_driver::{Purpose, Share};
use shard_report::layout_notation::Notation;
use shard_search::Detail;

use crate::args::{Format, ProgramArgs, notation};
use crate::commands::compile::compile_file;
use crate::commands::cost::width;
use crate::commands::{bound_only, certificate, why, why_not};
use crate::console::{Console, Outcome};

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
    /// Say whether --objective overlap would choose another plan, and what it saves: some searches
    /// more
    #[arg(long, conflicts_with_all = ["why", "why_not"])]
    pub(crate) overlap: bool,
    /// Say what no plan falls below, and search for none
    #[arg(long, conflicts_with_all = ["overlap", "alternatives", "no_alternatives"])]
    #[arg(conflicts_with_all = ["certificate", "why", "why_not"])]
    pub(crate) bound_only: bool,
    /// Columns of the text; by default those of the terminal, else 80
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// What `explain` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExplainEmit {
    Text,
    Json,
    Html,
    Dot,
}

pub(crate) fn run(args: &ExplainArgs, console: &mut Console) -> Outcome {
    let emit = args.emit.unwrap_or(match console.format {
        Format::Text => ExplainEmit::Text,
        Format::Json => ExplainEmit::Json,
    });
    if args.bound_only {
        let json = match emit {
            ExplainEmit::Text => false,
            ExplainEmit::Json => true,
            ExplainEmit::Html | ExplainEmit::Dot => return Err(bound_only::no_picture(console)),
        };
        return bound_only::run(&args.file, &args.program, json, args.width, console);
    }
    let mut compilation = compile_file(&args.file, &args.program, Purpose::Report, console)?;
    compilation.notation = args.notation;
    let is_sum = matches!(args.program.objective, Objective::Serial | Objective::Comm);
    if !is_sum && (args.why.is_some() || args.why_not.is_some()) {
        let message = format!(
            "why and why not are answered for sums over steps, and `{}` is none",
            args.program.objective
        );
        return Err(console.usage(&message, Some("--objective serial".to_string())));
    }
    if args.overlap && (!is_sum || compilation.programs.is_empty()) {
        let message = "--overlap compares the plan of a source file that was chosen for a sum over \
            steps with that of --objective overlap";
        return Err(console.usage(message, Some("--objective serial".to_string())));
    }
    if let Some(asked) = &args.why_not {
        let options = args.program.asked(console)?;
        let pass = console.watch.begin("question", "what --why-not asks".to_string(), Share::ALL);
        compilation.options.limits.stop = pass.stop();
        return why_not::run(args, asked, &options, &compilation, console);
    }
    match args.alternatives {
        Some(Alternatives::None) => {}
        // A graph shows no alternatives.
        _ if args.no_alternatives || emit == ExplainEmit::Dot => {}
        Some(Alternatives::Plans) => {
            compilation.ask_for_alternatives(Some(Detail::Plans), console)?
        }
        Some(Alternatives::Bounds) => {
            compilation.ask_for_alternatives(Some(Detail::Bounds), console)?
        }
        None if args.why.is_some() => {
            compilation.ask_for_alternatives(Some(Detail::Plans), console)?
        }
        None => compilation.ask_for_alternatives(None, console)?,
    }
    let says_nothing = args.alternatives == Some(Alternatives::None) || args.no_alternatives;
    if !says_nothing && args.why.is_none() && emit != ExplainEmit::Dot {
        let options = args.program.asked(console)?;
        compilation.ask_for_paddings(&options, console);
    }
    if args.overlap {
        compilation.ask_for_overlap(console)?;
    }
    if let Some(out) = &args.certificate {
        let options = args.program.asked(console)?;
        certificate::write(out, &compilation, &options, console)?;
    }
    if emit == ExplainEmit::Text {
        compilation.escape();
    }
    if let Some(asked) = &args.why {
        let pass = console.watch.begin("question", "what --why asks".to_string(), Share::ALL);
        compilation.options.limits.stop = pass.stop();
        return why::run(args, asked, &compilation, console);
    }
    let layers = compilation.layers();
    match emit {
        ExplainEmit::Text => {
            console.people(&shard_report::explain::explain_within(&layers, width(args.width)))
        }
        ExplainEmit::Json => console.result(&shard_report::json::explain::explain(&layers)),
        ExplainEmit::Html => console.result(&shard_report::html::html(&layers)),
        ExplainEmit::Dot => console.result(&shard_report::dot::dot(&layers)),
    }
}
