//! `shardc check FILE...`.

use std::path::Path;

use crate::args::{CheckArgs, ProgramArgs};
use crate::commands::compile::compile_source;
use crate::console::{Console, Outcome, Status};
use crate::input::{Input, read_program};

pub(crate) fn run(args: &CheckArgs, console: &mut Console) -> Outcome {
    console.diagnostics_are_the_result();
    let mut worst = Ok(());
    for file in &args.files {
        match check_file(file, &args.program, console) {
            Ok(()) => {}
            Err(Status::Usage) => worst = Err(Status::Usage),
            Err(Status::Wrong) if worst.is_ok() => worst = Err(Status::Wrong),
            Err(Status::Wrong) => {}
        }
    }
    worst
}

/// Everything that any command would say of the file. Without a chip the layers are lowered for the first built-in one: some
/// errors (a layout out of reach, a strict layer) show only then, and they are the same on every chip.
fn check_file(path: &Path, args: &ProgramArgs, console: &mut Console) -> Outcome {
    match read_program(path, console)? {
        Input::Ir(_) => Ok(()),
        Input::Source(file) => compile_source(&file, args, true, console).map(|_| ()),
    }
}
