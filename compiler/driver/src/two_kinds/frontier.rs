//! Time against memory of a stack in which all layers are of one kind, and what that says of stacks
//! of two kinds.
//!
//! Let `F(m)` be the least time of a stack of one kind that needs at most `m` bytes on a device. In
//! a stack of `n` layers of one kind and `N - n` of another, let `a` and `b` be what stacks of `N`
//! layers need that are of the first kind alone, and of the second. It needs at least
//! `(n a + (N - n) b) / N`, since it holds the activations of the kind that has more, and takes at
//! least `(n F(a) + (N - n) F(b)) / N`, since what is moved between the kinds comes on top. So
//! bounds on `F` at a few limits bound every split at once.

use std::collections::BTreeMap;

/// One part in so many of the memory is too small to matter.
const FINE: u64 = 2048;

/// A stack of one kind under a limit.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// The time of its best plan, in picoseconds for the whole stack.
    pub(super) cost: u64,
    /// A lower bound on the time of all plans under the limit.
    pub(super) bound: u64,
    /// The memory that the plan of each phase needs.
    pub(super) needs: Vec<Need>,
}

/// The memory that a plan of a stack needs on a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Bytes of weights and caches, over the whole stack.
    pub(super) kept: u64,
    /// The most bytes of anything else at once.
    pub(super) activations: u64,
}

impl Need {
    fn peak(self) -> u64 {
        self.kept.saturating_add(self.activations)
    }
}

impl Point {
    /// The bytes that the phase needs which needs most.
    pub(super) fn peak(&self) -> u64 {
        self.needs.iter().map(|need| need.peak()).max().unwrap_or(0)
    }
}

/// A step of the staircase below `F`: no plan that needs more than `above` bytes, up to the next
/// corner, takes less than `bound`.
#[derive(Clone, Copy, Debug)]
struct Corner {
    above: u64,
    bound: u64,
}

/// What is known of `F`.
#[derive(Debug)]
pub(super) struct Frontier {
    layers: u64,
    /// The memory of a device.
    memory: u64,
    /// A lower bound on the bytes that a plan needs.
    least: u64,
    /// What is known of stacks under each limit that was searched or bounded. No plan takes less
    /// than the bound under the largest limit.
    known: BTreeMap<u64, Known>,
    /// The plans that were found.
    plans: Vec<Point>,
}

/// What is known of stacks of one kind under a limit.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// A lower bound on their time.
    bound: u64,
    /// The bytes that the plan needs which was found under the limit; the limit itself where no
    /// plan was found.
    from: u64,
}

impl Frontier {
    /// The frontier of a stack of so many layers: `one_kind` is its best plan in the `memory` of a
    /// device, `fastest` the fastest of any size, and no plan needs less than `least` bytes.
    pub(super) fn new(
        layers: u64,
        memory: u64,
        one_kind: Point,
        fastest: Point,
        least: u64,
    ) -> Frontier {
        let enough = fastest.peak().max(memory.saturating_add(1));
        let (known, plans) = (BTreeMap::new(), Vec::new());
        let mut frontier = Frontier { layers, memory, least, known, plans };
        frontier.found(memory, one_kind);
        frontier.found(enough, fastest);
        frontier
    }

    /// Enters what a search under a limit found.
    pub(super) fn found(&mut self, limit: u64, point: Point) {
        self.known.insert(limit, Known { bound: point.bound, from: point.peak().min(limit) });
        self.plans.push(point);
    }

    /// Enters a lower bound on the time of plans under a limit.
    pub(super) fn bounded(&mut self, limit: u64, bound: u64) {
        self.known.insert(limit, Known { bound, from: limit });
    }

    /// Enters that no plan fits under a limit.
    pub(super) fn none_under(&mut self, limit: u64) {
        self.least = self.least.max(limit.saturating_add(1));
    }

    /// The corners of the staircase that lies below `F`, by memory.
    fn corners(&self) -> Vec<Corner> {
        let above = std::iter::once(self.least.saturating_sub(1)).chain(self.known.keys().copied());
        let bounds = self.known.values().map(|known| known.bound);
        let mut corners: Vec<Corner> =
            above.zip(bounds).map(|(above, bound)| Corner { above, bound }).collect();
        // More memory never makes plans slower: a bound on plans with more memory bounds those with
        // less.
        for at in (1..corners.len()).rev() {
            corners[at - 1].bound = corners[at - 1].bound.max(corners[at].bound);
        }
        corners
    }

    /// A lower bound on the time of plans that need at most so many bytes; `None` where no plan
    /// needs so little.
    fn bound_within(corners: &[Corner], bytes: u64) -> Option<u64> {
        corners.iter().rev().find(|corner| corner.above < bytes).map(|corner| corner.bound)
    }

    /// A lower bound on the time of plans with `first` layers of one kind, in picoseconds; `None`
    /// where there is no such plan.
    pub(super) fn bound_of_split(&self, first: u64) -> Option<u64> {
        let corners = self.corners();
        let (n, all) = (u128::from(first), u128::from(self.layers));
        let rest = all.checked_sub(n).filter(|rest| *rest > 0 && n > 0)?;
        let of = |corner: &Corner| {
            // The kind needs more than its corner states, so that the other kind has at most this
            // left.
            let least = u128::from(corner.above) + 1;
            let left = (all * u128::from(self.memory)).checked_sub(n * least)? / rest;
            let other = Self::bound_within(&corners, u64::try_from(left).unwrap_or(u64::MAX))?;
            let sum = n * u128::from(corner.bound) + rest * u128::from(other);
            u64::try_from(sum / all).ok()
        };
        corners.iter().filter_map(of).min()
    }

    /// The splits that the plans found so far suggest, the one first that seems fastest: each is
    /// the number of layers of the kind that needs more memory.
    pub(super) fn suggested(&self) -> Vec<u64> {
        let mut found: BTreeMap<u64, u64> = BTreeMap::new();
        for small in self.plans.iter().filter(|point| point.peak() <= self.memory) {
            for large in self.plans.iter().filter(|point| point.peak() > self.memory) {
                let Some((first, time)) = self.mixed(small, large) else { continue };
                found.entry(first).and_modify(|known| *known = time.min(*known)).or_insert(time);
            }
        }
        let mut found: Vec<(u64, u64)> = found.into_iter().map(|(n, time)| (time, n)).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, first)| first).collect()
    }

    /// How many layers can have the large plan where the rest have the small one, and the time of
    /// both together, without what the kinds hand to one another.
    fn mixed(&self, small: &Point, large: &Point) -> Option<(u64, u64)> {
        let all = u128::from(self.layers);
        let most = small.needs.iter().zip(&large.needs).map(|(small, large)| {
            let activations = small.activations.max(large.activations);
            let kept = u128::from(self.memory.checked_sub(activations)?);
            let spare = kept.checked_sub(u128::from(small.kept))?;
            match u128::from(large.kept).checked_sub(u128::from(small.kept)) {
                None | Some(0) => Some(all - 1),
                Some(more) => Some((spare * all / more).min(all - 1)),
            }
        });
        let first = most.collect::<Option<Vec<_>>>()?.into_iter().min().filter(|n| *n > 0)?;
        let time = first * u128::from(large.cost) + (all - first) * u128::from(small.cost);
        Some((u64::try_from(first).ok()?, u64::try_from(time / all).ok()?))
    }

    /// The limit under which a search would tell most: halfway between the least and the most
    /// memory that a plan at the weakest corner may need. `None` where little is open.
    pub(super) fn next_limit(&self) -> Option<u64> {
        let corners = self.corners();
        let from: Vec<u64> = self.known.values().map(|known| known.from).collect();
        let is_below = |corner: &Corner| corner.above < self.memory;
        // The mixture of two corners that fills the memory in the least time.
        let mut best: Option<(f64, usize, usize)> = None;
        for (i, low) in corners.iter().enumerate().filter(|(_, corner)| is_below(corner)) {
            for (j, high) in corners.iter().enumerate().filter(|(_, corner)| !is_below(corner)) {
                let share =
                    (self.memory - low.above) as f64 / (high.above - low.above).max(1) as f64;
                let time =
                    low.bound as f64 + (high.bound as f64 - low.bound as f64) * share.min(1.0);
                if best.is_none_or(|(least, ..)| time < least) {
                    best = Some((time, i, j));
                }
            }
        }
        let (_, low, high) = best?;
        let open = |at: usize| (from[at].saturating_sub(corners[at].above), at);
        let (width, at) = open(low).max(open(high));
        (width > self.memory / FINE + 1).then(|| corners[at].above + width / 2)
    }
}
