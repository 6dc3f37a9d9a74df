//! `shardc explain FILE --why-not WHAT`.

use shard_check::Diagnostic;
use shard_check::diagnostics::DimProblem;
use shard_check::names::nearest;
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
    if let Some(name) = &args.vary {
        let all = compilation.programs.iter().flat_map(|program| &program.dims);
        let mut known: Vec<String> = Vec::new();
        for dim in all {
            if !known.contains(&dim.name) {
                known.push(dim.name.clone());
            }
        }
        if !known.contains(name) {
            let near = nearest(name, known.iter().map(String::as_str)).map(str::to_string);
            let problem = DimProblem::UnknownVaried { name: name.clone(), near, known };
            console.report(None, vec![Diagnostic::from(problem)]);
            return Err(Status::Usage);
        }
    }
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
