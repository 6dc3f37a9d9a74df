//! Which data the check of a module may feed to a plan.

use shard_ir::{Binary, InstrId, InstrKind, Map, Op, Plan};

/// Conditions on the inputs of a plan.
pub(crate) struct Data {
    /// For each instruction whose values are used as ids of rows, the number of rows of the
    /// smallest table that they are ids of.
    pub(crate) below: Vec<Option<u64>>,
    /// Whether inputs have to be positive: some op takes a root or a logarithm, or divides by a
    /// value that is no constant, and is no piece of a composite.
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
