//! Dtypes.

use shard_grammar::Span;
use shard_ir::{Dtype, Wanted};

use super::Quote;
use crate::diagnostic::Diagnostic;

/// What can be wrong with dtypes.
#[derive(Clone, Debug, PartialEq)]
pub enum DtypeProblem {
    /// Two dtypes that do not meet.
    DoNotMeet {
        /// The op.
        op: String,
        /// The first operand and its dtype.
        left: (Quote, Dtype),
        /// The second.
        right: (Quote, Dtype),
    },
    /// An op that does not take its operand's dtype.
    NotTaken {
        /// The op.
        op: String,
        /// The operand.
        operand: Quote,
        /// Its dtype.
        found: Dtype,
        /// What would do.
        wanted: Wanted,
        /// The dtypes of the op's other operands, among which the help looks for one to cast to.
        others: Vec<Dtype>,
    },
    /// A stated dtype that is not the expression's.
    Stated {
        /// What states it: ``the annotation of `h` ``.
        what: String,
        /// The dtype stated.
        wanted: Dtype,
        /// Where it is stated.
        stated: Span,
        /// The dtype of the expression.
        found: Dtype,
        /// The expression.
        value: Quote,
    },
    /// An einsum whose stated dtype is one in which its product is not accumulated.
    Accumulated {
        /// The dtype of the operands' product.
        product: Dtype,
        /// The dtype stated, and where.
        stated: (Span, Dtype),
        /// The einsum.
        span: Span,
    },
    /// A fraction where the other operand holds whole numbers.
    Fraction {
        /// The number's text.
        text: String,
        /// Its place.
        span: Span,
        /// The other operand's dtype.
        dtype: Dtype,
        /// The other operand.
        other: Quote,
    },
    /// A number outside the range of the dtype that it takes.
    OutOfRange {
        /// The number's text.
        text: String,
        /// Its place.
        span: Span,
        /// The dtype.
        dtype: Dtype,
        /// The other operand, whose dtype it is; `None` of a number alone.
        other: Option<Quote>,
    },
}

/// `-128 to 127`, `-3.4028235e38 to 3.4028235e38`.
fn range(dtype: Dtype) -> String {
    let (least, largest) = dtype.range();
    format!("{} to {}", number(least, dtype), number(largest, dtype))
}

fn number(number: f64, dtype: Dtype) -> String {
    match dtype {
        Dtype::F32 | Dtype::Bf16 => format!("{:e}", number as f32),
        Dtype::F16
        | Dtype::F8
        | Dtype::F4
        | Dtype::Int32
        | Dtype::Int8
        | Dtype::Int4
        | Dtype::Bool => number.to_string(),
    }
}

fn cast(out: Diagnostic, operand: &Quote, to: Dtype) -> Diagnostic {
    let fixed = format!("cast({}, {to})", operand.text);
    out.mend(fixed.clone(), operand.span, fixed)
}

impl From<DtypeProblem> for Diagnostic {
    fn from(problem: DtypeProblem) -> Diagnostic {
        use DtypeProblem::*;
        match problem {
            DoNotMeet { op, left: (left, l), right: (right, r) } => {
                let out = Diagnostic::error(
                    "E0401",
                    format!("`{op}` of {l} and {r}, which do not meet"),
                )
                .at(right.span, format!("is {r}"))
                .also(left.span, format!("is {l}"))
                .note(
                    "a dtype meets itself, and f32 meets bf16, f16, f8 and f4; nothing else \
                                is converted unasked",
                );
                match (l.is_float(), r.is_float()) {
                    (true, false) => cast(out, &right, l),
                    (false, true) => cast(out, &left, r),
                    (true, true) | (false, false) => cast(cast(out, &right, l), &left, r),
                }
            }
            NotTaken { op, operand, found, wanted, others } => {
                let out = Diagnostic::error(
                    "E0402",
                    format!("`{op}` takes {wanted}, and this is {found}"),
                )
                .at(operand.span, format!("is {found}"));
                let would_do = match wanted {
                    Wanted::Number | Wanted::Float => {
                        let would_do = |other: &Dtype| match wanted {
                            Wanted::Number => *other != Dtype::Bool,
                            Wanted::Float | Wanted::Dtype(_) => other.is_float(),
                        };
                        others.into_iter().find(would_do).unwrap_or(Dtype::F32)
                    }
                    Wanted::Dtype(dtype) => dtype,
                };
                cast(out, &operand, would_do)
            }
            Stated { what, wanted, stated, found, value } => {
                let out = Diagnostic::error(
                    "E0403",
                    format!("{what} is stated as {wanted}, and the value is {found}"),
                )
                .at(value.span, format!("is {found}"))
                .also(stated, format!("states {wanted}"))
                .note("nothing is cast unasked");
                cast(out, &value, wanted)
            }
            Accumulated { product, stated: (at, stated), span } => {
                let would_do = if product.is_float() { Dtype::F32 } else { Dtype::Int32 };
                Diagnostic::error(
                    "E0405",
                    format!("a product of dtype {product} is not accumulated in {stated}"),
                )
                .at(at, format!("{stated}"))
                .also(span, format!("its operands give {product}"))
                .note(
                    "floats are accumulated in a float, whole numbers in int32; anything else \
                            is a cast behind it",
                )
                .mend(would_do.to_string(), at, would_do.to_string())
            }
            Fraction { text, span, dtype, other } => {
                let out = Diagnostic::error(
                    "E0404",
                    format!("{text} is no {dtype}, the dtype that it takes from the other operand"),
                )
                .at(span, "not a whole number")
                .also(other.span, format!("is {dtype}"));
                cast(out, &other, Dtype::F32)
            }
            OutOfRange { text, span, dtype, other } => out_of_range(&text, span, dtype, other),
        }
    }
}

/// The error about a number outside the range of the dtype that it takes.
fn out_of_range(text: &str, span: Span, dtype: Dtype, other: Option<Quote>) -> Diagnostic {
    let takes = match &other {
        Some(_) => "the dtype that it takes from the other operand",
        None => "the dtype of a number alone",
    };
    let out = Diagnostic::error("E0404", format!("{text} is no {dtype}, {takes}"))
        .at(span, format!("{dtype} holds {}", range(dtype)));
    let out = match &other {
        Some(other) => out.also(other.span, format!("is {dtype}")),
        None => out,
    };
    let value = text.parse::<f64>().unwrap_or(0.0);
    let wider = [Dtype::Int32, Dtype::F32]
        .into_iter()
        .find(|to| to.is_float() >= dtype.is_float() && to.reaches(value));
    match (wider, other) {
        (Some(wider), Some(other)) => cast(out, &other, wider),
        (Some(_) | None, _) => {
            let (least, largest) = dtype.range();
            let nearest = number(if value < 0.0 { least } else { largest }, dtype);
            out.mend(nearest.clone(), span, nearest)
        }
    }
}
