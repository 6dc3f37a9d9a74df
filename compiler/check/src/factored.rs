//! Meshes with one axis in two parts: a dim of 8 takes half of an axis of 16, and what is left is
//! an axis of its own.

use shard_ir::{AxisId, AxisList, Mesh, never};

/// A mesh of as many devices on which a dim divides that did not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Factored {
    /// As `--mesh` takes it: `x=8,y=2`.
    pub(crate) mesh: String,
    /// The axis that is in two, which keeps its name for the major part.
    pub(crate) major: AxisId,
    /// The axes that the dim can have there: those before the one in two, and its major part.
    pub(crate) fits: Vec<AxisId>,
    /// The name of the new axis.
    pub(crate) minor: String,
}

/// Cuts the first axis at which a dim of this size stops dividing. `None` where no part of that
/// axis divides.
pub(crate) fn factored(mesh: &Mesh, axes: AxisList, size: u64) -> Option<Factored> {
    let mut rest = size;
    let mut fits = Vec::new();
    for axis in axes.iter() {
        fits.push(axis);
        let devices = mesh.size(axis);
        if rest.is_multiple_of(devices) {
            rest /= devices;
            continue;
        }
        let part =
            (2..devices).rev().find(|n| rest.is_multiple_of(*n) && devices.is_multiple_of(*n))?;
        let minor = fresh_name(mesh, mesh.name(axis));
        let of = |(name, size): &(String, u64)| {
            if name == mesh.name(axis) {
                format!("{name}={part},{minor}={}", devices / part)
            } else {
                format!("{name}={size}")
            }
        };
        let text: Vec<String> = mesh.declared().iter().map(of).collect();
        return Some(Factored { mesh: text.join(","), major: axis, fits, minor });
    }
    None
}

/// A name that no axis has, as long as the old one where that is a letter: the next letters of the
/// alphabet, else digits.
fn fresh_name(mesh: &Mesh, old: &str) -> String {
    let taken = |name: &str| mesh.declared().iter().any(|(known, _)| known == name);
    let letters =
        ('a'..='z').cycle().skip_while(|c| !old.starts_with(*c)).skip(1).take(25).map(String::from);
    let letters = letters.filter(|_| old.chars().count() == 1);
    let numbered = (2..).map(|n| format!("{old}{n}"));
    letters
        .chain(numbered)
        .find(|name| !taken(name))
        .unwrap_or_else(|| never!("no name is left for an axis", String::new()))
}
