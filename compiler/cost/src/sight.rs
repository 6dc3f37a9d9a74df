//! What a mask shows if queries and keys lie in blocks on devices: the most pairs of a query and a
//! key that a device multiplies, and the most keys that a device reads.

/// A mask over positions. The keys are all positions, the queries the last ones of them. Each query
/// sees the keys up to its own position, or the last ones of these that a window shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sight {
    /// How many queries all devices have.
    pub queries: u64,
    /// How many keys all devices have.
    pub keys: u64,
    /// How many keys a query sees at most, its own among them; `None` for all up to its own.
    pub window: Option<u64>,
}

/// What a block of queries sees of a block of keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seen {
    /// How many pairs of a query and a key that it sees.
    pub pairs: u128,
    /// How many keys there are from the first that some query sees to the last.
    pub keys: u64,
}

impl Sight {
    /// The most pairs and the most keys that a device sees, if each has one block of so many
    /// queries and one of so many keys. Every block of queries meets every block of keys, since no
    /// axis splits both.
    ///
    /// How much of a block of keys a block of queries sees depends only on the distance of the two.
    /// It is most for the distance at which the block of keys lies in the middle of the window, and
    /// falls equally on both sides. So the distance that is nearest to this one has the most of
    /// both.
    pub fn busiest(&self, queries: u64, keys: u64) -> Seen {
        let (queries, keys) = (queries.max(1), keys.max(1));
        let (of_queries, of_keys) = (self.queries.div_ceil(queries), self.keys.div_ceil(keys));
        let (wide, tall) = (i128::from(keys), i128::from(queries));
        // The middle less the distance of the first blocks; all doubled, so that the middle is a
        // whole number.
        let first = 2 * (i128::from(self.keys) - i128::from(self.queries));
        let to_go = wide + self.width() - tall - 1 - first;
        let nearest = |at: i128, step: i128, blocks: u64| {
            let below = at.div_euclid(2 * step);
            let last = i128::from(blocks) - 1;
            [below.clamp(0, last), (below + 1).clamp(0, last)]
        };
        let mut most = Seen { pairs: 0, keys: 0 };
        let mut look = |ahead: i128| {
            let seen = self.of_blocks(ahead, queries, keys);
            most.pairs = most.pairs.max(seen.pairs);
            most.keys = most.keys.max(seen.keys);
        };
        if of_keys <= of_queries {
            for block in (0..of_keys).map(i128::from) {
                for other in nearest(to_go + 2 * block * wide, tall, of_queries) {
                    look(first / 2 + other * tall - block * wide);
                }
            }
        } else {
            for block in (0..of_queries).map(i128::from) {
                for other in nearest(2 * block * tall - to_go, wide, of_keys) {
                    look(first / 2 + block * tall - other * wide);
                }
            }
        }
        most
    }

    /// The most pairs that a device sees if the r-th of so many devices has the r-th block of
    /// queries and the r-th block of keys: as in the first step of a ring that runs over the axes
    /// that split the queries.
    pub fn busiest_own(&self, blocks: u64) -> u128 {
        let blocks = blocks.max(1);
        let (queries, keys) = (self.queries / blocks, self.keys / blocks);
        let (tall, wide) = (i128::from(queries), i128::from(keys));
        let first = i128::from(self.keys) - i128::from(self.queries);
        // If blocks of queries and of keys are equally large, all have the same distance.
        let looked_at = if tall == wide { 1 } else { i128::from(blocks) };
        let pairs =
            |block: i128| self.of_blocks(first + block * (tall - wide), queries, keys).pairs;
        (0..looked_at).map(pairs).max().unwrap_or(0)
    }

    /// The most pairs that a device sees if blocks are striped: of n blocks the r-th has every n-th
    /// query from the r-th on, and the same for keys. A device has so many queries and keys. `None`
    /// with a window, under which contiguous blocks are nearly equal already.
    ///
    /// The device of the last block of queries and the first block of keys sees most: each of its
    /// queries sees the keys of that block up to its own position.
    pub fn busiest_striped(&self, queries: u64, keys: u64) -> Option<u128> {
        let (queries, keys) = (queries.max(1), keys.max(1));
        let before = self.keys.checked_sub(self.queries)?;
        if self.window.is_some_and(|window| window < self.keys) {
            return None;
        }
        let of_queries = u128::from(self.queries / queries);
        let of_keys = u128::from(self.keys / keys);
        let first = u128::from(before) + of_queries - 1;
        // A query sees one key more than there are whole strides from the first key to the query.
        let strides = sum_of_quotients(queries.into(), of_queries, first, of_keys);
        Some(strides + u128::from(queries))
    }

    /// How many pairs all devices together see.
    pub fn all_pairs(&self) -> u128 {
        self.busiest(self.queries, self.keys).pairs
    }

    /// How many keys a query sees at most.
    fn width(&self) -> i128 {
        i128::from(self.window.unwrap_or(self.keys).min(self.keys))
    }

    /// What a block of queries sees of a block of keys, if the first query is so many positions
    /// ahead of the first key.
    fn of_blocks(&self, ahead: i128, queries: u64, keys: u64) -> Seen {
        let (queries, keys) = (i128::from(queries), i128::from(keys));
        // The sum over all queries, of which the first is at `at`, of how many keys lie before it.
        let in_front = |at: i128| in_front_of_all(at + queries, keys) - in_front_of_all(at, keys);
        let hidden_by_window = ahead + 1 - self.width();
        let pairs = in_front(ahead + 1) - in_front(hidden_by_window);
        let seen = (ahead + queries).min(keys) - hidden_by_window.max(0);
        Seen { pairs: pairs.max(0).unsigned_abs(), keys: u64::try_from(seen.max(0)).unwrap_or(0) }
    }
}

/// The sum over all positions before `end` of how many of so many keys lie before the position: `n`
/// of them before position `n`, none before a negative one.
fn in_front_of_all(end: i128, keys: i128) -> i128 {
    let end = end.max(0);
    let growing = end.min(keys + 1);
    growing * (growing - 1).max(0) / 2 + (end - growing) * keys
}

/// The sum of `(a + i * step) / by`, rounded down, over `count` numbers i from 0 on.
fn sum_of_quotients(count: u128, step: u128, a: u128, by: u128) -> u128 {
    let by = by.max(1);
    let (mut sum, mut count, mut step, mut a, mut by) = (0u128, count, step, a, by);
    // As in the Euclidean algorithm: the whole parts are added up, and the sum of the remainders is
    // counted by columns in place of rows.
    loop {
        sum += (step / by) * (count * count.saturating_sub(1) / 2) + (a / by) * count;
        (step, a) = (step % by, a % by);
        let last = step * count + a;
        if last < by {
            return sum;
        }
        (count, a) = (last / by, last % by);
        (step, by) = (by, step);
    }
}

/// How many pairs of a query and a key that it sees there are on all devices together.
pub fn pairs_in_sight(queries: u64, keys: u64, window: Option<u64>) -> u128 {
    Sight { queries, keys, window }.busiest(queries, keys).pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys that a query sees.
    fn sees(sight: Sight, query: u64, key: u64) -> bool {
        let own = sight.keys + query - sight.queries;
        key <= own && sight.window.is_none_or(|window| own < key + window)
    }

    fn counted(sight: Sight, of_queries: u64, of_keys: u64) -> Seen {
        let (tall, wide) = (sight.queries / of_queries, sight.keys / of_keys);
        let mut most = Seen { pairs: 0, keys: 0 };
        for (a, b) in (0..of_queries).flat_map(|a| (0..of_keys).map(move |b| (a, b))) {
            let keys = || b * wide..(b + 1) * wide;
            let queries = || a * tall..(a + 1) * tall;
            let of_query = |query| keys().filter(move |key| sees(sight, query, *key)).count();
            let pairs: usize = queries().map(of_query).sum();
            let read: Vec<u64> =
                keys().filter(|key| queries().any(|query| sees(sight, query, *key))).collect();
            let span = read.first().zip(read.last()).map_or(0, |(first, last)| last - first + 1);
            assert_eq!(span, read.len() as u64, "what is read has no gap");
            most.pairs = most.pairs.max(pairs as u128);
            most.keys = most.keys.max(span);
        }
        most
    }

    #[test]
    fn the_busiest_device_has_as_many_pairs_and_keys_as_are_counted_one_by_one() {
        let divisors = |n: u64| (1..=n).filter(move |d| n.is_multiple_of(*d));
        let mut cases = 0;
        for keys in 1..=16u64 {
            for queries in 1..=keys {
                for window in (1..=keys + 1).map(Some).chain([None]) {
                    let sight = Sight { queries, keys, window };
                    for of_queries in divisors(queries) {
                        for of_keys in divisors(keys) {
                            let found = sight.busiest(queries / of_queries, keys / of_keys);
                            let counted = counted(sight, of_queries, of_keys);
                            assert_eq!(found, counted, "{sight:?} / {of_queries}, {of_keys}");
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert!(cases > 10_000, "{cases}");
    }

    #[test]
    fn own_blocks_have_as_many_pairs_as_are_counted_one_by_one() {
        for keys in 1..=16u64 {
            for queries in 1..=keys {
                for window in (1..=keys + 1).map(Some).chain([None]) {
                    let sight = Sight { queries, keys, window };
                    let divides = |n: &u64| queries.is_multiple_of(*n) && keys.is_multiple_of(*n);
                    for blocks in (1..=queries).filter(divides) {
                        let (tall, wide) = (queries / blocks, keys / blocks);
                        let pairs = |block: u64| {
                            let queries = block * tall..(block + 1) * tall;
                            let of_query = |query| {
                                let keys = block * wide..(block + 1) * wide;
                                keys.filter(|key| sees(sight, query, *key)).count() as u128
                            };
                            queries.map(of_query).sum::<u128>()
                        };
                        let most = (0..blocks).map(pairs).max().unwrap_or(0);
                        assert_eq!(sight.busiest_own(blocks), most, "{sight:?} / {blocks}");
                    }
                }
            }
        }
    }

    #[test]
    fn striped_blocks_have_as_many_pairs_as_are_counted_one_by_one() {
        let divisors = |n: u64| (1..=n).filter(move |d| n.is_multiple_of(*d));
        for keys in 1..=18u64 {
            for queries in 1..=keys {
                let sight = Sight { queries, keys, window: None };
                for (of_queries, of_keys) in
                    divisors(queries).flat_map(|a| divisors(keys).map(move |b| (a, b)))
                {
                    let pairs = |a: u64, b: u64| {
                        let queries = (a..queries).step_by(of_queries as usize);
                        let sees = |query| {
                            let keys = (b..keys).step_by(of_keys as usize);
                            keys.filter(|key| sees(sight, query, *key)).count() as u128
                        };
                        queries.map(sees).sum::<u128>()
                    };
                    let all = (0..of_queries).flat_map(|a| (0..of_keys).map(move |b| (a, b)));
                    let most = all.map(|(a, b)| pairs(a, b)).max();
                    let found = sight.busiest_striped(queries / of_queries, keys / of_keys);
                    assert_eq!(found, most, "{sight:?} / {of_queries}, {of_keys}");
                }
            }
        }
    }

    #[test]
    fn contiguous_blocks_of_a_causal_mask_leave_the_busiest_nearly_all_of_its_pairs() {
        let sight = Sight { queries: 32768, keys: 32768, window: None };
        let all = |of: u64| 32768u128 * u128::from(32768 / of);
        for of in [2u64, 4, 16] {
            let (of_keys, of_queries) =
                (sight.busiest(32768, 32768 / of).pairs, sight.busiest(32768 / of, 32768).pairs);
            let block = u128::from(32768 / of);
            // All but the half of one block that lies behind the diagonal.
            assert_eq!(of_queries, all(of) - block * (block - 1) / 2);
            assert_eq!(of_keys, of_queries);
        }
    }
}
