//! The time that work takes on a chip.

use shard_ir::Picoseconds;

use crate::hardware::Hardware;
use crate::op::Work;
use crate::units::{Bytes, Flops, time_at_rate};

shard_ir::worded! {
    /// Which side of the roofline a kernel hits.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Bound {
        /// Arithmetic takes at least as long as memory.
        Compute = "compute",
        /// Memory takes longer.
        Memory = "memory",
        /// A fetch from the host takes longest.
        Pcie = "pcie",
    }
    /// The word in reports.
    fn name;
}

/// The time of some work, times the weight of kernels on this hardware: the longest of its
/// arithmetic, its HBM traffic and what it fetches from the host; and which of these it is.
pub fn roofline(hw: &Hardware, work: &Work) -> (Picoseconds, Bound) {
    let (compute, memory, host) =
        (compute_time(hw, work), memory_time(hw, work), host_time(hw, work));
    if host > compute.max(memory) {
        return (hw.weighted_kernel(host), Bound::Pcie);
    }
    if compute >= memory && work.flops > Flops(0) {
        (hw.weighted_kernel(compute), Bound::Compute)
    } else {
        (hw.weighted_kernel(memory), Bound::Memory)
    }
}

/// The time of the arithmetic alone, at the rate that the chip reaches. On hardware that multiplies
/// tiles, a tile that is not full takes as long as a full one.
pub fn compute_time(hw: &Hardware, work: &Work) -> Picoseconds {
    let on_tiles =
        work.matmul.zip(hw.matmul_tile).map(|(matmul, tile)| matmul.flops_on_tiles(tile));
    match on_tiles.unwrap_or(work.flops) {
        Flops(0) => Picoseconds(0),
        Flops(flops) if work.attention => {
            time_at_rate(flops, 1, hw.attention_rate(work.arithmetic))
        }
        Flops(flops) => time_at_rate(flops, 1, hw.flops_rate(work.arithmetic)),
    }
}

/// The time of the HBM traffic alone.
pub fn memory_time(hw: &Hardware, work: &Work) -> Picoseconds {
    time_at_rate(u128::from(work.hbm_bytes().0), 1, hw.hbm_rate)
}

/// The time of fetching from the host alone: each device has a link of its own to it.
///
/// A program that fetches cannot run on hardware without a `[host]`, which is an error before it is
/// priced. A rate of one byte a second keeps the time finite.
pub fn host_time(hw: &Hardware, work: &Work) -> Picoseconds {
    match work.fetched {
        Bytes(0) => Picoseconds(0),
        Bytes(bytes) => time_at_rate(u128::from(bytes), 1, hw.host_rate.unwrap_or(1)),
    }
}
