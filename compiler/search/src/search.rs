//! Extraction: the plan of least cost in a saturated space, a shared value counted once.
//!
//! A* over *demands*. A state is a set of wanted things, each a value in a layout, to begin with
//! the results. The last of the wanted values in program order is settled next: all its readers are
//! settled, so the set of layouts wanted of it is final, and what it costs to make it once and
//! bring it to all of them is exact ([`Steiner`]). Its operands are wanted then. A parameter stands
//! right before its first reader, wherever it is declared: as long as it is wanted, states that
//! want it in different layouts are different states, though nothing else may tell them apart. The
//! bound on what is still to be paid is the sum of the [`LeastCosts`] of all open demands, or what
//! the prices of the branch say ([`Guided`]), whichever is more.

mod choices;
mod guided;
mod joined;
mod solution;
mod states;

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::{Def, LabelId, Layout, Picoseconds, Program, ValueId};

use crate::bound::{LeastCosts, is_finite};
use crate::cost::Cost;
use crate::emit::emit;
use crate::footprint::{Footprint, Holdings};
use crate::kernel::Kernels;
use crate::labels::{label_layout, layouts_of_label};
use crate::memory::{DeviceMemory, needed};
use crate::relax::Guide;
use crate::space::Space;
use crate::steiner::Steiner;
use crate::strict::may_move_to;
use crate::table::{LayoutId, Tables};
use crate::{Limits, LowerError, TIME_LIMIT};
use guided::Guided;
pub use states::MEMORY_LIMIT;
use states::{Choice, DIVE_AFTER, DIVE_AGAIN, Decision, MAX_TOO_LARGE, Open, Run, Visit, Want};
pub(crate) use states::{EXPANSIONS, MANY_WAYS};

/// What is settled of one value in a plan.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// The layout in which it is made.
    pub(crate) made_in: LayoutId,
    /// How, as an index into the producers of that layout.
    pub(crate) producer: usize,
    /// The moves from there, `(from, to)`, each after those that it starts from.
    pub(crate) moves: Vec<(LayoutId, LayoutId)>,
}

/// A plan as the search finds it.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// For each value that the plan has, how it comes about.
    pub(crate) values: Vec<Option<Settled>>,
    /// The layout of each result.
    pub(crate) outputs: Vec<LayoutId>,
    /// The layout of each label.
    pub(crate) labels: Vec<Layout>,
    /// The cost, exact.
    pub(crate) cost: Cost,
}

/// What the search found.
pub(crate) struct Found {
    /// Plans of equal time and equal elements touched, the best additive tie first. Never empty.
    pub(crate) solutions: Vec<Solution>,
    /// No plan takes less.
    pub(crate) lower_bound: Picoseconds,
    /// The bound before anything was expanded.
    pub(crate) root_bound: Picoseconds,
    /// The limit that stopped it.
    pub(crate) stopped_by: Option<&'static str>,
    /// Not all ties were compared.
    pub(crate) ties_cut: bool,
}

/// One thing to decide, before any value: a label's layout or a result's.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Label(LabelId),
    Output(usize),
}

pub(crate) struct Search<'a> {
    program: &'a Program,
    kernels: Arc<Kernels>,
    tables: &'a Tables,
    least_costs: LeastCosts,
    guided: Option<Guided<'a>>,
    /// The place of each value in the order in which values are settled, from the last.
    places: Vec<u32>,
    strict: bool,
    /// What plans must fit in; `None` where memory is no constraint.
    memory: Option<&'a DeviceMemory<'a>>,
    holdings: Option<Holdings<'a>>,
    /// For each op that joins the kernel of what makes its operands where no move comes between:
    /// those operands. Noted where memory is a constraint.
    joins: FxHashMap<ValueId, Vec<ValueId>>,
    slots: Vec<Slot>,
    label_choices: Vec<Rc<Vec<Choice>>>,
    label_layouts: Vec<Vec<Layout>>,
    output_layouts: Vec<Vec<LayoutId>>,
    choices: FxHashMap<Vec<Want>, Rc<Vec<Choice>>>,
    steiner: FxHashMap<(ValueId, Vec<LayoutId>), Rc<Steiner>>,
    approximate: bool,
    /// No plan takes less, in picoseconds, as prices have shown.
    least: u64,
    /// Plans that take longer, in picoseconds, are not wanted.
    upto: Option<u64>,
    /// All that is left takes longer than that.
    pub(crate) beyond: bool,
    /// Plans that fit may have been missed, which take this time or more: others were passed over
    /// that leave no room, or the search ended.
    pub(crate) missed: Option<u64>,
    /// States that the last run expanded.
    pub(crate) expansions: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        space: &Space,
        tables: &'a Tables,
        program: &'a Program,
        labels: Option<&[Layout]>,
        strict: bool,
        memory: Option<&'a DeviceMemory<'a>>,
        (least, upto, guide): (u64, Option<u64>, Option<&'a Guide>),
    ) -> Search<'a> {
        let kernels = Arc::clone(&space.kernels);
        let mut search = Search {
            program,
            least_costs: LeastCosts::new(&kernels, tables),
            guided: guide.map(|guide| Guided::new(guide, &kernels, tables)),
            places: places(&kernels),
            kernels,
            tables,
            strict,
            memory,
            holdings: memory.map(|memory| Holdings::new(program, tables, memory)),
            joins: FxHashMap::default(),
            slots: Vec::new(),
            label_choices: Vec::new(),
            label_layouts: Vec::new(),
            output_layouts: Vec::new(),
            choices: FxHashMap::default(),
            steiner: FxHashMap::default(),
            approximate: false,
            least,
            upto,
            beyond: false,
            missed: None,
            expansions: 0,
        };
        if memory.is_some() {
            search.joins = joined::joins(&search.kernels);
        }
        for label in 0..program.labels.len() as u16 {
            let layouts = match labels {
                Some(fixed) => vec![fixed[label as usize]],
                None => layouts_of_label(program, LabelId(label)),
            };
            search.slots.push(Slot::Label(LabelId(label)));
            let free =
                Choice { bound: Cost::ZERO, cost: Cost::ZERO, made_in: 0, producer: 0, priced: 0 };
            search.label_choices.push(Rc::new(vec![free; layouts.len()]));
            search.label_layouts.push(layouts);
        }
        for (i, output) in program.outputs.iter().enumerate() {
            let layouts = space.candidates(output.value, &output.pattern);
            let table = tables.of(output.value);
            search
                .output_layouts
                .push(layouts.into_iter().filter_map(|l| table.id_of(l)).collect());
            search.slots.push(Slot::Output(i));
        }
        search
    }

    /// The best plans; `ways` is how many ways to reach a state are followed, 1 or [`MANY_WAYS`].
    pub(crate) fn run(&mut self, limits: &Limits, ways: usize) -> Result<Found, LowerError> {
        self.missed = None;
        let mut run = Run { next_dive: DIVE_AFTER, ways, ..Run::default() };
        let rest = self.guided.as_ref().map_or(0, Guided::of_all);
        self.open(Visit::root(rest), &mut run.visits, &mut run.open);
        while let Some(Reverse((bound, _, visit, choice))) = run.open.pop() {
            limits.stop.check_asked()?;
            if run.has_all_ties(bound, limits) {
                break;
            }
            self.beyond = run.goals.is_empty() && self.upto.is_some_and(|upto| bound.time > upto);
            if self.beyond {
                break;
            }
            let decided = run.visits[visit].slots == self.slots.len();
            run.root_bound = run.root_bound.or(decided.then_some(bound.time));
            if self.is_goal(&run.visits[visit]) {
                self.reach(&mut run, visit, bound.time)?;
                if run.too_large > MAX_TOO_LARGE {
                    break;
                }
                continue;
            }
            run.expansions += 1;
            if self.dives_to_the_best(&mut run, (visit, choice), bound.time)?
                || self.stops_short(&mut run, (visit, choice), bound.time, limits)?
            {
                break;
            }
            self.expand(&mut run, visit, choice);
        }
        self.found(run, limits)
    }

    /// Takes a whole plan if it fits in memory, and passes it over if not.
    fn reach(&mut self, run: &mut Run, visit: usize, time: u64) -> Result<(), LowerError> {
        let least = *run.lower_bound.get_or_insert(time);
        if run.visits[visit].rest > 0 {
            return Err(LowerError::Internal("prices say more of a plan than it takes".into()));
        }
        if !self.fits(&run.visits, visit)? {
            run.too_large += 1;
            // Where many ways are followed none is left out that leads to a plan as fast as this
            // one.
            self.missed = match run.ways {
                1 => Some(least),
                _ => (run.too_large > MAX_TOO_LARGE).then_some(time),
            };
            return Ok(());
        }
        if time > least && run.goals.is_empty() && run.ways == 1 {
            // Plans that were passed over may have kept others, as fast as they are, from being
            // looked at.
            run.stopped_by = Some(MEMORY_LIMIT);
        }
        run.goals.push(visit);
        Ok(())
    }

    /// Now and then looks for a plan straight ahead: one that takes no more than any plan must is
    /// the best, however many tie with it.
    fn dives_to_the_best(
        &mut self,
        run: &mut Run,
        (visit, choice): (usize, usize),
        time: u64,
    ) -> Result<bool, LowerError> {
        if run.expansions != run.next_dive || !run.goals.is_empty() {
            return Ok(false);
        }
        run.next_dive *= DIVE_AGAIN;
        let least = time.max(self.least);
        let Some(goal) = self.dive(visit, choice, &mut run.visits) else { return Ok(false) };
        if run.visits[goal].cost.time > least || !self.fits(&run.visits, goal)? {
            return Ok(false);
        }
        run.lower_bound.get_or_insert(least);
        run.ties_cut = true;
        run.goals.push(goal);
        Ok(true)
    }

    /// Whether a limit ends the search before it has a plan; then it takes the one straight ahead,
    /// if there is one.
    fn stops_short(
        &mut self,
        run: &mut Run,
        (visit, choice): (usize, usize),
        time: u64,
        limits: &Limits,
    ) -> Result<bool, LowerError> {
        let out_of_time = limits.stop.is_time_up();
        if !(out_of_time || run.expansions > limits.expansions) || !run.goals.is_empty() {
            return Ok(false);
        }
        run.stopped_by = Some(if out_of_time { TIME_LIMIT } else { EXPANSIONS });
        let least = *run.lower_bound.get_or_insert(time);
        self.missed = self.missed.or(self.memory.map(|_| least));
        if let Some(goal) = self.dive(visit, choice, &mut run.visits) {
            run.goals.extend(self.fits(&run.visits, goal)?.then_some(goal));
        }
        Ok(true)
    }

    /// Puts the state after a choice on the heap, and the next choice of the state itself.
    fn expand(&mut self, run: &mut Run, visit: usize, choice: usize) {
        if choice + 1 < run.visits[visit].choices.len() {
            let next = self.bound(&run.visits[visit], choice + 1);
            run.open.push(Reverse((next, u32::MAX - run.visits[visit].depth, visit, choice + 1)));
        }
        let Some(child) = self.child(&run.visits, visit, choice) else { return };
        let state =
            (child.slots, child.labels.clone(), child.wants.clone(), child.held.uses().to_vec());
        let known = run.reached.entry(state).or_default();
        if known.takes(child.cost, &child.held, run.ways) {
            self.open(child, &mut run.visits, &mut run.open);
        }
    }

    /// What the search came to.
    fn found(&mut self, run: Run, limits: &Limits) -> Result<Found, LowerError> {
        let mut stopped_by = run.stopped_by;
        self.expansions = run.expansions;
        if run.goals.is_empty() {
            return Err(match stopped_by {
                _ if run.too_large > MAX_TOO_LARGE => {
                    LowerError::Limit { limit: MEMORY_LIMIT, count: MAX_TOO_LARGE }
                }
                Some(TIME_LIMIT) => LowerError::OutOfTime,
                Some(_) => LowerError::Limit { limit: EXPANSIONS, count: limits.expansions },
                None => self.unreachable(),
            });
        }
        self.missed = self.missed.filter(|_| stopped_by == Some(MEMORY_LIMIT));
        if self.approximate && stopped_by.is_none() {
            stopped_by = Some("wanted layouts of one value");
        }
        let solutions = run
            .goals
            .iter()
            .map(|goal| self.solution(&run.visits, *goal))
            .collect::<Result<Vec<_>, _>>()?;
        let lower_bound = Picoseconds(run.lower_bound.unwrap_or(0));
        Ok(Found {
            root_bound: Picoseconds(run.root_bound.unwrap_or(0)).min(lower_bound),
            solutions,
            lower_bound,
            stopped_by,
            ties_cut: run.ties_cut,
        })
    }

    /// Whether a whole plan fits in memory, where it must.
    fn fits(&mut self, visits: &[Visit], goal: usize) -> Result<bool, LowerError> {
        let Some(memory) = self.memory else { return Ok(true) };
        let solution = self.solution(visits, goal)?;
        let needed = needed(&emit(&self.kernels, self.tables, &solution)?.plan);
        match self.holdings.as_ref().map_or(0, |holdings| holdings.needed(&visits[goal].held)) {
            least if least <= needed => Ok(memory.holds(needed)),
            least => Err(LowerError::Internal(format!(
                "a plan of {needed} bytes that holds {least} at least"
            ))),
        }
    }

    fn is_goal(&self, visit: &Visit) -> bool {
        visit.slots == self.slots.len() && visit.wants.is_empty()
    }

    /// Puts a state on the heap, with its choices worked out.
    fn open(&mut self, mut visit: Visit, visits: &mut Vec<Visit>, open: &mut Open) {
        visit.choices = self.choices(&visit);
        let whole = self.is_goal(&visit);
        if whole || !visit.choices.is_empty() {
            let bound = if whole { visit.cost } else { self.bound(&visit, 0) };
            open.push(Reverse((bound, u32::MAX - visit.depth, visits.len(), 0)));
        }
        visits.push(visit);
    }

    /// The state after a choice; `None` where labels or memory forbid it.
    fn child(&self, visits: &[Visit], parent: usize, choice: usize) -> Option<Visit> {
        let visit = &visits[parent];
        let picked = visit.choices[choice];
        let mut child = Visit {
            parent,
            decision: Decision::Root,
            slots: visit.slots,
            labels: visit.labels.clone(),
            wants: visit.wants.clone(),
            to_come: visit.to_come.clone(),
            rest: visit.rest.saturating_add(picked.priced),
            cost: visit.cost + picked.cost,
            held: Footprint::default(),
            depth: visit.depth + 1,
            choices: Rc::new(Vec::new()),
        };
        match self.slots.get(visit.slots) {
            Some(Slot::Label(label)) => {
                let layout = self.label_layouts[label.0 as usize][choice];
                child.labels.push(layout);
                child.decision = Decision::Label;
                child.slots += 1;
                child.held = visit.held.clone();
            }
            Some(Slot::Output(i)) => {
                let output = &self.program.outputs[*i];
                let table = self.tables.of(output.value);
                if let Some(label) = output.pattern.label {
                    let dims = &self.program.value(output.value).dims;
                    let layout = label_layout(dims, table.layouts[picked.made_in as usize]);
                    if child.labels[label.0 as usize] != layout {
                        return None;
                    }
                }
                child.decision = Decision::Output(picked.made_in);
                child.slots += 1;
                if let Some(holdings) = &self.holdings {
                    child.held = holdings.with_output(&visit.held, output.value, picked.made_in);
                }
                let paid = self.guided.as_ref().and_then(|guided| {
                    let layout = table.layouts[picked.made_in as usize];
                    guided.for_output(*i, output.value, layout)
                });
                let wanted = (output.value, picked.made_in);
                self.want(&mut child, wanted, paid, self.strict, false);
            }
            None => {
                let value = visit.wants.last()?.value;
                let producer =
                    &self.tables.of(value).producers[picked.made_in as usize][picked.producer];
                if producer
                    .labels
                    .iter()
                    .any(|(label, layout)| child.labels[label.0 as usize] != *layout)
                {
                    return None;
                }
                let mut unmoved = false;
                if let Some(holdings) = &self.holdings {
                    let moves = self.moves(value, &visit.wants, picked.made_in);
                    unmoved = moves.is_empty();
                    if unmoved
                        && self.is_joined(&visit.wants, value, picked.made_in, producer.source)
                    {
                        return None;
                    }
                    child.held = holdings.with_settled(
                        &visit.held,
                        value,
                        (picked.made_in, producer, &moves),
                    )?;
                }
                child.decision = Decision::Value(value, picked);
                child.wants.retain(|w| w.value != value);
                if let Some(guided) = &self.guided {
                    let known = child.to_come.iter().find(|(v, ..)| *v == value);
                    let known = known.map_or(0, |(.., paid)| *paid);
                    let taken = guided.ticks(picked.cost.time);
                    child.rest = child.rest.saturating_sub(known).saturating_sub(taken);
                }
                child.to_come.retain(|(v, ..)| *v != value);
                let direct = self.strict && !may_move_to(self.program, value);
                let joined = self.joined_by(value, producer.source, &visit.wants, unmoved);
                let paid = self.guided.as_ref().map(|guided| guided.for_reads(value, producer));
                for (n, (operand, layout)) in producer.reads.iter().enumerate() {
                    let joins = joined.contains(operand);
                    let paid = paid.as_ref().and_then(|paid| paid[n]);
                    self.want(&mut child, (*operand, *layout), paid, direct, joins);
                }
            }
        }
        Some(child)
    }

    fn want(
        &self,
        visit: &mut Visit,
        (value, layout): (ValueId, LayoutId),
        paid: Option<i64>,
        direct: bool,
        joins: bool,
    ) {
        let want = Want { place: self.places[value.index()], value, layout, direct, joins };
        if let Err(place) = visit.wants.binary_search(&want) {
            visit.wants.insert(place, want);
        }
        let (least, paid) = (self.least_costs.of(value, layout), paid.unwrap_or(0));
        match visit.to_come.iter_mut().find(|(v, ..)| *v == value) {
            Some((_, sum, all)) => (*sum, *all) = (*sum + least, all.saturating_add(paid)),
            None => visit.to_come.push((value, least, paid)),
        }
    }

    /// From a state, the choice of best bound again and again: a plan, perhaps not the best.
    fn dive(
        &mut self,
        mut visit: usize,
        mut choice: usize,
        visits: &mut Vec<Visit>,
    ) -> Option<usize> {
        loop {
            if self.is_goal(&visits[visit]) {
                return Some(visit);
            }
            let child = loop {
                if choice >= visits[visit].choices.len() {
                    return None;
                }
                match self.child(visits, visit, choice) {
                    Some(child) => break child,
                    None => choice += 1,
                }
            };
            let mut child = child;
            child.choices = self.choices(&child);
            visits.push(child);
            visit = visits.len() - 1;
            choice = 0;
        }
    }

    /// Which demand cannot be met.
    fn unreachable(&self) -> LowerError {
        for id in self.program.value_ids().filter(|id| self.kernels.live[id.index()]) {
            let table = self.tables.of(id);
            if (0..table.layouts.len() as LayoutId)
                .all(|layout| !is_finite(self.least_costs.of(id, layout)))
            {
                return LowerError::Unreachable { value: Some(id), output: None };
            }
        }
        let last = self.program.outputs.len().saturating_sub(1);
        let value = self.program.outputs.get(last).map_or(ValueId(0), |o| o.value);
        LowerError::Unreachable { value: Some(value), output: Some(last) }
    }
}

/// For each value a place behind all that it is made from, and before all that reads it: that of a
/// parameter or a number is right before its first reader.
fn places(kernels: &Kernels) -> Vec<u32> {
    let program = &kernels.program;
    let mut places: Vec<u32> = program.value_ids().map(|id| 2 * id.0 + 1).collect();
    for id in program.value_ids().rev().filter(|id| kernels.live[id.index()]) {
        for operand in program.value(id).def.operands() {
            if matches!(program.value(*operand).def, Def::Parameter { .. } | Def::Constant(_)) {
                places[operand.index()] = 2 * id.0;
            }
        }
    }
    places
}
