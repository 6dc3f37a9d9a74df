//! The messages of errors in layouts, moves and layout rules, with the names of the plan in the
//! place of numbers.

use crate::collective::CollectiveError;
use crate::layout::LayoutError;
use crate::layout_rule::RuleError;
use crate::mesh::{AxisId, Mesh};
use crate::plan::{Instruction, Plan};
use crate::tensor::DimId;

/// What is wrong with a layout of a tensor with these dims.
pub(crate) fn of_layout<S: AsRef<str>>(mesh: &Mesh, dims: &[S], error: &LayoutError) -> String {
    let axis = |a: AxisId| if a.index() < mesh.axes().len() { mesh.name(a) } else { "?" };
    let dim = |d: usize| dims.get(d).map_or("?", AsRef::as_ref);
    match error {
        LayoutError::AxisSplitsTwice { axis: a, first, second } if first == second => {
            format!("mesh axis {} stands twice on dim {}", axis(*a), dim(*first))
        }
        LayoutError::AxisSplitsTwice { axis: a, first, second } => {
            format!("mesh axis {} splits both {} and {}", axis(*a), dim(*first), dim(*second))
        }
        LayoutError::AxisSplitsAndPartial { axis: a, dim: d } => {
            format!("mesh axis {} splits {} and is partial too", axis(*a), dim(*d))
        }
        LayoutError::AxisPartialTwice { axis: a } => {
            format!("mesh axis {} is both partialsum and partialmax", axis(*a))
        }
        LayoutError::NotDivisible { dim: d, size, devices } => {
            format!("dim {} of size {size} does not divide over {devices} devices", dim(*d))
        }
        LayoutError::RankTooLarge(_) => error.to_string(),
    }
}

/// Why a move does not apply.
pub(super) fn of_collective(plan: &Plan, instr: &Instruction, error: &CollectiveError) -> String {
    let name = |a: AxisId| plan.mesh.name(a);
    let dim = |d: usize| instr.dims.get(d).map_or("?", |d| dim_name(plan, *d));
    match *error {
        CollectiveError::NotASuffix { dim: d } => {
            format!("the axes are not the minor-most axes of {}", dim(d))
        }
        CollectiveError::NotPartial { axis } => {
            format!("the operand is not partial over mesh axis {} in this way", name(axis))
        }
        CollectiveError::NotReplicated { axis } => {
            format!("the operand is not replicated over mesh axis {}", name(axis))
        }
        CollectiveError::NotDivisible { dim: d } => {
            format!("dim {} does not divide over its axes", dim(d))
        }
        CollectiveError::NoAxes
        | CollectiveError::NoSuchDim(_)
        | CollectiveError::SameDim
        | CollectiveError::NotAPermutation
        | CollectiveError::NotAnExchange
        | CollectiveError::NotSeveralDims
        | CollectiveError::NotMerged
        | CollectiveError::SumInsideMax => error.to_string(),
    }
}

/// Why an op must not act on its operands.
pub(super) fn of_rule(plan: &Plan, instr: &Instruction, error: &RuleError) -> String {
    let axis = |a: &AxisId| plan.mesh.name(*a);
    let dim = |d: &DimId| dim_name(plan, *d);
    let operand =
        |i: &usize| instr.operands.get(*i).map_or("?".to_string(), |id| format!("%{}", id.0));
    match error {
        RuleError::OperandsDisagree { dim: d, left, right } => {
            format!("{} and {} split {} differently", operand(left), operand(right), dim(d))
        }
        RuleError::AxisSplitsTwoDims { axis: a, first, second } => format!(
            "mesh axis {} splits {} (of {}) and {} (of {}): only the diagonal blocks would be \
                computed",
            axis(a),
            dim(&first.1),
            operand(&first.0),
            dim(&second.1),
            operand(&second.0)
        ),
        RuleError::NotLinear { operand: o, axis: a } => {
            format!("the op is not linear in {}, which is partialsum-{}", operand(o), axis(a))
        }
        RuleError::NotIncreasing { operand: o, axis: a } => {
            format!(
                "the op does not commute with a maximum in {}, which is partialmax-{}",
                operand(o),
                axis(a)
            )
        }
        RuleError::NotMerged { operand: o, axis: a } => format!(
            "{} is partialsoftmax-{}, which a softmax-merge alone reads",
            operand(o),
            axis(a)
        ),
        RuleError::PartialTimesPartial { axis: a } => {
            format!(
                "two operands are partial over mesh axis {}: a product of sums is no sum of \
                    products",
                axis(a)
            )
        }
        RuleError::PartialMeetsSplit { axis: a, partial, split } => {
            format!(
                "{} is partial over mesh axis {}, which splits {}",
                operand(partial),
                axis(a),
                operand(split)
            )
        }
        RuleError::AddedOncePerDevice { operand: o, axis: a } => format!(
            "{} is not partial over mesh axis {}: it would be added {}={} times",
            operand(o),
            axis(a),
            axis(a),
            plan.mesh.size(*a)
        ),
        RuleError::NeedsWholeDim { operand: o, dim: d } => {
            format!("{} must be whole in {}", dim(d), operand(o))
        }
        RuleError::BlocksStraddle { dim: d } => {
            format!("the blocks of {} do not fall on whole parts", dim(d))
        }
        RuleError::OwnDimOfParts { axis: a, dim: d, operand: o } => format!(
            "mesh axis {} splits {}, which the result alone has, and {} is not whole over it",
            axis(a),
            dim(d),
            operand(o)
        ),
        RuleError::Result(error) => of_layout(&plan.mesh, &plan.dim_names(&instr.dims), error),
    }
}

fn dim_name(plan: &Plan, dim: DimId) -> &str {
    plan.dims.get(dim.index()).map_or("?", |d| &d.name)
}
