//! What JSON says of a move in a comparison of two plans.

use serde::Serialize;
use shard_cost::InstrPrice;
use shard_ir::InstrId;

use crate::comparison::Side;
use crate::object;

/// A move as JSON.
pub(crate) fn move_json(side: Side<'_>, id: InstrId) -> impl Serialize + use<> {
    let instr = side.plan.instruction(id);
    object!(MoveJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        from_layout: instr.operands.first().map_or_else(String::new, |o| side.plan.layout_text(*o)),
        layout: side.plan.layout_text(id),
        // Of all applications, as the time.
        bytes: match side.price.of(id) {
            InstrPrice::Move(cost) => cost.bytes.times(side.plan.repeat_of(id)).0,
            InstrPrice::Free | InstrPrice::Kernel { .. } => 0,
        },
        time_s: side.time(id).seconds(),
        line: side.line(id),
    })
}
