//! Where an instruction of a plan comes from: what its value starts as, what reads it, and which
//! declaration forces it.

use shard_cost::{CollectiveCost, collective_cost};
use shard_ir::{AxisList, AxisSet, Collective, InstrId, InstrKind, MeshShape, Op, Plan};

use crate::Layer;

/// The instruction that a chain of moves starts from.
pub fn origin(plan: &Plan, mut id: InstrId) -> InstrId {
    while let (InstrKind::Move(_), Some(operand)) =
        (&plan.instruction(id).kind, plan.instruction(id).operands.first())
    {
        id = *operand;
    }
    id
}

/// The first op that reads an instruction, through moves.
pub fn reader(plan: &Plan, id: InstrId) -> Option<InstrId> {
    let users = plan.uses();
    let mut at = id;
    loop {
        let next = *users[at.index()].first()?;
        let InstrKind::Move(_) = plan.instruction(next).kind else { return Some(next) };
        at = next;
    }
}

/// The op whose layouts ask for an instruction: for a move that combines, the op that left the
/// terms; for any other, the op that reads the moved value.
pub fn op_behind(plan: &Plan, id: InstrId) -> Option<InstrId> {
    let is_op = |id: &InstrId| plan.instruction(*id).kind.op().is_some();
    let maker = Some(origin(plan, id)).filter(is_op);
    match &plan.instruction(id).kind {
        InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => Some(id),
        InstrKind::Move(collective) if collective.row().combines => {
            maker.or_else(|| reader(plan, id))
        }
        InstrKind::Move(_) => reader(plan, id).or(maker),
        InstrKind::Parameter(_) | InstrKind::Constant(_) => None,
    }
}

/// The axes of a move, or of the collective inside a loop.
pub fn axes(plan: &Plan, id: InstrId) -> Option<AxisSet> {
    let instr = plan.instruction(id);
    let collective = instr.kind.collective()?;
    Some(collective.axes(&plan.mesh, plan.instruction(*instr.operands.first()?).layout).set())
}

/// The instruction whose layout forces a move: a value that the op behind the move reads beside the
/// moved one and that the axes of the move split. It is followed back to the parameter that
/// declares the split, a weight before any other. Where there is none, it is the moved value if
/// that is a parameter. `None` where only the place that asks for the value forces the move.
pub fn forcing(plan: &Plan, id: InstrId) -> Option<InstrId> {
    let axes = axes(plan, id)?;
    let own = origin(plan, id);
    // The maker of a value asks for no move of it, unless it left terms to combine.
    let behind = op_behind(plan, id).filter(|op| *op != own || combines(plan, id));
    let operands = behind.map_or(&[][..], |op| &plan.instruction(op).operands);
    let beside: Vec<InstrId> = operands
        .iter()
        .map(|o| origin(plan, *o))
        .filter(|o| *o != own && is_split_by(plan, *o, axes))
        .collect();
    let mut given: Vec<InstrId> =
        beside.iter().filter_map(|o| declared(plan, *o, axes)).filter(|o| *o != own).collect();
    given.sort_by_key(|o| {
        let kind = plan.instruction(*o).kind.parameter();
        kind.map_or((true, true), |kind| (kind.word().is_none(), !beside.contains(o)))
    });
    let is_named = |o: &&InstrId| plan.instruction(**o).name.is_some();
    let own = Some(own).filter(|o| is_given(plan, *o));
    given.first().copied().or(own).or_else(|| beside.iter().find(is_named).copied())
}

fn combines(plan: &Plan, id: InstrId) -> bool {
    match &plan.instruction(id).kind {
        InstrKind::Move(collective) => collective.row().combines,
        InstrKind::CollectiveEinsum(_) => true,
        InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => false,
    }
}

fn is_given(plan: &Plan, id: InstrId) -> bool {
    matches!(plan.instruction(id).kind, InstrKind::Parameter(_))
}

fn is_split_by(plan: &Plan, id: InstrId, axes: AxisSet) -> bool {
    !plan.instruction(id).layout.split_axes().intersection(axes).is_empty()
}

/// The parameter from which a value has its split over some axes, through ops that leave a split as
/// it is.
fn declared(plan: &Plan, mut id: InstrId, axes: AxisSet) -> Option<InstrId> {
    loop {
        let instr = plan.instruction(id);
        match &instr.kind {
            InstrKind::Parameter(_) => return Some(id),
            InstrKind::Op(
                Op::Rename { .. }
                | Op::Split { .. }
                | Op::Merge { .. }
                | Op::SliceDim { .. }
                | Op::Append { .. }
                | Op::Cast(_)
                | Op::Fetch
                | Op::Map(_),
            ) => {
                id = instr
                    .operands
                    .iter()
                    .map(|o| origin(plan, *o))
                    .find(|o| is_split_by(plan, *o, axes))?
            }
            InstrKind::Op(_)
            | InstrKind::Constant(_)
            | InstrKind::Move(_)
            | InstrKind::CollectiveEinsum(_) => {
                return None;
            }
        }
    }
}

/// The steps of a gather or scatter over several axes, one axis after the other in the order in
/// which data move: the axis, and the cost of its step. Empty where the axes are crossed together,
/// so that the steps do not add up to the cost of the move.
pub fn axis_by_axis(layer: &Layer<'_>, id: InstrId) -> Vec<(String, CollectiveCost)> {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let (InstrKind::Move(collective), Some(source)) = (&instr.kind, instr.operands.first()) else {
        return Vec::new();
    };
    let one = |axis| AxisList::EMPTY.then(axis);
    let parts = collective.parts(plan.instruction(*source).layout).into_iter();
    let steps: Vec<Collective> = match collective.terms().kind {
        // The minor axis is gathered first.
        None => parts
            .flat_map(|(dim, axes)| {
                axes.iter().rev().map(move |a| Collective::AllGather { dim, axes: one(a) })
            })
            .collect(),
        Some(kind) => parts
            .flat_map(|(dim, axes)| {
                axes.iter().map(move |a| Collective::ReduceScatter { kind, dim, axes: one(a) })
            })
            .collect(),
    };
    if steps.len() < 2 {
        return Vec::new();
    }
    let sizes = plan.sizes(&instr.dims);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
    let mut at = plan.instruction(*source).layout;
    let mut found = Vec::new();
    for step in steps {
        let cost = collective_cost(layer.hardware, &plan.mesh, &step, at, &sizes, instr.dtype);
        let name = plan.mesh.axes_text(step.axes(&plan.mesh, at).iter());
        let Ok(next) = step.apply(shape, at) else { return Vec::new() };
        found.push((name, cost));
        at = next;
    }
    let sum: u64 = found.iter().map(|(_, cost)| cost.time.0).sum();
    // Each step's time is rounded up to a picosecond.
    let whole = layer.price.of(id).time().0;
    if sum.abs_diff(whole) <= found.len() as u64 { found } else { Vec::new() }
}
