//! The logical rules that cut a dim along which an op runs in equal parts. Each device does the op
//! on its own parts, and little is sent between devices. The dims of the parts are dims of the
//! program already ([`shard_ir::cuts`]).

use egg::Id;
use shard_ir::cuts::{Blocks, Halo};
use shard_ir::{Binary, DimId, Dtype, Op, Reduce, TensorType};

use super::graph::{Expr, Logical, OpPlace, TypedOp};
use super::laws::Rewrites;

/// An op whose result has these dims and this dtype.
fn op(op: Op, dims: &[DimId], dtype: Dtype, operands: Vec<Expr>) -> Expr {
    let ty = TensorType { dims: dims.to_vec(), dtype };
    Expr::Op(TypedOp { op, ty, place: OpPlace::default() }, operands)
}

/// Some dims, with others in the place of one.
fn with(dims: &[DimId], old: DimId, new: &[DimId]) -> Vec<DimId> {
    let replaced = |dim: &DimId| if *dim == old { new.to_vec() } else { vec![*dim] };
    dims.iter().flat_map(replaced).collect()
}

/// For each block what all blocks before it come to, given what all up to and with it come to.
fn before(line: &Blocks, dims: &[DimId], dtype: Dtype, up_to: Expr) -> Expr {
    op(Op::Shift { over: line.blocks, by: 1 }, dims, dtype, vec![up_to])
}

/// `cumsum(a over L)` is, block by block, `cumsum(a) + ` the sums of the blocks before.
pub(super) fn cumsum(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let ty = logical.ty(class);
    for node in logical.nodes(class) {
        let (Some(Op::Cumsum { over }), &[a]) = (logical.op(node), &node.operands[..]) else {
            continue;
        };
        // The sum of a block may be larger than any result, so the dtype has to have room for it.
        if !matches!(ty.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::Int32) {
            continue;
        }
        for line in logical.program.cuts.lines.iter().filter(|line| line.of == *over) {
            let dtype = ty.dtype;
            let to = vec![line.blocks, line.within];
            let cut = with(&logical.ty(a).dims, *over, &to);
            let small = with(&logical.ty(a).dims, *over, &[line.blocks]);
            if !logical.fits(&cut) {
                continue;
            }
            let split = Op::Split { from: *over, to: to.clone() };
            let a = op(split, &cut, dtype, vec![Expr::Class(a)]);
            let own = op(Op::Cumsum { over: line.within }, &cut, dtype, vec![a.clone()]);
            let sum = Op::Reduce { kind: Reduce::Sum, over: vec![line.within] };
            let sums = op(sum, &small, dtype, vec![a]);
            let up_to = op(Op::Cumsum { over: line.blocks }, &small, dtype, vec![sums]);
            let before = before(line, &small, dtype, up_to);
            let all = op(Op::Binary(Binary::Add), &cut, dtype, vec![own, before]);
            let merge = Op::Merge { from: to, to: *over };
            found.push((class, op(merge, &ty.dims, dtype, vec![all])));
        }
    }
}

/// `scan(a, f over L)` is, block by block, `scan(a, f) + ` the product of `f` up to the position
/// times what the blocks before end with.
pub(super) fn scan(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let ty = logical.ty(class);
    for node in logical.nodes(class) {
        let (Some(Op::Scan { over }), &[a, f]) = (logical.op(node), &node.operands[..]) else {
            continue;
        };
        let (of_a, of_f) = (logical.ty(a), logical.ty(f));
        // The product of all gates of a block has to stay within the range of the dtype.
        let is_wide = |dtype: Dtype| matches!(dtype, Dtype::F32 | Dtype::Bf16);
        if !of_f.dims.contains(over) || ![of_a, of_f].iter().all(|ty| is_wide(ty.dtype)) {
            continue;
        }
        for line in logical.program.cuts.lines.iter().filter(|line| line.of == *over) {
            if let Some(one) = line.one
                && logical.fits(&with(&of_a.dims, *over, &[line.blocks, line.within]))
            {
                found.push((class, scan_in_blocks(logical, ty, a, f, line, one)));
            }
        }
    }
}

/// `scan(a, f)` of type `ty` over the dim that a line cuts; `one` is a dim of one position.
fn scan_in_blocks(
    logical: &Logical<'_>,
    ty: &TensorType,
    a: Id,
    f: Id,
    line: &Blocks,
    one: DimId,
) -> Expr {
    let (of_a, of_f, over) = (logical.ty(a), logical.ty(f), line.of);
    let (to, within) = (vec![line.blocks, line.within], line.within);
    let cut = |of: &TensorType| with(&of.dims, over, &to);
    let small = |of: &TensorType| with(&of.dims, over, &[line.blocks]);
    let split = |class: Id, of: &TensorType| {
        let split = Op::Split { from: over, to: to.clone() };
        op(split, &cut(of), of.dtype, vec![Expr::Class(class)])
    };
    let one_of = |from: Expr, of: &TensorType, dtype: Dtype, offset: u64| {
        let dims = with(&of.dims, over, &[line.blocks, one]);
        op(Op::SliceDim { from: within, to: one, offset }, &dims, dtype, vec![from])
    };
    // The last position of each block is all that the blocks behind it need.
    let end = |from: Expr, of: &TensorType, dtype: Dtype| {
        let last = one_of(from, of, dtype, line.positions - 1);
        let sum = Op::Reduce { kind: Reduce::Sum, over: vec![one] };
        op(sum, &small(of), dtype, vec![last])
    };
    let scanned = Op::Scan { over: within };
    let gates = split(f, of_f);
    let own = op(scanned.clone(), &cut(of_a), ty.dtype, vec![split(a, of_a), gates.clone()]);
    // The products of the gates up to each position are a recurrence that starts from the first
    // gate and adds nothing.
    let first = one_of(gates.clone(), of_f, of_f.dtype, 0);
    let pad = Op::Pad { from: one, to: within, offset: 0 };
    let start = op(pad, &cut(of_f), of_f.dtype, vec![first]);
    let products = op(scanned, &cut(of_f), of_f.dtype, vec![start, gates]);
    let ends = vec![end(own.clone(), of_a, ty.dtype), end(products.clone(), of_f, of_f.dtype)];
    let up_to = op(Op::Scan { over: line.blocks }, &small(of_a), ty.dtype, ends);
    let before = before(line, &small(of_a), ty.dtype, up_to);
    let carried = op(Op::Binary(Binary::Mul), &cut(of_a), ty.dtype, vec![products, before]);
    let all = op(Op::Binary(Binary::Add), &cut(of_a), ty.dtype, vec![own, carried]);
    op(Op::Merge { from: to, to: over }, &ty.dims, ty.dtype, vec![all])
}

/// A value in blocks, and for each block the last positions of the block before; for the first
/// block these are zeros.
fn with_ends(a: Id, of_a: &TensorType, halo: &Halo) -> (Expr, Expr) {
    let to = vec![halo.blocks, halo.within];
    let (cut, seen) =
        (with(&of_a.dims, halo.of, &to), with(&of_a.dims, halo.of, &[halo.blocks, halo.seen]));
    let split = Op::Split { from: halo.of, to };
    let a = op(split, &cut, of_a.dtype, vec![Expr::Class(a)]);
    let offset = halo.positions - halo.back;
    let last = Op::SliceDim { from: halo.within, to: halo.seen, offset };
    let last = op(last, &seen, of_a.dtype, vec![a.clone()]);
    let before = Op::Shift { over: halo.blocks, by: 1 };
    (a, op(before, &seen, of_a.dtype, vec![last]))
}

/// The halos of a dim that satisfy a condition on how many positions of the block before they see.
fn halos<'l>(
    logical: &'l Logical<'_>,
    of: DimId,
    back: impl Fn(&Halo) -> bool + 'l,
) -> impl Iterator<Item = &'l Halo> {
    logical.program.cuts.halos.iter().filter(move |halo| halo.of == of && back(halo))
}

/// `shift(a over L, n)` is, block by block, the last `n` positions of the block before, and then
/// its own first ones.
pub(super) fn shift(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let ty = logical.ty(class);
    for node in logical.nodes(class) {
        let (Some(Op::Shift { over, by }), &[a]) = (logical.op(node), &node.operands[..]) else {
            continue;
        };
        for halo in halos(logical, *over, |halo| halo.back == *by) {
            let (to, dtype) = (vec![halo.blocks, halo.within], ty.dtype);
            let cut = with(&ty.dims, *over, &to);
            let Some(others) = halo.others.filter(|_| logical.fits(&cut)) else { continue };
            let (a, before) = with_ends(a, logical.ty(a), halo);
            let first = Op::SliceDim { from: halo.within, to: others, offset: 0 };
            let first = op(first, &with(&ty.dims, *over, &[halo.blocks, others]), dtype, vec![a]);
            let join = Op::Concat { left: halo.seen, right: others, to: halo.within };
            let all = op(join, &cut, dtype, vec![before, first]);
            let merge = Op::Merge { from: to, to: *over };
            found.push((class, op(merge, &ty.dims, dtype, vec![all])));
        }
    }
}

/// `conv(a, w over L, T)` is, block by block, `conv(a, w)`, to whose first `T - 1` positions what
/// the last of the block before add is added.
pub(super) fn conv(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let ty = logical.ty(class);
    for node in logical.nodes(class) {
        let (Some(Op::Conv { over, taps }), &[a, w]) = (logical.op(node), &node.operands[..])
        else {
            continue;
        };
        // What a block adds up by itself may be larger than the result, so the dtype has to have
        // room for it.
        if !matches!(ty.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::Int32) {
            continue;
        }
        let tapped = logical.program.dims[taps.index()].size;
        for halo in halos(logical, *over, |halo| halo.back + 1 == tapped) {
            let (to, of_a) = (vec![halo.blocks, halo.within], logical.ty(a));
            let cut = |new: DimId| with(&of_a.dims, *over, &[halo.blocks, new]);
            let Some(around) = halo.around.filter(|_| logical.fits(&cut(halo.within))) else {
                continue;
            };
            let conv = |over: DimId, a: Expr| {
                let conv = Op::Conv { over, taps: *taps };
                op(conv, &cut(over), ty.dtype, vec![a, Expr::Class(w)])
            };
            let (a, before) = with_ends(a, of_a, halo);
            // Zeros stand in the place of the block's own positions, so that only what the block
            // before adds is left.
            let room = Op::Pad { from: halo.seen, to: around, offset: 0 };
            let room = op(room, &cut(around), of_a.dtype, vec![before]);
            let reach = Op::SliceDim { from: around, to: halo.seen, offset: halo.back };
            let reach = op(reach, &cut(halo.seen), ty.dtype, vec![conv(around, room)]);
            let pad = Op::Pad { from: halo.seen, to: halo.within, offset: 0 };
            let reach = op(pad, &cut(halo.within), ty.dtype, vec![reach]);
            let own = conv(halo.within, a);
            let add = Op::Binary(Binary::Add);
            let all = op(add, &cut(halo.within), ty.dtype, vec![own, reach]);
            found.push((
                class,
                op(Op::Merge { from: to, to: *over }, &ty.dims, ty.dtype, vec![all]),
            ));
        }
    }
}

/// `topk(a over V -> K)` is the `topk` of the K largest of each part of V. `argtopk(a over V -> K)`
/// takes the positions of these by their places among them.
pub(super) fn largest_few(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let ty = logical.ty(class);
    for node in logical.nodes(class) {
        let Some(
            chosen @ (Op::TopK { over, to, parts: None } | Op::ArgTopK { over, to, parts: None }),
        ) = logical.op(node)
        else {
            continue;
        };
        let (over, to, is_place) = (*over, *to, matches!(chosen, Op::ArgTopK { .. }));
        let &[a] = node.operands.as_slice() else { continue };
        let of_a = logical.ty(a);
        let choices = &logical.program.cuts.choices;
        for choice in choices.iter().filter(|choice| (choice.of, choice.chosen) == (over, to)) {
            let (all, parts) = (choice.all, Some(choice.parts));
            let of_all = with(&of_a.dims, over, &[all]);
            let of_parts = Op::TopK { over, to: all, parts };
            let some = op(of_parts, &of_all, of_a.dtype, vec![Expr::Class(a)]);
            let made = if is_place {
                let places = Op::ArgTopK { over, to: all, parts };
                let places = op(places, &of_all, ty.dtype, vec![Expr::Class(a)]);
                let best = Op::ArgTopK { over: all, to, parts: None };
                let best = op(best, &with(&of_a.dims, over, &[to]), ty.dtype, vec![some]);
                op(Op::Take { over: all }, &ty.dims, ty.dtype, vec![places, best])
            } else {
                op(Op::TopK { over: all, to, parts: None }, &ty.dims, ty.dtype, vec![some])
            };
            found.push((class, made));
        }
    }
}
