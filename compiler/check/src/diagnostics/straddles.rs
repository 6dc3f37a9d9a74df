//! Splits and merges of dims that the mesh cuts across.

use shard_grammar::Span;

use crate::diagnostic::Diagnostic;

/// A `split` or `merge` that cannot keep the layout that its operand is stated to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Straddle {
    /// `split` or `merge`.
    pub op: &'static str,
    /// Where it stands.
    pub span: Span,
    /// The dim that is split, or that a merge gives.
    pub whole: String,
    /// Its parts, major first, with their sizes.
    pub parts: Vec<(String, u64)>,
    /// The axes, major to minor, with their sizes.
    pub axes: Vec<(String, u64)>,
    /// The axes at the major end whose blocks fall on whole parts.
    pub kept: Option<String>,
    /// A mesh of as many devices on which the blocks of all axes fall on whole parts.
    pub mesh: Option<String>,
    /// A mesh with one axis in two on which the blocks fall on whole parts, and the dim over both
    /// axes: `x=8,y=2`, `H_xy`.
    pub factored: Option<(String, String)>,
}

impl From<Straddle> for Diagnostic {
    fn from(problem: Straddle) -> Diagnostic {
        let Straddle { op, span, whole, parts, axes, kept, mesh, factored } = problem;
        let list = |pairs: &[(String, u64)], sign: &str| {
            pairs
                .iter()
                .map(|(name, size)| format!("{name}{sign}{size}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let parts = list(&parts, " = ");
        let message = format!(
            "`{op}` has to move data: the blocks of `{whole}` over {} straddle its parts",
            list(&axes, "=")
        );
        let out =
            Diagnostic::warning("W0620", message).at(span, format!("{parts}, major first")).note(
                "axes go to the major part until it has a device for each entry, and only then \
                to the next",
            );
        let out = match (mesh, factored) {
            (Some(mesh), _) => out.help(format!("--mesh {mesh}")),
            (None, Some((mesh, layout))) => out.help(format!(
                "--mesh {mesh} and {layout}    (the axis in two, one for each part)"
            )),
            (None, None) => out,
        };
        match kept {
            Some(axes) => out.help(format!(
                "{whole}_{axes}    (where `{whole}` is whole, and the other axes elsewhere)"
            )),
            None => out.help(format!(
                "the axes on another dim than `{whole}`, or a `pad` that they divide"
            )),
        }
    }
}
