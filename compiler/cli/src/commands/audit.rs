//! `shardc audit AFTER [--before BEFORE]`.

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;
use shard_audit::before;
use shard_audit::before::read::Stable;
use shard_audit::before::recompile::{Compiled, Subject, recompile};
use shard_audit::collectives::collectives;
use shard_audit::compare::Comparison;
use shard_audit::hlo::tables::Place;
use shard_audit::hlo::{Module, ReadError};
use shard_audit::report::Report;
use shard_audit::{github, html, json, text};
use shard_check::diagnostics::AuditProblem;
use shard_cost::{Bytes, Hardware};
use shard_driver::hardware_choice;
use shard_grammar::SourceFile;
use shard_ir::{Mesh, never};
use shard_report::{object, scale};

use crate::args::Format;
use crate::commands::compile::read_mesh;
use crate::console::{Console, Outcome, Status};
use crate::input::{read_at_most, read_regular};

/// `audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// The text of the optimised HLO, as `jitted.lower(..).compile().as_text()` gives it
    pub(crate) after: PathBuf,
    /// The program before it was partitioned: StableHLO, as `jitted.lower(..).as_text()` gives it;
    /// with `debug_info=True` it has lines
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
    /// The mesh, axes major to minor in the order of the devices; without it, that of `--before`,
    /// else groups of devices are shown
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh: Option<String>,
    /// The chip on which the time of each collective is computed: a built-in name, or a hardware
    /// file
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware: Option<String>,
    /// Exit with status 1 where a device sends more in one run, as in `--max-bytes 100MB`
    #[arg(long, value_name = "BYTES", value_parser = max_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// Ask for programs to be compiled, on standard output, and read from standard input where the
    /// HLO is: edits are tried so (shardc.audit of the Python package answers)
    #[arg(long, requires = "before", conflicts_with = "emit")]
    pub(crate) ask_compiler: bool,
    /// What is printed; `--format json` is `--emit json`
    #[arg(long, value_enum, default_value_t = AuditEmit::Text, value_name = "WHAT")]
    pub(crate) emit: AuditEmit,
}

/// What `audit` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum AuditEmit {
    /// For people
    Text,
    /// The document `shardc.audit/1`
    Json,
    /// Workflow commands, which GitHub shows beside the lines
    Github,
    /// A page
    Html,
}

/// The largest dump that is read: a step of a large model prints some 50 MB.
const MAX_DUMP_BYTES: usize = 1 << 30;

/// The chip for which plans are chosen where no chip is named.
const PLANNED_FOR: &str = "tpu-v5e";

/// How the dump that is read can be written, for messages.
const WRITTEN_BY: &str = "jitted.lower(*args).compile().as_text() writes it";

pub(crate) fn run(args: &AuditArgs, console: &mut Console) -> Outcome {
    let file = read_dump(&args.after, console)?;
    let given = args.mesh.as_ref().map(|text| read_mesh(text, console)).transpose()?;
    let before = match &args.before {
        Some(path) => Some(read_before(path, given.as_deref(), console)?),
        None => None,
    };
    let mesh = given.or_else(|| before.as_ref().and_then(|before| before.1.mesh.clone()));
    let hardware = match &args.hardware {
        Some(name) => Some(hardware_choice::from_command_line(name, console)?),
        None => None,
    };
    let module = Module::read(&file.text).map_err(|error| unreadable(&file, error, console))?;
    if let Some(axes) = &mesh {
        fits(axes, module.devices(), hardware.as_ref(), console)?;
    }
    let program =
        collectives(&module, mesh.as_deref()).map_err(|error| unreadable(&file, error, console))?;
    let mut lines = Sources::beside(&args.after);
    let mut report =
        Report::new(&file.name, program, mesh.as_deref(), hardware.as_ref(), &mut |place| {
            lines.line(place)
        });
    if let Some(before) = &before {
        let mut asked = Asked::default();
        let compiler = args.ask_compiler.then_some(&mut asked);
        let text = &before.0.text;
        report.comparison =
            Some(compared(text, &before.1, &report, hardware.as_ref(), &mut lines, compiler));
    }
    if args.ask_compiler {
        // The last line of the protocol: the findings as a document, and as text for people.
        let answer = object!(Answer { audit: json::json(&report), text: text::text(&report) });
        console.result(&line(&answer))?;
        return within_budget(args, &report, console);
    }
    let emit = match (args.emit, console.format) {
        (AuditEmit::Text, Format::Json) => AuditEmit::Json,
        (emit, _) => emit,
    };
    match emit {
        AuditEmit::Text => console.people(&text::text(&report))?,
        AuditEmit::Json => console.result(&json::json(&report))?,
        AuditEmit::Github => console.people(&github::github(&report))?,
        AuditEmit::Html => console.result(&html::html(&report))?,
    }
    within_budget(args, &report, console)
}

/// Reads the program before it was partitioned.
fn read_before(
    path: &Path,
    mesh: Option<&[(String, u64)]>,
    console: &mut Console,
) -> Outcome<(SourceFile, Stable)> {
    let file = read_dump(path, console)?;
    let stable = before::read::read(&file.text, mesh).map_err(|error| {
        let help = Some("jitted.lower(*args).as_text(debug_info=True) writes it".to_string());
        let ReadError { message, span } = error;
        console.report(Some(&file), vec![AuditProblem::Unreadable { message, span, help }.into()]);
        Status::Wrong
    })?;
    Ok((file, stable))
}

/// Compares what the program sends with what it could send. Where no chip is named, plans are
/// chosen for a built-in one, and no time is shown.
fn compared(
    text: &str,
    before: &Stable,
    report: &Report,
    hardware: Option<&Hardware>,
    sources: &mut Sources,
    compiler: Option<&mut Asked>,
) -> Comparison {
    let why_not = |why: String| Comparison { why_not: Some(why), ..Comparison::default() };
    let Some(mesh) = &report.mesh else {
        return why_not("no optimum: the mesh is not known (`--mesh data=2,model=4`)".to_string());
    };
    let Some(chip) = hardware.cloned().or_else(|| Hardware::built_in(PLANNED_FOR)) else {
        return why_not(format!("no optimum: there is no chip {PLANNED_FOR}"));
    };
    let mut layer = match before::translate::translate(before) {
        Ok(layer) => layer,
        Err(why) => return why_not(format!("no optimum: {why}")),
    };
    if layer.manual > 0 {
        layer.by_hand = Some(report.by_hand());
    }
    let (mut found, steps) =
        before::advise::compare(&layer, mesh, &chip, report.totals.wire_bytes, &mut |file| {
            sources.text(file)
        });
    if let (Some(asked), Some(_)) = (compiler, &found.same_specs) {
        let subject = Subject { text, stable: before, layer: &layer, mesh, hardware: &chip };
        recompile(subject, &steps, &mut found, &mut |text| asked.compile(text));
    }
    if hardware.is_none() {
        for totals in [&mut found.same_specs, &mut found.free].into_iter().flatten() {
            totals.time = None;
        }
    }
    found
}

/// The answer to a request for compilation: a line of standard input for each line of standard
/// output.
#[derive(serde::Deserialize)]
struct Reply {
    /// The optimised HLO.
    hlo: Option<String>,
    /// The kind of device: `cpu`, `tpu`.
    #[serde(default)]
    platform: String,
    /// Why there is none.
    error: Option<String>,
}

fn line(of: &impl serde::Serialize) -> String {
    // The value holds strings alone, which JSON can hold.
    serde_json::to_string(of)
        .unwrap_or_else(|_| never!("an answer that JSON cannot hold", String::new()))
        + "\n"
}

/// The compiler, which is asked on standard output and answers on standard input.
#[derive(Default)]
struct Asked {
    /// Whether it has stopped answering.
    gone: bool,
}

impl Asked {
    fn compile(&mut self, text: &str) -> Result<Compiled, String> {
        let none = || "the compiler does not answer".to_string();
        if self.gone {
            return Err(none());
        }
        let mut stdout = std::io::stdout().lock();
        let request = line(&object!(Request { compile: text }));
        let asked = stdout.write_all(request.as_bytes()).and_then(|()| stdout.flush());
        let mut answer = String::new();
        // The line holds one dump, and is no longer than a file may be.
        let heard = asked.and_then(|()| {
            let limit = u64::try_from(MAX_DUMP_BYTES).unwrap_or(u64::MAX);
            std::io::stdin().lock().take(limit).read_line(&mut answer)
        });
        let reply = match heard {
            Ok(1..) => serde_json::from_str::<Reply>(&answer).map_err(|error| error.to_string()),
            Ok(0) | Err(_) => {
                self.gone = true;
                Err(none())
            }
        }?;
        match (reply.hlo, reply.error) {
            (_, Some(error)) => Err(error),
            (Some(text), None) => Ok(Compiled { text, platform: reply.platform }),
            (None, None) => Err("the compiler gave nothing".to_string()),
        }
    }
}

fn read_dump(path: &Path, console: &mut Console) -> Outcome<SourceFile> {
    read_at_most(path, MAX_DUMP_BYTES)
        .map_err(|why| console.usage(&format!("cannot read `{}`: {why}", path.display()), None))
}

fn unreadable(file: &SourceFile, error: ReadError, console: &mut Console) -> Status {
    let help = Some(WRITTEN_BY.to_string());
    let ReadError { message, span } = error;
    console.report(Some(file), vec![AuditProblem::Unreadable { message, span, help }.into()]);
    Status::Wrong
}

/// Checks that axes are a mesh, of as many devices as the program runs on, and one that the chip
/// has.
fn fits(
    axes: &[(String, u64)],
    devices: u64,
    hardware: Option<&Hardware>,
    console: &mut Console,
) -> Outcome {
    let mesh =
        Mesh::new(axes.iter().cloned()).map_err(|error| console.usage(&error.to_string(), None))?;
    if mesh.devices() != devices {
        let message =
            format!("the mesh has {} devices, and the program runs on {devices}", mesh.devices());
        return Err(console.usage(&message, None));
    }
    let found = hardware.and_then(|chip| hardware_choice::slices(chip, &mesh, None));
    let wrong = found.as_ref().is_some_and(shard_check::Diagnostic::is_error);
    console.report(None, found.into_iter().collect());
    if wrong { Err(Status::Wrong) } else { Ok(()) }
}

fn within_budget(args: &AuditArgs, report: &Report, console: &mut Console) -> Outcome {
    let sent = report.totals.wire_bytes;
    let Some(budget) = args.max_bytes.filter(|budget| sent > *budget) else { return Ok(()) };
    let bytes = |n: u64| format!("{} ({n} bytes)", scale::bytes(Bytes(n)));
    let most = report.lines.iter().max_by_key(|line| line.totals.wire_bytes).map(|line| {
        let place = line.place.as_ref().map_or("no source line".to_string(), ToString::to_string);
        format!("{place}: {}", scale::bytes(Bytes(line.totals.wire_bytes)))
    });
    let problem = AuditProblem::OverBudget { sent: bytes(sent), budget: bytes(budget), most };
    console.report(None, vec![problem.into()]);
    Err(Status::Wrong)
}

/// The lines of the program that was compiled, where its files are there.
///
/// A dump may be a stranger's and name any file: only Python files are read, and by a relative path
/// none above the folder.
struct Sources {
    folder: PathBuf,
    files: Vec<(String, Option<SourceFile>)>,
}

impl Sources {
    fn beside(dump: &Path) -> Sources {
        Sources { folder: dump.parent().unwrap_or(Path::new("")).to_path_buf(), files: Vec::new() }
    }

    fn file(&mut self, file: &str) -> Option<&SourceFile> {
        let at = self.files.iter().position(|(name, _)| name == file).unwrap_or_else(|| {
            self.files.push((file.to_string(), self.read(Path::new(file))));
            self.files.len() - 1
        });
        self.files[at].1.as_ref()
    }

    fn line(&mut self, place: &Place) -> Option<String> {
        let line = usize::try_from(place.line).ok()?;
        self.file(&place.file)?.line(line).map(ToString::to_string)
    }

    fn text(&mut self, file: &str) -> Option<String> {
        self.file(file).map(|file| file.text.clone())
    }

    fn read(&self, path: &Path) -> Option<SourceFile> {
        let climbs = path.components().any(|part| part == Component::ParentDir);
        if climbs || path.extension().is_none_or(|extension| extension != "py") {
            return None;
        }
        [self.folder.join(path), path.to_path_buf()].iter().find_map(|path| read_regular(path).ok())
    }
}

/// Reads a budget of bytes, which may be 0.
fn max_bytes(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    crate::memory_limit::read(text)
        .map_err(|_| "a budget is a number of bytes: 100000000, 100MB or 100MiB".to_string())
}
