//! The time of the cheapest plan whose weights and caches fit, by eliminating values one after
//! another. It is a second solver beside [`optimum`](super::optimum). The two share the facts,
//! moves and prices of a program, and nothing of how a plan is looked for.
//!
//! Values are taken forwards, in program order. A state has the layouts of the values that are
//! still to be read, and which of their layouts are already paid for. Each state has the pairs of
//! time and stored bytes that no other pair beats in both. A value is forgotten with its last
//! reader. Trees of moves are those of Dreyfus and Wagner, over sets of wanted layouts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shard_ir::{Def, LabelId, LayoutPattern, MeshShape, ParameterKind};

use super::facts::Facts;
use super::in_pieces::is_in_pieces;
use super::layouts::{ByName, meets};
use super::moves::{NEVER, Space};
use super::optimum::Optimum;

/// States at one value, at most.
const MAX_STATES: usize = 20_000;
/// Steps from state to state, at most.
const MAX_STEPS: usize = 400_000;
/// Wanted layouts of one value, at most.
const MAX_WANTED: usize = 4;

/// A kernel that the one reader of its last value may still join.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Open {
    /// The layout of its last value.
    made: usize,
    /// Its ops, first to last: `(value, number of its fit)`.
    chain: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct State {
    /// The values that are still to be read: the layout in which each is made, and the other
    /// layouts that are paid for.
    held: BTreeMap<usize, (usize, BTreeSet<usize>)>,
    open: BTreeMap<usize, Open>,
    labels: Vec<Option<ByName>>,
}

/// Pairs of time and stored bytes, none of which beats another in both.
type Front = Vec<(u64, u64)>;

struct Elimination<'a> {
    facts: &'a Facts<'a>,
    at_most: u64,
    /// The bytes that the weights and caches of one layer may take on a device.
    stored_at_most: u64,
    trees: HashMap<(usize, usize, Vec<usize>), u64>,
    kernel_times: HashMap<Vec<(usize, usize)>, u64>,
    next: BTreeMap<State, Front>,
    steps: usize,
    too_large: Option<&'static str>,
}

/// The time of the cheapest plan that takes at most `at_most` picoseconds, and whose weights and
/// caches take at most `stored_at_most` bytes of a device.
pub(crate) fn cheapest_within(facts: &Facts<'_>, at_most: u64, stored_at_most: u64) -> Optimum {
    let program = facts.program;
    let mut all = Elimination {
        facts,
        at_most,
        stored_at_most,
        trees: HashMap::new(),
        kernel_times: HashMap::new(),
        next: BTreeMap::new(),
        steps: 0,
        too_large: None,
    };
    let start = State { labels: vec![None; program.labels.len()], ..State::default() };
    let mut states = BTreeMap::from([(start, vec![(0, 0)])]);
    let live = (0..program.values.len()).filter(|id| facts.live[*id]);
    let steps = live.map(Step::Value).chain((0..program.outputs.len()).map(Step::Result));
    for step in steps {
        for (state, front) in std::mem::take(&mut states) {
            match step {
                Step::Value(id) => all.eliminate(id, &state, &front),
                Step::Result(at) => all.give(at, &state, &front),
            }
            if let Some(reason) = all.too_large {
                return Optimum::TooLarge(reason);
            }
        }
        states = std::mem::take(&mut all.next);
    }
    let times = states.into_values().flatten().map(|(time, _)| time);
    times.min().map_or(Optimum::NoPlan, Optimum::Time)
}

/// The fewest bytes in which weights and caches can be stored, and whether all of them are read.
/// This solver does not know of those that nothing reads.
pub(crate) fn least_stored(facts: &Facts<'_>) -> (u64, bool) {
    let (mut sum, mut all_read) = (0u64, true);
    for (id, value) in facts.program.values.iter().enumerate() {
        if let Def::Parameter { kind: ParameterKind::Weight | ParameterKind::Cache, .. } = value.def
        {
            all_read &= facts.live[id];
            sum +=
                facts.allowed[id].iter().map(|layout| bytes(facts, id, *layout)).min().unwrap_or(0);
        }
    }
    (sum, all_read)
}

fn bytes(facts: &Facts<'_>, id: usize, layout: usize) -> u64 {
    let value = &facts.program.values[id];
    let sizes = facts.program.sizes(&value.dims);
    let shape = MeshShape { mesh: &facts.program.mesh, sizes: &sizes };
    value.dtype.bytes(shape.local_elements(facts.spaces[id].layouts[layout]))
}

#[derive(Clone, Copy)]
enum Step {
    Value(usize),
    Result(usize),
}

/// A state that a step leads to, with what is added to time and stored bytes.
struct Change {
    state: State,
    time: u64,
    stored: u64,
}

impl Change {
    fn of(state: &State) -> Change {
        Change { state: state.clone(), time: 0, stored: 0 }
    }

    fn pay(&mut self, time: u64) {
        self.time = self.time.saturating_add(time);
    }
}

impl Elimination<'_> {
    fn eliminate(&mut self, id: usize, state: &State, front: &Front) {
        let facts = self.facts;
        match &facts.program.values[id].def {
            Def::Parameter { pattern, kind } => {
                for made in &facts.allowed[id] {
                    let mut change = Change::of(state);
                    if self.label_agrees(&mut change.state, pattern, id, *made) {
                        if matches!(kind, ParameterKind::Weight | ParameterKind::Cache) {
                            change.stored = bytes(facts, id, *made);
                        }
                        self.made(id, *made, change, front);
                    }
                }
            }
            Def::Constant(_) => {
                let made = facts.spaces[id].index_of(shard_ir::Layout::REPLICATED).unwrap_or(0);
                self.made(id, made, Change::of(state), front);
            }
            Def::Pin { operand, pattern, .. } => {
                for made in &facts.allowed[id] {
                    let mut change = Change::of(state);
                    if !self.label_agrees(&mut change.state, pattern, id, *made) {
                        continue;
                    }
                    self.want(operand.index(), *made, &mut change);
                    // Where a move lies between, nobody joins the kernel.
                    let origin = facts.origin(id);
                    if change.state.open.get(&origin).is_some_and(|open| open.made != *made) {
                        self.close(origin, &mut change);
                    }
                    self.made(id, *made, change, front);
                }
            }
            Def::Op { operands, .. } => {
                for (fit, layouts) in facts.fits[id][..facts.by_itself[id]].iter().enumerate() {
                    if self.too_large.is_some() {
                        return;
                    }
                    let mut change = Change::of(state);
                    for (operand, layout) in operands.iter().zip(&layouts.operands) {
                        self.want(operand.index(), *layout, &mut change);
                    }
                    let mut chain = Vec::new();
                    if let Some(feed) = &facts.feeds[id] {
                        let reads: Vec<usize> =
                            feed.places.iter().map(|place| layouts.operands[*place]).collect();
                        let joins = |open: &Open| reads.iter().all(|read| *read == open.made);
                        if change.state.open.get(&feed.origin).is_some_and(joins) {
                            chain = change
                                .state
                                .open
                                .remove(&feed.origin)
                                .map(|o| o.chain)
                                .unwrap_or_default()
                        } else {
                            self.close(feed.origin, &mut change)
                        }
                    }
                    chain.push((id, fit));
                    let looped = facts.fits[id][fit].looped.as_ref();
                    let may_be_joined = facts.feeds.iter().flatten().any(|feed| feed.origin == id)
                        && !looped.is_some_and(|looped| looped.scatters)
                        && is_in_pieces(facts, (id, fit)) != Some(false);
                    change.state.open.insert(id, Open { made: layouts.result, chain });
                    if !may_be_joined {
                        self.close(id, &mut change);
                    }
                    self.made(id, layouts.result, change, front);
                }
            }
        }
    }

    /// A result, in each layout that its type allows.
    fn give(&mut self, at: usize, state: &State, front: &Front) {
        let facts = self.facts;
        let output = &facts.program.outputs[at];
        let id = output.value.index();
        for layout in 0..facts.spaces[id].layouts.len() {
            let mut change = Change::of(state);
            if meets(&output.pattern, &facts.spaces[id].written[layout])
                && self.label_agrees(&mut change.state, &output.pattern, id, layout)
            {
                self.want(id, layout, &mut change);
                let read_later =
                    facts.program.outputs[at + 1..].iter().any(|later| later.value.index() == id);
                if !read_later {
                    change.state.held.remove(&id);
                }
                self.reach(change, front);
            }
        }
    }

    /// Notes that a value is made, and forgets the values of which it was the last reader.
    fn made(&mut self, id: usize, layout: usize, mut change: Change, front: &Front) {
        let facts = self.facts;
        change.state.held.insert(id, (layout, BTreeSet::new()));
        let is_read_later = |value: usize| {
            let reads = |later: usize| {
                let operands = facts.program.values[later].def.operands();
                facts.live[later] && operands.iter().any(|operand| operand.index() == value)
            };
            (id + 1..facts.program.values.len()).any(reads)
                || facts.program.outputs.iter().any(|output| output.value.index() == value)
        };
        change.state.held.retain(|value, _| is_read_later(*value));
        self.reach(change, front);
    }

    /// Pays for a layout of a value that is held, if it is not paid for yet.
    fn want(&mut self, id: usize, layout: usize, change: &mut Change) {
        let space = &self.facts.spaces[id];
        let Some((made, wanted)) = change.state.held.get_mut(&id) else {
            change.time = NEVER;
            return;
        };
        if space.way[*made][layout] == 0 || wanted.contains(&layout) {
            return;
        }
        let before: Vec<usize> = wanted.iter().copied().collect();
        wanted.insert(layout);
        let after: Vec<usize> = wanted.iter().copied().collect();
        if after.len() > MAX_WANTED {
            self.too_large = Some("wanted layouts of a value");
        }
        let made = *made;
        let (known, now) = (self.tree(id, made, before), self.tree(id, made, after));
        change.pay(if now == NEVER { NEVER } else { now - known });
    }

    fn tree(&mut self, id: usize, made: usize, wanted: Vec<usize>) -> u64 {
        let space = &self.facts.spaces[id];
        let count = wanted.len().min(MAX_WANTED);
        *self
            .trees
            .entry((id, made, wanted))
            .or_insert_with_key(|(_, made, wanted)| cheapest_tree(space, *made, &wanted[..count]))
    }

    /// Pays for a kernel that no other op may join any more.
    fn close(&mut self, origin: usize, change: &mut Change) {
        let Some(open) = change.state.open.remove(&origin) else { return };
        let facts = self.facts;
        let time = *self
            .kernel_times
            .entry(open.chain)
            .or_insert_with_key(|chain| facts.kernel_time(chain));
        change.pay(time);
    }

    /// Notes a state with its pairs, without those that a known pair of the state beats.
    fn reach(&mut self, change: Change, front: &Front) {
        let Change { state, time, stored } = change;
        let to = |(before, kept): &(u64, u64)| {
            (before.saturating_add(time), kept.saturating_add(stored))
        };
        let wanted =
            |(time, kept): &(u64, u64)| *time <= self.at_most && *kept <= self.stored_at_most;
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.too_large = Some("steps");
        }
        let reached: Front = front.iter().map(to).filter(wanted).collect();
        if reached.is_empty() {
            return;
        }
        let known = self.next.entry(state).or_default();
        for (time, kept) in reached {
            if known.iter().any(|(t, k)| *t <= time && *k <= kept) {
                continue;
            }
            known.retain(|(t, k)| *t < time || *k < kept);
            known.push((time, kept));
        }
        if self.next.len() > MAX_STATES {
            self.too_large = Some("states");
        }
    }

    /// Notes the layout of a label, or checks it against the one that is noted.
    fn label_agrees(
        &self,
        state: &mut State,
        pattern: &LayoutPattern,
        id: usize,
        layout: usize,
    ) -> bool {
        let Some(LabelId(label)) = pattern.label else { return true };
        let named =
            self.facts.spaces[id].written[layout].by_name(&self.facts.program.values[id].dims);
        let known = &mut state.labels[label as usize];
        *known.get_or_insert_with(|| named.clone()) == named
    }
}

/// The time of the cheapest moves from one layout to several, each move paid once. For each set of
/// wanted layouts and each layout, it finds the time of reaching the set from the layout.
fn cheapest_tree(space: &Space, made: usize, wanted: &[usize]) -> u64 {
    let layouts = space.layouts.len();
    let full = (1usize << wanted.len()) - 1;
    let mut least = vec![vec![NEVER; layouts]; full + 1];
    least[0] = vec![0; layouts];
    for set in 1..=full {
        // The moves part here: some lead to a part of the set, the others to the rest.
        let parting: Vec<u64> = (0..layouts)
            .map(|at| {
                if set.is_power_of_two() {
                    return if wanted[set.trailing_zeros() as usize] == at { 0 } else { NEVER };
                }
                let parts = (1..set).filter(|part| part & set == *part);
                parts
                    .map(|part| least[part][at].saturating_add(least[set ^ part][at]))
                    .min()
                    .unwrap_or(NEVER)
            })
            .collect();
        least[set] = (0..layouts)
            .map(|from| {
                (0..layouts)
                    .map(|at| space.way[from][at].saturating_add(parting[at]))
                    .min()
                    .unwrap_or(NEVER)
            })
            .collect();
    }
    least[full][made]
}
