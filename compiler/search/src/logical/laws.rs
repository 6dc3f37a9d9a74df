//! The logical rules: equal ways of computing a tensor. Each rule returns what it finds in the
//! e-graph; no rule sees what another has found in the same round.
//!
//! The rules hold for real numbers. In floating point, sums are rounded in another order. Nothing
//! worse happens, since every product and sum that a rule makes has the dtype of the tensor that it
//! computes.

use std::rc::Rc;

use egg::Id;
use shard_ir::{Binary, DimId, Dtype, Map, Op, Reduce, TensorType, accumulates_in};

use super::graph::{Expr, Logical, OpPlace, TypedOp};
use super::written::kept_dims;

/// What a rule has found: classes, each with another way of computing it.
pub(super) type Rewrites = Vec<(Id, Expr)>;

/// Two new einsums may take at most this many times the flops of the two that they replace.
const FLOP_CAP: u128 = 2;

/// Einsums of more operands than this are chains, left to right, and nothing else.
pub(crate) const MAX_OPERANDS: usize = 7;

/// `einsum(a, b, c -> R)` is `einsum(einsum(a, b), c -> R)`: every division of the operands in two,
/// but for products with weights in blocks.
pub(super) fn long_einsum(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let is_divided = |operands: &&[Id]| {
        (3..=MAX_OPERANDS).contains(&operands.len()) && !logical.is_scaled_product(operands, class)
    };
    for operands in logical.einsums(class).filter(is_divided) {
        let result = logical.ty(class);
        for set in 1u32..1 << (operands.len() - 1) {
            let apart = |place: usize| place > 0 && set >> (place - 1) & 1 == 1;
            let part = |side: bool| -> Vec<Id> {
                (0..operands.len()).filter(|p| apart(*p) == side).map(|p| operands[p]).collect()
            };
            let sides = [part(false), part(true)];
            let product =
                |side: usize| part_of_einsum(logical, &sides[side], &sides[1 - side], result);
            let (Some((left, l)), Some((right, r))) = (product(0), product(1)) else { continue };
            if l.product(r).is_some_and(|product| accumulates_in(product, result.dtype)) {
                found.push((class, einsum(result.clone(), [left, right])));
            }
        }
    }
}

/// The product of some operands of an einsum, and its dtype.
fn part_of_einsum(
    logical: &Logical<'_>,
    part: &[Id],
    rest: &[Id],
    result: &TensorType,
) -> Option<(Expr, Dtype)> {
    if let [one] = part {
        return Some((Expr::Class(*one), logical.ty(*one).dtype));
    }
    let has = |ids: &[Id], d: DimId| ids.iter().any(|o| logical.ty(*o).dims.contains(&d));
    let operands: Vec<&[DimId]> = part.iter().map(|o| logical.ty(*o).dims.as_slice()).collect();
    let dims = kept_dims(&operands, |d| result.dims.contains(&d) || has(rest, d));
    // An operand in a narrow dtype counts as what it is multiplied with, so that the others come
    // first.
    let mut dtypes: Vec<Dtype> = part.iter().map(|o| logical.ty(*o).dtype).collect();
    dtypes.sort_by_key(|t| t.is_narrow());
    let product = dtypes[1..].iter().try_fold(dtypes[0], |a, b| a.product(*b))?;
    let dtype = result.dtype;
    let made =
        einsum(TensorType { dims: dims.clone(), dtype }, part.iter().map(|o| Expr::Class(*o)));
    (accumulates_in(product, dtype) && logical.fits(&dims)).then_some((made, dtype))
}

/// `einsum(einsum(a, b), c)` is `einsum(a, einsum(b, c))`.
pub(super) fn reassociation(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    for outer in logical.products(class) {
        for (inner, c) in [(outer[0], outer[1]), (outer[1], outer[0])] {
            for [first, second] in logical.products(inner) {
                for (a, b) in [(first, second), (second, first)] {
                    found.extend(
                        rotated(logical, class, inner, [a, b, c]).map(|made| (class, made)),
                    );
                }
            }
        }
    }
}

/// `einsum(a, einsum(b, c))` for `einsum(einsum(a, b), c)`, where that is sound and within the cap.
fn rotated(logical: &Logical<'_>, class: Id, inner: Id, [a, b, c]: [Id; 3]) -> Option<Expr> {
    let [result, old, ta, tb, tc] = [class, inner, a, b, c].map(|id| logical.ty(id));
    let shares = |x: &[DimId], y: &[DimId]| x.iter().any(|d| y.contains(d));
    // A dim that the inner einsum sums over is another dim than one of the same name outside.
    let summed = |d: &DimId| !old.dims.contains(d) && (ta.dims.contains(d) || tb.dims.contains(d));
    let dims =
        kept_dims(&[&tb.dims, &tc.dims], |d| result.dims.contains(&d) || ta.dims.contains(&d));
    let dtype = result.dtype;
    // Where a dtype is stated, the new einsums state it too. Else the rule does not apply to dtypes
    // that differ.
    let states =
        ta.dtype.product(tb.dtype) != Some(old.dtype) || old.dtype.product(tc.dtype) != Some(dtype);
    let given_in_it = |a: Dtype, b: Dtype| match a.product(b) {
        Some(product) if states => accumulates_in(product, dtype),
        product => product == Some(dtype),
    };
    let same_dtype =
        old.dtype == dtype && given_in_it(tb.dtype, tc.dtype) && given_in_it(ta.dtype, dtype);
    if !same_dtype
        || tc.dims.iter().any(summed)
        || !shares(&tb.dims, &tc.dims)
        || !shares(&ta.dims, &dims)
    {
        return None;
    }
    let before = logical.flops(&[&ta.dims, &tb.dims], &old.dims)
        + logical.flops(&[&old.dims, &tc.dims], &result.dims);
    let after = logical.flops(&[&tb.dims, &tc.dims], &dims)
        + logical.flops(&[&ta.dims, &dims], &result.dims);
    if after > before.saturating_mul(FLOP_CAP) || !logical.fits(&dims) {
        return None;
    }
    let inner = einsum(TensorType { dims, dtype }, [Expr::Class(b), Expr::Class(c)]);
    Some(einsum(result.clone(), [Expr::Class(a), inner]))
}

/// `sum(einsum(a, b -> BF) over F)` is `einsum(a, b -> B)`; likewise an einsum of that one operand.
pub(super) fn sum_of_einsum(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    let result = logical.ty(class);
    for node in logical.nodes(class) {
        let is_sum =
            matches!(logical.op(node), Some(Op::Einsum | Op::Reduce { kind: Reduce::Sum, .. }));
        let &[operand] = node.operands.as_slice() else { continue };
        if is_sum && logical.ty(operand).dtype == result.dtype {
            for inner in logical.einsums(operand).filter(|o| (2..=MAX_OPERANDS).contains(&o.len()))
            {
                found.push((class, einsum(result.clone(), inner.iter().map(|o| Expr::Class(*o)))));
            }
        }
    }
}

/// A term of a sum, and whether it is subtracted.
pub(super) type Term = (Id, bool);

/// How many ways of reading a nest of additions as a sum of terms are kept.
const MAX_READINGS: usize = 16;

/// How many terms a reading may have. A larger sum is read as one term.
const MAX_TERMS: usize = 64;

/// `einsum(x, a) + einsum(x, b)` is `einsum(x, a + b)`: all terms of a nest of additions and
/// subtractions that share `x`.
pub(super) fn shared_operand(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    for terms in readings(logical, class).iter().filter(|terms| terms.len() > 1) {
        let mut shared: Vec<Id> = Vec::new();
        for (term, _) in terms {
            shared.extend(logical.products(*term).flatten());
        }
        shared.sort_unstable();
        shared.dedup();
        for x in shared {
            found.extend(factored(logical, class, terms, x).map(|made| (class, made)));
        }
    }
}

/// Every way of reading a class as a sum of terms, which are those of the additions and
/// subtractions under it. Where it may be computed in another way, the class itself is one term.
fn readings(logical: &Logical<'_>, class: Id) -> Rc<Vec<Vec<Term>>> {
    let alone = vec![(class, false)];
    if let Some(known) = logical.readings.borrow().get(&class) {
        return Rc::clone(known);
    }
    logical.readings.borrow_mut().insert(class, Rc::new(vec![alone.clone()]));
    let ty = logical.ty(class);
    let mut all: Vec<Vec<Term>> = Vec::new();
    for node in logical.nodes(class) {
        let is_alike = node.operands.iter().all(|o| logical.ty(*o) == ty);
        let op = logical.op(node).filter(|_| is_alike);
        let Some(Op::Binary(sign @ (Binary::Add | Binary::Sub))) = op else {
            all.push(alone.clone());
            continue;
        };
        let minus = *sign == Binary::Sub;
        let (left, right) =
            (readings(logical, node.operands[0]), readings(logical, node.operands[1]));
        for left in left.iter() {
            for right in right.iter() {
                let signed = right.iter().map(|(term, negative)| (*term, *negative != minus));
                let mut terms: Vec<Term> = left.iter().copied().chain(signed).collect();
                terms.sort_unstable_by_key(|(term, negative)| (*negative, *term));
                all.push(if terms.len() > MAX_TERMS { alone.clone() } else { terms });
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    all.truncate(MAX_READINGS);
    let all = Rc::new(all);
    logical.readings.borrow_mut().insert(class, Rc::clone(&all));
    all
}

/// The sum in which all terms that are products with `x` are one; `None` where they are fewer than
/// two.
fn factored(logical: &Logical<'_>, class: Id, terms: &[Term], x: Id) -> Option<Expr> {
    let ty = logical.ty(class);
    let mut rests: Vec<Term> = Vec::new();
    let mut others: Vec<(Expr, bool)> = Vec::new();
    for (term, negative) in terms {
        let with_x = logical.products(*term).find_map(|operands| match operands {
            [a, rest] | [rest, a] if a == x => Some(rest),
            _ => None,
        });
        let fits = |rest: &Id| {
            let first = rests.first().map_or(logical.ty(*rest), |(first, _)| logical.ty(*first));
            logical.ty(*rest) == first && first.dtype == ty.dtype
        };
        match with_x.filter(fits) {
            Some(rest) => rests.push((rest, *negative)),
            None => others.push((Expr::Class(*term), *negative)),
        }
    }
    let &[(first, negative), _, ..] = rests.as_slice() else { return None };
    let rests =
        rests.into_iter().map(|(rest, sign)| (Expr::Class(rest), sign != negative)).collect();
    let product = einsum(ty.clone(), [Expr::Class(x), sum(logical.ty(first), rests)?]);
    others.push((product, negative));
    sum(ty, others)
}

/// Terms added up, left to right; those that are subtracted come last. `None` where all are.
fn sum(ty: &TensorType, mut terms: Vec<(Expr, bool)>) -> Option<Expr> {
    terms.sort_by_key(|(_, negative)| *negative);
    let mut terms = terms.into_iter();
    let (first, negative) = terms.next()?;
    let chain = terms.fold(first, |sum, (term, negative)| {
        let op = Op::Binary(if negative { Binary::Sub } else { Binary::Add });
        Expr::Op(TypedOp { op, ty: ty.clone(), place: OpPlace::default() }, vec![sum, term])
    });
    (!negative).then_some(chain)
}

/// `causal(a over L, S)` is `a` where L has one position, the last, and every key is in its window.
pub(super) fn mask_of_nothing(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    for node in logical.nodes(class) {
        let Some(Op::Mask { query, key, window }) = logical.op(node) else { continue };
        let &[masked] = node.operands.as_slice() else { continue };
        let size = |dim: &DimId| logical.program.dims[dim.index()].size;
        // All e-nodes of a class are computed in one place.
        if masked != class
            && size(query) == 1
            && window.is_none_or(|window| size(key) <= window)
            && logical.place_of(masked) == logical.place_of(class)
        {
            found.push((class, Expr::Class(masked)));
        }
    }
}

/// `argmax(a over V)` is `-locate(a, max(a over V) over V)`, which each device computes on its part
/// of V.
pub(super) fn located(logical: &Logical<'_>, class: Id, found: &mut Rewrites) {
    for node in logical.nodes(class) {
        let Some(Op::Argmax { over }) = logical.op(node) else { continue };
        let &[operand] = node.operands.as_slice() else { continue };
        let (over, ty) = (*over, logical.ty(class).clone());
        let place = OpPlace::default();
        let largest = Expr::Op(
            TypedOp {
                op: Op::Reduce { kind: Reduce::Max, over: vec![over] },
                ty: TensorType { dims: ty.dims.clone(), dtype: logical.ty(operand).dtype },
                place,
            },
            vec![Expr::Class(operand)],
        );
        let at = Expr::Op(
            TypedOp { op: Op::Locate { over }, ty: ty.clone(), place },
            vec![Expr::Class(operand), largest],
        );
        found.push((class, Expr::Op(TypedOp { op: Op::Map(Map::Neg), ty, place }, vec![at])));
    }
}

fn einsum(ty: TensorType, operands: impl IntoIterator<Item = Expr>) -> Expr {
    Expr::Op(
        TypedOp { op: Op::Einsum, ty, place: OpPlace::default() },
        operands.into_iter().collect(),
    )
}
