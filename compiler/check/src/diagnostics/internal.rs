//! Faults of the compiler itself.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// A fault of the compiler, found by a verifier between two passes or by a `never!`.
#[derive(Clone, Debug, PartialEq)]
pub struct InternalProblem {
    /// The pass that has the fault.
    pub pass: String,
    /// What does not hold.
    pub message: String,
    /// The place in the source, where it is known.
    pub span: Option<Span>,
}

impl From<InternalProblem> for Diagnostic {
    fn from(problem: InternalProblem) -> Diagnostic {
        Diagnostic::error(
            "E0901",
            format!("internal error in {}: {}", problem.pass, problem.message),
        )
        .at_if(problem.span, "while working on this")
        .note("this is a fault of shardc and not of your program")
        .help("please report it with the source file and the command line")
    }
}
