//! `shardc check FILE...`.

use std::path::Path;

use crate::args::CheckArgs;
use crate::commands::compile::{Purpose, compile_source};
use crate::commands::{expected, worst_of_all};
use crate::console::{Console, Outcome};
use crate::input::{Input, read_program};

pub(crate) fn run(args: &CheckArgs, console: &mut Console) -> Outcome {
    console.diagnostics_are_the_result();
    worst_of_all(&args.files, |file| check_file(file, args, console))
}

/// Everything that any command would say of the file. Without a chip the layers are lowered for the first built-in one: some
/// errors (a layout out of reach, a strict layer) show only then, and they are the same on every chip. What is expected of
/// a plan is not: `--expect` wants a chip.
fn check_file(path: &Path, args: &CheckArgs, console: &mut Console) -> Outcome {
    match read_program(path, console)? {
        Input::Ir(_) => Ok(()),
        Input::Source(file) => {
            let purpose = if args.expect { Purpose::Report } else { Purpose::Check };
            let compilation = compile_source(&file, &args.program, purpose, console)?;
            if args.expect { expected::hold(&compilation, console) } else { Ok(()) }
        }
    }
}
