//! Programs whose every plan has what was asked for: each a way of having it, by demands on values.

use std::collections::BTreeSet;

use shard_ir::{
    AxisList, AxisSet, Def, DimId, DimPattern, InstrKind, LayoutPattern, MeshShape, Op, ParameterKind, Plan, Program,
    ValueId,
};
use shard_report::strategy::{Strategy, strategy};
use shard_rewrite::demand::{annotated, with_demand};

use super::request::Request;

/// So many ways are searched for one request.
pub(crate) const MOST_WAYS: usize = 96;

/// The ways of having what was asked for, at most [`MOST_WAYS`], and whether there are more.
pub(crate) fn ways(request: &Request, program: &Program) -> (Vec<Program>, bool) {
    let mut all = match request {
        Request::Layout { value, pattern, .. } => vec![annotated(program, *value, pattern)],
        Request::Collective { op, value } => {
            let values: Vec<ValueId> = match value {
                Some(value) => vec![behind_pins(program, *value)],
                None => program.value_ids().filter(|v| is_made(program, *v)).collect(),
            };
            values.into_iter().flat_map(|v| collective_ways(program, op, v)).collect()
        }
        Request::Strategy(wanted) => strategy_ways(program, *wanted),
    };
    let more = all.len() > MOST_WAYS;
    all.truncate(MOST_WAYS);
    (all, more)
}

/// Whether a plan has what was asked for.
pub(crate) fn has(request: &Request, program: &Program, plan: &Plan) -> bool {
    match request {
        Request::Layout { value, pattern, .. } => {
            let v = program.value(*value);
            let fits = |i: &shard_ir::Instruction| {
                i.name == v.name && i.dims == v.dims && i.origin.in_layers == v.in_layers && pattern.admits(i.layout)
            };
            plan.instructions.iter().any(fits)
        }
        Request::Collective { op, value } => {
            let name = value.and_then(|v| program.value(v).name.clone());
            let fits = |i: &shard_ir::Instruction| match &i.kind {
                InstrKind::Move(c) => c.name() == *op && (name.is_none() || i.name == name),
                InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => false,
            };
            plan.instructions.iter().any(fits)
        }
        Request::Strategy(wanted) => strategy(plan).contains(wanted),
    }
}

fn is_made(program: &Program, value: ValueId) -> bool {
    !program.value(value).dims.is_empty() && !matches!(program.value(value).def, Def::Pin { .. } | Def::Constant(_))
}

fn behind_pins(program: &Program, mut value: ValueId) -> ValueId {
    while let Def::Pin { operand, .. } = &program.value(value).def {
        value = *operand;
    }
    value
}

/// A collective of a value, for each axis and each dim (or pair of dims) that it can be along: a first demand has the value
/// as it is before, a second as it is after, both free in all other axes.
fn collective_ways(program: &Program, op: &str, value: ValueId) -> Vec<Program> {
    let v = program.value(value);
    let (rank, sizes) = (v.dims.len(), program.sizes(&v.dims));
    let stored = match &v.def {
        Def::Parameter { pattern, .. } => pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes }),
        Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => None,
    };
    let on = |dim: usize, axis| {
        let mut pattern = LayoutPattern::any(rank, true);
        pattern.dims[dim] = DimPattern { axes: AxisList::EMPTY.then(axis), any_order: false };
        pattern
    };
    let partial = |axis| LayoutPattern { partial_sum: AxisSet::EMPTY.with(axis), ..LayoutPattern::any(rank, true) };
    let whole = |axis| LayoutPattern { whole: AxisSet::EMPTY.with(axis), ..LayoutPattern::any(rank, true) };
    let mut found = Vec::new();
    for axis in program.mesh.axis_ids() {
        let divides = |d: &usize| sizes[*d].is_multiple_of(program.mesh.size(axis));
        let dims: Vec<usize> = (0..rank).filter(divides).collect();
        let pairs: Vec<(LayoutPattern, LayoutPattern)> = match op {
            "all-gather" => dims.iter().map(|d| (on(*d, axis), whole(axis))).collect(),
            "reduce-scatter" => dims.iter().map(|d| (partial(axis), on(*d, axis))).collect(),
            "all-reduce" => vec![(partial(axis), whole(axis))],
            _ => dims
                .iter()
                .flat_map(|a| dims.iter().filter(move |b| a != *b).map(move |b| (*a, *b)))
                .map(|(a, b)| (on(a, axis), on(b, axis)))
                .collect(),
        };
        for (before, after) in pairs {
            // A parameter whose stored layout is declared is before the move as it is stored.
            let patterns = match stored {
                Some(layout) if !before.admits(layout) => continue,
                Some(_) => vec![after],
                None => vec![before, after],
            };
            found.push(with_demand(program, value, &patterns, None));
        }
    }
    found
}

/// One operand of an einsum that is a weight.
struct WeightUse {
    einsum: ValueId,
    operand: ValueId,
    /// The other operands.
    others: Vec<ValueId>,
    stored: Option<LayoutPattern>,
}

fn weight_uses(program: &Program) -> Vec<WeightUse> {
    let mut found = Vec::new();
    for id in program.value_ids() {
        let Def::Op { op: Op::Einsum, operands } = &program.value(id).def else { continue };
        for operand in operands {
            let Some(weight) = stored_weight(program, *operand) else { continue };
            let Def::Parameter { pattern, .. } = &program.value(weight).def else { continue };
            if program.value(*operand).dims.len() < 2 {
                continue;
            }
            let others = operands.iter().copied().filter(|o| o != operand).collect();
            let stored = (weight == *operand).then(|| pattern.clone());
            found.push(WeightUse { einsum: id, operand: *operand, others, stored });
        }
    }
    found
}

/// The weight behind pins, casts and new names.
fn stored_weight(program: &Program, mut id: ValueId) -> Option<ValueId> {
    loop {
        match &program.value(id).def {
            Def::Parameter { kind: ParameterKind::Weight, .. } => return Some(id),
            Def::Pin { operand, .. } => id = *operand,
            Def::Op { op: Op::Cast(_) | Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. }, operands } => {
                id = *operands.first()?;
            }
            Def::Parameter { .. } | Def::Constant(_) | Def::Op { .. } => return None,
        }
    }
}

fn strategy_ways(program: &Program, wanted: Strategy) -> Vec<Program> {
    let uses = weight_uses(program);
    let axes: Vec<AxisSet> = program.mesh.all_axes().nonempty_subsets().collect();
    let gathered = |count: usize| -> Vec<Program> {
        axes.iter().filter(|s| s.len() == count).flat_map(|s| gathering_ways(program, &uses, *s)).collect()
    };
    match wanted {
        Strategy::XWeightGathered => gathered(1),
        Strategy::XyWeightGathered => gathered(2),
        Strategy::XyzWeightGathered => gathered(3),
        Strategy::Fsdp => (1..=3).flat_map(gathered).collect(),
        Strategy::OneDWeightStationary | Strategy::TwoDWeightStationary => stationary_ways(program, &uses),
        Strategy::DataParallel
        | Strategy::HeadShardedAttention
        | Strategy::BatchShardedAttention
        | Strategy::SequenceShardedAttention
        | Strategy::ExpertParallel
        | Strategy::Unnamed => Vec::new(),
    }
}

/// Every weight whole over some axes where it is used, and what it is multiplied with split over them along dims that the
/// weights lack: for each of these dims, and for each way of giving the axes dims.
fn gathering_ways(program: &Program, uses: &[WeightUse], axes: AxisSet) -> Vec<Program> {
    let of_weights: BTreeSet<DimId> = uses.iter().flat_map(|u| &program.value(u.operand).dims).copied().collect();
    let mut tokens: Vec<DimId> = Vec::new();
    for dim in uses.iter().flat_map(|u| &u.others).flat_map(|o| &program.value(*o).dims) {
        if !of_weights.contains(dim) && !tokens.contains(dim) {
            tokens.push(*dim);
        }
    }
    let mut choices: Vec<Vec<DimId>> = vec![Vec::new()];
    for _ in axes.iter() {
        choices = choices.iter().flat_map(|c| tokens.iter().map(|t| c.iter().copied().chain([*t]).collect())).collect();
    }
    choices.iter().filter_map(|choice| gathering_way(program, uses, axes, choice)).collect()
}

fn gathering_way(program: &Program, uses: &[WeightUse], axes: AxisSet, dims: &[DimId]) -> Option<Program> {
    // From the back, so that the values in front keep their ids.
    let mut demands: Vec<(ValueId, LayoutPattern, ValueId)> = Vec::new();
    for used in uses {
        let rank = program.value(used.operand).dims.len();
        let mut weight = LayoutPattern { whole: axes, ..LayoutPattern::any(rank, true) };
        if let Some(stored) = used.stored.as_ref().filter(|p| !p.open) {
            // The axes that are not gathered stay where they are stored.
            for (dim, known) in weight.dims.iter_mut().zip(&stored.dims) {
                let kept = known.axes.iter().filter(|a| !axes.contains(*a)).collect();
                *dim = DimPattern { axes: kept, any_order: true };
            }
            weight.open = false;
        }
        demands.push((used.operand, weight, used.einsum));
        for other in &used.others {
            let value = program.value(*other);
            let mut pattern = LayoutPattern::any(value.dims.len(), true);
            for (axis, dim) in axes.iter().zip(dims) {
                let at = value.dims.iter().position(|d| d == dim)?;
                let known = pattern.dims[at].axes;
                pattern.dims[at] = DimPattern { axes: known.then(axis), any_order: true };
            }
            demands.push((*other, pattern, used.einsum));
        }
    }
    Some(apply(program, demands))
}

/// No weight gathered: each used with all the axes of its stored layout, all on one dim or where they are stored.
fn stationary_ways(program: &Program, uses: &[WeightUse]) -> Vec<Program> {
    let dims: BTreeSet<DimId> = uses.iter().flat_map(|u| &program.value(u.operand).dims).copied().collect();
    let choices = std::iter::once(None).chain(dims.into_iter().map(Some));
    let way = |on: Option<DimId>| {
        let mut demands = Vec::new();
        for used in uses {
            let Some(stored) = used.stored.as_ref().filter(|p| !p.open) else { continue };
            let mut pattern = stored.clone();
            let at = on.and_then(|d| program.value(used.operand).dims.iter().position(|v| *v == d));
            if let Some(at) = at {
                let all = stored.dims.iter().flat_map(|d| d.axes.iter()).collect();
                pattern.dims = vec![DimPattern::default(); stored.dims.len()];
                pattern.dims[at] = DimPattern { axes: all, any_order: true };
            }
            pattern.label = None;
            demands.push((used.operand, pattern, used.einsum));
        }
        apply(program, demands)
    };
    choices.map(way).collect()
}

/// Puts demands on what einsums read, the last value first, so that those in front keep their ids.
fn apply(program: &Program, mut demands: Vec<(ValueId, LayoutPattern, ValueId)>) -> Program {
    demands.sort_by_key(|(value, _, reader)| std::cmp::Reverse((*value, *reader)));
    let mut out = program.clone();
    for (at, (value, pattern, reader)) in demands.iter().enumerate() {
        // Readers stand behind every value that has a demand already, one place further for each of those before them.
        let moved = demands[..at].iter().filter(|(v, _, _)| v < reader).count() as u32;
        out = with_demand(&out, *value, std::slice::from_ref(pattern), Some(ValueId(reader.0 + moved)));
    }
    out
}
