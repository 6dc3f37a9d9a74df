//! The cases of the grid: each program at each memory limit, and a sample of them that a seed
//! draws.

use shard_runtime::Random;

/// A memory limit of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limit {
    /// The memory of the chip.
    Chip,
    /// As many quarters of the way from the least need of any plan to the need of the fastest plan.
    Quarters(u64),
}

const LIMITS: [Limit; 4] =
    [Limit::Chip, Limit::Quarters(3), Limit::Quarters(2), Limit::Quarters(1)];

impl Limit {
    pub(crate) fn name(self) -> String {
        match self {
            Limit::Chip => "chip".to_string(),
            Limit::Quarters(2) => "1/2".to_string(),
            Limit::Quarters(n) => format!("{n}/4"),
        }
    }

    /// The limit in bytes on a device. `chip` is the memory of the chip, `least` is the least need
    /// of any plan, and `fastest` is the need of the fastest plan.
    pub(crate) fn bytes(self, chip: u64, least: u64, fastest: u64) -> u64 {
        match self {
            Limit::Chip => chip,
            Limit::Quarters(n) => least + fastest.saturating_sub(least) / 4 * n,
        }
    }
}

/// Draws `count` of all pairs of a program, given by its index, and a limit. The pairs are sorted.
pub(crate) fn sample(programs: usize, count: usize, seed: u64) -> Vec<(usize, Limit)> {
    let mut all: Vec<(usize, Limit)> =
        (0..programs).flat_map(|p| LIMITS.map(|limit| (p, limit))).collect();
    let mut random = Random::new(seed);
    let count = count.min(all.len());
    // The first `count` places of a shuffle.
    for at in 0..count {
        let left = (all.len() - at) as u64;
        let other = at + random.below(left) as usize;
        all.swap(at, other);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}
