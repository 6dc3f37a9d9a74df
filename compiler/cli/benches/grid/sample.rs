//! The cases of the grid: each program at each memory limit, and a sample of them that a seed
//! draws.

use shard_runtime::Random;

/// The memory limits of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Room {
    /// What the chip has.
    Chip,
    /// So many quarters of the way from the least that any plan needs to what the fastest takes.
    Quarters(u64),
}

const ROOMS: [Room; 4] = [Room::Chip, Room::Quarters(3), Room::Quarters(2), Room::Quarters(1)];

impl Room {
    pub(crate) fn name(self) -> String {
        match self {
            Room::Chip => "chip".to_string(),
            Room::Quarters(2) => "1/2".to_string(),
            Room::Quarters(n) => format!("{n}/4"),
        }
    }

    /// Bytes on a device; `chip` is what the chip has, and the other two are what plans need.
    pub(crate) fn bytes(self, chip: u64, least: u64, fastest: u64) -> u64 {
        match self {
            Room::Chip => chip,
            Room::Quarters(n) => least + fastest.saturating_sub(least) / 4 * n,
        }
    }
}

/// Pairs of a program, by its number, and a limit: so many of all that there are, in their order.
pub(crate) fn sample(programs: usize, count: usize, seed: u64) -> Vec<(usize, Room)> {
    let mut all: Vec<(usize, Room)> =
        (0..programs).flat_map(|p| ROOMS.map(|room| (p, room))).collect();
    let mut random = Random::new(seed);
    let count = count.min(all.len());
    // The first places of a shuffle.
    for at in 0..count {
        let left = (all.len() - at) as u64;
        let other = at + random.below(left) as usize;
        all.swap(at, other);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}
