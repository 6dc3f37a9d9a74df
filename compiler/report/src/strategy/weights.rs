//! Names for how weights are stored and moved: the way in which most bytes of them are used names
//! the plan.

use shard_ir::{AxisSet, DimId, Plan};

use super::Strategy;
use super::roles::{Roles, WeightUse, stored_weight};

/// What becomes of one weight in one einsum.
struct Use {
    /// Its bytes, in all layers that a model applies.
    bytes: u128,
    /// The axes that split it where it is stored.
    stored: AxisSet,
    /// The axes of `stored` that no longer split it where it is used.
    gathered: AxisSet,
    /// The dims that the gathered axes split.
    gathered_dims: usize,
    /// The axes that split its expert dims where it is used.
    experts: AxisSet,
    /// Whether dims that the einsum sums over, and dims that it keeps, are split where it is used;
    /// experts aside.
    split_sides: [bool; 2],
    /// The axes that split the tokens: dims of the einsum's other operands which the weight lacks.
    tokens: AxisSet,
}

/// The names for weights.
pub(super) fn names(plan: &Plan, roles: &Roles) -> Vec<Strategy> {
    let uses: Vec<Use> = roles.weight_uses.iter().map(|u| in_use(plan, roles, u)).collect();
    let mut names = Vec::new();
    if uses.is_empty() {
        return names;
    }
    let bytes = |holds: &dyn Fn(&Use) -> bool| {
        uses.iter().filter(|u| holds(u)).map(|u| u.bytes).sum::<u128>()
    };
    let gathered = bytes(&|u| !u.gathered.is_empty());
    let stationary = |sides: usize| {
        bytes(&|u| {
            u.gathered.is_empty() && u.split_sides.iter().filter(|split| **split).count() == sides
        })
    };
    let (whole, one, two) = (stationary(0), stationary(1), stationary(2));
    if gathered > whole + one + two {
        names.extend(gathered_names(plan, &uses));
    } else if two > 0 && two >= one {
        names.push(Strategy::TwoDWeightStationary);
    } else if one > 0 {
        names.push(Strategy::OneDWeightStationary);
    }
    let everywhere = uses.iter().fold(plan.mesh.all_axes(), |all, u| all.intersection(u.tokens));
    let on_a_weight = uses.iter().fold(AxisSet::EMPTY, |all, u| all.union(u.stored));
    if !everywhere.difference(on_a_weight).is_empty() {
        names.push(Strategy::DataParallel);
    }
    if uses.iter().any(|u| !u.experts.is_empty()) {
        names.push(Strategy::ExpertParallel);
    }
    names
}

/// The names of a plan that gathers most of its weights; none where a weight is gathered over an
/// axis that does not split the tokens.
fn gathered_names(plan: &Plan, uses: &[Use]) -> Vec<Strategy> {
    let gathered: Vec<&Use> = uses.iter().filter(|u| !u.gathered.is_empty()).collect();
    if gathered.iter().any(|u| !u.gathered.is_subset(u.tokens)) {
        return Vec::new();
    }
    // The axes over which most bytes are gathered; of sets with equally many bytes, the largest.
    let bytes = |axes: AxisSet| {
        gathered.iter().filter(|u| u.gathered == axes).map(|u| u.bytes).sum::<u128>()
    };
    let most = gathered.iter().map(|u| u.gathered).max_by_key(|axes| (bytes(*axes), axes.len()));
    let axes = most.unwrap_or(AxisSet::EMPTY);
    // On a mesh of one axis the names by x, y and z are not used.
    let by_axes = match axes.len() {
        1 if plan.mesh.axes().len() > 1 => Some(Strategy::XWeightGathered),
        2 => Some(Strategy::XyWeightGathered),
        3 => Some(Strategy::XyzWeightGathered),
        _ => None,
    };
    let is_fsdp =
        gathered.iter().all(|u| u.gathered_dims == 1 && u.stored.difference(u.gathered).len() <= 1);
    by_axes.into_iter().chain(is_fsdp.then_some(Strategy::Fsdp)).collect()
}

fn in_use(plan: &Plan, roles: &Roles, WeightUse { einsum, operand, weight }: &WeightUse) -> Use {
    let instr = plan.instruction(*einsum);
    let used = plan.instruction(instr.operands[*operand]);
    let parameter = plan.instruction(*weight);
    let stored = parameter.layout.split_axes();
    let gathered = stored.difference(used.layout.split_axes());
    // Of three operands one is the scales of a weight in blocks, which says nothing of its dims.
    let is_scaled = instr.operands.len() > 2;
    let others: Vec<_> = instr
        .operands
        .iter()
        .enumerate()
        .filter(|(i, id)| i != operand && !(is_scaled && stored_weight(plan, **id).is_some()))
        .map(|(_, id)| plan.instruction(*id))
        .collect();
    let is_expert = |d: &DimId| {
        instr.dims.contains(d) && others.iter().any(|o| o.dims.contains(d)) && !roles.is_heads(*d)
    };
    let mut experts = AxisSet::EMPTY;
    let mut split_sides = [false; 2];
    for (i, dim) in
        used.dims.iter().enumerate().filter(|(i, _)| !used.layout.axes_of(*i).is_empty())
    {
        if is_expert(dim) {
            experts = experts.union(used.layout.axes_of(i).set())
        } else {
            split_sides[usize::from(instr.dims.contains(dim))] = true
        }
    }
    let tokens = others
        .iter()
        .flat_map(|o| o.dims.iter().enumerate().map(move |(i, d)| (d, o.layout.axes_of(i).set())))
        .filter(|(dim, _)| !used.dims.contains(dim))
        .fold(AxisSet::EMPTY, |all, (_, axes)| all.union(axes));
    Use {
        bytes: u128::from(parameter.dtype.bytes(plan.sizes(&parameter.dims).iter().product()))
            .saturating_mul(u128::from(plan.copies_of(*weight))),
        stored,
        gathered,
        gathered_dims: (0..parameter.dims.len())
            .filter(|i| !parameter.layout.axes_of(*i).set().intersection(gathered).is_empty())
            .count(),
        experts,
        split_sides,
        tokens,
    }
}
