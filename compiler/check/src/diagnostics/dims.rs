//! Dim lines and names of dims.

use shard_grammar::Span;
use shard_ir::tensor::MAX_DIM_SIZE;

use super::Quote;
use super::words::name_list;
use crate::diagnostic::{Diagnostic, Edit, Help};

/// What can be wrong with a dim.
#[derive(Clone, Debug, PartialEq)]
pub enum DimProblem {
    /// A dim that the file does not declare.
    Unknown {
        /// The name.
        name: String,
        /// Where it stands.
        span: Span,
        /// The nearest dim.
        near: Option<String>,
        /// The dims that there are.
        known: Vec<String>,
        /// Whether it stands in a word each letter of which is read as a dim.
        is_letter: bool,
        /// The whole word, where its letters together name a dim.
        together: Option<Quote>,
    },
    /// A dim used above its own line.
    UsedBefore {
        /// The dim.
        name: String,
        /// Where it is used.
        span: Span,
        /// Its line.
        declared: Span,
    },
    /// A dim declared twice.
    Duplicate {
        /// The dim.
        name: String,
        /// The second line.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// A division that leaves a rest.
    Inexact {
        /// The dividend.
        left: u64,
        /// The divisor.
        right: u64,
        /// The expression; `None` where the command line gave it.
        span: Option<Span>,
        /// The dim whose size it is.
        dim: String,
    },
    /// A division by 0.
    DivisionByZero {
        /// The dim whose size it is.
        dim: String,
        /// The expression; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// A number beyond 2^64 on the way to a size.
    Overflow {
        /// The dim whose size it is.
        dim: String,
        /// The expression; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// A size that is 0, negative or too large.
    OutOfRange {
        /// The dim.
        dim: String,
        /// What comes out: `0`, `-4`.
        value: String,
        /// The expression; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// A pad below the size.
    PadTooSmall {
        /// The dim.
        dim: String,
        /// Its size.
        size: u64,
        /// The pad.
        pad: u64,
        /// The pad's place; `None` where the command line gave it.
        span: Option<Span>,
    },
    /// A dim twice in one tensor or list.
    Repeated {
        /// The dim.
        dim: String,
        /// The second mention.
        span: Span,
        /// The first one.
        first: Span,
    },
    /// `-D` of a dim that the file does not declare.
    UnknownOverride {
        /// The name.
        name: String,
        /// The nearest dim.
        near: Option<String>,
        /// The dims that there are.
        known: Vec<String>,
    },
    /// `--vary` of a dim that the file does not declare.
    UnknownVaried {
        /// The name.
        name: String,
        /// The nearest dim.
        near: Option<String>,
        /// The dims that there are.
        known: Vec<String>,
    },
    /// `-D` with a right side that cannot be read.
    BadOverride {
        /// The name.
        name: String,
        /// The right side.
        text: String,
        /// What is wrong with it.
        message: String,
    },
    /// A dim that nothing uses.
    Unused {
        /// The dim.
        name: String,
        /// Its line.
        span: Span,
        /// The phases that state its size, each with the text that goes with the dim.
        phases: Vec<(String, Span)>,
    },
}

impl From<DimProblem> for Diagnostic {
    fn from(problem: DimProblem) -> Diagnostic {
        use DimProblem::*;
        match problem {
            Unknown { name, span, near, known, is_letter, together } => {
                unknown(&name, span, near, &known, is_letter, together)
            }
            UsedBefore { name, span, declared } => {
                Diagnostic::error("E0301", format!("dim `{name}` is used above its own line"))
                    .at(span, "used here")
                    .also(declared, "declared here")
                    .help(format!("move the line of `{name}` up"))
            }
            Duplicate { name, span, first } => {
                Diagnostic::error("E0302", format!("dim `{name}` is declared twice"))
                    .at(span, "again")
                    .also(first, "first")
                    .note("a dim has one size in the file")
                    .mend(format!("{name}2"), span, format!("{name}2"))
            }
            Inexact { left, right, span, dim } => inexact(left, right, span, &dim),
            DivisionByZero { dim, span } => {
                Diagnostic::error("E0304", format!("the size of `{dim}` divides by 0"))
                    .at_if(span, "the divisor comes out as 0")
                    .help("a divisor of 1 or more")
            }
            Overflow { dim, span } => Diagnostic::error(
                "E0304",
                format!("the size of `{dim}` passes through a number beyond 2^64"),
            )
            .at_if(span, "too large")
            .note(format!("sizes go from 1 to {MAX_DIM_SIZE}"))
            .help("smaller factors"),
            OutOfRange { dim, value, span } => {
                Diagnostic::error("E0304", format!("`{dim}` cannot have the size {value}"))
                    .at_if(span, format!("comes out as {value}"))
                    .note(format!("sizes go from 1 to {MAX_DIM_SIZE}"))
                    .help("check the signs and the dims that it is made of")
            }
            PadTooSmall { dim, size, pad, span } => {
                let out = Diagnostic::error(
                    "E0305",
                    format!("`{dim}` = {size} cannot be padded to {pad}, which is smaller"),
                );
                match span {
                    Some(span) => out.at(span, "smaller than the size").mend(
                        format!("pad {size}"),
                        span,
                        size.to_string(),
                    ),
                    None => out.help(format!("-D '{dim}={size} pad {size}'")),
                }
            }
            Repeated { dim, span, first } => {
                Diagnostic::error("E0306", format!("dim `{dim}` stands twice in one tensor"))
                    .at(span, "again")
                    .also(first, "first")
                    .note("dims are matched by name, so each name stands once")
                    .help(format!("a second dim of the same size: dim {dim}2 = {dim}"))
            }
            UnknownOverride { name, near, known } => unknown_override(&name, near, &known),
            UnknownVaried { name, near, known } => {
                let out = Diagnostic::error(
                    "E0312",
                    format!("`--vary {name}`: the file has no dim `{name}`"),
                )
                .note(format!("dims of the file: {}", name_list(&known)));
                let dim = near.or(known.into_iter().next());
                out.help_if(dim.map(|dim| format!("--vary {dim}")))
            }
            BadOverride { name, text, message } => {
                Diagnostic::error("E0313", format!("`-D {name}={text}` cannot be read: {message}"))
                    .help(format!("-D {name}=64 or -D '{name}=48 pad 64'"))
            }
            Unused { name, span, phases } => unused(&name, span, &phases),
        }
    }
}

fn unknown(
    name: &str,
    span: Span,
    near: Option<String>,
    known: &[String],
    is_letter: bool,
    together: Option<Quote>,
) -> Diagnostic {
    if let Some(Quote { span: all, text: dim }) = together {
        return Diagnostic::error("E0301", format!("there is no dim `{name}`"))
            .at(all, format!("read as one dim a letter; `{dim}` is one dim"))
            .mend(format!("[{dim}]"), all, format!("[{dim}]"));
    }
    let out = Diagnostic::error("E0301", format!("there is no dim `{name}`"))
        .at(span, "unknown dim")
        .note(format!("dims of the file: {}", name_list(known)));
    match near {
        // Beside other letters a longer name would be read letter by letter.
        Some(near) if is_letter && near.contains(|c: char| c.is_ascii_lowercase()) => {
            out.help(format!("[{near}]    (with the layout's other dims: [B, {near}])"))
        }
        Some(near) => out.mend(near.clone(), span, near),
        None => out.help(format!("dim {name} = ...    (a line of its own above the layer)")),
    }
}

fn inexact(left: u64, right: u64, span: Option<Span>, dim: &str) -> Diagnostic {
    let out = Diagnostic::error("E0303", format!("{left} / {right} is not a whole number"))
        .at_if(
            span,
            format!("{left} = {} * {right} + {}", left / right.max(1), left % right.max(1)),
        )
        .note(format!("the size of `{dim}` has to come out exact"));
    let below = left - left % right.max(1);
    out.help(match below {
        0 => format!("a dividend of {right} would do"),
        _ => format!("a dividend of {below} or {} would do", below.saturating_add(right)),
    })
}

/// The warning about a dim that nothing uses.
fn unused(name: &str, span: Span, phases: &[(String, Span)]) -> Diagnostic {
    let mut out = Diagnostic::warning("W0301", format!("dim `{name}` is never used"))
        .at(span, "not used by any layer or other dim");
    let text = match phases {
        [] => "remove the line".to_string(),
        [(phase, _)] => format!("remove the line, and `{name}` from phase `{phase}`"),
        _ => {
            let names: Vec<&String> = phases.iter().map(|(phase, _)| phase).collect();
            format!("remove the line, and `{name}` from phases {}", name_list(&names))
        }
    };
    let spans = std::iter::once(span).chain(phases.iter().map(|(_, span)| *span));
    let edits = spans.map(|span| Edit { span, replacement: String::new() }).collect();
    out.helps.push(Help { text, edits });
    out
}

/// The error about a `-D` of a dim that the file does not declare.
fn unknown_override(name: &str, near: Option<String>, known: &[String]) -> Diagnostic {
    let out = Diagnostic::error("E0312", format!("`-D {name}=...`: the file has no dim `{name}`"))
        .note(format!("dims of the file: {}", name_list(known)));
    match near {
        Some(near) => out.help(format!("-D {near}=...")),
        None => out.help("only a dim with a line of its own can be set"),
    }
}
