//! The dims of expressions: einsums, annotations, and every op that names dims.

use shard_grammar::Span;

use crate::diagnostic::{Diagnostic, Edit};

/// What an op does with its second operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecondOperand {
    /// It joins the operand with the first, along one dim.
    Joined,
    /// It looks for the operand in the first.
    Sought,
    /// It applies the operand to the first: weights, factors, ids, sinks.
    Beside,
}

/// What can be wrong with the dims of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ShapeProblem {
    /// An annotation, return or argument whose dims are not those of the expression.
    DimsDiffer {
        /// What states the dims: ``the annotation of `h` ``.
        what: String,
        /// The dims stated.
        wanted: String,
        /// The dims that the expression has.
        found: String,
        /// The place of the report: the stated layout, or the argument.
        span: Span,
        /// The other place: the expression, or the parameter.
        other: Span,
        /// Whether the dims stated are at `span` (an annotation) or at `other` (a parameter).
        stated_at_span: bool,
        /// Dims stated that the expression lacks.
        missing: Vec<String>,
        /// Dims of the expression that are not stated.
        extra: Vec<String>,
        /// The edit that would mend it.
        mend: Option<Edit>,
    },
    /// An einsum's output names a dim that no operand has.
    OutputDim {
        /// The dim.
        dim: String,
        /// Its place in the output.
        span: Span,
        /// The operands: place and dims.
        operands: Vec<(Span, String)>,
        /// A dim of the operands that may be meant.
        near: Option<String>,
        /// The edit that leaves the dims that no operand has out of the output.
        rest: Edit,
    },
    /// An op names a dim that its operand does not have.
    MissingDim {
        /// The op: `sum`, `rename`.
        op: String,
        /// The dim.
        dim: String,
        /// Its place.
        span: Span,
        /// The operand's place.
        operand: Span,
        /// The operand's dims.
        dims: String,
        /// A dim of the operand that may be meant.
        near: Option<String>,
    },
    /// A dim would stand twice in the result.
    ResultRepeats {
        /// The op.
        op: String,
        /// The dim.
        dim: String,
        /// The expression.
        span: Span,
    },
    /// Sizes that do not fit the op.
    Sizes {
        /// The sentence: ``rename needs dims of one size, and `L` = 4, `S` = 8``.
        message: String,
        /// The place of the dims.
        span: Span,
        /// The words there.
        here: String,
        /// Text that can be typed.
        help: Option<String>,
    },
    /// A second operand whose dims do not go with those of the first.
    OtherDims {
        /// The op: `concat`, `append`.
        op: String,
        /// The first operand's place and dims.
        left: (Span, String),
        /// The second's.
        right: (Span, String),
        /// What the second's dims would have to be, or the dims that it may have.
        wanted: String,
        /// What the op does with the second operand.
        second: SecondOperand,
    },
    /// One dim is named for two roles of an op.
    SameDim {
        /// The op.
        op: String,
        /// The dim.
        dim: String,
        /// The second mention.
        span: Span,
    },
}

impl From<ShapeProblem> for Diagnostic {
    fn from(problem: ShapeProblem) -> Diagnostic {
        use ShapeProblem::*;
        match problem {
            DimsDiffer {
                what,
                wanted,
                found,
                span,
                other,
                stated_at_span,
                missing,
                extra,
                mend,
            } => {
                let (stated, has) = (format!("states {wanted}"), format!("has the dims {found}"));
                let (here, there) = if stated_at_span { (stated, has) } else { (has, stated) };
                let mut out = Diagnostic::error(
                    "E0307",
                    format!("{what} states the dims {wanted}, and the value has {found}"),
                )
                .at(span, here)
                .also(other, there);
                if !missing.is_empty() {
                    out =
                        out.note(format!("the value has no {}", super::words::name_list(&missing)));
                }
                if !extra.is_empty() {
                    out = out
                        .note(format!("nothing is stated of {}", super::words::name_list(&extra)));
                }
                match mend {
                    Some(Edit { span, replacement }) => {
                        out.mend(replacement.clone(), span, replacement)
                    }
                    None => out.help(format!("state {found}, or make a value of {wanted}")),
                }
            }
            OutputDim { dim, span, operands, near, rest } => {
                output_dim(&dim, span, operands, near, rest)
            }
            MissingDim { op, dim, span, operand, dims, near } => {
                let out = Diagnostic::error(
                    "E0309",
                    format!("`{op}` names dim `{dim}`, which its operand does not have"),
                )
                .at(span, "not a dim of the operand")
                .also(operand, format!("has {dims}"));
                match near {
                    Some(near) => out.mend(near.clone(), span, near),
                    None => out.help(format!("name a dim of {dims}")),
                }
            }
            ResultRepeats { op, dim, span } => Diagnostic::error(
                "E0306",
                format!("`{dim}` would stand twice in the result of `{op}`"),
            )
            .at(span, "the operand has that dim already")
            .help(format!("a second dim of the same size: dim {dim}2 = {dim}")),
            Sizes { message, span, here, help } => {
                Diagnostic::error("E0310", message).at(span, here).help_if(help)
            }
            OtherDims { op, left, right, wanted, second } => {
                other_dims(&op, left, right, &wanted, second)
            }
            SameDim { op, dim, span } => Diagnostic::error(
                "E0314",
                format!("`{op}` needs two different dims, and `{dim}` is named for both"),
            )
            .at(span, "the same dim again")
            .help(format!("a second dim of the same size: dim {dim}2 = {dim}")),
        }
    }
}

fn output_dim(
    dim: &str,
    span: Span,
    operands: Vec<(Span, String)>,
    near: Option<String>,
    rest: Edit,
) -> Diagnostic {
    let mut out = Diagnostic::error(
        "E0308",
        format!("the output of the einsum names `{dim}`, which no operand has"),
    )
    .at(span, "in no operand");
    for (span, dims) in operands {
        out = out.also(span, format!("has {dims}"));
    }
    match near {
        Some(near) => out.mend(near.clone(), span, near),
        None => out
            .mend(rest.replacement.clone(), rest.span, rest.replacement)
            .help(format!("or an operand that has `{dim}`")),
    }
}

fn other_dims(
    op: &str,
    left: (Span, String),
    right: (Span, String),
    wanted: &str,
    second: SecondOperand,
) -> Diagnostic {
    let (message, fitting, help) = match second {
        SecondOperand::Joined => (
            format!("the operands of `{op}` differ in more than the dim that it joins"),
            format!("{wanted} would fit"),
            format!("bring the second operand to {wanted} with `rename` or `sum`"),
        ),
        SecondOperand::Sought => (
            format!("the value that `{op}` looks for has dims of its own"),
            format!("{wanted} would fit"),
            format!("bring the second operand to {wanted} with `rename` or `sum`"),
        ),
        SecondOperand::Beside => (
            format!("the second operand of `{op}` has a dim that it may not have"),
            format!("may have no dims but {wanted}"),
            "remove the other dims with `sum`, or rename them with `rename`".to_string(),
        ),
    };
    Diagnostic::error("E0311", message)
        .at(right.0, format!("has {}, and {fitting}", right.1))
        .also(left.0, format!("has {}", left.1))
        .help(help)
}
