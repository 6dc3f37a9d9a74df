//! `shardc new [--template NAME | --from-config config.json]`.

use std::io::ErrorKind;
use std::path::Path;

use shard_cost::Hardware;
use shard_driver::new_program::mesh::{self, Axes};
use shard_driver::new_program::{self, Model, Template, config};
use shard_driver::{Outcome, Status, hardware_choice};

use super::compile::read_mesh;
use crate::args::NewArgs;
use crate::console::Console;
use crate::input::read_text;
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
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| if model.attention().is_some() { "block" } else { "mlp" }.to_string());
    let formatted = new_program::file(&model, &axes, &hardware, &args.hardware, &name, console)?;
    match &args.out {
        None => console.result(&formatted),
        Some(path) => write(path, &formatted, args.force, console),
    }
}

fn choose(
    model: &Model,
    hardware: &Hardware,
    chips: Option<u32>,
    console: &mut Console,
) -> Outcome<Axes> {
    mesh::choose(model, hardware, chips.map(u64::from)).ok_or_else(|| {
        let of = chips.map_or(String::new(), |chips| format!(" of {chips} chips"));
        let help =
            "--mesh x=2,y=4    (the first axis is for the batch, the last for heads and d_ff)"
                .to_string();
        console.usage(
            &format!("no mesh{of} of `{}` divides the heads and holds the model", hardware.name),
            Some(help),
        )
    })
}

/// Writes a file that is not there yet, unless told to replace it.
fn write(path: &Path, text: &str, force: bool, console: &mut Console) -> Outcome {
    let written = if force { output::replace_text(path, text) } else { output::create(path, text) };
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => console
            .usage(&format!("`{}` is there already", path.display()), Some("--force".to_string())),
        _ => console.usage(&format!("cannot write `{}`: {error}", path.display()), None),
    })
}
