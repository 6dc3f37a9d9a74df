//! `shardc hardware [NAME]`.

use shard_cost::Hardware;
use shard_cost::hardware::{BUILT_IN, BuiltIn};

use crate::args::Format;
use crate::console::{Console, Outcome, Status};

/// `hardware`.
#[derive(Debug, clap::Args)]
pub(crate) struct HardwareArgs {
    /// A built-in chip, whose file is printed
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

pub(crate) fn run(args: &HardwareArgs, console: &mut Console) -> Outcome {
    let chips: Vec<&BuiltIn> =
        BUILT_IN.iter().filter(|c| args.name.as_ref().is_none_or(|n| c.name == n)).collect();
    match (console.format, &args.name, chips.as_slice()) {
        (_, Some(name), []) => {
            shard_driver::hardware_choice::report_unknown(name, console);
            Err(Status::Usage)
        }
        (Format::Json, _, chips) => {
            let read: Vec<(Hardware, &str)> =
                chips.iter().filter_map(|c| Some((Hardware::built_in(c.name)?, c.text))).collect();
            let read = read.iter().map(|(hardware, text)| (hardware, *text));
            console.result(&shard_report::json::hardware::hardware(read))
        }
        (Format::Text, Some(_), [chip, ..]) => console.result(chip.text),
        (Format::Text, _, chips) => {
            let width = chips.iter().map(|chip| chip.name.len()).max().unwrap_or(0);
            let line = |name: &str| {
                let source = Hardware::built_in(name).and_then(|hw| hw.source).unwrap_or_default();
                format!("{}\n", format!("{name:width$}  {source}").trim_end())
            };
            let lines: String = chips.iter().map(|chip| line(chip.name)).collect();
            console.result(&lines)
        }
    }
}
