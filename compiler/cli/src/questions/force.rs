//! Programs whose every plan has what was asked for: each a way of having it, by demands on values.

use std::sync::Arc;

use shard_ir::{
    AxisList, AxisSet, Def, DimId, DimPattern, InstrKind, Layout, LayoutPattern, MeshShape, Op, ParameterKind, Plan,
    Program, ValueId,
};
use shard_report::strategy::{Strategy, strategy};
use shard_rewrite::LowerOptions;
use shard_rewrite::demand::{Forced, annotated, with_demand};

use super::request::Request;

/// So many ways are searched for one request.
pub(crate) const MOST_WAYS: usize = 96;

/// A way of having what was asked for: a program with more demands, or one whose ops may be done in some ways only.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) program: Program,
    forced: Option<Forced>,
}

impl Way {
    /// How the way is lowered.
    pub(crate) fn options(&self, options: &LowerOptions) -> LowerOptions {
        LowerOptions { forced: self.forced.clone(), ..options.clone() }
    }
}

fn demanded(program: Program) -> Way {
    Way { program, forced: None }
}

/// The ways of having what was asked for, at most [`MOST_WAYS`], and whether there are more.
pub(crate) fn ways(request: &Request, program: &Program) -> (Vec<Way>, bool) {
    let mut all = match request {
        Request::Layout { value, pattern, .. } => vec![demanded(annotated(program, *value, pattern))],
        Request::Collective { op, value } => {
            let values: Vec<ValueId> = match value {
                Some(value) => vec![behind_pins(program, *value)],
                None => program.value_ids().filter(|v| is_made(program, *v)).collect(),
            };
            values.into_iter().flat_map(|v| collective_ways(program, op, v)).map(demanded).collect()
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
                InstrKind::Parameter(_)
                | InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::CollectiveEinsum(_) => false,
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
#[derive(Clone, Debug)]
struct WeightUse {
    einsum: ValueId,
    /// Which operand.
    place: usize,
    /// The axes that split it where it is stored, as far as its type says.
    stored: AxisSet,
    /// For each operand, its dims.
    dims: Vec<Vec<DimId>>,
    /// The dims of the result.
    result: Vec<DimId>,
}

/// Every use of a weight in an einsum; `None` where an einsum has more than two operands, whose order is not settled yet.
fn weight_uses(program: &Program) -> Option<Vec<WeightUse>> {
    let mut found = Vec::new();
    for id in program.value_ids() {
        let Def::Op { op: Op::Einsum, operands } = &program.value(id).def else { continue };
        if operands.len() > 2 {
            return None;
        }
        for (place, operand) in operands.iter().enumerate() {
            let Some(weight) = stored_weight(program, *operand) else { continue };
            let Def::Parameter { pattern, .. } = &program.value(weight).def else { continue };
            if program.value(*operand).dims.len() < 2 {
                continue;
            }
            found.push(WeightUse {
                einsum: id,
                place,
                stored: pattern.dims.iter().fold(AxisSet::EMPTY, |s, d| s.union(d.axes.set())),
                dims: operands.iter().map(|o| program.value(*o).dims.clone()).collect(),
                result: program.value(id).dims.clone(),
            });
        }
    }
    Some(found)
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

impl WeightUse {
    /// The weight is whole over some axes, split over all others that it is stored over, and each of these axes splits a dim
    /// of the other operand that the weight lacks.
    fn is_gathered(&self, axes: AxisSet, read: &[Layout]) -> bool {
        let weight = read[self.place];
        let tokens = self.dims.iter().enumerate().filter(|(at, _)| *at != self.place).flat_map(|(at, dims)| {
            let lacked = dims.iter().enumerate().filter(|(_, d)| !self.dims[self.place].contains(d));
            lacked.map(move |(i, _)| read[at].axes_of(i).set())
        });
        let tokens = tokens.fold(AxisSet::EMPTY, AxisSet::union);
        weight.split_axes().union(weight.partial_axes()).intersection(axes).is_empty()
            && self.stored.difference(axes).is_subset(weight.split_axes())
            && axes.is_subset(tokens)
    }

    /// The weight is split over every axis that it is stored over, on one side of the product or on both.
    fn is_stationary(&self, sides: usize, read: &[Layout]) -> bool {
        let weight = read[self.place];
        let split = |summed: bool| {
            let dims = self.dims[self.place].iter().enumerate();
            dims.filter(|(_, d)| self.result.contains(d) != summed).any(|(i, _)| !weight.axes_of(i).is_empty())
        };
        let both = usize::from(split(true)) + usize::from(split(false));
        self.stored.is_subset(weight.split_axes()) && both == sides
    }
}

/// Whether a use of a weight may read its operands in these layouts.
type AllowedUse = Box<dyn Fn(&WeightUse, &[Layout]) -> bool + Send + Sync>;

fn strategy_ways(program: &Program, wanted: Strategy) -> Vec<Way> {
    let Some(uses) = weight_uses(program).filter(|uses| !uses.is_empty()) else { return Vec::new() };
    let axes: Vec<AxisSet> = program.mesh.all_axes().nonempty_subsets().collect();
    let way = |allowed: AllowedUse| {
        let uses = uses.clone();
        let forced = move |value: ValueId, _: Layout, read: &[Layout]| {
            uses.iter().filter(|u| u.einsum == value).all(|u| allowed(u, read))
        };
        Way { program: program.clone(), forced: Some(Forced(Arc::new(forced))) }
    };
    let gathered = |least: usize, most: usize| -> Vec<Way> {
        let sets = axes.iter().copied().filter(|s| (least..=most).contains(&s.len()));
        sets.map(|set| way(Box::new(move |u, read| u.is_gathered(set, read)))).collect()
    };
    match wanted {
        Strategy::XWeightGathered => gathered(1, 1),
        Strategy::XyWeightGathered => gathered(2, 2),
        Strategy::XyzWeightGathered => gathered(3, 3),
        Strategy::Fsdp => gathered(1, 3),
        Strategy::OneDWeightStationary => vec![way(Box::new(|u, read| u.is_stationary(1, read)))],
        Strategy::TwoDWeightStationary => vec![way(Box::new(|u, read| u.is_stationary(2, read)))],
        Strategy::DataParallel
        | Strategy::HeadShardedAttention
        | Strategy::BatchShardedAttention
        | Strategy::SequenceShardedAttention
        | Strategy::ExpertParallel
        | Strategy::Unnamed => Vec::new(),
    }
}
