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
use crate::cost::Cost;
use crate::footprint::{Footprint, LayoutUse, Sketch};
use crate::table::LayoutId;
use crate::{Limits, SearchLimit};

/// How many states are expanded before a plan is first looked for straight ahead.
pub(super) const DIVE_AFTER: usize = 2_000;

/// A plan is looked for straight ahead again after so many times as many states.
pub(super) const DIVE_AGAIN: usize = 4;

/// How many plans that tie are compared at most.
pub(super) const MAX_TIES: usize = 64;

/// How many plans that need too much memory are passed over before a run ends.
pub(crate) const MAX_TOO_LARGE: usize = 32;

/// How many arrivals at a state, those of least cost, are followed where plans are passed over. It
/// is one more than plans are passed over: so for each arrival that is not followed, one as cheap
/// leads to a plan that fits, or the run ends. One arrival is enough where every plan fits.
pub(crate) const MANY_ARRIVALS: usize = MAX_TOO_LARGE + 1;

/// A value wanted in a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Want {
    /// The place of the value in the order in which values are settled, from the last.
    pub(super) place: u32,
    pub(super) value: ValueId,
    pub(super) layout: LayoutId,
    /// No move may come between the maker and this reader, since the layer is strict.
    pub(super) direct: bool,
    /// The reader joins the kernel that makes the value if no move comes between. Where memory is a
    /// constraint, plans without such a move are counted as ways that have the two as one kernel.
    pub(super) joins: bool,
}

// Two words are hashed, since a search hashes some ten wants for each state that it looks at.
impl Hash for Want {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let flags = u64::from(self.direct) | u64::from(self.joins) << 1;
        state.write_u64(u64::from(self.place) << 32 | u64::from(self.value.0));
        state.write_u64(u64::from(self.layout) << 2 | flags);
    }
}

/// What is still to be paid for a wanted value, as shares of the uses of it that are settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToCome {
    pub(super) value: ValueId,
    /// The sum of the least costs of these uses.
    pub(super) least: Cost,
    /// The sum of the prices that these uses pay, in ticks; 0 where no prices guide the search.
    pub(super) paid: i64,
}

/// One way of settling a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct WayToSettle {
    /// The cost with the cheapest moves, and the least costs of what is read.
    pub(super) bound: Cost,
    /// The cost without moves.
    pub(super) cost: Cost,
    /// The cost of the cheapest moves.
    pub(super) moves: Cost,
    pub(super) made_in: LayoutId,
    pub(super) producer: usize,
    /// By how many ticks this way raises what prices say that a plan is to pay; 0 where no prices
    /// guide the search.
    pub(super) priced: i64,
}

/// A way of settling what a state wants next, by number, and a tree of moves by number. Tree 0 is
/// the cheapest; there are others where memory is a constraint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Pick {
    pub(super) way: u32,
    pub(super) tree: u32,
}

/// What was decided last in a state.
#[derive(Clone, Copy, Default, Debug)]
pub(super) enum Decision {
    #[default]
    Root,
    Label,
    Output(LayoutId),
    /// The value was settled by this pick of the state before.
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
    /// One for each wanted value.
    pub(super) to_come: Box<[ToCome]>,
    /// What prices say that any plan from here on is still to pay, in ticks.
    pub(super) rest: i64,
    pub(super) cost: Cost,
    /// What the plan holds so far; empty where memory is no constraint.
    pub(super) held: Rc<Footprint>,
    /// Some value is moved by a tree that is not listed: cost and memory are lower bounds.
    pub(super) is_vague: bool,
    pub(super) depth: u32,
    pub(super) ways: Rc<WaysToSettle>,
}

impl State {
    /// The value that is settled next, where no slot is to be decided.
    pub(super) fn next_value(&self) -> Option<ValueId> {
        self.wants.last().map(|want| want.value)
    }

    /// The wants of the value that is settled next, which stand last.
    pub(super) fn wanted_next(&self) -> &[Want] {
        let Some(last) = self.wants.last() else { return &[] };
        let first = self.wants.iter().rposition(|want| want.value != last.value);
        &self.wants[first.map_or(0, |at| at + 1)..]
    }
}

/// What tells a state from others: the number of slots decided, whether it is vague, and its
/// labels, its wants and the uses in its footprint, each as a number among [`Lists`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StateKey {
    pub(super) slots: u32,
    pub(super) is_vague: bool,
    pub(super) labels: u32,
    pub(super) wants: u32,
    pub(super) uses: u32,
}

impl StateKey {
    /// The key of the state that has all else alike and is not vague.
    pub(super) fn sure(self) -> StateKey {
        StateKey { is_vague: false, ..self }
    }
}

/// The lists that states are made of, each kept once.
#[derive(Default)]
pub(super) struct Lists {
    pub(super) labels: Interned<Layout>,
    pub(super) wants: Interned<Want>,
    pub(super) uses: Interned<LayoutUse>,
}

/// States that wait for one of their picks: bound, depth (the deepest first), number, pick. The
/// least bound comes first; among equals the state nearest to a whole plan, then the one that was
/// reached first.
pub(super) type OpenStates = BinaryHeap<Reverse<(Cost, u32, usize, Pick)>>;

/// A run of a search.
#[derive(Default)]
pub(super) struct Run {
    pub(super) states: Vec<State>,
    /// How many arrivals at a state are followed: 1 or [`MANY_ARRIVALS`].
    pub(super) most_arrivals: usize,
    pub(super) lists: Lists,
    pub(super) reached: FxHashMap<StateKey, Arrivals>,
    pub(super) draft: Draft,
    /// Scratch: what would be held if a value were not moved.
    pub(super) unmoved: Footprint,
    pub(super) open: OpenStates,
    /// States that are whole plans, which tie.
    pub(super) goals: Vec<usize>,
    pub(super) expansions: usize,
    /// States looked at after the optimum was known.
    pub(super) after_goal: usize,
    /// How many plans were passed over since they do not fit.
    pub(super) too_large: usize,
    /// The time of the first vague plan that was reached: it may stand for one that fits.
    pub(super) vague: Option<u64>,
    /// The number of expansions at which a plan is next looked for straight ahead.
    pub(super) next_dive: usize,
    /// The best plan that fits of those that were found straight ahead.
    pub(super) straight: Option<usize>,
    pub(super) stopped_by: Option<SearchLimit>,
    pub(super) ties_cut: bool,
    pub(super) root_bound: Option<u64>,
    pub(super) lower_bound: Option<u64>,
}

impl Run {
    /// Whether a plan that takes less than one of time `found` may have been missed, where the
    /// first plan that was reached took `least`. A plan that was passed over may have kept others,
    /// as fast, from being looked at; and a vague plan may stand for one that fits.
    pub(super) fn may_have_missed(&self, least: u64, found: u64) -> bool {
        (self.most_arrivals == 1 && self.too_large > 0 && found > least)
            || self.vague.is_some_and(|vague| found > vague)
    }

    /// Whether a plan is known and enough plans were compared with it: no plan of `bound` or more
    /// ties with it, or a limit on ties is reached.
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

/// The arrivals at a state that are followed; mostly there is one.
pub(super) struct Arrivals {
    first: Arrival,
    /// There may be thousands. The sketch of what each holds tells most of them apart.
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
