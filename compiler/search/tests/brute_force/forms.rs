//! The forms of a program, found without an e-graph: its expressions are rewritten one step at a
//! time until no new ones are found. An expression that occurs several times is one value, and is
//! rewritten wherever it occurs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use shard_ir::cuts::{Blocks, Candidates, Halo};
use shard_ir::{Binary, Def, DimId, Dtype, Map, Op, Program, Reduce, Value, ValueId};

/// An expression without its operands. Ops are numbered in [`Forms::ops`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// A parameter or a pin.
    Leaf(usize),
    Constant(u64),
    Einsum,
    Plus,
    Minus,
    Other(usize),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Expr {
    what: What,
    dims: Vec<DimId>,
    dtype: Dtype,
    operands: Vec<Expr>,
}

/// A program with more forms than this is not judged.
const MAX_FORMS: usize = 40;

struct Forms<'a> {
    program: &'a Program,
    ops: RefCell<Vec<Op>>,
    /// The expression of each value as it is written, first occurrences alone.
    written: Vec<Expr>,
}

/// Every form of a program, the one written among them where it has no einsum of more than two
/// operands.
pub(crate) fn forms(program: &Program) -> Result<Vec<Program>, &'static str> {
    let live = super::facts::live(program);
    let mut forms = Forms { program, ops: RefCell::default(), written: Vec::new() };
    let mut made: Vec<Expr> = Vec::new();
    for (id, value) in program.values.iter().enumerate() {
        let expr = forms.expr(id, value, &made);
        made.push(expr);
    }
    forms.written = made.clone();
    let is_op = |id: &usize| live[*id] && matches!(program.values[*id].def, Def::Op { .. });
    let ops: Vec<&Expr> = (0..made.len()).filter(is_op).map(|id| &made[id]).collect();
    let distinct = ops.iter().collect::<BTreeSet<_>>().len();

    // Results and pinned values must be computed.
    let pinned = |id: &usize| live[*id] && matches!(program.values[*id].def, Def::Pin { .. });
    let mut wanted: Vec<usize> = program.outputs.iter().map(|o| o.value.index()).collect();
    wanted.extend(
        (0..made.len()).filter(pinned).map(|id| program.values[id].def.operands()[0].index()),
    );
    let start: Vec<Expr> = wanted.iter().map(|id| made[*id].clone()).collect();
    let mut known = BTreeSet::from([start.clone()]);
    // Expressions that a step has shown to be equal may replace each other in any form.
    let mut equal: BTreeSet<(Expr, Expr)> = BTreeSet::new();
    loop {
        let before = (known.len(), equal.len());
        for state in known.clone() {
            let mut inside = BTreeSet::new();
            state.iter().for_each(|e| parts(e, &mut inside));
            for old in inside {
                let mut others = forms.steps(old);
                equal.extend(others.iter().map(|new| (old.clone(), new.clone())));
                others.extend(
                    equal
                        .iter()
                        .filter(|(first, new)| new == old && !is_inside(old, first))
                        .map(|e| e.0.clone()),
                );
                known.extend(
                    others.iter().map(|new| {
                        state.iter().map(|e| replaced(e, old, new)).collect::<Vec<Expr>>()
                    }),
                );
            }
            if known.len() > 4 * MAX_FORMS {
                return Err("forms");
            }
        }
        if before == (known.len(), equal.len()) {
            break;
        }
    }
    let is_short = |state: &&Vec<Expr>| {
        let mut inside = BTreeSet::new();
        state.iter().for_each(|e| parts(e, &mut inside));
        !inside.iter().any(|e| forms.is_long(e))
    };
    let mut all: Vec<Program> = Vec::new();
    if !made.iter().any(|e| forms.is_long(e)) {
        all.push(program.clone());
    }
    let others =
        known.iter().filter(is_short).filter(|state| **state != start || ops.len() > distinct);
    all.extend(others.map(|state| forms.program_of(state, &live)));
    if all.len() > MAX_FORMS { Err("forms") } else { Ok(all) }
}

/// An expression and all inside it.
fn parts<'e>(expr: &'e Expr, found: &mut BTreeSet<&'e Expr>) {
    if found.insert(expr) {
        expr.operands.iter().for_each(|o| parts(o, found));
    }
}

/// Whether a product can be accumulated in a dtype: floats in floats, whole numbers in int32.
fn same_kind(product: Dtype, stated: Dtype) -> bool {
    product == stated
        || (product.is_float() && stated.is_float())
        || (!product.is_float() && stated == Dtype::Int32)
}

fn is_inside(part: &Expr, whole: &Expr) -> bool {
    part == whole || whole.operands.iter().any(|o| is_inside(part, o))
}

fn replaced(expr: &Expr, old: &Expr, new: &Expr) -> Expr {
    if expr == old {
        return new.clone();
    }
    let operands = expr.operands.iter().map(|o| replaced(o, old, new)).collect();
    normal(Expr { operands, ..expr.clone() })
}

/// Dims, with others in the place of one.
fn put(dims: &[DimId], old: DimId, new: &[DimId]) -> Vec<DimId> {
    let of = |dim: &DimId| if *dim == old { new.to_vec() } else { vec![*dim] };
    dims.iter().flat_map(of).collect()
}

/// Operands whose order says nothing are sorted.
fn normal(mut expr: Expr) -> Expr {
    let same_types = |e: &Expr| {
        e.operands.windows(2).all(|w| w[0].dims == w[1].dims && w[0].dtype == w[1].dtype)
    };
    if expr.what == What::Einsum || (expr.what == What::Plus && same_types(&expr)) {
        expr.operands.sort();
    }
    expr
}

impl Forms<'_> {
    fn expr(&self, id: usize, value: &Value, made: &[Expr]) -> Expr {
        let (what, operands) = match &value.def {
            Def::Parameter { .. } | Def::Pin { .. } => (What::Leaf(id), Vec::new()),
            Def::Constant(number) => (What::Constant(number.to_bits()), Vec::new()),
            Def::Op { op, operands } => {
                let mut operands: Vec<Expr> =
                    operands.iter().map(|o| made[o.index()].clone()).collect();
                let what = match op {
                    Op::Einsum => What::Einsum,
                    Op::Binary(Binary::Add) => What::Plus,
                    Op::Binary(Binary::Sub) => What::Minus,
                    op => {
                        let commutes = matches!(
                            op,
                            Op::Binary(
                                Binary::Mul | Binary::Maximum | Binary::Minimum | Binary::Equal
                            )
                        );
                        if commutes
                            && (&operands[0].dims, operands[0].dtype)
                                == (&operands[1].dims, operands[1].dtype)
                        {
                            operands.sort();
                        }
                        self.number_of(op)
                    }
                };
                (what, operands)
            }
        };
        normal(Expr { what, dims: value.dims.clone(), dtype: value.dtype, operands })
    }

    /// Whether an einsum has to be divided: more than two operands, unless they are three, one of
    /// them a weight of a few bits and one a weight with some of its dims, of which one is summed.
    fn is_long(&self, e: &Expr) -> bool {
        let is_weight = |e: &Expr| match e.what {
            What::Leaf(mut id) => loop {
                match &self.program.values[id].def {
                    Def::Pin { operand, .. } => id = operand.index(),
                    Def::Parameter { kind, .. } => break kind.is_weight(),
                    Def::Constant(_) | Def::Op { .. } => break false,
                }
            },
            What::Constant(_) | What::Einsum | What::Plus | What::Minus | What::Other(_) => false,
        };
        let are_scales = |s: &Expr, w: &Expr| {
            let of_w = s.dims.iter().filter(|dim| w.dims.contains(dim)).count();
            of_w == s.dims.len()
                && of_w < w.dims.len()
                && s.dims.iter().any(|dim| !e.dims.contains(dim))
        };
        let weights: Vec<&Expr> = e.operands.iter().filter(|o| is_weight(o)).collect();
        let in_blocks = weights.iter().any(|w| {
            let narrow = [Dtype::F8, Dtype::F4, Dtype::Int8, Dtype::Int4].contains(&w.dtype);
            narrow && weights.iter().any(|s| are_scales(s, w))
        });
        e.what == What::Einsum && e.operands.len() > 2 && !(e.operands.len() == 3 && in_blocks)
    }

    fn number_of(&self, op: &Op) -> What {
        match op {
            Op::Einsum => return What::Einsum,
            Op::Binary(Binary::Add) => return What::Plus,
            Op::Binary(Binary::Sub) => return What::Minus,
            _ => {}
        }
        let mut ops = self.ops.borrow_mut();
        let known = ops.iter().position(|o| o == op);
        What::Other(known.unwrap_or_else(|| {
            ops.push(op.clone());
            ops.len() - 1
        }))
    }

    /// The op of an expression that is none of those with a name of their own here.
    fn other(&self, e: &Expr) -> Option<Op> {
        match e.what {
            What::Other(op) => self.ops.borrow().get(op).cloned(),
            What::Leaf(_) | What::Constant(_) | What::Einsum | What::Plus | What::Minus => None,
        }
    }

    fn made(&self, op: Op, dims: Vec<DimId>, dtype: Dtype, operands: &[&Expr]) -> Expr {
        let operands = operands.iter().map(|o| (*o).clone()).collect();
        normal(Expr { what: self.number_of(&op), dims, dtype, operands })
    }

    /// An op that runs along a dim, computed part by part by the laws of `spec/rules.md`.
    fn in_parts(&self, e: &Expr, op: &Op) -> Vec<Expr> {
        let cuts = &self.program.cuts;
        let on = |over: &DimId| {
            let over = *over;
            cuts.lines.iter().filter(move |line| line.of == over)
        };
        let chosen = |over: &DimId, to: &DimId| {
            let both = (*over, *to);
            cuts.choices.iter().filter(move |cut| (cut.of, cut.chosen) == both)
        };
        match op {
            Op::Cumsum { over }
                if !matches!(e.dtype, Dtype::F16 | Dtype::F8 | Dtype::F4 | Dtype::Int8) =>
            {
                on(over).map(|line| self.cumsum_in_blocks(e, line)).collect()
            }
            Op::Scan { over } => {
                let f = &e.operands[1];
                let fits = f.dims.contains(over)
                    && e.operands.iter().all(|o| matches!(o.dtype, Dtype::F32 | Dtype::Bf16));
                on(over).filter(|_| fits).map(|line| self.scan_in_blocks(e, line)).collect()
            }
            Op::Shift { over, by } => {
                let on = cuts.halos.iter().filter(|halo| (halo.of, halo.back) == (*over, *by));
                on.filter(|halo| halo.others.is_some())
                    .map(|halo| self.shift_in_blocks(e, halo))
                    .collect()
            }
            Op::Conv { over, taps }
                if matches!(e.dtype, Dtype::F32 | Dtype::Bf16 | Dtype::Int32) =>
            {
                let back = self.size(*taps) as u64 - 1;
                let on = cuts.halos.iter().filter(|halo| (halo.of, halo.back) == (*over, back));
                on.filter(|halo| halo.around.is_some())
                    .map(|halo| self.conv_in_blocks(e, *taps, halo))
                    .collect()
            }
            Op::TopK { over, to, parts: None } => {
                let of_parts = |cut: &Candidates| {
                    let a = &e.operands[0];
                    let some = self.some(e, a, (*over, cut), false);
                    let op = Op::TopK { over: cut.all, to: *to, parts: None };
                    self.made(op, e.dims.clone(), e.dtype, &[&some])
                };
                chosen(over, to).map(of_parts).collect()
            }
            Op::ArgTopK { over, to, parts: None } => {
                let of_parts = |cut: &Candidates| {
                    let a = &e.operands[0];
                    let (some, places) =
                        (self.some(e, a, (*over, cut), false), self.some(e, a, (*over, cut), true));
                    let op = Op::ArgTopK { over: cut.all, to: *to, parts: None };
                    let best = self.made(op, put(&a.dims, *over, &[*to]), e.dtype, &[&some]);
                    let take = Op::Take { over: cut.all };
                    self.made(take, e.dims.clone(), e.dtype, &[&places, &best])
                };
                chosen(over, to).map(of_parts).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The largest entries of each part, or their positions.
    fn some(&self, e: &Expr, a: &Expr, (over, cut): (DimId, &Candidates), places: bool) -> Expr {
        let (to, parts) = (cut.all, Some(cut.parts));
        let (op, dtype) = if places {
            (Op::ArgTopK { over, to, parts }, e.dtype)
        } else {
            (Op::TopK { over, to, parts }, a.dtype)
        };
        self.made(op, put(&a.dims, over, &[to]), dtype, &[a])
    }

    fn in_blocks(&self, a: &Expr, line: &Blocks) -> Expr {
        let to = vec![line.blocks, line.within];
        let op = Op::Split { from: line.of, to: to.clone() };
        self.made(op, put(&a.dims, line.of, &to), a.dtype, &[a])
    }

    fn together(&self, e: &Expr, all: &Expr, line: &Blocks) -> Expr {
        let op = Op::Merge { from: vec![line.blocks, line.within], to: line.of };
        self.made(op, e.dims.clone(), e.dtype, &[all])
    }

    /// A value in blocks, and for each block the last positions of the one before.
    fn blocks_and_seen(&self, a: &Expr, halo: &Halo) -> [Expr; 2] {
        let (both, t) = (vec![halo.blocks, halo.within], a.dtype);
        let cut = Op::Split { from: halo.of, to: both.clone() };
        let a = self.made(cut, put(&a.dims, halo.of, &both), t, &[a]);
        let small = put(&a.dims, halo.within, &[halo.seen]);
        let offset = self.size(halo.within) as u64 - halo.back;
        let end = Op::SliceDim { from: halo.within, to: halo.seen, offset };
        let end = self.made(end, small.clone(), t, &[&a]);
        let seen = self.made(Op::Shift { over: halo.blocks, by: 1 }, small, t, &[&end]);
        [a, seen]
    }

    fn merged_blocks(&self, e: &Expr, all: &Expr, halo: &Halo) -> Expr {
        let op = Op::Merge { from: vec![halo.blocks, halo.within], to: halo.of };
        self.made(op, e.dims.clone(), e.dtype, &[all])
    }

    fn shift_in_blocks(&self, e: &Expr, halo: &Halo) -> Expr {
        let rest = halo.others.expect("a shift looks so far back");
        let [a, seen] = self.blocks_and_seen(&e.operands[0], halo);
        let first = Op::SliceDim { from: halo.within, to: rest, offset: 0 };
        let first = self.made(first, put(&a.dims, halo.within, &[rest]), e.dtype, &[&a]);
        let join = Op::Concat { left: halo.seen, right: rest, to: halo.within };
        let all = self.made(join, a.dims.clone(), e.dtype, &[&seen, &first]);
        self.merged_blocks(e, &all, halo)
    }

    fn conv_in_blocks(&self, e: &Expr, taps: DimId, halo: &Halo) -> Expr {
        let around = halo.around.expect("a convolution looks so far back");
        let [a, seen] = self.blocks_and_seen(&e.operands[0], halo);
        let (w, t) = (&e.operands[1], e.dtype);
        let of = |dim: DimId| put(&a.dims, halo.within, &[dim]);
        let own = self.made(Op::Conv { over: halo.within, taps }, a.dims.clone(), t, &[&a, w]);
        let pad = |to: DimId| Op::Pad { from: halo.seen, to, offset: 0 };
        let room = self.made(pad(around), of(around), a.dtype, &[&seen]);
        let reach = self.made(Op::Conv { over: around, taps }, of(around), t, &[&room, w]);
        let behind = Op::SliceDim { from: around, to: halo.seen, offset: halo.back };
        let reach = self.made(behind, of(halo.seen), t, &[&reach]);
        let reach = self.made(pad(halo.within), a.dims.clone(), t, &[&reach]);
        let all = self.made(Op::Binary(Binary::Add), a.dims.clone(), t, &[&own, &reach]);
        self.merged_blocks(e, &all, halo)
    }

    fn cumsum_in_blocks(&self, e: &Expr, line: &Blocks) -> Expr {
        let a = self.in_blocks(&e.operands[0], line);
        let (t, small) = (a.dtype, put(&a.dims, line.within, &[]));
        let own = self.made(Op::Cumsum { over: line.within }, a.dims.clone(), t, &[&a]);
        let sum = Op::Reduce { kind: Reduce::Sum, over: vec![line.within] };
        let sum = self.made(sum, small.clone(), t, &[&a]);
        let to_here = self.made(Op::Cumsum { over: line.blocks }, small.clone(), t, &[&sum]);
        let before = self.made(Op::Shift { over: line.blocks, by: 1 }, small, t, &[&to_here]);
        let all = self.made(Op::Binary(Binary::Add), a.dims.clone(), t, &[&own, &before]);
        self.together(e, &all, line)
    }

    fn scan_in_blocks(&self, e: &Expr, line: &Blocks) -> Expr {
        let one = line.one.expect("a scan runs over the dim");
        let [a, f] = [0, 1].map(|at| self.in_blocks(&e.operands[at], line));
        let (t, g) = (e.dtype, f.dtype);
        let last_place = self.size(line.within) as u64 - 1;
        let at = |of: &Expr, offset: u64| {
            let op = Op::SliceDim { from: line.within, to: one, offset };
            self.made(op, put(&of.dims, line.within, &[one]), of.dtype, &[of])
        };
        let last = |of: &Expr| {
            let sum = Op::Reduce { kind: Reduce::Sum, over: vec![one] };
            self.made(sum, put(&of.dims, line.within, &[]), of.dtype, &[&at(of, last_place)])
        };
        let along = Op::Scan { over: line.within };
        let own = self.made(along.clone(), a.dims.clone(), t, &[&a, &f]);
        let pad = Op::Pad { from: one, to: line.within, offset: 0 };
        let start = self.made(pad, f.dims.clone(), g, &[&at(&f, 0)]);
        let products = self.made(along, f.dims.clone(), g, &[&start, &f]);
        let small = put(&a.dims, line.within, &[]);
        let ends = [last(&own), last(&products)];
        let to_here =
            self.made(Op::Scan { over: line.blocks }, small.clone(), t, &[&ends[0], &ends[1]]);
        let before = self.made(Op::Shift { over: line.blocks, by: 1 }, small, t, &[&to_here]);
        let times = Op::Binary(Binary::Mul);
        let carried = self.made(times, a.dims.clone(), t, &[&products, &before]);
        let all = self.made(Op::Binary(Binary::Add), a.dims.clone(), t, &[&own, &carried]);
        self.together(e, &all, line)
    }

    fn size(&self, d: DimId) -> u128 {
        u128::from(self.program.dims[d.index()].size)
    }

    /// Flops of an einsum with these dims on the left and on the right of its arrow.
    fn flops(&self, read: &[&Expr], result: &[DimId]) -> u128 {
        let all: BTreeSet<DimId> = read.iter().flat_map(|e| e.dims.iter().copied()).collect();
        let points: u128 = all.iter().map(|d| self.size(*d)).product();
        if all.iter().all(|d| result.contains(d)) { points } else { 2 * points }
    }

    /// Other expressions for one, a step away.
    fn steps(&self, e: &Expr) -> Vec<Expr> {
        let mut found = Vec::new();
        let is_sum = match e.what {
            What::Einsum => e.operands.len() == 1,
            What::Other(_) => {
                matches!(self.other(e), Some(Op::Reduce { kind: Reduce::Sum, .. }))
            }
            What::Leaf(_) | What::Constant(_) | What::Plus | What::Minus => false,
        };
        if is_sum {
            let inner = &e.operands[0];
            if inner.what == What::Einsum && inner.operands.len() > 1 && inner.dtype == e.dtype {
                found.push(normal(Expr {
                    what: What::Einsum,
                    operands: inner.operands.clone(),
                    ..e.clone()
                }));
            }
        }
        if self.is_long(e) {
            self.divide(e, &mut found);
        }
        if let (What::Einsum, [p, q]) = (e.what, e.operands.as_slice()) {
            for (inner, c) in [(p, q), (q, p)] {
                if let (What::Einsum, [a, b]) = (inner.what, inner.operands.as_slice()) {
                    found.extend(self.rotated(e, inner, [a, b, c]));
                    found.extend(self.rotated(e, inner, [b, a, c]));
                }
            }
        }
        if let Some(Op::Mask { query, key, window }) = &self.other(e)
            && self.size(*query) == 1
            && window.is_none_or(|window| self.size(*key) as u64 <= window)
        {
            found.push(e.operands[0].clone());
        }
        if let Some(Op::Argmax { over }) = self.other(e) {
            let (a, dims) = (&e.operands[0], || e.dims.clone());
            let max = Op::Reduce { kind: Reduce::Max, over: vec![over] };
            let largest = self.made(max, dims(), a.dtype, &[a]);
            let at = self.made(Op::Locate { over }, dims(), e.dtype, &[a, &largest]);
            found.push(self.made(Op::Map(Map::Neg), dims(), e.dtype, &[&at]));
        }
        if let Some(op) = self.other(e) {
            found.extend(self.in_parts(e, &op));
        }
        if matches!(e.what, What::Plus | What::Minus) {
            self.factor(e, &mut found);
        }
        found
    }

    fn divide(&self, e: &Expr, found: &mut Vec<Expr>) {
        for set in 1..(1u32 << e.operands.len()) - 1 {
            let side = |inside: bool| -> Option<Expr> {
                let mut part = Vec::new();
                let mut rest: BTreeSet<DimId> = e.dims.iter().copied().collect();
                for (i, operand) in e.operands.iter().enumerate() {
                    if (set >> i & 1 == 1) == inside {
                        part.push(operand.clone())
                    } else {
                        rest.extend(&operand.dims)
                    }
                }
                if part.len() == 1 {
                    return part.pop();
                }
                let dims: BTreeSet<DimId> = part
                    .iter()
                    .flat_map(|o| o.dims.iter().copied())
                    .filter(|d| rest.contains(d))
                    .collect();
                let mut dtypes: Vec<Dtype> = part.iter().map(|o| o.dtype).collect();
                dtypes.sort_by_key(|t| t.is_narrow());
                let product = dtypes[1..].iter().try_fold(dtypes[0], |a, b| a.product(*b))?;
                // A part of an einsum is accumulated in what the whole is.
                let dtype = same_kind(product, e.dtype).then_some(e.dtype)?;
                Some(normal(Expr {
                    what: What::Einsum,
                    dims: dims.into_iter().collect(),
                    dtype,
                    operands: part,
                }))
            };
            if let (Some(left), Some(right)) = (side(true), side(false))
                && left
                    .dtype
                    .product(right.dtype)
                    .is_some_and(|product| same_kind(product, e.dtype))
            {
                found.push(normal(Expr { operands: vec![left, right], ..e.clone() }));
            }
        }
    }

    /// `a (b c)` for `(a b) c`.
    fn rotated(&self, e: &Expr, inner: &Expr, [a, b, c]: [&Expr; 3]) -> Option<Expr> {
        let dims: BTreeSet<DimId> = b.dims.iter().chain(&c.dims).copied().collect();
        let dims: Vec<DimId> =
            dims.into_iter().filter(|d| e.dims.contains(d) || a.dims.contains(d)).collect();
        let product =
            Expr { what: What::Einsum, dims, dtype: e.dtype, operands: vec![b.clone(), c.clone()] };
        let gone =
            a.dims.iter().chain(&b.dims).any(|d| !inner.dims.contains(d) && c.dims.contains(d));
        let as_given = a.dtype.product(b.dtype) == Some(inner.dtype)
            && inner.dtype.product(c.dtype) == Some(e.dtype);
        let gives = |product: Dtype| {
            if as_given { product == e.dtype } else { same_kind(product, e.dtype) }
        };
        let sound = !gone
            && inner.dtype == e.dtype
            && b.dtype.product(c.dtype).is_some_and(gives)
            && a.dtype.product(e.dtype).is_some_and(gives);
        let no_outer = b.dims.iter().any(|d| c.dims.contains(d))
            && a.dims.iter().any(|d| product.dims.contains(d));
        let before = self.flops(&[a, b], &inner.dims) + self.flops(&[inner, c], &e.dims);
        let after = self.flops(&[b, c], &product.dims) + self.flops(&[a, &product], &e.dims);
        let made =
            || normal(Expr { operands: vec![a.clone(), normal(product.clone())], ..e.clone() });
        (sound && no_outer && after <= 2 * before).then(made)
    }

    fn terms(&self, e: &Expr, negative: bool, found: &mut Vec<(Expr, bool)>) {
        let same = |o: &Expr| o.dims == e.dims && o.dtype == e.dtype;
        match e.what {
            What::Plus | What::Minus if e.operands.iter().all(same) => {
                self.terms(&e.operands[0], negative, found);
                self.terms(&e.operands[1], negative != (e.what == What::Minus), found);
            }
            _ => found.push((e.clone(), negative)),
        }
    }

    fn factor(&self, e: &Expr, found: &mut Vec<Expr>) {
        let mut terms = Vec::new();
        self.terms(e, false, &mut terms);
        // In the order of the program, what is taken away last.
        let place = |e: &Expr| self.written.iter().position(|w| w == e).unwrap_or(usize::MAX);
        terms.sort_by_key(|(term, negative)| (*negative, place(term)));
        let products = |term: &Expr| term.what == What::Einsum && term.operands.len() == 2;
        let shared: BTreeSet<Expr> =
            terms.iter().filter(|t| products(&t.0)).flat_map(|t| t.0.operands.clone()).collect();
        for x in shared {
            let mut rests: Vec<(Expr, bool)> = Vec::new();
            let mut others = Vec::new();
            for (term, negative) in &terms {
                let rest = match term.operands.as_slice() {
                    [a, b] if products(term) && *a == x => Some(b),
                    [a, b] if products(term) && *b == x => Some(a),
                    _ => None,
                };
                match rest {
                    Some(r)
                        if r.dtype == e.dtype
                            && rests
                                .first()
                                .is_none_or(|f| (&f.0.dims, f.0.dtype) == (&r.dims, r.dtype)) =>
                    {
                        rests.push((r.clone(), *negative));
                    }
                    _ => others.push((term.clone(), *negative)),
                }
            }
            if rests.len() < 2 {
                continue;
            }
            let sign = rests[0].1;
            let like = rests[0].0.clone();
            rests.iter_mut().for_each(|r| r.1 = r.1 != sign);
            let sum = added(&like, rests);
            let product = normal(Expr { what: What::Einsum, operands: vec![x, sum], ..e.clone() });
            others.push((product, sign));
            if others.iter().any(|o| !o.1) {
                found.push(added(e, others));
            }
        }
    }

    /// A program that computes these expressions, one value for each.
    fn program_of(&self, state: &[Expr], live: &[bool]) -> Program {
        let source = self.program;
        let mut out = Program { values: Vec::new(), outputs: Vec::new(), ..source.clone() };
        let mut now: BTreeMap<Expr, ValueId> = BTreeMap::new();
        for (id, value) in source.values.iter().enumerate() {
            if matches!(value.def, Def::Parameter { .. }) {
                now.insert(self.written[id].clone(), ValueId(out.values.len() as u32));
                out.values.push(value.clone());
            }
        }
        let (results, mut pinned) =
            (&state[..source.outputs.len()], state[source.outputs.len()..].iter());
        for (id, value) in source.values.iter().enumerate().filter(|(id, _)| live[*id]) {
            if let Def::Pin { pattern, written, .. } = &value.def {
                let operand =
                    self.write(pinned.next().expect("each pin has its value"), &mut out, &mut now);
                now.insert(self.written[id].clone(), ValueId(out.values.len() as u32));
                let def = Def::Pin { operand, pattern: pattern.clone(), written: *written };
                out.values.push(Value { def, ..value.clone() });
            }
        }
        for (expr, output) in results.iter().zip(&source.outputs) {
            let value = self.write(expr, &mut out, &mut now);
            out.outputs.push(shard_ir::Output { value, ..output.clone() });
        }
        out
    }

    fn write(&self, expr: &Expr, out: &mut Program, now: &mut BTreeMap<Expr, ValueId>) -> ValueId {
        if let Some(known) = now.get(expr) {
            return *known;
        }
        let operands = expr.operands.iter().map(|o| self.write(o, out, now)).collect();
        let op = match expr.what {
            What::Leaf(_) => unreachable!("a pin comes before what reads it"),
            What::Constant(_) => None,
            What::Einsum => Some(Op::Einsum),
            What::Plus => Some(Op::Binary(Binary::Add)),
            What::Minus => Some(Op::Binary(Binary::Sub)),
            What::Other(op) => self.ops.borrow().get(op).cloned(),
        };
        let def = match (expr.what, op) {
            (What::Constant(bits), _) => Def::Constant(f64::from_bits(bits)),
            (_, Some(op)) => Def::Op { op, operands },
            _ => unreachable!("only a constant is no op"),
        };
        let id = ValueId(out.values.len() as u32);
        let like = &self.program.values[0];
        out.values.push(Value {
            name: None,
            dims: expr.dims.clone(),
            dtype: expr.dtype,
            def,
            ..like.clone()
        });
        now.insert(expr.clone(), id);
        id
    }
}

/// Terms added up, left to right.
fn added(like: &Expr, mut terms: Vec<(Expr, bool)>) -> Expr {
    terms.sort_by_key(|t| t.1);
    let mut terms = terms.into_iter();
    let first = terms.next().expect("a sum has terms").0;
    terms.fold(first, |sum, (term, negative)| {
        let what = if negative { What::Minus } else { What::Plus };
        normal(Expr { what, dims: like.dims.clone(), dtype: like.dtype, operands: vec![sum, term] })
    })
}
