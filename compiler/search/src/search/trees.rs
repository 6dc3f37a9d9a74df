//! The trees of moves by which a value comes from where it is made to all that is wanted of it.
//!
//! Where memory is no constraint the cheapest is enough ([`Steiner`]). Where it is one, a dearer
//! tree may hold less: it moves in smaller steps, is cut sooner, or passes through smaller layouts.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::{ValueId, never};

use super::Search;
use super::forks::{ForkedTrees, LeastToTwo};
use super::paths::{MAX_PATHS, Moving, PathBudget, Paths, Until};
use super::states::{Pick, State, WayToSettle};
use super::ways::{Moves, WaysToSettle};
use crate::cost::Cost;
use crate::footprint::Footprint;
use crate::steiner::Steiner;
use crate::table::{LayoutId, ValueTable};

/// Trees to so many layouts are listed.
const MAX_SEVERAL: usize = 4;

/// So many of them, the cheapest, and as long as no more are in the making.
const MAX_TREES: usize = 32;
const MAX_GROWING: usize = 1_000;

/// And so many others: each the cheapest of those whose moves all hold less than those of the one
/// before.
const MAX_TIERS: usize = 6;

/// The trees of a list are found that take this part of what a plan may longer than the cheapest;
/// where they are not enough, those that take this many times as much longer.
const FIRST_PART: u64 = 4096;
const GROWS_BY: u64 = 8;

/// A tree of moves and what it costs.
#[derive(Clone, Debug)]
pub(super) struct MoveTree {
    pub(super) cost: Cost,
    pub(super) moves: Moves,
}

/// By which tree a value is moved.
#[derive(Clone, Debug)]
pub(super) enum ListedTree {
    /// By this one.
    Exact(MoveTree),
    /// By one that is not listed, and that costs and holds no less than this. It may be of moves
    /// that pass through a layout twice, or of none.
    Vague(MoveTree),
}

/// Trees that were found, and what any tree costs at least that was not; `None` where all were.
pub(super) struct FoundTrees {
    pub(super) trees: Vec<ListedTree>,
    pub(super) unlisted: Option<Cost>,
}

impl ListedTree {
    pub(super) fn tree(&self) -> &MoveTree {
        match self {
            ListedTree::Exact(tree) | ListedTree::Vague(tree) => tree,
        }
    }
}

/// The trees from one layout, the cheapest first: the cheapest of all, and behind it others and
/// what stands for others. They are listed as far as the search comes.
#[derive(Debug)]
pub(super) struct Trees(RefCell<List>);

#[derive(Debug)]
struct List {
    listed: Vec<ListedTree>,
    /// All that cost more time than the cheapest by no more than this, in picoseconds, are listed.
    /// Nothing is at first, but the cheapest.
    by: Option<u64>,
    /// What any tree costs that is not listed yet; `None` where there is none.
    behind: Option<Cost>,
}

/// A value, where it is made, where else it is wanted, and the moves of the cheapest tree: of those
/// that tie, it may be another where more is wanted.
type Ends = (ValueId, LayoutId, Vec<LayoutId>, Moves);

/// The trees that were listed, each list once.
pub(super) type KnownTrees = RefCell<FxHashMap<Ends, Rc<Trees>>>;

impl Trees {
    fn of(cheapest: MoveTree) -> Trees {
        let behind = Some(cheapest.cost);
        Trees(RefCell::new(List { listed: vec![ListedTree::Exact(cheapest)], by: None, behind }))
    }

    /// The tree of a number, if it is listed.
    fn listed(&self, number: u32) -> Option<ListedTree> {
        self.0.borrow().listed.get(number as usize).cloned()
    }

    /// What the tree of a number costs, or at least if it is not listed; `None` where there is
    /// none.
    fn cost(&self, number: u32) -> Option<Cost> {
        let List { listed, behind, .. } = &*self.0.borrow();
        listed.get(number as usize).map(|moved| moved.tree().cost).or(*behind)
    }

    /// How far the trees are to be listed next for one of a number that is not listed: by how much
    /// more time than the cheapest, `first` at first and at most `slack`. `None` where there are no
    /// more.
    fn next(&self, number: u32, first: u64, slack: u64) -> Option<u64> {
        let List { listed, by, behind } = &*self.0.borrow();
        if (number as usize) < listed.len() || behind.is_none() {
            return None;
        }
        let further = |by: u64| by.saturating_mul(GROWS_BY).clamp(1, slack.max(1));
        Some(by.map_or(first, further))
    }
}

impl List {
    /// Lists the trees that take at most `by` picoseconds longer than the cheapest. `trees` has all
    /// of them, unless any other may cost `unlisted` and that takes no longer. Then, and where
    /// the list is the last, one vague tree stands for all that were not found.
    fn add(&mut self, by: u64, FoundTrees { trees, unlisted }: FoundTrees, is_last: bool) {
        let Some(ListedTree::Exact(cheapest)) = self.listed.first().cloned() else {
            never!("a list of trees without the cheapest", return)
        };
        let upto = |by: u64| cheapest.cost.time.saturating_add(by);
        // Of those that tie another may have come first.
        let is_cheapest = |moved: &ListedTree| matches!(moved, ListedTree::Exact(tree) if tree.moves == cheapest.moves);
        let is_listed = |cost: Cost| self.by.is_some_and(|by| cost.time <= upto(by));
        let mut more: Vec<ListedTree> = trees
            .into_iter()
            .filter(|moved| !is_listed(moved.tree().cost) && !is_cheapest(moved))
            .collect();
        let is_short = is_last || unlisted.is_some_and(|cost| cost.time <= upto(by));
        self.behind = None;
        if is_short {
            // Those that were listed before are all that cost as much.
            let least = |by| Cost { time: upto(by).saturating_add(1), ..Cost::ZERO };
            let least = self.by.map_or(Cost::ZERO, least);
            let others = unlisted.map(|cost| MoveTree { cost: cost.max(least), moves: [].into() });
            more.extend(others.map(ListedTree::Vague));
        } else {
            let is_behind = |moved: &ListedTree| moved.tree().cost.time > upto(by);
            let costs = more.iter().filter(|moved| is_behind(moved)).map(|moved| moved.tree().cost);
            self.behind = costs.chain(unlisted).min();
            more.retain(|moved| !is_behind(moved));
        }
        more.sort_by_key(|moved| moved.tree().cost);
        self.listed.extend(more);
        self.by = Some(by);
    }
}

impl Search<'_> {
    /// The tree of a pick; `None` where there are not so many, or where it is not listed.
    pub(super) fn moved(&self, state: &State, pick: Pick) -> Option<ListedTree> {
        match pick.tree {
            0 => Some(ListedTree::Exact(cheapest(state, pick))),
            number => self.trees(state, pick)?.listed(number),
        }
    }

    /// What the tree of a pick costs, or at least if it is not listed; `None` where there is none.
    pub(super) fn cost_of_moves(&self, state: &State, pick: Pick) -> Option<Cost> {
        self.trees(state, pick)?.cost(pick.tree)
    }

    /// Lists more trees where that of a pick is not listed. Returns whether it did.
    pub(super) fn lists_more(&self, state: &State, pick: Pick) -> bool {
        let (Some(holdings), Some(value)) = (&self.holdings, state.next_value()) else {
            return false;
        };
        let Some(trees) = self.trees(state, pick) else { return false };
        let made_in = state.ways.all[pick.way as usize].made_in;
        let wanted = wanted_elsewhere(state, made_in);
        // Those to several layouts are found at once, however much longer they take.
        let first = if wanted.len() > 2 { self.slack } else { self.slack / FIRST_PART };
        let Some(by) = trees.next(pick.tree, first, self.slack) else { return false };
        let of = Moving { holdings, value, table: self.tables.of(value) };
        let found = found_within(by, of, &state.ways, made_in, &wanted, &cheapest(state, pick));
        trees.0.borrow_mut().add(by, found, by >= self.slack);
        true
    }

    /// Whether a tree behind that of a pick may leave room, or hold less than what was drafted with
    /// that: not where the value would leave no room if nothing moved it, nor where the moves hold
    /// nothing.
    pub(super) fn may_hold_less(
        &self,
        state: &State,
        pick: Pick,
        drafted: Option<&Footprint>,
        unmoved: &mut Footprint,
    ) -> bool {
        let decided = state.slots == self.slots.len();
        let value = state.next_value().filter(|_| decided);
        let (Some(holdings), Some(value)) = (&self.holdings, value) else { return false };
        let WayToSettle { made_in, producer, .. } = state.ways.all[pick.way as usize];
        if !self.all_trees || state.ways.moves(made_in).is_empty() {
            return false;
        }
        // What stands for several trees is within any of them, so it says nothing of those behind
        // it.
        let is_vague = matches!(self.moved(state, pick), Some(ListedTree::Vague(_)));
        let drafted = drafted.filter(|_| !is_vague);
        let producer = &self.tables.of(value).producers[made_in as usize][producer];
        unmoved.copy_from(&state.held);
        holdings.settle(unmoved, value, made_in, producer, &[], false).is_some()
            && drafted.is_none_or(|drafted| !drafted.is_within(unmoved))
    }

    /// The trees of a choice of a state.
    fn trees(&self, state: &State, pick: Pick) -> Option<Rc<Trees>> {
        let value = state.next_value()?;
        let made_in = state.ways.all[pick.way as usize].made_in;
        Some(state.ways.listed(made_in, || {
            let moves = state.ways.moves(made_in);
            let key = (value, made_in, wanted_elsewhere(state, made_in), moves);
            let mut known = self.known_trees.borrow_mut();
            let made =
                known.entry(key).or_insert_with(|| Rc::new(Trees::of(cheapest(state, pick))));
            Rc::clone(made)
        }))
    }
}

/// Trees from where a value is made to the layouts in which it is wanted: all that take at most
/// `by` picoseconds longer than the cheapest, and maybe others.
fn found_within(
    by: u64,
    of: Moving<'_>,
    ways: &WaysToSettle,
    made_in: LayoutId,
    wanted: &[LayoutId],
    cheapest: &MoveTree,
) -> FoundTrees {
    if cheapest.moves.is_empty() || !of.holdings.takes_memory(of.value) {
        return FoundTrees { trees: Vec::new(), unlisted: None };
    }
    let upto = cheapest.cost.time.saturating_add(by);
    let mut left = PathBudget { paths: MAX_PATHS, upto };
    let set = |layout: &LayoutId| ways.steiner()?.set_of(*layout);
    let sets: Option<Vec<usize>> = wanted.iter().map(set).collect();
    match (wanted, ways.steiner(), sets.as_deref()) {
        ([to], Some(least), Some([set])) => {
            let layouts = 0..of.table.layouts.len() as LayoutId;
            let rest: Vec<_> = layouts.map(|at| least.cost_of(*set, at)).collect();
            let until = Until::Reached(*to);
            let paths = Paths::from_made(of, made_in, &until, &rest, &mut left);
            let tree = |number| {
                let through = paths.through(number);
                let moves = through.windows(2).map(|pair| (pair[0], pair[1])).collect();
                ListedTree::Exact(MoveTree { cost: paths.path(number).cost, moves })
            };
            FoundTrees { trees: paths.numbers(*to).map(tree).collect(), unlisted: paths.unlisted }
        }
        ([first, second], Some(of_both), Some([to_first, to_second])) => {
            let least = LeastToTwo { of: of_both, sets: [*to_first, *to_second] };
            ForkedTrees::of(of, made_in, [*first, *second], &least, left)
        }
        _ if wanted.len() <= MAX_SEVERAL => several(of, made_in, wanted, cheapest),
        _ => FoundTrees { trees: Vec::new(), unlisted: Some(ways.least_moves(made_in)) },
    }
}

/// The cheapest tree of a choice of a state.
fn cheapest(state: &State, pick: Pick) -> MoveTree {
    let way = state.ways.all[pick.way as usize];
    MoveTree { cost: way.moves, moves: state.ways.moves(way.made_in) }
}

/// The layouts in which a value is wanted that is settled next, but the one in which it is made.
fn wanted_elsewhere(state: &State, made_in: LayoutId) -> Vec<LayoutId> {
    let mut wanted: Vec<LayoutId> = state.wanted_next().iter().map(|w| w.layout).collect();
    wanted.dedup();
    wanted.retain(|layout| *layout != made_in);
    wanted
}

/// Trees to several layouts: the cheapest, and behind them trees whose moves hold less and less.
fn several(
    of: Moving<'_>,
    made_in: LayoutId,
    wanted: &[LayoutId],
    cheapest: &MoveTree,
) -> FoundTrees {
    let table = of.table;
    let all = Steiner::within(table, wanted, &|_, _| true);
    let mut found = cheapest_of(table, &all, made_in);
    if found.unlisted.is_none() {
        return found;
    }
    let held = |from, to| of.held(from, to);
    let mut last = cheapest.clone();
    for _ in 1..MAX_TIERS {
        let most = last.moves.iter().map(|(from, to)| held(*from, *to)).max().unwrap_or(0);
        let less = Steiner::within(table, wanted, &|from, to| held(from, to) < most);
        let Some(cost) = less.cost_from(made_in) else { break };
        last = MoveTree { cost, moves: less.moves_from(made_in).into() };
        if found.trees.iter().all(|listed| listed.tree().moves != last.moves) {
            found.trees.push(ListedTree::Exact(last.clone()));
        }
    }
    found
}

/// A tree in the making.
struct Growing {
    spent: Cost,
    /// Which of the wanted layouts are still to be reached, and from where.
    open: Vec<(usize, LayoutId)>,
    moves: Vec<(LayoutId, LayoutId)>,
}

/// The cheapest trees, each once.
fn cheapest_of(table: &ValueTable, least: &Steiner, made_in: LayoutId) -> FoundTrees {
    let mut trees = Vec::new();
    let mut all =
        vec![Growing { spent: Cost::ZERO, open: vec![(least.all(), made_in)], moves: Vec::new() }];
    let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, 0usize))]);
    let mut looked_at = 0;
    while let Some(Reverse((bound, number))) = queue.pop() {
        looked_at += 1;
        if looked_at > MAX_GROWING || trees.len() >= MAX_TREES {
            return FoundTrees { trees, unlisted: Some(bound) };
        }
        let Growing { spent, open, moves } = &all[number];
        let Some(((set, at), others)) = open.split_last() else {
            let moves = moves.as_slice().into();
            trees.push(ListedTree::Exact(MoveTree { cost: *spent, moves }));
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
    FoundTrees { trees, unlisted: None }
}
