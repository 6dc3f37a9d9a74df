//! `shardc lower FILE [--emit ir|json|dot]`.

use crate::args::{Emit, Format, LowerArgs};
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome};

pub(crate) fn run(args: &LowerArgs, console: &mut Console) -> Outcome {
    let emit = args.emit.unwrap_or(match console.format {
        Format::Text => Emit::Ir,
        Format::Json => Emit::Json,
    });
    let compilation = compile_file(&args.file, &args.program, console)?;
    let layers = compilation.layers();
    console.result(&match emit {
        Emit::Ir => {
            let plans: Vec<_> = layers.iter().map(|l| l.plan().clone()).collect();
            shard_ir::text::print_all(&plans)
        }
        Emit::Json => shard_report::json::explain::lower(&layers),
        Emit::Dot => shard_report::dot::dot(&layers.iter().map(|l| l.plan()).collect::<Vec<_>>()),
    })
}
