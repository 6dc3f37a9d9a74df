//! `shardc explain FILE --why NAME|ID`.

use shard_check::Diagnostic;
use shard_driver::{Compilation, Outcome, Status, questions};
use shard_report::json::why::json;
use shard_report::why::why;

use crate::args::Format;
use crate::commands::cost::width;
use crate::commands::explain::ExplainArgs;
use crate::console::Console;

pub(crate) fn run(
    args: &ExplainArgs,
    asked: &str,
    compilation: &Compilation,
    console: &mut Console,
) -> Outcome {
    let answers = questions::why::why(asked, compilation).map_err(|problem| {
        console.report(None, vec![Diagnostic::from(problem)]);
        Status::Usage
    })?;
    match console.format {
        Format::Text => {
            console.people(&why(&answers, width(args.width), console.colours_results()))
        }
        Format::Json => console.result(&json(&answers)),
    }
}
