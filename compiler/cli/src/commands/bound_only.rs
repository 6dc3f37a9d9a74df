//! `--bound-only`: lower bounds on all plans, without a search for a plan.

use std::path::Path;

use shard_driver::bounds::bounds;
use shard_driver::compile::check_source;
use shard_driver::input::Input;
use shard_driver::{Outcome, Purpose, Status};
use shard_report::bound::{Bounded, text};
use shard_report::printable::escaped_name;

use crate::args::ProgramArgs;
use crate::commands::cost::width;
use crate::console::Console;
use crate::input::read_program;

/// Shows what bounds the layers of a file.
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
    let asked = args.asked(console)?;
    if asked.two_kinds {
        let message = "--bound-only searches for no split in two kinds of layers; it bounds one \
            that is written";
        return Err(console.usage(message, Some("repeat 24 + 56".to_string())));
    }
    let sound = check_source(&file, &asked, Purpose::Report, console)?;
    let bounds = bounds(&sound, &asked, console)?;
    let mut hardware = sound.hardware.clone();
    if !json {
        hardware.name = escaped_name(&hardware.name).into_owned();
    }
    let layers: Vec<Bounded<'_>> = bounds
        .iter()
        .map(|(program, bound)| Bounded {
            program,
            hardware: &hardware,
            objective: args.objective,
            bound,
        })
        .collect();
    if json {
        console.result(&shard_report::json::bound::bounds(&layers))
    } else {
        console.people(&text(&layers, width(columns)))
    }
}

/// The error where a page or a graph of a bound is asked for.
pub(crate) fn no_picture(console: &mut Console) -> Status {
    console.usage("a bound is a few figures: text or JSON", Some("--format json".to_string()))
}
