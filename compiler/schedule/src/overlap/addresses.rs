//! Where buffers lie in the memory of a chip.

use std::collections::BTreeSet;

use shard_ir::Random;

use super::live::{Buffer, Buffers};

/// A buffer and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The buffer.
    pub buffer: Buffer,
    /// Its first byte, counted from the end of weights and caches.
    pub address: u64,
}

/// Puts every buffer where none lies that is live at the same time; the bytes that are needed in
/// all are those up to the end of the last one.
///
/// Buffers are put one after another, each as low as it can lie: the largest first, or the
/// earliest, or the one that takes most bytes for longest. While that takes more than what is live
/// at once, the one that lies highest is put first, and all are put again, so often as `EFFORT`
/// allows; where that does not reach what is live, so many other orders are tried, and then places
/// in order of time (`in_time`). What needs least is taken.
pub fn placed(buffers: &Buffers) -> Vec<Placed> {
    let least = buffers.peak().saturating_sub(buffers.kept);
    let count = buffers.buffers.len().max(1);
    let tries = (EFFORT / (count * count)).clamp(1, MOST_TRIES);
    let mut best: Option<(u64, Vec<Placed>)> = None;
    for mut order in orders(buffers) {
        for _ in 0..tries {
            let placed = in_order(buffers, &order);
            let extent = extent(&placed);
            let highest =
                placed.iter().position(|p| p.address.saturating_add(p.buffer.bytes) == extent);
            if best.as_ref().is_none_or(|(least, _)| extent < *least) {
                best = Some((extent, placed));
            }
            let Some(highest) = highest.filter(|_| extent > least) else { break };
            order.retain(|at| *at != highest);
            order.insert(0, highest);
        }
    }
    if best.as_ref().is_some_and(|(extent, _)| *extent > least) {
        for order in shuffled(buffers.buffers.len()).take(tries) {
            let placed = in_order(buffers, &order);
            let found = extent(&placed);
            if best.as_ref().is_none_or(|(extent, _)| found < *extent) {
                best = Some((found, placed));
            }
        }
    }
    if best.as_ref().is_some_and(|(extent, _)| *extent > least)
        && count * count * WIDTH <= EFFORT
        && let Some(placed) = in_time(buffers, least)
    {
        return placed;
    }
    best.map_or_else(Vec::new, |(_, placed)| placed)
}

/// So many numbers in orders that have nothing to do with each other, the same every time.
fn shuffled(count: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
    std::iter::repeat_with(move || random.shuffled(&(0..count).collect::<Vec<usize>>()))
}

/// Pairs of buffers that are compared, at most, for each order to begin with.
const EFFORT: usize = 20_000_000;
/// So often all buffers are put again.
const MOST_TRIES: usize = 500;

fn orders(buffers: &Buffers) -> [Vec<usize>; 3] {
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
    let mut by_both: Vec<usize> = (0..buffers.buffers.len()).collect();
    by_both.sort_by_key(|at| {
        let buffer = &buffers.buffers[*at];
        let lives = u128::from(buffer.until.0.saturating_sub(buffer.from.0));
        (std::cmp::Reverse(lives * u128::from(buffer.bytes)), buffer.from, *at)
    });
    [by_size, by_time, by_both]
}

/// Puts the buffers in the order in which they begin, all of them below `limit`, or gives `None`.
///
/// No order of `in_order` leaves room below a short buffer for a long one that begins later; some
/// memories are filled to the last byte only so. Here a buffer lies at an end of a gap, or so far
/// from it that the next one fits between. The first `WIDTH` ways are kept at each buffer.
fn in_time(buffers: &Buffers, limit: u64) -> Option<Vec<Placed>> {
    let all = &buffers.buffers;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (all[*at].from, std::cmp::Reverse(all[*at].bytes), *at));
    // What is live, by address; the address of each buffer put so far, in that order.
    let mut ways: Vec<(Vec<Placed>, Vec<u64>)> = vec![(Vec::new(), Vec::new())];
    for (turn, at) in order.iter().enumerate() {
        let buffer = all[*at];
        let next = order.get(turn + 1).map_or(0, |next| all[*next].bytes);
        let mut seen: BTreeSet<Vec<(u64, u64)>> = BTreeSet::new();
        let mut longer = Vec::new();
        for (live, addresses) in ways {
            let live: Vec<Placed> =
                live.into_iter().filter(|p| p.buffer.until > buffer.from).collect();
            for address in places(&live, buffer.bytes, next, limit) {
                let mut live = live.clone();
                live.push(Placed { buffer, address });
                live.sort_by_key(|p| p.address);
                let held = live.iter().map(|p| (p.address, p.buffer.until.0)).collect();
                if longer.len() < WIDTH && seen.insert(held) {
                    longer.push((live, [&addresses[..], &[address]].concat()));
                }
            }
        }
        ways = longer;
    }
    let (_, addresses) = ways.into_iter().next()?;
    let mut placed: Vec<(usize, Placed)> = (order.iter().zip(addresses))
        .map(|(at, address)| (*at, Placed { buffer: all[*at], address }))
        .collect();
    placed.sort_by_key(|(at, _)| *at);
    Some(placed.into_iter().map(|(_, placed)| placed).collect())
}

/// So many ways to put buffers are followed at once.
const WIDTH: usize = 128;

/// Where so many bytes may lie between what is `live`, ordered by address, and below `limit`.
fn places(live: &[Placed], bytes: u64, next: u64, limit: u64) -> BTreeSet<u64> {
    let mut places = BTreeSet::new();
    let mut from = 0u64;
    let ends = live.iter().map(|p| (p.address, p.address.saturating_add(p.buffer.bytes)));
    for (until, then) in ends.chain([(limit, limit)]) {
        if let Some(last) = until.checked_sub(bytes).filter(|last| *last >= from) {
            let ends = [from, last, from.saturating_add(next), last.saturating_sub(next)];
            places.extend(ends.into_iter().filter(|place| (from..=last).contains(place)));
        }
        from = then;
    }
    places
}

/// The bytes from the first to the last.
fn extent(placed: &[Placed]) -> u64 {
    placed.iter().map(|p| p.address.saturating_add(p.buffer.bytes)).max().unwrap_or(0)
}

fn in_order(buffers: &Buffers, order: &[usize]) -> Vec<Placed> {
    let mut placed: Vec<(usize, Placed)> = Vec::with_capacity(order.len());
    for at in order {
        let buffer = buffers.buffers[*at];
        let beside =
            |other: &Placed| other.buffer.from < buffer.until && buffer.from < other.buffer.until;
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
