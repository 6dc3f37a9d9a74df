//! The logical rules for dims that are cut into equal parts (`spec/rules.md`): `cumsum` and
//! recurrences block by block, shifts and convolutions with halos, and the largest few part by
//! part.

use shard_ir::cuts::{Blocks, Candidates, Halo};
use shard_ir::{Binary, DimId, Dtype, Op, Reduce, TensorType};

use super::equal::{Class, Equal, Expr};
use super::laws::Found;

/// An expression with its type.
#[derive(Clone)]
struct Typed {
    expr: Expr,
    ty: TensorType,
}

impl Typed {
    fn of(equal: &Equal<'_>, class: Class) -> Typed {
        Typed { expr: Expr::Class(class), ty: equal.ty(class).clone() }
    }

    /// An op on this value; in the result the dims `new` stand in the place of `old`.
    fn then(self, op: Op, old: DimId, new: &[DimId]) -> Typed {
        let dtype = self.ty.dtype;
        self.then_as(dtype, op, old, new)
    }

    /// The same with another dtype.
    fn then_as(self, dtype: Dtype, op: Op, old: DimId, new: &[DimId]) -> Typed {
        let mut dims = self.ty.dims;
        if let Some(at) = dims.iter().position(|dim| *dim == old) {
            dims.splice(at..=at, new.iter().copied());
        }
        let ty = TensorType { dims, dtype };
        Typed { expr: Expr::Op(op, ty.clone(), vec![self.expr]), ty }
    }

    /// An op on this value and another; the result has this value's dims, and its own dtype.
    fn and(self, op: Op, other: Typed, dtype: Dtype) -> Typed {
        let ty = TensorType { dtype, ..self.ty };
        Typed { expr: Expr::Op(op, ty.clone(), vec![self.expr, other.expr]), ty }
    }

    fn in_blocks(self, line: &Blocks) -> Typed {
        let to = vec![line.blocks, line.within];
        self.then(Op::Split { from: line.of, to: to.clone() }, line.of, &to)
    }

    fn sum(self, over: DimId) -> Typed {
        self.then(Op::Reduce { kind: Reduce::Sum, over: vec![over] }, over, &[])
    }

    /// The value shifted by one block.
    fn one_before(self, line: &Blocks) -> Typed {
        let over = line.blocks;
        self.then(Op::Shift { over, by: 1 }, over, &[over])
    }

    /// One position of each block.
    fn position(self, line: &Blocks, one: DimId, offset: u64) -> Typed {
        let from = line.within;
        self.then(Op::SliceDim { from, to: one, offset }, from, &[one])
    }
}

/// Blocks merged into the dim again, as a value of a type.
fn merged(blocks: Typed, line: &Blocks, ty: &TensorType) -> Expr {
    let merge = Op::Merge { from: vec![line.blocks, line.within], to: line.of };
    Expr::Op(merge, ty.clone(), vec![blocks.expr])
}

fn lines<'e>(equal: &'e Equal<'_>, of: DimId) -> impl Iterator<Item = &'e Blocks> {
    equal.program.cuts.lines.iter().filter(move |line| line.of == of)
}

/// `cumsum(a over L)` is, block by block, `cumsum(a)` plus the sums of all blocks before. The dtype
/// must be one whose range the sum of a block cannot leave.
pub(super) fn cumsum(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    let ty = equal.ty(class);
    for node in equal.nodes(class) {
        let (Some(Op::Cumsum { over }), &[a]) = (equal.op(node), &node.operands[..]) else {
            continue;
        };
        let keeps_sums = [Dtype::F32, Dtype::Bf16, Dtype::Int32].contains(&ty.dtype);
        for line in lines(equal, *over).filter(|_| keeps_sums) {
            let a = Typed::of(equal, a).in_blocks(line);
            if !equal.fits(&a.ty.dims) {
                continue;
            }
            let cumsum = |of: Typed, over: DimId| of.then(Op::Cumsum { over }, over, &[over]);
            let before = cumsum(a.clone().sum(line.within), line.blocks).one_before(line);
            let own = cumsum(a, line.within);
            let all = own.and(Op::Binary(Binary::Add), before, ty.dtype);
            found.push((class, merged(all, line, ty)));
        }
    }
}

/// `scan(a, f over L)` is, block by block, `scan(a, f)` plus what the blocks before end with, times
/// the product of `f` up to the position. Both dtypes must be ones whose range such a product keeps
/// to, and `f` must have L.
pub(super) fn scan(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        let (Some(Op::Scan { over }), &[a, f]) = (equal.op(node), &node.operands[..]) else {
            continue;
        };
        let keeps_products =
            [a, f].iter().all(|of| [Dtype::F32, Dtype::Bf16].contains(&equal.ty(*of).dtype));
        if !keeps_products || !equal.ty(f).dims.contains(over) {
            continue;
        }
        for line in lines(equal, *over) {
            let [a, f] = [a, f].map(|of| Typed::of(equal, of).in_blocks(line));
            let Some(one) = line.one.filter(|_| equal.fits(&a.ty.dims)) else { continue };
            let ty = equal.ty(class);
            found.push((class, merged(scanned(a, f, line, one, ty.dtype), line, ty)));
        }
    }
}

fn scanned(a: Typed, f: Typed, line: &Blocks, one: DimId, dtype: Dtype) -> Typed {
    let in_block = Op::Scan { over: line.within };
    let last = |of: Typed| of.position(line, one, line.positions - 1).sum(one);
    let first = f.clone().position(line, one, 0);
    let start = first.then(Op::Pad { from: one, to: line.within, offset: 0 }, one, &[line.within]);
    let f_dtype = f.ty.dtype;
    let products = start.and(in_block.clone(), f.clone(), f_dtype);
    let own = a.and(in_block, f, dtype);
    let (end, product) = (last(own.clone()), last(products.clone()));
    let up_to = end.and(Op::Scan { over: line.blocks }, product, dtype);
    // The product has the dims of the recurrence, also where the factors have fewer.
    let of_own = TensorType { dtype, ..own.ty.clone() };
    let factors = vec![products.expr, up_to.one_before(line).expr];
    let expr = Expr::Op(Op::Binary(Binary::Mul), of_own.clone(), factors);
    own.and(Op::Binary(Binary::Add), Typed { expr, ty: of_own }, dtype)
}

/// A value in the blocks of a halo.
fn in_blocks_of(a: Typed, halo: &Halo) -> Typed {
    let to = vec![halo.blocks, halo.within];
    a.then(Op::Split { from: halo.of, to: to.clone() }, halo.of, &to)
}

/// The last positions of the block before, which each block sees.
fn seen(blocks: Typed, halo: &Halo) -> Typed {
    let (from, to, offset) = (halo.within, halo.seen, halo.positions - halo.back);
    let last = blocks.then(Op::SliceDim { from, to, offset }, from, &[to]);
    let over = halo.blocks;
    last.then(Op::Shift { over, by: 1 }, over, &[over])
}

fn whole_again(blocks: Typed, halo: &Halo, ty: &TensorType) -> Expr {
    let merge = Op::Merge { from: vec![halo.blocks, halo.within], to: halo.of };
    Expr::Op(merge, ty.clone(), vec![blocks.expr])
}

/// `shift(a over L, n)` is, block by block, the last `n` positions of the block before, followed by
/// the block without its own last `n`.
pub(super) fn shift(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        let (Some(Op::Shift { over, by }), &[a]) = (equal.op(node), &node.operands[..]) else {
            continue;
        };
        let (ty, within) = (equal.ty(class), |halo: &&Halo| halo.of == *over && halo.back == *by);
        for halo in equal.program.cuts.halos.iter().filter(within) {
            let blocks = in_blocks_of(Typed::of(equal, a), halo);
            let Some(rest) = halo.others.filter(|_| equal.fits(&blocks.ty.dims)) else { continue };
            let front = Op::SliceDim { from: halo.within, to: rest, offset: 0 };
            let front = blocks.clone().then(front, halo.within, &[rest]);
            let of_all = blocks.ty.clone();
            let join = Op::Concat { left: halo.seen, right: rest, to: halo.within };
            let operands = vec![seen(blocks, halo).expr, front.expr];
            let all = Typed { expr: Expr::Op(join, of_all.clone(), operands), ty: of_all };
            found.push((class, whole_again(all, halo, ty)));
        }
    }
}

/// `conv(a, w over L, T)` is, block by block, `conv(a, w)`, plus, at the first `T - 1` positions,
/// what the last `T - 1` positions of the block before contribute: `conv` over these and `T - 1`
/// zeros behind them. The dtype must be one whose range a part of the sum cannot leave.
pub(super) fn conv(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        let (Some(Op::Conv { over, taps }), &[a, w]) = (equal.op(node), &node.operands[..]) else {
            continue;
        };
        let ty = equal.ty(class);
        let keeps_sums = [Dtype::F32, Dtype::Bf16, Dtype::Int32].contains(&ty.dtype);
        let size = equal.program.sizes(&[*taps])[0];
        let within = |halo: &&Halo| keeps_sums && halo.of == *over && halo.back + 1 == size;
        for halo in equal.program.cuts.halos.iter().filter(within) {
            let blocks = in_blocks_of(Typed::of(equal, a), halo);
            let Some(around) = halo.around.filter(|_| equal.fits(&blocks.ty.dims)) else {
                continue;
            };
            let (seen_dim, back) = (halo.seen, halo.back);
            let conv = |of: Typed, over: DimId| {
                let w = Typed::of(equal, w);
                of.and(Op::Conv { over, taps: *taps }, w, ty.dtype)
            };
            let front = Op::Pad { from: seen_dim, to: around, offset: 0 };
            let ends = seen(blocks.clone(), halo).then(front, seen_dim, &[around]);
            let behind = Op::SliceDim { from: around, to: seen_dim, offset: back };
            let reach = conv(ends, around).then(behind, around, &[seen_dim]);
            let pad = Op::Pad { from: seen_dim, to: halo.within, offset: 0 };
            let reach = reach.then(pad, seen_dim, &[halo.within]);
            let own = conv(blocks, halo.within);
            let all = own.and(Op::Binary(Binary::Add), reach, ty.dtype);
            found.push((class, whole_again(all, halo, ty)));
        }
    }
}

/// `topk(a over V -> K)` is `topk` of the K largest of each part of V. `argtopk(a over V -> K)`
/// takes the positions of these by the positions of the largest among them.
pub(super) fn largest_few(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        let &[a] = node.operands.as_slice() else { continue };
        let Some(
            chosen @ (Op::TopK { over, to, parts: None } | Op::ArgTopK { over, to, parts: None }),
        ) = equal.op(node)
        else {
            continue;
        };
        let (of, to, is_place) = (*over, *to, matches!(chosen, Op::ArgTopK { .. }));
        let is_it = |cut: &&Candidates| cut.of == of && cut.chosen == to;
        for cut in equal.program.cuts.choices.iter().filter(is_it) {
            let (all, parts, ty) = (cut.all, Some(cut.parts), equal.ty(class));
            let some = Typed::of(equal, a).then(Op::TopK { over: of, to: all, parts }, of, &[all]);
            let expr = if is_place {
                let places = Op::ArgTopK { over: of, to: all, parts };
                let places = Typed::of(equal, a).then_as(ty.dtype, places, of, &[all]);
                let best = Op::ArgTopK { over: all, to, parts: None };
                let best = some.then_as(ty.dtype, best, all, &[to]);
                Expr::Op(Op::Take { over: all }, ty.clone(), vec![places.expr, best.expr])
            } else {
                let best = Op::TopK { over: all, to, parts: None };
                Expr::Op(best, ty.clone(), vec![some.expr])
            };
            found.push((class, expr));
        }
    }
}
