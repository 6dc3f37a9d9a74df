//! What JSON says of a move in a comparison of two plans.

use serde::Serialize;
use shard_cost::InstrPrice;
use shard_ir::InstrId;

use crate::comparison::Side;

/// A move in a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct MoveJson {
    id: u32,
    op: &'static str,
    name: Option<String>,
    from_layout: String,
    layout: String,
    /// Of all applications, as the time.
    bytes: u64,
    time_s: f64,
    line: Option<usize>,
}

/// A move as JSON.
pub(crate) fn move_json(side: Side<'_>, id: InstrId) -> MoveJson {
    let instr = side.plan.instruction(id);
    MoveJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        from_layout: instr.operands.first().map_or_else(String::new, |o| side.plan.layout_text(*o)),
        layout: side.plan.layout_text(id),
        bytes: match side.price.of(id) {
            InstrPrice::Move(cost) => cost.bytes.times(side.plan.repeat_of(id)).0,
            InstrPrice::Free | InstrPrice::Kernel { .. } => 0,
        },
        time_s: side.time(id).seconds(),
        line: side.line(id),
    }
}
