//! The states of the search: what is decided and what is wanted in each, and the ways in which it
//! was reached.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId};

use crate::Limits;
use crate::cost::Cost;
use crate::footprint::{Footprint, Use};
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

/// One way of settling a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Its cost, and the least that what it wants costs.
    pub(super) bound: Cost,
    /// Its cost, moves included.
    pub(super) cost: Cost,
    pub(super) made_in: LayoutId,
    pub(super) producer: usize,
    /// By how much more a plan that takes it is to pay than what is settled and to come otherwise,
    /// in ticks; 0 where no prices guide the search.
    pub(super) priced: i64,
}

/// Why a state is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decision {
    Root,
    Label,
    Output(LayoutId),
    Value(ValueId, Choice),
}

/// A state that was reached.
pub(super) struct Visit {
    pub(super) parent: usize,
    pub(super) decision: Decision,
    /// How many slots are decided.
    pub(super) slots: usize,
    pub(super) labels: Vec<Layout>,
    /// Sorted.
    pub(super) wants: Vec<Want>,
    /// For each wanted value, what the uses settled so far cost at least, and what they pay for it
    /// where prices guide the search, in ticks.
    pub(super) to_come: Vec<(ValueId, Cost, i64)>,
    /// What prices say that any plan of it is still to pay, in ticks.
    pub(super) rest: i64,
    pub(super) cost: Cost,
    /// What it holds; nothing is noted where memory is no constraint.
    pub(super) held: Footprint,
    pub(super) depth: u32,
    pub(super) choices: Rc<Vec<Choice>>,
}

/// What tells a state from others: slots decided, labels, what is wanted, and where memory is a
/// constraint by which steps.
pub(super) type State = (usize, Vec<Layout>, Vec<Want>, Vec<Use>);

impl Visit {
    /// Nothing is decided, and prices say that so much is to be paid.
    pub(super) fn root(rest: i64) -> Visit {
        Visit {
            parent: 0,
            decision: Decision::Root,
            slots: 0,
            labels: Vec::new(),
            wants: Vec::new(),
            to_come: Vec::new(),
            rest,
            cost: Cost::ZERO,
            held: Footprint::default(),
            depth: 0,
            choices: Rc::new(Vec::new()),
        }
    }
}

/// States that wait for one of their choices, by bound: least first; among equals the state nearest
/// to a whole plan, then the one reached first.
pub(super) type Open = BinaryHeap<Reverse<(Cost, u32, usize, usize)>>;

/// A search on its way.
#[derive(Default)]
pub(super) struct Run {
    pub(super) visits: Vec<Visit>,
    /// Of the ways to reach a state this many are followed: 1 or [`MANY_WAYS`].
    pub(super) ways: usize,
    pub(super) reached: FxHashMap<State, Reached>,
    pub(super) open: Open,
    /// Whole plans that tie.
    pub(super) goals: Vec<usize>,
    pub(super) expansions: usize,
    /// States looked at after the optimum was known.
    pub(super) after_goal: usize,
    /// Plans that were passed over since they do not fit.
    pub(super) too_large: usize,
    pub(super) next_dive: usize,
    pub(super) stopped_by: Option<&'static str>,
    pub(super) ties_cut: bool,
    pub(super) root_bound: Option<u64>,
    pub(super) lower_bound: Option<u64>,
}

impl Run {
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

/// The ways in which a state was reached that are followed.
#[derive(Default)]
pub(super) struct Reached(Vec<(Cost, Footprint)>);

impl Reached {
    /// Whether one more way is followed, and not left out for as many as `ways` that cost and hold
    /// no more; it is noted then.
    pub(super) fn takes(&mut self, cost: Cost, held: &Footprint, ways: usize) -> bool {
        let as_good =
            self.0.iter().filter(|(known, holds)| *known <= cost && holds.is_within(held));
        if as_good.take(ways).count() >= ways {
            return false;
        }
        if ways == 1 {
            self.0.retain(|(known, holds)| !(cost <= *known && held.is_within(holds)));
        }
        self.0.push((cost, held.clone()));
        true
    }
}
