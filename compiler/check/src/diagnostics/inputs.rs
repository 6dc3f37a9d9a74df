//! Files that hold nothing to lower, and IR text that is wrong.

use shard_grammar::Span;

use super::words::bytes;
use crate::Diagnostic;

/// What is wrong with a file as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum InputProblem {
    /// A file without a layer, where a plan is asked for.
    NoLayer {
        /// The file.
        file: String,
        /// Whether it is IR text.
        is_ir: bool,
    },
    /// IR text that cannot be read.
    Unreadable {
        /// What is wrong.
        message: String,
        /// Where.
        span: Span,
    },
    /// IR text that is no legal plan.
    Illegal {
        /// The layer.
        layer: String,
        /// What the verifier says.
        error: String,
    },
    /// A plan of IR text that needs more memory than `--memory-limit` allows.
    NoRoom {
        /// The layer.
        layer: String,
        /// Its phase, if it has one.
        phase: Option<String>,
        /// What a device holds at the peak.
        peak: u64,
        /// The limit.
        limit: u64,
    },
}

impl From<InputProblem> for Diagnostic {
    fn from(problem: InputProblem) -> Diagnostic {
        use InputProblem::*;
        match problem {
            NoLayer { file, is_ir } => {
                let help = if is_ir {
                    "shardc lower FILE > PLAN.shir    (IR text is made from a source file)"
                } else {
                    "layer f(x: bf16 BE, w: weight bf16 EF) -> bf16 BF { return einsum(x, w -> \
                        BF) }"
                };
                Diagnostic::error(
                    "E0613",
                    format!("`{file}` has no layer, so there is nothing to lower"),
                )
                .help(help)
            }
            Unreadable { message, span } => Diagnostic::error("E0860", message)
                .at(span, "here")
                .help("shardc lower FILE > PLAN.shir    (IR text is made from a source file)"),
            Illegal { layer, error } => Diagnostic::error(
                "E0861",
                format!("layer `{layer}` is not a legal plan: {error}"),
            )
            .note(
                "every instruction is typed anew from its operands, and what is written has to \
                be what comes out",
            )
            .help("shardc lower FILE > PLAN.shir    (IR text is made from a source file)"),
            NoRoom { layer, phase, peak, limit } => {
                let phase = phase.map_or(String::new(), |phase| format!(" in phase `{phase}`"));
                let (holds, has) = (bytes(peak), bytes(limit));
                let over = bytes(peak.saturating_sub(limit));
                Diagnostic::error(
                    "E0862",
                    format!("the plan of `{layer}`{phase} has no room in {has}: it holds {holds}"),
                )
                .note(format!(
                    "the program has {has} of a chip (--memory-limit); that is {over} too much, \
                        and IR text is one plan: no other is looked for"
                ))
                .help(format!("--memory-limit {peak}    (what this plan holds at its peak)"))
                .help(format!(
                    "shardc lower FILE --memory-limit {limit} > PLAN.shir    (a plan of the source \
                        file that has room, where there is one)"
                ))
            }
        }
    }
}
