//! `shardc explain FILE --certificate OUT`.

use std::path::Path;

use shard_driver::{Compilation, CompileOptions, Outcome};

use crate::console::Console;
use crate::output;

/// Writes the certificate of compiled layers.
pub(crate) fn write(
    out: &Path,
    compilation: &Compilation,
    asked: &CompileOptions,
    console: &mut Console,
) -> Outcome {
    let text = shard_driver::certificate::certificate(compilation, asked, console)?;
    output::replace_text(out, &text)
        .map_err(|why| console.usage(&format!("cannot write `{}`: {why}", out.display()), None))
}
