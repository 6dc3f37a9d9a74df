//! `shardc diff A [B] [--emit text|json|html]`: each a program, IR text, or what `explain --emit
//! json` wrote, by this binary or another one.

use std::path::{Path, PathBuf};

use shard_driver::input::{is_json, program_of};
use shard_driver::{Purpose, compile_input};
use shard_grammar::SourceFile;
use shard_report::html::side_by_side;
use shard_report::recorded::{self, Recorded};
use shard_report::{diff, json, printable};

use crate::args::{Format, ProgramArgs};
use crate::commands::cost::width;
use crate::console::{Console, Outcome, Status};
use crate::input::read_text;

/// `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// A source file, IR text (`.shir`), a snapshot of what `lower` printed, or what `explain
    /// --emit json` wrote
    #[arg(value_name = "A")]
    pub(crate) a: PathBuf,
    /// The other; without it, A again, with what the options for B change
    #[arg(value_name = "B")]
    pub(crate) b: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// As -D, for A alone
    #[arg(long, value_name = "DIM=N", value_delimiter = ',')]
    pub(crate) dim_a: Vec<String>,
    /// As -D, for B alone
    #[arg(long, value_name = "DIM=N", value_delimiter = ',')]
    pub(crate) dim_b: Vec<String>,
    /// As --mesh, for A alone
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh_a: Option<String>,
    /// As --mesh, for B alone
    #[arg(long, value_name = "AXES")]
    pub(crate) mesh_b: Option<String>,
    /// As --hardware, for A alone
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware_a: Option<String>,
    /// As --hardware, for B alone
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) hardware_b: Option<String>,
    /// As --layer, for B alone
    #[arg(long, value_name = "NAME")]
    pub(crate) layer_b: Option<String>,
    /// As --phase, for B alone
    #[arg(long, value_name = "NAME")]
    pub(crate) phase_b: Option<String>,
    /// Exit with 1 where anything differs
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// What to print: text (the default), JSON, or one HTML page with the plans side by side
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) emit: Option<DiffEmit>,
    /// Columns of the text; by default those of the terminal, else 80
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// What `diff` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum DiffEmit {
    Text,
    Json,
    Html,
}

pub(crate) fn run(args: &DiffArgs, console: &mut Console) -> Outcome {
    let emit = args.emit.unwrap_or(match console.format {
        Format::Text => DiffEmit::Text,
        Format::Json => DiffEmit::Json,
    });
    let second = args.b.as_deref().unwrap_or(&args.a);
    let a = Changes {
        dims: &args.dim_a,
        mesh: &args.mesh_a,
        hardware: &args.hardware_a,
        layer: &None,
        phase: &None,
    };
    let b = Changes {
        dims: &args.dim_b,
        mesh: &args.mesh_b,
        hardware: &args.hardware_b,
        layer: &args.layer_b,
        phase: &args.phase_b,
    };
    console.watch.searches_to_come(1);
    let text = read_text(&args.a, console)?;
    // Standard input can be read once.
    let other = if second == args.a { text.clone() } else { read_text(second, console)? };
    let a = side(&args.a, text, &args.program, &a, emit, console)?;
    console.watch.searches_to_come(0);
    let b = side(second, other, &args.program, &b, emit, console)?;
    let names = [&args.a, second].map(|path| path.to_string_lossy().into_owned());
    let differ = compared(&[a, b], &names, emit, args, console)?;
    if args.exit_code && differ { Err(Status::Wrong) } else { Ok(()) }
}

/// Shows what tells two sets of plans apart, and returns whether anything does.
fn compared(
    [a, b]: &[Vec<Recorded>; 2],
    names: &[String; 2],
    emit: DiffEmit,
    args: &DiffArgs,
    console: &mut Console,
) -> Outcome<bool> {
    let pairs = paired(a.iter().collect(), b.iter().collect(), |layer| {
        (layer.name.clone(), layer.phase.clone())
    });
    match emit {
        DiffEmit::Text => console.people(&diff::text(&pairs, width(args.width))),
        DiffEmit::Json => console.result(&json::diff::json(&pairs)),
        DiffEmit::Html => {
            console.result(&side_by_side::page(&pairs, names.each_ref().map(String::as_str)))
        }
    }?;
    Ok(diff::differs(&pairs))
}

/// The layers of a document of `explain`. Text is for people: names in it may hold anything.
fn read(text: &str, emit: DiffEmit) -> Result<Vec<Recorded>, String> {
    match emit {
        DiffEmit::Text => recorded::read_escaped(text),
        DiffEmit::Json | DiffEmit::Html => recorded::read(text),
    }
}

/// The options for one side alone.
struct Changes<'a> {
    dims: &'a [String],
    mesh: &'a Option<String>,
    hardware: &'a Option<String>,
    layer: &'a Option<String>,
    phase: &'a Option<String>,
}

/// The plans of one side. A plan that is lowered now is compared as `explain` writes it down.
fn side(
    path: &Path,
    file: SourceFile,
    common: &ProgramArgs,
    own: &Changes<'_>,
    emit: DiffEmit,
    console: &mut Console,
) -> Outcome<Vec<Recorded>> {
    let mut program = common.clone();
    program.dims.extend(own.dims.iter().cloned());
    program.mesh = own.mesh.clone().or(program.mesh);
    program.hardware = own.hardware.clone().or(program.hardware);
    program.layer = own.layer.clone().or(program.layer);
    program.phase = own.phase.clone().or(program.phase);
    if !is_json(&file) {
        let input = program_of(path, file, console)?;
        let asked = program.asked(console)?;
        let compilation = compile_input(path, input, &asked, Purpose::Report, console)?;
        // `explain` writes what is read here, so that an error is a defect of the compiler.
        return read(&json::explain::explain(&compilation.layers()), emit)
            .map_err(|why| console.usage(&format!("internal error: {why}"), None));
    }
    if !own.dims.is_empty() || own.mesh.is_some() || own.hardware.is_some() {
        let message = format!(
            "`{}` is a plan as it was written down: nothing of it can be changed",
            path.display()
        );
        return Err(console.usage(&message, None));
    }
    let layers = read(&file.text, emit).map_err(|why| {
        console.usage(&format!("`{}`: {}", path.display(), printable::escaped_name(&why)), None)
    })?;
    let is_wanted = |layer: &Recorded| {
        program.layer.as_ref().is_none_or(|name| *name == layer.name)
            && program.phase.as_ref().is_none_or(|phase| layer.phase.as_ref() == Some(phase))
    };
    let wanted: Vec<Recorded> = layers.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        Err(console.usage(&format!("`{}` has no such layer", path.display()), None))
    } else {
        Ok(wanted)
    }
}

/// Pairs layers of the same name and phase. Where each side has one layer, these are a pair
/// whatever their names.
fn paired<T, K: PartialEq>(
    first: Vec<T>,
    mut second: Vec<T>,
    key: impl Fn(&T) -> K,
) -> Vec<(Option<T>, Option<T>)> {
    if first.len() == 1 && second.len() == 1 {
        return first.into_iter().map(Some).zip(second.into_iter().map(Some)).collect();
    }
    let mut out: Vec<(Option<T>, Option<T>)> = Vec::new();
    for layer in first {
        let at = second.iter().position(|other| key(other) == key(&layer));
        let other = at.map(|at| second.remove(at));
        out.push((Some(layer), other));
    }
    out.extend(second.into_iter().map(|layer| (None, Some(layer))));
    out
}
