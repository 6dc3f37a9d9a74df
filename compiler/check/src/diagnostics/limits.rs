//! The limits of a program. A program past one of them gets an error, and never makes the compiler
//! panic, hang or run out of memory.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// How many layers a file may have.
pub const MAX_LAYERS: usize = 128;

/// How many phases a file may have.
pub const MAX_PHASES: usize = 16;

/// How many kinds of layers a stack may have.
pub const MAX_KINDS: usize = 16;

/// How deep calls may be nested.
pub const MAX_CALL_DEPTH: usize = 16;

/// How many values all programs of a file may have together, calls inlined.
pub const MAX_FILE_VALUES: usize = 1 << 16;

/// How many combinations of indices an einsum may run over. Below this its flops, and the elements
/// of its intermediates, fit in `u64`.
pub const MAX_ITERATIONS: u64 = 1 << 62;

/// How many operands an einsum may have. The cheapest chain of two-operand einsums is looked for
/// among all chains, whose number grows fast.
pub const MAX_EINSUM_OPERANDS: usize = 8;

/// How many errors of a file are reported, and how many warnings.
pub const MAX_DIAGNOSTICS: usize = 100;

/// How many places of one wrong name are shown; the others are counted.
pub const MAX_PLACES: usize = 10;

/// How many places of one wrong name the edits of its help change.
pub const MAX_EDITS: usize = 128;

/// A limit that a program passes.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitProblem {
    /// Too many values, calls inlined.
    Values {
        /// The layer, or `the file`.
        what: String,
        /// The limit.
        limit: usize,
        /// The call or expression that is one too many.
        span: Span,
    },
    /// A tensor of too many dims.
    Rank {
        /// How many it has.
        found: usize,
        /// The limit.
        limit: usize,
        /// The type or expression.
        span: Span,
    },
    /// A tensor of too many elements.
    Elements {
        /// Its dims.
        dims: String,
        /// The limit.
        limit: u64,
        /// The type or expression.
        span: Span,
    },
    /// An einsum that runs over too many combinations of indices.
    Iterations {
        /// The limit.
        limit: u64,
        /// The einsum.
        span: Span,
    },
    /// An einsum of too many operands.
    Operands {
        /// How many it has.
        found: usize,
        /// The limit.
        limit: usize,
        /// The einsum.
        span: Span,
    },
    /// Too many dims in the file.
    Dims {
        /// The limit.
        limit: usize,
        /// The first that is too many.
        span: Span,
    },
    /// Too many layers in the file.
    Layers {
        /// The limit.
        limit: usize,
        /// The first that is too many.
        span: Span,
    },
    /// Too many phases in the file.
    Phases {
        /// The limit.
        limit: usize,
        /// The first that is too many.
        span: Span,
    },
    /// Too many kinds of layers in a stack.
    Kinds {
        /// The limit.
        limit: usize,
        /// The first that is too many.
        span: Span,
    },
    /// Calls nested too deep.
    CallDepth {
        /// The limit.
        limit: usize,
        /// The call.
        span: Span,
    },
    /// A layer of which every plan takes longer than times can be counted.
    Time {
        /// The layer.
        layer: String,
        /// The limit, in seconds.
        seconds: f64,
        /// Its header.
        span: Span,
    },
    /// More is wrong than is reported.
    Diagnostics {
        /// The limit.
        limit: usize,
    },
}

impl From<LimitProblem> for Diagnostic {
    fn from(problem: LimitProblem) -> Diagnostic {
        use LimitProblem::*;
        match problem {
            Values { what, limit, span } => Diagnostic::error(
                "E0803",
                format!("{what} has more than {limit} values, calls inlined"),
            )
            .at(span, "one too many")
            .help("`repeat N` stacks a layer without inlining it N times"),
            Rank { found, limit, span } => Diagnostic::error(
                "E0804",
                format!("a tensor of {found} dims; the limit is {limit}"),
            )
            .at(span, "too many dims")
            .help("merge dims that are never split apart"),
            Elements { dims, limit, span } => {
                Diagnostic::error("E0804", format!("a tensor {dims} of more than {limit} elements"))
                    .at(span, "too many elements")
                    .help("smaller dims, or fewer of them")
            }
            Iterations { limit, span } => Diagnostic::error(
                "E0804",
                format!("an einsum over more than {limit} combinations of indices"),
            )
            .at(span, "the product of all its dims is too large")
            .help("two einsums in a row"),
            Operands { found, limit, span } => Diagnostic::error(
                "E0804",
                format!("an einsum of {found} operands; the limit is {limit}"),
            )
            .at(span, "too many operands")
            .help("two einsums in a row"),
            Dims { limit, span } => {
                Diagnostic::error("E0804", format!("the file has more than {limit} dims"))
                    .at(span, "one too many")
                    .help("two files")
            }
            Layers { limit, span } => {
                Diagnostic::error("E0804", format!("the file has more than {limit} layers"))
                    .at(span, "one too many")
                    .help("two files")
            }
            Phases { limit, span } => {
                Diagnostic::error("E0804", format!("the file has more than {limit} phases"))
                    .at(span, "one too many")
                    .help("two files")
            }
            Kinds { limit, span } => Diagnostic::error(
                "E0804",
                format!("the stack has more than {limit} kinds of layers"),
            )
            .at(span, "one too many")
            .help("fewer kinds, of more layers each"),
            CallDepth { limit, span } => {
                Diagnostic::error("E0804", format!("calls are nested more than {limit} deep"))
                    .at(span, "one too deep")
                    .help("fewer layers that only call another one")
            }
            Time { layer, seconds, span } => Diagnostic::error(
                "E0804",
                format!(
                    "every plan of `{layer}` takes longer than {:.0} hours, up to which times are \
                        counted",
                    seconds / 3600.0
                ),
            )
            .at(span, "too much to do in one step")
            .help(
                "smaller dims, more devices, or other rates in the hardware file, which are per \
                second",
            ),
            Diagnostics { limit } => Diagnostic::remark(
                "W0804",
                format!("more is wrong than the {limit} problems shown"),
            )
            .help("mend the first ones: the rest may follow from them"),
        }
    }
}
