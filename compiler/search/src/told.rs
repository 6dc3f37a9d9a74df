//! Values as people are told of them.

use shard_ir::{Def, Made, Program, Told, ValueId};

use crate::emit::name_of;

/// So many ops without a name are told with all of their operands: "the gelu of the einsum of `x`
/// and `w`".
const DEPTH: u32 = 2;

/// Of an op that lies deeper, the first operand that is no number is told alone, and so on from
/// there, until one has a name or so many ops are passed: people look for a value by a name of the
/// source, and what a rule makes of parts may lie many ops away from one.
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
