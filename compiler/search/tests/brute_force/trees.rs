//! The cheapest moves from one layout of a value to several, each move paid once: a shortest path
//! through the *sets* of layouts in which the value is held.

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

    /// The set with a layout and all layouts that moves from there reach in no time. No plan is
    /// lost, since holding more layouts costs nothing.
    fn with(mut self, space: &Space, layout: usize) -> Held {
        for (other, way) in space.way[layout].iter().enumerate() {
            if *way == 0 {
                self.0[other / 64] |= 1 << (other % 64);
            }
        }
        self
    }
}

/// The time of the cheapest moves that bring a value made in `made` to all of `wanted`; [`NEVER`]
/// where there are none, `None` where more sets would have to be looked at than are `left`.
pub(crate) fn cheapest_tree(
    space: &Space,
    made: usize,
    wanted: &[usize],
    left: &mut usize,
) -> Option<u64> {
    if let [only] = wanted {
        return Some(space.way[made][*only]);
    }
    if wanted.iter().any(|w| space.way[made][*w] == NEVER) {
        return Some(NEVER);
    }
    let count = space.layouts.len();
    // What is still to be paid at least: the dearest way from the set to a wanted layout.
    let rest = |nearest: &[u64]| nearest.iter().copied().max().unwrap_or(0);
    let nearer = |nearest: &[u64], to: usize| -> Vec<u64> {
        nearest.iter().zip(wanted).map(|(known, w)| space.way[to][*w].min(*known)).collect()
    };
    let mut most: u64 = wanted.iter().fold(0u64, |sum, w| sum.saturating_add(space.way[made][*w]));
    let start = Held([0; WORDS]).with(space, made);
    let mut best: HashMap<Held, u64> = HashMap::from([(start, 0)]);
    let from_made = nearer(&vec![NEVER; wanted.len()], made);
    let mut open = BinaryHeap::from([Reverse((rest(&from_made), 0u64, start))]);
    while let Some(Reverse((bound, paid, held))) = open.pop() {
        if wanted.iter().all(|w| held.has(*w)) {
            return Some(paid);
        }
        if best.get(&held).is_some_and(|known| *known < paid) {
            continue;
        }
        *left = left.checked_sub(1)?;
        debug_assert!(bound <= most);
        let members: Vec<usize> = (0..count).filter(|l| held.has(*l)).collect();
        let nearest =
            members.iter().fold(vec![NEVER; wanted.len()], |known, member| nearer(&known, *member));
        for next in (0..count).filter(|l| !held.has(*l)) {
            let step = members.iter().map(|l| space.one_move[*l][next]).min().unwrap_or(NEVER);
            if step == NEVER || paid + step > most {
                continue;
            }
            let now = paid + step;
            // Layouts that moves reach from the new one in no time are no nearer to what is wanted.
            let bound = now.saturating_add(rest(&nearer(&nearest, next)));
            if bound > most {
                continue;
            }
            let more = held.with(space, next);
            if best.get(&more).is_some_and(|known| *known <= now) {
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
