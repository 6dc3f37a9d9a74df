//! New sets: those that take long in a plan that the mean of other sets favours.

use std::cmp::Reverse;

use shard_ir::{AxisId, AxisSet, ValueId};

use super::super::climb::Through;
use super::super::weighed::Weighed;
use super::{FirstOrLast, MovesToReaders, Step, Steps};
use crate::relax::graph::{FAR, Graph, NodeId, Queue};

/// One set is sought for each of this many of the longest steps, to begin with it.
const BEGINNINGS: usize = 12;
/// The most exchanges that improve one set.
const SWAPS: usize = 64;

/// A rough plan: how each value is made, and what each op reads. No such plan need exist, since it
/// only tells which sets are worth looking at.
struct Favoured {
    /// The strategy of each value.
    strategy: Vec<Option<usize>>,
    /// For each value, its readers and the nodes at which they want it; `None` for a result.
    wanted: Vec<Vec<(Option<ValueId>, NodeId)>>,
}

impl Steps<'_> {
    /// A set of steps that together take long in the plan that the bounds `through` favour; a
    /// weighting for each case, if there are cases. `None` where some case takes at most `above`.
    pub(in crate::overlapped) fn cut(
        &self,
        through: &Through,
        cases: &[Vec<FirstOrLast>],
        above: u64,
    ) -> Option<Vec<Weighed>> {
        let favoured = self.favoured(through);
        let steps = self.taken_by(&favoured);
        let of_case = |chosen: &Vec<FirstOrLast>| {
            let steps_of_case = Steps { case: chosen.clone(), ..self.clone() };
            let (time, set) = steps_of_case.heaviest(&steps);
            (time, steps_of_case.weighed(&steps_of_case.with_all_else(set)))
        };
        let none = [Vec::new()];
        let cases = if cases.is_empty() { &none[..] } else { cases };
        let found: Vec<(i64, Weighed)> = cases.iter().map(of_case).collect();
        let least = found.iter().map(|(time, _)| *time).min()?;
        (u64::try_from(least).is_ok_and(|least| least > above))
            .then(|| found.into_iter().map(|(_, weighed)| weighed).collect())
    }

    /// The plan, from the results back: each value is made by the strategy of least bound, and of
    /// these by the one nearest to what its readers want.
    fn favoured(&self, through: &Through) -> Favoured {
        let count = self.problem.factors.len();
        let mut found = Favoured { strategy: vec![None; count], wanted: vec![Vec::new(); count] };
        let mut queue = Queue::default();
        for id in self.problem.live.iter().rev() {
            let v = id.index();
            let (factor, graph) = (&self.problem.factors[v], &self.problem.graphs[v]);
            let wanted: Vec<NodeId> = found.wanted[v].iter().map(|(_, node)| *node).collect();
            let far = self.distance_to(graph, &wanted, &mut queue);
            let of_strategy = |s: &usize| {
                let time = through.get(v).and_then(|of| of.get(*s)).copied().unwrap_or(0);
                let out = factor.out[*s];
                let far = far.get(out as usize).copied().unwrap_or_else(|| {
                    // Inside of a kernel a value is read where it is made.
                    if wanted.iter().all(|node| *node == out) { 0 } else { FAR }
                });
                (time, far, factor.cost[*s])
            };
            let Some(strategy) = (0..factor.out.len()).min_by_key(of_strategy) else { continue };
            found.strategy[v] = Some(strategy);
            let read = self.problem.operands[v].iter().zip(factor.reads_of(strategy));
            for (operand, node) in read {
                found.wanted[operand.index()].push((Some(*id), *node));
            }
            // A result stays where it is made, if that is allowed, or else is moved to the nearest
            // allowed layout.
            let out = factor.out[strategy];
            for (_, allowed) in self.problem.outputs.iter().filter(|(value, _)| value == id) {
                if (out as usize) < graph.nodes() && !allowed.contains(&out) {
                    let to =
                        |node: &&NodeId| graph.tree_time(out, &[**node], &mut Queue::default());
                    let nearest = allowed.iter().min_by_key(to);
                    found.wanted[v].extend(nearest.map(|node| (None, *node)));
                }
            }
        }
        found
    }

    /// For each layout, the sum of the times of moving the value from there to each wanted layout.
    fn distance_to(&self, graph: &Graph, wanted: &[NodeId], queue: &mut Queue) -> Vec<i64> {
        let mut all = vec![0i64; graph.nodes()];
        for node in wanted.iter().filter(|node| (**node as usize) < graph.nodes()) {
            let mut cost = vec![FAR; graph.nodes()];
            cost[*node as usize] = 0;
            graph.spread_backward(&mut cost, queue, 1);
            all.iter_mut().zip(cost).for_each(|(all, cost)| *all = all.saturating_add(cost));
        }
        all
    }

    /// The steps of a plan that take time, the longest first, each with its time.
    fn taken_by(&self, favoured: &Favoured) -> Vec<(i64, Step)> {
        let streams = self.streams;
        let mut steps: Vec<(i64, Step)> = Vec::new();
        let mut queue = Queue::default();
        for id in &self.problem.live {
            let v = id.index();
            let Some(strategy) = favoured.strategy[v] else { continue };
            let costs = self.costs;
            if self.is_op(*id) {
                let (whole, computing) = (costs.whole[v][strategy], costs.computing[v][strategy]);
                let making = (whole > computing || self.is_fetch(*id)).then_some(whole);
                steps.extend(making.map(|time| (time, Step::Making(*id))));
                steps.push((costs.sending[v][strategy], Step::Sending(*id)));
                if !self.is_fetch(*id) {
                    steps.push((computing, Step::Computing(*id)));
                }
            }
            let out = self.problem.factors[v].out[strategy];
            let graph = &self.problem.graphs[v];
            for (only, to) in self.moves_in(graph, out, &favoured.wanted[v]) {
                let time = graph.tree_time(out, &to, &mut queue);
                if time <= 0 || time >= FAR {
                    continue;
                }
                let moves = MovesToReaders { value: *id, only };
                steps.push((time, Step::Moving(moves)));
                for stream in self.distinct_streams() {
                    let number = stream + streams.of_networks().start;
                    let busy = |over: AxisSet| i64::from(streams.of_axes(over).contains(&number));
                    let time = graph.counted(&busy).tree_time(out, &to, &mut queue);
                    if time > 0 && time < FAR {
                        steps.push((time, Step::Streaming(moves, stream)));
                    }
                }
            }
        }
        steps.retain(|(time, step)| *time > 0 && *time < FAR && self.are_exclusive(*step, *step));
        steps.sort_by_key(|(time, _)| Reverse(*time));
        steps
    }

    /// The moves of a value with the nodes to which they lead: those to all of its readers and, if
    /// these are several, those to each one.
    fn moves_in(
        &self,
        graph: &Graph,
        out: NodeId,
        wanted: &[(Option<ValueId>, NodeId)],
    ) -> Vec<(Option<ValueId>, Vec<NodeId>)> {
        let is_layout = |node: NodeId| (node as usize) < graph.nodes();
        if !is_layout(out) || wanted.iter().any(|(_, node)| !is_layout(*node)) {
            return Vec::new();
        }
        let mut all: Vec<NodeId> =
            wanted.iter().map(|(_, node)| *node).filter(|node| *node != out).collect();
        all.sort_unstable();
        all.dedup();
        let mut moves = vec![(None, all)];
        if wanted.len() > 1 {
            let to_one = wanted.iter().filter(|(_, node)| *node != out);
            moves.extend(to_one.filter_map(|(by, node)| Some((Some((*by)?), vec![*node]))));
        }
        moves.retain(|(_, to)| !to.is_empty());
        moves
    }

    /// The streams of the network, without those that are busy with the same axes as an earlier
    /// one.
    fn distinct_streams(&self) -> Vec<usize> {
        if self.moves_at_once == 1 {
            return Vec::new();
        }
        let (streams, networks) = (self.streams, self.streams.of_networks());
        let first = networks.start;
        let axes = self.kernels.program.mesh.axes().len();
        let over = |stream: usize| -> Vec<bool> {
            let one = |axis: usize| AxisSet::EMPTY.with(AxisId(axis as u8));
            (0..axes).map(|axis| streams.of_axes(one(axis)).contains(&stream)).collect()
        };
        let is_first = |stream: &usize| (first..*stream).all(|other| over(other) != over(*stream));
        networks.filter(is_first).map(|stream| stream - first).collect()
    }

    /// Some of these steps of which no two are done at the same time, and the sum of their times:
    /// as large as is found. `steps` have their times, the longest first.
    fn heaviest(&self, steps: &[(i64, Step)]) -> (i64, Vec<Step>) {
        let fits: Vec<Vec<bool>> = steps
            .iter()
            .map(|(_, a)| steps.iter().map(|(_, b)| self.go_together(*a, *b)).collect())
            .collect();
        let can_be = |at: usize| self.case.is_empty() || self.is_in_line(steps[at].1);
        let all: Vec<usize> = (0..steps.len()).filter(|at| can_be(*at)).collect();
        let mut best: (i64, Vec<usize>) = (0, Vec::new());
        for first in all.iter().take(BEGINNINGS) {
            let mut set = vec![*first];
            let add_all = |set: &mut Vec<usize>| {
                for at in &all {
                    if !set.contains(at) && set.iter().all(|other| fits[*at][*other]) {
                        set.push(*at);
                    }
                }
            };
            add_all(&mut set);
            for _ in 0..SWAPS {
                let gain = |at: &usize| {
                    let out = set.iter().filter(|other| !fits[*at][**other]);
                    steps[*at].0 - out.map(|other| steps[*other].0).sum::<i64>()
                };
                let others = all.iter().filter(|at| !set.contains(at));
                let Some(most) = others.max_by_key(|at| (gain(at), Reverse(**at))) else { break };
                if gain(most) <= 0 {
                    break;
                }
                set.retain(|other| fits[*most][*other]);
                set.push(*most);
                add_all(&mut set);
            }
            let time = set.iter().map(|at| steps[*at].0).sum();
            if time > best.0 {
                best = (time, set);
            }
        }
        (best.0, best.1.into_iter().map(|at| steps[at].1).collect())
    }

    /// Whether two steps are never done at the same time, and neither is a part of the other.
    fn go_together(&self, one: Step, other: Step) -> bool {
        let is_of_one_value = match (one, other) {
            (Step::Making(a), Step::Computing(b)) | (Step::Computing(a), Step::Making(b)) => a == b,
            (Step::Making(_) | Step::Computing(_) | Step::Sending(_), _)
            | (Step::Moving(_) | Step::Streaming(..), _) => false,
        };
        one != other && !is_of_one_value && self.are_exclusive(one, other)
    }

    /// The set with every other step that fits.
    pub(super) fn with_all_else(&self, mut set: Vec<Step>) -> Vec<Step> {
        let is_made = |set: &[Step], step: &Step| match step {
            Step::Computing(id) => set.contains(&Step::Making(*id)),
            Step::Making(_) | Step::Sending(_) | Step::Moving(_) | Step::Streaming(..) => false,
        };
        let moves = self.problem.live.iter().rev().flat_map(|id| self.moves_of(*id));
        for step in self.computing().chain(moves) {
            if !is_made(&set, &step) && self.fits(&set, step) {
                set.push(step);
            }
        }
        set
    }
}
