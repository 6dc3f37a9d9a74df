//! `shardc diff A [B]`.

use std::path::Path;

use shard_report::Layer;
use shard_report::diff::{Pair, diff, differs, json};

use crate::args::{DiffArgs, Format, ProgramArgs};
use crate::commands::compile::{Compilation, Purpose, compile_file};
use crate::commands::cost::width;
use crate::console::{Console, Outcome, Status};

pub(crate) fn run(args: &DiffArgs, console: &mut Console) -> Outcome {
    let second = args.b.as_deref().unwrap_or(&args.a);
    let a = Changes { dims: &args.dim_a, mesh: &args.mesh_a, hardware: &args.hardware_a, layer: &None, phase: &None };
    let b = Changes {
        dims: &args.dim_b,
        mesh: &args.mesh_b,
        hardware: &args.hardware_b,
        layer: &args.layer_b,
        phase: &args.phase_b,
    };
    console.watch.searches_to_come(1);
    let mut a = side(&args.a, &args.program, &a, console)?;
    console.watch.searches_to_come(0);
    let mut b = side(second, &args.program, &b, console)?;
    if console.format == Format::Text {
        a.escape();
        b.escape();
    }
    let pairs = pairs(&a, &b);
    match console.format {
        Format::Text => console.people(&diff(&pairs, width(args.width))),
        Format::Json => console.result(&json(&pairs)),
    }?;
    if args.exit_code && differs(&pairs) { Err(Status::Wrong) } else { Ok(()) }
}

/// What is changed for one side alone.
struct Changes<'a> {
    dims: &'a [String],
    mesh: &'a Option<String>,
    hardware: &'a Option<String>,
    layer: &'a Option<String>,
    phase: &'a Option<String>,
}

fn side(path: &Path, common: &ProgramArgs, own: &Changes<'_>, console: &mut Console) -> Outcome<Compilation> {
    let mut program = common.clone();
    program.dims.extend(own.dims.iter().cloned());
    program.mesh = own.mesh.clone().or(program.mesh);
    program.hardware = own.hardware.clone().or(program.hardware);
    program.layer = own.layer.clone().or(program.layer);
    program.phase = own.phase.clone().or(program.phase);
    compile_file(path, &program, Purpose::Report, console)
}

/// Layers of one name belong together; where each side has one layer, these do whatever their names.
fn pairs<'a>(a: &'a Compilation, b: &'a Compilation) -> Vec<Pair<'a>> {
    let (first, mut second): (Vec<Layer<'a>>, Vec<Layer<'a>>) = (a.layers(), b.layers());
    if let ([one], [other]) = (first.as_slice(), second.as_slice()) {
        return vec![(Some(*one), Some(*other))];
    }
    let mut out: Vec<Pair<'a>> = Vec::new();
    for layer in first {
        let key = |l: &Layer<'_>| (l.plan().name.clone(), l.plan().phase.clone());
        let at = second.iter().position(|other| key(other) == key(&layer));
        out.push((Some(layer), at.map(|at| second.remove(at))));
    }
    out.extend(second.into_iter().map(|layer| (None, Some(layer))));
    out
}
