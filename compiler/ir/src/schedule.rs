//! [`Schedule`]: a plan in time.

use crate::plan::{InstrId, Plan};

/// Picoseconds: the unit of every exact time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Picoseconds(pub u64);

impl Picoseconds {
    /// The same time in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
    /// The time of so many repetitions, one after another.
    pub fn times(self, count: u64) -> Picoseconds {
        Picoseconds(self.0.saturating_mul(count))
    }
}

impl std::ops::Add for Picoseconds {
    type Output = Picoseconds;
    fn add(self, other: Picoseconds) -> Picoseconds {
        Picoseconds(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Picoseconds {
    fn sum<I: Iterator<Item = Picoseconds>>(iter: I) -> Picoseconds {
        iter.fold(Picoseconds(0), |a, b| a + b)
    }
}

/// The part of a device that an instruction keeps busy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stream {
    /// The cores of the chip (and its memory).
    Compute,
    /// The network.
    Network,
}

/// When one instruction runs, and what is in memory meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The instruction.
    pub id: InstrId,
    /// The stream that it keeps busy.
    pub stream: Stream,
    /// When it starts.
    pub start: Picoseconds,
    /// When it has finished.
    pub finish: Picoseconds,
    /// Bytes in the memory of one device while it runs: weights and caches, and every value made
    /// and still to be read.
    pub live_bytes: u64,
}

/// A plan in time: the order in which a device runs its instructions, and what it holds in memory.
/// It leaves nothing to choose.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// The plan.
    pub plan: Plan,
    /// One step for each instruction, in the order of execution.
    pub steps: Vec<Step>,
    /// After each step, the values that are not read again and leave memory.
    pub frees: Vec<Vec<InstrId>>,
}

impl Schedule {
    /// When the last step has finished.
    pub fn makespan(&self) -> Picoseconds {
        self.steps.iter().map(|s| s.finish).max().unwrap_or_default()
    }
    /// The largest number of bytes in the memory of one device at any step.
    pub fn peak_bytes(&self) -> u64 {
        self.steps.iter().map(|s| s.live_bytes).max().unwrap_or(0)
    }
}
