//! The states of the search: what is decided and what is wanted in each, and the ways in which it
//! was reached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId};

use super::draft::Draft;
use super::interned::Interned;
use super::ways::WaysToSettle;
use crate::Limits;
use crate::cost::Cost;
use crate::footprint::{Footprint, LayoutUse, Sketch};
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
pub(crate) const MANY_ARRIVALS: usize = MAX_TOO_LARGE + 1;

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
pub(super) struct WayToSettle {
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
    pub(super) way: u32,
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
pub(super) struct State {
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
    pub(super) ways: Rc<WaysToSettle>,
}

impl State {
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

/// What tells a state from others: slots decided, and by their numbers among [`Lists`] labels, what
/// is wanted, and where memory is a constraint by which steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StateKey {
    pub(super) slots: u32,
    pub(super) is_vague: bool,
    pub(super) labels: u32,
    pub(super) wants: u32,
    pub(super) uses: u32,
}

impl StateKey {
    /// The same, of which all is known.
    pub(super) fn sure(self) -> StateKey {
        StateKey { is_vague: false, ..self }
    }
}

/// The lists that states are made of, each once.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) labels: Interned<Layout>,
    pub(super) wants: Interned<Want>,
    pub(super) uses: Interned<LayoutUse>,
}

/// States that wait for one of their choices, by bound: least first; among equals the state nearest
/// to a whole plan, then the one reached first.
pub(super) type OpenStates = BinaryHeap<Reverse<(Cost, u32, usize, Pick)>>;

/// A search on its way.
#[derive(Default)]
pub(super) struct Run {
    pub(super) states: Vec<State>,
    /// Of the ways to reach a state this many are followed: 1 or [`MANY_ARRIVALS`].
    pub(super) most_arrivals: usize,
    pub(super) lists: Lists,
    pub(super) reached: FxHashMap<StateKey, Arrivals>,
    pub(super) draft: Draft,
    /// What would be held if a value were not moved.
    pub(super) unmoved: Footprint,
    pub(super) open: OpenStates,
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
        (self.most_arrivals == 1 && self.too_large > 0 && found > least)
            || self.vague.is_some_and(|vague| found > vague)
    }

    /// Whether a plan is known, and none that is still to come ties with it, or enough were
    /// compared.
    pub(super) fn has_all_ties(&mut self, bound: Cost, limits: &Limits) -> bool {
        let Some(goal) = self.goals.first() else { return false };
        let cost = self.states[*goal].cost;
        if (bound.time, bound.elements) > (cost.time, cost.elements) {
            return true;
        }
        self.after_goal += 1;
        let enough = self.goals.len() >= MAX_TIES || self.after_goal > limits.tie_expansions;
        self.ties_cut |= enough;
        enough
    }
}

/// One way in which a state was reached.
pub(super) struct Arrival {
    pub(super) cost: Cost,
    pub(super) held: Rc<Footprint>,
}

/// The ways in which a state was reached that are followed; mostly there is one.
pub(super) struct Arrivals {
    first: Arrival,
    /// There may be thousands: a sketch of what each holds tells most of them apart.
    others: Vec<(Arrival, Sketch)>,
}

impl Arrivals {
    pub(super) fn by(first: Arrival) -> Arrivals {
        Arrivals { first, others: Vec::new() }
    }

    /// Whether one more arrival is left out for as many as `most` that cost and hold no more.
    pub(super) fn does_without(&self, cost: Cost, held: &Footprint, most: usize) -> bool {
        let is_as_good = |known: &Arrival| known.cost <= cost && known.held.is_within(held);
        let first = usize::from(is_as_good(&self.first));
        if first >= most || self.others.is_empty() {
            return first >= most;
        }
        let sketch = held.sketch();
        let others = self.others.iter().filter(|(known, own)| {
            known.cost <= cost && own.may_be_within(&sketch) && is_as_good(known)
        });
        first + others.take(most - first).count() >= most
    }

    /// Notes one more arrival, and where one is enough leaves out those that it is as good as.
    pub(super) fn add(&mut self, new: Arrival, most: usize) {
        let sketch = new.held.sketch();
        let is_as_good =
            |known: &Arrival| new.cost <= known.cost && new.held.is_within(&known.held);
        if most == 1 {
            let is_worse = |(known, own): &(Arrival, Sketch)| {
                new.cost <= known.cost && sketch.may_be_within(own) && is_as_good(known)
            };
            self.others.retain(|other| !is_worse(other));
            if is_as_good(&self.first) {
                self.first = new;
                return;
            }
        }
        self.others.push((new, sketch));
    }
}
