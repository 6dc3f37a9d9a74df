//! `shardc hardware [NAME]`.

use shard_cost::Hardware;
use shard_cost::hardware::BUILT_IN;

use crate::args::HardwareArgs;
use crate::console::{Console, Outcome, Status};

pub(crate) fn run(args: &HardwareArgs, console: &mut Console) -> Outcome {
    match &args.name {
        None => {
            let width = BUILT_IN.iter().map(|chip| chip.name.len()).max().unwrap_or(0);
            let line = |name: &str| {
                let source = Hardware::built_in(name).and_then(|hw| hw.source).unwrap_or_default();
                format!("{}\n", format!("{name:width$}  {source}").trim_end())
            };
            let lines: String = BUILT_IN.iter().map(|chip| line(chip.name)).collect();
            console.result(&lines)
        }
        Some(name) => match BUILT_IN.iter().find(|chip| chip.name == name) {
            Some(chip) => console.result(chip.text),
            None => {
                crate::hardware_choice::report_unknown(name, console);
                Err(Status::Usage)
            }
        },
    }
}
