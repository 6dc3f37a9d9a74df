//! An exchange as a chain of other moves, since JAX, PyTorch and StableHLO have no exchange.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::collective::Sends;
use shard_ir::{AxisSet, Collective, Layout, MeshShape};

use crate::error::ExportError;

/// How many layouts the search for a chain may visit; after that the chain is gathers and slices.
const MOST_LAYOUTS: usize = 4_000;

/// The best chain to a layout so far: elements sent, number of steps, and the last step with the
/// layout before it.
type Reached = (u64, u32, Option<(Collective, Layout)>);

/// A chain of moves from one layout to another, each with the layout after it.
pub(crate) fn steps_of(
    shape: MeshShape<'_>,
    from: Layout,
    to: Layout,
) -> Result<Vec<(Collective, Layout)>, ExportError> {
    cheapest(shape, from, to)
        .or_else(|| gathered(shape, from, to))
        .ok_or(ExportError::Internal("an exchange between layouts that no moves join"))
}

/// The chain of moves along one dim that sends the fewest elements, and among those the shortest.
/// `None` where the search passes its limit, or no chain without a reduction leads there.
fn cheapest(shape: MeshShape<'_>, from: Layout, to: Layout) -> Option<Vec<(Collective, Layout)>> {
    let mut waiting = BTreeSet::from([(0u64, 0u32, from)]);
    let mut reached: BTreeMap<Layout, Reached> = BTreeMap::from([(from, (0, 0, None))]);
    let mut left = BTreeSet::new();
    while let Some((sent, steps, layout)) = waiting.pop_first() {
        if layout == to {
            break;
        }
        if !left.insert(layout) {
            continue;
        }
        if left.len() > MOST_LAYOUTS {
            return None;
        }
        for (step, after) in
            Collective::along_one_dim_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY)
        {
            let reduces = step.terms().kind.is_some();
            let reached_by = (sent + elements(shape, &step, layout, after), steps + 1);
            let better = reached.get(&after).is_none_or(|(s, n, _)| reached_by < (*s, *n));
            if !reduces && better {
                reached.insert(after, (reached_by.0, reached_by.1, Some((step, layout))));
                waiting.insert((reached_by.0, reached_by.1, after));
            }
        }
    }
    let mut chain = Vec::new();
    let mut at = to;
    while at != from {
        let (step, before) = reached.get(&at)?.2?;
        chain.push((step, at));
        at = before;
    }
    chain.reverse();
    Some(chain)
}

/// The chain that gathers every dim down to the axes that it keeps, and slices each dim again.
fn gathered(shape: MeshShape<'_>, from: Layout, to: Layout) -> Option<Vec<(Collective, Layout)>> {
    let mut chain = Vec::new();
    let mut at = from;
    let kept = |dim: usize| {
        let (before, after) = (from.axes_of(dim), to.axes_of(dim));
        before.iter().zip(after.iter()).take_while(|(a, b)| a == b).count()
    };
    for dim in 0..shape.rank() {
        let axes = from.axes_of(dim).suffix_from(kept(dim));
        if !axes.is_empty() {
            let step = Collective::AllGather { dim, axes };
            at = step.apply(shape, at).ok()?;
            chain.push((step, at));
        }
    }
    for dim in 0..shape.rank() {
        let axes = to.axes_of(dim).suffix_from(kept(dim));
        if !axes.is_empty() {
            let step = Collective::Slice { dim, axes };
            at = step.apply(shape, at).ok()?;
            chain.push((step, at));
        }
    }
    (at == to).then_some(chain)
}

/// The elements that the busiest device sends in one move, rounded up.
pub(crate) fn elements(shape: MeshShape<'_>, step: &Collective, from: Layout, to: Layout) -> u64 {
    let larger = shape.local_elements(from).max(shape.local_elements(to));
    let k = shape.mesh.group_size(step.axes(shape.mesh, from).iter()).max(1);
    match step.row().sends {
        Sends::Nothing => 0,
        Sends::Around | Sends::Across => (larger * (k - 1)).div_ceil(k),
        Sends::AroundTwice | Sends::Weighted => (2 * larger * (k - 1)).div_ceil(k),
        Sends::Blocks | Sends::Lacking => larger,
    }
}
