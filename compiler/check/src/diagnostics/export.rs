//! What cannot be written as a program of another system.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// Why a plan is not exported.
#[derive(Clone, Debug, PartialEq)]
pub enum ExportProblem {
    /// An einsum over more dims than there are letters.
    Einsum {
        /// The layer.
        layer: String,
        /// The place in the source, where it is known.
        span: Option<Span>,
    },
}

impl From<ExportProblem> for Diagnostic {
    fn from(problem: ExportProblem) -> Diagnostic {
        match problem {
            ExportProblem::Einsum { layer, span } => {
                let message =
                    format!("`{layer}` has an einsum of more than 52 dims, which JAX cannot write");
                Diagnostic::error("E0870", message)
                    .at_if(span, "this einsum")
                    .note("an einsum of JAX has a letter for each dim, `a` to `z` and `A` to `Z`")
                    .help("two einsums of fewer operands each compute the same")
            }
        }
    }
}
