//! Einsums of more than two operands, as chains of two-operand ones.

use shard_ir::{Def, DimId, Op, Program, Value, ValueId};

use crate::Limits;

/// The orders of multiplication of a program whose einsums of more than two operands are all chains.
#[derive(Debug)]
pub(crate) struct Orders {
    /// The programs, at least one; the order written in the source, left to right, first.
    pub(crate) programs: Vec<Program>,
    /// There are more orders than the limit allows.
    pub(crate) cut: bool,
}

/// A tree of products over operand places.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tree {
    Leaf(usize),
    Product(Box<Tree>, Box<Tree>),
}

/// Every order of multiplication of every such einsum, up to a limit in all.
pub(crate) fn orders(program: &Program, limits: &Limits) -> Orders {
    let mut programs = vec![program.clone()];
    let mut cut = false;
    while let Some((value, count)) = programs.first().and_then(first_long_einsum) {
        let mut trees = trees(&(0..count).collect::<Vec<_>>(), limits.orders + 1);
        let room = (limits.orders / programs.len()).max(1);
        if trees.len() > room {
            trees.truncate(room);
            cut = true;
        }
        programs = programs.iter().flat_map(|p| trees.iter().map(|tree| rewrite(p, value, tree))).collect();
    }
    Orders { programs, cut }
}

fn first_long_einsum(program: &Program) -> Option<(ValueId, usize)> {
    program.value_ids().find_map(|id| match &program.value(id).def {
        Def::Op { op: Op::Einsum, operands } if operands.len() > 2 => Some((id, operands.len())),
        _ => None,
    })
}

/// All unordered binary trees over some places, left-to-right chains first, at most `limit`.
fn trees(places: &[usize], limit: usize) -> Vec<Tree> {
    let (Some((first, rest)), true) = (places.split_first(), limit > 0) else { return Vec::new() };
    if rest.is_empty() {
        return vec![Tree::Leaf(*first)];
    }
    let mut found = Vec::new();
    // The part without the first place: the last place alone comes first, which gives the chain as written.
    let mut parts: Vec<Vec<usize>> = (1u64..1 << rest.len().min(16))
        .map(|set| rest.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, p)| *p).collect())
        .collect();
    parts.sort_by_key(|part: &Vec<usize>| (part.len(), std::cmp::Reverse(part.clone())));
    for part in parts {
        let left: Vec<usize> = places.iter().copied().filter(|p| !part.contains(p)).collect();
        for l in trees(&left, limit - found.len()) {
            for r in trees(&part, limit - found.len()) {
                found.push(Tree::Product(Box::new(l.clone()), Box::new(r)));
                if found.len() == limit {
                    return found;
                }
            }
        }
    }
    found
}

/// The program with one einsum as a tree of products. New values go right before it.
fn rewrite(program: &Program, at: ValueId, tree: &Tree) -> Program {
    let Def::Op { operands, .. } = &program.value(at).def else { return program.clone() };
    let mut new: Vec<Value> = Vec::new();
    let base = at.0;
    let top = grow(program, at, operands, tree, base, &mut new);
    let shift = new.len() as u32;
    let moved = |id: ValueId| if id.0 >= base { ValueId(id.0 + shift) } else { id };
    let mut out = program.clone();
    out.values = program.values[..at.index()].to_vec();
    out.values.extend(new);
    for (i, value) in program.values[at.index()..].iter().enumerate() {
        let mut value = value.clone();
        match &mut value.def {
            Def::Op { operands, .. } if i == 0 => *operands = top.clone(),
            Def::Op { operands, .. } => operands.iter_mut().for_each(|o| *o = moved(*o)),
            Def::Pin { operand, .. } => *operand = moved(*operand),
            Def::Parameter { .. } | Def::Constant(_) => {}
        }
        out.values.push(value);
    }
    for output in &mut out.outputs {
        output.value = moved(output.value);
    }
    out
}

/// Adds the products inside a tree; returns the two operands of its root.
fn grow(
    program: &Program,
    at: ValueId,
    operands: &[ValueId],
    tree: &Tree,
    base: u32,
    new: &mut Vec<Value>,
) -> Vec<ValueId> {
    let Tree::Product(left, right) = tree else { return Vec::new() };
    let all = leaves(tree);
    [left, right]
        .into_iter()
        .map(|side| match side.as_ref() {
            Tree::Leaf(place) => operands[*place],
            Tree::Product(..) => {
                let children = grow_inner(program, at, operands, side, &all, base, new);
                ValueId(base + children as u32)
            }
        })
        .collect()
}

fn grow_inner(
    program: &Program,
    at: ValueId,
    operands: &[ValueId],
    tree: &Tree,
    _siblings: &[usize],
    base: u32,
    new: &mut Vec<Value>,
) -> usize {
    let inputs = grow(program, at, operands, tree, base, new);
    let inside = leaves(tree);
    let whole = program.value(at);
    let has = |id: ValueId, d: DimId| program.value(id).dims.contains(&d);
    // A dim stays while the result or an operand outside the product still needs it.
    let needed =
        |d: DimId| whole.dims.contains(&d) || (0..operands.len()).any(|i| !inside.contains(&i) && has(operands[i], d));
    let mut dims: Vec<DimId> = Vec::new();
    let mut dtype = None;
    for place in &inside {
        let operand = program.value(operands[*place]);
        dims.extend(
            operand.dims.iter().filter(|d| needed(**d)).filter(|d| !dims.contains(d)).copied().collect::<Vec<_>>(),
        );
        dtype = Some(match dtype {
            None => operand.dtype,
            Some(t) => operand.dtype.product(t).unwrap_or(t),
        });
    }
    new.push(Value {
        name: None,
        dims,
        dtype: dtype.unwrap_or(whole.dtype),
        def: Def::Op { op: Op::Einsum, operands: inputs },
        span: whole.span,
        in_layers: whole.in_layers.clone(),
    });
    new.len() - 1
}

fn leaves(tree: &Tree) -> Vec<usize> {
    match tree {
        Tree::Leaf(place) => vec![*place],
        Tree::Product(left, right) => {
            let mut all = leaves(left);
            all.extend(leaves(right));
            all.sort_unstable();
            all
        }
    }
}
