//! Where an instruction of a plan comes from: what its value starts as, what reads it, and which declaration forces it.

use shard_cost::{CollectiveCost, collective_cost};
use shard_ir::{AxisList, AxisSet, Collective, InstrId, InstrKind, MeshShape, Plan};

use crate::Layer;

/// What a chain of moves starts from.
pub fn origin(plan: &Plan, mut id: InstrId) -> InstrId {
    while let (InstrKind::Move(_), Some(operand)) = (&plan.instruction(id).kind, plan.instruction(id).operands.first())
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
        match plan.instruction(next).kind {
            InstrKind::Move(_) => at = next,
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                return Some(next);
            }
        }
    }
}

/// The op whose layouts ask for an instruction: the one that leaves a sum to take, or the one that reads what is moved.
pub fn op_behind(plan: &Plan, id: InstrId) -> Option<InstrId> {
    let is_op = |id: &InstrId| plan.instruction(*id).kind.op().is_some();
    let maker = Some(origin(plan, id)).filter(is_op);
    match &plan.instruction(id).kind {
        InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => Some(id),
        InstrKind::Move(Collective::ReduceScatter { .. } | Collective::AllReduce { .. }) => {
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

/// The parameter whose layout forces a move: one that the op behind it reads beside the moved value and that the move's axes
/// split (a weight before an activation); else the moved value itself, where it is a parameter.
pub fn forcing(plan: &Plan, id: InstrId) -> Option<InstrId> {
    let axes = axes(plan, id)?;
    let is_given = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let own = origin(plan, id);
    let operands = op_behind(plan, id).map_or(&[][..], |op| &plan.instruction(op).operands);
    let splits = |id: &InstrId| !plan.instruction(*id).layout.split_axes().intersection(axes).is_empty();
    let mut beside: Vec<InstrId> =
        operands.iter().map(|o| origin(plan, *o)).filter(|o| *o != own && is_given(o) && splits(o)).collect();
    beside.sort_by_key(|o| match plan.instruction(*o).kind {
        InstrKind::Parameter(kind) => kind.word().is_none(),
        InstrKind::Constant(_) | InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => true,
    });
    beside.first().copied().or_else(|| Some(own).filter(is_given))
}

/// A gather or scatter over several axes, one axis after the other as the data go, where that is what it costs as a whole:
/// over which axis, and the cost of that step. Empty where the axes are crossed together.
pub fn axis_by_axis(layer: &Layer<'_>, id: InstrId) -> Vec<(String, CollectiveCost)> {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let (InstrKind::Move(collective), Some(source)) = (&instr.kind, instr.operands.first()) else { return Vec::new() };
    let one = |axis| AxisList::EMPTY.then(axis);
    let steps: Vec<Collective> = match *collective {
        Collective::AllGather { dim, axes } => {
            axes.iter().rev().map(|a| Collective::AllGather { dim, axes: one(a) }).collect()
        }
        Collective::ReduceScatter { kind, dim, axes } => {
            axes.iter().map(|a| Collective::ReduceScatter { kind, dim, axes: one(a) }).collect()
        }
        Collective::AllReduce { .. }
        | Collective::Slice { .. }
        | Collective::AllToAll { .. }
        | Collective::Permute { .. }
        | Collective::ToPartial { .. } => Vec::new(),
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
