//! What is wrong with a compiled program that is audited.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// Why an audit ends with an error.
#[derive(Clone, Debug, PartialEq)]
pub enum AuditProblem {
    /// A text that is no HLO, or no StableHLO, or is cut off.
    Unreadable {
        /// What was expected at the place, or what is wrong there.
        message: String,
        /// The place in the dump.
        span: Span,
        /// What writes such a text.
        help: Option<String>,
    },
    /// The devices send more bytes than `--max-bytes` allows.
    OverBudget {
        /// Bytes that a device sends, as a person reads them.
        sent: String,
        /// Bytes that it may send.
        budget: String,
        /// The line that sends most, with its bytes.
        most: Option<String>,
    },
}

impl From<AuditProblem> for Diagnostic {
    fn from(problem: AuditProblem) -> Diagnostic {
        match problem {
            AuditProblem::Unreadable { message, span, help } => {
                Diagnostic::error("E0880", message).at(span, "here").help_if(help)
            }
            AuditProblem::OverBudget { sent, budget, most } => {
                let message = format!("a device sends {sent}, and `--max-bytes` allows {budget}");
                let found = Diagnostic::error("E0881", message);
                match most {
                    Some(most) => found.note(format!("most is sent by {most}")),
                    None => found,
                }
            }
        }
    }
}
