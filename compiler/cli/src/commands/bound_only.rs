//! `--bound-only`: what no plan falls below, and no search for a plan.

use std::path::Path;

use shard_check::Diagnostic;
use shard_report::bound::{Bounded, text};
use shard_report::printable::escaped_name;
use shard_rewrite::LowerOptions;

use crate::args::ProgramArgs;
use crate::commands::compile::{Purpose, check_source, is_wanted, layer_header};
use crate::commands::cost::width;
use crate::console::{Console, Outcome, Status};
use crate::input::{Input, read_program};
use crate::lowering_diagnostics::lower_error;
use crate::objectives;

/// Bounds the layers of a file, each phase by itself: that phases store their weights alike makes no plan faster.
pub(crate) fn run(
    path: &Path,
    args: &ProgramArgs,
    json: bool,
    columns: Option<usize>,
    console: &mut Console,
) -> Outcome {
    let Input::Source(file) = read_program(path, console)? else {
        let message = "--bound-only asks what plans a program may have, and IR text is one plan";
        return Err(console.usage(message, None));
    };
    let sound = check_source(&file, args, Purpose::Report, console)?;
    let mut hardware = sound.hardware.clone();
    if !json {
        hardware.name = escaped_name(&hardware.name).into_owned();
    }
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut bounds = Vec::new();
    let wanted: Vec<_> = sound.programs.iter().filter(|program| is_wanted(args, program)).collect();
    for (at, program) in wanted.iter().enumerate() {
        let pass = console.watch.begin("bound", format!("`{}`", program.name), (1, wanted.len() - at));
        let mut options =
            LowerOptions { strict: args.strict, fuse: args.fuse, objective: args.objective, ..LowerOptions::default() };
        options.limits.stop = pass.stop();
        match objectives::lower_bound(program, &hardware, &options) {
            Ok(bound) => bounds.push((*program, bound)),
            Err(error) => {
                found.extend(lower_error(Some((&sound.file, program)), layer_header(&sound.tree, &program.name), error))
            }
        }
    }
    let layers: Vec<Bounded<'_>> = bounds
        .iter()
        .map(|(program, bound)| Bounded { program, hardware: &hardware, objective: args.objective, bound })
        .collect();
    let wrong = found.iter().any(Diagnostic::is_error);
    console.report(Some(&sound.file), found);
    if wrong {
        return Err(Status::Wrong);
    }
    match json {
        true => console.result(&shard_report::json::bound::bounds(&layers)),
        false => console.people(&text(&layers, width(columns))),
    }
}

/// What is said where a page or a graph of a bound is asked for.
pub(crate) fn no_picture(console: &mut Console) -> Status {
    console.usage("a bound is a few figures: text or JSON", Some("--format json".to_string()))
}
