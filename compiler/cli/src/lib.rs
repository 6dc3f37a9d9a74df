//! The `shardc` command line: a thin shell over [`shard_driver`]. Only this crate reads files and
//! writes to the terminal.
//!
//! `commands` has one file for each command, `lsp` the server for editors.

mod args;
mod command_line;
mod commands;
mod console;
mod input;
mod lsp;
mod memory_limit;
mod output;
mod points;
mod tensor_files;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use shard_driver::host;

use command_line::{Args, Command};
use console::{Console, Status};

/// Runs one command line and says how it ended: 0 fine, 1 the program is wrong or a check failed, 2
/// usage or I/O.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Help and version are results, the rest is usage.
            let status = console::print(&error).map_or(2, |()| error.exit_code());
            return ExitCode::from(u8::try_from(status).unwrap_or(2));
        }
    };
    let mut console = Console::new(&args.display, &args.search);
    let status = match &args.command {
        Command::Snapshot(_) if args.search.time_limit.is_some() => {
            let message =
                "`--time-limit` ends a search anywhere, and a snapshot is of what any run gives";
            Err(console.usage(message, None))
        }
        Command::Check(_) | Command::Snapshot(_) => console.require_no_csv(),
        Command::Sweep(_) => console.require_a_format_of_results(),
        Command::New(_)
        | Command::Fmt(_)
        | Command::Explain(_)
        | Command::Cost(_)
        | Command::Diff(_)
        | Command::Lower(_)
        | Command::Trace(_)
        | Command::VerifyCertificate(_)
        | Command::ExplainCode(_)
        | Command::Run(_)
        | Command::Export(_)
        | Command::Audit(_)
        | Command::Hardware(_)
        | Command::Lsp
        | Command::Completions(_)
        | Command::Man(_) => {
            console.require_a_format_of_results().and_then(|()| console.require_no_csv())
        }
    };
    let status = status.and_then(|()| match &args.command {
        Command::New(args) => commands::new::run(args, &mut console),
        Command::Check(args) => commands::check::run(args, &mut console),
        Command::Snapshot(args) => commands::snapshot::run(args, &mut console),
        Command::Fmt(args) => commands::fmt::run(args, &mut console),
        Command::Explain(args) => commands::explain::run(args, &mut console),
        Command::Cost(args) => commands::cost::run(args, &mut console),
        Command::Sweep(args) => commands::sweep::run(args, &mut console),
        Command::Diff(args) => commands::diff::run(args, &mut console),
        Command::Lower(args) => commands::lower::run(args, &mut console),
        Command::Trace(args) => commands::trace::run(args, &mut console),
        Command::VerifyCertificate(args) => commands::verify_certificate::run(args, &mut console),
        Command::ExplainCode(args) => commands::explain_code::run(args, &mut console),
        Command::Run(args) => commands::run::run(args, &mut console),
        Command::Export(args) => commands::export::run(args, &mut console),
        Command::Audit(args) => commands::audit::run(args, &mut console),
        Command::Hardware(args) => commands::hardware::run(args, &mut console),
        Command::Lsp => commands::lsp::run(),
        Command::Completions(args) => commands::completions::run(args, &mut console),
        Command::Man(args) => commands::man::run(args, &mut console),
    });
    let defects = host::defects();
    let status = if defects.is_empty() { status } else { status.and(Err(Status::Wrong)) };
    console.report(None, defects);
    // Where the result could not be printed, what it says does not matter.
    let status = console.finish().and(status);
    ExitCode::from(match status {
        Ok(()) => 0,
        Err(Status::Wrong) => 1,
        Err(Status::Usage) => 2,
    })
}
