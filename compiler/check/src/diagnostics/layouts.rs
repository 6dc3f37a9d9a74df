//! Layouts and partials in types.

use shard_grammar::Span;

use super::words::name_list;
use crate::diagnostic::{Diagnostic, Edit};

/// What can be wrong with a layout.
#[derive(Clone, Debug, PartialEq)]
pub enum LayoutProblem {
    /// An axis that the mesh does not have.
    UnknownAxis {
        /// The axis.
        axis: String,
        /// Where it is used.
        span: Span,
        /// The help about the nearest axis: its words, and the text that goes there.
        near: Option<(String, String)>,
        /// The axes that there are.
        known: Vec<String>,
        /// The mesh line.
        mesh: Option<Span>,
        /// The place behind the last axis of the mesh line, where one more could be named.
        append_at: Option<usize>,
    },
    /// An axis of the file's mesh that the mesh of `--mesh` does not have.
    AxisNotInOverride {
        /// The axis.
        axis: String,
        /// Where it is used.
        span: Span,
        /// Where the file declares it.
        declared: Option<Span>,
        /// The mesh of the command line: `x=8,y=8`.
        mesh: String,
    },
    /// `B_data` where an axis `data` exists.
    UnbracedAxis {
        /// The text behind the `_`.
        raw: String,
        /// Its place.
        span: Span,
        /// The dim before it, or the word of the partial.
        before: String,
        /// `_` or `-`.
        sign: char,
        /// The axis that is meant.
        axis: String,
        /// The axes as they are read.
        letters: Vec<String>,
    },
    /// An axis that splits twice in one type.
    AxisTwice {
        /// The axis.
        axis: String,
        /// The dim that it splits first, and the place.
        first: (String, Span),
        /// The dim that it splits again, and the place.
        second: (String, Span),
        /// The layout with the axis on the first dim alone.
        keep_first: String,
        /// The layout with the axis on the second dim alone.
        keep_second: String,
    },
    /// An axis that splits a dim and is partial too.
    AxisSplitsAndPartial {
        /// The axis.
        axis: String,
        /// The dim.
        dim: String,
        /// Where it splits.
        split: Span,
        /// Where it is partial.
        partial: Span,
        /// The type with the axis in one place alone: split, or partial.
        keep: [String; 2],
    },
    /// An axis that is partial twice.
    AxisPartialTwice {
        /// The axis.
        axis: String,
        /// The two mentions, each with its word: `partialsum`.
        mentions: [(&'static str, Span); 2],
        /// The type with the first mention alone, and with the second.
        keep: [String; 2],
    },
    /// One label on types of different dims.
    LabelDims {
        /// The label.
        label: String,
        /// The dims here.
        dims: String,
        /// The layout here.
        span: Span,
        /// The dims where the label stands first.
        first_dims: String,
        /// The layout there.
        first: Span,
        /// A label that stands on no other dims.
        proposed: String,
    },
}

/// The size of a split dim is not divisible by the product of its axes' sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct NotDivisible {
    /// The dim.
    pub dim: String,
    /// Its size.
    pub size: u64,
    /// Its useful size.
    pub useful: u64,
    /// The right side of its line, less the pad.
    pub value: String,
    /// The phase that states the size, if it is not the dim's own line.
    pub phase: Option<String>,
    /// The axes with their sizes: `x=4 y=8`.
    pub axes: String,
    /// The product of their sizes.
    pub devices: u64,
    /// The dim and its subscript.
    pub span: Span,
    /// The dim's line.
    pub declared: Option<Span>,
    /// Axes over which the dim divides: `H_x`, `H_yz`.
    pub fits: Vec<String>,
    /// A mesh with one of the axes in two, the dim with axes over which it divides there, and the
    /// new axis: `x=8,y=2`, `H_x`, `y`.
    pub factored: Option<(String, String, String)>,
    /// The nearest size above that divides.
    pub next: u64,
    /// The size that the help pads to: the nearest above that divides wherever the dim is split.
    pub pad: u64,
    /// The edit that pads the dim; `None` where the command line set its size.
    pub edit: Option<Edit>,
}

impl NotDivisible {
    /// Makes the help pad to another size.
    pub(crate) fn pad_to(&mut self, pad: u64) {
        if let Some(edit) = &mut self.edit {
            edit.replacement = edit.replacement.replace(&self.pad.to_string(), &pad.to_string());
        }
        self.pad = pad;
    }
}

impl From<LayoutProblem> for Diagnostic {
    fn from(problem: LayoutProblem) -> Diagnostic {
        use LayoutProblem::*;
        match problem {
            UnknownAxis { axis, span, near, known, mesh, append_at } => {
                unknown_axis(&axis, span, near, &known, mesh, append_at)
            }
            AxisNotInOverride { axis, span, declared, mesh } => Diagnostic::error(
                "E0201",
                format!("the mesh of the command line, {mesh}, has no axis `{axis}`"),
            )
            .at(span, "used here")
            .also_if(declared, "the file's own mesh has it")
            .help(format!("{axis}=1    (as in `--mesh {mesh},{axis}=1`)")),
            UnbracedAxis { raw, span, before, sign, axis, letters } => Diagnostic::error(
                "E0201",
                format!("`{raw}` is read as the mesh axes {}", name_list(&letters)),
            )
            .at(span, format!("`{axis}` is one axis, and a name longer than a letter needs braces"))
            .mend(format!("{before}{sign}{{{axis}}}"), span, format!("{{{axis}}}")),
            AxisTwice { axis, first, second, keep_first, keep_second } => {
                Diagnostic::error("E0202", format!("mesh axis `{axis}` is used twice in one type"))
                    .at(second.1, format!("splits `{}` too", second.0))
                    .also(first.1, format!("splits `{}`", first.0))
                    .note(
                        "along one mesh axis a device has one place, so an axis can split one \
                        dim, once",
                    )
                    .help(if keep_first == keep_second {
                        keep_first
                    } else {
                        format!("{keep_first} or {keep_second}")
                    })
            }
            AxisSplitsAndPartial {
                axis,
                dim,
                split,
                partial,
                keep: [keep_split, keep_partial],
            } => Diagnostic::error(
                "E0203",
                format!("mesh axis `{axis}` both splits `{dim}` and is partial"),
            )
            .at(partial, "every device along it holds a term of the whole sum")
            .also(split, format!("every device along it holds another part of `{dim}`"))
            .help(format!("{keep_split} or {keep_partial}")),
            AxisPartialTwice {
                axis,
                mentions: [(first_word, first), (second_word, second)],
                keep: [keep_first, keep_second],
            } => {
                let both = if first_word == second_word {
                    format!("mesh axis `{axis}` stands twice in `{first_word}`")
                } else {
                    format!("mesh axis `{axis}` is both {first_word} and {second_word}")
                };
                Diagnostic::error("E0204", both).at(second, "again").also(first, "first").help(
                    if keep_first == keep_second {
                        keep_first
                    } else {
                        format!("{keep_first} or {keep_second}")
                    },
                )
            }
            LabelDims { label, dims, span, first_dims, first, proposed } => Diagnostic::error(
                "E0210",
                format!(
                    "label `{label}` stands on {dims} and on {first_dims}, and one layout \
                    cannot be that of both"
                ),
            )
            .at(span, format!("dims {dims}"))
            .also(first, format!("dims {first_dims}"))
            .note("types that bear one label have the same dims in the same order")
            .help(format!("?{proposed}    (a label of its own, for dims {dims})")),
        }
    }
}

impl From<NotDivisible> for Diagnostic {
    fn from(problem: NotDivisible) -> Diagnostic {
        let NotDivisible {
            dim,
            size,
            useful,
            value,
            phase,
            axes,
            devices,
            span,
            declared,
            fits,
            factored,
            next,
            pad,
            edit,
        } = problem;
        let padded =
            if useful == size { String::new() } else { format!(" (padded from {useful})") };
        let mut out = Diagnostic::error(
            "E0205",
            format!("`{dim}` = {size} does not divide over {devices} devices ({axes})"),
        )
        .at(span, format!("{size} / {devices} leaves {}", size % devices))
        .also_if(declared, format!("`{dim}` is {size}{padded}"));
        let below = size - size % devices;
        out = match below {
            0 => out.note(format!("sizes that would do: {next}, {}", next + devices)),
            _ => out.note(format!("sizes that would do: {below}, {next}")),
        };
        if !fits.is_empty() {
            out = out.help(format!("{}    ({dim} = {size} divides there)", fits.join(" or ")));
        }
        if let Some((mesh, split, free)) = factored {
            out = out.help(format!(
                "--mesh {mesh}    ({split} divides there, and {free} is free for another dim)"
            ));
        }
        let waste = 100.0 * (pad as f64 - useful as f64) / useful.max(1) as f64;
        // Compares the whole dim on each device with a device's block of the padded dim.
        let saves = match useful as f64 * devices as f64 / pad as f64 {
            times if times < 1.05 => "as much".to_string(),
            times => format!("{times:.1} times as much"),
        };
        let costs = format!("({waste:.0} % more work; with {dim} whole a device has {saves})");
        match edit {
            Some(Edit { span, replacement }) => {
                let line = match phase {
                    Some(phase) => format!("{dim} = {value} pad {pad}    in phase {phase} {costs}"),
                    None => format!("dim {dim} = {value} pad {pad}    {costs}"),
                };
                out.mend(line, span, replacement)
            }
            None => out.help(format!("-D '{dim}={value} pad {pad}'    {costs}")),
        }
    }
}

/// The error about an axis that the mesh does not have.
fn unknown_axis(
    axis: &str,
    span: Span,
    near: Option<(String, String)>,
    known: &[String],
    mesh: Option<Span>,
    append_at: Option<usize>,
) -> Diagnostic {
    let out = Diagnostic::error("E0201", format!("the mesh has no axis `{axis}`"))
        .at(span, "unknown mesh axis")
        .also_if(mesh, format!("has {}", name_list(known)));
    match (near, append_at) {
        (Some((near, text)), _) => out.mend(near, span, text),
        (None, Some(at)) => out.mend(
            format!("{axis}=1    (one more axis on the mesh line, with its size)"),
            Span::at(at),
            format!(", {axis}=1"),
        ),
        (None, None) if mesh.is_none() && known.is_empty() => {
            out.help(format!("mesh {axis}=4    (the file has no mesh line)"))
        }
        (None, None) => {
            out.help(format!("{axis}=1    (one more axis on the mesh line, with its size)"))
        }
    }
}
