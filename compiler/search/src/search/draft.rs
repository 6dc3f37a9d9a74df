//! The state after a way of settling what is wanted next, in the making.

use std::rc::Rc;

use shard_ir::{Layout, ValueId};

use super::states::{Decision, Lists, Pick, State, StateKey, ToCome, Want, WayToSettle};
use super::trees::ListedTree;
use super::{Search, Slot};
use crate::cost::Cost;
use crate::footprint::Footprint;
use crate::labels::label_layout;
use crate::strict::may_move_to;
use crate::table::LayoutId;

/// A state in the making. One draft is used again and again, so that the many states which are left
/// out again cost no memory.
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
    /// The first state: nothing is decided, and `rest` ticks are to be paid as prices say.
    pub(super) fn root(rest: i64) -> Draft {
        Draft { rest, ..Draft::default() }
    }

    /// Becomes a copy of a state, given by number too, as its follower.
    pub(super) fn follow(&mut self, number: usize, parent: &State) {
        self.labels.clear();
        self.labels.extend_from_slice(&parent.labels);
        self.wants.clear();
        self.wants.extend_from_slice(&parent.wants);
        self.to_come.clear();
        self.to_come.extend_from_slice(&parent.to_come);
        self.held.copy_from(&parent.held);
        (self.decision, self.slots) = (Decision::Root, parent.slots);
        (self.rest, self.cost, self.is_vague) = (parent.rest, parent.cost, parent.is_vague);
        (self.parent, self.depth) = (number, parent.depth + 1);
    }

    /// The key that tells this state from others.
    pub(super) fn key(&self, lists: &mut Lists) -> StateKey {
        StateKey {
            slots: self.slots as u32,
            is_vague: self.is_vague,
            labels: lists.labels.number(&self.labels),
            wants: lists.wants.number(&self.wants),
            uses: lists.uses.number(self.held.uses()),
        }
    }

    /// The state as one that is reached.
    pub(super) fn state(&self, key: StateKey, lists: &Lists) -> State {
        State {
            parent: self.parent,
            decision: self.decision,
            slots: self.slots,
            labels: Rc::clone(lists.labels.of(key.labels)),
            wants: Rc::clone(lists.wants.of(key.wants)),
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

impl Search<'_> {
    /// Drafts the state that follows by a pick; `None` where labels or memory forbid it.
    pub(super) fn draft(
        &self,
        draft: &mut Draft,
        states: &[State],
        parent: usize,
        pick: Pick,
    ) -> Option<()> {
        let state = &states[parent];
        let way = pick.way as usize;
        let picked = state.ways.all[way];
        draft.follow(parent, state);
        draft.rest = draft.rest.saturating_add(picked.priced);
        match self.slots.get(state.slots) {
            Some(Slot::Label(label)) => {
                draft.labels.push(self.label_layouts[label.0 as usize][way]);
                draft.decision = Decision::Label;
                draft.slots += 1;
                Some(())
            }
            Some(Slot::Output(i)) => self.draft_output(draft, *i, picked.made_in),
            None => self.draft_value(draft, state, pick),
        }
    }

    /// Decides the layout of a result.
    fn draft_output(&self, draft: &mut Draft, i: usize, layout: LayoutId) -> Option<()> {
        let output = &self.program.outputs[i];
        let in_layout = self.tables.of(output.value).layouts[layout as usize];
        if let Some(label) = output.pattern.label {
            let dims = &self.program.value(output.value).dims;
            if draft.labels[label.0 as usize] != label_layout(dims, in_layout) {
                return None;
            }
        }
        draft.decision = Decision::Output(layout);
        draft.slots += 1;
        if let Some(holdings) = &self.holdings {
            holdings.add_output(&mut draft.held, output.value, layout);
        }
        let paid =
            self.guided.as_ref().and_then(|guided| guided.for_output(i, output.value, in_layout));
        self.want(draft, output.value, layout, paid, self.strict, false);
        Some(())
    }

    /// Settles the value that is next.
    fn draft_value(&self, draft: &mut Draft, state: &State, pick: Pick) -> Option<()> {
        let (value, wanted) = (state.next_value()?, state.wanted_next());
        let WayToSettle { made_in, producer, cost, moves: cheapest, .. } =
            state.ways.all[pick.way as usize];
        let producer = &self.tables.of(value).producers[made_in as usize][producer];
        if producer.labels.iter().any(|(label, layout)| draft.labels[label.0 as usize] != *layout) {
            return None;
        }
        let (mut unmoved, mut moves) = (false, cheapest);
        if let Some(holdings) = &self.holdings {
            let listed = self.moved(state, pick)?;
            let tree = listed.tree();
            let is_vague = matches!(listed, ListedTree::Vague(_));
            (unmoved, moves) = (!is_vague && tree.moves.is_empty(), tree.cost);
            draft.is_vague |= is_vague;
            if unmoved && self.is_joined(wanted, value, made_in, producer.source) {
                return None;
            }
            holdings.settle(&mut draft.held, value, made_in, producer, &tree.moves, is_vague)?;
        }
        draft.cost = draft.cost + cost + moves;
        draft.decision = Decision::Value(value, pick);
        draft.wants.truncate(state.wants.len() - wanted.len());
        if let Some(guided) = &self.guided {
            let known = draft.to_come.iter().find(|of| of.value == value);
            let known = known.map_or(0, |of| of.paid);
            // Prices know the cheapest tree of moves.
            let taken = guided.ticks((cost + cheapest).time);
            draft.rest = draft.rest.saturating_sub(known).saturating_sub(taken);
        }
        draft.to_come.retain(|of| of.value != value);
        let direct = self.strict && !may_move_to(self.program, value);
        let joined = self.joined_by(value, producer.source, wanted, unmoved);
        let mut paid = self.guided.as_ref().map(|guided| guided.for_reads(value, producer));
        for (operand, layout) in &producer.reads {
            let joins = joined.contains(operand);
            let paid = paid.as_mut().and_then(Iterator::next).flatten();
            self.want(draft, *operand, *layout, paid, direct, joins);
        }
        Some(())
    }

    fn want(
        &self,
        draft: &mut Draft,
        value: ValueId,
        layout: LayoutId,
        paid: Option<i64>,
        direct: bool,
        joins: bool,
    ) {
        let want = Want { place: self.places[value.index()], value, layout, direct, joins };
        if let Err(place) = draft.wants.binary_search(&want) {
            draft.wants.insert(place, want);
        }
        let (least, paid) = (self.least_costs.of(value, layout), paid.unwrap_or(0));
        match draft.to_come.iter_mut().find(|of| of.value == value) {
            Some(of) => {
                (of.least, of.paid) = (of.least + least, of.paid.saturating_add(paid));
            }
            None => draft.to_come.push(ToCome { value, least, paid }),
        }
    }
}
