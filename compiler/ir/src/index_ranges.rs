//! The values of a plan that are used as ids of rows or places, and the number of rows or places.

use crate::op::{Flag, Op};
use crate::plan::{InstrId, InstrKind, Plan};

/// For each instruction whose values are used as ids by a `take` or a `scatter_add`, directly or
/// through ops that keep values: the number of rows or places that an id may name, the smallest
/// where there are several.
pub fn index_ranges(plan: &Plan) -> Vec<Option<u64>> {
    let mut ranges: Vec<Option<u64>> = vec![None; plan.instructions.len()];
    let narrow = |ranges: &mut Vec<Option<u64>>, operand: InstrId, rows: u64| {
        let known = &mut ranges[operand.index()];
        *known = Some(known.map_or(rows, |known| known.min(rows)));
    };
    for id in plan.ids().rev() {
        let instr = plan.instruction(id);
        if let InstrKind::Op(Op::Take { over: places } | Op::ScatterAdd { to: places, .. }) =
            instr.kind
        {
            narrow(&mut ranges, instr.operands[1], plan.dims[places.index()].size);
        }
        let keeps_values = match &instr.kind {
            InstrKind::Move(_) => true,
            InstrKind::Op(op) => op.row().is(Flag::KeepsValues),
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::CollectiveEinsum(_) => {
                false
            }
        };
        if let Some(rows) = ranges[id.index()].filter(|_| keeps_values) {
            instr.operands.iter().for_each(|operand| narrow(&mut ranges, *operand, rows));
        }
    }
    ranges
}
