//! What may move in a strict layer.

use shard_ir::{Def, Op, Program, ValueId};

/// In a strict layer, whether the operand of a value may be moved to it: the value is a `reshard`,
/// or a fetch that `reshard`s alone read. The `reshard` of a weight in host memory asks also for
/// the cut before the fetch, since no line can stand between the two.
pub(crate) fn may_move_to(program: &Program, value: ValueId) -> bool {
    let is_reshard = |v: ValueId| matches!(program.value(v).def, Def::Pin { written: true, .. });
    let is_fetch = matches!(program.value(value).def, Def::Op { op: Op::Fetch, .. });
    let readers =
        || program.value_ids().filter(|v| program.value(*v).def.operands().contains(&value));
    let is_resharded = || {
        readers().next().is_some()
            && readers().all(is_reshard)
            && program.outputs.iter().all(|o| o.value != value)
    };
    is_reshard(value) || (is_fetch && is_resharded())
}
