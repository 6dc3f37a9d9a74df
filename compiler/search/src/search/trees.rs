//! The trees of moves by which a value comes from where it is made to all that is wanted of it.
//!
//! Where memory is no constraint the cheapest is enough ([`Steiner`]). Where it is one, a dearer tree
//! may hold less: it moves in smaller steps, is cut sooner, or passes through smaller layouts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use super::Search;
use super::states::{Choice, Pick, Visit};
use super::ways::{Moves, Ways};
use crate::cost::Cost;
use crate::footprint::{Footprint, Holdings};
use crate::steiner::Steiner;
use crate::table::{LayoutId, ValueTable};

/// Paths are looked for as long as they are among so many, the cheapest first.
const MAX_PATHS: usize = 2_000;

/// Trees to so many layouts are listed.
const MAX_SEVERAL: usize = 4;

/// So many of them, the cheapest, and as long as no more are in the making.
const MAX_TREES: usize = 32;
const MAX_GROWING: usize = 1_000;

/// And so many others: each the cheapest of those whose moves all hold less than those of the one
/// before.
const MAX_TIERS: usize = 6;

/// A tree of moves and what it costs.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) cost: Cost,
    pub(super) moves: Moves,
}

/// The trees from one layout, the cheapest first.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) listed: Vec<Tree>,
    /// What any tree costs that is not listed and may hold less than those that are; `None` where
    /// there is none.
    pub(super) unlisted: Option<Cost>,
}

/// By which tree a value is moved.
pub(super) enum Moved {
    /// By this one.
    By(Tree),
    /// By one that is not listed, of which it is known only that it costs no less than this, and
    /// holds the value where it is made and where it is read.
    Somehow(Cost),
}

impl Trees {
    /// The tree of a number: those that are listed come first, then what stands for all others.
    fn of(&self, number: u32) -> Option<Moved> {
        match (self.listed.get(number as usize), self.unlisted) {
            (Some(tree), _) => Some(Moved::By(tree.clone())),
            (None, Some(cost)) if number as usize == self.listed.len() => {
                Some(Moved::Somehow(cost))
            }
            (None, _) => None,
        }
    }
}

impl Search<'_> {
    /// The tree of a pick; `None` where there are not so many.
    pub(super) fn moved(&self, visit: &Visit, pick: Pick) -> Option<Moved> {
        let choice = visit.ways.choices[pick.choice as usize];
        let cheapest = || Tree { cost: choice.moves, moves: visit.ways.moves(choice.made_in) };
        match (&self.holdings, visit.next_value()) {
            (Some(holdings), Some(value)) if pick.tree > 0 => {
                let list = || self.trees(holdings, value, visit, choice.made_in, cheapest());
                visit.ways.trees(choice.made_in, list).of(pick.tree)
            }
            _ => (pick.tree == 0).then(|| Moved::By(cheapest())),
        }
    }

    /// Whether a tree behind that of a pick may leave room, or hold less than what was drafted with
    /// that: not where the value would leave no room if nothing moved it, nor where the moves hold
    /// nothing.
    pub(super) fn may_hold_less(
        &self,
        visit: &Visit,
        pick: Pick,
        drafted: Option<&Footprint>,
        unmoved: &mut Footprint,
    ) -> bool {
        let decided = visit.slots == self.slots.len();
        let value = visit.next_value().filter(|_| decided);
        let (Some(holdings), Some(value)) = (&self.holdings, value) else { return false };
        let Choice { made_in, producer, .. } = visit.ways.choices[pick.choice as usize];
        if !self.all_trees || visit.ways.moves(made_in).is_empty() {
            return false;
        }
        let producer = &self.tables.of(value).producers[made_in as usize][producer];
        unmoved.copy_from(&visit.held);
        holdings.settle(unmoved, value, (made_in, producer, &[])).is_some()
            && drafted.is_none_or(|drafted| !drafted.is_within(unmoved))
    }

    fn trees(
        &self,
        holdings: &Holdings<'_>,
        value: ValueId,
        visit: &Visit,
        made_in: LayoutId,
        cheapest: Tree,
    ) -> Trees {
        if cheapest.moves.is_empty() || !holdings.takes_memory(value) {
            return Trees { listed: vec![cheapest], unlisted: None };
        }
        let table = self.tables.of(value);
        let mut wanted: Vec<LayoutId> = visit.wanted_next().iter().map(|w| w.layout).collect();
        wanted.dedup();
        wanted.retain(|layout| *layout != made_in);
        let mut trees = match wanted[..] {
            [to] => {
                let ways = visit.ways.as_ref();
                let (all, kept, queue) = (Vec::new(), FxHashMap::default(), BinaryHeap::new());
                Paths { holdings, value, table, ways, to, all, kept, queue }.from(made_in)
            }
            _ if wanted.len() <= MAX_SEVERAL => {
                several(holdings, value, table, (made_in, &wanted), cheapest.clone())
            }
            _ => Trees { listed: Vec::new(), unlisted: Some(visit.ways.least_moves(made_in)) },
        };
        // Of those that tie another may have come first.
        trees.listed.retain(|tree| tree.moves != cheapest.moves);
        trees.listed.insert(0, cheapest);
        trees
    }
}

/// Trees to several layouts: the cheapest, and behind them trees whose moves hold less and less.
fn several(
    holdings: &Holdings<'_>,
    value: ValueId,
    table: &ValueTable,
    (made_in, wanted): (LayoutId, &[LayoutId]),
    cheapest: Tree,
) -> Trees {
    let all = Steiner::new(table, wanted);
    let Trees { mut listed, unlisted } = cheapest_of(table, &all, made_in);
    if unlisted.is_none() {
        return Trees { listed, unlisted };
    }
    let held = |from, to| holdings.held_by_move(value, from, to);
    let mut last = cheapest;
    for _ in 1..MAX_TIERS {
        let most = last.moves.iter().map(|(from, to)| held(*from, *to)).max().unwrap_or(0);
        let less = Steiner::within(table, wanted, &|from, to| held(from, to) < most);
        let Some(cost) = less.cost_from(made_in) else { break };
        last = Tree { cost, moves: less.moves_from(made_in).into() };
        if listed.iter().all(|tree| tree.moves != last.moves) {
            listed.push(last.clone());
        }
    }
    Trees { listed, unlisted }
}

/// A tree in the making.
struct Growing {
    spent: Cost,
    /// Which of the wanted layouts are still to be reached, and from where.
    open: Vec<(usize, LayoutId)>,
    moves: Vec<(LayoutId, LayoutId)>,
}

/// The cheapest trees, each once.
fn cheapest_of(table: &ValueTable, least: &Steiner, made_in: LayoutId) -> Trees {
    let mut listed = Vec::new();
    let mut all =
        vec![Growing { spent: Cost::ZERO, open: vec![(least.all(), made_in)], moves: Vec::new() }];
    let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, 0usize))]);
    let mut looked_at = 0;
    while let Some(Reverse((bound, number))) = queue.pop() {
        looked_at += 1;
        if looked_at > MAX_GROWING || listed.len() >= MAX_TREES {
            return Trees { listed, unlisted: Some(bound) };
        }
        let Growing { spent, open, moves } = &all[number];
        let Some(((set, at), others)) = open.split_last() else {
            listed.push(Tree { cost: *spent, moves: moves.as_slice().into() });
            continue;
        };
        let (set, at) = (*set, *at);
        let mut next: Vec<Growing> = Vec::new();
        let mut go_on = |more: &[(usize, LayoutId)], made: Option<(LayoutId, Cost)>| {
            let mut growing = Growing {
                spent: *spent,
                open: others.iter().chain(more).copied().collect(),
                moves: moves.clone(),
            };
            if let Some((to, cost)) = made {
                growing.spent = growing.spent + cost;
                growing.moves.push((at, to));
            }
            next.push(growing);
        };
        // The set, or the part of it with its first layout, is behind one move, or here; what is
        // left is behind others. So each tree is made once.
        let low = set & set.wrapping_neg();
        let mut part = set;
        while part > 0 {
            if part & low != 0 {
                let rest = Some((set ^ part, at)).filter(|(rest, _)| *rest > 0);
                if least.is_here(part, at) {
                    go_on(rest.as_slice(), None);
                }
                for (to, cost) in &table.arcs_from[at as usize] {
                    if *to != made_in && moves.iter().all(|(_, known)| known != to) {
                        let more: Vec<_> = rest.into_iter().chain([(part, *to)]).collect();
                        go_on(&more, Some((*to, *cost)));
                    }
                }
            }
            part = (part - 1) & set;
        }
        for growing in next {
            let rest = growing
                .open
                .iter()
                .try_fold(growing.spent, |sum, (set, at)| Some(sum + least.cost_of(*set, *at)?));
            if let Some(bound) = rest {
                queue.push(Reverse((bound, all.len())));
                all.push(growing);
            }
        }
    }
    Trees { listed, unlisted: None }
}

/// The paths of a value to the one layout in which it is wanted besides that in which it is made.
struct Paths<'p> {
    holdings: &'p Holdings<'p>,
    value: ValueId,
    table: &'p ValueTable,
    ways: &'p Ways,
    to: LayoutId,
    all: Vec<Path>,
    /// Those that led to a layout with less cost or less held than all before them, by the layout
    /// and whether the next move may be early.
    kept: FxHashMap<(LayoutId, bool), Vec<usize>>,
    queue: BinaryHeap<Reverse<(Cost, usize)>>,
}

/// A path from where the value is made to some layout: what it costs, and what is held on it. It is
/// held when the moments of a settled value say ([`Holdings`]).
#[derive(Clone, Copy, Debug)]
struct Path {
    cost: Cost,
    at: LayoutId,
    /// The path that this one is longer than by one move.
    before: Option<usize>,
    /// All its moves are done as soon as the value is made, and so may be the next.
    is_early: bool,
    /// How many of its moves, the first, are.
    early: usize,
    /// What the first move makes: it holds that and the value as it is made.
    first: u64,
    /// What any other move holds that is done as soon as the value is made.
    at_once: u64,
    /// What is held from then to the first reader; 0 where it is the value as it is made.
    between: u64,
    /// What any other move holds that is done before the first reader.
    late: u64,
}

impl Path {
    /// Whether it holds no more at any time than another path.
    fn is_within(&self, other: &Path) -> bool {
        (self.early > 0) == (other.early > 0)
            && self.first <= other.first
            && self.at_once <= other.at_once
            && self.between <= other.between
            && self.late <= other.late
    }

    /// The same, however the other goes on.
    fn stays_within(&self, other: &Path) -> bool {
        match (other.is_early, other.early) {
            (true, 0) => false,
            (true, _) => self.is_within(&Path { between: 0, ..*other }),
            (false, _) => self.is_within(other),
        }
    }
}

impl Paths<'_> {
    /// All of them of which no other costs and holds no more, the cheapest first.
    fn from(mut self, made_in: LayoutId) -> Trees {
        let (mut listed, mut ends): (Vec<Tree>, Vec<Path>) = (Vec::new(), Vec::new());
        let is_early = self.holdings.may_move_early(self.value);
        let (cost, before) = (Cost::ZERO, None);
        let start = Path {
            cost,
            at: made_in,
            before,
            is_early,
            early: 0,
            first: 0,
            at_once: 0,
            between: 0,
            late: 0,
        };
        self.add(start);
        let mut looked_at = 0;
        while let Some(Reverse((cost, number))) = self.queue.pop() {
            let path = self.all[number];
            if ends.iter().any(|end| end.stays_within(&path)) || self.is_known(number) {
                continue;
            }
            looked_at += 1;
            if looked_at > MAX_PATHS {
                return Trees { listed, unlisted: Some(cost) };
            }
            if path.at == self.to {
                listed.push(Tree { cost, moves: self.moves(number).into() });
                ends.push(path);
                continue;
            }
            self.kept.entry((path.at, path.is_early)).or_default().push(number);
            for (to, cost) in &self.table.arcs_from[path.at as usize] {
                if self.way(number).all(|known| self.all[known].at != *to) {
                    self.add(self.longer(number, *to, *cost));
                }
            }
        }
        Trees { listed, unlisted: None }
    }

    /// A path made longer by a move.
    fn longer(&self, number: usize, to: LayoutId, cost: Cost) -> Path {
        let path = self.all[number];
        let held = self.holdings.held_by_move(self.value, path.at, to);
        let made = self.holdings.bytes(self.value, to);
        let is_early = path.is_early && self.holdings.is_early(self.value, path.at, to);
        let (is_first, mut longer) = (
            path.before.is_none(),
            Path { cost: path.cost + cost, at: to, before: Some(number), is_early, ..path },
        );
        if is_first {
            longer.first = made;
        } else if is_early {
            longer.at_once = path.at_once.max(held);
        } else {
            longer.late = path.late.max(held);
        }
        if is_early {
            (longer.early, longer.between) = (path.early + 1, made);
        }
        longer
    }

    /// Notes a path that may lead to where it is to.
    fn add(&mut self, path: Path) {
        if let Some(rest) = self.ways.least_to(self.to, path.at) {
            self.queue.push(Reverse((path.cost + rest, self.all.len())));
            self.all.push(path);
        }
    }

    /// Whether a path is left out for one that leads as far.
    fn is_known(&self, number: usize) -> bool {
        let path = &self.all[number];
        let known = self.kept.get(&(path.at, path.is_early)).into_iter().flatten();
        known.copied().any(|known| {
            // What the other passes through early this one must pass through too: else it may be
            // what this one goes on by.
            let through =
                |known: usize| self.way(number).any(|own| self.all[own].at == self.all[known].at);
            let early = |known: &usize| self.all[*known].is_early;
            self.all[known].is_within(path)
                && (self.all[known].early <= 1 || self.way(known).filter(early).all(through))
        })
    }

    /// A path and all that it is longer than.
    fn way(&self, number: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(number), |number| self.all[*number].before)
    }

    fn moves(&self, number: usize) -> Vec<(LayoutId, LayoutId)> {
        let mut through: Vec<LayoutId> = self.way(number).map(|path| self.all[path].at).collect();
        through.reverse();
        through.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }
}
