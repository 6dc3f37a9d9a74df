//! The ops of StableHLO that give a tensor other dims: broadcasts, transposes, reshapes, slices,
//! reductions and products.

use shard_ir::{Dtype, Reduce};

use super::ops::list;
use super::{Class, Expression, Translator, Value, dtype};
use crate::before::read::Op;

/// Two lists of numbers behind a word: `contracting_dims = [2] x [0]`; both are empty if the word
/// is not there.
fn two_lists(text: &str, word: &str) -> Option<(Vec<usize>, Vec<usize>)> {
    match text.split_once(word) {
        None => Some((Vec::new(), Vec::new())),
        Some((_, rest)) => Some((list(rest, "")?, list(rest, "x")?)),
    }
}

impl Translator<'_> {
    pub(super) fn broadcast(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let rank = op.types.last()?.dims.len();
        match operands {
            [Value::Tensor(name, dims, dtype)] => {
                let to = list(&op.text, "dims =")?;
                let mut positions: Vec<Option<Class>> = vec![None; rank];
                for (from, to) in to.iter().enumerate() {
                    *positions.get_mut(*to)? = *dims.get(from)?;
                }
                Some(Value::Tensor(name.clone(), positions, *dtype))
            }
            _ => Some(Value::Known(rank, None)),
        }
    }

    pub(super) fn transpose(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        match operands {
            [Value::Tensor(name, dims, dtype)] => {
                let order = list(&op.text, "dims =")?;
                let positions =
                    order.iter().map(|at| dims.get(*at).copied()).collect::<Option<_>>()?;
                Some(Value::Tensor(name.clone(), positions, *dtype))
            }
            [other] => Some(other.clone()),
            _ => None,
        }
    }

    pub(super) fn reshape(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let to = op.types.last()?.dims.clone();
        let [Value::Tensor(name, dims, dtype)] = operands else { return Some(self.known(op)) };
        // A dim along which the value is only broadcast has no class, counts as size 1, and cannot
        // be cut.
        let sizes: Vec<u64> = dims.iter().map(|d| d.map_or(1, |c| self.layer.size(c))).collect();
        let mut name = name.clone();
        let mut current: Vec<Option<Class>> = dims.clone();
        let mut positions: Vec<Option<Class>> = Vec::new();
        let (mut from_at, mut to_at) = (0, 0);
        while from_at < sizes.len() || to_at < to.len() {
            if to.get(to_at) == Some(&1) {
                positions.push(None);
                to_at += 1;
                continue;
            }
            if sizes.get(from_at) == Some(&1) {
                from_at += 1;
                continue;
            }
            let (mut left, mut right) = (*sizes.get(from_at)?, *to.get(to_at)?);
            let (from_start, to_start) = (from_at, to_at);
            while left != right {
                if left < right {
                    from_at += 1;
                    left = left.checked_mul(*sizes.get(from_at)?)?;
                } else {
                    to_at += 1;
                    right = right.checked_mul(*to.get(to_at)?)?;
                }
            }
            from_at += 1;
            to_at += 1;
            let olds: Vec<Class> =
                dims[from_start..from_at].iter().copied().collect::<Option<_>>()?;
            let news = &to[to_start..to_at];
            match (&olds[..], news) {
                ([one], [_]) => positions.push(Some(*one)),
                ([one], several) => {
                    let parts: Vec<Class> = several.iter().map(|n| self.layer.fresh(*n)).collect();
                    let at = current.iter().position(|c| *c == Some(*one))?;
                    current.splice(at..=at, parts.iter().map(|c| Some(*c)));
                    let split = Expression::Split(name, *one, parts.clone());
                    let made = self.make(op, split, current.clone(), *dtype);
                    let Value::Tensor(made, ..) = made else { return None };
                    name = made;
                    positions.extend(parts.into_iter().map(Some));
                }
                (several, [one]) => {
                    let whole = self.layer.fresh(*one);
                    let at = current.iter().position(|c| *c == Some(several[0]))?;
                    current.splice(at..at + several.len(), [Some(whole)]);
                    let merge = Expression::Merge(name, several.to_vec(), whole);
                    let made = self.make(op, merge, current.clone(), *dtype);
                    let Value::Tensor(made, ..) = made else { return None };
                    name = made;
                    positions.push(Some(whole));
                }
                _ => return None,
            }
        }
        Some(Value::Tensor(name, positions, *dtype))
    }

    /// A slice: `slice %0 [0:4, 512:1024]`.
    pub(super) fn slice(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let [Value::Tensor(name, dims, dtype)] = operands else { return Some(self.known(op)) };
        let (inner, _) = op.text.split_once('[')?.1.split_once(']')?;
        let mut positions = dims.clone();
        let mut name = name.clone();
        for (at, range) in inner.split(',').enumerate() {
            let parts: Vec<u64> =
                range.trim().split(':').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            let [from, to] = parts[..] else { return None };
            let Some(class) = *dims.get(at)? else { continue };
            let size = to.checked_sub(from)?;
            if size == self.layer.size(class) {
                continue;
            }
            if size == 1 {
                return None;
            }
            let window = self.layer.fresh(size);
            positions[at] = Some(window);
            let slice = Expression::Slice(name, class, window, from);
            let Value::Tensor(made, ..) = self.make(op, slice, positions.clone(), *dtype) else {
                return None;
            };
            name = made;
        }
        Some(Value::Tensor(name, positions, *dtype))
    }

    pub(super) fn reduce(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let Some(Value::Tensor(name, dims, dtype)) = operands.first() else {
            return Some(self.known(op));
        };
        let by = if op.text.contains("stablehlo.add") {
            Reduce::Sum
        } else if op.text.contains("stablehlo.maximum") {
            Reduce::Max
        } else {
            return None;
        };
        let over = list(&op.text, "dimensions =")?;
        let classes: Vec<Class> = over.iter().filter_map(|at| *dims.get(*at)?).collect();
        let left: Vec<Option<Class>> =
            (0..dims.len()).filter(|at| !over.contains(at)).map(|at| dims[at]).collect();
        if classes.is_empty() {
            return Some(Value::Tensor(name.clone(), left, *dtype));
        }
        Some(self.make(op, Expression::Reduce(by, name.clone(), classes), left, *dtype))
    }

    pub(super) fn dot(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        if operands.iter().all(|operand| matches!(operand, Value::Known(..))) {
            return None;
        }
        // A value that every device has becomes a parameter, since a product needs its dims.
        let operands: Vec<Value> = operands
            .iter()
            .enumerate()
            .map(|(at, operand)| match operand {
                Value::Known(..) => Some(self.table(self.types.get(at)?.clone()?)),
                Value::Tensor(..) | Value::Stack(_) => Some(operand.clone()),
            })
            .collect::<Option<_>>()?;
        let [Value::Tensor(a, left, of_a), Value::Tensor(b, right, of_b)] = &operands[..] else {
            return None;
        };
        let (batch_a, batch_b) = two_lists(&op.text, "batching_dims =")?;
        let (sum_a, sum_b) = two_lists(&op.text, "contracting_dims =")?;
        let (mut a, mut left) = (a.clone(), left.clone());
        let (mut b, mut right) = (b.clone(), right.clone());
        // Batch dims and contracted dims are one on both sides. If the right side has the left
        // side's dim at another place, the left side is renamed, else the right side.
        for (at_a, at_b) in batch_a.iter().chain(&sum_a).zip(batch_b.iter().chain(&sum_b)) {
            let (one, other) = (*left.get(*at_a)?, *right.get(*at_b)?);
            let elsewhere = |class: Class| {
                let root = self.layer.root(class);
                (0..right.len())
                    .any(|at| at != *at_b && right[at].map(|c| self.layer.root(c)) == Some(root))
            };
            if one.is_some_and(elsewhere) {
                let mut theirs = vec![None; left.len()];
                theirs[*at_a] = other;
                (a, left) = self.meet(op, &theirs, a, left, *of_a);
            } else {
                let mut ours = vec![None; right.len()];
                ours[*at_b] = one;
                (b, right) = self.meet(op, &ours, b, right, *of_b);
            }
        }
        let free = |dims: &[Option<Class>], used: [&Vec<usize>; 2]| -> Vec<usize> {
            (0..dims.len()).filter(|at| !used.iter().any(|u| u.contains(at))).collect()
        };
        let free_a = free(&left, [&batch_a, &sum_a]);
        let free_b = free(&right, [&batch_b, &sum_b]);
        // A free dim of the right side that the left side has too gets another name.
        for at in &free_b {
            let Some(class) = right[*at] else { continue };
            let clashes =
                left.iter().flatten().any(|c| self.layer.root(*c) == self.layer.root(class));
            if clashes {
                let other = self.layer.fresh(self.layer.size(class));
                right[*at] = Some(other);
                let rename = Expression::Rename(b, class, other);
                let Value::Tensor(made, ..) = self.make(op, rename, right.clone(), *of_b) else {
                    return None;
                };
                b = made;
            }
        }
        let mut positions: Vec<Option<Class>> = batch_a.iter().map(|at| left[*at]).collect();
        for (position, at_b) in positions.iter_mut().zip(&batch_b) {
            *position = position.or(right[*at_b]);
        }
        positions.extend(free_a.iter().map(|at| left[*at]));
        positions.extend(free_b.iter().map(|at| right[*at]));
        let dims: Vec<Class> = positions.iter().flatten().copied().collect();
        let to = dtype(&op.types.last()?.dtype);
        let is_f32 = *of_a == Dtype::F32 || *of_b == Dtype::F32;
        let natural = if is_f32 { Dtype::F32 } else { *of_a };
        let stated = (natural != to).then_some(to);
        let einsum = Expression::Einsum(vec![a, b], dims, stated);
        Some(self.make(op, einsum, positions, to))
    }
}
