//! The time of collective einsums and of rings, whose transfers run beside the multiplication of
//! chunks.

use shard_ir::Picoseconds;

use crate::attention::RingPairs;
use crate::collective::CollectiveCost;
use crate::op::Work;

/// The time of a collective einsum of so many chunks, from the times of its collective and of its
/// einsum, each by itself.
///
/// With K chunks, the einsum has K equal parts and the collective K - 1 transfers. An all-gather
/// loop multiplies the device's own chunk while the second one travels, and so on; the last chunk
/// is multiplied when nothing travels any more. A reduce-scatter loop is the same backwards:
/// nothing travels until the first chunk is made. So K - 1 chunks are multiplied while data is
/// sent, and one is not:
///
/// `max(collective, einsum - chunk) + chunk`, with `chunk` = `einsum / K`.
///
/// No schedule of the loop takes less: the last chunk that arrives is multiplied after everything
/// is sent (the first that leaves, before anything is), and the cores do the whole einsum. (ESTI
/// section 3.5, "Looped CollectiveEinsum"; the book's part 10, "Collective Matmul".)
///
/// ```
/// # use shard_cost::looped_time;
/// # use shard_ir::Picoseconds;
/// let time = |collective, einsum| looped_time(Picoseconds(collective), Picoseconds(einsum), 4);
/// assert_eq!(time(90, 40), Picoseconds(100)); // one chunk of 10 behind the transfers
/// assert_eq!(time(20, 40), Picoseconds(40)); // hidden altogether
/// ```
pub fn looped_time(collective: Picoseconds, einsum: Picoseconds, chunks: u64) -> Picoseconds {
    let chunk = Picoseconds(einsum.0.div_ceil(chunks.max(1)));
    collective.max(Picoseconds(einsum.0 - chunk.0)) + chunk
}

/// The time of a ring of so many steps: from the times of its transfers together and of its
/// attention, each by itself, and the time of the attention in a full step. All steps but the first
/// are full.
///
/// In each step but the last, a block is worked on while the next one travels, and the longer of
/// the two counts; the last block is worked on when nothing travels any more. The transfers are
/// equal.
pub fn ring_time(
    collective: Picoseconds,
    attention: Picoseconds,
    full: Picoseconds,
    steps: u64,
) -> Picoseconds {
    let Some(beside) = steps.checked_sub(1).filter(|beside| *beside > 0) else {
        return attention;
    };
    let first = attention.0.saturating_sub(full.0.saturating_mul(beside));
    // Transfers take whole picoseconds, some of them one more than the first.
    let sent = collective.0 / beside;
    let others =
        if full.0 > sent { full.0.saturating_mul(beside - 1) } else { collective.0 - sent };
    Picoseconds(first.max(sent)) + Picoseconds(others) + full
}

/// The time of the attention in a full step of a ring, from its time in all steps; `None` if the
/// work is that of no ring.
pub fn full_step(work: &Work, attention: Picoseconds) -> Option<Picoseconds> {
    let RingPairs { fullest, all } = work.ring?;
    let (time, all) = (u128::from(attention.0), all.max(1));
    let part = (time / all).saturating_mul(fullest) + (time % all).saturating_mul(fullest) / all;
    Some(Picoseconds(u64::try_from(part).unwrap_or(u64::MAX)))
}

/// The time of a collective einsum or a ring: from the time of its collective, and the work and the
/// time of its kernel, each by itself.
pub fn loop_time(
    collective: Picoseconds,
    work: &Work,
    kernel: Picoseconds,
    chunks: u64,
) -> Picoseconds {
    match full_step(work, kernel) {
        Some(full) => ring_time(collective, kernel, full, chunks),
        None => looped_time(collective, kernel, chunks),
    }
}

/// The price of a collective einsum, or of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPrice {
    /// What its collective, or all that travels in a ring, would cost by itself.
    pub collective: CollectiveCost,
    /// The time that its einsum, or its attention, would take by itself, with the ops that join its
    /// kernel.
    pub einsum: Picoseconds,
    /// How many chunks there are.
    pub chunks: u64,
    /// The time of the attention in a full step of a ring; the first step takes what the others
    /// leave. `None` for an einsum, whose chunks are equal.
    pub full: Option<Picoseconds>,
}

impl LoopPrice {
    /// The time of the loop.
    pub fn time(&self) -> Picoseconds {
        match self.full {
            Some(full) => ring_time(self.collective.time, self.einsum, full, self.chunks),
            None => looped_time(self.collective.time, self.einsum, self.chunks),
        }
    }

    /// The time that the loop saves against einsum and collective one after the other.
    pub fn hidden(&self) -> Picoseconds {
        Picoseconds((self.collective.time + self.einsum).0.saturating_sub(self.time().0))
    }

    /// The time that the collective adds to that of the einsum.
    pub fn exposed(&self) -> Picoseconds {
        Picoseconds(self.time().0 - self.einsum.0)
    }
}
