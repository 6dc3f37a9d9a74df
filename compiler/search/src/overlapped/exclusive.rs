//! Steps of which no two can be done at the same time, in any schedule of any plan: together they
//! take no less than their sum.
//!
//! Two kernels keep the same cores busy. A kernel and the moves of a value cannot go on at once
//! where one waits for the other; nor can the moves of two values, or of one for several readers,
//! unless there are links enough for both. So a set of steps is found, and the least that they
//! take over all plans is a matter of prices, where a step outside of the set is free. Any mean of
//! such sets is as good: what counts half takes half of its time.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use shard_cost::Streams;
use shard_ir::{AxisId, AxisSet, Def, Mesh, Op, ParameterKind, Picoseconds, ValueId};

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
    /// Moving a value to all of its readers, or to one of them alone: what is on the way to one is
    /// over when that one is made, whatever the others do.
    Moving(ValueId, Option<ValueId>),
}

/// For each value what its steps count for, in parts of a [`Weighed::unit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Weighed {
    computing: Vec<u64>,
    making: Vec<u64>,
    /// The collectives in loops and pieces.
    sending: Vec<u64>,
    moving: Vec<u64>,
    /// The one reader of a value whose moves count, where not those of all do.
    only_to: Vec<Option<ValueId>>,
    /// What a move counts for on each stream of the network that it keeps busy, beside the weight
    /// of what it moves.
    on_stream: Vec<u64>,
    /// What a step of weight 1 counts for.
    pub(super) unit: u64,
}

impl Weighed {
    fn nothing(values: usize, streams: usize, unit: u64) -> Weighed {
        let none = vec![0; values];
        Weighed {
            computing: none.clone(),
            making: none.clone(),
            sending: none.clone(),
            moving: none,
            only_to: vec![None; values],
            on_stream: vec![0; streams],
            unit,
        }
    }

    /// So many parts of one and the rest of another. Where one counts the moves to one reader, the
    /// mean counts no others; where each counts those to another reader, what the second counts is
    /// left out.
    fn mixed(&self, other: &Weighed, parts: u64) -> Weighed {
        let share = |a: u64, b: u64| (a * parts + b * (PARTS - parts)) / PARTS;
        let mean = |a: &[u64], b: &[u64]| -> Vec<u64> {
            a.iter().zip(b).map(|(a, b)| share(*a, *b)).collect()
        };
        let readers = || self.only_to.iter().zip(&other.only_to);
        let others: Vec<u64> = readers()
            .zip(&other.moving)
            .map(|((one, other), weight)| match (one, other) {
                (Some(one), Some(other)) if one != other => 0,
                (Some(_) | None, Some(_) | None) => *weight,
            })
            .collect();
        Weighed {
            computing: mean(&self.computing, &other.computing),
            making: mean(&self.making, &other.making),
            sending: mean(&self.sending, &other.sending),
            moving: mean(&self.moving, &others),
            only_to: readers().map(|(one, other)| one.or(*other)).collect(),
            on_stream: mean(&self.on_stream, &other.on_stream),
            unit: self.unit,
        }
    }

    /// A problem in which every step takes what it counts for.
    pub(super) fn applied(
        &self,
        (mesh, streams): (&Mesh, &Streams),
        problem: &Factors,
        costs: &Costs,
    ) -> Factors {
        let mut weighed = problem.clone();
        let networks = streams.of_networks();
        let busy = |axes: AxisSet| -> u64 {
            let on = |stream: &usize| self.on_stream[*stream - networks.start];
            streams.of_axes(axes).iter().map(on).sum()
        };
        // A move of which nothing is known is over some axis.
        let axes = mesh.axes().iter().enumerate().filter(|(_, axis)| axis.size > 1);
        let least = axes.map(|(at, _)| busy(AxisSet::EMPTY.with(AxisId(at as u8)))).min();
        let least = least.unwrap_or(0);
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
            let longer = || {
                Arc::new(graph.counted(&|over| {
                    let on_streams = if over.is_empty() { least } else { busy(over) };
                    (self.moving[v] + on_streams) as i64
                }))
            };
            weighed.graphs[v] = Arc::clone(graphs.entry(key).or_insert_with(longer));
        }
        for id in &problem.live {
            if let Some(reader) = self.only_to[id.index()] {
                weighed.read_by_one(*id, reader);
            }
        }
        weighed
    }
}

/// Which of several long ops is begun first, or done last: a case of which every schedule is one.
///
/// What begins first begins when what it reads has been moved there, so that everything that waits
/// for one of them is behind that move. What is done last is moved when everything that one of them
/// waits for is done.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Chosen {
    is_first: bool,
    /// What is moved, and to which reader.
    moved: (ValueId, ValueId),
    /// The ops of which it is the first or the last.
    of: Vec<ValueId>,
}

/// So many cases are told apart.
const CASES: usize = 8;
/// An op is long that takes this part of what the longest takes.
const LONG: i64 = 8;
/// A bound this part of what is known below it is good enough not to look at cases.
const NEAR: u64 = 50;

/// Rounds over all sets, and how fine the last one is.
const ROUNDS: usize = 3;
const FINE: u64 = 500;

/// The best mean of some sets. A set is given case by case, and takes the least that any case does.
struct Climb<'l> {
    sets: Vec<(Picoseconds, Vec<Weighed>)>,
    best: Picoseconds,
    enough: Picoseconds,
    least: &'l mut dyn FnMut(&Weighed) -> Picoseconds,
}

impl Climb<'_> {
    /// What every case takes at least; what is no more than the best is not looked at further.
    fn least(&mut self, cases: &[Weighed]) -> Picoseconds {
        let mut found = Picoseconds(u64::MAX);
        for case in cases {
            found = found.min((self.least)(case));
            if found <= self.best {
                break;
            }
        }
        found
    }

    fn add(&mut self, sets: impl Iterator<Item = Vec<Weighed>>) {
        for set in sets.filter(|cases| !cases.is_empty()) {
            if self.sets.iter().all(|(_, known)| *known != set) {
                let best = std::mem::take(&mut self.best);
                let found = self.least(&set);
                self.best = best.max(found);
                self.sets.push((found, set));
            }
        }
    }

    /// The least is concave in what each set counts for: as long as more of one lifts it, it is
    /// given twice as much, and where that is too much half as much again. Set by set, until a
    /// round lifts it by no more than one part in [`FINE`].
    fn climb(&mut self) {
        self.sets.sort_by_key(|(least, _)| Reverse(*least));
        let Some((_, mut at)) = self.sets.first().cloned() else { return };
        let others: Vec<Vec<Weighed>> = self.sets.iter().map(|(_, set)| set.clone()).collect();
        for _ in 0..ROUNDS {
            let before = self.best;
            for other in &others {
                at = self.towards(at, other);
            }
            if self.best.0 - before.0 <= before.0 / FINE {
                break;
            }
        }
    }

    /// The best mean of two sets that is found.
    fn towards(&mut self, at: Vec<Weighed>, other: &[Weighed]) -> Vec<Weighed> {
        let mut better = None;
        let mut part = 2;
        while part < PARTS && self.best < self.enough {
            let Some(mixed) = mixed(&at, other, PARTS - part) else { break };
            let found = self.least(&mixed);
            if found > self.best {
                (self.best, better) = (found, Some(mixed));
                part *= 2;
            } else if better.is_some() && part.is_power_of_two() {
                part = part / 4 * 3;
            } else {
                break;
            }
        }
        better.unwrap_or(at)
    }
}

/// The mean of two sets, case by case; none where each has cases of its own.
fn mixed(one: &[Weighed], other: &[Weighed], parts: u64) -> Option<Vec<Weighed>> {
    match (one, other) {
        (_, [other]) => Some(one.iter().map(|one| one.mixed(other, parts)).collect()),
        ([one], _) => Some(other.iter().map(|other| one.mixed(other, parts)).collect()),
        (_, _) => None,
    }
}

/// The steps of all plans of a form, and which wait for which.
#[derive(Clone)]
pub(super) struct Steps<'a> {
    kernels: &'a Kernels,
    problem: &'a Factors,
    costs: &'a Costs,
    /// How many moves go on at the same time, at most.
    streams: u64,
    /// The streams of the network.
    links: usize,
    /// For each value the values that it is made from, itself among them.
    from: Vec<Vec<bool>>,
    /// Whether a value of a folded block is made from what the block takes, and goes into what it
    /// hands on: then everything of one application is before all of the next. So of each layer of
    /// a stack, where that is what is asked about; else true outside of blocks.
    in_line: Vec<bool>,
    /// Whether the question is about the layers of a stack, one after the other.
    is_stack: bool,
    /// The case that is looked at.
    chosen: Vec<Chosen>,
}

impl<'a> Steps<'a> {
    /// Those of one layer; with what a layer of a stack takes from the one before, those that no
    /// two layers do at the same time either.
    pub(super) fn of(
        kernels: &'a Kernels,
        (problem, costs): (&'a Factors, &'a Costs),
        streams: &Streams,
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
        let (links, is_stack) = (streams.of_networks().len(), stack.is_some());
        let streams = u64::from(streams.transfers_at_once());
        Steps {
            kernels,
            problem,
            costs,
            streams,
            links,
            from,
            in_line,
            is_stack,
            chosen: Vec::new(),
        }
    }

    fn is_before(&self, one: ValueId, other: ValueId) -> bool {
        self.from[other.index()][one.index()]
    }

    /// The values whose making waits for moves of a value, to one reader or all; `None` where a
    /// result is one of its readers.
    fn readers(&self, value: ValueId, only: Option<ValueId>) -> Option<Vec<ValueId>> {
        if let Some(reader) = only {
            return Some(vec![reader]);
        }
        let readers = self.problem.uses[value.index()].iter().map(|of| match of {
            Use::Operand(reader, _) => Some(*reader),
            Use::Output(_) => None,
        });
        readers.collect()
    }

    /// Whether everything that is done to make one value or to move it, to one reader or all, is
    /// over when another is made.
    fn moves_end_before(&self, (moved, only): (ValueId, Option<ValueId>), made: ValueId) -> bool {
        let begins_behind = |of: &Chosen| of.of.iter().any(|first| self.is_before(*first, made));
        self.readers(moved, only).is_some_and(|all| all.iter().all(|by| self.is_before(*by, made)))
            || self.case_of(moved, only).any(|of| of.is_first && begins_behind(of))
    }

    /// Whether a value is made when another one begins to be moved.
    fn is_made_before(&self, made: ValueId, (moved, only): (ValueId, Option<ValueId>)) -> bool {
        let is_done = |of: &Chosen| of.of.iter().any(|last| self.is_before(made, *last));
        self.is_before(made, moved)
            || self.case_of(moved, only).any(|of| !of.is_first && is_done(of))
    }

    /// Whether one value has been moved when another one begins to be moved.
    fn is_moved_before(
        &self,
        (one, to): (ValueId, Option<ValueId>),
        other: (ValueId, Option<ValueId>),
    ) -> bool {
        self.moves_end_before((one, to), other.0)
            || self
                .readers(one, to)
                .is_some_and(|all| all.iter().all(|reader| self.is_made_before(*reader, other)))
    }

    /// What the case says of moves of a value to a reader.
    fn case_of(&self, moved: ValueId, only: Option<ValueId>) -> impl Iterator<Item = &Chosen> {
        self.chosen.iter().filter(move |of| only.is_some_and(|only| of.moved == (moved, only)))
    }

    /// Whether no two instances of a step, in several applications of a block, are at once, nor one
    /// of them beside one of another step that waits for it or for which it waits.
    fn is_in_line(&self, step: Step) -> bool {
        match step {
            Step::Computing(value) | Step::Making(value) | Step::Sending(value) => {
                self.in_line[value.index()]
            }
            Step::Moving(value, only) => {
                let program = self.kernels.program.as_ref();
                let of_block = |by: &ValueId| program.value(*by).fold == program.value(value).fold;
                let in_line = |of: &Use| match of {
                    Use::Operand(by, _) => !of_block(by) || self.in_line[by.index()],
                    // The next layer takes the first result alone; no application waits for what
                    // is a result of the layer.
                    Use::Output(0) => program.value(value).fold.is_none(),
                    Use::Output(_) => program.value(value).fold.is_none() && !self.is_stack,
                };
                let counts = |of: &&Use| match (only, of) {
                    (Some(reader), Use::Operand(by, _)) => *by == reader,
                    (Some(_), Use::Output(_)) => false,
                    (None, Use::Operand(..) | Use::Output(_)) => true,
                };
                let mut uses = self.problem.uses[value.index()].iter().filter(counts);
                self.in_line[value.index()] && uses.all(in_line)
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
            // Moves to one reader come one after the other.
            (Step::Moving(a, of), Step::Moving(b, to)) if a == b => {
                let is_one = of.is_some() || self.problem.uses[a.index()].len() == 1;
                of == to && (self.streams == 1 || (waits && is_one))
            }
            (Step::Moving(a, of), Step::Moving(b, to)) => {
                let (one, other) = ((a, of), (b, to));
                let ends = self.is_moved_before(one, other) || self.is_moved_before(other, one);
                self.streams == 1 || (waits && ends)
            }
            (Step::Moving(..) | Step::Sending(_), Step::Sending(_))
            | (Step::Sending(_), Step::Moving(..)) => self.streams == 1,
            (Step::Moving(moved, to), Step::Computing(made) | Step::Making(made))
            | (Step::Computing(made) | Step::Making(made), Step::Moving(moved, to)) => {
                let moved = (moved, to);
                waits && (self.is_made_before(made, moved) || self.moves_end_before(moved, made))
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
        let mut weighed = Weighed::nothing(self.problem.factors.len(), self.links, unit);
        for step in set {
            match step {
                Step::Computing(value) => weighed.computing[value.index()] = unit,
                Step::Making(value) => weighed.making[value.index()] = unit,
                Step::Sending(value) => weighed.sending[value.index()] = unit,
                Step::Moving(value, only) => {
                    weighed.moving[value.index()] = unit;
                    weighed.only_to[value.index()] = *only;
                }
            }
        }
        weighed
    }

    fn unit(&self) -> u64 {
        16 * PARTS * self.streams
    }

    /// The largest of what some sets, and means of them, take at least; `least` says what that is.
    /// What is `enough` ends it.
    pub(super) fn largest(
        &self,
        path: &[ValueId],
        enough: Picoseconds,
        least: &mut dyn FnMut(&Weighed) -> Picoseconds,
    ) -> Picoseconds {
        let mut climb = Climb { sets: Vec::new(), best: Picoseconds(0), enough, least };
        let trunk = self.trunk();
        climb.add(self.sets(path, &trunk).into_iter().map(|set| vec![set]));
        climb.climb();
        let is_near = climb.best + Picoseconds(enough.0 / NEAR) >= enough;
        if !is_near {
            let chosen = self.choices(&trunk).into_iter().map(|chosen| {
                let steps = Steps { chosen, ..self.clone() };
                steps.weighed(&steps.around(&trunk))
            });
            climb.add(std::iter::once(chosen.collect()));
            climb.climb();
        }
        climb.best
    }

    /// Moves of a value, those to all of its readers or else to one.
    fn moves_of(&self, value: ValueId) -> impl Iterator<Item = Step> {
        let readers = self.problem.uses[value.index()].iter().filter_map(|of| match of {
            Use::Operand(reader, _) => Some(*reader),
            Use::Output(_) => None,
        });
        std::iter::once(None).chain(readers.map(Some)).map(move |only| Step::Moving(value, only))
    }

    /// The longest way from something given to the first result through ops of which each waits for
    /// the one before, the last first: what a layer does whatever moves beside it. Weights and
    /// caches are given from the beginning, so that no way begins with one.
    fn trunk(&self) -> Vec<ValueId> {
        let program = self.kernels.program.as_ref();
        let mut longest: Vec<Option<i64>> = Vec::with_capacity(program.values.len());
        let mut before: Vec<Option<ValueId>> = vec![None; program.values.len()];
        for id in program.value_ids() {
            let value = program.value(id);
            let way =
                value.def.operands().iter().filter_map(|by| Some((longest[by.index()]?, *by)));
            let last = way.max_by_key(|(time, by)| (*time, Reverse(*by)));
            let least = || self.costs.whole[id.index()].iter().copied().min().unwrap_or(0);
            longest.push(match &value.def {
                Def::Parameter { kind: ParameterKind::Activation, .. } => Some(0),
                Def::Parameter { .. } | Def::Constant(_) => None,
                Def::Pin { .. } | Def::Op { .. } => {
                    last.map(|(time, _)| time.saturating_add(least().min(FAR)))
                }
            });
            before[id.index()] = last.map(|(_, by)| by);
        }
        let last = program.outputs.first().map(|output| output.value);
        std::iter::successors(last, |id| before[id.index()]).collect()
    }

    /// The cases that are told apart along a way: where several long ops read one of its values,
    /// which of them begins first; where several go into one, which is done last.
    fn choices(&self, trunk: &[ValueId]) -> Vec<Vec<Chosen>> {
        let least = |id: ValueId| match self.is_op(id) && !self.is_fetch(id) {
            true => self.costs.whole[id.index()].iter().copied().min().filter(|least| *least < FAR),
            false => None,
        };
        let longest = self.problem.live.iter().filter_map(|id| least(*id)).max().unwrap_or(0);
        let is_long = |id: ValueId| least(id).is_some_and(|least| least > longest / LONG);
        let firsts = trunk.iter().rev().map(|id| {
            let readers = self.problem.uses[id.index()].iter().filter_map(|of| match of {
                Use::Operand(by, _) if is_long(*by) => Some((*id, *by)),
                Use::Operand(..) | Use::Output(_) => None,
            });
            (true, readers.collect::<Vec<_>>())
        });
        let lasts = trunk.iter().map(|id| (false, self.long_before(*id, &is_long)));
        let mut cases: Vec<Vec<Chosen>> = vec![Vec::new()];
        for (is_first, mut moves) in firsts.chain(lasts) {
            moves.sort_unstable();
            moves.dedup();
            let of_move = |(value, reader): &(ValueId, ValueId)| match is_first {
                true => *reader,
                false => *value,
            };
            let of: Vec<ValueId> = moves.iter().map(of_move).collect();
            let is_known =
                cases[0].iter().any(|known| (known.is_first, &known.of) == (is_first, &of));
            if moves.len() < 2 || is_known || cases.len() * moves.len() > CASES {
                continue;
            }
            let with = |case: Vec<Chosen>| {
                let of = of.clone();
                moves.clone().into_iter().map(move |moved| {
                    let chosen = Chosen { is_first, moved, of: of.clone() };
                    case.iter().cloned().chain([chosen]).collect()
                })
            };
            cases = cases.into_iter().flat_map(with).collect();
        }
        cases.retain(|case| !case.is_empty());
        cases
    }

    /// The long ops that go into a value through none but short ones, each with what reads it on
    /// the way.
    fn long_before(
        &self,
        value: ValueId,
        is_long: &dyn Fn(ValueId) -> bool,
    ) -> Vec<(ValueId, ValueId)> {
        let program = self.kernels.program.as_ref();
        let mut found = Vec::new();
        let mut seen = vec![false; program.values.len()];
        let mut left = vec![value];
        while let Some(by) = left.pop() {
            for operand in program.value(by).def.operands() {
                if is_long(*operand) {
                    found.push((*operand, by));
                } else if !std::mem::replace(&mut seen[operand.index()], true) {
                    left.push(*operand);
                }
            }
        }
        found
    }

    /// The moves that a case is about, what the cores do beside none of them, and what cannot go on
    /// beside any of that.
    fn around(&self, trunk: &[ValueId]) -> Vec<Step> {
        let mut set = Vec::new();
        let moved = self.chosen.iter().map(|of| Step::Moving(of.moved.0, Some(of.moved.1)));
        self.add(&mut set, moved);
        self.add(&mut set, self.computing());
        self.add(&mut set, self.moves_along(trunk));
        self.add(&mut set, self.problem.live.iter().rev().flat_map(|id| self.moves_of(*id)));
        set
    }

    /// The steps of a way: each value on it is moved to the next one, and made; then what cannot go
    /// on beside any of that.
    fn along(&self, path: &[ValueId]) -> Vec<Step> {
        let live = || self.problem.live.iter().copied();
        let mut of_path = Vec::new();
        self.add(&mut of_path, self.moves_along(path));
        let made = path.iter().filter(|id| self.is_op(**id));
        self.add(&mut of_path, made.map(|id| Step::Making(*id)));
        let fit = |set: &Vec<Step>, step: &Step| match step {
            Step::Computing(id) => !set.contains(&Step::Making(*id)),
            Step::Making(_) | Step::Sending(_) | Step::Moving(..) => true,
        };
        let moves = live().rev().flat_map(|id| self.moves_of(id));
        for step in self.computing().chain(moves) {
            if fit(&of_path, &step) && self.fits(&of_path, step) {
                of_path.push(step);
            }
        }
        of_path
    }

    /// Each value of a way on to the next one: to it alone where there are other readers.
    fn moves_along(&self, path: &[ValueId]) -> impl Iterator<Item = Step> {
        let readers = std::iter::once(None).chain(path.iter().copied().map(Some));
        path.iter().zip(readers).map(|(id, to)| {
            let is_read_by_one = self.problem.uses[id.index()].len() == 1;
            Step::Moving(*id, to.filter(|_| !is_read_by_one))
        })
    }

    fn is_op(&self, id: ValueId) -> bool {
        matches!(self.kernels.program.value(id).def, Def::Op { .. })
    }

    /// What the cores do.
    fn computing(&self) -> impl Iterator<Item = Step> {
        let ops = self.problem.live.iter().copied().filter(|id| self.is_op(*id));
        ops.filter(|id| !self.is_fetch(*id)).map(Step::Computing)
    }

    fn sets(&self, path: &[ValueId], trunk: &[ValueId]) -> Vec<Weighed> {
        let live = || self.problem.live.iter().copied();
        let sends = |id: &ValueId| self.costs.sending[id.index()].iter().any(|cost| *cost > 0);
        let to_all = || live().rev().map(|id| Step::Moving(id, None));
        let moving = || live().rev().flat_map(|id| self.moves_of(id));
        // Everything that the cores do, and what cannot go on beside any of it.
        let mut of_cores: Vec<Step> = self.computing().collect();
        self.add(&mut of_cores, path.iter().map(|id| Step::Moving(*id, None)));
        self.add(&mut of_cores, self.moves_along(path));
        self.add(&mut of_cores, self.moves_along(trunk));
        self.add(&mut of_cores, moving());
        // The critical path, and the longest way through ops.
        let ways = [path, trunk].map(|path| self.weighed(&self.along(path)));
        let mut sets = vec![self.weighed(&of_cores)];
        sets.extend(ways);
        // Everything that is sent; on one network also what cannot go on beside any of it.
        let none = || Weighed::nothing(self.problem.factors.len(), self.links, self.unit());
        if self.streams == 1 {
            let mut of_links: Vec<Step> = Vec::new();
            self.add(&mut of_links, to_all().chain(live().filter(sends).map(Step::Sending)));
            self.add(&mut of_links, self.computing());
            sets.push(self.weighed(&of_links));
        } else {
            let mut links = none();
            for id in live() {
                links.moving[id.index()] = self.unit() / self.streams;
                links.sending[id.index()] = self.unit() / self.streams;
            }
            sets.push(links);
        }
        // Each stream of the network by itself, and all alike.
        if self.links > 1 {
            for stream in 0..self.links {
                let mut links = none();
                links.on_stream[stream] = self.unit();
                sets.push(links);
            }
            let mut links = none();
            links.on_stream.fill(self.unit() / self.links as u64);
            sets.push(links);
        }
        sets
    }
}
