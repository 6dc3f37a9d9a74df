//! The trees of moves by which a value comes from where it is made to all that is wanted of it.
//!
//! Where memory is no constraint the cheapest is enough ([`Steiner`]). Where it is one, a dearer tree
//! may hold less: it moves in smaller steps, is cut sooner, or passes through smaller layouts.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shard_ir::ValueId;

use super::Search;
use super::forks::{Forks, Least};
use super::paths::{Left, MAX_PATHS, Moving, Paths, Until};
use super::states::{Choice, Pick, Visit};
use super::ways::{Moves, Ways};
use crate::cost::Cost;
use crate::footprint::{Footprint, Holdings};
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

/// A tree of moves and what it costs.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) cost: Cost,
    pub(super) moves: Moves,
}

/// By which tree a value is moved.
#[derive(Clone, Debug)]
pub(super) enum Moved {
    /// By this one.
    By(Tree),
    /// By one that is not listed, and that costs and holds no less than this. It may be of moves
    /// that pass through a layout twice, or of none.
    Somehow(Tree),
}

impl Moved {
    pub(super) fn tree(&self) -> &Tree {
        match self {
            Moved::By(tree) | Moved::Somehow(tree) => tree,
        }
    }
}

/// The trees from one layout: the cheapest, and behind it others and what stands for others, the
/// cheapest first.
#[derive(Debug)]
pub(super) struct Trees(Vec<Moved>);

/// A value, where it is made, and where else it is wanted.
type Ends = (ValueId, LayoutId, Vec<LayoutId>);

/// The trees that were listed, each list once.
pub(super) type KnownTrees = RefCell<FxHashMap<Ends, Rc<Trees>>>;

impl Trees {
    /// `unlisted` is what any tree costs that nothing stands for.
    fn new(cheapest: Tree, listed: Vec<Moved>, unlisted: Option<Cost>) -> Trees {
        // Of those that tie another may have come first.
        let is_cheapest =
            |moved: &Moved| matches!(moved, Moved::By(tree) if tree.moves == cheapest.moves);
        let mut others: Vec<Moved> = listed.into_iter().filter(|m| !is_cheapest(m)).collect();
        others.extend(unlisted.map(|cost| Moved::Somehow(Tree { cost, moves: [].into() })));
        others.sort_by_key(|moved| moved.tree().cost);
        others.insert(0, Moved::By(cheapest));
        Trees(others)
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
                visit.ways.listed(choice.made_in, list).0.get(pick.tree as usize).cloned()
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
        // What stands for several trees is within any of them, so it says nothing of those behind it.
        let is_vague = matches!(self.moved(visit, pick), Some(Moved::Somehow(_)));
        let drafted = drafted.filter(|_| !is_vague);
        let producer = &self.tables.of(value).producers[made_in as usize][producer];
        unmoved.copy_from(&visit.held);
        holdings.settle(unmoved, value, (made_in, producer, &[]), false).is_some()
            && drafted.is_none_or(|drafted| !drafted.is_within(unmoved))
    }

    /// The trees from where a value is made, made once.
    fn trees(
        &self,
        holdings: &Holdings<'_>,
        value: ValueId,
        visit: &Visit,
        made_in: LayoutId,
        cheapest: Tree,
    ) -> Rc<Trees> {
        let mut wanted: Vec<LayoutId> = visit.wanted_next().iter().map(|w| w.layout).collect();
        wanted.dedup();
        wanted.retain(|layout| *layout != made_in);
        let key = (value, made_in, wanted);
        if let Some(known) = self.known_trees.borrow().get(&key) {
            return Rc::clone(known);
        }
        let made =
            Rc::new(self.listed((holdings, value), &visit.ways, (made_in, &key.2), cheapest));
        self.known_trees.borrow_mut().insert(key, Rc::clone(&made));
        made
    }

    /// The same, listed anew.
    fn listed(
        &self,
        (holdings, value): (&Holdings<'_>, ValueId),
        ways: &Ways,
        (made_in, wanted): (LayoutId, &[LayoutId]),
        cheapest: Tree,
    ) -> Trees {
        if cheapest.moves.is_empty() || !holdings.takes_memory(value) {
            return Trees::new(cheapest, Vec::new(), None);
        }
        let table = self.tables.of(value);
        let of = Moving { holdings, value, table };
        let upto = cheapest.cost.time.saturating_add(self.slack);
        let mut left = Left { paths: MAX_PATHS, upto };
        let set = |layout: &LayoutId| ways.steiner()?.set_of(*layout);
        let sets: Option<Vec<usize>> = wanted.iter().map(set).collect();
        let (listed, unlisted) = match (wanted, ways.steiner(), sets.as_deref()) {
            ([to], Some(least), Some([set])) => {
                let layouts = 0..table.layouts.len() as LayoutId;
                let rest: Vec<_> = layouts.map(|at| least.cost_of(*set, at)).collect();
                let until = Until::Reached(*to);
                let paths = Paths::from_made(of, made_in, &until, &rest, &mut left);
                let tree = |number| {
                    let through = paths.through(number);
                    let moves = through.windows(2).map(|pair| (pair[0], pair[1])).collect();
                    Moved::By(Tree { cost: paths.path(number).cost, moves })
                };
                (paths.numbers(*to).map(tree).collect(), paths.unlisted)
            }
            ([first, second], Some(of_both), Some([to_first, to_second])) => {
                let least = Least { of: of_both, sets: [*to_first, *to_second] };
                Forks::of(of, made_in, ([*first, *second], &least), left)
            }
            _ if wanted.len() <= MAX_SEVERAL => {
                let (listed, unlisted) = several(of, (made_in, wanted), &cheapest);
                (listed.into_iter().map(Moved::By).collect(), unlisted)
            }
            _ => (Vec::new(), Some(ways.least_moves(made_in))),
        };
        Trees::new(cheapest, listed, unlisted)
    }
}

/// Trees to several layouts: the cheapest, and behind them trees whose moves hold less and less.
fn several(
    of: Moving<'_>,
    (made_in, wanted): (LayoutId, &[LayoutId]),
    cheapest: &Tree,
) -> (Vec<Tree>, Option<Cost>) {
    let table = of.table;
    let all = Steiner::new(table, wanted);
    let (mut listed, unlisted) = cheapest_of(table, &all, made_in);
    if unlisted.is_none() {
        return (listed, unlisted);
    }
    let held = |from, to| of.held(from, to);
    let mut last = cheapest.clone();
    for _ in 1..MAX_TIERS {
        let most = last.moves.iter().map(|(from, to)| held(*from, *to)).max().unwrap_or(0);
        let less = Steiner::within(table, wanted, &|from, to| held(from, to) < most);
        let Some(cost) = less.cost_from(made_in) else { break };
        last = Tree { cost, moves: less.moves_from(made_in).into() };
        if listed.iter().all(|tree| tree.moves != last.moves) {
            listed.push(last.clone());
        }
    }
    (listed, unlisted)
}

/// A tree in the making.
struct Growing {
    spent: Cost,
    /// Which of the wanted layouts are still to be reached, and from where.
    open: Vec<(usize, LayoutId)>,
    moves: Vec<(LayoutId, LayoutId)>,
}

/// The cheapest trees, each once.
fn cheapest_of(
    table: &ValueTable,
    least: &Steiner,
    made_in: LayoutId,
) -> (Vec<Tree>, Option<Cost>) {
    let mut listed = Vec::new();
    let mut all =
        vec![Growing { spent: Cost::ZERO, open: vec![(least.all(), made_in)], moves: Vec::new() }];
    let mut queue = BinaryHeap::from([Reverse((Cost::ZERO, 0usize))]);
    let mut looked_at = 0;
    while let Some(Reverse((bound, number))) = queue.pop() {
        looked_at += 1;
        if looked_at > MAX_GROWING || listed.len() >= MAX_TREES {
            return (listed, Some(bound));
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
    (listed, None)
}
