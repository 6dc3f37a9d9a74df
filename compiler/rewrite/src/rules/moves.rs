//! Moves: a value in a layout, from the same value in another.

use shard_ir::{AxisSet, Collective, Layout, MeshShape};

/// Every move from a layout, with the layout it leads to. The definition is [`Collective::all_from`]; partial maxima are
/// entered only in programs that have a maximum at all.
pub fn moves_from(shape: MeshShape<'_>, from: Layout, has_maximum: bool) -> Vec<(Collective, Layout)> {
    let all = shape.mesh.all_axes();
    let maxima = if has_maximum { all } else { AxisSet::EMPTY };
    Collective::all_from(shape, from, all, maxima)
}
