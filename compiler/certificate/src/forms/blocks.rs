//! The logical rules of dims that are cut in equal parts (`spec/rules.md`): sums up to a position
//! and recurrences block by block, the largest few part by part.

use shard_ir::cuts::{Blocks, Candidates};
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

    /// An op on this, with other dims in the place of one.
    fn then(self, op: Op, old: DimId, new: &[DimId]) -> Typed {
        let dtype = self.ty.dtype;
        self.then_as(dtype, op, old, new)
    }

    /// The same, and of another dtype.
    fn then_as(self, dtype: Dtype, op: Op, old: DimId, new: &[DimId]) -> Typed {
        let mut dims = self.ty.dims;
        if let Some(at) = dims.iter().position(|dim| *dim == old) {
            dims.splice(at..=at, new.iter().copied());
        }
        let ty = TensorType { dims, dtype };
        Typed { expr: Expr::Op(op, ty.clone(), vec![self.expr]), ty }
    }

    /// An op on this and another, of this type but for its dtype.
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

    /// What stands one block before.
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

/// Blocks put together again, as a value of a type.
fn merged(blocks: Typed, line: &Blocks, ty: &TensorType) -> Expr {
    let merge = Op::Merge { from: vec![line.blocks, line.within], to: line.of };
    Expr::Op(merge, ty.clone(), vec![blocks.expr])
}

fn lines<'e>(equal: &'e Equal<'_>, of: DimId) -> impl Iterator<Item = &'e Blocks> {
    equal.program.cuts.lines.iter().filter(move |line| line.of == of)
}

/// `cumsum(a over L)` is, block by block, `cumsum(a)` and the sums of the blocks before. It is of a
/// dtype that the sum of a block cannot leave.
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

/// `scan(a, f over L)` is, block by block, `scan(a, f)` and what the blocks before end with, times
/// the product of `f` up to the position. Both are of dtypes whose range such a product keeps to,
/// and `f` has L.
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
    // The product of both has the dims of the recurrence.
    let of_own = TensorType { dtype, ..own.ty.clone() };
    let factors = vec![products.expr, up_to.one_before(line).expr];
    let expr = Expr::Op(Op::Binary(Binary::Mul), of_own.clone(), factors);
    own.and(Op::Binary(Binary::Add), Typed { expr, ty: of_own }, dtype)
}

/// `topk(a over V -> K)` is that of the K largest of each part of V; `argtopk(a over V -> K)` takes
/// the positions of those by the positions of the largest among them.
pub(super) fn largest_few(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        let &[a] = node.operands.as_slice() else { continue };
        let (of, to, is_place) = match equal.op(node) {
            Some(Op::TopK { over, to, parts: None }) => (*over, *to, false),
            Some(Op::ArgTopK { over, to, parts: None }) => (*over, *to, true),
            _ => continue,
        };
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
