//! What `shardc new` writes: a [`Model`] from a template or a configuration, a mesh that suits it,
//! and the two as text.

pub mod config;
pub mod mesh;
pub mod model;
pub mod order;
mod sizes;
mod template;
mod text;

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_cost::hardware::SliceProblem;
use shard_grammar::SourceFile;
use shard_ir::{Mesh, never};

use crate::host::{Host, Outcome, Status};
use mesh::Axes;
pub use model::Model;
pub use template::Template;

/// The lines below the title of a file whose mesh is a face of a slice.
const FACE: &str = "//!\n//! The mesh is taken for a face of a larger slice, whose axes wrap \
    around: these chips alone have no rings.\n";

/// The file of a model on a mesh, formatted. `chip` is the name of the hardware or the path of its
/// file, and `name` the name of the layer.
pub fn file(
    model: &Model,
    axes: &Axes,
    hardware: &Hardware,
    chip: &str,
    name: &str,
    host: &mut dyn Host,
) -> Outcome<String> {
    // Where the mesh is no slice of the chip but a face of one, the file says so, and names the
    // chip that is priced so.
    let is_face = Mesh::new(axes.all.clone())
        .is_ok_and(|mesh| matches!(hardware.slice_problem(&mesh), Some(SliceProblem::Face { .. })));
    let face = format!("{}-face", chip);
    let face = Some(face).filter(|face| is_face && Hardware::built_in(face).is_some());
    let line = match (&face, Hardware::built_in(chip)) {
        (Some(face), _) => face.clone(),
        (None, Some(_)) => chip.to_string(),
        (None, None) => format!("\"{}\"", chip),
    };
    let written = |name: &str| {
        let text = text::program(model, axes, &line, name);
        let text = match face {
            Some(_) => text.replacen("//!\n", FACE, 1),
            None => text,
        };
        SourceFile::new("new.shard", text)
    };
    let found = |written: &SourceFile| {
        let found = check_source(written, &CheckOptions::default()).diagnostics;
        Some(found).filter(|found| found.iter().any(|problem| problem.is_error()))
    };
    let usual = usual_name(model);
    let is_sound = |name: &str| found(&written(name)).is_none();
    let file = written(name);
    if let Some(found) = found(&file) {
        // The user did not write the line with the name: the problem is told of the name alone.
        if name != usual && is_sound(usual) {
            let message = format!("a layer cannot be named `{name}` here: {}", found[0].message);
            // A help may be another spelling of the name, with what that is for behind it.
            let helps = found[0].helps.iter().filter_map(|help| help.text.split("    ").next());
            let spelt = helps.map(str::trim).find(|name| is_sound(name)).unwrap_or(usual);
            return Err(host.usage(&message, Some(format!("--name {spelt}"))));
        }
        // A mesh of the user may not suit the model: the program then has that error, as any other
        // program.
        host.report(Some(&file), found);
        return Err(Status::Wrong);
    }
    Ok(shard_grammar::format(&file)
        .unwrap_or_else(|_| never!("a text without an error that is not formatted", file.text)))
}

/// What the layer of a model is named where nobody says.
pub fn usual_name(model: &Model) -> &'static str {
    let is_mlp = model.attention().is_none() && model.state_space().is_none();
    if is_mlp { "mlp" } else { "block" }
}
