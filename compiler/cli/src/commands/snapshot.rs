//! `shardc snapshot [--check|--update] FILE...`: a user's own snapshot tests of lowered programs.

use std::io::ErrorKind;
use std::path::Path;

use shard_check::diagnostics::SnapshotProblem;
use shard_cost::Objective;
use shard_grammar::{SourceFile, Span};
use shard_ir::{InstrId, Plan};
use similar::{ChangeTag, TextDiff};

use crate::args::{ProgramArgs, SnapshotArgs};
use crate::commands::compile::{Compilation, Purpose, compile_source};
use crate::commands::{expected, worst_of_all};
use crate::console::{Console, Outcome, Status};
use crate::input::{Input, read_program, read_regular};
use crate::output;

/// The first line of a snapshot; the number is that of its form.
const FORM: &str = "// shardc snapshot 1";
/// What the second line starts with.
const OPTIONS: &str = "// options: ";

pub(crate) fn run(args: &SnapshotArgs, console: &mut Console) -> Outcome {
    console.diagnostics_are_the_result();
    worst_of_all(&args.files, |file| one_file(file, args, console))
}

fn one_file(path: &Path, args: &SnapshotArgs, console: &mut Console) -> Outcome {
    if path.as_os_str() == "-" {
        return Err(console.usage("standard input has no snapshot beside it: name a file", None));
    }
    let Input::Source(file) = read_program(path, console)? else {
        let message = format!("`{}` is lowered already: snapshots are of `.shard` files", path.display());
        return Err(console.usage(&message, None));
    };
    let compilation = compile_source(&file, &args.program, Purpose::Report, console)?;
    let snapshot = path.with_extension("lowered.snap");
    let options = options_text(&args.program, &compilation);
    let new = text(&options, &compilation);
    if args.update {
        return update(&snapshot, &new, console);
    }
    // Both are looked at, so that one run shows all that is wrong.
    let compared = compare(&file, &snapshot, &options, &new, &compilation, console);
    let held = expected::hold(&compilation, console);
    compared.and(held)
}

/// The whole snapshot: IR text under two lines of comment.
fn text(options: &str, compilation: &Compilation) -> String {
    let plans: Vec<Plan> = compilation.layers().iter().map(|layer| layer.plan().clone()).collect();
    let options = if options.is_empty() { "none" } else { options };
    format!("{FORM}\n{OPTIONS}{options}\n{}", shard_ir::text::print_all(&plans))
}

fn update(snapshot: &Path, new: &str, console: &mut Console) -> Outcome {
    if read_regular(snapshot).is_ok_and(|old| old.text == new) {
        return Ok(());
    }
    if let Err(error) = output::replace_text(snapshot, new) {
        return Err(console.usage(&format!("cannot write `{}`: {error}", snapshot.display()), None));
    }
    match console.result_is_text() {
        true => console.people(&format!("wrote {}\n", snapshot.display())),
        false => Ok(()),
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
            let problem = SnapshotProblem::Missing { snapshot: name, command: command("--update", options) };
            console.report(Some(file), vec![problem.into()]);
            return Err(Status::Wrong);
        }
        _ => {}
    }
    let old = match read_regular(snapshot) {
        Ok(old) => old.text.replace("\r\n", "\n"),
        Err(why) => return Err(console.usage(&format!("cannot read `{name}`: {why}"), None)),
    };
    if old == new {
        return Ok(());
    }
    if let Some(recorded) = recorded_options(&old).filter(|recorded| *recorded != options) {
        let said = |options: &str| if options.is_empty() { "no options".to_string() } else { format!("`{options}`") };
        let problem = SnapshotProblem::OtherOptions {
            snapshot: name,
            recorded: said(recorded),
            given: said(options),
            command: command("--check", recorded),
        };
        console.report(Some(file), vec![problem.into()]);
        return Err(Status::Wrong);
    }
    let diff = TextDiff::from_lines(old.as_str(), new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let shown = diff.unified_diff().header(&name, &format!("{} (lowered now)", file.name)).to_string();
    let first = diff.iter_all_changes().position(|change| change.tag() != ChangeTag::Equal);
    // As many lines of the new text stand before it as are equal.
    let at = first.map_or(0, |first| diff.iter_all_changes().take(first).count());
    let counts = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let is_text = console.result_is_text();
    if is_text {
        console.people(&shown)?;
    }
    let problem = SnapshotProblem::Differs {
        snapshot: name,
        span: origin(new, at, compilation),
        counts,
        diff: (!is_text).then_some(shown),
        command: command("--update", options),
    };
    console.report(Some(file), vec![problem.into()]);
    Err(Status::Wrong)
}

/// The options in the second line of a snapshot.
fn recorded_options(old: &str) -> Option<&str> {
    let options = old.lines().nth(1)?.strip_prefix(OPTIONS)?;
    Some(if options == "none" { "" } else { options })
}

/// The place in the source that the instruction in a line of the new text comes from.
fn origin(new: &str, line: usize, compilation: &Compilation) -> Option<Span> {
    let mut layer = None;
    for text in new.lines().take(line + 1) {
        if text.starts_with("layer ") {
            layer = Some(layer.map_or(0, |at| at + 1));
        }
    }
    let plan = compilation.layers().get(layer?)?.plan();
    let text = new.lines().nth(line)?;
    // A result is where its value is made.
    let number = text.split('%').nth(1).filter(|_| text.starts_with('%') || text.starts_with("return "))?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let id = InstrId(digits.parse().ok()?);
    plan.instructions.get(id.index())?.origin.span
}

/// The options that change what is lowered, as they could be typed again on any machine.
fn options_text(args: &ProgramArgs, compilation: &Compilation) -> String {
    let mut words: Vec<String> = Vec::new();
    if let Some(layer) = &args.layer {
        words.extend(["--layer".to_string(), quoted(layer)]);
    }
    if let Some(phase) = &args.phase {
        words.extend(["--phase".to_string(), quoted(phase)]);
    }
    if !args.dims.is_empty() {
        words.extend(["-D".to_string(), quoted(&args.dims.join(","))]);
    }
    if let Some(mesh) = &args.mesh {
        words.extend(["--mesh".to_string(), quoted(mesh)]);
    }
    if let Some(hardware) = &args.hardware {
        // A path from the root would be another on the next machine: the chip's name stays.
        let absolute = Path::new(hardware).is_absolute();
        let chip = compilation.compiled.first().filter(|_| absolute).map(|(chip, _)| chip.name.clone());
        words.extend(["--hardware".to_string(), quoted(&chip.unwrap_or_else(|| hardware.clone()))]);
    }
    if let Some(bytes) = args.memory_limit {
        words.extend(["--memory-limit".to_string(), bytes.to_string()]);
    }
    if args.objective != Objective::Serial {
        words.extend(["--objective".to_string(), args.objective.name().to_string()]);
    }
    if args.strict {
        words.push("--strict".to_string());
    }
    if args.fuse {
        words.push("--fuse".to_string());
    }
    words.join(" ")
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "=,._-/+*:".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''").replace(['\n', '\r'], " ")),
    }
}
