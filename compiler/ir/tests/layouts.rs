//! Layouts: how many there are, which are legal, what patterns admit, and their text.

use std::collections::BTreeSet;

use crate::common::{each_layout, each_shape, mesh, one};
use shard_ir::*;

/// The number of layouts: choose k axes that split dims and put them into `rank` ordered lists;
/// each other axis has one of `ways` places.
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

/// The layout without all axes outside of a set.
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
