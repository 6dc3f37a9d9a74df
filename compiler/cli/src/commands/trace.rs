//! `shardc trace FILE [-o OUT.json] [--emit json|text]`.

use std::path::PathBuf;

use clap::ValueEnum;
use shard_driver::Purpose;
use shard_report::layout_notation::Notation;
use shard_report::paint::Paint;

use crate::args::{ProgramArgs, notation};
use crate::commands::compile::compile_file;
use crate::commands::cost::width;
use crate::console::{Console, Outcome};
use crate::output::replace_text;

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

pub(crate) fn run(args: &TraceArgs, console: &mut Console) -> Outcome {
    let mut compilation = compile_file(&args.file, &args.program, Purpose::Report, console)?;
    compilation.notation = args.notation;
    let text = match args.emit {
        TraceEmit::Json => shard_report::json::trace::trace(&compilation.layers()),
        TraceEmit::Text => {
            compilation.escape();
            let paint = Paint(console.result_color && args.out.is_none());
            shard_report::timeline::timelines(&compilation.layers(), width(args.width), paint)
        }
    };
    let Some(path) = &args.out else {
        return match args.emit {
            TraceEmit::Json => console.result(&text),
            TraceEmit::Text => console.people(&text),
        };
    };
    match replace_text(path, &text) {
        Ok(()) => console.people(&format!("wrote {}\n", path.display())),
        Err(error) => {
            Err(console.usage(&format!("cannot write `{}`: {error}", path.display()), None))
        }
    }
}
