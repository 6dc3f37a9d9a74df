//! Moves that change several dims at once: how two layouts differ, and which such moves start from
//! a layout.

use crate::collective::Collective;
use crate::layout::{Layout, MeshShape, Place, Reduction};
use crate::mesh::{AxisId, AxisList, AxisSet, Mesh};

/// The dims that have more axes, at their minor end, in the layout `more` than in `less`, each with
/// the additional axes; `None` where a dim of `more` lacks an axis of `less`, or differs in another
/// way.
pub(crate) fn appended(less: Layout, more: Layout) -> Option<Vec<(usize, AxisList)>> {
    let mut found = Vec::new();
    for dim in 0..less.split_rank().max(more.split_rank()) {
        let (before, after) = (less.axes_of(dim), more.axes_of(dim));
        if after.len() < before.len() || after.prefix(before.len()) != before {
            return None;
        }
        if after.len() > before.len() {
            found.push((dim, after.suffix_from(before.len())));
        }
    }
    Some(found)
}

/// The all-to-all, permute or else exchange between two layouts with the same split axes and the
/// same partial axes. `None` where other axes split the value, or nothing changes. The caller must
/// see to it that sizes divide.
pub(crate) fn between(shape: MeshShape<'_>, from: Layout, to: Layout) -> Option<Collective> {
    let is_merged = from.softmax_axes().is_empty();
    if from == to || !is_merged || !from.is_partial_like(to) || from.split_axes() != to.split_axes()
    {
        return None;
    }
    let rank = from.split_rank().max(to.split_rank());
    if let Some(move_) = all_to_all(rank, from, to) {
        return Some(move_);
    }
    Some(if keeps_local_shape(shape, rank, from, to) {
        Collective::Permute { to }
    } else {
        Collective::Exchange { to }
    })
}

/// Whether every dim is cut in as many blocks in both layouts.
fn keeps_local_shape(shape: MeshShape<'_>, rank: usize, from: Layout, to: Layout) -> bool {
    let blocks = |l: Layout, dim: usize| shape.mesh.group_size(l.axes_of(dim).iter());
    (0..rank).all(|dim| blocks(from, dim) == blocks(to, dim))
}

/// The all-to-all from one layout to another, if it is one.
fn all_to_all(rank: usize, from: Layout, to: Layout) -> Option<Collective> {
    let mut changed = (0..rank).filter(|d| from.axes_of(*d) != to.axes_of(*d));
    let (one, other) = (changed.next()?, changed.next()?);
    if changed.next().is_some() {
        return None;
    }
    [(one, other), (other, one)].into_iter().find_map(|(from_dim, to_dim)| {
        let axes = tail(to.axes_of(from_dim), from.axes_of(from_dim))?;
        let come = tail(from.axes_of(to_dim), to.axes_of(to_dim))?;
        (axes == come).then_some(Collective::AllToAll { from_dim, to_dim, axes })
    })
}

/// The rest of a list behind `begin`; `None` where the list does not begin so, or has no rest.
fn tail(begin: AxisList, list: AxisList) -> Option<AxisList> {
    (list.len() > begin.len() && list.prefix(begin.len()) == begin)
        .then(|| list.suffix_from(begin.len()))
}

/// The axes along which data travel in an exchange.
///
/// The coordinate of a device along an axis is a digit of the number of its block in the dim that
/// the axis splits. Nothing travels along the axis if the digit is the same before and after for
/// every element: exactly where the axis splits the same dim behind axes of the same product.
pub(crate) fn crossed(mesh: &Mesh, from: Layout, to: Layout) -> AxisSet {
    let digit = |layout: Layout, axis: AxisId| match layout.place(axis) {
        Place::Split { dim, position } => {
            Some((dim, mesh.group_size(layout.axes_of(dim).prefix(position).iter())))
        }
        Place::Partial(_) | Place::PartialSoftmax | Place::Replicated => None,
    };
    mesh.axis_ids().filter(|axis| digit(from, *axis) != digit(to, *axis)).collect()
}

/// The number of devices over which an exchange spreads each block evenly, where every device keeps
/// one in this many parts of its block; `None` where some device keeps nothing.
///
/// Where every dim only gains axes at its minor end, or only loses some, the old and the new block
/// of a device share one in K parts, where K is the product of the axes that move. Where some dim
/// has, behind the axes that it keeps, different axes before and after, the device with the first
/// coordinate along the old ones and the last along the new ones keeps nothing of its block.
pub fn kept_by_each(mesh: &Mesh, from: Layout, to: Layout) -> Option<u64> {
    let begins = |a: AxisList, b: AxisList| b.len() >= a.len() && b.prefix(a.len()) == a;
    let (mut gone, mut is_even) = (1, true);
    for dim in 0..from.split_rank().max(to.split_rank()) {
        let (before, after) = (from.axes_of(dim), to.axes_of(dim));
        is_even &= begins(before, after) || begins(after, before);
        gone *= mesh.group_size(before.iter().skip(after.len().min(before.len())));
    }
    is_even.then_some(gone)
}

/// The layouts after an all-gather along two dims or more.
pub(crate) fn gathers(shape: MeshShape<'_>, from: Layout) -> Vec<Layout> {
    let mut found = vec![(from, 0)];
    for dim in 0..shape.rank() {
        let axes = from.axes_of(dim);
        for i in 0..found.len() {
            let (layout, dims) = found[i];
            found.extend(
                (0..axes.len()).map(|keep| (layout.with_dim(dim, axes.prefix(keep)), dims + 1)),
            );
        }
    }
    found.into_iter().filter(|(_, dims)| *dims > 1).map(|(l, _)| l).collect()
}

/// The layouts after a reduce-scatter along two dims or more. Those whose sizes do not divide are
/// left out.
pub(crate) fn scatters(shape: MeshShape<'_>, from: Layout, kind: Reduction) -> Vec<Layout> {
    let partial = from.partial(kind);
    if partial.len() < 2 {
        return Vec::new();
    }
    let mut found = vec![(from, partial, 0)];
    for dim in 0..shape.rank() {
        for i in 0..found.len() {
            let (layout, free, dims): (Layout, AxisSet, usize) = found[i];
            for axes in AxisList::arrangements(free) {
                if shape.can_append(from, dim, &axes) {
                    let with = layout.with_dim(dim, from.axes_of(dim).concat(axes));
                    found.push((with, free.difference(axes.set()), dims + 1));
                }
            }
        }
    }
    found.into_iter().filter(|(_, _, dims)| *dims > 1).map(|(l, _, _)| l).collect()
}
