//! `shardc explain FILE`.

use crate::args::{ExplainArgs, Format};
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &ExplainArgs, console: &mut Console) -> Outcome {
    let compilation = compile_file(&args.file, &args.program, console)?;
    let layers = compilation.layers();
    console.result(&match console.format {
        Format::Text => shard_report::explain::explain(&layers),
        Format::Json => shard_report::json::explain::explain(&layers),
    })
}
