//! `shardc trace FILE [-o OUT.json] [--emit json|text]`.

use shard_driver::Purpose;
use shard_report::paint::Paint;

use crate::args::{TraceArgs, TraceEmit};
use crate::commands::compile::compile_file;
use crate::commands::cost::width;
use crate::console::{Console, Outcome};
use crate::output::replace_text;

pub(crate) fn run(args: &TraceArgs, console: &mut Console) -> Outcome {
    let mut compilation = compile_file(&args.file, &args.program, Purpose::Report, console)?;
    compilation.notation = args.notation;
    let text = match args.emit {
        TraceEmit::Json => shard_report::json::trace::trace(&compilation.layers()),
        TraceEmit::Text => {
            compilation.escape();
            let paint = Paint(console.result_color && args.out.is_none());
            shard_report::timeline::timelines(&compilation.layers(), width(args.width), paint)
        }
    };
    let Some(path) = &args.out else {
        return match args.emit {
            TraceEmit::Json => console.result(&text),
            TraceEmit::Text => console.people(&text),
        };
    };
    match replace_text(path, &text) {
        Ok(()) => console.people(&format!("wrote {}\n", path.display())),
        Err(error) => {
            Err(console.usage(&format!("cannot write `{}`: {error}", path.display()), None))
        }
    }
}
