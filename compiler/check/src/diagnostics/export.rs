//! What cannot be written as a program of another system.

use shard_grammar::Span;
use shard_ir::Dtype;

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
    /// An op on values of a dtype that PyTorch stores and does not compute with.
    Dtype {
        /// The layer.
        layer: String,
        /// The op.
        op: &'static str,
        /// The dtype.
        dtype: Dtype,
        /// The place in the source, where it is known.
        span: Option<Span>,
    },
}

impl From<ExportProblem> for Diagnostic {
    fn from(problem: ExportProblem) -> Diagnostic {
        match problem {
            ExportProblem::Einsum { layer, span } => {
                let message = format!(
                    "`{layer}` has an einsum of more than 52 dims, which Python cannot write"
                );
                Diagnostic::error("E0870", message)
                    .at_if(span, "this einsum")
                    .note(
                        "einsums of JAX and PyTorch have a letter for each dim, `a` to `z` and \
                         `A` to `Z`",
                    )
                    .help("two einsums of fewer operands each compute the same")
            }
            ExportProblem::Dtype { layer, op, dtype, span } => {
                let message =
                    format!("`{layer}` has `{op}` of {dtype}, which PyTorch does not compute");
                let wider = if dtype.is_float() { "bf16" } else { "int8" };
                let floats = if dtype.is_float() { "; or --dtype f32" } else { "" };
                Diagnostic::error("E0871", message)
                    .at_if(span, format!("`{op}` of {dtype}"))
                    .note(format!(
                        "PyTorch stores, moves and casts {dtype}, and has no `{op}` for it"
                    ))
                    .help(format!(
                        "cast({wider}, ..) of its operands, and cast({dtype}, ..) of it{floats}"
                    ))
            }
        }
    }
}
