//! Diagnostics of `snapshot --check`.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// What can be wrong with a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotProblem {
    /// There is no snapshot.
    Missing {
        /// The snapshot's file.
        snapshot: String,
        /// The command that takes it.
        command: String,
    },
    /// The plan differs from its snapshot.
    Differs {
        /// The snapshot's file.
        snapshot: String,
        /// The place in the source from which the first difference comes.
        span: Option<Span>,
        /// The number of lines that only the plan has, and the number that only the snapshot has.
        counts: (usize, usize),
        /// The difference, where it is not shown elsewhere.
        diff: Option<String>,
        /// The command that takes the plan as it is now.
        command: String,
    },
    /// The snapshot was taken with other options.
    OtherOptions {
        /// The snapshot's file.
        snapshot: String,
        /// Its options.
        recorded: String,
        /// The options now.
        given: String,
        /// The command that checks with the recorded ones.
        command: String,
    },
}

impl From<SnapshotProblem> for Diagnostic {
    fn from(problem: SnapshotProblem) -> Diagnostic {
        use SnapshotProblem::*;
        match problem {
            Missing { snapshot, command } => {
                Diagnostic::error("E0830", format!("there is no snapshot `{snapshot}`"))
                    .help(command)
            }
            Differs { snapshot, span, counts: (added, removed), diff, command } => {
                let out = Diagnostic::error(
                    "E0831",
                    format!("the plan differs from its snapshot `{snapshot}`"),
                )
                .at_if(span, "the first difference comes from here")
                .note(format!(
                    "{} in the plan alone, {} in the snapshot alone",
                    lines(added),
                    lines(removed)
                ));
                let out = match diff {
                    Some(diff) => out.note(diff),
                    None => out,
                };
                out.help(command)
            }
            OtherOptions { snapshot, recorded, given, command } => Diagnostic::error(
                "E0832",
                format!("the snapshot `{snapshot}` was taken with other options"),
            )
            .note(format!("it was taken with {recorded}, and this is checked with {given}"))
            .help(command),
        }
    }
}

fn lines(n: usize) -> String {
    format!("{n} line{}", if n == 1 { "" } else { "s" })
}
