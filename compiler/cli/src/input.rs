//! Reading files.

use std::io::Read;
use std::path::Path;

use shard_check::Diagnostic;
use shard_check::diagnostics::InputProblem;
use shard_grammar::SourceFile;
use shard_ir::Plan;

use crate::console::{Console, Outcome, Status};

/// The largest file that is read whole, certificates aside: nothing larger is legal.
const MAX_BYTES: usize = shard_ir::text::MAX_TEXT_BYTES;

/// A file of source, or one of IR text.
pub(crate) enum Input {
    /// A `.shard` file.
    Source(SourceFile),
    /// A `.shir` file: its plans, verified.
    Ir(Vec<Plan>),
}

/// Reads a text file, or standard input for `-`; reports why not.
pub(crate) fn read_text(path: &Path, console: &mut Console) -> Outcome<SourceFile> {
    read(path).map_err(|why| match path.as_os_str() == "-" {
        true => console.usage(&format!("cannot read standard input: {why}"), None),
        false => console.usage(&format!("cannot read `{}`: {why}", path.display()), None),
    })
}

/// Reads a text file, or standard input for `-`, or says why not.
pub(crate) fn read(path: &Path) -> Result<SourceFile, String> {
    read_at_most(path, MAX_BYTES)
}

/// Reads a text file that another file names, or that stands beside one: a regular file alone, since a pipe would be waited
/// for and a device never ends. What the command line names may be a pipe.
pub(crate) fn read_regular(path: &Path) -> Result<SourceFile, String> {
    match std::fs::metadata(path) {
        Err(error) => Err(error.to_string()),
        Ok(found) if found.is_dir() => Err("it is a folder".to_string()),
        Ok(found) if !found.is_file() => {
            Err("it is no regular file, and what another file names has to be one".to_string())
        }
        Ok(_) => {
            let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
            as_text(path, read_all(file, MAX_BYTES), MAX_BYTES)
        }
    }
}

/// Reads a text file of at most so many bytes.
pub(crate) fn read_at_most(path: &Path, most: usize) -> Result<SourceFile, String> {
    let bytes = match path.as_os_str() == "-" {
        true => read_all(std::io::stdin().lock(), most),
        false => std::fs::File::open(path).and_then(|file| read_all(file, most)),
    };
    as_text(path, bytes, most)
}

fn as_text(path: &Path, bytes: std::io::Result<Vec<u8>>, most: usize) -> Result<SourceFile, String> {
    let bytes = bytes.map_err(|error| error.to_string())?;
    if bytes.len() > most {
        return Err(format!("it is larger than {most} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_string())?;
    Ok(SourceFile::new(path.display().to_string(), text))
}

/// All bytes, and no more than one past the limit.
fn read_all(from: impl Read, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A text behind the header that a snapshot file has in front of it.
fn behind_header(text: &str) -> &str {
    let header = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    header.map_or(text, |(_, body)| body)
}

/// Reads source or IR text: `.shir` files, and any text that starts with `shir ` (a snapshot's header left out), are IR.
pub(crate) fn read_program(path: &Path, console: &mut Console) -> Outcome<Input> {
    let file = read_text(path, console)?;
    program_of(path, file, console)
}

/// Whether a text is JSON, such as `explain` writes: no source begins so, and no IR.
pub(crate) fn is_json(file: &SourceFile) -> bool {
    file.text.trim_start().starts_with('{')
}

/// The program in a text that was read.
pub(crate) fn program_of(path: &Path, file: SourceFile, console: &mut Console) -> Outcome<Input> {
    let body = behind_header(&file.text);
    let is_ir = path.extension().is_some_and(|e| e == "shir") || body.starts_with("shir ");
    if !is_ir {
        return Ok(Input::Source(file));
    }
    let file = SourceFile::new(file.name.clone(), body);
    let plans = match shard_ir::text::parse(&file.text) {
        Ok(plans) => plans,
        Err(error) => {
            let wrong = InputProblem::Unreadable { message: error.message, span: error.span };
            console.report(Some(&file), vec![wrong.into()]);
            return Err(Status::Wrong);
        }
    };
    let mut wrong: Vec<Diagnostic> = Vec::new();
    for plan in &plans {
        for error in shard_ir::verify::verify(plan).err().into_iter().flatten() {
            wrong.push(InputProblem::Illegal { layer: plan.name.clone(), error: error.to_string() }.into());
        }
    }
    if plans.is_empty() {
        wrong.push(InputProblem::NoLayer { file: file.name.clone(), is_ir: true }.into());
    }
    if wrong.is_empty() {
        return Ok(Input::Ir(plans));
    }
    console.report(None, wrong);
    Err(Status::Wrong)
}
