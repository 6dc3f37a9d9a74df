//! From a file on the command line to compiled layers.

use std::path::Path;

use shard_check::CheckOptions;
use shard_driver::{Compilation, CompileOptions, Outcome, Purpose, compile_input};
use shard_grammar::SourceFile;

use crate::args::ProgramArgs;
use crate::console::Console;
use crate::input::read_program;

/// Compiles a source file, or reads one of IR text.
pub(crate) fn compile_file(
    path: &Path,
    args: &ProgramArgs,
    purpose: Purpose,
    console: &mut Console,
) -> Outcome<Compilation> {
    let input = read_program(path, console)?;
    compile_input(path, input, &args.asked(console)?, purpose, console)
}

impl ProgramArgs {
    /// The options of a compilation, read from the words of the command line.
    pub(crate) fn asked(&self, console: &mut Console) -> Outcome<CompileOptions> {
        Ok(CompileOptions {
            layer: self.layer.clone(),
            phase: self.phase.clone(),
            check: check_options(self, console)?,
            hardware: self.hardware.clone(),
            objective: self.objective,
            memory_limit: self.memory_limit,
            fuse: self.fuse,
            two_kinds: self.two_kinds,
        })
    }
}

/// What the command line changes of a program.
pub(crate) fn check_options(args: &ProgramArgs, console: &mut Console) -> Outcome<CheckOptions> {
    let mut dim_overrides: Vec<(String, String)> = Vec::new();
    for text in &args.dims {
        match text.split_once('=') {
            Some((name, right)) => {
                let (name, right) = (name.trim(), right.trim());
                if let Some((_, before)) = dim_overrides.iter().find(|(known, _)| known == name) {
                    let message = format!("`-D` sets `{name}` twice, to {before} and to {right}");
                    return Err(console.usage(&message, Some(format!("-D '{name}={right}'"))));
                }
                dim_overrides.push((name.to_string(), right.to_string()))
            }
            None => {
                let message = format!("`-D {text}` is no new size of a dim");
                let meant = as_argument("dim", text);
                let help = format!("-D {}", meant.as_deref().unwrap_or("B=64"));
                return Err(console.usage(&message, Some(help)));
            }
        }
    }
    let mesh_override = args.mesh.as_ref().map(|text| read_mesh(text, console)).transpose()?;
    Ok(CheckOptions { dim_overrides, mesh_override, strict: args.strict })
}

/// The axes of a `--mesh`.
pub(crate) fn read_mesh(text: &str, console: &mut Console) -> Outcome<Vec<(String, u64)>> {
    match shard_grammar::parse_mesh_axes(text) {
        Ok(axes) => Ok(axes.into_iter().map(|axis| (axis.name.value, axis.size.value)).collect()),
        Err(error) => {
            let message = format!("`--mesh {text}` is no mesh: {error}");
            let meant = as_argument("mesh", text);
            let help = format!("--mesh {}", meant.as_deref().unwrap_or("x=8,y=8"));
            Err(console.usage(&message, Some(help)))
        }
    }
}

/// The argument that a text is meant to be: what the parser suggests for the line `keyword text`,
/// if it suggests such a line. It is quoted where a shell needs that.
fn as_argument(keyword: &str, text: &str) -> Option<String> {
    let line = SourceFile::new("", format!("{keyword} {text}"));
    let help = shard_grammar::parse(&line).errors.into_iter().next()?.help?;
    let meant = help.strip_prefix(keyword)?.trim().replace(" = ", "=").replace(", ", ",");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=,".contains(c);
    if meant.chars().all(is_plain) {
        return Some(meant);
    }
    // The suggestion may have more in parentheses, which is no part of the line.
    (!meant.contains(['(', '\n', '\''])).then(|| format!("'{meant}'"))
}
