//! The strategies of an op are compared with its layout rule: what the verifier accepts is a
//! strategy, and nothing else is.

#![allow(missing_docs)]

use std::collections::BTreeSet;

use shard_certificate::Site;
use shard_ir::{
    Binary, Dim, DimId, Dtype, Layout, Map, Mesh, MeshShape, Norm, Op, Operand, Reduce,
    result_layout_as,
};

const B: DimId = DimId(0);
const E: DimId = DimId(1);
const F: DimId = DimId(2);
const H: DimId = DimId(3);
const K: DimId = DimId(4);
const G: DimId = DimId(5);
const U: DimId = DimId(6);

/// An op, the dims of its operands, the dims of its result, and the dtype of all of them.
type Case = (Op, Vec<Vec<DimId>>, Vec<DimId>, Dtype);

/// Cases of the ops that the checker and the layout rule are compared on.
fn sites() -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let mut add = |op: Op, operands: &[&[DimId]], result: &[DimId]| {
        let operands: Vec<Vec<DimId>> = operands.iter().map(|dims| dims.to_vec()).collect();
        for dtype in [Dtype::Bf16, Dtype::Int32] {
            all.push((op.clone(), operands.clone(), result.to_vec(), dtype));
        }
    };
    add(Op::Einsum, &[&[B, E], &[E, F]], &[B, F]);
    add(Op::Einsum, &[&[B, E], &[B, E]], &[E]);
    add(Op::Einsum, &[&[B, E]], &[E, B]);
    add(Op::Einsum, &[&[B, E]], &[B]);
    add(Op::Einsum, &[&[B], &[F]], &[B, F]);
    for map in Map::ALL {
        add(Op::Map(*map), &[&[B, E]], &[B, E]);
    }
    for binary in Binary::ALL {
        add(Op::Binary(*binary), &[&[B, E], &[B, E]], &[B, E]);
        add(Op::Binary(*binary), &[&[B], &[B, E]], &[B, E]);
        add(Op::Binary(*binary), &[&[B, E], &[]], &[B, E]);
    }
    for kind in Reduce::ALL {
        add(Op::Reduce { kind: *kind, over: vec![E] }, &[&[B, E]], &[B]);
        add(Op::Reduce { kind: *kind, over: vec![B, E] }, &[&[B, E]], &[]);
    }
    add(Op::Softmax { over: E }, &[&[B, E]], &[B, E]);
    for kind in Norm::ALL {
        add(Op::Norm { kind: *kind, over: B }, &[&[B, E]], &[B, E]);
    }
    add(Op::Rename { from: E, to: F }, &[&[B, E]], &[B, F]);
    add(Op::Split { from: H, to: vec![K, G] }, &[&[B, H]], &[B, K, G]);
    add(Op::Merge { from: vec![K, G], to: H }, &[&[B, K, G]], &[B, H]);
    add(Op::Merge { from: vec![K, G], to: H }, &[&[K, B, G]], &[H, B]);
    add(Op::Concat { left: E, right: F, to: U }, &[&[B, E], &[B, F]], &[B, U]);
    add(Op::SliceDim { from: E, to: F, offset: 0 }, &[&[B, E]], &[B, F]);
    add(Op::Append { from: F, to: E }, &[&[B, E], &[B, F]], &[B, E]);
    add(Op::Mask { query: B, key: E, window: None }, &[&[B, E]], &[B, E]);
    add(Op::Mask { query: B, key: E, window: Some(2) }, &[&[B, E]], &[B, E]);
    add(Op::Rope { over: E, at: B, extent: None }, &[&[B, E]], &[B, E]);
    add(Op::Take { over: E }, &[&[E, F], &[B]], &[B, F]);
    add(Op::ScatterAdd { over: vec![E], to: F }, &[&[B, E], &[E]], &[B, F]);
    add(Op::ScatterAdd { over: vec![E], to: F }, &[&[E, B], &[B, E]], &[F, B]);
    add(Op::ScatterAdd { over: vec![B, E], to: F }, &[&[B, E], &[E, B]], &[F]);
    add(Op::Route { over: E, at: B, to: F, choices: 1 }, &[&[B, E]], &[B, E, F]);
    add(Op::Fetch, &[&[B, E]], &[B, E]);
    for dtype in [Dtype::F32, Dtype::Int32, Dtype::Bool] {
        add(Op::Cast(dtype), &[&[B, E]], &[B, E]);
    }
    all
}

#[test]
fn the_strategies_of_an_op_are_what_its_layout_rule_allows() {
    let mut found = 0;
    for (mesh, sizes) in [
        (vec![("x", 2), ("y", 2)], [4, 4, 4, 8, 2, 4, 8]),
        (vec![("x", 2), ("y", 3)], [6, 6, 6, 6, 2, 3, 12]),
        (vec![("x", 2), ("y", 2)], [2, 4, 4, 8, 4, 2, 8]),
        (vec![("x", 4), ("y", 2)], [8, 4, 4, 32, 4, 8, 8]),
    ] {
        let mesh = Mesh::new(mesh).expect("a mesh");
        let dims: Vec<Dim> = sizes
            .iter()
            .map(|size| Dim { name: String::new(), size: *size, useful: *size })
            .collect();
        let layouts = |of: &[DimId]| {
            let sizes: Vec<u64> = of.iter().map(|dim| dims[dim.index()].size).collect();
            MeshShape { mesh: &mesh, sizes: &sizes }.layouts(mesh.all_axes(), mesh.all_axes())
        };
        for (op, operands, result, dtype) in sites() {
            let site = Site {
                op: &op,
                operands: operands.iter().map(|dims| (dims.as_slice(), dtype)).collect(),
                result: &result,
                mesh: &mesh,
                dims: &dims,
                in_pieces: false,
                carries: None,
            };
            let mut strategies: BTreeSet<(Vec<Layout>, Layout)> = BTreeSet::new();
            site.for_each_strategy(&mut |read, made| {
                assert!(
                    strategies.insert((read.to_vec(), made)),
                    "{op:?}: once each: {read:?} {made:?}"
                );
            });
            let mut allowed: BTreeSet<(Vec<Layout>, Layout)> = BTreeSet::new();
            let mut tuples: Vec<Vec<Layout>> = vec![Vec::new()];
            for dims in &operands {
                let all = layouts(dims);
                tuples = tuples
                    .iter()
                    .flat_map(|t| all.iter().map(|l| [&t[..], &[*l]].concat()))
                    .collect();
            }
            for read in tuples {
                let seen: Vec<Operand<'_>> = operands
                    .iter()
                    .zip(&read)
                    .map(|(dims, layout)| Operand { dims, dtype, layout: *layout })
                    .collect();
                let made =
                    |wanted| result_layout_as(&op, &seen, &result, wanted, &mesh, &dims).ok();
                let made: Vec<Layout> = match op.own_dim() {
                    None => made(Layout::REPLICATED).into_iter().collect(),
                    Some(_) => {
                        let all = layouts(&result).into_iter();
                        all.filter(|wanted| made(*wanted) == Some(*wanted)).collect()
                    }
                };
                allowed.extend(made.into_iter().map(|made| (read.clone(), made)));
            }
            let more: Vec<_> = strategies.difference(&allowed).collect();
            let less: Vec<_> = allowed.difference(&strategies).collect();
            assert!(
                more.is_empty() && less.is_empty(),
                "{op:?} {operands:?} {dtype:?}\nmore {more:?}\nless {less:?}"
            );
            found += strategies.len();
        }
    }
    assert!(found > 9_000, "{found}");
}
