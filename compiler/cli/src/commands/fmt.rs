//! `shardc fmt FILE... [--check] [--explicit]`.

use std::path::{Path, PathBuf};

use shard_check::Diagnostic;
use shard_driver::Purpose;
use shard_driver::explicit::strict_file;
use shard_driver::input::is_ir;
use shard_grammar::SourceFile;
use similar::TextDiff;

use crate::args::ProgramArgs;
use crate::commands::compile::compile_file;
use crate::commands::worst_of_all;
use crate::console::{Console, Outcome, Status};
use crate::input::read_text;
use crate::output;

/// `fmt`.
#[derive(Debug, clap::Args)]
pub(crate) struct FmtArgs {
    /// Source files; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; show what would change, and exit with 1 if anything would
    #[arg(long)]
    pub(crate) check: bool,
    /// Write the chosen plan back as a strict file, each collective a `reshard` line
    #[arg(long)]
    pub(crate) explicit: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

pub(crate) fn run(args: &FmtArgs, console: &mut Console) -> Outcome {
    if !args.explicit && args.program.changes_anything() {
        let help =
            "--explicit writes the plan of a program, which these options choose".to_string();
        return Err(console.usage(
            "`fmt` reads a file as text, whatever layer, sizes, mesh or chip are wanted",
            Some(help),
        ));
    }
    worst_of_all(&args.files, |file| format_file(file, args, console))
}

fn format_file(path: &Path, args: &FmtArgs, console: &mut Console) -> Outcome {
    let (file, formatted) = if args.explicit {
        let compilation = compile_file(path, &args.program, Purpose::Report, console)?;
        strict_file(&compilation, &args.program.asked(console)?, console)?
    } else {
        formatted(path, console)?
    };
    if args.check {
        if formatted == file.text {
            return Ok(());
        }
        let diff = TextDiff::from_lines(&file.text, &formatted);
        let what = if args.explicit { "explicit" } else { "formatted" };
        let formatted_name = format!("{} ({what})", file.name);
        console.people(&diff.unified_diff().header(&file.name, &formatted_name).to_string())?;
        return Err(Status::Wrong);
    }
    if file.name == "-" {
        return console.result(&formatted);
    }
    if formatted == file.text {
        return Ok(());
    }
    output::replace_text(path, &formatted)
        .map_err(|error| console.usage(&format!("cannot write `{}`: {error}", file.name), None))
}

fn formatted(path: &Path, console: &mut Console) -> Outcome<(SourceFile, String)> {
    let file = read_text(path, console)?;
    if is_ir(path, &file) {
        let message = "IR text has one form, which `lower` writes: `fmt` takes a source file";
        return Err(console.usage(message, None));
    }
    match shard_grammar::format(&file) {
        Ok(formatted) => Ok((file, formatted)),
        Err(errors) => {
            console.report(Some(&file), errors.iter().map(Diagnostic::from).collect());
            Err(Status::Wrong)
        }
    }
}
