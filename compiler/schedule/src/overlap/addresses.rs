//! Where buffers lie in the memory of a chip.

use super::live::{Buffer, Buffers};

/// A buffer and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The buffer.
    pub buffer: Buffer,
    /// Its first byte, counted from the end of weights and caches.
    pub address: u64,
}

/// Puts every buffer where none lies that is live at the same time; the bytes that are needed in all are those up to the
/// end of the last one.
///
/// Two ways are tried, the largest buffers first and the earliest first, each as low as it can lie; the one that needs less
/// is taken.
pub fn placed(buffers: &Buffers) -> Vec<Placed> {
    let mut by_size: Vec<usize> = (0..buffers.buffers.len()).collect();
    by_size.sort_by_key(|at| {
        let buffer = &buffers.buffers[*at];
        (std::cmp::Reverse(buffer.bytes), buffer.from, *at)
    });
    let mut by_time: Vec<usize> = (0..buffers.buffers.len()).collect();
    by_time.sort_by_key(|at| {
        let buffer = &buffers.buffers[*at];
        (buffer.from, std::cmp::Reverse(buffer.until), *at)
    });
    let ways = [by_size, by_time].map(|order| in_order(buffers, &order));
    ways.into_iter().min_by_key(|placed| extent(placed)).unwrap_or_default()
}

/// The bytes from the first to the last.
pub(super) fn extent(placed: &[Placed]) -> u64 {
    placed.iter().map(|p| p.address.saturating_add(p.buffer.bytes)).max().unwrap_or(0)
}

fn in_order(buffers: &Buffers, order: &[usize]) -> Vec<Placed> {
    let mut placed: Vec<(usize, Placed)> = Vec::with_capacity(order.len());
    for at in order {
        let buffer = buffers.buffers[*at];
        let beside = |other: &Placed| other.buffer.from < buffer.until && buffer.from < other.buffer.until;
        let mut beside: Vec<Placed> = placed.iter().map(|(_, p)| *p).filter(beside).collect();
        beside.sort_by_key(|p| p.address);
        let mut address = 0u64;
        for other in beside {
            if address.saturating_add(buffer.bytes) <= other.address {
                break;
            }
            address = address.max(other.address.saturating_add(other.buffer.bytes));
        }
        placed.push((*at, Placed { buffer, address }));
    }
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, placed)| placed).collect()
}
