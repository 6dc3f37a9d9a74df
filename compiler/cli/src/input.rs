//! Reading files.

use std::io::Read;
use std::path::Path;

use shard_driver::input::{Input, program_of};
use shard_driver::{Named, Outcome};
use shard_grammar::SourceFile;

use crate::console::Console;

/// The largest file that is read whole, certificates aside: nothing larger is legal.
const MAX_BYTES: usize = shard_ir::text::MAX_TEXT_BYTES;

/// Reads a text file, or standard input for `-`; reports why not.
pub(crate) fn read_text(path: &Path, console: &mut Console) -> Outcome<SourceFile> {
    read(path).map_err(|why| {
        if path.as_os_str() == "-" {
            console.usage(&format!("cannot read standard input: {why}"), None)
        } else {
            console.usage(&format!("cannot read `{}`: {why}", path.display()), None)
        }
    })
}

/// Reads a text file, or standard input for `-`, or says why not.
pub(crate) fn read(path: &Path) -> Result<SourceFile, String> {
    read_at_most(path, MAX_BYTES)
}

/// Reads a text file as whoever names it may have it read.
pub(crate) fn read_named(path: &Path, by: Named) -> Result<SourceFile, String> {
    match by {
        Named::ByUser => read(path),
        Named::InFile => read_regular(path),
    }
}

/// Reads a text file that another file names, or that stands beside one: a regular file alone,
/// since a pipe would be waited for and a device never ends. What the command line names may be a
/// pipe.
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
    let bytes = if path.as_os_str() == "-" {
        read_all(std::io::stdin().lock(), most)
    } else {
        std::fs::File::open(path).and_then(|file| read_all(file, most))
    };
    as_text(path, bytes, most)
}

fn as_text(
    path: &Path,
    bytes: std::io::Result<Vec<u8>>,
    most: usize,
) -> Result<SourceFile, String> {
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

/// Reads source or IR text: `.shir` files, and any text that starts with `shir ` (a snapshot's
/// header left out), are IR.
pub(crate) fn read_program(path: &Path, console: &mut Console) -> Outcome<Input> {
    let file = read_text(path, console)?;
    program_of(path, file, console)
}
