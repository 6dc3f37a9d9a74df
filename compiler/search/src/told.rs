//! Values as people are told of them.

use shard_ir::{Def, Made, Program, Told, ValueId};

use crate::emit::name_of;

/// So many ops without a name are told one inside the other: "the gelu of the einsum of `x` and
/// `w`".
const DEPTH: u32 = 2;

/// A value with what is needed to word it.
pub(crate) fn told(program: &Program, value: ValueId) -> Told {
    within(program, value, DEPTH)
}

fn within(program: &Program, value: ValueId, depth: u32) -> Told {
    let name = name_of(program, value).map(str::to_owned);
    let of = program.value(value);
    let made = match &of.def {
        Def::Parameter { .. } => Made::Parameter,
        Def::Constant(number) => Made::Constant(*number),
        Def::Pin { operand, written, .. } => {
            let operand = name.is_none().then(|| Box::new(within(program, *operand, depth)));
            Made::Pin { written: *written, operand }
        }
        Def::Op { op, operands } => {
            let told = operands.iter().filter(|_| name.is_none() && depth > 0);
            let operands = told.map(|operand| within(program, *operand, depth - 1)).collect();
            Made::Op { op: op.clone(), operands }
        }
    };
    Told { value, name, dims: of.dims.clone(), made }
}
