//! Tests of the command line: each runs the binary.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

#![allow(missing_docs, unreachable_pub)]

mod audit;
mod bound_only;
mod certificates;
mod certificates_of_examples;
mod command_line;
mod common;
mod diagnostic_formats;
mod engines;
mod expectations;
mod export;
#[cfg(unix)]
mod files_of_strangers;
mod html;
mod ir_text;
mod json_output;
#[cfg(unix)]
mod long_runs;
mod lsp;
mod memory;
mod models;
mod new;
mod notations;
mod objectives;
mod padding;
mod questions;
mod recorded_plans;
mod reports;
mod scales;
mod schedules;
mod snapshots;
mod striped;
mod two_kinds;
