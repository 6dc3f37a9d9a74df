//! Which data a program can be tried on.

use shard_ir::op::Flag;
use shard_ir::{Binary, InstrId, InstrKind, Map, Op, Plan};

/// What inputs must meet.
pub(crate) struct Data {
    /// Of each instruction whose values end up as ids of a table, how many rows the smallest such table has.
    pub(crate) below: Vec<Option<u64>>,
    /// Something takes a root or a logarithm, or divides by what is no number, where no composite's piece does.
    pub(crate) positive: bool,
}

impl Data {
    pub(crate) fn of(plan: &Plan) -> Data {
        Data { below: below(plan), positive: plan.ids().any(|id| needs_positive(plan, id)) }
    }
}

fn needs_positive(plan: &Plan, id: InstrId) -> bool {
    let instr = plan.instruction(id);
    instr.origin.piece_of.is_none()
        && match &instr.kind {
            InstrKind::Op(Op::Map(Map::Log | Map::Sqrt | Map::Rsqrt)) => true,
            InstrKind::Op(Op::Binary(Binary::Div)) => {
                let divisor = instr.operands.get(1).map(|by| &plan.instruction(*by).kind);
                !matches!(divisor, Some(InstrKind::Constant(_)))
            }
            InstrKind::Op(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Move(_)
            | InstrKind::CollectiveEinsum(_) => false,
        }
}

fn below(plan: &Plan) -> Vec<Option<u64>> {
    let mut below: Vec<Option<u64>> = vec![None; plan.instructions.len()];
    for id in plan.ids().rev() {
        let instr = plan.instruction(id);
        let mut narrow = |operand: InstrId, rows: u64| {
            let known = &mut below[operand.index()];
            *known = Some(known.map_or(rows, |known| known.min(rows)));
        };
        if let InstrKind::Op(Op::Take { over }) = instr.kind {
            narrow(instr.operands[1], plan.dims[over.index()].size);
        }
        let keeps_values = match &instr.kind {
            InstrKind::Move(_) => true,
            InstrKind::Op(op) => op.row().is(Flag::KeepsValues),
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::CollectiveEinsum(_) => false,
        };
        if let Some(rows) = below[id.index()].filter(|_| keeps_values) {
            let mut narrow = |operand: InstrId| {
                let known = &mut below[operand.index()];
                *known = Some(known.map_or(rows, |known| known.min(rows)));
            };
            instr.operands.iter().for_each(|operand| narrow(*operand));
        }
    }
    below
}
