//! Orders of axes that cost a transfer: whether, where the source writes `E_yz`, another order
//! would be cheaper.

use shard_cost::Hardware;
use shard_ir::{
    Collective, Def, InstrKind, Layout, LayoutPattern, Picoseconds, Plan, Program, ValueId,
};

use crate::lower::{KnownForms, better_than, lower_below};
use crate::relax::Better;
use crate::{Limits, LowerError, LowerOptions, Lowered, Status};

/// What other orders of axes would save.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OrderSavings {
    /// The layouts, of those asked about, each of which would save something alone.
    pub found: Vec<OrderSaving>,
    /// The layouts that were not asked about, if there are any.
    pub unasked: Option<Unasked>,
}

/// Layouts that were not asked about one by one, since that would take much longer than the search
/// for the plan did.
#[derive(Clone, PartialEq, Debug)]
pub struct Unasked {
    /// The first of them: a parameter, a pin, or the value that is returned.
    pub value: ValueId,
    /// Which result it is, where it is one.
    pub output: Option<usize>,
    /// How many they are.
    pub count: usize,
    /// The most that all layouts together, asked about or not, would save in a step.
    pub at_most: Picoseconds,
}

/// A layout whose axes in another order would save time.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderSaving {
    /// The parameter or pin whose layout it is; for a result the value that is returned.
    pub value: ValueId,
    /// Which result it is, where it is one.
    pub output: Option<usize>,
    /// The layout that the compiler takes where the order is left to it.
    pub better: Layout,
    /// The time that it saves in a step.
    pub saved: Picoseconds,
    /// The plan with the better layout.
    pub plan: Plan,
}

/// On a mesh of more axes than this no orders are asked about: the searches would make every
/// command slow.
const MAX_AXES_ASKED: usize = 4;

/// All questions that prices leave open may price and make so many strategies, e-nodes and states
/// together, where each question counts as many as the search for the plan took. One question is
/// always asked.
const WORK: usize = 150_000;

/// Each question may expand this part of the states that a search may expand.
pub(crate) const PART_OF_STATES: usize = 8;

/// How many questions that prices leave open may be asked of a plan, at least one.
pub(crate) fn questions(lowered: &Lowered) -> usize {
    let strategies = lowered.remembered.whole.as_ref().map_or(0, |whole| whole.strategies());
    let work = strategies + lowered.stats.nodes + lowered.stats.expansions;
    (WORK / work.max(1)).max(1)
}

/// For each layout of the source that names several axes on one dim, and whose value the plan
/// moves, what leaving the order of the axes to the compiler would save. None for a plan that is
/// not proven.
pub fn order_savings(
    program: &Program,
    lowered: &Lowered,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<OrderSavings, LowerError> {
    // A faster plan shows nothing about the order of axes unless the plan is known to be the best.
    if program.mesh.axes().len() > MAX_AXES_ASKED || lowered.optimality.status != Status::Proven {
        return Ok(OrderSavings::default());
    }
    let sites = sites(program, lowered);
    if sites.is_empty() {
        return Ok(OrderSavings::default());
    }
    let hardware = &*options.priced_by(hardware);
    let expansions = options.limits.expansions / PART_OF_STATES;
    // A saving that only trials find is not worth the time that trials take.
    let limits = Limits { expansions, trials: false, time_alone: true, ..options.limits.clone() };
    let options = LowerOptions { limits, ..options.clone() };
    let cost = lowered.optimality.cost.0;
    let freed = |sites: &[OrderSite]| {
        let mut freed = program.clone();
        sites.iter().for_each(|site| site.leave_open(&mut freed));
        freed
    };
    // All orders left open at once save at least what each alone does, and mostly that is nothing.
    let all = freed(&sites);
    let nothing = || Ok(OrderSavings::default());
    let remembered = &lowered.remembered;
    let (least, known) = match better_than(program, &all, remembered, cost, hardware, &options)? {
        Better::None => return nothing(),
        Better::Plans { least, known } => (least, known),
        Better::Unknown => {
            let known = KnownForms::of(&lowered.remembered);
            match lower_below(&all, hardware, &options, cost, &known)? {
                Some(all) => (all.optimality.lower_bound.0, KnownForms::of(&all.remembered)),
                None => return nothing(),
            }
        }
    };
    let asked = questions(lowered);
    let unasked = sites.get(asked).map(|site| Unasked {
        value: site.value(program),
        output: site.output(),
        count: sites.len() - asked,
        at_most: Picoseconds(cost.saturating_sub(least)),
    });
    let mut found = Vec::new();
    for site in sites.into_iter().take(asked) {
        let freed = freed(&[site]);
        let other = lower_below(&freed, hardware, &options, cost, &known)?;
        let Some(other) = other else { continue };
        let saved = Picoseconds(cost.saturating_sub(other.optimality.cost.0));
        let better = match site {
            OrderSite::Value(id) => layout_of(&other, &freed, id),
            OrderSite::Output(i) => {
                other.plan.outputs.get(i).map(|o| other.plan.instruction(o.id).layout)
            }
        };
        if let Some(better) = better {
            let (value, output) = (site.value(program), site.output());
            found.push(OrderSaving { value, output, better, saved, plan: other.plan });
        }
    }
    Ok(OrderSavings { found, unasked })
}

/// A place in the source where the order of axes is written.
#[derive(Clone, Copy)]
enum OrderSite {
    /// The type of a parameter, or a pin.
    Value(ValueId),
    /// The type of a result.
    Output(usize),
}

impl OrderSite {
    fn value(self, program: &Program) -> ValueId {
        match self {
            OrderSite::Value(id) => id,
            OrderSite::Output(i) => program.outputs[i].value,
        }
    }

    fn output(self) -> Option<usize> {
        match self {
            OrderSite::Value(_) => None,
            OrderSite::Output(i) => Some(i),
        }
    }

    fn leave_open(self, program: &mut Program) {
        let pattern = match self {
            OrderSite::Output(i) => &mut program.outputs[i].pattern,
            OrderSite::Value(id) => match &mut program.values[id.index()].def {
                Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } => pattern,
                Def::Constant(_) | Def::Op { .. } => return,
            },
        };
        for dim in &mut pattern.dims {
            dim.any_order = true;
        }
    }
}

/// The places in the source that name several axes on one dim of a value that the plan moves.
fn sites(program: &Program, lowered: &Lowered) -> Vec<OrderSite> {
    let ordered = |p: &LayoutPattern| p.dims.iter().any(|d| d.axes.len() > 1 && !d.any_order);
    let values = program.value_ids().filter(|id| match &program.value(*id).def {
        Def::Parameter { pattern, .. } => ordered(pattern) && is_moved(lowered, program, *id),
        Def::Pin { operand, pattern, .. } => {
            ordered(pattern)
                && (is_moved(lowered, program, *id) || is_moved(lowered, program, *operand))
        }
        Def::Constant(_) | Def::Op { .. } => false,
    });
    let outputs = program.outputs.iter().enumerate();
    let outputs = outputs
        .filter(|(_, output)| ordered(&output.pattern) && is_moved(lowered, program, output.value));
    values.map(OrderSite::Value).chain(outputs.map(|(i, _)| OrderSite::Output(i))).collect()
}

/// Whether a plan moves a value of the program, by its name, with traffic that combines no terms:
/// whole blocks are gathered or change places.
fn is_moved(lowered: &Lowered, program: &Program, id: ValueId) -> bool {
    let name = crate::emit::name_of(program, id);
    lowered.plan.instructions.iter().any(|instr| match &instr.kind {
        InstrKind::Move(
            Collective::ReduceScatter { .. }
            | Collective::ReduceScatterDims { .. }
            | Collective::AllReduce { .. }
            | Collective::SoftmaxMerge { .. },
        ) => false,
        InstrKind::Move(c) => c.has_traffic() && instr.name.as_deref() == name,
        InstrKind::Parameter(_)
        | InstrKind::Constant(_)
        | InstrKind::Op(_)
        | InstrKind::CollectiveEinsum(_) => false,
    })
}

/// The layout in which the plan has a parameter or a pinned value.
fn layout_of(lowered: &Lowered, program: &Program, id: ValueId) -> Option<Layout> {
    let value = program.value(id);
    let pattern = value.def.pattern()?;
    let name = crate::emit::name_of(program, id);
    let fits = |i: &&shard_ir::Instruction| {
        i.name.as_deref() == name && i.dims == value.dims && pattern.admits(i.layout)
    };
    lowered.plan.instructions.iter().find(fits).map(|i| i.layout)
}
