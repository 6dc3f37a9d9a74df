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

/// What stands below the title of a file whose mesh is a face of a slice.
const FACE: &str = "//!\n//! The mesh is taken for a face of a larger slice, whose axes wrap \
    around: these chips alone have no rings.\n";

/// The file of a model on a mesh, formatted; `chip` is the name of the hardware, or its file, and
/// `name` that of the layer.
pub fn file(
    model: &Model,
    axes: &Axes,
    hardware: &Hardware,
    chip: &str,
    name: &str,
    host: &mut dyn Host,
) -> Outcome<String> {
    // Where the mesh is no slice of the chip, but a face of one, the file says so, and is priced
    // so.
    let is_face = Mesh::new(axes.all.clone())
        .is_ok_and(|mesh| matches!(hardware.slice_problem(&mesh), Some(SliceProblem::Face { .. })));
    let face = format!("{}-face", chip);
    let face = Some(face).filter(|face| is_face && Hardware::built_in(face).is_some());
    let line = match (&face, Hardware::built_in(chip)) {
        (Some(face), _) => face.clone(),
        (None, Some(_)) => chip.to_string(),
        (None, None) => format!("\"{}\"", chip),
    };
    let text = text::program(model, axes, &line, name);
    let text = match face {
        Some(_) => text.replacen("//!\n", FACE, 1),
        None => text,
    };
    let written = SourceFile::new("new.shard", text);
    // A mesh or a name of the user's may not suit; then the program says so, as any other.
    let found = check_source(&written, &CheckOptions::default()).diagnostics;
    if found.iter().any(|problem| problem.is_error()) {
        host.report(Some(&written), found);
        return Err(Status::Wrong);
    }
    Ok(shard_grammar::format(&written)
        .unwrap_or_else(|_| never!("a text without an error that is not formatted", written.text)))
}
