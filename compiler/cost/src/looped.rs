//! What a collective einsum costs: the time of a ring whose transfers run beside the multiplication
//! of chunks.

use shard_ir::Picoseconds;

use crate::attention::RingPairs;
use crate::collective::CollectiveCost;
use crate::op::Work;

/// The time of a collective einsum of so many chunks, from the time of its collective and that of
/// its einsum, each by itself.
///
/// With K chunks, the einsum is K equal parts and the ring K - 1 transfers. An all-gather loop
/// multiplies its own chunk while the second one travels, and so on; the last chunk is multiplied
/// when nothing travels any more. A reduce-scatter loop is the same backwards: nothing travels
/// until the first chunk is made. So K - 1 chunks run beside all that is sent, and one does not:
///
/// `max(collective, einsum - chunk) + chunk`, with `chunk` = `einsum / K`.
///
/// No schedule of the ring takes less: the chunk that is the last to arrive (the first to leave) is
/// multiplied after (before) everything is sent, and the cores do the whole einsum. (ESTI section
/// 3.5, "Looped CollectiveEinsum"; the book's part 10, "Collective Matmul".)
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

/// The time of a ring of so many steps, from the time of what travels, that of its attention, each
/// by itself, and that of a full step of it; the first step takes what is left.
///
/// In each step but the last a block is worked on while the next one travels, and the longer of the
/// two counts; the last block is worked on when nothing travels any more. The transfers are equal.
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
    // Of whole picoseconds some transfers take one more than others, the first one does not.
    let sent = collective.0 / beside;
    let others =
        if full.0 > sent { full.0.saturating_mul(beside - 1) } else { collective.0 - sent };
    Picoseconds(first.max(sent)) + Picoseconds(others) + full
}

/// What a full step takes of a ring that takes so long in all, if it is one.
pub fn full_step(work: &Work, attention: Picoseconds) -> Option<Picoseconds> {
    let RingPairs { fullest, all } = work.ring?;
    let (time, all) = (u128::from(attention.0), all.max(1));
    let part = (time / all).saturating_mul(fullest) + (time % all).saturating_mul(fullest) / all;
    Some(Picoseconds(u64::try_from(part).unwrap_or(u64::MAX)))
}

/// The time of a loop, from the time of what it sends and the work and the time of its kernel, each
/// by itself.
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

/// What the collective inside the loop of a collective einsum costs, or what travels in a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoopPrice {
    /// What it would cost by itself.
    pub collective: CollectiveCost,
    /// What the einsum (and what joins its kernel) would take by itself.
    pub einsum: Picoseconds,
    /// How many chunks there are.
    pub chunks: u64,
    /// Of a ring what a full step of it takes; the first one takes what the others leave. Chunks of
    /// an einsum are equal.
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

    /// What the loop saves against the two one after the other: the part of the collective that
    /// runs beside the einsum.
    pub fn hidden(&self) -> Picoseconds {
        Picoseconds((self.collective.time + self.einsum).0.saturating_sub(self.time().0))
    }

    /// How much of the loop passes while the cores have nothing to multiply: what the collective
    /// adds to the time.
    pub fn exposed(&self) -> Picoseconds {
        Picoseconds(self.time().0 - self.einsum.0)
    }
}
