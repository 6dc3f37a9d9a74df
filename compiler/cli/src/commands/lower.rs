//! `shardc lower FILE [--emit ir|json|dot|schedule]`.

use std::path::PathBuf;

use clap::ValueEnum;
use shard_driver::Purpose;
use shard_report::layout_notation::{Notation, comment_table};
use shard_runtime::FEW_APPLICATIONS;

use crate::args::{Format, ProgramArgs, notation};
use crate::commands::bound_only;
use crate::commands::compile::compile_file;
use crate::commands::export::make_small;
use crate::console::{Console, Outcome};

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

/// What `lower` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Emit {
    Ir,
    Json,
    Dot,
    Schedule,
}

pub(crate) fn run(args: &LowerArgs, console: &mut Console) -> Outcome {
    let emit = args.emit.unwrap_or(match console.format {
        Format::Text => Emit::Ir,
        Format::Json => Emit::Json,
    });
    if args.bound_only {
        let json = match emit {
            Emit::Ir => false,
            Emit::Json => true,
            Emit::Dot | Emit::Schedule => return Err(bound_only::no_picture(console)),
        };
        return bound_only::run(&args.file, &args.program, json, None, console);
    }
    let purpose = if args.small { Purpose::Run } else { Purpose::Report };
    let mut compilation = compile_file(&args.file, &args.program, purpose, console)?;
    if args.small {
        if emit == Emit::Schedule {
            // As `run --schedule` executes a stack: a first layer, one between, and a last.
            for (_, layer) in &mut compilation.compiled {
                let plan = &mut layer.schedule.plan;
                plan.repeat = plan.repeat.min(FEW_APPLICATIONS);
            }
        }
        make_small(&mut compilation, console)?;
    }
    compilation.notation = args.notation;
    let layers = compilation.layers();
    console.result(&match emit {
        Emit::Ir => {
            let plans: Vec<_> = layers.iter().map(|l| l.plan().clone()).collect();
            // The text itself is read back: another notation stands behind it, in comments.
            let tables = plans.iter().filter(|_| args.notation != Notation::default());
            let tables: String = tables.map(|plan| comment_table(plan, args.notation)).collect();
            shard_ir::text::print_all(&plans) + &tables
        }
        Emit::Json => shard_report::json::explain::lower(&layers),
        Emit::Dot => shard_report::dot::dot(&layers),
        Emit::Schedule => shard_report::json::schedule::schedules(&layers),
    })
}
