//! The laws of moves, over all layouts of rank <= 3 on <= 3 axes: enumerated, not sampled.

use std::collections::BTreeSet;

use crate::common::{each_layout, each_shape, mesh, one};
use shard_ir::*;

/// A chain of moves, each of one axis.
fn chain(
    shape: MeshShape<'_>,
    from: Layout,
    moves: impl IntoIterator<Item = Collective>,
) -> Result<Layout, CollectiveError> {
    moves.into_iter().try_fold(from, |layout, m| m.apply(shape, layout))
}

#[test]
fn all_gather_and_slice_are_inverse() {
    let mut tried = 0;
    each_layout(|shape, layout| {
        for (c, to) in Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY) {
            let back = match c {
                Collective::AllGather { dim, axes } => Collective::Slice { dim, axes },
                Collective::Slice { dim, axes } => Collective::AllGather { dim, axes },
                _ => continue,
            };
            assert_eq!(back.apply(shape, to), Ok(layout), "{c:?} from {layout:?}");
            tried += 1;
        }
    });
    assert!(tried > 1_000);
}

#[test]
fn all_reduce_is_reduce_scatter_then_all_gather() {
    each_layout(|shape, layout| {
        for (c, to) in Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY) {
            let Collective::ReduceScatter { kind, dim, axes } = c else { continue };
            let gathered = Collective::AllGather { dim, axes }.apply(shape, to);
            assert_eq!(
                gathered,
                Collective::AllReduce { kind, axes: axes.set() }.apply(shape, layout)
            );
            assert!(gathered.is_ok());
        }
    });
}

#[test]
fn a_partial_softmax_is_merged_and_moves_in_no_other_way() {
    let mut count = 0;
    each_layout(|shape, layout| {
        if !layout.is_complete() {
            return;
        }
        let all = shape.mesh.all_axes();
        let statistics: DimSet = (0..shape.rank()).take(1).collect();
        assert!(Collective::merges_from(shape, layout, statistics).is_empty());
        for axes in layout.replicated_axes(shape.mesh).nonempty_subsets() {
            let part = axes.iter().fold(layout, Layout::with_softmax);
            assert!(!part.is_complete() && part.softmax_axes() == axes);
            assert!(shape.softmax_layouts().contains(&part));
            assert_eq!(Collective::all_from(shape, part, all, all), []);
            for (merge, to) in Collective::merges_from(shape, part, statistics) {
                assert_eq!(merge.apply(shape, part), Ok(to));
                let merged = merge.terms().axes.expect("its axes");
                assert_eq!(to.softmax_axes(), axes.difference(merged.set()));
                let [dim, _] = merge.terms().dims;
                let steps = merged.iter().map(|axis| Collective::SoftmaxMerge {
                    dim,
                    axes: one(axis),
                    statistics,
                });
                assert_eq!(chain(shape, part, steps), Ok(to));
                count += 1;
            }
        }
    });
    assert!(count > 1000, "{count}");
}

#[test]
fn a_move_over_several_axes_is_a_chain_of_moves_over_one() {
    each_layout(|shape, layout| {
        let all = shape.mesh.all_axes();
        for (c, to) in Collective::all_from(shape, layout, all, all) {
            let chained = match c {
                // Axes leave a dim from the minor-most on, and come to a dim from the major-most
                // on.
                Collective::AllGather { dim, axes } => chain(
                    shape,
                    layout,
                    axes.iter().rev().map(|a| Collective::AllGather { dim, axes: one(a) }),
                ),
                Collective::Slice { dim, axes } => chain(
                    shape,
                    layout,
                    axes.iter().map(|a| Collective::Slice { dim, axes: one(a) }),
                ),
                Collective::ReduceScatter { kind, dim, axes } => chain(
                    shape,
                    layout,
                    axes.iter().map(|a| Collective::ReduceScatter { kind, dim, axes: one(a) }),
                ),
                Collective::AllReduce { kind, axes } => chain(
                    shape,
                    layout,
                    axes.iter()
                        .map(|a| Collective::AllReduce { kind, axes: AxisSet::EMPTY.with(a) }),
                ),
                Collective::ToPartial { kind, dim, axes } => chain(
                    shape,
                    layout,
                    axes.iter().rev().map(|a| Collective::ToPartial { kind, dim, axes: one(a) }),
                ),
                Collective::SoftmaxMerge { .. } => unreachable!("nothing here is to be merged"),
                Collective::AllGatherDims { .. } => chain(
                    shape,
                    layout,
                    c.parts(layout)
                        .into_iter()
                        .map(|(dim, axes)| Collective::AllGather { dim, axes }),
                ),
                Collective::ReduceScatterDims { kind, .. } => chain(
                    shape,
                    layout,
                    c.parts(layout).into_iter().map(|(dim, axes)| Collective::ReduceScatter {
                        kind,
                        dim,
                        axes,
                    }),
                ),
                Collective::AllToAll { .. }
                | Collective::Permute { .. }
                | Collective::Exchange { .. } => continue,
            };
            assert_eq!(chained, Ok(to), "{c:?} from {layout:?}");
        }
    });
}

#[test]
fn all_to_alls_over_one_axis_after_another_turn_the_axes_round() {
    let mesh = mesh(&[2, 2]);
    let shape = MeshShape { mesh: &mesh, sizes: &[8, 8] };
    let xy: AxisList = mesh.axis_ids().collect();
    let yx: AxisList = mesh.axis_ids().rev().collect();
    let from = Layout::REPLICATED.with_dim(0, xy);
    let at_once = Collective::AllToAll { from_dim: 0, to_dim: 1, axes: xy }.apply(shape, from);
    assert_eq!(at_once, Ok(Layout::REPLICATED.with_dim(1, xy)));
    let chained = yx.iter().map(|a| Collective::AllToAll { from_dim: 0, to_dim: 1, axes: one(a) });
    assert_eq!(chain(shape, from, chained), Ok(Layout::REPLICATED.with_dim(1, yx)));
}

#[test]
fn an_all_to_all_is_undone_by_the_opposite_one() {
    each_layout(|shape, layout| {
        for (c, to) in Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY) {
            let Collective::AllToAll { from_dim, to_dim, axes } = c else { continue };
            let back = Collective::AllToAll { from_dim: to_dim, to_dim: from_dim, axes };
            assert_eq!(back.apply(shape, to), Ok(layout));
            // An all-to-all is also an all-gather and a slice, with fewer bytes on the wire.
            let gathered =
                Collective::AllGather { dim: from_dim, axes }.apply(shape, layout).unwrap();
            assert_eq!(Collective::Slice { dim: to_dim, axes }.apply(shape, gathered), Ok(to));
        }
    });
}

#[test]
fn a_permute_is_undone_by_a_permute() {
    each_layout(|shape, layout| {
        for (c, to) in Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY) {
            if let Collective::Permute { to: target } = c {
                assert_eq!(to, target);
                assert_eq!(Collective::Permute { to: layout }.apply(shape, to), Ok(layout));
                assert_eq!(shape.local_sizes(to), shape.local_sizes(layout));
            }
        }
        assert_eq!(
            Collective::Permute { to: layout }.apply(shape, layout),
            Err(CollectiveError::NotAPermutation)
        );
    });
}

#[test]
fn between_layouts_of_the_same_split_axes_there_is_one_move() {
    let mut exchanges = 0;
    each_layout(|shape, layout| {
        let all = Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY);
        for to in shape.layouts_like(layout).into_iter().filter(|to| *to != layout) {
            let regroup: Vec<&Collective> = all
                .iter()
                .filter(|(c, after)| {
                    *after == to
                        && !matches!(c, Collective::AllGather { .. } | Collective::Slice { .. })
                })
                .map(|(c, _)| c)
                .collect();
            assert_eq!(
                regroup,
                [&Collective::regrouping(shape, layout, to).unwrap()],
                "{layout:?} to {to:?}"
            );
            if let Collective::Exchange { .. } = regroup[0] {
                assert_eq!(Collective::Exchange { to: layout }.apply(shape, to), Ok(layout));
                exchanges += 1;
            }
        }
    });
    assert!(exchanges > 5_000, "{exchanges}");
}

/// The coordinates of a device, and where its block of each dim begins and ends in a layout.
fn block(shape: MeshShape<'_>, layout: Layout, device: u64) -> (Vec<u64>, Vec<(u64, u64)>) {
    let at = shape.mesh.coordinates(device);
    let local = shape.local_sizes(layout);
    let rank = |dim: usize| {
        layout.axes_of(dim).iter().fold(0, |r, a| r * shape.mesh.size(a) + at[a.index()])
    };
    let blocks =
        (0..shape.rank()).map(|d| (rank(d) * local[d], (rank(d) + 1) * local[d])).collect();
    (at, blocks)
}

/// The number of elements that two blocks have in common.
fn common(one: &[(u64, u64)], other: &[(u64, u64)]) -> u64 {
    one.iter().zip(other).map(|(a, b)| a.1.min(b.1).saturating_sub(a.0.max(b.0))).product()
}

#[test]
fn what_a_device_keeps_in_an_exchange_and_the_axes_that_it_crosses_follow_from_the_layouts() {
    let mut tried = 0;
    each_layout(|shape, layout| {
        for (c, to) in Collective::all_from(shape, layout, AxisSet::EMPTY, AxisSet::EMPTY) {
            let Collective::Exchange { .. } = c else { continue };
            let devices: Vec<_> = (0..shape.mesh.devices())
                .map(|d| (block(shape, layout, d), block(shape, to, d)))
                .collect();
            let kept: Vec<u64> =
                devices.iter().map(|((_, before), (_, after))| common(before, after)).collect();
            let held = shape.local_elements(layout);
            match kept_by_each(shape.mesh, layout, to) {
                Some(parts) => {
                    assert!(kept.iter().all(|k| k * parts == held), "{layout:?} to {to:?}")
                }
                None => assert_eq!(kept.iter().min(), Some(&0), "{layout:?} to {to:?}"),
            }
            let mut crossed = AxisSet::EMPTY;
            // Compare devices that differ along split axes only: they hold the same term and the
            // same copy.
            let alone = layout.split_axes();
            for ((from, before), _) in &devices {
                for (_, (at, after)) in &devices {
                    let differ =
                        || shape.mesh.axis_ids().filter(|a| from[a.index()] != at[a.index()]);
                    if common(before, after) > 0 && differ().all(|a| alone.contains(a)) {
                        crossed = differ().fold(crossed, AxisSet::with);
                    }
                }
            }
            assert_eq!(c.axes(shape.mesh, layout).set(), crossed, "{layout:?} to {to:?}");
            tried += 1;
        }
    });
    assert!(tried > 5_000, "{tried}");
}

#[test]
fn any_complete_layout_is_a_slice_an_exchange_and_a_gather_from_any_other() {
    let mut tried = 0;
    each_shape(|shape| {
        let layouts = shape.layouts(AxisSet::EMPTY, AxisSet::EMPTY);
        for from in layouts.iter().copied() {
            for to in layouts.iter().copied() {
                // Axes that enter are sliced first, where sizes divide; else axes that leave are
                // gathered first.
                let moves = way(shape, from, to);
                assert_eq!(
                    chain(shape, from, moves.iter().copied()),
                    Ok(to),
                    "{from:?} to {to:?}: {moves:?}"
                );
                tried += 1;
            }
        }
    });
    assert!(tried > 5_000, "{tried}");
}

/// A chain of slices, one exchange and one gather, if there is one through legal layouts; else a
/// chain of gathers and slices.
fn way(shape: MeshShape<'_>, from: Layout, to: Layout) -> Vec<Collective> {
    let enter = to.split_axes().difference(from.split_axes());
    let leave = from.split_axes().difference(to.split_axes());
    // The layouts before and after the exchange: axes that enter stand behind those of `from`, and
    // axes that leave stand behind those of `to`.
    let behind = |base: Layout, axes: AxisSet| -> Vec<Layout> {
        axes.iter().fold(vec![base], |all, axis| {
            let with = |l: Layout| {
                (0..shape.rank())
                    .filter(move |d| shape.can_append(l, *d, &one(axis)))
                    .map(move |d| l.with_dim(d, l.axes_of(d).then(axis)))
            };
            all.into_iter().flat_map(with).collect()
        })
    };
    if let (Some(cut), Some(wide)) = (behind(from, enter).first(), behind(to, leave).first()) {
        let mut moves: Vec<Collective> = Vec::new();
        for dim in 0..shape.rank() {
            let (before, after) = (from.axes_of(dim), cut.axes_of(dim));
            if after.len() > before.len() {
                moves.push(Collective::Slice { dim, axes: after.suffix_from(before.len()) });
            }
        }
        moves.extend(Collective::regrouping(shape, *cut, *wide));
        for dim in 0..shape.rank() {
            let (before, after) = (wide.axes_of(dim), to.axes_of(dim));
            if before.len() > after.len() {
                moves.push(Collective::AllGather { dim, axes: before.suffix_from(after.len()) });
            }
        }
        return moves;
    }
    // No dim divides over the axes that enter together with those that leave: gather, then slice.
    let mut moves = Vec::new();
    for dim in 0..shape.rank() {
        if !from.axes_of(dim).is_empty() {
            moves.push(Collective::AllGather { dim, axes: from.axes_of(dim) });
        }
    }
    for dim in 0..shape.rank() {
        if !to.axes_of(dim).is_empty() {
            moves.push(Collective::Slice { dim, axes: to.axes_of(dim) });
        }
    }
    moves
}

#[test]
fn to_partial_is_undone_by_the_reduction() {
    each_layout(|shape, layout| {
        let all = shape.mesh.all_axes();
        for (c, to) in Collective::all_from(shape, layout, all, all) {
            let Collective::ToPartial { kind, dim, axes } = c else { continue };
            let back = match dim {
                None => Collective::AllReduce { kind, axes: axes.set() },
                Some(dim) => Collective::ReduceScatter { kind, dim, axes },
            };
            let waits = kind == Reduction::Max && !layout.partial(Reduction::Sum).is_empty();
            assert_eq!(
                back.apply(shape, to),
                if waits { Err(CollectiveError::SumInsideMax) } else { Ok(layout) }
            );
        }
    });
}

/// Every move that can be written down, legal or not.
fn every_move(shape: MeshShape<'_>) -> Vec<Collective> {
    let lists = AxisList::arrangements(shape.mesh.all_axes());
    let kinds = [Reduction::Sum, Reduction::Max];
    let mut out = Vec::new();
    for axes in lists.iter().copied() {
        for dim in 0..shape.rank() {
            out.extend([Collective::AllGather { dim, axes }, Collective::Slice { dim, axes }]);
            out.extend((0..shape.rank()).map(|to_dim| Collective::AllToAll {
                from_dim: dim,
                to_dim,
                axes,
            }));
            out.extend(kinds.map(|kind| Collective::ReduceScatter { kind, dim, axes }));
            out.extend(kinds.map(|kind| Collective::ToPartial { kind, dim: Some(dim), axes }));
        }
    }
    for axes in shape.mesh.all_axes().nonempty_subsets() {
        out.extend(kinds.map(|kind| Collective::AllReduce { kind, axes }));
        // The axes are in mesh order, since their order has no meaning here.
        out.extend(kinds.map(|kind| Collective::ToPartial {
            kind,
            dim: None,
            axes: axes.iter().collect(),
        }));
    }
    for to in shape.layouts(shape.mesh.all_axes(), shape.mesh.all_axes()) {
        out.extend([
            Collective::Permute { to },
            Collective::Exchange { to },
            Collective::AllGatherDims { to },
        ]);
        out.extend(kinds.map(|kind| Collective::ReduceScatterDims { kind, to }));
    }
    out
}

#[test]
fn all_from_lists_every_move_that_applies_and_no_other() {
    each_shape(|shape| {
        let moves = every_move(shape);
        let all = shape.mesh.all_axes();
        let some: AxisSet = shape.mesh.axis_ids().take(1).collect();
        for layout in shape.layouts(all, all) {
            for (sums, maxima) in [(all, all), (some, AxisSet::EMPTY)] {
                let listed = Collective::all_from(shape, layout, sums, maxima);
                let expected: BTreeSet<(Collective, Layout)> = moves
                    .iter()
                    .filter(|c| match c {
                        Collective::ToPartial { kind: Reduction::Sum, axes, .. } => {
                            axes.set().is_subset(sums)
                        }
                        Collective::ToPartial { kind: Reduction::Max, axes, .. } => {
                            axes.set().is_subset(maxima)
                        }
                        _ => true,
                    })
                    .filter_map(|c| Some((*c, c.apply(shape, layout).ok()?)))
                    .collect();
                assert_eq!(
                    listed.len(),
                    expected.len(),
                    "from {layout:?}: something twice, or left out"
                );
                assert_eq!(
                    listed.into_iter().collect::<BTreeSet<_>>(),
                    expected,
                    "from {layout:?}"
                );
            }
        }
    });
}

#[test]
fn moves_lead_to_legal_layouts_alone() {
    each_layout(|shape, layout| {
        let all = shape.mesh.all_axes();
        for (c, to) in Collective::all_from(shape, layout, all, all) {
            let lists: Vec<AxisList> = (0..shape.rank()).map(|d| to.axes_of(d)).collect();
            let rebuilt =
                Layout::new(shape, &lists, to.partial(Reduction::Sum), to.partial(Reduction::Max));
            assert_eq!(rebuilt, Ok(to), "{c:?} from {layout:?}");
        }
    });
}
