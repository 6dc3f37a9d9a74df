//! Ways of having what was asked for: programs whose plans all have it, by demands on values or by
//! restrictions on ops.

use shard_cost::Objective;
use shard_ir::catalogue::Move;
use shard_ir::{
    AxisId, AxisList, AxisSet, Def, DimPattern, InstrKind, Layout, LayoutPattern, MeshShape,
    Picoseconds, Plan, Program, ValueId, never,
};
use shard_report::strategy::strategy as strategy_of;
use shard_search::Forced;
use shard_search::LowerOptions;
use shard_search::demand::{annotated, with_demand};

use super::request::Request;
use super::strategy;

/// At most so many ways are searched for one request.
pub(crate) const MOST_WAYS: usize = 96;

/// At most so many layouts of a value are stated one by one, those with the fewest axes.
const MOST_LAYOUTS: usize = 16;

/// No layout is stated for a value that may have more layouts than these.
const MOST_LOOKED_AT: usize = 4096;

/// A way of having what was asked for: a program with more demands, or one whose ops may be done in
/// some ways only.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) program: Program,
    /// The value that it is about, where it is about one.
    pub(crate) value: Option<ValueId>,
    pub(crate) forced: Option<Forced>,
}

impl Way {
    /// How the way is lowered.
    pub(crate) fn options(&self, options: &LowerOptions) -> LowerOptions {
        LowerOptions { forced: self.forced.clone(), ..options.clone() }
    }

    /// The same, where only a plan that takes less than `time` is wanted. For ways without
    /// restrictions on ops, which are programs of their own, the time is ignored.
    pub(crate) fn options_below(&self, options: &LowerOptions, time: Picoseconds) -> LowerOptions {
        let forced = self.forced.clone().map(|forced| match options.objective {
            Objective::Serial => forced.faster_than(time),
            Objective::Overlap | Objective::Comm | Objective::Memory => forced,
        });
        LowerOptions { forced, ..options.clone() }
    }
}

fn demanded(program: Program) -> Way {
    Way { program, value: None, forced: None }
}

/// The ways of having what was asked for, at most [`MOST_WAYS`], and whether there are more. The
/// chosen plan tells what the dims of attention stand for. Where `used` is set, all readers use the
/// result of a collective as it is; else a plan may undo the collective again.
pub(crate) fn ways(
    request: &Request,
    program: &Program,
    chosen: &Plan,
    used: bool,
) -> (Vec<Way>, bool) {
    let mut all = match request {
        Request::Layout { value, pattern, .. } => {
            vec![demanded(annotated(program, *value, pattern))]
        }
        Request::Collective { of, value } => {
            let values: Vec<ValueId> = match value {
                Some(value) => vec![program.unpinned(*value)],
                None => program.value_ids().filter(|v| is_made(program, *v)).collect(),
            };
            in_turn(values.into_iter().map(|v| collective_ways(program, *of, v, used)).collect())
        }
        Request::Strategy(wanted) => strategy::ways(program, chosen, *wanted),
    };
    let more = all.len() > MOST_WAYS;
    all.truncate(MOST_WAYS);
    (all, more)
}

/// The first way of each value, then the second of each: where there are too many, some of each
/// value are tried.
fn in_turn(all: Vec<Vec<Way>>) -> Vec<Way> {
    let mut ways: Vec<(usize, Way)> =
        all.into_iter().flat_map(|of_value| of_value.into_iter().enumerate()).collect();
    ways.sort_by_key(|(turn, _)| *turn);
    ways.into_iter().map(|(_, way)| way).collect()
}

/// Whether a plan has what was asked for.
pub(crate) fn has(request: &Request, program: &Program, plan: &Plan) -> bool {
    match request {
        Request::Layout { value, pattern, .. } => {
            let v = program.value(*value);
            let fits = |i: &shard_ir::Instruction| {
                i.name == v.name
                    && i.dims == v.dims
                    && i.origin.in_layers == v.in_layers
                    && pattern.admits(i.layout)
            };
            plan.instructions.iter().any(fits)
        }
        Request::Collective { of, value } => {
            let name = value.and_then(|v| program.value(v).name.clone());
            let fits = |i: &shard_ir::Instruction| {
                let is_it = matches!(&i.kind, InstrKind::Move(c) if c.name() == of.row().name);
                is_it && (name.is_none() || i.name == name)
            };
            plan.instructions.iter().any(fits)
        }
        Request::Strategy(wanted) => strategy_of(plan).contains(wanted),
    }
}

fn is_made(program: &Program, value: ValueId) -> bool {
    !program.value(value).dims.is_empty()
        && !matches!(program.value(value).def, Def::Pin { .. } | Def::Constant(_))
}

/// The ways of having a collective of a value, for each axis and each dim, or pair of dims, that it
/// can be along. A first demand has the value as it is before the move, a second as it is after;
/// both leave all other axes open.
fn collective_ways(program: &Program, of: Move, value: ValueId, used: bool) -> Vec<Way> {
    let v = program.value(value);
    let (rank, sizes) = (v.dims.len(), program.sizes(&v.dims));
    let stored = match &v.def {
        Def::Parameter { pattern, .. } => {
            pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes })
        }
        Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => None,
    };
    let on = |dim: usize, axis| {
        let mut pattern = LayoutPattern::any(rank, true);
        pattern.dims[dim] = DimPattern { axes: AxisList::EMPTY.then(axis), any_order: false };
        pattern
    };
    let partial = |axis| LayoutPattern {
        partial_sum: AxisSet::EMPTY.with(axis),
        ..LayoutPattern::any(rank, true)
    };
    let whole =
        |axis| LayoutPattern { whole: AxisSet::EMPTY.with(axis), ..LayoutPattern::any(rank, true) };
    let (mut found, mut begins) = (Vec::new(), Vec::new());
    for axis in program.mesh.axis_ids() {
        let divides = |d: &usize| sizes[*d].is_multiple_of(program.mesh.size(axis));
        let dims: Vec<usize> = (0..rank).filter(divides).collect();
        let pairs: Vec<(LayoutPattern, LayoutPattern)> = match of {
            Move::AllGather | Move::AllGatherDims => {
                dims.iter().map(|d| (on(*d, axis), whole(axis))).collect()
            }
            Move::ReduceScatter | Move::ReduceScatterDims => {
                dims.iter().map(|d| (partial(axis), on(*d, axis))).collect()
            }
            Move::AllReduce => vec![(partial(axis), whole(axis))],
            Move::Permute => permuted(program, axis, &sizes),
            Move::AllToAll | Move::Exchange | Move::SoftmaxMerge => dims
                .iter()
                .flat_map(|a| dims.iter().filter(move |b| a != *b).map(move |b| (*a, *b)))
                .map(|(a, b)| (on(a, axis), on(b, axis)))
                .collect(),
            Move::Slice | Move::ToPartial => {
                never!("a question about a move that sends nothing", Vec::new())
            }
        };
        for (before, after) in pairs {
            // A parameter with a declared layout is in that layout before the move, so that the
            // first demand is left out.
            let forced = used.then(|| {
                read_as(ValueId(value.0 + if stored.is_some() { 1 } else { 2 }), after.clone())
            });
            if used && stored.is_none() && !begins.contains(&before) {
                begins.push(before.clone());
            }
            let patterns = match stored {
                Some(layout) if !before.admits(layout) => continue,
                Some(_) => vec![after],
                None => vec![before, after],
            };
            let program = with_demand(program, value, &patterns, None);
            let forced = forced.map(|read_as| read_as(&program));
            found.push(Way { forced, value: Some(value), program });
        }
    }
    found.extend(begun(program, value, begins));
    found
}

/// Ways by an annotation of the value: it is laid out as it may be before the move, and readers
/// read it in any layout.
fn begun(program: &Program, value: ValueId, begins: Vec<LayoutPattern>) -> Vec<Way> {
    let v = program.value(value);
    let sizes = program.sizes(&v.dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let may_be = |layout: &Layout| match &v.def {
        Def::Parameter { pattern, .. } => pattern.admits(*layout),
        Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => true,
    };
    // With many axes there are too many layouts, and only the patterns are tried.
    let all = shape.layouts_within(AxisSet::EMPTY, AxisSet::EMPTY, MOST_LOOKED_AT);
    let mut layouts: Vec<Layout> = all.unwrap_or_default();
    layouts.retain(|layout| may_be(layout) && begins.iter().any(|begin| begin.admits(*layout)));
    layouts.sort_by_key(|layout| layout.split_axes().len());
    layouts.truncate(MOST_LAYOUTS);
    let rank = v.dims.len();
    let exact = layouts.into_iter().map(|layout| LayoutPattern::exactly(layout, rank));
    let stated = begins.into_iter().chain(exact).map(|pattern| Way {
        program: annotated(program, value, &pattern),
        value: Some(value),
        forced: None,
    });
    stated.collect()
}

/// The restriction that every op that reads a value directly reads it in a layout that a pattern
/// admits.
fn read_as(value: ValueId, pattern: LayoutPattern) -> impl FnOnce(&Program) -> Forced {
    move |program| {
        let places = |id: ValueId| -> Vec<usize> {
            let Def::Op { operands, .. } = &program.value(id).def else { return Vec::new() };
            operands.iter().enumerate().filter(|(_, o)| **o == value).map(|(at, _)| at).collect()
        };
        let readers: Vec<(ValueId, Vec<usize>)> =
            program.value_ids().map(|id| (id, places(id))).collect();
        let readers: Vec<_> =
            readers.into_iter().filter(|(_, places)| !places.is_empty()).collect();
        Forced::ops(move |id, _, read| {
            let own = readers.iter().filter(|(reader, _)| *reader == id);
            own.flat_map(|(_, places)| places)
                .all(|at| read.get(*at).is_none_or(|layout| pattern.admits(*layout)))
        })
    }
}

/// The layouts before and after a permute that takes one axis off a dim: another axis of the same
/// size takes its place, or two axes change places, on one dim or between two.
fn permuted(program: &Program, axis: AxisId, sizes: &[u64]) -> Vec<(LayoutPattern, LayoutPattern)> {
    let mesh = &program.mesh;
    let split = |places: &[(usize, AxisId)]| {
        let mut pattern = LayoutPattern::any(sizes.len(), true);
        for (dim, axis) in places {
            pattern.dims[*dim].axes = pattern.dims[*dim].axes.then(*axis);
        }
        pattern
    };
    let divides = |dim: usize, by: u64| sizes[dim].is_multiple_of(by);
    let mut found = Vec::new();
    for other in mesh.axis_ids().filter(|other| *other != axis) {
        let (one, two) = (mesh.size(axis), mesh.size(other));
        for dim in 0..sizes.len() {
            if one == two && divides(dim, one) {
                let elsewhere = |a| LayoutPattern {
                    whole: AxisSet::EMPTY.with(a),
                    ..LayoutPattern::any(sizes.len(), true)
                };
                let (mut before, mut after) = (elsewhere(other), elsewhere(axis));
                before.dims[dim].axes = AxisList::EMPTY.then(axis);
                after.dims[dim].axes = AxisList::EMPTY.then(other);
                found.push((before, after));
            }
            if divides(dim, one * two) {
                found.push((
                    split(&[(dim, axis), (dim, other)]),
                    split(&[(dim, other), (dim, axis)]),
                ));
            }
            for second in dim + 1..sizes.len() {
                if one == two && divides(dim, one) && divides(second, one) {
                    found.push((
                        split(&[(dim, axis), (second, other)]),
                        split(&[(dim, other), (second, axis)]),
                    ));
                }
            }
        }
    }
    found
}
