//! `shardc explain FILE [--emit text|json|html|dot]`.

use shard_cost::Objective;
use shard_driver::Purpose;
use shard_search::Detail;

use crate::args::{Alternatives, ExplainArgs, ExplainEmit, Format};
use crate::commands::compile::compile_file;
use crate::commands::cost::width;
use crate::commands::{bound_only, certificate, why, why_not};
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &ExplainArgs, console: &mut Console) -> Outcome {
    let emit = args.emit.unwrap_or(match console.format {
        Format::Text => ExplainEmit::Text,
        Format::Json => ExplainEmit::Json,
    });
    if args.bound_only {
        let json = match emit {
            ExplainEmit::Text => false,
            ExplainEmit::Json => true,
            ExplainEmit::Html | ExplainEmit::Dot => return Err(bound_only::no_picture(console)),
        };
        return bound_only::run(&args.file, &args.program, json, args.width, console);
    }
    let mut compilation = compile_file(&args.file, &args.program, Purpose::Report, console)?;
    compilation.notation = args.notation;
    let is_sum = matches!(args.program.objective, Objective::Serial | Objective::Comm);
    if !is_sum && (args.why.is_some() || args.why_not.is_some()) {
        let message = format!(
            "why and why not are answered for sums over steps, and `{}` is none",
            args.program.objective
        );
        return Err(console.usage(&message, Some("--objective serial".to_string())));
    }
    if let Some(asked) = &args.why_not {
        let options = args.program.asked(console)?;
        let pass = console.watch.begin("question", "what --why-not asks".to_string(), (1, 1));
        compilation.options.limits.stop = pass.stop();
        return why_not::run(args, asked, &options, &compilation, console);
    }
    match args.alternatives {
        Some(Alternatives::None) => {}
        // A graph has no room for what was not chosen.
        _ if args.no_alternatives || emit == ExplainEmit::Dot => {}
        Some(Alternatives::Plans) => {
            compilation.ask_for_alternatives(Some(Detail::Plans), console)?
        }
        Some(Alternatives::Bounds) => {
            compilation.ask_for_alternatives(Some(Detail::Bounds), console)?
        }
        None if args.why.is_some() => {
            compilation.ask_for_alternatives(Some(Detail::Plans), console)?
        }
        None => compilation.ask_for_alternatives(None, console)?,
    }
    if let Some(out) = &args.certificate {
        let _pass = console.watch.begin("certificate", "the certificate".to_string(), (0, 1));
        let options = args.program.asked(console)?;
        certificate::write(out, &compilation, &options, console)?;
    }
    if emit == ExplainEmit::Text {
        compilation.escape();
    }
    if let Some(asked) = &args.why {
        let pass = console.watch.begin("question", "what --why asks".to_string(), (1, 1));
        compilation.options.limits.stop = pass.stop();
        return why::run(args, asked, &compilation, console);
    }
    let layers = compilation.layers();
    match emit {
        ExplainEmit::Text => {
            console.people(&shard_report::explain::explain_within(&layers, width(args.width)))
        }
        ExplainEmit::Json => console.result(&shard_report::json::explain::explain(&layers)),
        ExplainEmit::Html => console.result(&shard_report::html::html(&layers)),
        ExplainEmit::Dot => console.result(&shard_report::dot::dot(&layers)),
    }
}
