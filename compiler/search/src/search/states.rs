//! The states of the search: what is decided and what is wanted in each, and the ways in which it
//! was reached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId};

use super::interned::Interned;
use super::ways::Ways;
use crate::Limits;
use crate::cost::Cost;
use crate::footprint::{Footprint, Sketch, Use};
use crate::table::LayoutId;

/// After so many states a plan is looked for straight ahead, and again after so many times as many.
pub(super) const DIVE_AFTER: usize = 2_000;
pub(super) const DIVE_AGAIN: usize = 4;

/// Plans that tie are compared up to this many.
pub(super) const MAX_TIES: usize = 64;

/// The limit on plans that are passed over because they need too much memory.
pub const MEMORY_LIMIT: &str = "memory";

/// The limit on states that are expanded.
pub(crate) const EXPANSIONS: &str = "expansions";

/// So many plans that need too much memory are passed over.
pub(super) const MAX_TOO_LARGE: usize = 32;

/// Of the ways to reach a state, this many of least cost are followed where plans are passed over:
/// more than plans are, so that for each way that is not followed a plan as cheap is found to fit,
/// or the search ends. One is enough where every plan fits.
pub(crate) const MANY_WAYS: usize = MAX_TOO_LARGE + 1;

/// A value wanted in a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Want {
    /// The place of the value in the order in which values are settled, from the last.
    pub(super) place: u32,
    pub(super) value: ValueId,
    pub(super) layout: LayoutId,
    /// The layer is strict, and no move may come between.
    pub(super) direct: bool,
    /// What reads it joins the kernel that makes it if nothing moves it: where memory is a
    /// constraint, such a way is left to those that have the two as one kernel.
    pub(super) joins: bool,
}

// In two words: a search hashes some ten wants for each state that it looks at.
impl Hash for Want {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let flags = u64::from(self.direct) | u64::from(self.joins) << 1;
        state.write_u64(u64::from(self.place) << 32 | u64::from(self.value.0));
        state.write_u64(u64::from(self.layout) << 2 | flags);
    }
}

/// What is still to be paid for a wanted value by the uses of it that are settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToCome {
    pub(super) value: ValueId,
    /// What they cost at least.
    pub(super) least: Cost,
    /// What they pay for it where prices guide the search, in ticks.
    pub(super) paid: i64,
}

/// One way of settling a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Its cost, and the least that what it wants costs.
    pub(super) bound: Cost,
    /// Its cost without moves, and that of the cheapest moves.
    pub(super) cost: Cost,
    pub(super) moves: Cost,
    pub(super) made_in: LayoutId,
    pub(super) producer: usize,
    /// By how much more a plan that takes it is to pay than what is settled and to come otherwise,
    /// in ticks; 0 where no prices guide the search.
    pub(super) priced: i64,
}

/// A choice of a state, by number, and by which tree of moves the value is brought to where it is
/// wanted: the cheapest first, and where memory is a constraint others behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Pick {
    pub(super) choice: u32,
    pub(super) tree: u32,
}

/// Why a state is there.
#[derive(Clone, Copy, Default, Debug)]
pub(super) enum Decision {
    #[default]
    Root,
    Label,
    Output(LayoutId),
    /// A value is settled by this choice of the state before.
    Value(ValueId, Pick),
}

/// A state that was reached.
pub(super) struct Visit {
    pub(super) parent: usize,
    pub(super) decision: Decision,
    /// How many slots are decided.
    pub(super) slots: usize,
    pub(super) labels: Rc<[Layout]>,
    /// Sorted.
    pub(super) wants: Rc<[Want]>,
    /// For each wanted value.
    pub(super) to_come: Box<[ToCome]>,
    /// What prices say that any plan of it is still to pay, in ticks.
    pub(super) rest: i64,
    pub(super) cost: Cost,
    /// What it holds; nothing is noted where memory is no constraint.
    pub(super) held: Rc<Footprint>,
    /// Some value is moved by a tree that is not known: what it holds is counted in part.
    pub(super) is_vague: bool,
    pub(super) depth: u32,
    pub(super) ways: Rc<Ways>,
}

impl Visit {
    /// The value that is settled next, where no slot is to be decided.
    pub(super) fn next_value(&self) -> Option<ValueId> {
        self.wants.last().map(|want| want.value)
    }

    /// What is wanted of the value that is settled next: its wants stand last.
    pub(super) fn wanted_next(&self) -> &[Want] {
        let Some(last) = self.wants.last() else { return &[] };
        let first = self.wants.iter().rposition(|want| want.value != last.value);
        &self.wants[first.map_or(0, |at| at + 1)..]
    }
}

/// A state in the making, kept between uses: most states are left out again, and cost no memory.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) decision: Decision,
    pub(super) slots: usize,
    pub(super) labels: Vec<Layout>,
    pub(super) wants: Vec<Want>,
    pub(super) to_come: Vec<ToCome>,
    pub(super) rest: i64,
    pub(super) cost: Cost,
    pub(super) held: Footprint,
    pub(super) is_vague: bool,
    parent: usize,
    depth: u32,
}

impl Draft {
    /// Nothing is decided, and prices say that so much is to be paid.
    pub(super) fn root(rest: i64) -> Draft {
        Draft { rest, ..Draft::default() }
    }

    /// The state after another one, as that is.
    pub(super) fn follow(&mut self, parent: usize, visit: &Visit) {
        self.labels.clear();
        self.labels.extend_from_slice(&visit.labels);
        self.wants.clear();
        self.wants.extend_from_slice(&visit.wants);
        self.to_come.clear();
        self.to_come.extend_from_slice(&visit.to_come);
        self.held.copy_from(&visit.held);
        (self.decision, self.slots) = (Decision::Root, visit.slots);
        (self.rest, self.cost, self.is_vague) = (visit.rest, visit.cost, visit.is_vague);
        (self.parent, self.depth) = (parent, visit.depth + 1);
    }

    /// What tells it from other states.
    pub(super) fn state(&self, lists: &mut Lists) -> State {
        State {
            slots: self.slots as u32,
            is_vague: self.is_vague,
            labels: lists.labels.number(&self.labels),
            wants: lists.wants.number(&self.wants),
            uses: lists.uses.number(self.held.uses()),
        }
    }

    /// The state as one that is reached.
    pub(super) fn visit(&self, state: State, lists: &Lists) -> Visit {
        Visit {
            parent: self.parent,
            decision: self.decision,
            slots: self.slots,
            labels: Rc::clone(lists.labels.of(state.labels)),
            wants: Rc::clone(lists.wants.of(state.wants)),
            to_come: self.to_come.as_slice().into(),
            rest: self.rest,
            cost: self.cost,
            held: Rc::new(self.held.clone()),
            is_vague: self.is_vague,
            depth: self.depth,
            ways: Rc::default(),
        }
    }
}

/// What tells a state from others: slots decided, and by their numbers among [`Lists`] labels, what
/// is wanted, and where memory is a constraint by which steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    slots: u32,
    is_vague: bool,
    labels: u32,
    wants: u32,
    uses: u32,
}

impl State {
    /// The same, of which all is known.
    pub(super) fn sure(self) -> State {
        State { is_vague: false, ..self }
    }
}

/// The lists that states are made of, each once.
#[derive(Default)]
pub(super) struct Lists {
    labels: Interned<Layout>,
    wants: Interned<Want>,
    uses: Interned<Use>,
}

/// States that wait for one of their choices, by bound: least first; among equals the state nearest
/// to a whole plan, then the one reached first.
pub(super) type Open = BinaryHeap<Reverse<(Cost, u32, usize, Pick)>>;

/// A search on its way.
#[derive(Default)]
pub(super) struct Run {
    pub(super) visits: Vec<Visit>,
    /// Of the ways to reach a state this many are followed: 1 or [`MANY_WAYS`].
    pub(super) ways: usize,
    pub(super) lists: Lists,
    pub(super) reached: FxHashMap<State, Reached>,
    pub(super) draft: Draft,
    /// What would be held if a value were not moved.
    pub(super) unmoved: Footprint,
    pub(super) open: Open,
    /// Whole plans that tie.
    pub(super) goals: Vec<usize>,
    pub(super) expansions: usize,
    /// States looked at after the optimum was known.
    pub(super) after_goal: usize,
    /// Plans that were passed over since they do not fit.
    pub(super) too_large: usize,
    /// The time of a plan some of whose moves are not known, which may fit.
    pub(super) vague: Option<u64>,
    pub(super) next_dive: usize,
    /// The best plan that fits of those that were straight ahead.
    pub(super) straight: Option<usize>,
    pub(super) stopped_by: Option<&'static str>,
    pub(super) ties_cut: bool,
    pub(super) root_bound: Option<u64>,
    pub(super) lower_bound: Option<u64>,
}

impl Run {
    /// Whether a plan that takes no longer than one found may have been missed, where the first
    /// that was reached took `least`: one that was passed over may have kept others, as fast as it
    /// is, from being looked at, and one whose moves are not known may fit.
    pub(super) fn may_have_missed(&self, least: u64, found: u64) -> bool {
        (self.ways == 1 && self.too_large > 0 && found > least)
            || self.vague.is_some_and(|vague| found > vague)
    }

    /// Whether a plan is known, and none that is still to come ties with it, or enough were
    /// compared.
    pub(super) fn has_all_ties(&mut self, bound: Cost, limits: &Limits) -> bool {
        let Some(goal) = self.goals.first() else { return false };
        let cost = self.visits[*goal].cost;
        if (bound.time, bound.elements) > (cost.time, cost.elements) {
            return true;
        }
        self.after_goal += 1;
        let enough = self.goals.len() >= MAX_TIES || self.after_goal > limits.tie_expansions;
        self.ties_cut |= enough;
        enough
    }
}

/// A way in which a state was reached: what it cost, and what it holds.
type Way = (Cost, Rc<Footprint>);

/// The ways in which a state was reached that are followed; mostly there is one.
pub(super) struct Reached {
    first: Way,
    /// There may be thousands: a sketch of what each holds tells most of them apart.
    others: Vec<(Way, Sketch)>,
}

impl Reached {
    pub(super) fn by(way: Way) -> Reached {
        Reached { first: way, others: Vec::new() }
    }

    /// Whether one more way is left out for as many as `ways` that cost and hold no more.
    pub(super) fn does_without(&self, (cost, held): (Cost, &Footprint), ways: usize) -> bool {
        let is_as_good = |(known, holds): &Way| *known <= cost && holds.is_within(held);
        let first = usize::from(is_as_good(&self.first));
        if first >= ways || self.others.is_empty() {
            return first >= ways;
        }
        let sketch = held.sketch();
        let others = self
            .others
            .iter()
            .filter(|(way, own)| way.0 <= cost && own.may_be_within(&sketch) && is_as_good(way));
        first + others.take(ways - first).count() >= ways
    }

    /// Notes one more way, and where one is enough leaves out those that it is as good as.
    pub(super) fn add(&mut self, (cost, held): Way, ways: usize) {
        let sketch = held.sketch();
        let is_as_good = |(known, holds): &Way| cost <= *known && held.is_within(holds);
        if ways == 1 {
            let is_worse = |(way, own): &(Way, Sketch)| {
                cost <= way.0 && sketch.may_be_within(own) && is_as_good(way)
            };
            self.others.retain(|other| !is_worse(other));
            if is_as_good(&self.first) {
                self.first = (cost, held);
                return;
            }
        }
        self.others.push(((cost, held), sketch));
    }
}
