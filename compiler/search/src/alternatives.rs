//! The plans that the chosen one was preferred to: for each collective, the best plan without it.

use std::sync::Arc;

use shard_cost::Hardware;
use shard_ir::composite::composite_dim;
use shard_ir::{
    AxisList, AxisSet, Def, DimId, InstrId, InstrKind, Layout, Mesh, Picoseconds, Plan, Told,
    ValueId,
};

use crate::emit::MoveSite;
use crate::lower::{LabelledForm, Lowering};
use crate::memory::needed;
use crate::reason::Reader;
use crate::relax::{Setting, Wanted, Whole, all_plans};
use crate::told::told;
use crate::{Limits, LowerError, LowerOptions, Lowered};

/// The best plan that does without a collective.
#[derive(Clone, Debug)]
pub struct Alternative {
    /// The collective of the chosen plan.
    pub id: InstrId,
    /// How the plan does without the collective.
    pub avoided: Avoided,
    /// The time of the plan, never less than that of the chosen one. Where no plan was searched
    /// for, the least that any such plan takes.
    pub time: Picoseconds,
    /// The plan, where it was searched for.
    pub plan: Option<Plan>,
    /// The moves with traffic of this plan that the chosen plan does not have, in program order.
    pub instead: Vec<InstrId>,
}

/// What is asked about the alternatives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// The plans themselves. All searches together take several times as long as the search for the
    /// best plan.
    Plans,
    /// The least time that they take, which the prices of the search tell at once.
    Bounds,
}

/// The time of the best plan in question, and the plan where it was searched for; `None` where
/// there is no such plan.
type Answer = Option<(Picoseconds, Option<Plan>)>;

/// Up to so many strategies the alternatives are found quickly, so that plans are searched for
/// unless bounds are asked for.
const QUICK: usize = 2000;

/// How a plan does without a collective, which is the question to the search. Collectives with
/// equal values share one question.
#[derive(Clone, PartialEq, Debug)]
pub enum Avoided {
    /// The reader reads the value in the layout in which it is made: `einsum h` without moving `x`.
    Unmoved {
        /// The reader.
        reader: Told,
        /// The value.
        value: Told,
        /// The layout in which the chosen plan makes the value.
        made_in: Layout,
    },
    /// The value is not made partial over these axes, so that nothing is left to combine: `h` never
    /// partial over x.
    Complete {
        /// The value.
        value: Told,
        /// The axes, in the order of the collective.
        axes: AxisList,
    },
    /// No axis splits the dim of a composite: `softmax (`p`)` with S whole.
    Whole {
        /// The composite.
        composite: Told,
        /// Its dim.
        dim: DimId,
    },
    /// The value is made in another layout than this one.
    MadeElsewhere {
        /// The value.
        value: Told,
        /// The layout avoided.
        layout: Layout,
    },
}

/// For each collective of a plan that no `reshard` asks for, the best plan that does without it,
/// where there is one; in program order. Without `detail`, plans where the program is small, and
/// bounds else. None in a strict layer.
pub fn alternatives(
    lowered: &Lowered,
    hardware: &Hardware,
    options: &LowerOptions,
    detail: Option<Detail>,
) -> Result<Vec<Alternative>, LowerError> {
    let hardware = &*options.priced_by(hardware);
    let remembered = &lowered.remembered;
    let (kernels, limits) = (&remembered.kernels, &options.limits);
    let asked: Vec<&MoveSite> = remembered
        .moves
        .iter()
        .filter(|m| m.collective.has_traffic() && !lowered.plan.instruction(m.id).origin.written)
        .collect();
    if asked.is_empty() || options.strict || kernels.program.strict {
        return Ok(Vec::new());
    }
    let whole = match &remembered.whole {
        Some(whole) => Arc::clone(whole),
        None => {
            let setting = Setting::of(&kernels.program, hardware, false, limits);
            all_plans(kernels, setting, Wanted::default())?.1
        }
    };
    let whole = if remembered.labels.is_empty() {
        whole
    } else {
        Arc::new(whole.under(&kernels.program, &remembered.labels))
    };
    let quick = if whole.strategies() <= QUICK { Detail::Plans } else { Detail::Bounds };
    let detail = detail.unwrap_or(quick);
    let asking = Asking { lowered, hardware, limits, whole: &whole, detail };
    // Several collectives may share a question, such as a chain of moves for one reader.
    let mut answers: Vec<(Avoided, Answer)> = Vec::new();
    let mut found = Vec::new();
    for site in asked {
        let Some((value, avoided)) = way_around(lowered, site) else { continue };
        let at = match answers.iter().position(|(question, _)| *question == avoided) {
            Some(at) => at,
            None => {
                answers.push((avoided.clone(), asking.answer(site, value)?));
                answers.len() - 1
            }
        };
        // A plan that does not fit is no alternative, unless plans of any size were asked for.
        let fits = |plan: &Plan| options.any_size || needed(plan) <= hardware.hbm_bytes;
        if let Some((time, plan)) = &answers[at].1
            && plan.as_ref().is_none_or(fits)
        {
            let moves = |plan: &Plan| moves_only_in(plan, &lowered.plan);
            found.push(Alternative {
                id: site.id,
                avoided,
                time: *time,
                instead: plan.as_ref().map(moves).unwrap_or_default(),
                plan: plan.clone(),
            });
        }
    }
    Ok(found)
}

/// What questions about a plan are answered from.
struct Asking<'a> {
    lowered: &'a Lowered,
    hardware: &'a Hardware,
    limits: &'a Limits,
    /// The prices of the whole space, under the labels of the plan.
    whole: &'a Whole,
    detail: Detail,
}

impl Asking<'_> {
    /// The best plan without a move, in which a value has other strategies.
    fn answer(&self, site: &MoveSite, value: ValueId) -> Result<Answer, LowerError> {
        let remembered = &self.lowered.remembered;
        let kernels = &remembered.kernels;
        let without = strategies_without(self.lowered, self.whole, site);
        // The collective may not be done in the loop of an einsum either.
        let is_plain = |out: Layout, read: &[Layout]| {
            !kernels.may_loop(value)
                || !out.softmax_axes().is_empty()
                || kernels.site(value).result_layout(read) == Some(out)
        };
        let left = |out: Layout, read: &[Layout]| without(out, read) && is_plain(out, read);
        let question = self.whole.question(value, &left);
        let cost = self.lowered.optimality.cost.0;
        Ok(match self.detail {
            Detail::Plans => {
                let form = LabelledForm { kernels, labels: Some(&remembered.labels) };
                Lowering::of_question(self.hardware, self.limits, form, &question, cost)?
                    .map(|other| (other.optimality.cost, Some(other.plan)))
            }
            Detail::Bounds => question.least().map(|least| (Picoseconds(least.max(cost)), None)),
        })
    }
}

/// The value whose strategies have to change so that a move is not needed, and how a plan then does
/// without it.
fn way_around(lowered: &Lowered, site: &MoveSite) -> Option<(ValueId, Avoided)> {
    let program = lowered.remembered.kernels.program.as_ref();
    let made_by_op = matches!(program.value(site.value).def, Def::Op { .. });
    let is_op = |v: &ValueId| matches!(program.value(*v).def, Def::Op { .. });
    if site.in_pieces {
        let Def::Op { op, .. } = &program.value(site.value).def else { return None };
        let (composite, dim) = (told(program, site.value), composite_dim(op)?);
        return Some((site.value, Avoided::Whole { composite, dim }));
    }
    let value = told(program, site.value);
    match (site.reader, partial_axes(&program.mesh, site)) {
        (_, Some(_)) if made_by_op => {
            let axes = site.collective.axes(&program.mesh, site.from);
            Some((site.value, Avoided::Complete { value, axes }))
        }
        (Reader::Value(reader), _) if is_op(&reader) => Some((
            reader,
            Avoided::Unmoved { reader: told(program, reader), value, made_in: site.made_in },
        )),
        _ if made_by_op => {
            Some((site.value, Avoided::MadeElsewhere { value, layout: site.made_in }))
        }
        _ => None,
    }
}

/// The axes over which the moved value is partial, where the move combines.
fn partial_axes(mesh: &Mesh, site: &MoveSite) -> Option<AxisSet> {
    let axes = || site.collective.axes(mesh, site.from).set();
    site.collective.row().combines.then(axes)
}

type Keep = Box<dyn Fn(Layout, &[Layout]) -> bool>;

/// Whether a strategy of the value that [`way_around`] gives, as its layout and those that it
/// reads, does without the move.
fn strategies_without(lowered: &Lowered, whole: &Whole, site: &MoveSite) -> Keep {
    let program = lowered.remembered.kernels.program.as_ref();
    let made_in = site.made_in;
    if site.in_pieces {
        let value = program.value(site.value);
        let over = if let Def::Op { op, .. } = &value.def { composite_dim(op) } else { None };
        let at = value.dims.iter().position(|d| Some(*d) == over);
        return Box::new(move |out, _| at.is_some_and(|at| out.axes_of(at).is_empty()));
    }
    let made_by_op = matches!(program.value(site.value).def, Def::Op { .. });
    match (site.reader, partial_axes(&program.mesh, site)) {
        (_, Some(axes)) if made_by_op => {
            Box::new(move |out, _| out.partial_axes().intersection(axes).is_empty())
        }
        (Reader::Value(reader), _) if matches!(program.value(reader).def, Def::Op { .. }) => {
            let near = whole.reached_free(site.value, made_in);
            let places: Vec<usize> = program
                .value(reader)
                .def
                .operands()
                .iter()
                .enumerate()
                .filter(|(_, o)| **o == site.value)
                .map(|(i, _)| i)
                .collect();
            Box::new(move |_, read| places.iter().all(|p| near.binary_search(&read[*p]).is_ok()))
        }
        _ => Box::new(move |out, _| out != made_in),
    }
}

/// The moves with traffic of one plan that another does not have.
fn moves_only_in(plan: &Plan, other: &Plan) -> Vec<InstrId> {
    let key = |plan: &Plan, id: InstrId| {
        let instr = plan.instruction(id);
        let from = instr.operands.first().map(|o| plan.instruction(*o).layout);
        match &instr.kind {
            InstrKind::Move(c) if c.has_traffic() => {
                Some((instr.name.clone(), instr.dims.clone(), from, instr.layout))
            }
            InstrKind::Move(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_) => None,
        }
    };
    let known: Vec<_> = other.ids().filter_map(|id| key(other, id)).collect();
    plan.ids().filter(|id| key(plan, *id).is_some_and(|k| !known.contains(&k))).collect()
}
