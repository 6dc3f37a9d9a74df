//! `shardc new [--template NAME | --from-config config.json]`.

use std::io::ErrorKind;
use std::path::Path;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_cost::hardware::SliceProblem;
use shard_grammar::SourceFile;
use shard_ir::Mesh;

use super::compile::read_mesh;
use crate::args::NewArgs;
use crate::console::{Console, Outcome, Status};
use crate::hardware_choice;
use crate::input::read_text;
use crate::new_program::mesh::{self, Axes};
use crate::new_program::{Model, Template, config, text};
use crate::output;

pub(crate) fn run(args: &NewArgs, console: &mut Console) -> Outcome {
    let hardware = hardware_choice::from_command_line(&args.hardware, console)?;
    let model = match &args.from_config {
        None => args.template.unwrap_or(Template::LlamaBlock).model(),
        Some(path) => {
            let file = read_text(path, console)?;
            config::read(&file).map_err(|problem| {
                console.report(Some(&file), vec![problem.into()]);
                Status::Wrong
            })?
        }
    };
    let axes = match &args.mesh {
        Some(text) => Axes { all: read_mesh(text, console)? },
        None => choose(&model, &hardware, args.chips, console)?,
    };
    let name = args.name.clone().unwrap_or_else(|| if model.attention.is_some() { "block" } else { "mlp" }.to_string());
    // Where the mesh is no slice of the chip, but a face of one, the file says so, and is priced so.
    let is_face = Mesh::new(axes.all.clone())
        .is_ok_and(|mesh| matches!(hardware.slice_problem(&mesh), Some(SliceProblem::Face { .. })));
    let face = format!("{}-face", args.hardware);
    let face = Some(face).filter(|face| is_face && Hardware::built_in(face).is_some());
    let line = match (&face, Hardware::built_in(&args.hardware)) {
        (Some(face), _) => face.clone(),
        (None, Some(_)) => args.hardware.clone(),
        (None, None) => format!("\"{}\"", args.hardware),
    };
    let text = text::program(&model, &axes, &line, &name);
    let text = match face {
        Some(_) => text.replacen("//!\n", FACE, 1),
        None => text,
    };
    let written = SourceFile::new("new.shard", text);
    // A mesh or a name of the user's may not suit; then the program says so, as any other.
    let found = check_source(&written, &CheckOptions::default()).diagnostics;
    if found.iter().any(|problem| problem.is_error()) {
        console.report(Some(&written), found);
        return Err(Status::Wrong);
    }
    let formatted = shard_grammar::format(&written).unwrap_or(written.text);
    match &args.out {
        None => console.result(&formatted),
        Some(path) => write(path, &formatted, args.force, console),
    }
}

/// What stands below the title of a file whose mesh is a face of a slice.
const FACE: &str = "//!\n//! The mesh is taken for a face of a larger slice, whose axes wrap around: these chips alone have no rings.\n";

fn choose(model: &Model, hardware: &Hardware, chips: Option<u32>, console: &mut Console) -> Outcome<Axes> {
    mesh::choose(model, hardware, chips.map(u64::from)).ok_or_else(|| {
        let of = chips.map_or(String::new(), |chips| format!(" of {chips} chips"));
        let help = "--mesh x=2,y=4    (the first axis is for the batch, the last for heads and d_ff)".to_string();
        console.usage(&format!("no mesh{of} of `{}` divides the heads and holds the model", hardware.name), Some(help))
    })
}

/// Writes a file that is not there yet, unless told to replace it.
fn write(path: &Path, text: &str, force: bool, console: &mut Console) -> Outcome {
    let written = if force { output::replace_text(path, text) } else { output::create(path, text) };
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            console.usage(&format!("`{}` is there already", path.display()), Some("--force".to_string()))
        }
        _ => console.usage(&format!("cannot write `{}`: {error}", path.display()), None),
    })
}
