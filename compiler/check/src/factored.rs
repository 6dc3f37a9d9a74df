//! Meshes with one axis cut in two: a dim of 8 takes half of an axis of 16, and the other half is
//! an axis of its own.

use shard_ir::{AxisId, AxisList, Mesh, never};

/// A mesh of as many devices, with one axis cut in two, over whose axes a dim divides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Factored {
    /// As `--mesh` takes it: `x=8,y=2`.
    pub(crate) mesh: String,
    /// The axis that is cut; its major part keeps the name.
    pub(crate) major: AxisId,
    /// The axes that the dim can have there: those before the axis that is cut, and its major part.
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

/// A name that no axis has: for a name of one letter the next free letter of the alphabet, else the
/// old name with a number.
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
