//! The knapsack of a memory: the cheapest choice of one class for each place whose bytes fit
//! together.

use shard_ir::gcd;

use super::super::graph::FAR;
use super::super::serving::add;
use super::PartLeast;

/// The number of steps in which the bytes of a memory are counted. If there are more, bytes are
/// rounded down to steps, so that more choices fit and the least is still a lower bound.
pub(super) const STEPS: u64 = 2048;

/// If there are fewer candidates than one in this many steps, they are sorted; otherwise they are
/// entered in a list of all steps.
const FEW_FALLS: usize = 16;

/// The least cost of some places as a function of the steps that they may take: a falling step
/// function, as the list of the steps at which it falls, each with the cost from there on.
#[derive(Clone, Debug)]
struct Falling(Vec<(usize, i64)>);

impl Falling {
    /// The function of no places.
    fn zero() -> Falling {
        Falling(vec![(0, 0)])
    }

    /// The least cost in at most each number of steps, given the costs in exactly some numbers of
    /// steps, in ascending order of these.
    fn of(least: impl Iterator<Item = (usize, i64)>) -> Falling {
        let mut now = FAR;
        let falls = least.filter(|(_, least)| {
            let falls = *least < now;
            now = now.min(*least);
            falls
        });
        Falling(falls.collect())
    }

    /// The least cost in at most `steps`; [`FAR`] if no choice takes so few.
    fn within(&self, steps: usize) -> i64 {
        let fallen = self.0.partition_point(|(at, _)| *at <= steps);
        fallen.checked_sub(1).map_or(FAR, |last| self.0[last].1)
    }

    /// The least cost of these places and others together, in at most `steps`.
    fn beside(&self, other: &Falling, steps: usize) -> i64 {
        let mut rest = other.0.len();
        let mut least = FAR;
        for (at, mine) in self.0.iter().take_while(|(at, _)| *at <= steps) {
            while rest > 0 && other.0[rest - 1].0 > steps - at {
                rest -= 1;
            }
            let Some((_, others)) = rest.checked_sub(1).map(|last| other.0[last]) else { break };
            least = least.min(mine + others);
        }
        least
    }
}

/// The sizes of one knapsack. Bytes are counted beyond the smallest class of each place, in steps
/// of their common divisor, or of more bytes where those would be more than [`STEPS`].
pub(super) struct Knapsack {
    step: u64,
    /// Whether bytes are rounded up to steps instead of down; a choice that fits in steps then fits
    /// in bytes, too.
    rounds_up: bool,
    /// For each place, the bytes of its smallest class that has a layout.
    smallest: Vec<u64>,
    /// The number of steps beyond the smallest classes; `None` where even the smallest do not fit.
    capacity: Option<usize>,
}

impl Knapsack {
    pub(super) fn new(bytes: &[Vec<u64>], most: u64, cost: &[Vec<i64>]) -> Knapsack {
        let has = |place: usize| (0..bytes[place].len()).filter(move |c| cost[place][*c] < FAR);
        let smallest: Vec<u64> =
            (0..bytes.len()).map(|p| has(p).map(|c| bytes[p][c]).min().unwrap_or(0)).collect();
        let least = smallest.iter().fold(0u64, |sum, b| sum.saturating_add(*b));
        let Some(spare) = most.checked_sub(least) else {
            return Knapsack { step: 1, rounds_up: false, smallest, capacity: None };
        };
        let beyond = (0..bytes.len()).flat_map(|p| {
            let smallest = smallest[p];
            has(p).map(move |c| bytes[p][c] - smallest)
        });
        // More room than all of the largest classes take makes no difference.
        let all: u64 = (0..bytes.len())
            .map(|p| has(p).map(|c| bytes[p][c] - smallest[p]).max().unwrap_or(0))
            .fold(0, u64::saturating_add);
        let divisor = beyond.fold(0, gcd).max(1);
        let spare = spare.min(all);
        let step = divisor.max(spare.div_ceil(STEPS)).max(1);
        Knapsack { step, rounds_up: false, smallest, capacity: Some((spare / step) as usize) }
    }

    /// The steps that a class of a place takes beyond the smallest; `None` where they exceed the
    /// capacity.
    fn steps(&self, capacity: usize, place: usize, bytes: u64) -> Option<usize> {
        let beyond = bytes.saturating_sub(self.smallest[place]);
        let steps = if self.rounds_up { beyond.div_ceil(self.step) } else { beyond / self.step };
        usize::try_from(steps).ok().filter(|steps| *steps <= capacity)
    }

    /// The function of some places and one more, given the function of those places. Classes come
    /// in the order of their bytes; a class that costs no less than a smaller one is left out,
    /// since more steps never cost less.
    fn take(
        &self,
        capacity: usize,
        place: usize,
        bytes: &[u64],
        cost: &[i64],
        from: &Falling,
    ) -> Falling {
        let mut cheapest = FAR;
        let mut cheaper = Vec::with_capacity(cost.len());
        for (bytes, price) in bytes.iter().zip(cost) {
            if *price >= cheapest {
                continue;
            }
            cheapest = *price;
            let Some(steps) = self.steps(capacity, place, *bytes) else { break };
            cheaper.push((steps, *price));
        }
        let all = cheaper.iter().flat_map(|(steps, price)| {
            let all = from.0.iter().map(move |(at, least)| (at + steps, least + price));
            all.take_while(|(at, _)| *at <= capacity)
        });
        if cheaper.len() * from.0.len() < capacity / FEW_FALLS {
            let mut all: Vec<(usize, i64)> = all.collect();
            all.sort_unstable();
            return Falling::of(all.into_iter());
        }
        let mut with = vec![FAR; capacity + 1];
        for (at, least) in all {
            with[at] = with[at].min(least);
        }
        Falling::of(with.into_iter().enumerate())
    }

    /// The capacity in steps. `Err` has the least cost where it is known without a search: where a
    /// place has no class or no choice fits, or where costs are so large that sums would have to be
    /// checked for [`FAR`].
    fn capacity(&self, cost: &[Vec<i64>]) -> Result<usize, i64> {
        let mut sum = 0i64;
        for place in cost {
            let prices = place.iter().filter(|price| **price < FAR);
            // A place has no class with a layout.
            let Some(longest) = prices.map(|price| price.saturating_abs()).max() else {
                return Err(FAR);
            };
            sum = sum.saturating_add(longest);
        }
        match self.capacity {
            None => Err(FAR),
            // Costs so large give no bound.
            Some(_) if sum >= FAR => Err(-FAR),
            Some(capacity) => Ok(capacity),
        }
    }

    /// The cost of the cheapest choice that fits.
    pub(super) fn least_alone(&self, bytes: &[Vec<u64>], cost: &[Vec<i64>]) -> i64 {
        let capacity = match self.capacity(cost) {
            Ok(capacity) => capacity,
            Err(least) => return least,
        };
        let all = bytes.iter().zip(cost).enumerate();
        let taken = all.fold(Falling::zero(), |from, (place, (bytes, cost))| {
            self.take(capacity, place, bytes, cost, &from)
        });
        taken.within(capacity)
    }

    /// For each place, the function of that place and all places behind it.
    fn onward(&self, capacity: usize, bytes: &[Vec<u64>], cost: &[Vec<i64>]) -> Vec<Falling> {
        let mut after = vec![Falling::zero(); cost.len() + 1];
        for place in (0..cost.len()).rev() {
            after[place] =
                self.take(capacity, place, &bytes[place], &cost[place], &after[place + 1]);
        }
        after
    }

    /// The classes of the cheapest choice, of ties the first. If that choice fits only because
    /// bytes are rounded down, the cheapest of those that fit with bytes rounded up is taken. If
    /// nothing fits, the first class of each place is taken.
    pub(super) fn best(mut self, bytes: &[Vec<u64>], most: u64, cost: &[Vec<i64>]) -> Vec<u32> {
        let fits = |best: &Vec<u32>| {
            let taken = bytes.iter().zip(best).map(|(bytes, class)| bytes[*class as usize]);
            taken.fold(0, u64::saturating_add) <= most
        };
        let best = self.best_in_steps(bytes, cost).filter(fits).or_else(|| {
            self.rounds_up = true;
            self.best_in_steps(bytes, cost)
        });
        best.unwrap_or_else(|| {
            let first = |cost: &Vec<i64>| cost.iter().position(|cost| *cost < FAR).unwrap_or(0);
            cost.iter().map(|cost| first(cost) as u32).collect()
        })
    }

    /// The classes of the cheapest choice that fits in steps; `None` where nothing fits.
    fn best_in_steps(&self, bytes: &[Vec<u64>], cost: &[Vec<i64>]) -> Option<Vec<u32>> {
        let mut left = self.capacity(cost).ok()?;
        let after = self.onward(left, bytes, cost);
        let mut best = Vec::with_capacity(cost.len());
        for place in 0..cost.len() {
            let steps = |class: &usize| self.steps(left, place, bytes[place][*class]);
            let (class, steps) = (0..cost[place].len())
                .filter(|class| cost[place][*class] < FAR)
                .filter_map(|class| Some((class, steps(&class)?)))
                .min_by_key(|(class, steps)| {
                    add(cost[place][*class], after[place + 1].within(left - steps))
                })?;
            left -= steps;
            best.push(class as u32);
        }
        Some(best)
    }

    pub(super) fn least(&self, bytes: &[Vec<u64>], cost: &[Vec<i64>]) -> PartLeast {
        let capacity = match self.capacity(cost) {
            Ok(capacity) => capacity,
            Err(least) => {
                return PartLeast {
                    least,
                    with: cost.iter().map(|c| vec![least; c.len()]).collect(),
                };
            }
        };
        let count = cost.len();
        // The functions of the first places: of none, of one, and so on.
        let mut before = vec![Falling::zero()];
        for place in 0..count {
            before.push(self.take(capacity, place, &bytes[place], &cost[place], &before[place]));
        }
        let after = self.onward(capacity, bytes, cost);
        let with = (0..count)
            .map(|place| {
                let one = |(bytes, price): (&u64, &i64)| {
                    let steps = self.steps(capacity, place, *bytes).filter(|_| *price < FAR);
                    let Some(left) = steps.map(|steps| capacity - steps) else { return FAR };
                    add(before[place].beside(&after[place + 1], left), *price)
                };
                bytes[place].iter().zip(&cost[place]).map(one).collect()
            })
            .collect();
        PartLeast { least: before[count].within(capacity), with }
    }
}
