//! Few arcs for many moves. Between layouts that the same axes split, there is one move from each
//! to each other; arcs and hubs stand for these moves and lead from each layout to each other in
//! the same times.

use std::collections::BTreeMap;

use crate::rules::moves::MAX_EXCHANGED;

/// A set of layouts, a bit for each place in a list.
type LayoutSet = u128;

const _: () = assert!(MAX_EXCHANGED <= LayoutSet::BITS as usize, "a set of layouts is a word");

/// A hub: a move from each of some layouts to each of others, all at one time. Layouts are places
/// in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hub {
    pub(super) time: i64,
    pub(super) from: Vec<usize>,
    pub(super) to: Vec<usize>,
}

/// Arcs `(from, to, time)` and hubs between layouts, which are places in a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sparse {
    pub(super) arcs: Vec<(usize, usize, i64)>,
    pub(super) hubs: Vec<Hub>,
}

/// The time of the move from each layout of a list to each other, as its rank among all times.
struct Ranked {
    count: usize,
    /// All times, each once, ascending.
    times: Vec<i64>,
    /// The rank of each move's time: `of[from * count + to]`.
    of: Vec<usize>,
    /// For each layout and rank: the layouts that a move from it reaches in at most the time of
    /// that rank, and the layouts from which a move reaches it in at most that time. Indexed by
    /// `layout * times.len() + rank`.
    reached: Vec<LayoutSet>,
    reaching: Vec<LayoutSet>,
}

impl Sparse {
    /// Arcs and hubs that lead from each of `count` layouts to each other in exactly the least time
    /// that moves take. `kind` gives the kind of the move between two layouts, below `kinds`, and
    /// `time` the time of a kind. There are at most [`MAX_EXCHANGED`] layouts.
    pub(super) fn new(
        count: usize,
        kinds: usize,
        kind: impl Fn(usize, usize) -> usize,
        time: impl Fn(usize) -> i64,
    ) -> Sparse {
        let ranked = Ranked::new(count, kinds, kind, time);
        let ranks = ranked.times.len();
        let mut needed = vec![0; count * ranks];
        let shares = ranked.shares();
        for (from, to) in
            pairs(count).filter(|(from, to)| !ranked.is_two_moves(*from, *to, &shares))
        {
            needed[from * ranks + ranked.of[from * count + to]] |= 1 << to;
        }
        let mut sparse = Sparse::default();
        for rank in 0..ranked.times.len() {
            sparse.add(&ranked, rank, &needed);
        }
        sparse
    }

    /// Adds arcs and hubs for the moves of one time. Layouts share a hub if they reach the same
    /// layouts in at most this time, or else if the same moves of this time are needed from them.
    fn add(&mut self, ranked: &Ranked, rank: usize, needed: &[LayoutSet]) {
        let time = ranked.times[rank];
        let needed = |from: usize| needed[from * ranked.times.len() + rank];
        let mut left: Vec<usize> = (0..ranked.count).filter(|from| needed(*from) != 0).collect();
        for widely in [true, false] {
            let mut alike: BTreeMap<LayoutSet, Vec<usize>> = BTreeMap::new();
            for from in std::mem::take(&mut left) {
                let all = ranked.reached[from * ranked.times.len() + rank] | 1 << from;
                alike.entry(if widely { all } else { needed(from) }).or_default().push(from);
            }
            for (to, from) in alike {
                let arcs: u32 = from.iter().map(|from| needed(*from).count_ones()).sum();
                if from.len() as u32 + to.count_ones() < arcs {
                    self.hubs.push(Hub { time, from, to: members(to).collect() });
                } else {
                    left.extend(from);
                }
            }
        }
        left.sort_unstable();
        for from in left {
            self.arcs.extend(members(needed(from)).map(|to| (from, to, time)));
        }
    }
}

impl Ranked {
    fn new(
        count: usize,
        kinds: usize,
        kind: impl Fn(usize, usize) -> usize,
        time: impl Fn(usize) -> i64,
    ) -> Ranked {
        let mut is_there = vec![false; kinds];
        let mut of = vec![0; count * count];
        for (from, to) in pairs(count) {
            of[from * count + to] = kind(from, to);
            is_there[of[from * count + to]] = true;
        }
        let of_kind: Vec<Option<i64>> =
            is_there.iter().enumerate().map(|(kind, there)| there.then(|| time(kind))).collect();
        let mut times: Vec<i64> = of_kind.iter().copied().flatten().collect();
        times.sort_unstable();
        times.dedup();
        let ranks = times.len();
        let rank = |time: &Option<i64>| time.map_or(0, |time| times.partition_point(|t| *t < time));
        let rank_of: Vec<usize> = of_kind.iter().map(rank).collect();
        let (mut reached, mut reaching) = (vec![0; count * ranks], vec![0; count * ranks]);
        for (from, to) in pairs(count) {
            let rank = rank_of[of[from * count + to]];
            of[from * count + to] = rank;
            reached[from * ranks + rank] |= 1 << to;
            reaching[to * ranks + rank] |= 1 << from;
        }
        for sets in [&mut reached, &mut reaching] {
            for row in sets.chunks_mut(ranks.max(1)) {
                (1..row.len()).for_each(|rank| row[rank] |= row[rank - 1]);
            }
        }
        Ranked { count, times, of, reached, reaching }
    }

    /// For each rank, pairs of ranks: for each first move, the longest second one such that both
    /// together take at most the time of the rank. Both take less than the whole, so that all moves
    /// that are two others can be left out and no way gets longer. If a move takes no time this
    /// does not follow, and there are no pairs.
    fn shares(&self) -> Vec<Vec<(usize, usize)>> {
        let of = |time: &i64| -> Vec<(usize, usize)> {
            let firsts = self
                .times
                .iter()
                .take_while(|first| *first < time && self.times[0] > 0)
                .enumerate();
            let second = |first: &i64| self.times.partition_point(|second| *second <= time - first);
            firsts
                .map(|(rank, first)| (rank, second(first)))
                .filter(|(_, left)| *left > 0)
                .map(|(a, b)| (a, b - 1))
                .collect()
        };
        self.times.iter().map(of).collect()
    }

    /// Whether two other moves lead from one layout to another in at most the time of the move
    /// between them.
    fn is_two_moves(&self, from: usize, to: usize, shares: &[Vec<(usize, usize)>]) -> bool {
        let ranks = self.times.len();
        let meet = |(first, second): &(usize, usize)| {
            self.reached[from * ranks + first] & self.reaching[to * ranks + second] != 0
        };
        shares[self.of[from * self.count + to]].iter().any(meet)
    }
}

/// All pairs of two different numbers below `count`.
fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count)
        .flat_map(move |from| (0..count).filter(move |to| *to != from).map(move |to| (from, to)))
}

fn members(mut set: LayoutSet) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        next
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least times between all nodes (Floyd and Warshall).
    fn shortest(nodes: usize, arcs: &[(usize, usize, i64)]) -> Vec<Vec<i64>> {
        let mut way = vec![vec![i64::MAX / 4; nodes]; nodes];
        (0..nodes).for_each(|node| way[node][node] = 0);
        arcs.iter().for_each(|(from, to, time)| way[*from][*to] = way[*from][*to].min(*time));
        for middle in 0..nodes {
            let onward = way[middle].clone();
            for row in &mut way {
                let there = row[middle];
                row.iter_mut()
                    .zip(&onward)
                    .for_each(|(known, on)| *known = (*known).min(there + on));
            }
        }
        way
    }

    /// The times are drawn from a few values, with ties, sums of each other, and zero.
    #[test]
    fn arcs_and_hubs_take_what_all_moves_take() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut all, mut kept) = (0, 0);
        for case in 0..400 {
            let count = 2 + next(20) as usize;
            let values: Vec<i64> =
                (0..1 + next(5)).map(|_| next(7) as i64 + i64::from(case % 3 > 0)).collect();
            let kinds: Vec<usize> =
                (0..count * count).map(|_| next(values.len() as u64) as usize).collect();
            let times: Vec<i64> = kinds.iter().map(|kind| values[*kind]).collect();
            let kind = |from, to| kinds[from * count + to];
            let sparse = Sparse::new(count, values.len(), kind, |kind| values[kind]);
            let mut arcs = sparse.arcs.clone();
            for (i, hub) in sparse.hubs.iter().enumerate() {
                arcs.extend(hub.from.iter().map(|from| (*from, count + i, hub.time)));
                arcs.extend(hub.to.iter().map(|to| (count + i, *to, 0)));
            }
            let given: Vec<_> =
                pairs(count).map(|(from, to)| (from, to, times[from * count + to])).collect();
            let (found, wanted) =
                (shortest(count + sparse.hubs.len(), &arcs), shortest(count, &given));
            for (from, to) in pairs(count) {
                assert_eq!(
                    found[from][to], wanted[from][to],
                    "case {case}: {from} to {to} of {times:?}"
                );
            }
            (all, kept) = (all + given.len(), kept + arcs.len());
        }
        assert!(kept * 2 < all, "{kept} arcs for {all} moves");
    }
}
