//! `shardc diff A [B]`.

use std::path::Path;

use shard_report::Layer;
use shard_report::diff::{Pair, diff, differs, json};

use crate::args::{DiffArgs, Format, ProgramArgs};
use crate::commands::compile::{Compilation, compile_file};
use crate::console::{Console, Outcome, Status};

pub(crate) fn run(args: &DiffArgs, console: &mut Console) -> Outcome {
    let second = args.b.as_deref().unwrap_or(&args.a);
    let a = side(&args.a, &args.program, &args.dim_a, &args.mesh_a, &args.hardware_a, None, console)?;
    let b = side(second, &args.program, &args.dim_b, &args.mesh_b, &args.hardware_b, args.layer_b.as_ref(), console)?;
    let pairs = pairs(&a, &b);
    console.result(&match console.format {
        Format::Text => diff(&pairs, args.width),
        Format::Json => json(&pairs),
    })?;
    if args.exit_code && differs(&pairs) { Err(Status::Wrong) } else { Ok(()) }
}

/// One side, with what its own options change.
fn side(
    path: &Path,
    common: &ProgramArgs,
    dims: &[String],
    mesh: &Option<String>,
    hardware: &Option<String>,
    layer: Option<&String>,
    console: &mut Console,
) -> Outcome<Compilation> {
    let mut program = common.clone();
    program.dims.extend(dims.iter().cloned());
    program.mesh = mesh.clone().or(program.mesh);
    program.hardware = hardware.clone().or(program.hardware);
    program.layer = layer.cloned().or(program.layer);
    compile_file(path, &program, console)
}

/// Layers of one name belong together; where each side has one layer, these do whatever their names.
fn pairs<'a>(a: &'a Compilation, b: &'a Compilation) -> Vec<Pair<'a>> {
    let (first, mut second): (Vec<Layer<'a>>, Vec<Layer<'a>>) = (a.layers(), b.layers());
    if let ([one], [other]) = (first.as_slice(), second.as_slice()) {
        return vec![(Some(*one), Some(*other))];
    }
    let mut out: Vec<Pair<'a>> = Vec::new();
    for layer in first {
        let at = second.iter().position(|other| other.plan().name == layer.plan().name);
        out.push((Some(layer), at.map(|at| second.remove(at))));
    }
    out.extend(second.into_iter().map(|layer| (None, Some(layer))));
    out
}
