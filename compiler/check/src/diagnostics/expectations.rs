//! `expect` statements that make no sense, or that a plan does not meet.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;
use crate::expectations::{STRATEGIES, Unit};

/// What can be wrong with an expectation.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectationProblem {
    /// An expectation of something that is not measured.
    UnknownMeasure {
        /// The word.
        name: String,
        /// Its place.
        span: Span,
        /// The nearest measure.
        near: Option<String>,
    },
    /// An expectation with an amount that its measure cannot have.
    WrongUnit {
        /// The measure as written.
        measure: String,
        /// What it is counted in.
        unit: Unit,
        /// The amount.
        span: Span,
        /// An amount that it can have.
        mended: String,
        /// The claim with that amount.
        line: String,
    },
    /// An expectation of one value about a figure of the whole layer.
    OfTheLayer {
        /// The measure as written.
        measure: String,
        /// The value.
        value: String,
        /// From behind the measure to the end of the value.
        span: Span,
        /// The claim without the value.
        line: String,
    },
    /// An expectation of a strategy that does not exist.
    UnknownStrategy {
        /// The word.
        name: String,
        /// Its place.
        span: Span,
        /// The nearest strategy.
        near: Option<String>,
    },
    /// An expectation that the plan does not meet.
    Unmet {
        /// The claim as written: `comm <= 40us`.
        claim: String,
        /// The statement.
        span: Span,
        /// What the plan has: `59 us`, `3`.
        found: String,
        /// The places in the source that cause the figure, each with its share as text.
        causes: Vec<(Span, String)>,
        /// A claim that holds.
        holds: String,
    },
}

impl From<ExpectationProblem> for Diagnostic {
    fn from(problem: ExpectationProblem) -> Diagnostic {
        use ExpectationProblem::*;
        match problem {
            UnknownMeasure { name, span, near } => {
                let out = Diagnostic::error(
                    "E0833",
                    format!("`{name}` is nothing that can be expected of a plan"),
                )
                .at(span, "not measured")
                .note(
                    "measured are comm, serial-time, peak-memory, wire-bytes, collectives, \
                            and the number of any op: \
                         all-gathers, einsums, ...",
                );
                match near {
                    Some(near) => out.mend(near.clone(), span, near),
                    None => out.help("expect comm <= 40us"),
                }
            }
            WrongUnit { measure, unit, span, mended, line } => {
                let (what, units) = match unit {
                    Unit::Time => ("a time", "in ps, ns, us, ms or s"),
                    Unit::Bytes => {
                        ("a number of bytes", "in B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
                    }
                    Unit::Count => ("a number of instructions", "a whole number without a unit"),
                };
                Diagnostic::error("E0834", format!("`{measure}` is {what}, and this is none"))
                    .at(span, units)
                    .mend(format!("expect {line}"), span, mended)
            }
            OfTheLayer { measure, value, span, line } => Diagnostic::error(
                "E0835",
                format!("`{measure}` is a figure of the whole layer, not of `{value}`"),
            )
            .at(span, "says nothing")
            .mend(format!("expect {line}"), span, ""),
            UnknownStrategy { name, span, near } => {
                let out = Diagnostic::error("E0836", format!("no strategy is called `{name}`"))
                    .at(span, "unknown strategy")
                    .note(format!("the strategies are {}", STRATEGIES.join(", ")));
                match near {
                    Some(near) => out.mend(near.clone(), span, near),
                    None => out.help("expect strategy 2d-weight-stationary"),
                }
            }
            Unmet { claim, span, found, causes, holds } => {
                let mut out =
                    Diagnostic::error("E0837", format!("the plan does not meet `expect {claim}`"))
                        .at(span, format!("the plan has {found}"));
                for (span, text) in causes {
                    out = out.also(span, text);
                }
                out.mend(format!("expect {holds}"), span, format!("expect {holds}"))
            }
        }
    }
}
