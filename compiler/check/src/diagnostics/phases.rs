//! Phases.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// What can be wrong with a phase.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseProblem {
    /// A phase declared twice.
    Duplicate {
        /// The phase.
        name: String,
        /// The second one.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// A size of a dim that the file does not declare.
    UnknownDim {
        /// The name.
        dim: String,
        /// Where it stands.
        span: Span,
        /// The nearest dim.
        near: Option<String>,
        /// The size it would have.
        value: String,
        /// Where a line for it could be put.
        insert_at: usize,
    },
    /// A dim twice in one phase.
    SizeTwice {
        /// The dim.
        dim: String,
        /// The phase.
        phase: String,
        /// The second mention.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// A phase of which a request takes no step.
    RepeatZero {
        /// The number.
        span: Span,
    },
    /// A weight whose size is not the same in all phases.
    WeightChangesSize {
        /// The weight.
        weight: String,
        /// Its type.
        span: Span,
        /// The dim.
        dim: String,
        /// Two phases and the dim's size in each.
        sizes: [(String, u64); 2],
    },
}

impl From<PhaseProblem> for Diagnostic {
    fn from(problem: PhaseProblem) -> Diagnostic {
        use PhaseProblem::*;
        match problem {
            Duplicate { name, span, first } => {
                Diagnostic::error("E0620", format!("phase `{name}` is declared twice"))
                    .at(span, "again")
                    .also(first, "first")
                    .mend(format!("{name}2"), span, format!("{name}2"))
            }
            UnknownDim { dim, span, near, value, insert_at } => {
                let out = Diagnostic::error(
                    "E0621",
                    format!("there is no dim `{dim}` whose size a phase could state"),
                )
                .at(span, "unknown dim")
                .note("a phase replaces the right side of a `dim` line");
                match near {
                    Some(near) => out.mend(near.clone(), span, near),
                    None => {
                        let line = format!("dim {dim} = {value}");
                        out.mend(
                            format!("{line}    (a line of its own)"),
                            Span::at(insert_at),
                            format!("{line}\n"),
                        )
                    }
                }
            }
            SizeTwice { dim, phase, span, first } => Diagnostic::error(
                "E0622",
                format!("phase `{phase}` states the size of `{dim}` twice"),
            )
            .at(span, "again")
            .also(first, "first")
            .help("one of the two"),
            RepeatZero { span } => {
                Diagnostic::error("E0623", "a request takes at least one step of a phase")
                    .at(span, "zero steps")
                    .mend("repeat 1", span, "1")
            }
            WeightChangesSize { weight, span, dim, sizes: [(p, m), (q, n)] } => Diagnostic::error(
                "E0624",
                format!("weight `{weight}` would change its size from phase to phase"),
            )
            .at(span, format!("`{dim}` is {m} in `{p}` and {n} in `{q}`"))
            .note("a weight is stored once, in one layout, for all phases")
            .help(format!(
                "a second dim for what `{weight}` has, or no `weight` where it is given \
                            anew at each step"
            )),
        }
    }
}
