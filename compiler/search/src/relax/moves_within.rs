//! The moves of a value that may be in a plan that takes no more than some time.
//!
//! A plan that moves a value from `a` to `b` serves some of its readers behind `b`: it takes no
//! less than what it takes to have the value in `a` and serve the others, the move, and what it
//! takes to serve these from `b`. (Reduced-cost fixing, of moves.)

use rustc_hash::{FxHashMap, FxHashSet};
use shard_ir::Layout;

use super::graph::Graph;
use super::prices::Serving;
use super::serving::{add, scale};
use super::whole::Whole;

/// The moves of one value between some of its layouts.
#[derive(Debug)]
pub(crate) struct MovesWithin {
    /// The place of each layout in the lists.
    places: FxHashMap<Layout, usize>,
    sets: Vec<ServedSet>,
    /// What serving all readers takes at least, and what it may take.
    least: i64,
    most: i64,
    ticks: i64,
}

/// A set of readers, or of groups of them, that is served behind a move.
#[derive(Debug)]
struct ServedSet {
    /// What it takes to serve it from each layout.
    inside: Vec<i64>,
    /// What it takes to have the value in each layout, and all other readers served.
    outside: Vec<i64>,
    /// See [`scale`].
    scale: i64,
}

impl MovesWithin {
    /// Those of each value between these layouts in plans that take no more than `most` ticks;
    /// `None` of a value whose readers are not priced together.
    pub(super) fn of_all(
        whole: &Whole,
        layouts: &[FxHashSet<Layout>],
        most: i64,
    ) -> Vec<Option<MovesWithin>> {
        let Whole { problem, prices } = whole;
        let mut found: Vec<Option<MovesWithin>> = layouts.iter().map(|_| None).collect();
        // After a sweep up all that is dear looks so at the results, and on the way down in turn at
        // each value.
        let mut prices = prices.clone();
        prices.up(problem, false);
        prices.down_past(problem, &mut |id, serving| {
            let (v, graph) = (id.index(), &problem.graphs[id.index()]);
            found[v] = Some(MovesWithin::new(graph, &layouts[v], serving, most, problem.ticks));
        });
        found
    }

    fn new(
        graph: &Graph,
        layouts: &FxHashSet<Layout>,
        serving: &Serving<'_>,
        most: i64,
        ticks: i64,
    ) -> MovesWithin {
        let kept = graph.layouts.iter().enumerate().filter(|(_, l)| layouts.contains(l));
        let nodes: Vec<usize> = kept.clone().map(|(node, _)| node).collect();
        let places = kept.enumerate().map(|(place, (_, layout))| (*layout, place)).collect();
        let Serving { costs, readers, members, least, rest } = serving;
        let of = |all: &[i64]| nodes.iter().map(|node| all[*node]).collect();
        let set = |set: usize| ServedSet {
            inside: of(&costs.inside[set]),
            outside: of(&costs.outside[set]),
            scale: scale(set, *members),
        };
        let sets = (1..1usize << readers).map(set).collect();
        MovesWithin { places, sets, least: *least, most: most.saturating_sub(*rest), ticks }
    }

    /// Those from one of the layouts.
    pub(crate) fn from(&self, from: Layout) -> MovesFrom<'_> {
        MovesFrom { all: self, from: self.places.get(&from).copied() }
    }
}

/// The moves of one value from one layout.
pub(crate) struct MovesFrom<'m> {
    all: &'m MovesWithin,
    from: Option<usize>,
}

impl MovesFrom<'_> {
    /// The longest that one to this layout may take, in picoseconds; `None` where none is in such a
    /// plan.
    pub(crate) fn longest(&self, to: Layout) -> Option<u64> {
        let MovesWithin { places, sets, least, most, ticks } = self.all;
        let (from, to) = (self.from?, *places.get(&to)?);
        let longest = |set: &ServedSet| {
            // What is above the least counts for a part of it, rounded down.
            let most = match set.scale {
                1 => *most,
                scale => {
                    let above = most.saturating_sub(*least).saturating_add(1);
                    add(*least, above.saturating_mul(scale).saturating_sub(1))
                }
            };
            most - add(set.outside[from], set.inside[to])
        };
        let longest = sets.iter().map(longest).max()?;
        u64::try_from(longest.div_euclid(*ticks)).ok()
    }
}
