//! The least cost of bringing a value to all of its readers, given what each reader pays for the
//! value in each layout.

use crate::moves::Moves;
use crate::sums::{NEVER, Sum, plus};

/// With more readers than this that pay differently, each is served on its own: the work doubles
/// with each reader.
const MOST_TOGETHER: usize = 8;

/// For each node in which a value may be made: the least, over all trees of moves from there to the
/// layouts in which the readers read it, of the time of the moves less what the readers pay.
/// `paid[i][n]` is what reader `i` pays in node `n`, and [`NEVER`] where it does not read the value
/// there. Times are multiplied by `scale`.
pub(crate) fn served(moves: &Moves, paid: &[Vec<Sum>], scale: i64) -> Vec<Sum> {
    let different = joined(paid);
    match different.len() {
        0 => vec![0; moves.nodes()],
        1..=MOST_TOGETHER => together(moves, &different, scale),
        _ => one_by_one(moves, paid, scale),
    }
}

/// Readers that pay the same in every layout count as one reader that pays as many times as much:
/// the tree that serves one of them best serves all of them best.
fn joined(paid: &[Vec<Sum>]) -> Vec<Vec<Sum>> {
    let mut different: Vec<(&Vec<Sum>, Sum)> = Vec::new();
    for reader in paid {
        match different.iter_mut().find(|(known, _)| *known == reader) {
            Some((_, count)) => *count += 1,
            None => different.push((reader, 1)),
        }
    }
    let times = |price: &Sum, count: Sum| if *price < NEVER { price * count } else { NEVER };
    let all = |(paid, count): (&Vec<Sum>, Sum)| paid.iter().map(|p| times(p, count)).collect();
    different.into_iter().map(all).collect()
}

/// The cost of serving one reader without a move, in each node: minus what it pays there.
fn at_the_reader(moves: &Moves, paid: &[Sum]) -> Vec<Sum> {
    let earned =
        |price: Option<&Sum>| price.filter(|price| **price < NEVER).map_or(NEVER, |price| -price);
    (0..moves.nodes()).map(|node| earned(paid.get(node))).collect()
}

/// The algorithm of Dreyfus and Wagner. The best tree for a set of readers follows a path from its
/// root and then either serves the only reader of the set or divides the set in two. It divides at
/// no hub, since a hub stands within one move.
fn together(moves: &Moves, paid: &[Vec<Sum>], scale: i64) -> Vec<Sum> {
    let sets = 1usize << paid.len();
    let mut best: Vec<Vec<Sum>> = vec![Vec::new(); sets];
    for set in 1..sets {
        let mut cost = vec![NEVER; moves.nodes()];
        if set.is_power_of_two() {
            cost = at_the_reader(moves, &paid[set.trailing_zeros() as usize]);
        }
        for part in (1..set).filter(|part| part & set == *part && *part > set ^ part) {
            for (node, cost) in cost.iter_mut().enumerate().take(moves.layouts.len()) {
                *cost = (*cost).min(plus(best[part][node], best[set ^ part][node]));
            }
        }
        moves.spread_back(&mut cost, scale, 1);
        best[set] = cost;
    }
    best.swap_remove(sets - 1)
}

/// A lower bound on the tree: each of `k` readers is served on its own, every move at a `k`-th of
/// its time. A move of the tree serves at most `k` readers, so that this counts no more than the
/// tree costs.
fn one_by_one(moves: &Moves, paid: &[Vec<Sum>], scale: i64) -> Vec<Sum> {
    let mut sum = vec![0; moves.nodes()];
    for reader in paid {
        let mut cost = at_the_reader(moves, reader);
        moves.spread_back(&mut cost, scale, paid.len() as i64);
        sum.iter_mut().zip(cost).for_each(|(sum, cost)| *sum = plus(*sum, cost));
    }
    sum
}

#[cfg(test)]
mod tests {
    use shard_cost::Hardware;
    use shard_ir::{AxisSet, Dtype, Layout, Mesh, Random};

    use super::*;
    use crate::moves::{Alike, Freedom};

    /// For each node the least cost over all sets of arcs: the time of the arcs less the best price
    /// of each reader among the nodes that they reach.
    fn by_all_sets(moves: &Moves, paid: &[Vec<Sum>]) -> Vec<Sum> {
        let arcs = moves.arcs();
        let mut best = vec![NEVER; moves.nodes()];
        for set in 0u32..1 << arcs.len() {
            let taken =
                || arcs.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, arc)| *arc);
            let time: Sum = taken().map(|(_, _, time)| Sum::from(time)).sum();
            for (from, best) in best.iter_mut().enumerate() {
                let mut reached = vec![false; moves.nodes()];
                reached[from] = true;
                for _ in 0..moves.nodes() {
                    taken().for_each(|(a, b, _)| reached[b as usize] |= reached[a as usize]);
                }
                let gain = |paid: &Vec<Sum>| {
                    let at = paid
                        .iter()
                        .enumerate()
                        .filter(|(node, price)| reached[*node] && **price < NEVER);
                    at.map(|(_, price)| -price).min().unwrap_or(NEVER)
                };
                *best = (*best).min(paid.iter().map(gain).fold(time, plus));
            }
        }
        best
    }

    /// Several readers pay alike, as many as `kinds` different ones in turn.
    #[test]
    fn readers_that_pay_the_same_are_served_by_the_best_tree_however_many_they_are() {
        let hardware = Hardware::built_in("tpu-v5e").expect("built in");
        let mesh = Mesh::new([("x", 4)]).expect("a mesh");
        let of = Alike {
            sizes: vec![1 << 20, 4],
            dtype: Dtype::F32,
            freedom: Freedom::Any,
            times: 1,
            statistics: None,
        };
        let moves = Moves::new(&mesh, &of, AxisSet::EMPTY, &hardware);
        for kinds in 1..=4 {
            let price = |kind: usize, n: usize| Sum::from((kind * 7 + n * 5) as i64 % 9) << 22;
            let paid: Vec<Vec<Sum>> = (0..MOST_TOGETHER + 5)
                .map(|i| (0..moves.layouts.len()).map(|n| price(i % kinds, n)).collect())
                .collect();
            assert_eq!(served(&moves, &paid, 1), by_all_sets(&moves, &paid));
        }
    }

    /// Two layouts that are reached through a hub cost two permutes.
    #[test]
    fn no_move_to_a_hub_serves_two_readers() {
        let hardware = Hardware::built_in("tpu-v4-flat").expect("built in");
        let mesh = Mesh::new([("x", 4), ("y", 4), ("z", 4)]).expect("a mesh");
        let of = Alike {
            sizes: vec![1 << 20],
            dtype: Dtype::F32,
            freedom: Freedom::Any,
            times: 1,
            statistics: None,
        };
        let moves = Moves::new(&mesh, &of, AxisSet::EMPTY, &hardware);
        assert!(moves.nodes() > moves.layouts.len(), "permutes go through hubs");
        let split_by = |axes: &[usize]| {
            let is_so = |layout: &Layout| {
                layout.is_complete()
                    && layout.split_axes().iter().map(|axis| axis.index()).eq(axes.iter().copied())
            };
            moves.layouts.iter().position(is_so).expect("a layout")
        };
        let (x, y, z) = (split_by(&[0]), split_by(&[1]), split_by(&[2]));
        let reads_at = |node: usize| {
            (0..moves.layouts.len()).map(|n| if n == node { 0 } else { NEVER }).collect::<Vec<_>>()
        };
        let one = served(&moves, &[reads_at(y)], 1)[x];
        let both = served(&moves, &[reads_at(y), reads_at(z)], 1)[x];
        assert!(one > 0 && both == 2 * one, "{one} and {both}");
    }

    #[test]
    fn the_best_tree_is_the_best_of_all_sets_of_moves() {
        let hardware = Hardware::built_in("tpu-v5e").expect("built in");
        let mesh = Mesh::new([("x", 4)]).expect("a mesh");
        let mut random = Random::new(7);
        for readers in 1..=MOST_TOGETHER + 2 {
            for _ in 0..6 {
                let of = Alike {
                    sizes: vec![1 << 20, 4],
                    dtype: Dtype::F32,
                    freedom: Freedom::Any,
                    times: 1,
                    statistics: None,
                };
                let moves = Moves::new(&mesh, &of, AxisSet::EMPTY, &hardware);
                let mut price = || {
                    if random.below(4) == 0 { NEVER } else { Sum::from(random.below(40_000_000)) }
                };
                let paid: Vec<Vec<Sum>> = (0..readers)
                    .map(|_| (0..moves.layouts.len()).map(|_| price()).collect())
                    .collect();
                let (found, best) = (served(&moves, &paid, 1), by_all_sets(&moves, &paid));
                if joined(&paid).len() <= MOST_TOGETHER {
                    assert_eq!(found, best)
                } else {
                    assert!(found.iter().zip(&best).all(|(found, best)| found <= best))
                }
            }
        }
    }
}
