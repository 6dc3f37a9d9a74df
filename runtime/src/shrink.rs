//! [`shrink`]: the same plan with dims small enough to execute.
//!
//! Each dim gets a small multiple of its *unit*, the least common multiple of all numbers of
//! devices over which a layout of the plan splits it, so that every layout stays legal. Dims that a
//! rename makes equal are one variable; splits, merges, concats, slices, appends and masks are
//! relations between variables. A search of at most `MAX_TRIES` steps finds sizes that meet all
//! relations. The verifier then checks the plan with these sizes.

mod sizes;

use shard_ir::verify::verify;
use shard_ir::{DimId, InstrKind, Op, Plan};

use crate::limits::work_needed;
use sizes::{Problem, Style};

/// Multiplications up to which a shrunk plan may be [`Style::Roomy`]; beyond, it is [`Style::Lean`]
/// if that is less work.
const COMFORTABLE_WORK: u128 = 1 << 24;

/// The same plan with small dims, which the mesh axes still divide.
///
/// * A dim of size 1 stays 1. Every other dim shrinks, or stays if no smaller size keeps the plan
///   legal.
/// * Blocks of a split dim keep at least two elements if they had two, unless the work would be
///   large.
/// * Dims of different names get different sizes if that costs little, so that a plan that confuses
///   two dims gives a wrong result.
pub fn shrink(plan: &Plan) -> Plan {
    let candidates =
        [Style::Roomy, Style::Lean].map(|style| resized(plan, &Problem::of(plan).solve(style)));
    let [roomy, lean] = candidates.map(|p| p.filter(|p| verify(p).is_ok()));
    match (roomy, lean) {
        (Some(roomy), Some(lean)) => {
            let (r, l) = (work_needed(&roomy), work_needed(&lean));
            if r > COMFORTABLE_WORK && l < r { lean } else { roomy }
        }
        (Some(plan), None) | (None, Some(plan)) => plan,
        (None, None) => plan.clone(),
    }
}

/// `plan` with the sizes of the dims of `small`, by their names; `None` if `small` lacks a dim of
/// the plan or a slice does not fit.
pub fn resized_as(small: &Plan, plan: &Plan) -> Option<Plan> {
    let size = |name: &str| small.dims.iter().find(|dim| dim.name == name).map(|dim| dim.size);
    let sizes: Vec<u64> = plan.dims.iter().map(|dim| size(&dim.name)).collect::<Option<_>>()?;
    resized(plan, &sizes)
}

/// The plan with these sizes of its dims. A slice that starts at the front of a dim, or ends at its
/// end, still does. `None` if a slice does not fit.
fn resized(plan: &Plan, sizes: &[u64]) -> Option<Plan> {
    let mut out = plan.clone();
    for (dim, size) in out.dims.iter_mut().zip(sizes) {
        let useful = u128::from(dim.useful) * u128::from(*size) / u128::from(dim.size.max(1));
        dim.useful = if dim.useful == dim.size { *size } else { (useful as u64).clamp(1, *size) };
        dim.size = *size;
    }
    for instr in &mut out.instructions {
        match &mut instr.kind {
            InstrKind::Op(op) => resize(op, plan, sizes)?,
            InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Move(_)
            | InstrKind::CollectiveEinsum(_) => {}
        }
    }
    Some(out)
}

/// Changes the numbers in an op of `plan` so that they suit the new sizes; `None` if a slice does
/// not fit.
fn resize(op: &mut Op, plan: &Plan, sizes: &[u64]) -> Option<()> {
    let had = |dim: DimId| plan.dims[dim.index()].size;
    let has = |dim: DimId| sizes[dim.index()];
    match op {
        Op::SliceDim { from: large, to: small, offset }
        | Op::Pad { from: small, to: large, offset } => {
            let last = has(*large).checked_sub(has(*small))?;
            let was_last = had(*large).checked_sub(had(*small))?;
            *offset = if *offset == was_last { last } else { (*offset).min(last) };
        }
        // A window is as large a part of the keys as before.
        Op::Mask { key, window: Some(window), .. } => {
            let part = u128::from(*window) * u128::from(has(*key)) / u128::from(had(*key).max(1));
            *window = (part as u64).clamp(1, *window);
        }
        // A shift by less than the size of its dim stays one.
        Op::Shift { over, by } if *by < had(*over) => {
            *by = (*by).min(has(*over).saturating_sub(1)).max(1);
        }
        Op::Route { over, choices, .. } => *choices = (*choices).min(has(*over)),
        Op::Mask { window: None, .. }
        | Op::Shift { .. }
        | Op::Einsum
        | Op::Map(_)
        | Op::Binary(_)
        | Op::Where
        | Op::Reduce { .. }
        | Op::Cast(_)
        | Op::Softmax { .. }
        | Op::SinkSoftmax { .. }
        | Op::Norm { .. }
        | Op::Rename { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Concat { .. }
        | Op::Append { .. }
        | Op::Rope { .. }
        | Op::Cumsum { .. }
        | Op::Conv { .. }
        | Op::Scan { .. }
        | Op::Argmax { .. }
        | Op::TopK { .. }
        | Op::ArgTopK { .. }
        | Op::Locate { .. }
        | Op::ScatterAdd { .. }
        | Op::Take { .. }
        | Op::Iota { .. }
        | Op::Fetch => {}
    }
    Some(())
}
