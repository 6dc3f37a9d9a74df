//! Questions about a plan: what it is as a strict file, why it is so, and why it is not otherwise.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// A question that has no answer.
#[derive(Clone, Debug, PartialEq)]
pub enum QuestionProblem {
    /// A plan that no strict layer states.
    NotExplicit {
        /// The layer.
        layer: String,
        /// Its name in the source.
        span: Option<Span>,
        /// What comes out otherwise.
        reason: String,
    },
    /// A value or instruction that the layer does not have.
    NoSuch {
        /// What was asked for: `value hh`.
        asked: String,
        /// The layer.
        layer: String,
        /// The nearest name, or what there is.
        help: Option<String>,
    },
    /// A request that no plan can meet.
    Impossible {
        /// The request.
        asked: String,
        /// Why not, one clause.
        reason: String,
        /// A request that can be met.
        help: Option<String>,
    },
    /// A strategy that none of the plans has that were tried.
    Unfound {
        /// The strategy.
        asked: String,
        /// Which strategies they have instead, one clause.
        reason: String,
        /// A request that can be met.
        help: Option<String>,
    },
    /// A request that no best plan meets: wherever it could be met, another move is no dearer.
    Beaten {
        /// The request.
        asked: String,
        /// In how many places it was tried.
        ways: usize,
    },
    /// A question that cannot be read.
    Unreadable {
        /// The request.
        asked: String,
        /// What is wrong with it.
        reason: String,
        /// What can be typed.
        help: Option<String>,
    },
}

impl From<QuestionProblem> for Diagnostic {
    fn from(problem: QuestionProblem) -> Diagnostic {
        use QuestionProblem::*;
        let helped = |out: Diagnostic, help: Option<String>| match help {
            Some(help) => out.help(help),
            None => out,
        };
        match problem {
            NotExplicit { layer, span, reason } => {
                let out = Diagnostic::error(
                    "E0820",
                    format!("the plan of `{layer}` cannot be written as a strict layer"),
                )
                .note(reason)
                .help("shardc lower FILE    (the plan as IR text, which states every plan)");
                match span {
                    Some(span) => out.at(span, "its plan"),
                    None => out,
                }
            }
            NoSuch { asked, layer, help } => {
                helped(Diagnostic::error("E0821", format!("`{layer}` has no {asked}")), help)
            }
            Impossible { asked, reason, help } => {
                helped(Diagnostic::error("E0822", format!("no plan has {asked}: {reason}")), help)
            }
            Unfound { asked, reason, help } => {
                let message = format!("no plan was found that has {asked}: {reason}");
                helped(Diagnostic::error("E0822", message), help)
            }
            Beaten { asked, ways } => {
                let tried = if ways == 1 {
                    "the one place".to_string()
                } else {
                    format!("each of the {ways} places")
                };
                let message = format!(
                    "no best plan has {asked}: in {tried} where it could be, other moves take no \
                        longer"
                );
                Diagnostic::error("E0822", message)
                    .note(
                        "a plan with it may exist; it is dearer, or no cheaper, than one that \
                        moves the value otherwise",
                    )
                    .help("shardc explain FILE    (the moves that are taken, and what they cost)")
            }
            Unreadable { asked, reason, help } => helped(
                Diagnostic::error(
                    "E0823",
                    format!("`{asked}` is no question that can be answered: {reason}"),
                ),
                help,
            ),
        }
    }
}
