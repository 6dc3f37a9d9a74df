//! Values as reports and messages name them.

use shard_ir::{Def, Made, Program, Told, ValueId};

use crate::emit::name_of;

/// How many ops without a name, one in another, are told with all of their operands: "the gelu of
/// the einsum of `x` and `w`".
const DEPTH: u32 = 2;

/// An op that lies deeper is told by its first operand that is no number, and so on from there,
/// until an operand has a name or so many ops are passed. People look for a value by a name of the
/// source, and a value that a rule made of parts may lie many ops away from a name.
const REACH: u32 = 16;

/// A value with what is needed to word it.
pub(crate) fn told(program: &Program, value: ValueId) -> Told {
    within(program, value, 0)
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
            let is_number = |v: &ValueId| matches!(program.value(*v).def, Def::Constant(_));
            let told = match depth {
                _ if name.is_some() => &[],
                0..DEPTH => operands.as_slice(),
                DEPTH..REACH => match operands.iter().position(|v| !is_number(v)) {
                    Some(first) => &operands[first..=first],
                    None => &[],
                },
                _ => &[],
            };
            let operands = told.iter().map(|v| within(program, *v, depth + 1)).collect();
            Made::Op { op: op.clone(), operands }
        }
    };
    Told { value, name, dims: of.dims.clone(), made }
}
