//! The form that the source writes. Einsums of more than two operands are chains of products, left
//! to right, unless one is a product with a weight in blocks.

use shard_ir::{Def, DimId, Op, Program, TensorType, Value, ValueId};

/// The dims of some operands that are still needed, in the order of the file.
pub(super) fn kept_dims(operands: &[&[DimId]], needed: impl Fn(DimId) -> bool) -> Vec<DimId> {
    let mut dims: Vec<DimId> = operands.concat().into_iter().filter(|dim| needed(*dim)).collect();
    dims.sort_unstable();
    dims.dedup();
    dims
}

/// The types of the products in the chain of an einsum's operands; the last is the einsum's own.
/// All have its dtype.
pub(super) fn chain(program: &Program, einsum: ValueId) -> Vec<TensorType> {
    let whole = program.value(einsum);
    let operands: Vec<&[DimId]> = whole
        .def
        .operands()
        .iter()
        .map(|operand| program.value(*operand).dims.as_slice())
        .collect();
    let product = |count: usize| {
        let (inside, outside) = operands.split_at(count);
        let needed = |dim: DimId| {
            whole.dims.contains(&dim) || outside.iter().any(|dims| dims.contains(&dim))
        };
        let dims = if outside.is_empty() { whole.dims.clone() } else { kept_dims(inside, needed) };
        TensorType { dims, dtype: whole.dtype }
    };
    (2..=operands.len()).map(product).collect()
}

/// Whether a value is an einsum that is written as a chain; a product with a weight in blocks is
/// not.
pub(super) fn is_long(program: &Program, id: ValueId) -> bool {
    matches!(&program.value(id).def, Def::Op { op: Op::Einsum, operands } if operands.len() > 2)
        && !program.is_scaled_product(id)
}

/// The form that the source writes.
pub(crate) fn as_written(program: &Program) -> Program {
    let mut form = Program { values: Vec::new(), ..program.clone() };
    let mut now: Vec<ValueId> = Vec::with_capacity(program.values.len());
    for id in program.value_ids() {
        let mut value = program.value(id).clone();
        match &mut value.def {
            Def::Op { operands, .. } => {
                operands.iter_mut().for_each(|operand| *operand = now[operand.index()])
            }
            Def::Pin { operand, .. } => *operand = now[operand.index()],
            Def::Parameter { .. } | Def::Constant(_) => {}
        }
        if is_long(program, id) {
            let operands = value.def.operands().to_vec();
            let types = chain(program, id);
            let mut last = operands[0];
            for (step, TensorType { dims, dtype }) in types.iter().cloned().enumerate() {
                let def = Def::Op { op: Op::Einsum, operands: vec![last, operands[step + 1]] };
                let name = value.name.clone().filter(|_| step + 1 == types.len());
                form.values.push(Value { name, dims, dtype, def, ..value.clone() });
                last = ValueId(form.values.len() as u32 - 1);
            }
        } else {
            form.values.push(value);
        }
        now.push(ValueId(form.values.len() as u32 - 1));
    }
    form.outputs.iter_mut().for_each(|output| output.value = now[output.value.index()]);
    form
}
