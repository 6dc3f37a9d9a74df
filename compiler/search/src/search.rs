//! Extraction: the plan of least cost in a saturated space, a shared value counted once.
//!
//! The search is an A* over *wants*, values in layouts. A state is the set of what is still wanted;
//! the first state wants the results. The last of the wanted values in program order is settled
//! next. All its readers are settled by then, so the set of layouts in which it is wanted is final,
//! and the cost of making it once and bringing it to all of these layouts is exact ([`Steiner`]).
//! Its operands are wanted from then on. A parameter is settled right before its first reader,
//! wherever it is declared: as long as a parameter is wanted, states that want it in different
//! layouts are different states. The bound on what a state is still to pay is the greater of two:
//! the sum of the [`LeastCosts`] of its wants, and what the prices of the branch say ([`Guided`]).

mod draft;
mod forks;
mod guided;
mod interned;
mod joined;
mod paths;
mod settling;
mod solution;
mod states;
mod trees;
mod ways;

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::{Def, LabelId, Layout, Picoseconds, Program, ValueId, never};

use crate::bound::LeastCosts;
use crate::cost::Cost;
use crate::emit::emit;
use crate::footprint::Holdings;
use crate::kernel::Kernels;
use crate::labels::layouts_of_label;
use crate::memory::{DeviceMemory, needed};
use crate::relax::Guide;
use crate::space::Space;
use crate::steiner::{KnownRows, Steiner};
use crate::strict::may_move_to;
use crate::table::{LayoutId, Producer, Tables, ValueTable};
use crate::{Limits, LowerError, SearchLimit};
use draft::Draft;
use guided::Guided;
use states::{
    Arrival, Arrivals, DIVE_AFTER, DIVE_AGAIN, OpenStates, Pick, Run, State, Want, WayToSettle,
};
pub(crate) use states::{MANY_ARRIVALS, MAX_TOO_LARGE};
use trees::KnownTrees;
use ways::WaysToSettle;

/// How a plan makes and moves one value.
#[derive(Clone, Debug)]
pub(crate) struct SettledValue {
    /// The layout in which it is made.
    pub(crate) made_in: LayoutId,
    /// What makes it, as an index into the producers of that layout.
    pub(crate) producer: usize,
    /// The moves from there, `(from, to)`, each after those that it starts from.
    pub(crate) moves: Vec<(LayoutId, LayoutId)>,
}

/// A plan as the search finds it.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// For each value, how the plan makes it; `None` for a value that the plan does not have.
    pub(crate) values: Vec<Option<SettledValue>>,
    /// The layout of each result.
    pub(crate) outputs: Vec<LayoutId>,
    /// The layout of each label.
    pub(crate) labels: Vec<Layout>,
    /// The cost, exact.
    pub(crate) cost: Cost,
}

/// What the search found.
#[derive(Clone)]
pub(crate) struct FoundPlans {
    /// Plans of equal time and equal elements touched, the best additive tie first. Never empty.
    pub(crate) solutions: Vec<Solution>,
    /// No plan of the region takes less.
    pub(crate) lower_bound: Picoseconds,
    /// The bound of the first state in which the layouts of all labels and results were decided.
    pub(crate) root_bound: Picoseconds,
    /// The limit that ended the search; `None` where it ended by itself.
    pub(crate) stopped_by: Option<SearchLimit>,
    /// Not all plans that tie were compared.
    pub(crate) ties_cut: bool,
}

/// What a search is asked for, and what prices have shown before it.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'g> {
    /// No plan takes less, in picoseconds.
    pub(crate) least: u64,
    /// Plans that take longer, in picoseconds, are not wanted; `None` where all are.
    pub(crate) upto: Option<u64>,
    /// What prices say of plans that are decided in part.
    pub(crate) guide: Option<&'g Guide>,
}

/// The layout of a label or of a result, which is decided before any value is settled.
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
    /// Whether values are moved by other trees than the cheapest, too, where memory is a
    /// constraint.
    pub(crate) all_trees: bool,
    /// The trees of moves that were listed, by the layouts in which a value is made and wanted.
    known_trees: KnownTrees,
    /// By how much the time of a plan that is wanted may exceed the bound of the first state, in
    /// picoseconds.
    slack: u64,
    /// For each op that joins the kernel of the maker of its operands unless a move comes between:
    /// those operands. Empty where memory is no constraint.
    joins: FxHashMap<ValueId, Vec<ValueId>>,
    slots: Vec<Slot>,
    label_ways: Vec<Rc<WaysToSettle>>,
    label_layouts: Vec<Vec<Layout>>,
    output_layouts: Vec<Vec<LayoutId>>,
    /// The ways of settling one value, by what is wanted of it.
    ways: FxHashMap<Box<[Want]>, Rc<WaysToSettle>>,
    steiner: FxHashMap<(ValueId, Vec<LayoutId>), Rc<Steiner>>,
    steiner_rows: FxHashMap<ValueId, KnownRows>,
    /// Some value was wanted in more layouts than one Steiner tree may have, so costs are too high
    /// and nothing is proven.
    approximate: bool,
    sought: Sought<'a>,
    /// The last run ended since all plans that were left take longer than is wanted.
    pub(crate) beyond: bool,
    /// Plans that fit and take this time or more may have been missed, since the last run passed
    /// over plans that do not fit, or since it ended at a limit.
    pub(crate) missed: Option<u64>,
    /// The last run passed over plans that do not fit.
    pub(crate) passed_over: bool,
    /// States that the last run expanded.
    pub(crate) expansions: usize,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        space: &'a Space,
        tables: &'a Tables,
        labels: Option<&[Layout]>,
        strict: bool,
        memory: Option<&'a DeviceMemory<'a>>,
        sought: Sought<'a>,
    ) -> Search<'a> {
        let kernels = Arc::clone(&space.kernels);
        let program = space.kernels.program.as_ref();
        let mut search = Search {
            program,
            least_costs: LeastCosts::new(&kernels, tables),
            guided: sought.guide.map(|guide| Guided::new(guide, &kernels, tables)),
            places: places(&kernels),
            kernels,
            tables,
            strict,
            memory,
            holdings: memory.map(|memory| Holdings::new(&space.kernels, tables, memory)),
            all_trees: true,
            known_trees: KnownTrees::default(),
            slack: u64::MAX,
            joins: FxHashMap::default(),
            slots: Vec::new(),
            label_ways: Vec::new(),
            label_layouts: Vec::new(),
            output_layouts: Vec::new(),
            ways: FxHashMap::default(),
            steiner: FxHashMap::default(),
            steiner_rows: FxHashMap::default(),
            approximate: false,
            sought,
            beyond: false,
            missed: None,
            passed_over: false,
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
            let free = WayToSettle {
                bound: Cost::ZERO,
                cost: Cost::ZERO,
                moves: Cost::ZERO,
                made_in: 0,
                producer: 0,
                priced: 0,
            };
            search.label_ways.push(Rc::new(WaysToSettle::of_slot(vec![free; layouts.len()])));
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

    /// The tables that are searched.
    pub(crate) fn tables(&self) -> &'a Tables {
        self.tables
    }

    /// Whether memory is a constraint.
    pub(crate) fn is_within_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Finds the best plans. Of the ways in which a state is reached `most_arrivals` are followed:
    /// 1 or [`MANY_ARRIVALS`].
    pub(crate) fn run(
        &mut self,
        limits: &Limits,
        most_arrivals: usize,
    ) -> Result<FoundPlans, LowerError> {
        self.missed = None;
        let mut run = Run { next_dive: DIVE_AFTER, most_arrivals, ..Run::default() };
        let rest = self.guided.as_ref().map_or(0, Guided::of_all);
        let root = Draft::root(rest);
        let key = root.key(&mut run.lists);
        self.open(root.state(key, &run.lists), &mut run.states, &mut run.open);
        if let (Some(upto), Some(Reverse((least, ..)))) = (self.sought.upto, run.open.peek()) {
            self.slack = upto.saturating_sub(least.time);
        }
        while let Some(Reverse((bound, _, number, pick))) = run.open.pop() {
            limits.stop.check_asked()?;
            if run.has_all_ties(bound, limits) {
                break;
            }
            self.beyond =
                run.goals.is_empty() && self.sought.upto.is_some_and(|upto| bound.time > upto);
            if self.beyond {
                break;
            }
            let decided = run.states[number].slots == self.slots.len();
            run.root_bound = run.root_bound.or(decided.then_some(bound.time));
            if self.is_goal(&run.states[number]) {
                self.reach(&mut run, number, bound.time)?;
                if run.too_large > MAX_TOO_LARGE {
                    break;
                }
                continue;
            }
            run.expansions += usize::from(pick.tree == 0);
            if self.dives_to_the_best(&mut run, number, pick, bound.time)?
                || self.stops_short(&mut run, number, pick, bound.time, limits)?
            {
                break;
            }
            self.expand(&mut run, number, pick);
        }
        self.found(run, limits)
    }

    /// Takes the whole plan of a state if it fits in memory, and passes it over if not.
    fn reach(&mut self, run: &mut Run, number: usize, time: u64) -> Result<(), LowerError> {
        let least = *run.lower_bound.get_or_insert(time);
        if run.states[number].rest > 0 {
            return Err(LowerError::Internal("prices say more of a plan than it takes".into()));
        }
        if run.states[number].is_vague {
            run.vague.get_or_insert(time);
            return Ok(());
        }
        if !self.fits(&run.states, number)? {
            run.too_large += 1;
            // Where many arrivals are followed, none of them is left out that leads to a plan as
            // fast as this one.
            self.missed = match run.most_arrivals {
                1 => Some(least),
                _ => (run.too_large > MAX_TOO_LARGE).then_some(time),
            };
            return Ok(());
        }
        if run.goals.is_empty() && run.may_have_missed(least, time) {
            run.stopped_by = Some(SearchLimit::Memory);
        }
        run.goals.push(number);
        Ok(())
    }

    /// Now and then looks for a plan straight ahead. A plan that takes no more than the bound is
    /// the best, however many tie with it: the search then ends. Returns whether it does.
    fn dives_to_the_best(
        &mut self,
        run: &mut Run,
        number: usize,
        pick: Pick,
        time: u64,
    ) -> Result<bool, LowerError> {
        if run.expansions != run.next_dive || !run.goals.is_empty() {
            return Ok(false);
        }
        run.next_dive *= DIVE_AGAIN;
        let least = time.max(self.sought.least);
        let Some(goal) = self.straight_ahead(run, number, pick)? else { return Ok(false) };
        if run.states[goal].cost.time > least {
            return Ok(false);
        }
        let known = *run.lower_bound.get_or_insert(least);
        if run.may_have_missed(known, run.states[goal].cost.time) {
            run.stopped_by = Some(SearchLimit::Memory);
        }
        run.ties_cut = true;
        run.goals.push(goal);
        Ok(true)
    }

    /// The best plan that fits of the plan straight ahead and of those found so before.
    fn straight_ahead(
        &mut self,
        run: &mut Run,
        number: usize,
        pick: Pick,
    ) -> Result<Option<usize>, LowerError> {
        let goal = self.dive(run, number, pick);
        let is_better = |states: &[State], goal: usize, known: Option<usize>| {
            known.is_none_or(|known| states[goal].cost < states[known].cost)
        };
        if let Some(goal) = goal
            && is_better(&run.states, goal, run.straight)
            && self.fits(&run.states, goal)?
        {
            run.straight = Some(goal);
        }
        Ok(run.straight)
    }

    /// Whether a limit ends the search before it has a plan. The search then takes the best plan
    /// that was found straight ahead, if there is one.
    fn stops_short(
        &mut self,
        run: &mut Run,
        number: usize,
        pick: Pick,
        time: u64,
        limits: &Limits,
    ) -> Result<bool, LowerError> {
        let out_of_time = limits.stop.is_time_up();
        if !(out_of_time || run.expansions > limits.expansions) || !run.goals.is_empty() {
            return Ok(false);
        }
        run.stopped_by =
            Some(if out_of_time { SearchLimit::Time } else { SearchLimit::Expansions });
        let least = *run.lower_bound.get_or_insert(time);
        self.missed = self.missed.or(self.memory.map(|_| least));
        let goal = self.straight_ahead(run, number, pick)?;
        run.goals.extend(goal);
        Ok(true)
    }

    /// Puts the state that follows by a pick on the heap, and the next pick of the state itself.
    fn expand(&mut self, run: &mut Run, number: usize, pick: Pick) {
        // A vague plan was reached already: all other vague plans take as long or longer.
        if run.states[number].is_vague && run.vague.is_some() {
            return;
        }
        if pick.tree == 0 {
            self.wait(run, number, Pick { way: pick.way + 1, ..pick });
        } else if self.lists_more(&run.states[number], pick) {
            return self.wait(run, number, pick);
        }
        let Run { states, draft, .. } = run;
        let is_drafted = self.draft(draft, states, number, pick).is_some();
        let held = Some(&draft.held).filter(|_| is_drafted);
        if self.may_hold_less(&states[number], pick, held, &mut run.unmoved) {
            self.wait(run, number, Pick { tree: pick.tree + 1, ..pick });
        }
        if !is_drafted {
            return;
        }
        let Run { draft, lists, .. } = run;
        let (key, most) = (draft.key(lists), run.most_arrivals);
        let is_left_out = |known: &Arrivals| known.does_without(draft.cost, &draft.held, most);
        if draft.is_vague
            && (run.vague.is_some() || run.reached.get(&key.sure()).is_some_and(is_left_out))
        {
            return;
        }
        let arrival = |child: &State| Arrival { cost: child.cost, held: Rc::clone(&child.held) };
        let child = match run.reached.entry(key) {
            Entry::Vacant(first) => {
                let child = draft.state(key, lists);
                first.insert(Arrivals::by(arrival(&child)));
                child
            }
            Entry::Occupied(known) if is_left_out(known.get()) => return,
            Entry::Occupied(known) => {
                let child = draft.state(key, lists);
                known.into_mut().add(arrival(&child), most);
                child
            }
        };
        self.open(child, &mut run.states, &mut run.open);
    }

    /// Puts a state on the heap to wait for one of its picks, if it has that pick.
    fn wait(&self, run: &mut Run, number: usize, pick: Pick) {
        let state = &run.states[number];
        if (pick.way as usize) < state.ways.all.len()
            && let Some(bound) = self.bound(state, pick)
        {
            run.open.push(Reverse((bound, u32::MAX - state.depth, number, pick)));
        }
    }

    /// The result of a run that has ended.
    fn found(&mut self, run: Run, limits: &Limits) -> Result<FoundPlans, LowerError> {
        let mut stopped_by = run.stopped_by;
        self.expansions = run.expansions;
        self.passed_over = run.too_large > 0;
        self.missed = self.missed.into_iter().chain(run.vague).min();
        if run.goals.is_empty() {
            return Err(match stopped_by {
                _ if run.too_large > MAX_TOO_LARGE => limits.reached(SearchLimit::Memory),
                Some(limit) => limits.reached(limit),
                None => self.unreachable(),
            });
        }
        self.missed = self.missed.filter(|_| stopped_by == Some(SearchLimit::Memory));
        if self.approximate && stopped_by.is_none() {
            stopped_by = Some(SearchLimit::WantedLayouts);
        }
        let solutions = run
            .goals
            .iter()
            .map(|goal| self.solution(&run.states, *goal))
            .collect::<Result<Vec<_>, _>>()?;
        let lower_bound = run.lower_bound.unwrap_or_else(|| never!("plans without a bound", 0));
        let lower_bound = Picoseconds(lower_bound);
        Ok(FoundPlans {
            root_bound: Picoseconds(run.root_bound.unwrap_or(0)).min(lower_bound),
            solutions,
            lower_bound,
            stopped_by,
            ties_cut: run.ties_cut,
        })
    }

    /// Whether a whole plan fits in memory; true where memory is no constraint.
    fn fits(&self, states: &[State], goal: usize) -> Result<bool, LowerError> {
        let Some(memory) = self.memory else { return Ok(true) };
        let solution = self.solution(states, goal)?;
        let needed = needed(&emit(&self.kernels, self.tables, &solution)?.plan);
        match self.holdings.as_ref().map_or(0, |holdings| holdings.needed(&states[goal].held)) {
            least if least <= needed => Ok(memory.holds(needed)),
            least => Err(LowerError::Internal(format!(
                "a plan of {needed} bytes that holds {least} at least"
            ))),
        }
    }

    fn is_goal(&self, state: &State) -> bool {
        state.slots == self.slots.len() && state.wants.is_empty()
    }

    /// Works out the ways of settling what a state wants next, and puts it on the heap.
    fn open(&mut self, mut state: State, states: &mut Vec<State>, open: &mut OpenStates) {
        state.ways = self.ways(&state);
        let whole = self.is_goal(&state);
        let first = Pick::default();
        let bound = if state.ways.all.is_empty() {
            whole.then_some(state.cost)
        } else {
            self.bound(&state, first)
        };
        if let Some(bound) = bound {
            open.push(Reverse((bound, u32::MAX - state.depth, states.len(), first)));
        }
        states.push(state);
    }

    /// Takes the way of best bound again and again, from a state on. Returns the plan that this
    /// leads to, which may not be the best; `None` where it leads to none.
    fn dive(&mut self, run: &mut Run, mut number: usize, mut pick: Pick) -> Option<usize> {
        let Run { states, draft, lists, .. } = run;
        loop {
            if states[number].is_vague {
                return None;
            }
            if self.is_goal(&states[number]) {
                return Some(number);
            }
            let ways = states[number].ways.all.len() as u32;
            let others = (pick.way + 1..ways).map(|way| Pick { way, tree: 0 });
            std::iter::once(pick)
                .filter(|pick| pick.way < ways)
                .chain(others)
                .find(|pick| self.draft(draft, states, number, *pick).is_some())?;
            let mut child = draft.state(draft.key(lists), lists);
            child.ways = self.ways(&child);
            states.push(child);
            number = states.len() - 1;
            pick = Pick::default();
        }
    }

    /// The error that says which value or result cannot be had as it is demanded. It names none
    /// where each can be had, and not all of them together.
    fn unreachable(&self) -> LowerError {
        // For each value and layout, whether it can be made so, and whether it can be had by moves.
        let (mut made, mut moved) = (Vec::new(), Vec::new());
        for (id, table) in self.program.value_ids().zip(&self.tables.values) {
            let read = if self.strict && !may_move_to(self.program, id) { &made } else { &moved };
            let is_there = |(value, layout): &(ValueId, LayoutId)| {
                let of: &Vec<bool> = &read[value.index()];
                of[*layout as usize]
            };
            let can_make = |all: &Vec<Producer>| all.iter().any(|p| p.reads.iter().all(is_there));
            let of_value: Vec<bool> = table.producers.iter().map(can_make).collect();
            if self.kernels.live[id.index()] && !of_value.contains(&true) {
                return LowerError::Unreachable { value: Some(id), output: None };
            }
            moved.push(by_moves(table, of_value.clone()));
            made.push(of_value);
        }
        let had = if self.strict { &made } else { &moved };
        let mut outputs = self.program.outputs.iter().zip(&self.output_layouts).enumerate();
        let lacking = outputs.find(|(_, (output, layouts))| {
            layouts.iter().all(|layout| !had[output.value.index()][*layout as usize])
        });
        LowerError::Unreachable {
            value: lacking.map(|(_, (output, _))| output.value),
            output: lacking.map(|(at, _)| at),
        }
    }
}

/// The layouts in which a value can be had by moves, given those in which it can be made.
fn by_moves(table: &ValueTable, mut had: Vec<bool>) -> Vec<bool> {
    let mut open: Vec<usize> = (0..had.len()).filter(|at| had[*at]).collect();
    while let Some(at) = open.pop() {
        for (to, _) in &table.arcs_from[at] {
            if !std::mem::replace(&mut had[*to as usize], true) {
                open.push(*to as usize);
            }
        }
    }
    had
}

/// For each value its place in the order of settling: behind all that the value is made from, and
/// before all that reads it. The place of a parameter or a number is right before its first reader.
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
