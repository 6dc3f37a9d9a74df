//! Files that hold nothing to lower, and IR text that is wrong.

use shard_grammar::Span;

use crate::Diagnostic;

/// What is wrong with a file as a whole.
#[derive(Clone, Debug, PartialEq)]
pub enum InputProblem {
    /// A file without a layer, where a plan is asked for.
    NoLayer {
        /// The file.
        file: String,
        /// It is IR text.
        is_ir: bool,
    },
    /// IR text that cannot be read.
    Unreadable {
        /// What is wrong.
        message: String,
        /// Where.
        span: Span,
    },
    /// IR text that says what no plan does.
    Illegal {
        /// The layer.
        layer: String,
        /// What the verifier says.
        error: String,
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
        }
    }
}
