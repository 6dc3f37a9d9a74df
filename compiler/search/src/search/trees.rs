//! The trees of moves that bring a value from the layout in which it is made to all layouts in
//! which it is wanted.
//!
//! Where memory is no constraint the cheapest tree is enough ([`Steiner`]). Where it is one, a
//! dearer tree may hold less: its moves are smaller steps, cut the value sooner, or pass through
//! smaller layouts.

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

/// Trees to more than two layouts are listed where the layouts are no more than this.
const MAX_SEVERAL: usize = 4;

/// How many trees to several layouts are listed, the cheapest first.
const MAX_TREES: usize = 32;

/// How many trees in the making are looked at for that.
const MAX_GROWING: usize = 1_000;

/// How many trees are listed beside these: each is the cheapest whose moves all hold less than the
/// largest move of the tree before.
const MAX_TIERS: usize = 6;

/// Trees are first listed that exceed the time of the cheapest by no more than this part of the
/// slack of the search.
const FIRST_PART: u64 = 4096;

/// Where they are not enough, trees are listed that exceed the cheapest by this many times as much.
const GROWS_BY: u64 = 8;

/// A tree of moves of one value.
#[derive(Clone, Debug)]
pub(super) struct MoveTree {
    pub(super) cost: Cost,
    pub(super) moves: Moves,
}

/// An entry in a list of trees.
#[derive(Clone, Debug)]
pub(super) enum ListedTree {
    /// A tree by which the value may be moved.
    Exact(MoveTree),
    /// Stands for trees that are not listed, none of which costs or holds less than this one. Its
    /// moves may pass through a layout twice, or be none.
    Vague(MoveTree),
}

/// Trees that were found.
pub(super) struct FoundTrees {
    pub(super) trees: Vec<ListedTree>,
    /// What any other tree costs at least; `None` where there is no other that could hold less.
    pub(super) unlisted: Option<Cost>,
}

impl ListedTree {
    pub(super) fn tree(&self) -> &MoveTree {
        match self {
            ListedTree::Exact(tree) | ListedTree::Vague(tree) => tree,
        }
    }
}

/// The trees from one layout to what is wanted, the cheapest first. They are listed only as far as
/// the search asks for them.
#[derive(Debug)]
pub(super) struct Trees(RefCell<List>);

#[derive(Debug)]
struct List {
    listed: Vec<ListedTree>,
    /// All trees are listed that exceed the time of the cheapest by no more than this, in
    /// picoseconds; `None` as long as the cheapest alone is listed.
    by: Option<u64>,
    /// What any tree costs at least that is not listed yet; `None` where there is none.
    behind: Option<Cost>,
}

/// A value, the layout in which it is made, the other layouts in which it is wanted, and the moves
/// of the cheapest tree. The last is part of the key since, of trees that tie, the search may know
/// different ones as the cheapest.
type Ends = (ValueId, LayoutId, Vec<LayoutId>, Moves);

/// The lists of trees, by their ends.
pub(super) type KnownTrees = RefCell<FxHashMap<Ends, Rc<Trees>>>;

impl Trees {
    fn of(cheapest: MoveTree) -> Trees {
        let behind = Some(cheapest.cost);
        Trees(RefCell::new(List { listed: vec![ListedTree::Exact(cheapest)], by: None, behind }))
    }

    /// The tree with a number, if it is listed.
    fn listed(&self, number: u32) -> Option<ListedTree> {
        self.0.borrow().listed.get(number as usize).cloned()
    }

    /// The cost of the tree with a number, or a lower bound on it if it is not listed; `None` where
    /// there is no such tree.
    fn cost(&self, number: u32) -> Option<Cost> {
        let List { listed, behind, .. } = &*self.0.borrow();
        listed.get(number as usize).map(|moved| moved.tree().cost).or(*behind)
    }

    /// By how many picoseconds trees may exceed the cheapest that are to be listed next, so that
    /// the tree with a number may be among them: `first` at first, and at most `slack`. `None`
    /// where the tree is listed, or all are.
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
    /// of them, unless `unlisted` takes no longer. If it does, and where nothing is listed after
    /// this, one vague tree stands for all that were not found.
    fn add(&mut self, by: u64, FoundTrees { trees, unlisted }: FoundTrees, is_last: bool) {
        let Some(ListedTree::Exact(cheapest)) = self.listed.first().cloned() else {
            never!("a list of trees without the cheapest", return)
        };
        let upto = |by: u64| cheapest.cost.time.saturating_add(by);
        // The cheapest may stand behind others in `trees` that tie with it.
        let is_cheapest = |moved: &ListedTree| matches!(moved, ListedTree::Exact(tree) if tree.moves == cheapest.moves);
        let is_listed = |cost: Cost| self.by.is_some_and(|by| cost.time <= upto(by));
        let mut more: Vec<ListedTree> = trees
            .into_iter()
            .filter(|moved| !is_listed(moved.tree().cost) && !is_cheapest(moved))
            .collect();
        let is_short = is_last || unlisted.is_some_and(|cost| cost.time <= upto(by));
        self.behind = None;
        if is_short {
            // All trees that take no longer than those listed before are listed, so the vague tree
            // takes longer.
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
    /// The tree of a pick; `None` where it is not listed.
    pub(super) fn moved(&self, state: &State, pick: Pick) -> Option<ListedTree> {
        match pick.tree {
            0 => Some(ListedTree::Exact(cheapest(state, pick))),
            number => self.trees(state, pick)?.listed(number),
        }
    }

    /// The cost of the tree of a pick, or a lower bound on it if it is not listed; `None` where
    /// there is no such tree.
    pub(super) fn cost_of_moves(&self, state: &State, pick: Pick) -> Option<Cost> {
        self.trees(state, pick)?.cost(pick.tree)
    }

    /// Lists more trees where the tree of a pick is not listed. Returns whether it listed more.
    pub(super) fn lists_more(&self, state: &State, pick: Pick) -> bool {
        let (Some(holdings), Some(value)) = (&self.holdings, state.next_value()) else {
            return false;
        };
        let Some(trees) = self.trees(state, pick) else { return false };
        let made_in = state.ways.all[pick.way as usize].made_in;
        let wanted = wanted_elsewhere(state, made_in);
        // Trees to more than two layouts are found all at once, whatever time they take.
        let first = if wanted.len() > 2 { self.slack } else { self.slack / FIRST_PART };
        let Some(by) = trees.next(pick.tree, first, self.slack) else { return false };
        let of = Moving { holdings, value, table: self.tables.of(value) };
        let found = found_within(by, of, &state.ways, made_in, &wanted, &cheapest(state, pick));
        trees.0.borrow_mut().add(by, found, by >= self.slack);
        true
    }

    /// Whether a tree behind that of a pick may fit, or hold less than the footprint `drafted` with
    /// the tree of the pick. No tree may where the value leaves no room even if it is not moved, or
    /// where the tree of the pick holds no more than that.
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
        // A vague tree holds no more than the trees that it stands for, so that its footprint says
        // nothing of the trees behind it.
        let is_vague = matches!(self.moved(state, pick), Some(ListedTree::Vague(_)));
        let drafted = drafted.filter(|_| !is_vague);
        let producer = &self.tables.of(value).producers[made_in as usize][producer];
        unmoved.copy_from(&state.held);
        holdings.settle(unmoved, value, made_in, producer, &[], false).is_some()
            && drafted.is_none_or(|drafted| !drafted.is_within(unmoved))
    }

    /// The list of trees of a way of a state.
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

/// Trees from the layout in which a value is made to those in which it is wanted: all that take at
/// most `by` picoseconds longer than the cheapest, and maybe others.
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

/// The cheapest tree of a way of a state.
fn cheapest(state: &State, pick: Pick) -> MoveTree {
    let way = state.ways.all[pick.way as usize];
    MoveTree { cost: way.moves, moves: state.ways.moves(way.made_in) }
}

/// The layouts in which the value that is settled next is wanted, without the one in which it is
/// made.
fn wanted_elsewhere(state: &State, made_in: LayoutId) -> Vec<LayoutId> {
    let mut wanted: Vec<LayoutId> = state.wanted_next().iter().map(|w| w.layout).collect();
    wanted.dedup();
    wanted.retain(|layout| *layout != made_in);
    wanted
}

/// Trees to more than two layouts: the cheapest, and then trees whose moves hold less and less.
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
    /// Sets of wanted layouts that are still to be reached, each with the layout to reach it from.
    open: Vec<(usize, LayoutId)>,
    moves: Vec<(LayoutId, LayoutId)>,
}

/// The cheapest trees from a layout, each once.
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
        // The part of the set that has its first layout is reached here or behind the next move,
        // and the rest of the set by other moves. So each tree is made once.
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
