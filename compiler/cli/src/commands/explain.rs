//! `shardc explain FILE`.

use crate::args::{ExplainArgs, Format};
use crate::commands::certificate;
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &ExplainArgs, console: &mut Console) -> Outcome {
    let mut compilation = compile_file(&args.file, &args.program, console)?;
    if !args.no_alternatives {
        compilation.ask_for_alternatives(console)?;
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
