//! The strategy of a plan by its name in the field, recognised from how its weights lie and whether they move.
//!
//! | name | weights (of two dims or more) | activations |
//! |---|---|---|
//! | 1d-weight-stationary | stay; each split along one dim | |
//! | 2d-weight-stationary | stay; some split along two dims | |
//! | x-, xy-, xyz-weight-gathered | gathered over one, two, three mesh axes, whichever they are | split over these axes along dims that the weights lack (the batch, the sequence) |
//! | fsdp | gathered over the only axis of the mesh | split over it in the same way |
//! | data-parallel | replicated over axes that split the activations' own dims | |
//!
//! A plan may bear more than one name; one that bears none is `unnamed`.

use std::collections::BTreeSet;

use shard_ir::{AxisSet, InstrId, InstrKind, Op, ParameterKind, Plan};

/// A name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Strategy {
    /// Weights stay, split along one dim each.
    OneDWeightStationary,
    /// Weights stay, split along two dims.
    TwoDWeightStationary,
    /// Weights are gathered over one mesh axis.
    XWeightGathered,
    /// Weights are gathered over two mesh axes.
    XyWeightGathered,
    /// Weights are gathered over three mesh axes.
    XyzWeightGathered,
    /// Weights are gathered over the only mesh axis, which splits the batch.
    Fsdp,
    /// Weights are replicated over axes that split the batch.
    DataParallel,
    /// None of these.
    Unnamed,
}

impl Strategy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::OneDWeightStationary => "1d-weight-stationary",
            Strategy::TwoDWeightStationary => "2d-weight-stationary",
            Strategy::XWeightGathered => "x-weight-gathered",
            Strategy::XyWeightGathered => "xy-weight-gathered",
            Strategy::XyzWeightGathered => "xyz-weight-gathered",
            Strategy::Fsdp => "fsdp",
            Strategy::DataParallel => "data-parallel",
            Strategy::Unnamed => "unnamed",
        }
    }
}

/// The names that a plan deserves; never empty.
pub fn strategy(plan: &Plan) -> Vec<Strategy> {
    let uses = weight_uses(plan);
    let mut names = BTreeSet::new();
    if !uses.is_empty() {
        let gathered = uses.iter().fold(AxisSet::EMPTY, |all, u| all.union(u.gathered));
        if !gathered.is_empty() {
            names.extend(gathered_name(plan, &uses, gathered));
        } else if uses.iter().any(|u| u.split_dims >= 2) {
            names.insert(Strategy::TwoDWeightStationary);
        } else if uses.iter().any(|u| u.split_dims == 1) {
            names.insert(Strategy::OneDWeightStationary);
        }
        let everywhere = uses.iter().fold(plan.mesh.all_axes(), |all, u| all.intersection(u.activation_axes));
        let on_a_weight = uses.iter().fold(AxisSet::EMPTY, |all, u| all.union(u.stored));
        if !everywhere.difference(on_a_weight).is_empty() {
            names.insert(Strategy::DataParallel);
        }
    }
    if names.is_empty() {
        names.insert(Strategy::Unnamed);
    }
    names.into_iter().collect()
}

/// The name of a plan that gathers weights, if all that are split over the gathered axes are gathered over them and the
/// activations are split over them instead.
fn gathered_name(plan: &Plan, uses: &[WeightUse], gathered: AxisSet) -> Option<Strategy> {
    let regular = uses
        .iter()
        .all(|u| gathered.is_subset(u.activation_axes) && u.stored.intersection(gathered).is_subset(u.gathered));
    match gathered.len() {
        _ if !regular => None,
        1 if plan.mesh.axes().len() == 1 => Some(Strategy::Fsdp),
        1 => Some(Strategy::XWeightGathered),
        2 => Some(Strategy::XyWeightGathered),
        3 => Some(Strategy::XyzWeightGathered),
        _ => None,
    }
}

/// A weight as one operand of an einsum.
struct WeightUse {
    /// The axes that split it where it is stored.
    stored: AxisSet,
    /// Those of them that no longer split it where it is used.
    gathered: AxisSet,
    /// How many of its dims are split where it is used.
    split_dims: usize,
    /// The axes that split dims of the einsum's other operands which the weight lacks.
    activation_axes: AxisSet,
}

fn weight_uses(plan: &Plan) -> Vec<WeightUse> {
    let mut uses = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        if !matches!(instr.kind, InstrKind::Op(Op::Einsum)) {
            continue;
        }
        for (at, operand) in instr.operands.iter().enumerate() {
            let used = plan.instruction(*operand);
            let Some(weight) = stored_weight(plan, *operand).filter(|_| used.dims.len() >= 2) else { continue };
            let stored = plan.instruction(weight).layout.split_axes();
            let others = instr.operands.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, o)| plan.instruction(*o));
            let activation_axes = others
                .flat_map(|o| o.dims.iter().enumerate().map(move |(i, d)| (d, o.layout.axes_of(i).set())))
                .filter(|(dim, _)| !used.dims.contains(dim))
                .fold(AxisSet::EMPTY, |all, (_, axes)| all.union(axes));
            uses.push(WeightUse {
                stored,
                gathered: stored.difference(used.layout.split_axes()),
                split_dims: (0..used.dims.len()).filter(|d| !used.layout.axes_of(*d).is_empty()).count(),
                activation_axes,
            });
        }
    }
    uses
}

/// The weight behind moves, casts and new names.
fn stored_weight(plan: &Plan, mut id: InstrId) -> Option<InstrId> {
    loop {
        let instr = plan.instruction(id);
        match &instr.kind {
            InstrKind::Parameter(ParameterKind::Weight) => return Some(id),
            InstrKind::Move(_)
            | InstrKind::Op(Op::Cast(_) | Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. }) => {
                id = *instr.operands.first()?;
            }
            InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => return None,
        }
    }
}
