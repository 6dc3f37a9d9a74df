//! The ways of computing a program, found by rewriting its expressions one step at a time until
//! nothing new comes: no e-graph. An expression that occurs several times is one value, and is
//! rewritten wherever it occurs.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::{Binary, Def, DimId, Dtype, Map, Op, Program, Reduce, Value, ValueId};

/// What an expression is, its operands aside. Ops are numbered in [`Forms::ops`].
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

/// More forms than this are too many to be judged.
const MAX_FORMS: usize = 40;

struct Forms<'a> {
    program: &'a Program,
    ops: Vec<Op>,
    /// The expression of each value as it is written, first occurrences alone.
    written: Vec<Expr>,
}

/// Every form of a program, the one written among them where it has no einsum of more than two
/// operands.
pub(crate) fn forms(program: &Program) -> Result<Vec<Program>, &'static str> {
    let live = super::facts::live(program);
    let mut forms = Forms { program, ops: Vec::new(), written: Vec::new() };
    let mut made: Vec<Expr> = Vec::new();
    for (id, value) in program.values.iter().enumerate() {
        let expr = forms.expr(id, value, &made);
        made.push(expr);
    }
    forms.written = made.clone();
    let is_op = |id: &usize| live[*id] && matches!(program.values[*id].def, Def::Op { .. });
    let ops: Vec<&Expr> = (0..made.len()).filter(is_op).map(|id| &made[id]).collect();
    let distinct = ops.iter().collect::<BTreeSet<_>>().len();

    // What must be computed: results, and what is pinned.
    let pinned = |id: &usize| live[*id] && matches!(program.values[*id].def, Def::Pin { .. });
    let mut wanted: Vec<usize> = program.outputs.iter().map(|o| o.value.index()).collect();
    wanted.extend(
        (0..made.len()).filter(pinned).map(|id| program.values[id].def.operands()[0].index()),
    );
    let start: Vec<Expr> = wanted.iter().map(|id| made[*id].clone()).collect();
    let mut known = BTreeSet::from([start.clone()]);
    // Whatever a step has shown to be equal may stand for one another, in any form.
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
        !inside.iter().any(|e| e.what == What::Einsum && e.operands.len() > 2)
    };
    let mut all: Vec<Program> = Vec::new();
    let is_long =
        |v: &Value| matches!(&v.def, Def::Op { op: Op::Einsum, operands } if operands.len() > 2);
    if !program.values.iter().any(is_long) {
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

/// What an argmax is done by, part by part.
fn located(over: DimId) -> [Op; 3] {
    let max = Op::Reduce { kind: Reduce::Max, over: vec![over] };
    [max, Op::Locate { over }, Op::Map(Map::Neg)]
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
    fn expr(&mut self, id: usize, value: &Value, made: &[Expr]) -> Expr {
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
                        if let Op::Argmax { over } = op {
                            located(*over).iter().for_each(|op| _ = self.number_of(op));
                        }
                        self.number_of(op)
                    }
                };
                (what, operands)
            }
        };
        normal(Expr { what, dims: value.dims.clone(), dtype: value.dtype, operands })
    }

    fn number_of(&mut self, op: &Op) -> What {
        let known = self.ops.iter().position(|o| o == op);
        What::Other(known.unwrap_or_else(|| {
            self.ops.push(op.clone());
            self.ops.len() - 1
        }))
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
            What::Other(op) => matches!(self.ops[op], Op::Reduce { kind: Reduce::Sum, .. }),
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
        if e.what == What::Einsum && e.operands.len() > 2 {
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
        if let What::Other(op) = e.what
            && let Op::Mask { query, key, window } = &self.ops[op]
            && self.size(*query) == 1
            && window.is_none_or(|window| self.size(*key) as u64 <= window)
        {
            found.push(e.operands[0].clone());
        }
        if let What::Other(op) = e.what
            && let Op::Argmax { over } = self.ops[op]
        {
            let a = &e.operands[0];
            let [max, locate, neg] = located(over).map(|op| {
                let known = self.ops.iter().position(|o| *o == op);
                What::Other(known.expect("it came with its argmax"))
            });
            let made = |what, dtype, operands| Expr { what, dims: e.dims.clone(), dtype, operands };
            let largest = made(max, a.dtype, vec![a.clone()]);
            let at = made(locate, e.dtype, vec![a.clone(), largest]);
            found.push(made(neg, e.dtype, vec![at]));
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
            What::Other(op) => Some(self.ops[op].clone()),
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
