//! `shardc new [--template NAME | --from-config config.json]`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shard_cost::Hardware;
use shard_driver::new_program::mesh::{self, Axes};
use shard_driver::new_program::{self, Model, Template, config};
use shard_driver::{Outcome, Status, hardware_choice};

use crate::commands::compile::read_mesh;
use crate::console::Console;
use crate::input::read_text;
use crate::output;

/// `new`.
#[derive(Debug, clap::Args)]
pub(crate) struct NewArgs {
    /// What to start from; without it, llama-block
    #[arg(long, value_parser = templates(), value_name = "NAME", conflicts_with = "from_config")]
    pub(crate) template: Option<Template>,
    #[arg(long, value_name = "FILE", help = from_config())]
    pub(crate) from_config: Option<PathBuf>,
    /// The name of the layer
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The chip: a built-in name, or a hardware file
    #[arg(long, value_name = "NAME|FILE", default_value = "tpu-v5p")]
    pub(crate) hardware: String,
    /// How many chips; without it, as few as hold weights and caches well
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) chips: Option<u32>,
    /// The mesh, as in `--mesh data=4,model=8`: the first axis is for the batch, the last for heads
    /// and d_ff
    #[arg(long, value_name = "AXES", conflicts_with = "chips")]
    pub(crate) mesh: Option<String>,
    /// Write to this file, and not to standard output
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
}

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
    let name = args.name.as_deref().unwrap_or(new_program::usual_name(&model));
    let formatted = new_program::file(&model, &axes, &hardware, &args.hardware, name, console)?;
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
    let chips = chips.map(u64::from);
    if let Some(axes) = mesh::choose(model, hardware, chips) {
        return Ok(axes);
    }
    let name = &hardware.name;
    let use_of_axes = "the first axis is for the batch, the last for heads and d_ff";
    let (message, help) = match chips {
        None => (
            format!("no mesh of `{name}` divides the heads and holds the model"),
            format!("--mesh x=2,y=4    ({use_of_axes})"),
        ),
        Some(chips) => match mesh::of_any_slice(model, chips) {
            Some(axes) => (
                format!("no mesh of {chips} chips that divides the heads is a slice of `{name}`"),
                format!("--mesh {}    (`check` says what is wrong with the slice)", axes.text()),
            ),
            None => {
                let split =
                    if model.attention().is_some() { "heads and d_ff" } else { "the inner dim" };
                (
                    format!(
                        "no part of {chips} chips but 1 divides {split} of the model, and no slice \
                         of `{name}` has them in one row"
                    ),
                    format!("--mesh x={chips}    (all of them for the batch)"),
                )
            }
        },
    };
    Err(console.usage(&message, Some(help)))
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

fn templates() -> impl TypedValueParser<Value = Template> {
    let values =
        Template::ALL.map(|template| PossibleValue::new(template.name()).help(template.about()));
    let named = |name: String| Template::ALL.into_iter().find(|template| template.name() == name);
    PossibleValuesParser::new(values)
        .try_map(move |name| named(name).ok_or("there is no such template"))
}

fn from_config() -> String {
    let types: Vec<&str> = shard_driver::new_program::config::types().collect();
    format!("The `config.json` of a Hugging Face model, of one of the types {}", types.join(", "))
}
