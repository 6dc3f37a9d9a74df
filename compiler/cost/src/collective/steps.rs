//! The times of all-gathers (and so of reduce-scatters and all-reduces) and of all-to-alls: one step a network.

use shard_ir::{AxisList, Mesh, Picoseconds};

use crate::hardware::{Fabric, Hardware, TorusAxis, Wires};
use crate::units::time_at_rate;

/// The networks that a collective runs over, each with its share of the group.
pub(super) struct Networks<'h>(Vec<Share<'h>>);

/// One network, and the part of a group that runs over it.
struct Share<'h> {
    fabric: &'h Fabric,
    /// Devices of the group that this network connects.
    members: u64,
    /// On a torus, the axes.
    torus: Vec<TorusAxis>,
    /// On a switched network, how many of the members share a node.
    inside: u64,
}

/// Part of an all-gather: the devices of a part of the group give each other what they have.
struct Part {
    network: usize,
    members: u64,
    /// Bytes per second that the part moves.
    rate: u64,
    /// Whether a device's own share counts as moved: on a two-way ring it does (book part 3), elsewhere not.
    counts_own: bool,
}

impl Part {
    /// Bytes per second at which what a device lacks arrives, times 2^16.
    fn effective_rate(&self) -> u128 {
        let rate = u128::from(self.rate) << 16;
        if self.counts_own { rate * u128::from(self.members - 1) / u128::from(self.members) } else { rate }
    }

    /// The time in which a device comes to hold `bits / parts`, with the rest of its part of the group.
    ///
    /// What is all but its own share takes the time of the whole less that of the share, each in whole picoseconds: so the
    /// times of a chain of all-gathers over neighbouring axes add up to exactly that of the one over them all, and plans
    /// that are equal in bytes are equal in time.
    fn time(&self, bits: u128, parts: u64) -> Picoseconds {
        let all = time_at_rate(bits, parts.saturating_mul(8), self.rate);
        let own = match self.counts_own {
            true => Picoseconds(0),
            false => time_at_rate(bits, parts.saturating_mul(self.members).saturating_mul(8), self.rate),
        };
        Picoseconds(all.0.saturating_sub(own.0))
    }
}

impl<'h> Networks<'h> {
    pub(super) fn of(hw: &'h Hardware, mesh: &Mesh, axes: &AxisList) -> Networks<'h> {
        let topology = hw.network.topology(mesh);
        let mut shares: Vec<Share<'h>> =
            topology.fabrics.iter().map(|f| Share { fabric: f, members: 1, torus: Vec::new(), inside: 1 }).collect();
        for axis in axes.iter() {
            let (network, wires) = &topology.axes[axis.index()];
            let share = &mut shares[*network];
            share.members *= mesh.size(axis);
            match wires {
                Wires::Flat => {}
                Wires::Torus(torus) => share.torus.extend(torus),
                Wires::Switched { inside, .. } => share.inside *= inside,
            }
        }
        shares.retain(|share| share.members > 1);
        Networks(shares)
    }

    /// The time of an all-gather that gives each device `bits`. A reduce-scatter of `bits` is the same backwards.
    ///
    /// The slowest part goes first, when a device has least.
    pub(super) fn gather(&self, bits: u128) -> Picoseconds {
        let mut parts: Vec<Part> = self.0.iter().enumerate().flat_map(|(i, share)| share.parts(i)).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.effective_rate()));
        let mut times = vec![Picoseconds(0); self.0.len()];
        let mut divided = 1u64;
        for part in &parts {
            times[part.network] = times[part.network] + part.time(bits, divided);
            divided = divided.saturating_mul(part.members);
        }
        self.0.iter().zip(times).map(|(share, time)| time.max(share.gather_latency())).fold(Picoseconds(0), add)
    }

    /// The time of an all-to-all in which each device holds `bits`: one exchange a network, of all that a device holds.
    pub(super) fn exchange(&self, bits: u128) -> Picoseconds {
        self.0.iter().map(|share| share.exchange(bits).max(share.exchange_latency())).fold(Picoseconds(0), add)
    }
}

impl Share<'_> {
    /// The parts of an all-gather over this network.
    fn parts(&self, network: usize) -> Vec<Part> {
        let mut parts = match self.fabric {
            Fabric::Flat { bandwidth, .. } => {
                vec![Part { network, members: self.members, rate: *bandwidth, counts_own: false }]
            }
            // All lines one after the other; then all rings at once, each with two links.
            Fabric::Torus { link_bandwidth, .. } => {
                let members = |ring: bool| self.torus.iter().filter(|a| a.ring == ring).map(|a| a.size).product();
                let links = 2 * self.torus.iter().filter(|a| a.ring).count() as u64;
                let rate = link_bandwidth.saturating_mul(links);
                vec![
                    Part { network, members: members(false), rate: *link_bandwidth, counts_own: false },
                    Part { network, members: members(true), rate, counts_own: true },
                ]
            }
            Fabric::Switched { node_bandwidth, nic_bandwidth, .. } => vec![
                Part { network, members: self.inside, rate: *node_bandwidth, counts_own: false },
                Part { network, members: self.members / self.inside, rate: *nic_bandwidth, counts_own: false },
            ],
        };
        parts.retain(|part| part.members > 1);
        parts
    }

    /// The hops from end to end, or the steps, of an all-gather, at what each takes at least.
    fn gather_latency(&self) -> Picoseconds {
        match self.fabric {
            Fabric::Flat { latency, .. } => *latency,
            Fabric::Torus { hop_latency, .. } => times(*hop_latency, self.hops()),
            Fabric::Switched { alpha, .. } => {
                times(*alpha, u64::from(self.inside > 1) + u64::from(self.inside < self.members))
            }
        }
    }

    fn hops(&self) -> u64 {
        self.torus.iter().map(|axis| if axis.ring { axis.size.div_ceil(2) } else { axis.size - 1 }).sum()
    }

    fn exchange(&self, bits: u128) -> Picoseconds {
        match self.fabric {
            Fabric::Flat { bandwidth, .. } => {
                let part = Part { network: 0, members: self.members, rate: *bandwidth, counts_own: false };
                part.time(bits, 1)
            }
            // Every part of the data crosses every axis, the n parts in different orders. With K devices on an axis, the
            // busiest link of a ring carries K/8 of what a device holds, that of a line floor(K/2) ceil(K/2) / K.
            Fabric::Torus { link_bandwidth, .. } => {
                let n = self.torus.len() as u64;
                let on_axis = |axis: &TorusAxis| match axis.ring {
                    true => time_at_rate(bits.saturating_mul(u128::from(axis.size)), 64 * n, *link_bandwidth),
                    false => {
                        let crossing = u128::from(axis.size / 2) * u128::from(axis.size.div_ceil(2));
                        time_at_rate(bits.saturating_mul(crossing), 8 * axis.size * n, *link_bandwidth)
                    }
                };
                self.torus.iter().map(on_axis).fold(Picoseconds(0), add)
            }
            // What stays in the node and what leaves it travel at the same time.
            Fabric::Switched { node_bandwidth, nic_bandwidth, .. } => {
                let sent = |to: u64, rate: u64| {
                    time_at_rate(bits.saturating_mul(u128::from(to)), self.members.saturating_mul(8), rate)
                };
                sent(self.inside - 1, *node_bandwidth).max(sent(self.members - self.inside, *nic_bandwidth))
            }
        }
    }

    /// As [`Share::gather_latency`]; behind switches, a message to each member of the group (DeepSpeed's `p C1`).
    fn exchange_latency(&self) -> Picoseconds {
        match self.fabric {
            Fabric::Flat { .. } | Fabric::Torus { .. } => self.gather_latency(),
            Fabric::Switched { alpha, .. } => times(*alpha, self.members),
        }
    }
}

fn add(a: Picoseconds, b: Picoseconds) -> Picoseconds {
    a + b
}

fn times(time: Picoseconds, n: u64) -> Picoseconds {
    Picoseconds(time.0.saturating_mul(n))
}
