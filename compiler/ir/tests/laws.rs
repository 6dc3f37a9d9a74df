//! The laws of layouts and moves, over all layouts of rank <= 3 on <= 3 axes: enumerated, not
//! sampled.

use std::collections::BTreeSet;

use shard_ir::*;

fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied())).unwrap()
}

/// Every mesh and shape that the laws are tested on; some dims do not divide over some groups.
fn each_shape(mut test: impl FnMut(MeshShape<'_>)) {
    let meshes: [&[u64]; 6] = [&[], &[2], &[2, 3], &[4, 2], &[2, 2, 2], &[2, 3, 2]];
    let shapes: [&[u64]; 7] = [&[], &[12], &[8], &[8, 8], &[12, 4], &[8, 8, 8], &[12, 6, 4]];
    for axes in meshes {
        let mesh = mesh(axes);
        for sizes in shapes {
            test(MeshShape { mesh: &mesh, sizes });
        }
    }
}

/// Every layout, partial sums and maxima included.
fn each_layout(mut test: impl FnMut(MeshShape<'_>, Layout)) {
    each_shape(|shape| {
        for layout in shape.layouts(shape.mesh.all_axes(), shape.mesh.all_axes()) {
            test(shape, layout);
        }
    });
}

fn one(axis: AxisId) -> AxisList {
    AxisList::EMPTY.then(axis)
}

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
                // The minor-most axis leaves first, the major-most comes first.
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
            // And it is an all-gather and a slice, with less on the wire.
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

/// Of a device the coordinates, and where its block of each dim begins and ends, in a layout.
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

/// Elements that two blocks have in common.
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
            // Of the holders of a block, those that hold the same terms and copies.
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
                // Axes that enter are cut first, where that divides; else what leaves is gathered
                // first.
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

/// A chain of slices, one exchange and one gather, if there is one through layouts that divide;
/// else through gathers alone.
fn way(shape: MeshShape<'_>, from: Layout, to: Layout) -> Vec<Collective> {
    let enter = to.split_axes().difference(from.split_axes());
    let leave = from.split_axes().difference(to.split_axes());
    // Of the layouts between which the exchange lies: the axes that enter are behind those of
    // `from`, and those that leave behind those of `to`.
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
    // No dim has room for an axis that enters beside those that leave: gather, then cut.
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
        // In mesh order: the order of the axes means nothing here.
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

/// The number of layouts: choose k axes to split, put them into `rank` ordered lists, the others in
/// `ways` ways.
fn closed_form(rank: u64, axes: u64, ways: u64) -> u64 {
    (0..=axes)
        .map(|k| {
            let choose = (0..k).fold(1, |n, i| n * (axes - i) / (i + 1));
            let lists: u64 = (0..k).map(|i| rank + i).product();
            choose * lists * ways.pow((axes - k) as u32)
        })
        .sum()
}

#[test]
fn layouts_are_as_many_as_the_closed_form() {
    assert_eq!(closed_form(3, 3, 2), 176);
    for axes in 0..=3usize {
        let mesh = mesh(&[2, 2, 2][..axes]);
        for rank in 0..=3usize {
            let shape = MeshShape { mesh: &mesh, sizes: &vec![64; rank] };
            let all = mesh.all_axes();
            let count = |sums, maxima| {
                shape.layouts(sums, maxima).into_iter().collect::<BTreeSet<_>>().len() as u64
            };
            let (rank, axes) = (rank as u64, axes as u64);
            assert_eq!(count(AxisSet::EMPTY, AxisSet::EMPTY), closed_form(rank, axes, 1));
            assert_eq!(count(all, AxisSet::EMPTY), closed_form(rank, axes, 2));
            assert_eq!(count(all, all), closed_form(rank, axes, 3));
            assert_eq!(shape.layouts(all, all).len() as u64, closed_form(rank, axes, 3));
        }
    }
}

#[test]
fn layouts_lists_exactly_what_divides() {
    each_shape(|shape| {
        let all = shape.mesh.all_axes();
        let roomy = MeshShape { mesh: shape.mesh, sizes: &vec![1728; shape.rank()] };
        let expected: Vec<Layout> =
            roomy.layouts(all, all).into_iter().filter(|l| shape.admits(*l)).collect();
        assert_eq!(shape.layouts(all, all), expected);
    });
}

#[test]
fn each_illegal_layout_has_its_own_error() {
    let mesh = mesh(&[2, 3]);
    let shape = MeshShape { mesh: &mesh, sizes: &[4, 6] };
    let (x, y) = (AxisId(0), AxisId(1));
    let (none, sx) = (AxisSet::EMPTY, AxisSet::EMPTY.with(x));
    let build =
        |splits: &[AxisList], sums, maxima| Layout::new(shape, splits, sums, maxima).unwrap_err();
    assert_eq!(
        build(&[one(x), one(x)], none, none),
        LayoutError::AxisSplitsTwice { axis: x, first: 0, second: 1 }
    );
    assert_eq!(
        build(&[one(x).then(x)], none, none),
        LayoutError::AxisSplitsTwice { axis: x, first: 0, second: 0 }
    );
    assert_eq!(
        build(&[AxisList::EMPTY, one(x)], sx, none),
        LayoutError::AxisSplitsAndPartial { axis: x, dim: 1 }
    );
    assert_eq!(build(&[one(x)], none, sx), LayoutError::AxisSplitsAndPartial { axis: x, dim: 0 });
    assert_eq!(build(&[], sx, sx), LayoutError::AxisPartialTwice { axis: x });
    assert_eq!(
        build(&[one(y)], none, none),
        LayoutError::NotDivisible { dim: 0, size: 4, devices: 3 }
    );
    assert_eq!(
        build(&[AxisList::EMPTY, AxisList::EMPTY, one(y)], none, none),
        LayoutError::NotDivisible { dim: 2, size: 1, devices: 3 }
    );
    assert_eq!(build(&[AxisList::EMPTY; 15], none, none), LayoutError::RankTooLarge(15));
}

/// The layout with every axis outside of a set taken away.
fn erased(shape: MeshShape<'_>, layout: Layout, keep: AxisSet) -> Layout {
    (0..shape.rank()).fold(layout, |l, d| {
        let kept: AxisList = l.axes_of(d).iter().filter(|a| keep.contains(*a)).collect();
        l.with_dim(d, kept)
    })
}

#[test]
fn a_pattern_admits_what_it_says() {
    let mesh = mesh(&[2, 2, 2]);
    let shape = MeshShape { mesh: &mesh, sizes: &[8, 8] };
    let all = mesh.all_axes();
    let layouts = shape.layouts(all, all);
    for written in layouts.iter().copied().step_by(3) {
        let exactly = LayoutPattern::exactly(written, 2);
        assert_eq!(exactly.exact(shape), Some(written));
        let open = LayoutPattern { open: true, ..exactly.clone() };
        let mut unordered = exactly.clone();
        unordered.dims.iter_mut().for_each(|d| d.any_order = true);
        for layout in layouts.iter().copied() {
            assert_eq!(exactly.admits(layout), layout == written);
            let same_partials = layout.partial(Reduction::Sum) == written.partial(Reduction::Sum)
                && layout.partial(Reduction::Max) == written.partial(Reduction::Max);
            let rest = erased(shape, layout, written.split_axes());
            assert_eq!(
                open.admits(layout),
                same_partials && rest == written,
                "{written:?} {layout:?}"
            );
            let same_sets = (0..2).all(|d| layout.axes_of(d).set() == written.axes_of(d).set());
            assert_eq!(unordered.admits(layout), same_partials && same_sets);
        }
    }
    assert!(layouts.iter().all(|l| LayoutPattern::any(2, true).admits(*l)));
    assert!(layouts.iter().all(|l| LayoutPattern::any(2, false).admits(*l) == l.is_complete()));
}

#[test]
fn candidates_are_the_layouts_that_a_pattern_admits() {
    for axes in [&[2, 2][..], &[2, 3, 2], &[4, 2]] {
        let mesh = mesh(axes);
        let shape = MeshShape { mesh: &mesh, sizes: &[12, 8] };
        let all = mesh.all_axes();
        let layouts = shape.layouts(all, all);
        let some: AxisSet = mesh.axis_ids().take(1).collect();
        for written in layouts.iter().copied() {
            for flags in 0..8 {
                let mut pattern = LayoutPattern::exactly(written, 2);
                (pattern.open, pattern.free_partial) = (flags & 1 > 0, flags & 2 > 0);
                pattern.dims.iter_mut().for_each(|d| d.any_order = flags & 4 > 0);
                for (sums, maxima) in
                    [(all, all), (some, AxisSet::EMPTY), (AxisSet::EMPTY, AxisSet::EMPTY)]
                {
                    let within = |l: Layout| {
                        l.partial(Reduction::Sum).is_subset(sums.union(pattern.partial_sum))
                            && l.partial(Reduction::Max)
                                .is_subset(maxima.union(pattern.partial_max))
                    };
                    let expected: Vec<Layout> = layouts
                        .iter()
                        .copied()
                        .filter(|l| pattern.admits(*l) && within(*l))
                        .collect();
                    assert_eq!(pattern.candidates(shape, sums, maxima), expected, "{pattern:?}");
                }
            }
        }
    }
}

#[test]
fn layout_text_is_canonical_and_reads_back() {
    for (axes, names, dims) in [
        (["x", "y", "z"], ["B", "L", "E2"], "B=12, L=12, E2=12"),
        (["x", "data", "z1"], ["B", "Long", "E"], "B=12, Long=12, E=12"),
    ] {
        let mesh = Mesh::new(axes.into_iter().zip([2, 3, 2])).unwrap();
        let mut texts = BTreeSet::new();
        for rank in 0..=3usize {
            let sizes = vec![12; rank];
            let shape = MeshShape { mesh: &mesh, sizes: &sizes };
            for layout in shape.layouts(mesh.all_axes(), mesh.all_axes()) {
                let written = layout.text(&mesh, &names[..rank]);
                let source = format!(
                    "shir 1\nlayer l\nmesh {mesh}\ndims {dims}\n%0 = parameter : f32 {written}\n"
                );
                let plan =
                    text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}")).remove(0);
                assert_eq!(
                    (plan.instructions[0].layout, plan.instructions[0].dims.len()),
                    (layout, rank)
                );
                assert_eq!(plan.layout_text(InstrId(0)), written);
                assert!(texts.insert(written.clone()), "{written} means two layouts");
            }
        }
    }
}

#[test]
fn a_permuted_layout_keeps_its_axes_with_their_dims() {
    each_layout(|shape, layout| {
        for order in
            [vec![0, 1, 2], vec![2, 0, 1], vec![1, 0, 2]].iter().filter(|o| o.len() == shape.rank())
        {
            let permuted = layout.permuted(order);
            assert!((0..3).all(|d| permuted.axes_of(d) == layout.axes_of(order[d])));
            assert_eq!(permuted.partial_axes(), layout.partial_axes());
        }
    });
}

/// The elements of `parts[0] * parts[1]` that a device holds when each part is split over its own
/// axes.
fn held(mesh: &Mesh, coordinates: &[u64], parts: [(u64, AxisList); 2]) -> BTreeSet<u64> {
    let range = |(size, axes): (u64, AxisList)| {
        let block = axes.iter().fold(0, |n, a| n * mesh.size(a) + coordinates[a.index()]);
        let local = size / mesh.group_size(axes.iter());
        block * local..(block + 1) * local
    };
    range(parts[0])
        .flat_map(|major| range(parts[1]).map(move |minor| major * parts[1].0 + minor))
        .collect()
}

#[test]
fn axes_are_dealt_where_blocks_fall_on_whole_parts() {
    for sizes in [&[2, 2, 2][..], &[2, 3, 2], &[4, 2], &[2, 4], &[6, 2]] {
        let mesh = mesh(sizes);
        let mut lists = AxisList::arrangements(mesh.all_axes());
        lists.push(AxisList::EMPTY);
        for parts in [[4, 8], [2, 4], [6, 4], [4, 6], [1, 12], [12, 1], [3, 8], [8, 3], [2, 2]] {
            let whole = parts[0] * parts[1];
            for axes in lists.iter().copied().filter(|l| whole % mesh.group_size(l.iter()) == 0) {
                let legal = |n: usize| {
                    let (major, minor) = (axes.prefix(n), axes.suffix_from(n));
                    let divides = parts[0] % mesh.group_size(major.iter()) == 0
                        && parts[1] % mesh.group_size(minor.iter()) == 0;
                    divides
                        && (0..mesh.devices()).map(|d| mesh.coordinates(d)).all(|at| {
                            held(&mesh, &at, [(parts[0], major), (parts[1], minor)])
                                == held(&mesh, &at, [(whole, axes), (1, AxisList::EMPTY)])
                        })
                };
                let dealt = layout_rule::deal(axes, &parts, &mesh);
                match &dealt {
                    Some(lists) => {
                        assert_eq!(lists[0].concat(lists[1]), axes);
                        assert!(legal(lists[0].len()), "{axes:?} on {parts:?} over {mesh}");
                    }
                    None => {
                        assert!(!(0..=axes.len()).any(legal), "{axes:?} on {parts:?} over {mesh}")
                    }
                }
            }
        }
    }
}

#[test]
fn blocks_that_straddle_are_refused() {
    let deal = |sizes: &[u64], parts: &[u64]| {
        let mesh = mesh(sizes);
        layout_rule::deal(mesh.axis_ids().collect(), parts, &mesh)
            .map(|l| l.iter().map(|a| a.len()).collect::<Vec<_>>())
    };
    assert_eq!(deal(&[4, 2], &[4, 8]), Some(vec![1, 1]));
    assert_eq!(deal(&[2, 2], &[4, 8]), Some(vec![2, 0]));
    assert_eq!(deal(&[2, 4], &[4, 8]), None);
    assert_eq!(deal(&[2, 2, 2], &[2, 2, 2]), Some(vec![1, 1, 1]));
    assert_eq!(deal(&[2, 2], &[]), None);
    assert_eq!(deal(&[], &[]), Some(vec![]));
}
