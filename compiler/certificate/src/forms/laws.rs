//! The logical rules (`spec/rules.md`, `spec/search.md`): other ways of computing a class. Every
//! product and sum that a rule makes has the dtype of the value that it computes.

use shard_ir::{Binary, DimId, Dtype, Map, Op, Reduce, TensorType, accumulates_in};

use super::equal::{Class, Equal, Expr};
use super::flops_of;
use super::written::kept_dims;

/// A class, and another way of computing it.
pub(super) type Found = (Class, Expr);

/// Two new einsums may take at most this many times the flops of the two that they replace.
const FLOP_CAP: u128 = 2;

/// Einsums of more operands than this are multiplied left to right only.
pub(super) const MOST_OPERANDS: usize = 7;

/// The most ways in which one nest of additions is read as a sum of terms, and the most terms of
/// one way. Beyond these an inner sum counts as one term.
const MOST_READINGS: usize = 16;
const MOST_TERMS: usize = 64;

fn einsum(ty: TensorType, operands: impl IntoIterator<Item = Expr>) -> Expr {
    Expr::Op(Op::Einsum, ty, operands.into_iter().collect())
}

/// `einsum(a, b, c -> R)` is `einsum(einsum(a, b), c -> R)`; likewise for every division of the
/// operands in two. Products with weights in blocks are not divided.
pub(super) fn long_einsum(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    let result = equal.ty(class);
    let is_divided = |operands: &&[Class]| {
        (3..=MOST_OPERANDS).contains(&operands.len()) && !equal.is_scaled_product(operands, class)
    };
    for operands in equal.einsums(class).filter(is_divided) {
        // The first operand is in one part; each other operand is in either part, and not all are
        // in the first.
        for set in 1u32..1 << (operands.len() - 1) {
            let is_apart = |at: usize| at > 0 && set >> (at - 1) & 1 == 1;
            let (mut one, mut other) = (Vec::new(), Vec::new());
            operands
                .iter()
                .enumerate()
                .for_each(|(at, o)| if is_apart(at) { other.push(*o) } else { one.push(*o) });
            let product = |of: &[Class], rest: &[Class]| product_within(equal, of, rest, result);
            let (Some((left, l)), Some((right, r))) =
                (product(&one, &other), product(&other, &one))
            else {
                continue;
            };
            if l.product(r).is_some_and(|dtype| accumulates_in(dtype, result.dtype)) {
                found.push((class, einsum(result.clone(), [left, right])));
            }
        }
    }
}

/// The product of the operands `of` within an einsum that multiplies it with `rest`, and its dtype;
/// a single operand stands for itself. `None` where there is no such product.
fn product_within(
    equal: &Equal<'_>,
    of: &[Class],
    rest: &[Class],
    result: &TensorType,
) -> Option<(Expr, Dtype)> {
    if let [one] = of {
        return Some((Expr::Class(*one), equal.ty(*one).dtype));
    }
    let operands: Vec<&[DimId]> = of.iter().map(|o| equal.ty(*o).dims.as_slice()).collect();
    let is_needed =
        |dim| result.dims.contains(&dim) || rest.iter().any(|o| equal.ty(*o).dims.contains(&dim));
    let dims = kept_dims(&operands, is_needed);
    // A narrow dtype counts as the dtype that it is multiplied with, so the others come first.
    let mut dtypes: Vec<Dtype> = of.iter().map(|o| equal.ty(*o).dtype).collect();
    dtypes.sort_by_key(|dtype| dtype.is_narrow());
    let product = dtypes[1..].iter().try_fold(dtypes[0], |one, other| one.product(*other))?;
    if !accumulates_in(product, result.dtype) || !equal.fits(&dims) {
        return None;
    }
    let ty = TensorType { dims, dtype: result.dtype };
    Some((einsum(ty, of.iter().map(|o| Expr::Class(*o))), result.dtype))
}

/// `einsum(einsum(a, b), c)` is `einsum(a, einsum(b, c))`.
pub(super) fn reassociation(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for [x, y] in equal.products(class) {
        for (inner, c) in [(x, y), (y, x)] {
            for [p, q] in equal.products(inner) {
                for (a, b) in [(p, q), (q, p)] {
                    found.extend(rotated(equal, class, inner, [a, b, c]).map(|expr| (class, expr)));
                }
            }
        }
    }
}

/// `einsum(a, einsum(b, c))` in place of `einsum(einsum(a, b), c)`, where the two are equal and the
/// flops stay within [`FLOP_CAP`].
fn rotated(equal: &Equal<'_>, class: Class, inner: Class, [a, b, c]: [Class; 3]) -> Option<Expr> {
    let [result, old, a_ty, b_ty, c_ty] = [class, inner, a, b, c].map(|class| equal.ty(class));
    let share = |one: &[DimId], other: &[DimId]| one.iter().any(|dim| other.contains(dim));
    let new_dims = kept_dims(&[&b_ty.dims, &c_ty.dims], |dim| {
        result.dims.contains(&dim) || a_ty.dims.contains(&dim)
    });
    // If `c` had a dim of the same name as one that `a b` sums over, it would be a different dim.
    let is_summed = |dim: &DimId| {
        !old.dims.contains(dim) && (a_ty.dims.contains(dim) || b_ty.dims.contains(dim))
    };
    if c_ty.dims.iter().any(is_summed)
        || !share(&b_ty.dims, &c_ty.dims)
        || !share(&a_ty.dims, &new_dims)
    {
        return None;
    }
    // The new einsums have the dtype of the old ones, and state it where the old ones do.
    let dtype = result.dtype;
    let is_stated = a_ty.dtype.product(b_ty.dtype) != Some(old.dtype)
        || old.dtype.product(c_ty.dtype) != Some(dtype);
    let gives = |one: Dtype, other: Dtype| match one.product(other) {
        Some(product) if is_stated => accumulates_in(product, dtype),
        product => product == Some(dtype),
    };
    if old.dtype != dtype || !gives(b_ty.dtype, c_ty.dtype) || !gives(a_ty.dtype, dtype) {
        return None;
    }
    let flops =
        |operands: [&[DimId]; 2], result: &[DimId]| flops_of(equal.program, &operands, result);
    let before =
        flops([&a_ty.dims, &b_ty.dims], &old.dims) + flops([&old.dims, &c_ty.dims], &result.dims);
    let after =
        flops([&b_ty.dims, &c_ty.dims], &new_dims) + flops([&a_ty.dims, &new_dims], &result.dims);
    if after > before.saturating_mul(FLOP_CAP) || !equal.fits(&new_dims) {
        return None;
    }
    let inner = einsum(TensorType { dims: new_dims, dtype }, [Expr::Class(b), Expr::Class(c)]);
    Some(einsum(result.clone(), [Expr::Class(a), inner]))
}

/// `sum(einsum(a, b -> BF) over F)` is `einsum(a, b -> B)`; likewise for an einsum in place of the
/// sum.
pub(super) fn sum_of_einsum(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    let result = equal.ty(class);
    for node in equal.nodes(class) {
        let adds_up =
            matches!(equal.op(node), Some(Op::Einsum | Op::Reduce { kind: Reduce::Sum, .. }));
        let &[operand] = node.operands.as_slice() else { continue };
        if adds_up && equal.ty(operand).dtype == result.dtype {
            for inner in equal.einsums(operand).filter(|o| (2..=MOST_OPERANDS).contains(&o.len())) {
                found.push((class, einsum(result.clone(), inner.iter().map(|o| Expr::Class(*o)))));
            }
        }
    }
}

/// `causal(a over L, S)` is `a` if L has one position, since no key is later than the last one. A
/// window must reach back to the first key. Both must be computed in one place, as everything in a
/// class is.
pub(super) fn mask_of_nothing(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for node in equal.nodes(class) {
        if let (Some(Op::Mask { query, key, window }), &[masked]) =
            (equal.op(node), &node.operands[..])
            && equal.program.sizes(&[*query]) == [1]
            && window.is_none_or(|window| equal.program.sizes(&[*key])[0] <= window)
            && masked != class
            && equal.fold_place_of(masked) == equal.fold_place_of(class)
        {
            found.push((class, Expr::Class(masked)));
        }
    }
}

/// `argmax(a over V)` is `-locate(a, max(a over V) over V)`.
pub(super) fn located(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    let ty = equal.ty(class);
    for node in equal.nodes(class) {
        if let (Some(Op::Argmax { over }), &[operand]) = (equal.op(node), &node.operands[..]) {
            let (over, operand_dtype) = (*over, equal.ty(operand).dtype);
            let max = Op::Reduce { kind: Reduce::Max, over: vec![over] };
            let of_max = TensorType { dims: ty.dims.clone(), dtype: operand_dtype };
            let largest = Expr::Op(max, of_max, vec![Expr::Class(operand)]);
            let operands = vec![Expr::Class(operand), largest];
            let at = Expr::Op(Op::Locate { over }, ty.clone(), operands);
            found.push((class, Expr::Op(Op::Map(Map::Neg), ty.clone(), vec![at])));
        }
    }
}

/// A term of a sum, and whether it is subtracted.
type Term = (bool, Class);

/// `einsum(x, a) + einsum(x, b)` is `einsum(x, a + b)`: likewise for all terms of a nest of
/// additions and subtractions that share `x`.
pub(super) fn shared_operand(equal: &Equal<'_>, class: Class, found: &mut Vec<Found>) {
    for terms in readings(equal, class, &mut Vec::new()).iter().filter(|terms| terms.len() > 1) {
        let mut shared: Vec<Class> =
            terms.iter().flat_map(|(_, term)| equal.products(*term).flatten()).collect();
        shared.sort_unstable();
        shared.dedup();
        for x in shared {
            found.extend(factored(equal, class, terms, x).map(|expr| (class, expr)));
        }
    }
}

/// A class as a sum of terms, in every way that additions and subtractions give. A class that can
/// also be computed otherwise, or that contains itself, is one term, too.
fn readings(equal: &Equal<'_>, class: Class, within: &mut Vec<Class>) -> Vec<Vec<Term>> {
    let alone = vec![(false, class)];
    if within.contains(&class) {
        return vec![alone];
    }
    within.push(class);
    let mut all: Vec<Vec<Term>> = Vec::new();
    for node in equal.nodes(class) {
        let is_alike = node.operands.iter().all(|o| equal.ty(*o) == equal.ty(class));
        let op = equal.op(node).filter(|_| is_alike);
        let Some(Op::Binary(sign @ (Binary::Add | Binary::Sub))) = op else {
            all.push(alone.clone());
            continue;
        };
        let takes_away = *sign == Binary::Sub;
        let right = readings(equal, node.operands[1], within);
        for left in readings(equal, node.operands[0], within) {
            for right in &right {
                let right = right.iter().map(|(negative, term)| (*negative != takes_away, *term));
                let mut terms: Vec<Term> = left.iter().copied().chain(right).collect();
                terms.sort_unstable();
                all.push(if terms.len() > MOST_TERMS { alone.clone() } else { terms });
            }
        }
    }
    within.pop();
    all.sort_unstable();
    all.dedup();
    all.truncate(MOST_READINGS);
    all
}

/// The sum with all terms that are products with `x` combined into one; `None` where fewer than two
/// are.
fn factored(equal: &Equal<'_>, class: Class, terms: &[Term], x: Class) -> Option<Expr> {
    let ty = equal.ty(class);
    let mut rests: Vec<Term> = Vec::new();
    let mut others: Vec<(bool, Expr)> = Vec::new();
    for (negative, term) in terms {
        let rest = equal.products(*term).find_map(|operands| match operands {
            [one, rest] | [rest, one] if one == x => Some(rest),
            _ => None,
        });
        // The factors that are added up must have one type, with the dtype of the sum.
        let fits = |rest: &Class| {
            let first = rests.first().map_or(*rest, |(_, first)| *first);
            equal.ty(*rest) == equal.ty(first) && equal.ty(first).dtype == ty.dtype
        };
        match rest.filter(fits) {
            Some(rest) => rests.push((*negative, rest)),
            None => others.push((*negative, Expr::Class(*term))),
        }
    }
    let &[(negative, first), _, ..] = rests.as_slice() else { return None };
    let rests =
        rests.into_iter().map(|(sign, rest)| (sign != negative, Expr::Class(rest))).collect();
    let product = einsum(ty.clone(), [Expr::Class(x), sum(equal.ty(first), rests)?]);
    others.push((negative, product));
    sum(ty, others)
}

/// Terms added up, left to right, the subtracted ones last. `None` where all are subtracted.
fn sum(ty: &TensorType, mut terms: Vec<(bool, Expr)>) -> Option<Expr> {
    terms.sort_by_key(|(negative, _)| *negative);
    let mut terms = terms.into_iter();
    let (false, first) = terms.next()? else { return None };
    Some(terms.fold(first, |sum, (negative, term)| {
        let op = Op::Binary(if negative { Binary::Sub } else { Binary::Add });
        Expr::Op(op, ty.clone(), vec![sum, term])
    }))
}
