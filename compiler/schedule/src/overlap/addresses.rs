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

/// Places every buffer so that no two that are live at the same time share a byte, within few bytes
/// from address 0 on.
///
/// Buffers are placed one after another, each as low as it can lie, in three orders: the largest
/// first, the earliest first, and the one of the largest product of bytes and time first. While the
/// placement needs more bytes than are live at once, the buffer that lies highest is put to the
/// front of the order and all are placed again, as often as `EFFORT` allows. If no placement gets
/// by with the bytes that are live, as many random orders are tried, and then places in the order
/// of time (`in_time`). The placement that needs the fewest bytes is taken.
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

/// Random orders of so many numbers, the same in each call.
fn shuffled(count: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
    std::iter::repeat_with(move || random.shuffled(&(0..count).collect::<Vec<usize>>()))
}

/// How many pairs of buffers are compared at most for each order to begin with.
const EFFORT: usize = 20_000_000;
/// How often all buffers are placed again at most for each order to begin with.
const MOST_TRIES: usize = 500;

/// The orders to begin with, as indices of buffers.
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

/// Places the buffers in the order in which they begin, all of them below `limit`; `None` if it
/// finds no way.
///
/// `in_order` never leaves room below a short buffer for a long one that begins later, without
/// which some memories cannot be filled to the last byte. Here a buffer lies at an end of a gap, or
/// so far from it that the next buffer fits between. Up to `WIDTH` ways to place the buffers so far
/// are followed.
fn in_time(buffers: &Buffers, limit: u64) -> Option<Vec<Placed>> {
    let all = &buffers.buffers;
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| (all[*at].from, std::cmp::Reverse(all[*at].bytes), *at));
    // Each way: the buffers that are live, by address; and the address of each buffer placed so
    // far, in that order.
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

/// How many ways to place buffers are followed at once.
const WIDTH: usize = 128;

/// The addresses that are tried for a buffer of so many bytes, between those that are `live`, which
/// are ordered by address, and below `limit`. `next` is how many bytes the next buffer has.
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

/// The end of the buffer that lies highest: the bytes that the placement needs.
fn extent(placed: &[Placed]) -> u64 {
    placed.iter().map(|p| p.address.saturating_add(p.buffer.bytes)).max().unwrap_or(0)
}

/// Places the buffers in an order, each as low as it can lie.
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
