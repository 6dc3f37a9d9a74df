//! The commands, a file each; `compile` is what those that take a program share.

use std::path::PathBuf;

use crate::console::Outcome;

pub(crate) mod audit;
pub(crate) mod bound_only;
pub(crate) mod certificate;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod completions;
pub(crate) mod cost;
pub(crate) mod diff;
pub(crate) mod engine;
mod engine_sent;
pub(crate) mod explain;
pub(crate) mod explain_code;
pub(crate) mod export;
pub(crate) mod fmt;
pub(crate) mod hardware;
pub(crate) mod lower;
pub(crate) mod lsp;
pub(crate) mod man;
pub(crate) mod new;
pub(crate) mod run;
mod run_files;
pub(crate) mod snapshot;
pub(crate) mod sweep;
pub(crate) mod trace;
pub(crate) mod verify_certificate;
pub(crate) mod why;
pub(crate) mod why_not;

/// Does something with every file, and returns the worst outcome.
pub(crate) fn worst_of_all(files: &[PathBuf], one: impl FnMut(&PathBuf) -> Outcome) -> Outcome {
    files.iter().map(one).max().unwrap_or(Ok(()))
}
