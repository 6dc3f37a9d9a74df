//! `shardc explain FILE --why-not WHAT`.

use shard_check::Diagnostic;
use shard_driver::{Compilation, CompileOptions, Outcome, Status, questions};
use shard_report::json::why_not::json;
use shard_report::why_not::why_not;

use crate::args::Format;
use crate::commands::cost::width;
use crate::commands::explain::ExplainArgs;
use crate::console::Console;

pub(crate) fn run(
    args: &ExplainArgs,
    question: &str,
    asked: &CompileOptions,
    compilation: &Compilation,
    console: &mut Console,
) -> Outcome {
    let Some(source) = &compilation.source else {
        return Err(console.usage(
            "IR text is one plan: `--why-not` takes a source file, which has others",
            None,
        ));
    };
    let answers =
        questions::why_not::why_not(compilation, source, asked, question, args.vary.as_deref());
    let answers = answers.map_err(|problem| {
        console.report(None, vec![Diagnostic::from(problem)]);
        Status::Usage
    })?;
    match console.format {
        Format::Text => console.people(&why_not(&answers.reported(), width(args.width))),
        Format::Json => console.result(&json(&answers.reported())),
    }
}
