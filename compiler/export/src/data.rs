//! Which data a program can be tried on.

use shard_ir::{Binary, InstrId, InstrKind, Map, Op, Plan};

/// What inputs must meet.
pub(crate) struct Data {
    /// Of each instruction whose values end up as ids of a table, how many rows the smallest such
    /// table has.
    pub(crate) below: Vec<Option<u64>>,
    /// Something takes a root or a logarithm, or divides by what is no number, where no composite's
    /// piece does.
    pub(crate) positive: bool,
}

impl Data {
    pub(crate) fn of(plan: &Plan) -> Data {
        Data {
            below: shard_ir::index_ranges(plan),
            positive: plan.ids().any(|id| needs_positive(plan, id)),
        }
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
