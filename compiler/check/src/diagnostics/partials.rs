//! Partial sums and maxima where an op cannot act on them.

use shard_grammar::Span;
use shard_ir::Reduction;

use super::Quote;
use super::words::bytes;
use crate::diagnostic::Diagnostic;

/// A way to make a partial value whole.
#[derive(Clone, Debug, PartialEq)]
pub struct WayOut {
    /// The layout that it leads to.
    pub layout: String,
    /// The collective: `reduce-scatter`, `all-reduce`.
    pub collective: &'static str,
    /// The bytes that a device holds before it.
    pub bytes: u64,
}

/// What can be wrong with pins on partial values.
#[derive(Clone, Debug, PartialEq)]
pub enum PartialProblem {
    /// An op that cannot act on terms, pinned to a partial result of a partial operand.
    NotLinear {
        /// The op: `gelu`.
        op: String,
        /// The operand's name or text.
        operand: String,
        /// Where the op stands.
        span: Span,
        /// Where the operand is stated to be partial.
        stated: Span,
        /// Where the result is stated to be partial.
        result: Span,
        /// Of what the operand and the result are partial.
        kind: Reduction,
        /// The axes: `x`, `{data}`.
        axes: String,
        /// How to make the operand whole.
        ways: Vec<WayOut>,
    },
    /// A product of two operands that are partial over one axis.
    PartialTimesPartial {
        /// The op: `einsum`, `*`.
        op: String,
        /// The first operand, at the place where it is stated to be partial.
        left: Quote,
        /// The second.
        right: Quote,
        /// Where the op stands.
        span: Span,
        /// Where the result is stated to be partial.
        result: Span,
        /// The axis.
        axis: String,
        /// How to make the first operand whole.
        ways: Vec<WayOut>,
    },
    /// A type that states a partial softmax, which no type may.
    Softmax {
        /// The axes: `x`, `{data}`.
        axes: String,
        /// Where they are written.
        span: Span,
    },
    /// A sum of a partial value and one that is not partial, where the sum stays partial.
    AddedOnOneDevice {
        /// The value that is not partial.
        value: String,
        /// Where it is stated.
        span: Span,
        /// The sum.
        sum: Span,
        /// The partial value.
        partial: String,
        /// Its place.
        partial_span: Span,
        /// The axes with their sizes: `x=4`.
        axes: String,
        /// The product of the sizes.
        times: u64,
    },
}

fn ways_out(mut out: Diagnostic, operand: &str, ways: Vec<WayOut>) -> Diagnostic {
    for way in ways {
        out = out.help(format!(
            "reshard({operand}, {})    ({} of {} a device)",
            way.layout,
            way.collective,
            bytes(way.bytes)
        ));
    }
    out
}

impl From<PartialProblem> for Diagnostic {
    fn from(problem: PartialProblem) -> Diagnostic {
        use PartialProblem::*;
        match problem {
            NotLinear { op, operand, span, stated, result, kind, axes, ways } => {
                let word = kind.word();
                let (why, message) = match kind {
                    Reduction::Max => (
                        format!("{op} of a maximum is not the maximum of {op} of each candidate"),
                        format!(
                            "`{op}` does not keep order, so it cannot act on partial maxima \
                                (`{operand}` {word}-{axes}): reduce `{operand}` first"
                        ),
                    ),
                    Reduction::Sum => (
                        format!("{op} of a sum is not the sum of {op} of each term"),
                        format!(
                            "`{op}` is not linear, so it cannot act on partial sums (`{operand}` \
                                {word}-{axes}): reduce `{operand}` first"
                        ),
                    ),
                };
                let out = Diagnostic::error("E0501", message)
                    .at(span, why)
                    .also(stated, format!("`{operand}` is {word}-{axes} here"))
                    .also(result, format!("and the result would be {word}-{axes} too"));
                ways_out(out, &operand, ways)
            }
            PartialTimesPartial { op, left, right, span, result, axis, ways } => {
                let out = Diagnostic::error(
                    "E0502",
                    format!(
                        "`{}` and `{}` are both partial over `{axis}`, and `{op}` multiplies them",
                        left.text, right.text
                    ),
                )
                .at(span, "a product of two sums is not the sum of the products")
                .also(left.span, format!("`{}` is partial here", left.text));
                let out = if right.span == left.span {
                    out
                } else {
                    out.also(right.span, format!("`{}` is partial here", right.text))
                };
                ways_out(out.also(result, "and the result would be too"), &left.text, ways)
            }
            Softmax { axes, span } => Diagnostic::error(
                "E0503",
                format!(
                    "no type is `partialsoftmax-{axes}`: a plan makes such values, and merges them"
                ),
            )
            .at(span, "an attention over split keys has statistics beside it, and a type has none")
            .help(
                "split the keys and values (`BS_xHQ`) and leave the result of the attention open"
                    .to_string(),
            ),
            AddedOnOneDevice { value, span, sum, partial, partial_span, axes, times } => {
                Diagnostic::remark(
                    "W0501",
                    if axes.contains('*') {
                        format!(
                            "`{value}` would be added {axes} = {times} times: the plan holds it on \
                            one device of each group"
                        )
                    } else {
                        format!(
                            "`{value}` would be added {axes} times: the plan holds it on one \
                            device of each group"
                        )
                    },
                )
                .at(sum, "added to terms that are not yet summed")
                .also(span, format!("`{value}` is not partial"))
                .also(
                    partial_span,
                    format!("`{partial}` is a term of a sum on each of {times} devices"),
                )
                .help(format!("add `{value}` after the reduction, and the note goes away"))
            }
        }
    }
}
