//! The time of an exchange: each device sends parts of its block to the devices whose new blocks
//! have them.
//!
//! If the sizes of a dim's blocks before and after divide each other, the place of an element along
//! the dim is a list of independent digits, each of which belongs to at most one coordinate before
//! and one after. What crosses a link is then a product over digits. Else (an axis of 2 in place of
//! one of 3) parts are followed one by one (`parts`).

use std::collections::BTreeMap;

use shard_ir::{AxisId, Layout, Mesh, gcd, kept_by_each, never};

use super::parts::followed;
use super::terms::NetworkTime;
use super::times::{MoveTimes, NetworkLoad};
use crate::hardware::{Fabric, Topology, Wire, WireKind};

/// How many combinations of values of digits are tried; for more, each wire is taken by itself.
const MAX_TOGETHER: u64 = 1 << 14;

/// A fraction of what a device holds; it may be more than 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Fraction {
    pub(crate) num: u64,
    pub(crate) den: u64,
}

impl Fraction {
    pub(crate) const NONE: Fraction = Fraction { num: 0, den: 1 };

    /// In lowest terms.
    pub(crate) fn new(num: u128, den: u128) -> Fraction {
        let common = gcd(num, den.max(1));
        let narrow = |n: u128| u64::try_from(n / common).unwrap_or(u64::MAX);
        Fraction { num: narrow(num), den: narrow(den).max(1) }
    }

    fn at_most(self, other: Fraction) -> bool {
        u128::from(self.num) * u128::from(other.den) <= u128::from(other.num) * u128::from(self.den)
    }

    fn larger(self, other: Fraction) -> Fraction {
        if self.at_most(other) { other } else { self }
    }
}

/// The load that an exchange puts on one network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ExchangeLoad {
    /// As a fraction of a device's bytes: what the busiest link of a torus carries, what the
    /// busiest device of a flat network sends, or what that of a switched network sends out of its
    /// node.
    pub(crate) most: Fraction,
    /// As such a fraction, what the busiest device of a switched network sends inside its node.
    pub(crate) inside: Fraction,
    /// On a torus the hops of the longest way; on a switched network the devices that get parts of
    /// one block; on a flat network 1.
    pub(crate) steps: u64,
}

impl ExchangeLoad {
    pub(crate) const NONE: ExchangeLoad =
        ExchangeLoad { most: Fraction::NONE, inside: Fraction::NONE, steps: 0 };
}

/// The times of exchanges on one mesh.
pub(super) type ExchangeTimes<'h> = MoveTimes<'h, ExchangeLoad>;

/// A wire, and the network that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WireOf {
    pub(super) network: usize,
    pub(super) kind: WireKind,
    pub(super) size: u64,
}

/// The wires of a mesh axis that connect anything, major to minor.
pub(super) fn wires_of(topology: &Topology<'_>, axis: AxisId) -> Vec<WireOf> {
    let (network, wires) = &topology.axes[axis.index()];
    let of = |wire: &Wire| WireOf { network: *network, kind: wire.kind, size: wire.size };
    wires.iter().filter(|wire| wire.size > 1).map(of).collect()
}

impl NetworkLoad for ExchangeLoad {
    fn on_each(
        topology: &Topology<'_>,
        mesh: &Mesh,
        from: Layout,
        to: Layout,
        _: &[AxisId],
    ) -> Vec<ExchangeLoad> {
        let is_uniform = topology.fabrics.len() == 1 && topology.fabrics[0].kind().is_uniform();
        if is_uniform {
            // A device sends all but what it keeps.
            let most = kept_by_each(mesh, from, to)
                .map_or(Fraction { num: 1, den: 1 }, |k| Fraction { num: k - 1, den: k });
            return vec![ExchangeLoad { most, steps: 1, ..ExchangeLoad::NONE }];
        }
        match Digits::new(topology, mesh, from, to) {
            Some(digits) => (0..topology.fabrics.len()).map(|n| digits.load(n)).collect(),
            None => followed(topology, mesh, from, to),
        }
    }

    fn under(&self, fabric: &Fabric, bits: u128) -> Option<NetworkTime> {
        let kind = fabric.kind();
        (self.steps > 0).then(|| NetworkTime {
            kind: kind.name(),
            terms: kind.exchange(self, bits),
            at_once: true,
            steps: self.steps,
            step_time: kind.latency(),
        })
    }
}

/// The places of elements as digits, and the coordinates of devices before and after as lists of
/// these digits.
struct Digits {
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
    fn new(topology: &Topology<'_>, mesh: &Mesh, from: Layout, to: Layout) -> Option<Digits> {
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
    fn load(&self, network: usize) -> ExchangeLoad {
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

#[cfg(test)]
mod tests {
    use shard_ir::{AxisSet, Collective, Dtype, MeshShape};

    use super::*;
    use crate::Hardware;

    /// Calls `test` with every exchange between layouts of these sizes, and gives how many these
    /// are.
    fn each_exchange(mesh: &Mesh, sizes: &[u64], mut test: impl FnMut(Layout, Layout)) -> usize {
        let shape = MeshShape { mesh, sizes };
        let mut count = 0;
        for from in shape.layouts(AxisSet::EMPTY, AxisSet::EMPTY) {
            for to in shape.layouts_like(from) {
                if let Some(Collective::Exchange { .. }) = Collective::regrouping(shape, from, to) {
                    test(from, to);
                    count += 1;
                }
            }
        }
        count
    }

    fn hardware(network: &str) -> Hardware {
        let chip = "name = \"c\"\n[chip]\nflops = { bf16 = 1e12 }\nhbm_bytes = 1e9\nhbm_bandwidth \
            = 1e12\n[network]\n";
        Hardware::parse(&format!("{chip}{network}")).expect("well formed")
    }

    const NETWORKS: [&str; 6] = [
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"always\"",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"full-axis-4\"",
        "kind = \"switched\"\nnode = 4\nnode_bandwidth = 7e9\nnic_bandwidth = 1e9",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"always\"\n[network.axes]\nx = { \
            torus = [2, 2] }",
        "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"never\"\n[network.axes]\ny = { \
            kind = \"flat\", bandwidth = 1e9 }",
        "kind = \"flat\"\nbandwidth = 7e9\n[network.axes]\nz = { kind = \"switched\", node = 2, \
            node_bandwidth = 1e9, \
         nic_bandwidth = 1e8 }",
    ];

    #[test]
    fn digits_load_networks_as_the_parts_do_that_are_followed() {
        let mut tried = 0;
        for network in NETWORKS {
            let hw = hardware(network);
            for mesh in [vec![4, 2, 2], vec![4, 4], vec![4, 2, 4], vec![4, 6], vec![4, 3, 2]] {
                let mesh = Mesh::new(["x", "y", "z", "w"].into_iter().zip(mesh)).expect("a mesh");
                let topology = hw.network.topology(&mesh);
                let sizes =
                    if mesh.axes().len() > 2 { vec![192, 192] } else { vec![192, 192, 192] };
                tried += each_exchange(&mesh, &sizes, |from, to| {
                    if let Some(digits) = Digits::new(&topology, &mesh, from, to) {
                        let short: Vec<ExchangeLoad> =
                            (0..topology.fabrics.len()).map(|n| digits.load(n)).collect();
                        assert_eq!(
                            short,
                            followed(&topology, &mesh, from, to),
                            "{network} {mesh}: {from:?} to {to:?}"
                        );
                    }
                });
            }
        }
        assert!(tried > 8_000, "{tried}");
    }

    #[test]
    fn exchanges_that_do_the_same_take_the_same_time() {
        for network in NETWORKS {
            let hw = hardware(network);
            let mesh = Mesh::new([("x", 4), ("y", 2), ("z", 2)]).expect("a mesh");
            let mut shared = ExchangeTimes::new(&hw, &mesh);
            each_exchange(&mesh, &[16, 32, 16], |from, to| {
                let once = ExchangeTimes::new(&hw, &mesh).time(from, to, 1 << 20, Dtype::Bf16);
                assert_eq!(shared.time(from, to, 1 << 20, Dtype::Bf16), once, "{from:?} to {to:?}");
            });
        }
    }

    #[test]
    fn on_a_flat_network_the_busiest_device_sends_what_it_lacks() {
        let hw = hardware("kind = \"flat\"\nbandwidth = 7e9");
        for mesh in [vec![2, 2, 2], vec![2, 3], vec![4, 6]] {
            let mesh = Mesh::new(["x", "y", "z"].into_iter().zip(mesh)).expect("a mesh");
            let topology = hw.network.topology(&mesh);
            each_exchange(&mesh, &[48, 48, 48], |from, to| {
                let most = |all: Vec<ExchangeLoad>| all[0].most;
                assert_eq!(
                    most(ExchangeLoad::on_each(&topology, &mesh, from, to, &[])),
                    most(followed(&topology, &mesh, from, to)),
                    "{mesh}: {from:?} to {to:?}"
                );
            });
        }
    }
}
