//! `shardc snapshot [--check|--update] FILE...`: a user's own snapshot tests of lowered programs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use shard_check::diagnostics::SnapshotProblem;
use shard_cost::Objective;
use shard_driver::input::Input;
use shard_driver::snapshot::{Difference, difference, recorded_options, text};
use shard_driver::{Compilation, Outcome, Purpose, Status, compile_source, expected};
use shard_grammar::SourceFile;

use crate::args::ProgramArgs;
use crate::commands::worst_of_all;
use crate::console::Console;
use crate::input::{read_program, read_regular};
use crate::output;

/// `snapshot`.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotArgs {
    /// Source files; the snapshot of `mlp.shard` is `mlp.lowered.snap` beside it
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Compare, and exit with 1 if a plan differs or an `expect` line fails (the default)
    #[arg(long, conflicts_with = "update")]
    pub(crate) check: bool,
    /// Write the snapshots anew
    #[arg(long)]
    pub(crate) update: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

pub(crate) fn run(args: &SnapshotArgs, console: &mut Console) -> Outcome {
    console.diagnostics_are_the_result();
    worst_of_all(&args.files, |file| one_file(file, args, console))
}

fn one_file(path: &Path, args: &SnapshotArgs, console: &mut Console) -> Outcome {
    if path.as_os_str() == "-" {
        return Err(console.usage("standard input has no snapshot beside it: name a file", None));
    }
    let Input::Source(file) = read_program(path, console)? else {
        let message =
            format!("`{}` is lowered already: snapshots are of `.shard` files", path.display());
        return Err(console.usage(&message, None));
    };
    let compilation =
        compile_source(&file, &args.program.asked(console)?, Purpose::Report, console)?;
    let snapshot = path.with_extension("lowered.snap");
    let options = options_text(&args.program, &compilation);
    let new = text(&options, &compilation);
    if args.update {
        return update(&snapshot, &new, console);
    }
    // Both are done, so that one run shows all that is wrong.
    let compared = compare(&file, &snapshot, &options, &new, &compilation, console);
    let held = expected::hold(&compilation, console);
    compared.and(held)
}

fn update(snapshot: &Path, new: &str, console: &mut Console) -> Outcome {
    if read_regular(snapshot).is_ok_and(|old| old.text == new) {
        return Ok(());
    }
    if let Err(error) = output::replace_text(snapshot, new) {
        return Err(console.usage(&format!("cannot write `{}`: {error}", snapshot.display()), None));
    }
    if console.result_is_text() {
        console.people(&format!("wrote {}\n", snapshot.display()))
    } else {
        Ok(())
    }
}

fn compare(
    file: &SourceFile,
    snapshot: &Path,
    options: &str,
    new: &str,
    compilation: &Compilation,
    console: &mut Console,
) -> Outcome {
    let name = snapshot.display().to_string();
    let command = |what: &str, options: &str| {
        let blank = if options.is_empty() { "" } else { " " };
        format!("shardc snapshot {what} {}{blank}{options}", quoted(&file.name))
    };
    match std::fs::metadata(snapshot) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let problem =
                SnapshotProblem::Missing { snapshot: name, command: command("--update", options) };
            console.report(Some(file), vec![problem.into()]);
            return Err(Status::Wrong);
        }
        _ => {}
    }
    let old = match read_regular(snapshot) {
        Ok(old) => SourceFile::new(name.clone(), old.text.replace("\r\n", "\n")),
        Err(why) => return Err(console.usage(&format!("cannot read `{name}`: {why}"), None)),
    };
    if old.text == new {
        return Ok(());
    }
    if let Some(recorded) = recorded_options(&old.text).filter(|recorded| *recorded != options) {
        let said = |options: &str| {
            if options.is_empty() { "no options".to_string() } else { format!("`{options}`") }
        };
        let problem = SnapshotProblem::OtherOptions {
            snapshot: name,
            recorded: said(recorded),
            given: said(options),
            command: command("--check", recorded),
        };
        console.report(Some(file), vec![problem.into()]);
        return Err(Status::Wrong);
    }
    let new = SourceFile::new(format!("{} (lowered now)", file.name), new);
    let Difference { shown, counts, span } = difference(&old, &new, compilation);
    let is_text = console.result_is_text();
    if is_text {
        console.people(&shown)?;
    }
    let problem = SnapshotProblem::Differs {
        snapshot: name,
        span,
        counts,
        diff: (!is_text).then_some(shown),
        command: command("--update", options),
    };
    console.report(Some(file), vec![problem.into()]);
    Err(Status::Wrong)
}

/// The options that change what is lowered, as they could be typed again on any machine.
fn options_text(args: &ProgramArgs, compilation: &Compilation) -> String {
    // An absolute path would be another on the next machine: the chip's name takes its place.
    let chip = args.hardware.as_ref().map(|hardware| {
        let absolute = Path::new(hardware).is_absolute();
        let compiled = compilation.compiled.first().filter(|_| absolute);
        compiled.map_or_else(|| hardware.clone(), |(chip, _)| chip.name.clone())
    });
    let objective =
        (args.objective != Objective::Serial).then(|| args.objective.name().to_string());
    let given = [
        ("--layer", args.layer.clone()),
        ("--phase", args.phase.clone()),
        ("-D", (!args.dims.is_empty()).then(|| args.dims.join(","))),
        ("--mesh", args.mesh.clone()),
        ("--hardware", chip),
        ("--memory-limit", args.memory_limit.map(|bytes| bytes.to_string())),
        ("--objective", objective),
    ];
    let set = [("--strict", args.strict), ("--fuse", args.fuse), ("--two-kinds", args.two_kinds)];
    let given =
        given.into_iter().filter_map(|(option, word)| Some(format!("{option} {}", quoted(&word?))));
    let set = set.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag.to_string());
    given.chain(set).collect::<Vec<String>>().join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "=,._-/+*:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''").replace(['\n', '\r'], " "))
    }
}
