//! The time of the cheapest plan, by looking at all of them.
//!
//! Plans are fixed backwards. A state has what the fixed part of a plan still wants: values in
//! layouts. The last of these values is fixed next, in every layout and in every way in which it
//! can be made. All its readers are fixed by then, so that the set of layouts in which it is wanted
//! is final, and a value that several readers share is paid for once.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use shard_ir::{Def, LabelId, LayoutPattern, Output};

use super::attention::attention_ways;
use super::facts::Facts;
use super::in_pieces::is_in_pieces;
use super::layouts::{ByName, meets};
use super::moves::NEVER;
use super::trees::cheapest_tree;

/// The answer for a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Optimum {
    /// The cheapest plan takes this many picoseconds.
    Time(u64),
    /// No plan takes at most the `at_most` that was asked about.
    NoPlan,
    /// More of this had to be looked at than is allowed.
    TooLarge(&'static str),
}

/// States that are opened, at most.
const MAX_STATES: usize = 200_000;

/// Sets of layouts looked at for all trees of moves, at most.
const MAX_SETS: usize = 20_000;

/// A kernel whose last ops are fixed. The op that makes `origin` joins it in front, if it is made
/// in the layout in which the kernel reads it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Kernel {
    origin: usize,
    layout: usize,
    /// Its ops, first to last: `(value, number of its fit)`.
    chain: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct State {
    /// How many results have their layout.
    results: usize,
    labels: Vec<Option<ByName>>,
    /// Values in layouts.
    wanted: BTreeSet<(usize, usize)>,
    kernels: BTreeSet<Kernel>,
}

struct Enumeration<'a> {
    facts: &'a Facts<'a>,
    /// For each value and layout, the least time of having the value in the layout.
    least: Vec<Vec<u64>>,
    /// For each value, it and all that it is made from.
    behind: Vec<u64>,
    trees: HashMap<(usize, usize, Vec<usize>), u64>,
    /// How many more sets of layouts may be looked at.
    sets_left: usize,
    kernel_times: HashMap<Vec<(usize, usize)>, u64>,
}

/// The time of the cheapest plan that takes at most `at_most` picoseconds. Without `guided` only
/// states are passed over that already cost more than that.
pub(crate) fn cheapest_plan(facts: &Facts<'_>, at_most: u64, guided: bool) -> Optimum {
    let mut all = Enumeration {
        facts,
        least: Vec::new(),
        behind: Vec::new(),
        trees: HashMap::new(),
        sets_left: MAX_SETS,
        kernel_times: HashMap::new(),
    };
    all.bound_from_below();
    let rest = |all: &Enumeration<'_>, state: &State| if guided { all.rest(state) } else { 0 };
    let start = State { labels: vec![None; facts.program.labels.len()], ..State::default() };
    let mut best: HashMap<State, u64> = HashMap::from([(start.clone(), 0)]);
    let mut open = BinaryHeap::from([Reverse((0u64, 0u64, start))]);
    while let Some(Reverse((_, paid, state))) = open.pop() {
        if best.get(&state).is_some_and(|known| *known < paid) {
            continue;
        }
        if state.results == facts.program.outputs.len() && state.wanted.is_empty() {
            return Optimum::Time(paid);
        }
        let next = match all.next_states(&state, at_most - paid) {
            Ok(next) => next,
            Err(reason) => return Optimum::TooLarge(reason),
        };
        for (cost, child) in next {
            let paid = paid.saturating_add(cost);
            let bound = paid.saturating_add(rest(&all, &child));
            if bound > at_most
                || bound == NEVER
                || best.get(&child).is_some_and(|known| *known <= paid)
            {
                continue;
            }
            best.insert(child.clone(), paid);
            if best.len() > MAX_STATES {
                return Optimum::TooLarge("states");
            }
            open.push(Reverse((bound, paid, child)));
        }
    }
    Optimum::NoPlan
}

impl Enumeration<'_> {
    /// The states that follow a state, each with the time that it adds. States that add more than
    /// `within` may be left out.
    fn next_states(
        &mut self,
        state: &State,
        within: u64,
    ) -> Result<Vec<(u64, State)>, &'static str> {
        if let Some(output) = self.facts.program.outputs.get(state.results) {
            return Ok(self.with_a_result(state, output));
        }
        let Some(&(id, _)) = state.wanted.last() else { return Ok(Vec::new()) };
        let mut left = state.clone();
        let wanted: Vec<usize> =
            state.wanted.iter().filter(|(v, _)| *v == id).map(|(_, l)| *l).collect();
        left.wanted.retain(|(v, _)| *v != id);
        let program = self.facts.program;
        let mut next = Vec::new();
        match &program.values[id].def {
            Def::Parameter { pattern, .. } => {
                for made in self.facts.allowed[id].clone() {
                    let mut child = left.clone();
                    if self.label_agrees(&mut child, pattern, id, made) {
                        next.push((self.moves(id, made, &wanted, within)?, child));
                    }
                }
            }
            Def::Constant(_) => {
                let made =
                    self.facts.spaces[id].index_of(shard_ir::Layout::REPLICATED).unwrap_or(0);
                next.push((self.moves(id, made, &wanted, within)?, left));
            }
            Def::Pin { operand, pattern, .. } => {
                for made in self.facts.allowed[id].clone() {
                    let mut child = left.clone();
                    if !self.label_agrees(&mut child, pattern, id, made) {
                        continue;
                    }
                    let mut cost = self.moves(id, made, &wanted, within)?;
                    let origin = self.facts.origin(id);
                    if let Some(kernel) = take_kernel(&mut child, origin) {
                        if kernel.layout == made {
                            child.kernels.insert(kernel);
                        } else {
                            // A move lies between.
                            cost = cost.saturating_add(self.kernel_time(kernel.chain));
                        }
                    }
                    child.wanted.insert((operand.index(), made));
                    next.push((cost, child));
                }
            }
            Def::Op { operands, .. } => {
                let operands: Vec<usize> = operands.iter().map(|o| o.index()).collect();
                self.with_an_op(id, &operands, &left, &wanted, within, &mut next)?;
                self.with_an_attention(id, &left, &wanted, within, &mut next)?;
            }
        }
        next.retain(|(cost, _)| *cost != NEVER);
        Ok(next)
    }

    /// Adds the states that follow where an op makes a value, in a kernel of its own or in that of
    /// its reader.
    fn with_an_op(
        &mut self,
        id: usize,
        operands: &[usize],
        left: &State,
        wanted: &[usize],
        within: u64,
        next: &mut Vec<(u64, State)>,
    ) -> Result<(), &'static str> {
        for fit in 0..self.facts.by_itself[id] {
            let made = self.facts.fits[id][fit].result;
            let mut cost = self.moves(id, made, wanted, within)?;
            if cost == NEVER {
                continue;
            }
            let mut child = left.clone();
            let mut chain = vec![(id, fit)];
            // An einsum that scatters in its loop is a kernel alone.
            let scatters =
                self.facts.fits[id][fit].looped.as_ref().is_some_and(|looped| looped.scatters);
            match take_kernel(&mut child, id) {
                // No op joins a composite that is computed whole.
                Some(kernel)
                    if kernel.layout == made
                        && !scatters
                        && is_in_pieces(self.facts, (id, fit)) != Some(false) =>
                {
                    chain.extend(kernel.chain);
                }
                Some(kernel) => cost = cost.saturating_add(self.kernel_time(kernel.chain)),
                None => {}
            }
            let read = &self.facts.fits[id][fit].operands;
            match &self.facts.feeds[id] {
                Some(feed) if feed.places.iter().all(|p| read[*p] == read[feed.places[0]]) => {
                    let layout = read[feed.places[0]];
                    child.kernels.insert(Kernel { origin: feed.origin, layout, chain });
                }
                _ => cost = cost.saturating_add(self.kernel_time(chain)),
            }
            let read = &self.facts.fits[id][fit].operands;
            child.wanted.extend(operands.iter().copied().zip(read.iter().copied()));
            next.push((cost, child));
        }
        Ok(())
    }

    /// Adds the states that follow where a value ends an attention that is one kernel.
    fn with_an_attention(
        &mut self,
        id: usize,
        left: &State,
        wanted: &[usize],
        within: u64,
        next: &mut Vec<(u64, State)>,
    ) -> Result<(), &'static str> {
        for way in attention_ways(self.facts, id) {
            let mut cost = self.moves(id, way.made, wanted, within)?;
            let (mut child, mut chain) = (left.clone(), way.chain);
            match take_kernel(&mut child, id) {
                Some(kernel) if kernel.layout == way.made => chain.extend(kernel.chain),
                Some(kernel) => cost = cost.saturating_add(self.kernel_time(kernel.chain)),
                None => {}
            }
            cost = cost.saturating_add(self.kernel_time(chain));
            child.wanted.extend(way.reads);
            next.push((cost, child));
        }
        Ok(())
    }

    /// The states that follow where one more result has each layout that its type allows.
    fn with_a_result(&self, state: &State, output: &Output) -> Vec<(u64, State)> {
        let id = output.value.index();
        let space = &self.facts.spaces[id];
        let mut next = Vec::new();
        for layout in 0..space.layouts.len() {
            let mut child = State { results: state.results + 1, ..state.clone() };
            if meets(&output.pattern, &space.written[layout])
                && self.label_agrees(&mut child, &output.pattern, id, layout)
            {
                child.wanted.insert((id, layout));
                next.push((0, child));
            }
        }
        next
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

    /// The time of the moves of a value; [`NEVER`] where they take longer than `within`.
    fn moves(
        &mut self,
        id: usize,
        made: usize,
        wanted: &[usize],
        within: u64,
    ) -> Result<u64, &'static str> {
        let space = &self.facts.spaces[id];
        if wanted.iter().any(|w| space.way[made][*w] > within) {
            return Ok(NEVER);
        }
        let key = (id, made, wanted.to_vec());
        if let Some(known) = self.trees.get(&key) {
            return Ok(*known);
        }
        let tree =
            cheapest_tree(space, made, wanted, &mut self.sets_left).ok_or("sets of layouts")?;
        self.trees.insert(key, tree);
        Ok(tree)
    }

    fn kernel_time(&mut self, chain: Vec<(usize, usize)>) -> u64 {
        let facts = self.facts;
        *self.kernel_times.entry(chain).or_insert_with_key(|chain| facts.kernel_time(chain))
    }

    /// A lower bound on what a state is still to pay: the sum for wanted values that are made from
    /// nothing in common.
    fn rest(&self, state: &State) -> u64 {
        let mut dearest: HashMap<usize, u64> = HashMap::new();
        for (id, layout) in &state.wanted {
            let known = dearest.entry(*id).or_insert(0);
            *known = (*known).max(self.least[*id][*layout]);
        }
        for output in &self.facts.program.outputs[state.results..] {
            let id = output.value.index();
            let written = &self.facts.spaces[id].written;
            let any = (0..written.len()).filter(|l| meets(&output.pattern, &written[*l]));
            let known = dearest.entry(id).or_insert(0);
            *known = (*known).max(any.map(|l| self.least[id][l]).min().unwrap_or(NEVER));
        }
        let mut parts: Vec<(u64, usize)> =
            dearest.into_iter().map(|(id, least)| (least, id)).collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let (mut seen, mut sum) = (0u64, 0u64);
        for (least, id) in parts {
            if seen & self.behind[id] == 0 {
                seen |= self.behind[id];
                sum = sum.saturating_add(least);
            } else if least == NEVER {
                sum = NEVER;
            }
        }
        sum
    }

    fn bound_from_below(&mut self) {
        let facts = self.facts;
        let feeds_another = |id: usize| facts.feeds.iter().flatten().any(|f| f.origin == id);
        for (id, value) in facts.program.values.iter().enumerate() {
            let space = &facts.spaces[id];
            let mut made = vec![NEVER; space.layouts.len()];
            let mut behind = 1u64 << id;
            for operand in value.def.operands() {
                behind |= self.behind[operand.index()];
            }
            match &value.def {
                Def::Parameter { .. } => facts.allowed[id].iter().for_each(|l| made[*l] = 0),
                Def::Constant(_) => {
                    if let Some(whole) = space.index_of(shard_ir::Layout::REPLICATED) {
                        made[whole] = 0;
                    }
                }
                Def::Pin { operand, .. } => {
                    facts.allowed[id]
                        .iter()
                        .for_each(|l| made[*l] = self.least[operand.index()][*l]);
                }
                Def::Op { operands, .. } => {
                    for (fit, layouts) in facts.fits[id][..facts.by_itself[id]].iter().enumerate() {
                        let own = match (&facts.feeds[id], feeds_another(id)) {
                            (Some(_), _) => 0,
                            (None, true) => facts.time_as_a_leader(id, fit),
                            (None, false) => facts.kernel_time(&[(id, fit)]),
                        };
                        let parts: Vec<(u64, u64)> = operands
                            .iter()
                            .zip(&layouts.operands)
                            .map(|(o, l)| (self.least[o.index()][*l], self.behind[o.index()]))
                            .collect();
                        let apart = match parts.as_slice() {
                            [(a, behind_a), (b, behind_b)] if behind_a & behind_b == 0 => {
                                a.saturating_add(*b)
                            }
                            parts => parts.iter().map(|p| p.0).max().unwrap_or(0),
                        };
                        made[layouts.result] = made[layouts.result].min(own.saturating_add(apart));
                    }
                    // No lower bound is known for an attention as one kernel.
                    attention_ways(facts, id).iter().for_each(|way| made[way.made] = 0);
                }
            }
            let reached = |to: usize| {
                let through = |from: usize| made[from].saturating_add(space.way[from][to]);
                (0..made.len()).map(through).min().unwrap_or(NEVER)
            };
            self.least.push((0..made.len()).map(reached).collect());
            self.behind.push(behind);
        }
    }
}

fn take_kernel(state: &mut State, origin: usize) -> Option<Kernel> {
    let kernel = state.kernels.iter().find(|k| k.origin == origin)?.clone();
    state.kernels.remove(&kernel);
    Some(kernel)
}
