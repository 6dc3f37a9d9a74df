//! Tests the two generators of the search against their definitions, on all small shapes:
//!
//! * the moves that generate all others lose no time against all moves;
//! * the strategies of an op are exactly the tuples of operand layouts that the layout rule
//!   accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{
    AxisSet, Binary, Collective, Dim, DimId, Dtype, Fused, Layout, Map, Mesh, MeshShape, Norm, Op,
    Operand, Reduce, Reduction, result_layout_as,
};
use shard_search::rules::moves::generating_moves;
use shard_search::rules::strategies::OpSite;

const MESHES: &[&[u64]] = &[&[2], &[2, 2], &[4, 2], &[2, 3], &[2, 2, 2], &[4, 2, 2]];

fn mesh(sizes: &[u64]) -> Mesh {
    Mesh::new(["x", "y", "z"].into_iter().zip(sizes.iter().copied())).expect("the mesh is legal")
}

/// A chip on a network.
fn hardware(network: &str) -> Hardware {
    let text = "name = \"uneven\"\n[chip]\nflops = { bf16 = 1e12 }\nhbm_bytes = \
        1e9\nhbm_bandwidth = 1e12\n[network]\n";
    Hardware::parse(&format!("{text}{network}")).expect("the file is well formed")
}

/// Networks whose times are no whole numbers. The first is flat and without latency, so that moves
/// add up.
const NETWORKS: [&str; 4] = [
    "kind = \"flat\"\nbandwidth = 7.3e9",
    "kind = \"flat\"\nbandwidth = 7.3e9\nlatency = 1e-9",
    "kind = \"torus\"\nlink_bandwidth = 7.3e9\nhop_latency = 1e-9\nwraparound = \"full-axis-2\"\n\
     [network.axes]\nz = { kind = \"flat\", bandwidth = 1.1e9 }",
    "kind = \"switched\"\nnode = 4\nnode_bandwidth = 7.3e9\nnic_bandwidth = 1.1e9\nalpha = 2e-9",
];

/// The shortest times between all layouts over some moves (Floyd and Warshall).
fn all_pairs(
    hardware: &Hardware,
    shape: MeshShape<'_>,
    layouts: &[Layout],
    moves: &dyn Fn(Layout) -> Vec<(Collective, Layout)>,
) -> Vec<Vec<u64>> {
    const NEVER: u64 = u64::MAX / 4;
    let number: BTreeMap<Layout, usize> =
        layouts.iter().enumerate().map(|(i, l)| (*l, i)).collect();
    let mut way = vec![vec![NEVER; layouts.len()]; layouts.len()];
    for (from, layout) in layouts.iter().enumerate() {
        way[from][from] = 0;
        for (collective, to) in moves(*layout) {
            assert_eq!(collective.apply(shape, *layout), Ok(to), "a move leads where it says");
            let price = collective_cost(
                hardware,
                shape.mesh,
                &collective,
                *layout,
                shape.sizes,
                Dtype::Bf16,
            );
            let way = &mut way[from][number[&to]];
            *way = price.time.0.min(*way);
        }
    }
    for middle in 0..layouts.len() {
        let onward = way[middle].clone();
        for row in way.iter_mut().filter(|row| row[middle] < NEVER) {
            let there = row[middle];
            for (known, on) in row.iter_mut().zip(&onward) {
                *known = (*known).min(there + on);
            }
        }
    }
    way
}

#[test]
fn generating_moves_regroupings_and_permutes_reach_all_that_all_moves_reach_at_the_same_times() {
    let shapes: &[&[u64]] = &[
        &[],
        &[1],
        &[16],
        &[4],
        &[6],
        &[16, 16],
        &[2, 16],
        &[4, 6],
        &[3, 5],
        &[1, 8],
        &[16, 16, 16],
        &[2, 4, 2],
        &[1, 2, 16],
        &[6, 3, 4],
    ];
    let (mut checked, mut pairs) = (0, 0);
    let cases =
        NETWORKS.iter().flat_map(|network| MESHES.iter().map(move |sizes| (*network, *sizes)));
    for (network, sizes) in cases {
        let (hardware, mesh) = (hardware(network), mesh(sizes));
        let adds_up = hardware.network.adds_up(&mesh);
        assert_eq!(adds_up, network == NETWORKS[0]);
        for sizes in shapes {
            for maxima in [AxisSet::EMPTY, mesh.all_axes()] {
                let shape = MeshShape { mesh: &mesh, sizes };
                let layouts = shape.layouts(mesh.all_axes(), maxima);
                let all = |from: Layout| Collective::all_from(shape, from, mesh.all_axes(), maxima);
                let generating = |from: Layout| {
                    let mut moves = Vec::new();
                    generating_moves(shape, from, mesh.all_axes(), maxima, adds_up, &mut moves);
                    let like = shape.layouts_like(from).into_iter();
                    moves.extend(
                        like.filter_map(|to| Some((Collective::regrouping(shape, from, to)?, to))),
                    );
                    moves.extend(
                        all(from)
                            .into_iter()
                            .filter(|(c, _)| matches!(c, Collective::Permute { .. })),
                    );
                    moves
                };
                let (whole, generated) = (
                    all_pairs(&hardware, shape, &layouts, &all),
                    all_pairs(&hardware, shape, &layouts, &generating),
                );
                for (from, (a, b)) in whole.iter().zip(&generated).enumerate() {
                    for (to, (a, b)) in a.iter().zip(b).enumerate() {
                        assert_eq!(
                            a, b,
                            "{:?} to {:?} of {sizes:?} on {mesh}, {network}: all moves, \
                                generating moves",
                            layouts[from], layouts[to]
                        );
                    }
                }
                pairs += layouts.len() * layouts.len();
                checked += 1;
            }
        }
    }
    eprintln!("{checked} shapes, {pairs} pairs of layouts");
}

/// An op with its operands and its result, by the names of dims.
struct Site {
    op: Op,
    operands: Vec<(&'static str, Dtype)>,
    result: &'static str,
}

const NAMES: [&str; 7] = ["A", "B", "C", "D", "E", "F", "G"];

/// `F` holds `A` and `B` merged, `G` is `A` beside `B`; `E` is as large as `A`.
fn dims(a: u64, b: u64, c: u64) -> Vec<Dim> {
    let sizes = [a, b, c, 4, a, a * b, a + b];
    NAMES
        .into_iter()
        .zip(sizes)
        .map(|(name, size)| Dim { name: name.into(), size, useful: size })
        .collect()
}

fn id(name: char) -> DimId {
    DimId(NAMES.iter().position(|n| n.starts_with(name)).expect("the dim is declared") as u16)
}

fn ids(names: &str) -> Vec<DimId> {
    names.chars().map(id).collect()
}

fn site(op: Op, operands: &[&'static str], result: &'static str) -> Site {
    Site { op, operands: operands.iter().map(|o| (*o, Dtype::F32)).collect(), result }
}

/// Every variant of [`Op`] on few dims.
fn sites() -> Vec<Site> {
    let mut all = vec![
        site(Op::Einsum, &["AB", "BC"], "AC"),
        site(Op::Einsum, &["AB", "BC"], "CA"),
        site(Op::Einsum, &["AB", "AB"], "A"),
        site(Op::Einsum, &["AB", "B"], "AB"),
        site(Op::Einsum, &["AB", "B"], ""),
        site(Op::Einsum, &["A", "B"], "AB"),
        site(Op::Einsum, &["AB"], "BA"),
        site(Op::Einsum, &["AB"], "A"),
        site(Op::Einsum, &["", "A"], "A"),
        site(Op::Softmax { over: id('B') }, &["AB"], "AB"),
        site(Op::Rename { from: id('A'), to: id('E') }, &["AB"], "EB"),
        site(Op::Split { from: id('F'), to: ids("AB") }, &["F"], "AB"),
        site(Op::Split { from: id('F'), to: ids("AB") }, &["CF"], "CAB"),
        site(Op::Merge { from: ids("AB"), to: id('F') }, &["AB"], "F"),
        site(Op::Merge { from: ids("AB"), to: id('F') }, &["ABC"], "FC"),
        site(Op::Concat { left: id('A'), right: id('B'), to: id('G') }, &["AC", "BC"], "GC"),
        site(Op::SliceDim { from: id('G'), to: id('A'), offset: 1 }, &["GC"], "AC"),
        site(Op::Append { from: id('A'), to: id('G') }, &["GC", "AC"], "GC"),
        site(Op::Mask { query: id('A'), key: id('G'), window: None }, &["AG"], "AG"),
        site(Op::Rope { over: id('D'), at: id('A'), extent: None }, &["AD"], "AD"),
        site(Op::Route { over: id('A'), at: id('B'), to: id('C'), choices: 1 }, &["ABD"], "ABDC"),
        site(Op::Fetch, &["AB"], "AB"),
        site(Op::Cast(Dtype::Bf16), &["AB"], "AB"),
        site(Op::Cast(Dtype::Bool), &["AB"], "AB"),
        site(Op::Cast(Dtype::Int32), &["AB"], "AB"),
    ];
    all.push(Site {
        op: Op::Take { over: id('A') },
        operands: vec![("AC", Dtype::F32), ("B", Dtype::Int32)],
        result: "BC",
    });
    // E is as large as A.
    let rows = |over, rows, ids, result| Site {
        op: Op::ScatterAdd { over, to: id('E') },
        operands: vec![(rows, Dtype::F32), (ids, Dtype::Int32)],
        result,
    };
    all.push(rows(ids("B"), "BC", "B", "EC"));
    all.push(rows(ids("B"), "CB", "BC", "CE"));
    all.push(rows(ids("AB"), "AB", "BA", "E"));
    let int = |op, result| Site {
        op,
        operands: vec![("AB", Dtype::Int32), ("AB", Dtype::Int32)],
        result,
    };
    all.push(int(Op::Binary(Binary::Div), "AB"));
    all.extend(Map::ALL.iter().map(|map| site(Op::Map(*map), &["AB"], "AB")));
    for binary in Binary::ALL {
        all.push(site(Op::Binary(*binary), &["AB", "AB"], "AB"));
        all.push(site(Op::Binary(*binary), &["AB", "B"], "AB"));
        all.push(site(Op::Binary(*binary), &["AB", "BA"], "AB"));
        all.push(site(Op::Binary(*binary), &["AB", ""], "AB"));
    }
    for kind in Reduce::ALL.iter().copied() {
        all.push(site(Op::Reduce { kind, over: ids("B") }, &["AB"], "A"));
        all.push(site(Op::Reduce { kind, over: ids("AB") }, &["ABC"], "C"));
    }
    all.extend(
        Norm::ALL.iter().map(|kind| site(Op::Norm { kind: *kind, over: id('B') }, &["AB"], "AB")),
    );
    all
}

type Strategies = BTreeSet<(Layout, Vec<Layout>)>;

/// Every way of taking one layout from each list.
fn tuples(lists: &[Vec<Layout>]) -> impl Iterator<Item = Vec<Layout>> + '_ {
    let count: usize = lists.iter().map(Vec::len).product();
    (0..count).map(|tuple| {
        let mut rest = tuple;
        let pick = |all: &Vec<Layout>| {
            let layout = all[rest % all.len()];
            rest /= all.len();
            layout
        };
        lists.iter().map(pick).collect()
    })
}

/// The strategies found by trying every tuple of operand layouts.
fn by_trying(site: &Site, mesh: &Mesh, dims: &[Dim], result: &[DimId]) -> Strategies {
    let operands: Vec<(Vec<DimId>, Dtype)> =
        site.operands.iter().map(|(o, dtype)| (ids(o), *dtype)).collect();
    let all_layouts = |of: &[DimId]| {
        let sizes: Vec<u64> = of.iter().map(|d| dims[d.index()].size).collect();
        MeshShape { mesh, sizes: &sizes }.layouts(mesh.all_axes(), mesh.all_axes())
    };
    let layouts: Vec<Vec<Layout>> =
        operands.iter().map(|(operand, _)| all_layouts(operand)).collect();
    let mut found = Strategies::new();
    for picked in tuples(&layouts) {
        let seen: Vec<Operand<'_>> = operands
            .iter()
            .zip(&picked)
            .map(|((dims, dtype), layout)| Operand { dims, dtype: *dtype, layout: *layout })
            .collect();
        let made = |wanted| result_layout_as(&site.op, &seen, result, wanted, mesh, dims).ok();
        if site.op.own_dim().is_some() {
            let of_result = all_layouts(result);
            let made = of_result.into_iter().filter(|wanted| made(*wanted) == Some(*wanted));
            found.extend(made.map(|layout| (layout, picked.clone())));
        } else if let Some(layout) = made(Layout::REPLICATED) {
            found.insert((layout, picked));
        } else if let Some(layout) = in_pieces(site, &seen[0], result) {
            found.insert((layout, picked));
        }
    }
    found
}

/// The layout of a composite whose dim is split, on an operand that is not partial, which is that
/// of the operand. `pieces.rs` tests that its pieces are legal.
fn in_pieces(site: &Site, operand: &Operand<'_>, result: &[DimId]) -> Option<Layout> {
    let (Op::Softmax { over } | Op::Norm { over, .. }) = &site.op else { return None };
    let at = operand.dims.iter().position(|d| d == over)?;
    let is_partial = !operand
        .layout
        .partial(Reduction::Sum)
        .union(operand.layout.partial(Reduction::Max))
        .is_empty();
    assert_eq!(operand.dims, result, "sites of composites keep the order of dims");
    (!operand.layout.axes_of(at).is_empty() && !is_partial).then_some(operand.layout)
}

fn hold(site: &Site, mesh: &Mesh, dims: &[Dim]) -> usize {
    let result = ids(site.result);
    let operands: Vec<(Vec<DimId>, Dtype)> =
        site.operands.iter().map(|(o, dtype)| (ids(o), *dtype)).collect();
    let op_site = OpSite {
        op: &site.op,
        operands: operands.iter().map(|(dims, dtype)| (dims.as_slice(), *dtype)).collect(),
        result: &result,
        mesh,
        dims,
        in_pieces: true,
    };
    let what = || {
        let sizes: Vec<u64> = dims.iter().map(|d| d.size).collect();
        format!("{:?} {:?} -> {} on {mesh}, dims {sizes:?}", site.op, site.operands, site.result)
    };
    let profile = op_site.profile();
    let sizes: Vec<u64> = result.iter().map(|d| dims[d.index()].size).collect();
    let result_layouts =
        MeshShape { mesh, sizes: &sizes }.layouts(mesh.all_axes(), mesh.all_axes());

    let mut backward: Vec<(Layout, Vec<Layout>)> = Vec::new();
    for target in &result_layouts {
        backward.extend(
            op_site.strategies(&profile, *target).into_iter().map(|operands| (*target, operands)),
        );
    }
    let mut forward: Vec<(Layout, Vec<Layout>)> = Vec::new();
    let _ = op_site.for_each_strategy(&profile, &result_layouts, &mut |layout, operands| {
        forward.push((layout, operands.to_vec()));
        ControlFlow::Continue(())
    });
    let tried = by_trying(site, mesh, dims, &result);
    for (name, list) in [("strategies", &backward), ("for_each_strategy", &forward)] {
        let set: Strategies = list.iter().cloned().collect();
        assert_eq!(set.len(), list.len(), "{name} gives one twice: {}", what());
        if let Some((layout, operands)) = tried.difference(&set).next() {
            panic!("{name} lacks {operands:?} -> {layout:?}: {}", what());
        }
        if let Some((layout, operands)) = set.difference(&tried).next() {
            panic!("{name} has too much, {operands:?} -> {layout:?}: {}", what());
        }
    }
    tried.len()
}

#[test]
fn the_strategies_of_an_op_are_the_tuples_of_layouts_that_the_layout_rule_accepts() {
    let (mut checked, mut found) = (0, 0);
    for sizes in [&[2][..], &[2, 2], &[4, 2], &[2, 3]] {
        let mesh = mesh(sizes);
        for dims in [
            dims(4, 8, 16),
            dims(24, 24, 24),
            dims(2, 2, 2),
            dims(2, 6, 1),
            dims(1, 3, 4),
            dims(12, 4, 6),
        ] {
            for site in sites() {
                found += hold(&site, &mesh, &dims);
                checked += 1;
            }
        }
    }
    eprintln!("{checked} ops, {found} strategies");
}

#[test]
fn so_they_are_on_three_axes() {
    let (mut checked, mut found) = (0, 0);
    let mesh = mesh(&[2, 2, 2]);
    for dims in [dims(8, 8, 8), dims(4, 2, 1)] {
        for site in sites() {
            found += hold(&site, &mesh, &dims);
            checked += 1;
        }
    }
    eprintln!("{checked} ops, {found} strategies");
}

/// Asserts that the loops of an einsum are the same found backwards from the result, made from each
/// strategy, and found by trying. Returns how many there are.
fn hold_loops(site: &Site, mesh: &Mesh, dims: &[Dim]) -> usize {
    let result = ids(site.result);
    let operands: Vec<(Vec<DimId>, Dtype)> =
        site.operands.iter().map(|(o, dtype)| (ids(o), *dtype)).collect();
    let op_site = OpSite {
        op: &site.op,
        operands: operands.iter().map(|(dims, dtype)| (dims.as_slice(), *dtype)).collect(),
        result: &result,
        mesh,
        dims,
        in_pieces: true,
    };
    let profile = op_site.profile();
    let layouts = |of: &[DimId]| {
        let sizes: Vec<u64> = of.iter().map(|d| dims[d.index()].size).collect();
        MeshShape { mesh, sizes: &sizes }.layouts(mesh.all_axes(), AxisSet::EMPTY)
    };
    type Loops = BTreeSet<(Layout, Fused, Vec<Layout>)>;
    let mut backward: Vec<(Layout, Fused, Vec<Layout>)> = Vec::new();
    for target in layouts(&result) {
        let all = op_site.loops(&profile, target);
        for (fused, given) in &all {
            assert!(op_site.loops_between(given, target).contains(fused), "{fused:?} {given:?}");
        }
        backward.extend(all.into_iter().map(|(fused, given)| (target, fused, given)));
    }
    let mut forward: Vec<(Layout, Fused, Vec<Layout>)> = Vec::new();
    let _ = op_site.for_each_strategy(&profile, &[], &mut |product, inside| {
        op_site.for_each_gather(inside, &mut |fused, given| {
            forward.push((product, fused, given.to_vec()))
        });
        op_site.for_each_scatter(product, &mut |fused, scattered| {
            forward.push((scattered, fused, inside.to_vec()))
        });
        ControlFlow::Continue(())
    });
    let mut tried = Loops::new();
    let given: Vec<Vec<Layout>> = operands.iter().map(|(of, _)| layouts(of)).collect();
    for picked in tuples(&given) {
        let seen: Vec<Operand<'_>> = operands
            .iter()
            .zip(&picked)
            .map(|((dims, dtype), layout)| Operand { dims, dtype: *dtype, layout: *layout })
            .collect();
        let loops = Fused::all_on(&seen, &result, mesh, dims);
        tried.extend(
            loops.into_iter().map(|(fused, inside)| (inside.result, fused, picked.clone())),
        );
    }
    for (name, list) in [("loops", backward), ("for_each_strategy", forward)] {
        let set: Loops = list.iter().cloned().collect();
        assert_eq!(set.len(), list.len(), "{name} gives one twice: {:?} on {mesh}", site.operands);
        assert_eq!(set, tried, "{name}: {:?} on {mesh}", site.operands);
    }
    // The search knows a strategy by the layouts that it reads and makes: these tell which loop it
    // is.
    let ends: BTreeSet<(Layout, Vec<Layout>)> =
        tried.iter().map(|(to, _, given)| (*to, given.clone())).collect();
    assert_eq!(
        ends.len(),
        tried.len(),
        "two loops between the same layouts: {:?} on {mesh}",
        site.operands
    );
    tried.len()
}

#[test]
fn the_loops_of_an_einsum_are_those_that_the_layouts_of_a_loop_accept() {
    let mut found = 0;
    for sizes in [&[2][..], &[2, 2], &[4, 2]] {
        let mesh = mesh(sizes);
        for dims in [dims(4, 8, 16), dims(2, 6, 1), dims(12, 4, 6)] {
            for site in sites().iter().filter(|site| site.op == Op::Einsum) {
                found += hold_loops(site, &mesh, &dims);
            }
        }
    }
    assert!(found > 5_000, "{found} loops");
}
