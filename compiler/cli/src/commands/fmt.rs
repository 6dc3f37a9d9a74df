//! `shardc fmt FILE... [--check]`.

use std::path::Path;

use shard_check::Diagnostic;
use similar::TextDiff;

use crate::args::FmtArgs;
use crate::console::{Console, Outcome, Status};
use crate::input::read_text;

pub(crate) fn run(args: &FmtArgs, console: &mut Console) -> Outcome {
    let mut worst = Ok(());
    for file in &args.files {
        // Every file gets its turn, and the worst of them is the outcome.
        match format_file(file, args.check, console) {
            Ok(()) => {}
            Err(Status::Usage) => worst = Err(Status::Usage),
            Err(Status::Wrong) if worst.is_ok() => worst = Err(Status::Wrong),
            Err(Status::Wrong) => {}
        }
    }
    worst
}

fn format_file(path: &Path, check: bool, console: &mut Console) -> Outcome {
    let file = read_text(path, console)?;
    let formatted = shard_grammar::format(&file).map_err(|errors| {
        console.report(Some(&file), errors.iter().map(Diagnostic::from).collect());
        Status::Wrong
    })?;
    if check {
        if formatted == file.text {
            return Ok(());
        }
        let diff = TextDiff::from_lines(&file.text, &formatted);
        let formatted_name = format!("{} (formatted)", file.name);
        console.result(&diff.unified_diff().header(&file.name, &formatted_name).to_string())?;
        return Err(Status::Wrong);
    }
    if file.name == "-" {
        return console.result(&formatted);
    }
    if formatted == file.text {
        return Ok(());
    }
    std::fs::write(path, formatted)
        .map_err(|error| console.usage(&format!("cannot write `{}`: {error}", file.name), None))
}
