//! The critical path over all plans: how soon the results can be there if everything else that a
//! plan does is done meanwhile, as if chips, links and memory had no limit.
//!
//! For each value in each layout it is known how soon it can be there. An op is done its own time
//! after all of its operands are there; a move is done its own time after the moved value is there.
//! A plan has one strategy for each op and one way for each move, and the soonest of all is no
//! later than that of any plan. Values that many ops read need no care: each reader waits for the
//! value.

use shard_ir::{FoldId, Picoseconds, Program, ValueId};

use super::OverlapBound;
use super::costs::{Costs, TimedProblem};
use crate::kernel::Kernels;
use crate::relax::factors::Factors;
use crate::relax::graph::{FAR, NodeId, Queue};

/// The critical path over all plans of one form, as a bound, and the values on it from the last to
/// the first; `None` where the form has no plan.
pub(super) fn critical_path(
    kernels: &Kernels,
    TimedProblem { problem, costs }: &TimedProblem,
) -> Option<(OverlapBound, Vec<ValueId>)> {
    let given = taken(kernels.program.as_ref());
    let mut soonest = Soonest { kernels, problem, costs, given, queue: Queue::default() };
    soonest.of_results()
}

/// What a layer of a stack takes from the one before: its first parameter. `None` where there is no
/// stack, or its layers have folded blocks.
pub(super) fn taken(program: &Program) -> Option<ValueId> {
    let stack = program.repeat > 1 && program.folds.is_empty();
    program.parameters().next().filter(|_| stack)
}

/// For each node of a value, how soon the value can be there, in picoseconds; [`FAR`] where it
/// cannot.
type Times = Vec<i64>;

/// The time of a value that does not wait for something. It is so early that it stays before all
/// other times when moves are added to it.
const NEVER: i64 = -4 * FAR;

/// How soon a value can be there, counted from two beginnings.
#[derive(Clone, Default)]
struct ReadyTimes {
    /// From the beginning of the layer.
    since_start: Times,
    /// From when there is what an application of the folded block takes, or what a layer of a stack
    /// takes; [`NEVER`] where the value does not wait for that.
    since_entry: Times,
}

struct Soonest<'a> {
    kernels: &'a Kernels,
    problem: &'a Factors,
    costs: &'a Costs,
    /// What a layer of a stack takes from the one before, where there is a stack.
    given: Option<ValueId>,
    queue: Queue,
}

impl Soonest<'_> {
    fn program(&self) -> &Program {
        self.kernels.program.as_ref()
    }

    fn of_results(&mut self) -> Option<(OverlapBound, Vec<ValueId>)> {
        let mut known: Vec<ReadyTimes> = vec![ReadyTimes::default(); self.program().values.len()];
        for id in self.problem.live.clone() {
            known[id.index()] = self.of_value(id, &known);
        }
        let mut found = OverlapBound::default();
        let mut last: Option<(ValueId, NodeId)> = None;
        for (at, (value, allowed)) in self.problem.outputs.iter().enumerate() {
            let of = &known[value.index()];
            let node = allowed.iter().copied().min_by_key(|n| of.since_start[*n as usize])?;
            let time = of.since_start[node as usize];
            if time >= FAR {
                return None;
            }
            if last.is_none() || picoseconds(time) > found.layer {
                (found.layer, last) = (picoseconds(time), Some((*value, node)));
            }
            if at == 0 && self.given.is_some() {
                let least = allowed.iter().map(|n| of.since_entry[*n as usize]).min();
                found.period = least.map_or(Picoseconds(0), picoseconds);
            }
        }
        let path = last.map_or_else(Vec::new, |(value, node)| self.path(value, node, &known));
        Some((found, path))
    }

    /// The values on the way to a value in a layout, the last first. In a folded block this is the
    /// way of the first application.
    fn path(&mut self, last: ValueId, node: NodeId, known: &[ReadyTimes]) -> Vec<ValueId> {
        let mut path = vec![last];
        let (mut id, mut node) = (last, node);
        // A way has at most as many values as there are.
        for _ in 0..known.len() {
            let Some((before, read)) = self.before(id, node, known) else { break };
            path.push(before);
            (id, node) = (before, read);
        }
        path
    }

    /// The operand that is there last of those that a value in a layout waits for, and the node at
    /// which it is read.
    fn before(
        &mut self,
        id: ValueId,
        node: NodeId,
        known: &[ReadyTimes],
    ) -> Option<(ValueId, NodeId)> {
        let factor = &self.problem.factors[id.index()];
        let operands = &self.problem.operands[id.index()];
        let graph = &self.problem.graphs[id.index()];
        let mut away = vec![FAR; self.problem.nodes(id)];
        away[node as usize] = 0;
        let share = self.share(id);
        graph.spread_backward(&mut away[..graph.nodes()], &mut self.queue, share);
        let began = |(node, by): (&NodeId, &ValueId)| known[by.index()].since_start[*node as usize];
        let done = |s: usize| {
            let began = factor.reads_of(s).iter().zip(operands).map(began).max().unwrap_or(0);
            began + self.costs.once(id, s) + away[factor.out[s] as usize]
        };
        let s = (0..factor.out.len()).min_by_key(|s| done(*s))?;
        let longest = factor.reads_of(s).iter().zip(operands).max_by_key(|read| began(*read));
        longest.map(|(node, by)| (*by, *node))
    }

    /// How often the step of a value is executed: the times of the problem count all executions.
    fn share(&self, id: ValueId) -> i64 {
        i64::try_from(self.program().value(id).times.max(1)).unwrap_or(i64::MAX)
    }

    fn of_value(&mut self, id: ValueId, known: &[ReadyTimes]) -> ReadyTimes {
        let program = self.kernels.program.as_ref();
        let fold = program.value(id).fold;
        let operands = &self.problem.operands[id.index()];
        let into = |by: &ValueId| fold.is_some() && program.value(*by).fold != fold;
        let out_of = operands.iter().find_map(|by| {
            let of = program.value(*by).fold?;
            (fold != Some(of)).then_some((of, *by))
        });
        let mut since_start = self.made(id, 0, &|by| &known[by.index()].since_start);
        let mut since_entry = self.made(id, NEVER, &|by| &known[by.index()].since_entry);
        if operands.iter().any(into) {
            // The block hands this value on from application to application: time begins anew.
            since_entry = anew(&since_start);
        } else if fold.is_none() && self.given == Some(id) {
            since_entry = anew(&since_start);
        }
        if let Some((of, inside)) = out_of {
            since_start = self.last_of(of, inside, &since_start, &since_entry, known);
            // What a stack of layers with folded blocks hands on is not looked at.
            since_entry = vec![NEVER; since_start.len()];
        }
        self.spread(id, &mut since_start);
        self.spread(id, &mut since_entry);
        ReadyTimes { since_start, since_entry }
    }

    /// The times of what the last application of a folded block gives: the later of its times as if
    /// it were the first application, and of its times after all applications before it have handed
    /// on their values.
    fn last_of(
        &self,
        fold: FoldId,
        inside: ValueId,
        first: &Times,
        since_entry: &Times,
        known: &[ReadyTimes],
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

    /// How soon a value can be made at each node, over all strategies; `begin` is the time of a
    /// strategy that reads nothing.
    fn made<'k>(&self, id: ValueId, begin: i64, known: &dyn Fn(&ValueId) -> &'k Times) -> Times {
        let factor = &self.problem.factors[id.index()];
        let operands = &self.problem.operands[id.index()];
        let mut made = vec![FAR; self.problem.nodes(id)];
        for (s, out) in factor.out.iter().enumerate() {
            let there = factor.reads_of(s).iter().zip(operands);
            let began = there.map(|(node, by)| known(by)[*node as usize]).max().unwrap_or(begin);
            let time = match began {
                began if began >= FAR => FAR,
                began if began < 0 => NEVER,
                began => (began + self.costs.once(id, s)).min(FAR),
            };
            let least = &mut made[*out as usize];
            *least = (*least).min(time);
        }
        made
    }

    fn spread(&mut self, id: ValueId, times: &mut Times) {
        let (graph, share) = (&self.problem.graphs[id.index()], self.share(id));
        graph.spread_forward_at(&mut times[..graph.nodes()], &mut self.queue, share);
    }
}

/// The same nodes with time 0, where they can be reached.
fn anew(times: &Times) -> Times {
    times.iter().map(|time| if *time >= FAR { FAR } else { 0 }).collect()
}

fn picoseconds(time: i64) -> Picoseconds {
    Picoseconds(u64::try_from(time).unwrap_or(0))
}
