//! Steps of which no two can be done at the same time, in any schedule of any plan: together they
//! take no less than their sum.
//!
//! Two kernels keep the same cores busy. A kernel and the moves of a value cannot go on at once
//! where one waits for the other; nor can the moves of two values, or of one for several readers,
//! unless there are links enough for both. So a set of steps is found, and the least that they
//! take over all plans is a matter of prices, where a step outside of the set is free. Any mean of
//! such sets is as good: what counts half takes half of its time.

use std::collections::HashMap;
use std::sync::Arc;

use shard_ir::{Def, Op, Picoseconds, ValueId};

use super::costs::Costs;
use crate::kernel::Kernels;
use crate::relax::factors::{Factor, Factors, Use};
use crate::relax::graph::{FAR, Graph};

/// So many parts has the weight of a set.
const PARTS: u64 = 128;

/// What a step is: making a value, on the cores alone or until it is there; the collectives in its
/// loop or its pieces; or moving it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Computing(ValueId),
    Making(ValueId),
    Sending(ValueId),
    Moving(ValueId),
}

/// For each value what its steps count for, in parts of a [`Weighed::unit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Weighed {
    computing: Vec<u64>,
    making: Vec<u64>,
    /// The collectives in loops and pieces.
    sending: Vec<u64>,
    moving: Vec<u64>,
    /// What a step of weight 1 counts for.
    pub(super) unit: u64,
}

impl Weighed {
    fn nothing(values: usize, unit: u64) -> Weighed {
        let none = vec![0; values];
        Weighed {
            computing: none.clone(),
            making: none.clone(),
            sending: none.clone(),
            moving: none,
            unit,
        }
    }

    /// So many parts of one and the rest of another.
    fn mixed(&self, other: &Weighed, parts: u64) -> Weighed {
        let mean = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(a, b)| (a * parts + b * (PARTS - parts)) / PARTS).collect()
        };
        Weighed {
            computing: mean(&self.computing, &other.computing),
            making: mean(&self.making, &other.making),
            sending: mean(&self.sending, &other.sending),
            moving: mean(&self.moving, &other.moving),
            unit: self.unit,
        }
    }

    /// A problem in which every step takes what it counts for.
    pub(super) fn applied(&self, problem: &Factors, costs: &Costs) -> Factors {
        let mut weighed = problem.clone();
        let mut graphs: HashMap<(*const Graph, u64), Arc<Graph>> = HashMap::new();
        for id in &problem.live {
            let v = id.index();
            let factor = &problem.factors[v];
            let counted = |s: usize| {
                let parts = [
                    (self.computing[v], costs.computing[v][s]),
                    (self.making[v], costs.whole[v][s]),
                    (self.sending[v], costs.sending[v][s]),
                ];
                let sum = |sum: i64, (weight, cost): (u64, i64)| match cost {
                    cost if cost >= FAR => FAR,
                    cost => sum.saturating_add(cost.saturating_mul(weight as i64)),
                };
                parts.into_iter().fold(0, sum).min(FAR)
            };
            weighed.factors[v] = Arc::new(Factor {
                out: factor.out.clone(),
                reads: factor.reads.clone(),
                cost: (0..factor.out.len()).map(counted).collect(),
                arity: factor.arity,
            });
            let graph = &problem.graphs[v];
            let key = (Arc::as_ptr(graph), self.moving[v]);
            let longer = || Arc::new(graph.longer(self.moving[v] as i64));
            weighed.graphs[v] = Arc::clone(graphs.entry(key).or_insert_with(longer));
        }
        weighed
    }
}

/// The steps of all plans of a form, and which wait for which.
pub(super) struct Steps<'a> {
    kernels: &'a Kernels,
    problem: &'a Factors,
    costs: &'a Costs,
    streams: u64,
    /// For each value the values that it is made from, itself among them.
    from: Vec<Vec<bool>>,
    /// Whether a value of a folded block is made from what the block takes, and goes into what it
    /// hands on: then everything of one application is before all of the next. So of each layer of
    /// a stack, where that is what is asked about; else true outside of blocks.
    in_line: Vec<bool>,
    /// Whether the question is about the layers of a stack, one after the other.
    is_stack: bool,
}

impl<'a> Steps<'a> {
    /// Those of one layer; with what a layer of a stack takes from the one before, those that no
    /// two layers do at the same time either.
    pub(super) fn of(
        kernels: &'a Kernels,
        (problem, costs): (&'a Factors, &'a Costs),
        streams: u32,
        stack: Option<ValueId>,
    ) -> Steps<'a> {
        let program = kernels.program.as_ref();
        let count = program.values.len();
        let mut from: Vec<Vec<bool>> = Vec::with_capacity(count);
        for id in program.value_ids() {
            let mut own = vec![false; count];
            own[id.index()] = true;
            for operand in program.value(id).def.operands() {
                own.iter_mut().zip(&from[operand.index()]).for_each(|(own, of)| *own |= of);
            }
            from.push(own);
        }
        let result = program.outputs.first().map(|output| output.value);
        let in_line = |id: ValueId| match program.value(id).fold {
            None => stack.zip(result).is_none_or(|(taken, given)| {
                from[id.index()][taken.index()] && from[given.index()][id.index()]
            }),
            Some(fold) => {
                program.entry(fold).zip(program.exit(fold)).is_some_and(|(entry, exit)| {
                    from[id.index()][entry.index()] && from[exit.index()][id.index()]
                })
            }
        };
        let in_line = program.value_ids().map(in_line).collect();
        let streams = u64::from(streams.max(1));
        Steps { kernels, problem, costs, streams, from, in_line, is_stack: stack.is_some() }
    }

    fn is_before(&self, one: ValueId, other: ValueId) -> bool {
        self.from[other.index()][one.index()]
    }

    /// The values whose making waits for moves of a value; `None` where a result is one of its
    /// readers.
    fn readers(&self, value: ValueId) -> Option<Vec<ValueId>> {
        let readers = self.problem.uses[value.index()].iter().map(|of| match of {
            Use::Operand(reader, _) => Some(*reader),
            Use::Output(_) => None,
        });
        readers.collect()
    }

    /// Whether everything that is done to make or to move one value is over when another is made.
    fn moves_end_before(&self, moved: ValueId, made: ValueId) -> bool {
        self.readers(moved).is_some_and(|all| all.iter().all(|by| self.is_before(*by, made)))
    }

    /// Whether no two instances of a step, in several applications of a block, are at once, nor one
    /// of them beside one of another step that waits for it or for which it waits.
    fn is_in_line(&self, step: Step) -> bool {
        match step {
            Step::Computing(value) | Step::Making(value) | Step::Sending(value) => {
                self.in_line[value.index()]
            }
            Step::Moving(value) => {
                let program = self.kernels.program.as_ref();
                let of_block = |by: &ValueId| program.value(*by).fold == program.value(value).fold;
                let in_line = |of: &Use| match of {
                    Use::Operand(by, _) => !of_block(by) || self.in_line[by.index()],
                    // The next layer takes the first result alone; no application waits for what
                    // is a result of the layer.
                    Use::Output(0) => program.value(value).fold.is_none(),
                    Use::Output(_) => program.value(value).fold.is_none() && !self.is_stack,
                };
                self.in_line[value.index()] && self.problem.uses[value.index()].iter().all(in_line)
            }
        }
    }

    fn is_fetch(&self, value: ValueId) -> bool {
        let def = &self.kernels.program.value(value).def;
        matches!(def, Def::Op { op: Op::Fetch, .. })
    }

    /// Whether two steps are never done at the same time. The same step twice: whether what it is
    /// made of is not, in a plan.
    fn are_exclusive(&self, one: Step, other: Step) -> bool {
        let waits = self.is_in_line(one) && self.is_in_line(other);
        match (one, other) {
            (Step::Computing(_), Step::Computing(_)) => true,
            (Step::Moving(a), Step::Moving(b)) if a == b => {
                self.streams == 1 || (waits && self.problem.uses[a.index()].len() == 1)
            }
            (Step::Moving(a), Step::Moving(b)) => {
                self.streams == 1
                    || (waits && (self.moves_end_before(a, b) || self.moves_end_before(b, a)))
            }
            (Step::Moving(_) | Step::Sending(_), Step::Sending(_))
            | (Step::Sending(_), Step::Moving(_)) => self.streams == 1,
            (Step::Moving(moved), Step::Computing(made) | Step::Making(made))
            | (Step::Computing(made) | Step::Making(made), Step::Moving(moved)) => {
                waits && (self.is_before(made, moved) || self.moves_end_before(moved, made))
            }
            // The same value is made and sent piece by piece.
            (Step::Sending(a), Step::Computing(b) | Step::Making(b))
            | (Step::Computing(a) | Step::Making(a), Step::Sending(b))
                if a == b =>
            {
                false
            }
            (Step::Making(a) | Step::Sending(a), Step::Computing(b) | Step::Making(b))
            | (Step::Computing(a), Step::Making(b) | Step::Sending(b))
            | (Step::Making(a), Step::Sending(b)) => {
                waits && (self.is_before(a, b) || self.is_before(b, a))
            }
        }
    }

    fn fits(&self, set: &[Step], step: Step) -> bool {
        !set.contains(&step)
            && self.are_exclusive(step, step)
            && set.iter().all(|other| self.are_exclusive(*other, step))
    }

    fn add(&self, set: &mut Vec<Step>, steps: impl Iterator<Item = Step>) {
        for step in steps {
            if self.fits(set, step) {
                set.push(step);
            }
        }
    }

    fn weighed(&self, set: &[Step]) -> Weighed {
        let unit = self.unit();
        let mut weighed = Weighed::nothing(self.problem.factors.len(), unit);
        for step in set {
            match step {
                Step::Computing(value) => weighed.computing[value.index()] = unit,
                Step::Making(value) => weighed.making[value.index()] = unit,
                Step::Sending(value) => weighed.sending[value.index()] = unit,
                Step::Moving(value) => weighed.moving[value.index()] = unit,
            }
        }
        weighed
    }

    fn unit(&self) -> u64 {
        16 * PARTS * self.streams
    }

    /// The largest of what some sets, and means of them, take at least; `least` says what that is. What
    /// is `enough` ends it.
    pub(super) fn largest(
        &self,
        path: &[ValueId],
        enough: Picoseconds,
        least: &mut dyn FnMut(&Weighed) -> Picoseconds,
    ) -> Picoseconds {
        let mut sets: Vec<(Picoseconds, Weighed)> = Vec::new();
        for set in self.sets(path) {
            if sets.iter().all(|(_, known)| *known != set) {
                sets.push((least(&set), set));
            }
        }
        sets.sort_by_key(|(least, _)| std::cmp::Reverse(*least));
        let Some((mut best, mut at)) = sets.first().cloned() else { return Picoseconds(0) };
        // The least is concave in what each set counts for: as long as more of one lifts it, it is
        // given twice as much.
        for (_, other) in sets[1..].iter().chain(&sets) {
            let mut part = 1;
            let mut better = None;
            while part < PARTS && best < enough {
                let mixed = at.mixed(other, PARTS - part);
                let found = least(&mixed);
                if found <= best {
                    break;
                }
                (best, part, better) = (found, part * 2, Some(mixed));
            }
            at = better.unwrap_or(at);
        }
        best
    }

    fn sets(&self, path: &[ValueId]) -> Vec<Weighed> {
        let live = || self.problem.live.iter().copied();
        let is_op = |id: &ValueId| matches!(self.kernels.program.value(*id).def, Def::Op { .. });
        let ops = || live().filter(is_op).filter(|id| !self.is_fetch(*id));
        let sends = |id: &ValueId| self.costs.sending[id.index()].iter().any(|cost| *cost > 0);
        let computing = || ops().map(Step::Computing);
        let moving = || live().rev().map(Step::Moving);
        // Everything that the cores do, and what cannot go on beside any of it.
        let mut of_cores: Vec<Step> = computing().collect();
        self.add(&mut of_cores, path.iter().map(|id| Step::Moving(*id)));
        self.add(&mut of_cores, moving());
        // The critical path, and what cannot go on beside any of it.
        let mut of_path = Vec::new();
        self.add(&mut of_path, path.iter().map(|id| Step::Moving(*id)));
        self.add(&mut of_path, path.iter().filter(|id| is_op(id)).map(|id| Step::Making(*id)));
        let fit = |set: &Vec<Step>, step: &Step| match step {
            Step::Computing(id) => !set.contains(&Step::Making(*id)),
            Step::Making(_) | Step::Sending(_) | Step::Moving(_) => true,
        };
        for step in computing().chain(moving()) {
            if fit(&of_path, &step) && self.fits(&of_path, step) {
                of_path.push(step);
            }
        }
        // Everything that is sent; on one network also what cannot go on beside any of it.
        let mut links = Weighed::nothing(self.problem.factors.len(), self.unit());
        if self.streams == 1 {
            let mut of_links: Vec<Step> = Vec::new();
            self.add(&mut of_links, moving().chain(live().filter(sends).map(Step::Sending)));
            self.add(&mut of_links, computing());
            links = self.weighed(&of_links);
        } else {
            for id in live() {
                links.moving[id.index()] = self.unit() / self.streams;
                links.sending[id.index()] = self.unit() / self.streams;
            }
        }
        vec![self.weighed(&of_cores), self.weighed(&of_path), links]
    }
}
