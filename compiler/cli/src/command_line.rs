//! The command line as data: the commands, each with the arguments that its own file declares.

use clap::{Parser, Subcommand};

use crate::args::{DisplayArgs, SearchArgs};
use crate::commands::{
    audit, check, completions, cost, diff, explain, explain_code, export, fmt, hardware, lower,
    man, new, run, snapshot, sweep, trace, verify_certificate,
};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "shardc", version, max_term_width = 100)]
#[command(about = "Lowers sharded tensor programs to per-device ops and collectives, and explains \
    them", long_about = None)]
#[command(
    after_help = "Exit status: 0 fine, 1 the program is wrong or a check failed, 2 usage or \
        I/O.\n`-` as a FILE reads standard input."
)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) display: DisplayArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a layer from a template, or from the configuration of a model
    New(new::NewArgs),
    /// Print diagnostics, and nothing else
    Check(check::CheckArgs),
    /// Compare lowered programs with their snapshots
    Snapshot(snapshot::SnapshotArgs),
    /// Format files in place
    Fmt(fmt::FmtArgs),
    /// Show what each layer is lowered to, what it costs, and why
    Explain(explain::ExplainArgs),
    /// Show what each step costs, where the time goes, what is in memory and how well the chips are
    /// used
    Cost(cost::CostArgs),
    /// Compute the cost over ranges of dims and meshes, one row a point
    Sweep(sweep::SweepArgs),
    /// Show what differs between two plans: two files, two meshes, two sizes, or a plan of before
    Diff(diff::DiffArgs),
    /// Print the lowered program as IR text, JSON or a graph
    Lower(lower::LowerArgs),
    /// Write when each step runs, on which stream and beside what: a trace for Perfetto or Chrome,
    /// or text
    Trace(trace::TraceArgs),
    /// Check a certificate that no plan takes less time than the one in it
    VerifyCertificate(verify_certificate::VerifyCertificateArgs),
    /// Print the page of a diagnostic: what it means, an example, and how to mend it
    ExplainCode(explain_code::ExplainCodeArgs),
    /// Execute the lowered program on simulated devices and compare it with the unsharded one
    Run(run::RunArgs),
    /// Write the plan as a program of another system
    Export(export::ExportArgs),
    /// Show what a program that XLA compiled sends, line by line, and what it need not
    Audit(audit::AuditArgs),
    /// List the built-in chips, or print the hardware file of one
    Hardware(hardware::HardwareArgs),
    /// Serve an editor over standard input and output, by the language server protocol
    Lsp,
    /// Print a shell's completions
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    Man(man::ManArgs),
}
