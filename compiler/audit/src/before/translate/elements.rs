//! The ops of StableHLO that take elements from other places or put them there: gather, scatter,
//! pad, concatenate.

use shard_ir::{Binary, Dtype};

use super::ops::list;
use super::{Class, Expression, Translator, Value};
use crate::before::read::Op;

impl Translator<'_> {
    /// Rows of a table by ids, as `jnp.take` and `take_along_axis` take them. With an index that
    /// every device has, a part of the table.
    pub(super) fn gather(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let Value::Tensor(table, dims, dtype) = operands.first()? else { return None };
        let sizes = op.text.split_once("slice_sizes = array<i64:")?.1.split_once('>')?.0;
        let sizes: Vec<u64> =
            sizes.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
        let collapsed = list(&op.text, "collapsed_slice_dims =").unwrap_or_default();
        let batching = list(&op.text, "operand_batching_dims =").unwrap_or_default();
        let Value::Tensor(ids, index, _) = operands.get(1)? else {
            return if collapsed.is_empty() {
                self.window(op, table, dims, &sizes, *dtype)
            } else {
                None
            };
        };
        let of_ids = list(&op.text, "start_indices_batching_dims =").unwrap_or_default();
        let [row] = list(&op.text, "start_index_map =")?[..] else { return None };
        let is_whole = |at: usize| {
            let size = dims.get(at).copied().flatten().map_or(1, |class| self.layer.size(class));
            sizes.get(at) == Some(&size)
        };
        let rest: Vec<usize> =
            (0..dims.len()).filter(|at| *at != row && !batching.contains(at)).collect();
        if !collapsed.contains(&row) || !rest.iter().all(|at| is_whole(*at)) {
            return None;
        }
        // The index vector is the last dim of the ids, of size 1.
        let (_, places) = index.split_last()?;
        let mut wanted = vec![None; dims.len()];
        for (of_table, of_ids) in batching.iter().zip(&of_ids) {
            *wanted.get_mut(*of_table)? = *places.get(*of_ids)?;
        }
        let (table, dims) = self.meet(op, &wanted, table.clone(), dims.clone(), *dtype);
        let vocabulary = (*dims.get(row)?)?;
        let positions = places.iter().copied().chain(rest.iter().map(|at| dims[*at])).collect();
        let take = Expression::Take(table, ids.clone(), vocabulary);
        Some(self.make(op, take, positions, *dtype))
    }

    /// The first positions of each dim, as many as the op takes. Which positions the op takes does
    /// not change what is sent.
    fn window(
        &mut self,
        op: &Op,
        name: &str,
        dims: &[Option<Class>],
        sizes: &[u64],
        dtype: Dtype,
    ) -> Option<Value> {
        let (mut name, mut positions) = (name.to_string(), dims.to_vec());
        for (at, size) in sizes.iter().enumerate() {
            let Some(class) = *positions.get(at)? else { continue };
            if *size == self.layer.size(class) {
                continue;
            }
            if *size == 1 {
                return None;
            }
            let part = self.layer.fresh(*size);
            positions[at] = Some(part);
            let slice = Expression::Slice(name, class, part, 0);
            let Value::Tensor(made, ..) = self.make(op, slice, positions.clone(), dtype) else {
                return None;
            };
            name = made;
        }
        Some(Value::Tensor(name, positions, dtype))
    }

    /// Sums of rows by their ids: a product of the rows with a one-hot tensor of the ids, which is
    /// a value from outside.
    pub(super) fn scatter(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let [base, ids, Value::Tensor(updates, places, dtype)] = operands else { return None };
        let of_table = op.types.last()?.dims.clone();
        let batching = list(&op.text, "input_batching_dims =").unwrap_or_default();
        let of_ids = list(&op.text, "scatter_indices_batching_dims =").unwrap_or_default();
        let windows = list(&op.text, "update_window_dims =").unwrap_or_default();
        let [row] = list(&op.text, "scatter_dims_to_operand_dims =")?[..] else { return None };
        if !list(&op.text, "inserted_window_dims =").unwrap_or_default().contains(&row) {
            return None;
        }
        let Value::Tensor(_, index, _) = ids else { return None };
        let scattered: Vec<usize> = (0..places.len()).filter(|at| !windows.contains(at)).collect();
        let mut wanted = vec![None; places.len()];
        for (n, at) in scattered.iter().enumerate() {
            wanted[*at] = *index.get(n)?;
        }
        let (updates, places) = self.meet(op, &wanted, updates.clone(), places.clone(), *dtype);
        let rows = self.layer.fresh(*of_table.get(row)?);
        let mut chosen: Vec<Class> = scattered.iter().filter_map(|at| places[*at]).collect();
        chosen.push(rows);
        let ones = self.outside("the rows of ids".to_string(), chosen, *dtype);
        let mut positions = vec![None; of_table.len()];
        positions[row] = Some(rows);
        for (to, of_ids) in batching.iter().zip(&of_ids) {
            *positions.get_mut(*to)? = *places.get(*scattered.get(*of_ids)?)?;
        }
        let rest = (0..of_table.len()).filter(|at| *at != row && !batching.contains(at));
        for (to, at) in rest.zip(&windows) {
            positions[to] = *places.get(*at)?;
        }
        let dims: Vec<Class> = positions.iter().flatten().copied().collect();
        let product = Expression::Einsum(vec![ones, updates], dims, None);
        let made = self.make(op, product, positions, *dtype);
        match base {
            Value::Known(..) => Some(made),
            base => self.elementwise(op, &[base.clone(), made], Binary::Add),
        }
    }

    /// A tensor with zeros in front or behind: a concatenation with zeros, which are a value from
    /// outside.
    pub(super) fn pad(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let Value::Tensor(name, dims, dtype) = operands.first()? else { return None };
        let to = op.types.last()?.dims.clone();
        if list(&op.text, "interior =")?.iter().any(|n| *n != 0) {
            return None;
        }
        let (mut name, mut positions) = (name.clone(), dims.clone());
        for (at, whole) in to.iter().enumerate() {
            let Some(class) = *positions.get(at)? else {
                if *whole == 1 {
                    continue;
                }
                return None;
            };
            let size = self.layer.size(class);
            if size == *whole {
                continue;
            }
            let [rest, joined] =
                [whole.checked_sub(size)?, *whole].map(|size| self.layer.fresh(size));
            let mut zeros: Vec<Class> = positions.iter().flatten().copied().collect();
            let place = positions[..at].iter().flatten().count();
            *zeros.get_mut(place)? = rest;
            let zeros = self.outside("zeros".to_string(), zeros, *dtype);
            positions[at] = Some(joined);
            let concat = Expression::Concat(name, zeros, class, rest, joined);
            let Value::Tensor(made, ..) = self.make(op, concat, positions.clone(), *dtype) else {
                return None;
            };
            name = made;
        }
        Some(Value::Tensor(name, positions, *dtype))
    }

    /// Two tensors one behind the other along a dim.
    pub(super) fn concatenate(&mut self, op: &Op, operands: &[Value]) -> Option<Value> {
        let [Value::Tensor(a, ours, dtype), Value::Tensor(b, theirs, _)] = operands else {
            return None;
        };
        let at: usize = op.text.rsplit_once("dim = ")?.1.trim().parse().ok()?;
        let (one, other) = ((*ours.get(at)?)?, (*theirs.get(at)?)?);
        let mut rest = ours.clone();
        rest[at] = None;
        let (mut b, mut theirs) = self.meet(op, &rest, b.clone(), theirs.clone(), *dtype);
        let size = self.layer.size(other);
        let second = self.layer.fresh(size);
        theirs[at] = Some(second);
        let rename = Expression::Rename(b, other, second);
        let Value::Tensor(renamed, ..) = self.make(op, rename, theirs, *dtype) else { return None };
        b = renamed;
        let whole = self.layer.fresh(self.layer.size(one).checked_add(size)?);
        let mut positions = ours.clone();
        positions[at] = Some(whole);
        let concat = Expression::Concat(a.clone(), b, one, second, whole);
        Some(self.make(op, concat, positions, *dtype))
    }
}
