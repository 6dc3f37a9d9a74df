//! The load of an exchange by digits: the faster way, for blocks whose sizes divide each other.

use std::collections::BTreeMap;

use shard_ir::{Layout, Mesh, never};

use super::exchange::{ExchangeLoad, Fraction, WireOf, wires_of};
use crate::hardware::{Topology, WireKind};

/// How many combinations of values of digits are tried; for more, each wire is taken by itself.
const MAX_TOGETHER: u64 = 1 << 14;

/// The places of elements as digits, and the coordinates of devices before and after as lists of
/// these digits.
pub(super) struct Digits {
    /// How many values each digit has.
    radix: Vec<u64>,
    /// The wires along which elements move: network by network, in mesh order. An element takes
    /// them one after the other in this order.
    wires: Vec<Crossed>,
}

/// A wire, and the digits that are the coordinate along it before and after, major to minor.
struct Crossed {
    wire: WireOf,
    before: Vec<usize>,
    after: Vec<usize>,
}

impl Digits {
    /// `None` if the sizes of blocks do not divide each other.
    pub(super) fn new(
        topology: &Topology<'_>,
        mesh: &Mesh,
        from: Layout,
        to: Layout,
    ) -> Option<Digits> {
        let mut radix = Vec::new();
        // For each wire of each mesh axis the digits before and after.
        let mut of: BTreeMap<(usize, usize), [Vec<usize>; 2]> = BTreeMap::new();
        let rank = from.split_rank().max(to.split_rank());
        for dim in (0..rank).filter(|d| from.axes_of(*d) != to.axes_of(*d)) {
            let spans = [from, to].map(|layout| {
                let mut border = 1;
                let mut spans = Vec::new();
                for axis in layout.axes_of(dim).iter() {
                    for (i, wire) in wires_of(topology, axis).iter().enumerate() {
                        spans.push(((axis.index(), i), border, border * wire.size));
                        border *= wire.size;
                    }
                }
                spans
            });
            let mut borders: Vec<u64> =
                spans.iter().flatten().map(|(_, _, end)| *end).chain([1]).collect();
            borders.sort_unstable();
            borders.dedup();
            if borders.windows(2).any(|w| w[1] % w[0] != 0) {
                return None;
            }
            let first = radix.len();
            radix.extend(borders.windows(2).map(|w| w[1] / w[0]));
            for (side, spans) in spans.iter().enumerate() {
                for (wire, start, end) in spans {
                    let within = borders[..borders.len() - 1]
                        .iter()
                        .enumerate()
                        .filter(|(_, b)| start <= b && *b < end);
                    of.entry(*wire).or_default()[side] = within.map(|(i, _)| first + i).collect();
                }
            }
        }
        let mut wires = Vec::new();
        for axis in mesh.axis_ids() {
            for (i, wire) in wires_of(topology, axis).into_iter().enumerate() {
                if let Some([before, after]) = of.remove(&(axis.index(), i))
                    && before != after
                {
                    wires.push(Crossed { wire, before, after });
                }
            }
        }
        wires.sort_by_key(|crossed| crossed.wire.network);
        Some(Digits { radix, wires })
    }

    fn product(&self, digits: impl IntoIterator<Item = usize>) -> u64 {
        digits.into_iter().map(|d| self.radix[d]).product()
    }

    /// The load on one network.
    pub(super) fn load(&self, network: usize) -> ExchangeLoad {
        let start = self.wires.iter().position(|c| c.wire.network == network);
        let count = self.wires.iter().filter(|c| c.wire.network == network).count();
        let Some(start) = start else { return ExchangeLoad::NONE };
        let own = start..start + count;
        match self.wires[start].wire.kind {
            WireKind::Line | WireKind::Ring => {
                let most = own
                    .clone()
                    .map(|at| self.busiest_link(at))
                    .fold(Fraction::NONE, Fraction::larger);
                ExchangeLoad {
                    most,
                    steps: self.longest_way(&self.wires[own]),
                    ..ExchangeLoad::NONE
                }
            }
            WireKind::Flat | WireKind::Inside | WireKind::Outside => self.busiest_sender(own),
        }
    }

    /// The digits that are known of an element by the device where it is when it has crossed the
    /// first `crossed` wires: those of its coordinates after along these wires, and of its
    /// coordinates before along the wires from `from_here` on. Also the number of values of those
    /// that are in both.
    fn known(&self, crossed: usize, from_here: usize) -> (Vec<bool>, u64) {
        let mut known = vec![false; self.radix.len()];
        let after = self.wires[..crossed].iter().flat_map(|c| &c.after);
        after.for_each(|d| known[*d] = true);
        let before: Vec<usize> =
            self.wires[from_here..].iter().flat_map(|c| c.before.iter().copied()).collect();
        let twice = self.product(before.iter().copied().filter(|d| known[*d]));
        before.iter().for_each(|d| known[*d] = true);
        (known, twice)
    }

    /// The value of a coordinate, by its digits and the values of all digits.
    fn value(&self, digits: &[usize], values: &[u64]) -> u64 {
        digits.iter().fold(0, |n, d| n * self.radix[*d] + values[*d])
    }

    /// Calls `visit` with every assignment of values to some digits, the last fastest.
    fn each(&self, digits: &[usize], values: &mut [u64], visit: &mut dyn FnMut(&[u64])) {
        match digits {
            [] => visit(values),
            [first, rest @ ..] => {
                for value in 0..self.radix[*first] {
                    values[*first] = value;
                    self.each(rest, values, visit);
                }
            }
        }
    }

    /// What the busiest link along a wire of a torus carries, as a fraction of a device's bytes. An
    /// element crosses it when it has moved along the wires before it, and not along those behind
    /// it. If both ways round a ring are equally long, half of the elements go each way.
    fn busiest_link(&self, at: usize) -> Fraction {
        let Crossed { wire, before, after } = &self.wires[at];
        let (known, twice) = self.known(at, at + 1);
        let mut own: Vec<usize> = before.clone();
        own.extend(after.iter().filter(|d| !before.contains(d)));
        let (fixed, free): (Vec<usize>, Vec<usize>) = own.into_iter().partition(|d| known[*d]);
        let assignments = self.product(free.iter().copied());
        let size = wire.size as usize;
        let mut values = vec![0; self.radix.len()];
        let mut most = 0;
        let mut outer = vec![0; self.radix.len()];
        self.each(&fixed, &mut outer, &mut |fixed_values| {
            values.copy_from_slice(fixed_values);
            // For both directions, doubled: by how much the load changes from each link to the
            // next.
            let mut ways = [vec![0i64; 2 * size + 1], vec![0i64; 2 * size + 1]];
            self.each(&free, &mut values, &mut |values| {
                let (here, there) =
                    (self.value(before, values) as usize, self.value(after, values) as usize);
                let up = (there + size - here) % size;
                let (upwards, downwards) = match wire.kind {
                    WireKind::Ring if 2 * up == size => (1, 1),
                    WireKind::Ring => {
                        if 2 * up < size {
                            (2, 0)
                        } else {
                            (0, 2)
                        }
                    }
                    WireKind::Line | WireKind::Flat | WireKind::Inside | WireKind::Outside => {
                        if there > here {
                            (2, 0)
                        } else {
                            (0, 2)
                        }
                    }
                };
                ways[0][here] += upwards;
                ways[0][here + up] -= upwards;
                let down = (size - up) % size;
                ways[1][here + size - down] += downwards;
                ways[1][here + size] -= downwards;
            });
            for way in &ways {
                let mut on_link = vec![0i64; size];
                let mut now = 0;
                for (i, change) in way.iter().enumerate().take(2 * size) {
                    now += change;
                    on_link[i % size] += now;
                }
                most = most.max(
                    on_link.into_iter().max().unwrap_or_else(|| never!("a wire without a link", 0)),
                );
            }
        });
        Fraction::new(
            u128::from(most.unsigned_abs()) * u128::from(twice) * u128::from(wire.size),
            2 * u128::from(assignments),
        )
    }

    /// The most hops between a device and one that gets something from it, over wires of a torus.
    fn longest_way(&self, wires: &[Crossed]) -> u64 {
        let hops = |c: &Crossed, values: &[u64]| {
            let (here, there) = (self.value(&c.before, values), self.value(&c.after, values));
            let apart = here.abs_diff(there);
            if c.wire.kind == WireKind::Ring { apart.min(c.wire.size - apart) } else { apart }
        };
        let mut left: Vec<&Crossed> = wires.iter().collect();
        let mut total = 0;
        // Wires that have digits in common are taken together, since their hops depend on each
        // other.
        while let Some(first) = left.pop() {
            let mut together = vec![first];
            let mut digits: Vec<usize> = first.before.iter().chain(&first.after).copied().collect();
            while let Some(at) = left
                .iter()
                .position(|c| c.before.iter().chain(&c.after).any(|d| digits.contains(d)))
            {
                let next = left.swap_remove(at);
                digits.extend(next.before.iter().chain(&next.after));
                together.push(next);
            }
            digits.sort_unstable();
            digits.dedup();
            if digits
                .iter()
                .try_fold(1u64, |n, d| n.checked_mul(self.radix[*d]))
                .is_none_or(|n| n > MAX_TOGETHER)
            {
                let longest = |c: &&Crossed| {
                    if c.wire.kind == WireKind::Ring { c.wire.size / 2 } else { c.wire.size - 1 }
                };
                total += together.iter().map(longest).sum::<u64>();
                continue;
            }
            let mut most = 0;
            let mut values = vec![0; self.radix.len()];
            self.each(&digits, &mut values, &mut |values| {
                most = most.max(together.iter().map(|c| hops(c, values)).sum());
            });
            total += most;
        }
        total
    }

    /// The load of a flat or a switched network, whose wires these are.
    fn busiest_sender(&self, own: std::ops::Range<usize>) -> ExchangeLoad {
        let (known, twice) = self.known(own.start, own.start);
        let wires = &self.wires[own];
        let free = |c: &Crossed| self.product(c.after.iter().copied().filter(|d| !known[*d]));
        let (outside, within): (Vec<&Crossed>, Vec<&Crossed>) =
            wires.iter().partition(|c| c.wire.kind != WireKind::Inside);
        let others = |wires: &[&Crossed]| wires.iter().map(|c| free(c)).product::<u64>();
        let (out, all) = (others(&outside), others(&outside) * others(&within));
        // The device that sends most is found by trying all values of the known digits; it holds
        // `twice` the bytes of a block.
        let mut fixed: Vec<usize> = wires
            .iter()
            .flat_map(|c| c.before.iter().chain(&c.after))
            .copied()
            .filter(|d| known[*d])
            .collect();
        fixed.sort_unstable();
        fixed.dedup();
        let together = fixed.iter().try_fold(1u64, |n, d| n.checked_mul(self.radix[*d]));
        let (mut most, mut inside) = (0, 0);
        if together.is_some_and(|n| n <= MAX_TOGETHER) {
            let mut values = vec![0; self.radix.len()];
            self.each(&fixed, &mut values, &mut |values| {
                let stays =
                    |wires: &[&Crossed]| wires.iter().all(|c| self.may_stay(c, &known, values));
                let (home, same) =
                    (u64::from(stays(&outside)), u64::from(stays(&outside) && stays(&within)));
                // In units of one `all`-th of the block: if the device may keep elements, `all /
                // out` of them stay in the node, and one of these stays on the device.
                most = most.max(all - home * (all / out));
                inside = inside.max(home * (all / out) - same);
            });
        } else {
            (most, inside) = (
                if outside.is_empty() { 0 } else { all },
                if within.is_empty() { 0 } else { all / out },
            );
        }
        let part = |n: u64| Fraction::new(u128::from(n) * u128::from(twice), u128::from(all));
        // On a switched network a message goes to each device that gets a part of the block,
        // perhaps the device itself; on a flat network all go at once.
        let steps = if wires.iter().any(|c| c.wire.kind == WireKind::Flat) { 1 } else { all };
        ExchangeLoad { most: part(most), inside: part(inside), steps }
    }

    /// Whether some elements of a device have the same coordinate along a wire before and after,
    /// for these values of the known digits.
    fn may_stay(&self, crossed: &Crossed, known: &[bool], values: &[u64]) -> bool {
        let mut here = self.value(&crossed.before, values);
        crossed.after.iter().rev().all(|d| {
            let place = here % self.radix[*d];
            here /= self.radix[*d];
            !known[*d] || values[*d] == place
        })
    }
}
