//! The form that the source writes. An einsum of more than two operands is a chain, left to right,
//! unless it is a product with a weight in blocks.

use std::collections::BTreeMap;

use shard_ir::{Def, DimId, Op, Program, TensorType, Value, ValueId};

use super::{Form, Rewritten};
use crate::rules;

/// The dims of a product of some operands, in the order of the file, without those that nothing
/// else needs.
pub(super) fn kept_dims(operands: &[&[DimId]], needed: impl Fn(DimId) -> bool) -> Vec<DimId> {
    let mut dims: Vec<DimId> = operands.concat().into_iter().filter(|d| needed(*d)).collect();
    dims.sort_unstable();
    dims.dedup();
    dims
}

/// The types of the products of a chain over the operands of an einsum, left to right. The last is
/// that of the einsum. All have its dtype, in which it is accumulated.
pub(super) fn chain(program: &Program, einsum: ValueId) -> Vec<TensorType> {
    let whole = program.value(einsum);
    let operands: Vec<&Value> = whole.def.operands().iter().map(|o| program.value(*o)).collect();
    let mut types = Vec::new();
    for last in 1..operands.len() {
        let (inside, outside) = operands.split_at(last + 1);
        let inside: Vec<&[DimId]> = inside.iter().map(|o| o.dims.as_slice()).collect();
        let dims = if outside.is_empty() {
            whole.dims.clone()
        } else {
            kept_dims(&inside, |d| {
                whole.dims.contains(&d) || outside.iter().any(|o| o.dims.contains(&d))
            })
        };
        types.push(TensorType { dims, dtype: whole.dtype });
    }
    types
}

/// The form that the source writes.
pub(super) fn as_written(program: &Program) -> Form {
    let is_long = |id: ValueId| {
        matches!(&program.value(id).def, Def::Op { op: Op::Einsum, operands } if operands.len() > 2)
            && !program.is_scaled_product(id)
    };
    let mut form =
        Form { program: program.clone(), rewritten: false, made: BTreeMap::new(), flops: 0 };
    if !program.value_ids().any(is_long) {
        return form;
    }
    let mut now: Vec<ValueId> = Vec::with_capacity(program.values.len());
    let mut values: Vec<Value> = Vec::new();
    for id in program.value_ids() {
        let mut value = program.value(id).clone();
        match &mut value.def {
            Def::Op { operands, .. } => operands.iter_mut().for_each(|o| *o = now[o.index()]),
            Def::Pin { operand, .. } => *operand = now[operand.index()],
            Def::Parameter { .. } | Def::Constant(_) => {}
        }
        if is_long(id) {
            let operands = value.def.operands().to_vec();
            let steps = chain(program, id);
            let mut last = operands[0];
            for (step, ty) in steps.iter().enumerate() {
                let made = ValueId(values.len() as u32);
                let def = Def::Op { op: Op::Einsum, operands: vec![last, operands[step + 1]] };
                let name = value.name.clone().filter(|_| step + 1 == steps.len());
                let TensorType { dims, dtype } = ty.clone();
                values.push(Value { name, dims, dtype, def, ..value.clone() });
                form.made.insert(made, Rewritten { rule: rules::LONG_EINSUM, reason: None });
                last = made;
            }
        } else {
            values.push(value);
        }
        now.push(ValueId(values.len() as u32 - 1));
    }
    form.program.values = values;
    form.program.outputs.iter_mut().for_each(|o| o.value = now[o.value.index()]);
    form
}
