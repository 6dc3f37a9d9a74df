//! `shardc explain FILE`.

use shard_rewrite::Detail;

use crate::args::{Alternatives, ExplainArgs, Format};
use crate::commands::certificate;
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &ExplainArgs, console: &mut Console) -> Outcome {
    let mut compilation = compile_file(&args.file, &args.program, console)?;
    match args.alternatives {
        Some(Alternatives::None) => {}
        _ if args.no_alternatives => {}
        Some(Alternatives::Plans) => compilation.ask_for_alternatives(Some(Detail::Plans), console)?,
        Some(Alternatives::Bounds) => compilation.ask_for_alternatives(Some(Detail::Bounds), console)?,
        None => compilation.ask_for_alternatives(None, console)?,
    }
    if let Some(out) = &args.certificate {
        certificate::write(out, &compilation, &args.program, console)?;
    }
    let layers = compilation.layers();
    console.result(&match console.format {
        Format::Text => shard_report::explain::explain(&layers),
        Format::Json => shard_report::json::explain::explain(&layers),
    })
}
