//! The critical path over all plans: how soon the results can be there if everything else that a
//! plan does goes on beside, on as many chips, links and bytes as it likes.
//!
//! Of each value in each layout it is known how soon it can be there: an op when all that it reads
//! is, and its time later; a move when what it moves is. A plan chooses one strategy for each op
//! and one way for each move, and the soonest of them all is no later than that of any plan. So
//! sharing needs no care here: a value that many read is waited for by each of them alike.

use rustc_hash::FxHashMap;
use shard_cost::Hardware;
use shard_ir::composite::composite_dim;
use shard_ir::{Def, FoldId, Picoseconds, Program, ValueId};

use crate::in_pieces::InPieces;
use crate::kernel::Kernels;
use crate::logical::{Form, Saturated};
use crate::lower::within_limits;
use crate::relax::factors::{Extent, Factors, Shared};
use crate::relax::graph::{FAR, Node, Queue};
use crate::space::maxima;
use crate::{LowerError, LowerOptions};

/// How soon the results can be there in any plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CriticalPath {
    /// The results of one layer, or of a model.
    pub layer: Picoseconds,
    /// What each layer of a stack takes at least from what the one before gives it to what it gives
    /// the next; 0 where its first result is not made from its first parameter.
    pub period: Picoseconds,
}

/// The critical path over all plans of all forms of a program. Nothing is known, and the path is 0,
/// where forms are too many to look at.
pub fn critical_path(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<CriticalPath, LowerError> {
    let strict = options.strict || program.strict;
    let saturated = Saturated::new(program, strict, &options.limits);
    let forms = saturated.forms(&options.limits);
    if forms.cut.is_some() {
        return Ok(CriticalPath::default());
    }
    let mut least: Option<CriticalPath> = None;
    let mut shared = Shared::new(1);
    for form in forms.all {
        options.limits.stop.check()?;
        let Some(of_form) = of_form(form, hardware, options, &mut shared)? else { continue };
        least = Some(least.map_or(of_form, |least| CriticalPath {
            layer: least.layer.min(of_form.layer),
            period: least.period.min(of_form.period),
        }));
    }
    Ok(least.unwrap_or_default())
}

/// The critical path over all plans of one form; `None` where it has no plan.
fn of_form(
    form: Form,
    hardware: &Hardware,
    options: &LowerOptions,
    shared: &mut Shared,
) -> Result<Option<CriticalPath>, LowerError> {
    let strict = options.strict || form.program.strict;
    let kernels = Kernels::of_form(form, strict, options.fuse && !strict);
    let program = kernels.program.as_ref();
    within_limits(program, &options.limits)?;
    let extent = Extent { of: kernels.live.clone(), shared };
    let limits = (strict, &options.limits);
    let problem = Factors::of_part(&kernels, hardware, maxima(program), limits, extent)?;
    let given = program
        .value_ids()
        .find(|id| matches!(program.value(*id).def, Def::Parameter { .. }) && program.repeat > 1);
    let mut soonest =
        Soonest { kernels: &kernels, hardware, problem: &problem, given, queue: Queue::default() };
    Ok(soonest.of_results())
}

/// For each node of a value how soon it can be there, in picoseconds: [`FAR`] where it cannot.
type Times = Vec<i64>;

/// Of what does not wait for something: a time before all others, also with moves behind it.
const NEVER: i64 = -4 * FAR;

/// What is known of a value: from the beginning, and from when something else is there.
#[derive(Clone, Default)]
struct Known {
    /// Since the layer began.
    since_start: Times,
    /// Since what the application of a folded block takes was there, or what a layer of a stack
    /// takes; [`NEVER`] where it does not wait for that.
    since_entry: Times,
}

struct Soonest<'a> {
    kernels: &'a Kernels,
    hardware: &'a Hardware,
    problem: &'a Factors,
    /// What a layer of a stack takes from the one before.
    given: Option<ValueId>,
    queue: Queue,
}

impl Soonest<'_> {
    fn program(&self) -> &Program {
        self.kernels.program.as_ref()
    }

    fn of_results(&mut self) -> Option<CriticalPath> {
        let mut known: Vec<Known> = vec![Known::default(); self.program().values.len()];
        for id in self.problem.live.clone() {
            known[id.index()] = self.of_value(id, &known);
        }
        let mut found = CriticalPath::default();
        for (at, (value, allowed)) in self.problem.outputs.iter().enumerate() {
            let of = &known[value.index()];
            let least = |times: &Times| allowed.iter().map(|n| times[*n as usize]).min();
            let layer = least(&of.since_start).filter(|least| *least < FAR)?;
            found.layer = found.layer.max(picoseconds(layer));
            if at == 0 && self.given.is_some() {
                found.period = least(&of.since_entry).map_or(Picoseconds(0), picoseconds);
            }
        }
        Some(found)
    }

    fn of_value(&mut self, id: ValueId, known: &[Known]) -> Known {
        let program = self.kernels.program.as_ref();
        let (fold, times) = (program.value(id).fold, program.value(id).times.max(1));
        let operands = &self.problem.operands[id.index()];
        let into = |by: &ValueId| fold.is_some() && program.value(*by).fold != fold;
        let out_of = operands.iter().find_map(|by| {
            let of = program.value(*by).fold?;
            (fold != Some(of)).then_some((of, *by))
        });
        let costs = self.costs(id, times);
        let mut since_start = self.made(id, &costs, 0, &|by| &known[by.index()].since_start);
        let mut since_entry = self.made(id, &costs, NEVER, &|by| &known[by.index()].since_entry);
        if operands.iter().any(into) {
            // What is handed on from application to application: time begins anew.
            since_entry = anew(&since_start);
        } else if fold.is_none() && self.given == Some(id) {
            since_entry = anew(&since_start);
        }
        if let Some((of, inside)) = out_of {
            since_start = self.last_of(of, inside, &since_start, &since_entry, known);
            // What a stack of layers with folded blocks hands on is not looked at.
            since_entry = vec![NEVER; since_start.len()];
        }
        self.spread(id, &mut since_start, times);
        self.spread(id, &mut since_entry, times);
        Known { since_start, since_entry }
    }

    /// What the last application of a folded block gives: what it gives if it were the first, or
    /// what all of them hand on, one after the other.
    fn last_of(
        &self,
        fold: FoldId,
        inside: ValueId,
        first: &Times,
        since_entry: &Times,
        known: &[Known],
    ) -> Times {
        let program = self.program();
        let entry = program.entry(fold).filter(|_| program.exit(fold).is_some());
        let begun = entry.and_then(|entry| known[entry.index()].since_start.iter().min());
        let period = since_entry.iter().copied().min().filter(|least| (0..FAR).contains(least));
        let (Some(begun), Some(period)) = (begun, period) else { return first.clone() };
        let others = program.copies(inside).saturating_sub(1);
        let before = period.saturating_mul(i64::try_from(others).unwrap_or(FAR)).min(FAR - 1);
        let handed_on = |time: &i64| match *time {
            time if time >= FAR => FAR,
            time if time < 0 => 0,
            time => (begun + before + time).min(FAR - 1),
        };
        let all = since_entry.iter().map(handed_on);
        all.zip(first).map(|(all, first)| all.max(*first)).collect()
    }

    /// How soon each strategy can have made the value, by layout; from `begin` where it reads
    /// nothing.
    fn made<'k>(
        &self,
        id: ValueId,
        costs: &[i64],
        begin: i64,
        known: &dyn Fn(&ValueId) -> &'k Times,
    ) -> Times {
        let factor = &self.problem.factors[id.index()];
        let operands = &self.problem.operands[id.index()];
        let mut made = vec![FAR; self.problem.nodes(id)];
        for (s, out) in factor.out.iter().enumerate() {
            let there = factor.reads_of(s).iter().zip(operands);
            let began = there.map(|(node, by)| known(by)[*node as usize]).max().unwrap_or(begin);
            let time = match began {
                began if began >= FAR => FAR,
                began if began < 0 => NEVER,
                began => (began + costs[s]).min(FAR),
            };
            let least = &mut made[*out as usize];
            *least = (*least).min(time);
        }
        made
    }

    fn spread(&mut self, id: ValueId, times: &mut Times, share: u64) {
        let graph = &self.problem.graphs[id.index()];
        let share = i64::try_from(share).unwrap_or(i64::MAX);
        graph.spread_forward_at(&mut times[..graph.nodes()], &mut self.queue, share);
    }

    /// What each strategy of a value takes, once.
    fn costs(&self, id: ValueId, times: u64) -> Vec<i64> {
        let factor = &self.problem.factors[id.index()];
        let share = i64::try_from(times).unwrap_or(i64::MAX);
        let once = |cost: &i64| if *cost >= FAR { FAR } else { *cost / share };
        let composite = match &self.program().value(id).def {
            Def::Op { op, operands } if composite_dim(op).is_some() => operands.first(),
            _ => None,
        };
        let Some(read) = composite else { return factor.cost.iter().map(once).collect() };
        let mut known: FxHashMap<Node, i64> = FxHashMap::default();
        let beside = |node: Node| {
            let layout = self.problem.layout(*read, node)?;
            let pieces = InPieces::new(self.kernels, self.hardware, id, layout)?;
            i64::try_from(pieces.beside_each_other(self.hardware)).ok()
        };
        let mut of_strategy = |(s, cost): (usize, &i64)| {
            let node = factor.reads_of(s)[0];
            let beside = *known.entry(node).or_insert_with(|| beside(node).unwrap_or(0));
            (once(cost) - beside).max(0)
        };
        factor.cost.iter().enumerate().map(&mut of_strategy).collect()
    }
}

/// The same nodes, each there from the beginning.
fn anew(times: &Times) -> Times {
    times.iter().map(|time| if *time >= FAR { FAR } else { 0 }).collect()
}

fn picoseconds(time: i64) -> Picoseconds {
    Picoseconds(u64::try_from(time).unwrap_or(0))
}
