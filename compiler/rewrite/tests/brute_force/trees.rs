//! The cheapest moves from one layout of a value to several, each move paid once: a shortest way through *sets* of layouts
//! that the value is held in.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::moves::{NEVER, Space};

const WORDS: usize = 5;

/// The most layouts that a value may have to be judged.
pub(crate) const MAX_LAYOUTS: usize = 64 * WORDS;

/// A set of layouts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Held([u64; WORDS]);

impl Held {
    fn has(&self, layout: usize) -> bool {
        self.0[layout / 64] >> (layout % 64) & 1 == 1
    }

    /// The set with a layout and all that it gives for nothing. That loses no plan: to hold more costs nothing.
    fn with(mut self, space: &Space, layout: usize) -> Held {
        for (other, way) in space.way[layout].iter().enumerate() {
            if *way == 0 {
                self.0[other / 64] |= 1 << (other % 64);
            }
        }
        self
    }
}

/// The time of the cheapest moves that bring a value made in `made` to all of `wanted`; [`NEVER`] where there are none,
/// `None` where more than `limit` sets would have to be looked at.
pub(crate) fn cheapest_tree(space: &Space, made: usize, wanted: &[usize], limit: usize) -> Option<u64> {
    if let [only] = wanted {
        return Some(space.way[made][*only]);
    }
    if wanted.iter().any(|w| space.way[made][*w] == NEVER) {
        return Some(NEVER);
    }
    let count = space.layouts.len();
    // What is still to be paid at least: the dearest way from the set to a wanted layout.
    let rest = |held: &Held| {
        let nearest = |to: usize| (0..count).filter(|l| held.has(*l)).map(|l| space.way[l][to]).min().unwrap_or(NEVER);
        wanted.iter().map(|w| nearest(*w)).max().unwrap_or(0)
    };
    let mut most: u64 = wanted.iter().fold(0u64, |sum, w| sum.saturating_add(space.way[made][*w]));
    let start = Held([0; WORDS]).with(space, made);
    let mut best: HashMap<Held, u64> = HashMap::from([(start, 0)]);
    let mut open = BinaryHeap::from([Reverse((rest(&start), 0u64, start))]);
    let mut looked_at = 0;
    while let Some(Reverse((bound, paid, held))) = open.pop() {
        if wanted.iter().all(|w| held.has(*w)) {
            return Some(paid);
        }
        if best.get(&held).is_some_and(|known| *known < paid) {
            continue;
        }
        looked_at += 1;
        if looked_at > limit {
            return None;
        }
        debug_assert!(bound <= most);
        for next in (0..count).filter(|l| !held.has(*l)) {
            let step = (0..count).filter(|l| held.has(*l)).map(|l| space.one_move[l][next]).min().unwrap_or(NEVER);
            if step == NEVER || paid + step > most {
                continue;
            }
            let more = held.with(space, next);
            let now = paid + step;
            let bound = now.saturating_add(rest(&more));
            if bound > most || best.get(&more).is_some_and(|known| *known <= now) {
                continue;
            }
            if wanted.iter().all(|w| more.has(*w)) {
                most = most.min(now);
            }
            best.insert(more, now);
            open.push(Reverse((bound, now, more)));
        }
    }
    Some(most)
}
