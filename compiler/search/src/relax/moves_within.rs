//! The moves of a value that a plan within some time may have.
//!
//! A plan that moves a value from `a` to `b` serves some of the readers from `b`. It costs at least
//! as much as having the value in `a` and serving the other readers, the move itself, and serving
//! these readers from `b`; so a move for which this is too much can be left out (reduced-cost
//! fixing of moves).

use rustc_hash::{FxHashMap, FxHashSet};
use shard_ir::Layout;

use super::graph::Graph;
use super::kept::KeptCosts;
use super::prices::Serving;
use super::serving::{add, scale};
use super::whole::Whole;

/// The moves of one value between some of its layouts that plans within some time may have.
#[derive(Debug)]
pub(crate) struct MovesWithin {
    /// For each layout, its index in the lists.
    places: FxHashMap<Layout, usize>,
    sets: Vec<ServedSet>,
    /// The least cost of serving all readers, and the most that it may be in a plan within the
    /// time.
    least: i64,
    most: i64,
    ticks: i64,
}

/// A set of readers, or of groups of readers, that are served behind a move.
#[derive(Debug)]
struct ServedSet {
    /// For each layout, the least cost of serving the set from the layout.
    inside: Vec<i64>,
    /// For each layout, the least cost of having the value in the layout and serving all other
    /// readers.
    outside: Vec<i64>,
    /// The factor by which costs above the least are divided; see [`scale`].
    scale: i64,
}

impl MovesWithin {
    /// For each value, the moves between `layouts` that plans of at most `most` ticks may have;
    /// `None` for a value whose readers are not priced together.
    pub(super) fn of_all(
        whole: &Whole,
        layouts: &[FxHashSet<Layout>],
        most: i64,
    ) -> Vec<Option<MovesWithin>> {
        let Whole { problem, prices } = whole;
        let mut found: Vec<Option<MovesWithin>> = layouts.iter().map(|_| None).collect();
        // After a sweep up, prices have all dear alternatives look dear at the results; the sweep
        // down then makes them look dear at each value in turn.
        let mut prices = prices.clone();
        let mut kept = KeptCosts::default();
        prices.up(problem, false, &mut kept);
        prices.down_past(problem, &mut kept, &mut |id, serving| {
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

    /// The moves from a layout.
    pub(crate) fn from(&self, from: Layout) -> MovesFrom<'_> {
        MovesFrom { all: self, from: self.places.get(&from).copied() }
    }
}

/// The moves of one value from one layout that plans within some time may have.
pub(crate) struct MovesFrom<'m> {
    all: &'m MovesWithin,
    from: Option<usize>,
}

impl MovesFrom<'_> {
    /// The longest time, in picoseconds, that a move to a layout may take in such a plan; `None`
    /// where no move is in one.
    pub(crate) fn longest(&self, to: Layout) -> Option<u64> {
        let MovesWithin { places, sets, least, most, ticks } = self.all;
        let (from, to) = (self.from?, *places.get(&to)?);
        let longest = |set: &ServedSet| {
            // A cost above the least counts for a part of it only, rounded down.
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
