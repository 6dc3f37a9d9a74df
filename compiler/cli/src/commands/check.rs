//! `shardc check FILE...`.

use std::path::PathBuf;

use shard_check::{Diagnostic, Severity};
use shard_driver::compile::{Sound, check_source};
use shard_driver::input::Input;
use shard_driver::{Purpose, expected, ir_text};

use crate::args::ProgramArgs;
use crate::console::{Console, Outcome, problem};
use crate::input::read_program;

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

/// The codes of diagnostics that are known only when a layer has a plan.
const NEEDS_A_SEARCH: &str =
    "E0704, E0801, E0802, E0805, E0806, E0837, W0701, W0702, W0801, W0802, W0803";

/// Reports everything that any command would report of the files: first what shows without a
/// search, of all files; then what lowering shows, of all layers; then what takes further searches.
/// Without a chip the layers are lowered for the first built-in one: errors that show only then (a
/// layout out of reach, a strict layer) are the same on every chip. Expectations are not:
/// `--expect` needs a chip.
pub(crate) fn run(args: &CheckArgs, console: &mut Console) -> Outcome {
    console.diagnostics_are_the_result();
    let purpose = if args.expect { Purpose::Report } else { Purpose::Check };
    let mut worst = Ok(());
    let mut sound: Vec<Sound> = Vec::new();
    for path in &args.files {
        let checked = read_program(path, console).and_then(|input| match input {
            Input::Ir(_) if args.expect => {
                let message = "--expect holds plans to `expect` lines, and IR text has none";
                Err(console.usage(message, None))
            }
            Input::Ir(plans) => {
                ir_text::check(path, plans, &args.program.asked(console)?, console).map(|()| None)
            }
            Input::Source(file) => {
                check_source(&file, &args.program.asked(console)?, purpose, console).map(Some)
            }
        });
        worst = worst.max(checked.map(|file| sound.extend(file)));
    }
    if args.quick {
        leave_out(&sound, console);
        return worst;
    }
    let mut lowered = Vec::new();
    let files = sound.len();
    for (at, file) in sound.into_iter().enumerate() {
        console.watch.searches_to_come(files - at - 1);
        let found = args.program.asked(console).and_then(|asked| {
            let file = file.split(&asked, console)?;
            let (compilation, outcome) = file.lower(&asked, purpose, console)?;
            lowered.push((file, compilation, outcome.is_ok()));
            outcome
        });
        worst = worst.max(found);
    }
    for (file, mut compilation, is_right) in lowered {
        compilation.search_for_warnings(&file.tree, console);
        if args.expect && is_right {
            worst = worst.max(expected::hold(&compilation, console));
        }
    }
    worst
}

/// Names the layers that were not lowered.
fn leave_out(sound: &[Sound], console: &mut Console) {
    let mut layers: Vec<String> = Vec::new();
    for program in sound.iter().flat_map(|file| &file.programs) {
        let layer = format!("`{}`", program.name);
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    if layers.is_empty() {
        return;
    }
    let message = format!("no plan was searched for {}", layers.join(", "));
    let note = format!("left out is what only a plan can show: {NEEDS_A_SEARCH}");
    let said =
        Diagnostic { severity: Severity::Note, notes: vec![note], ..problem(&message, Vec::new()) };
    console.report(None, vec![said]);
}
