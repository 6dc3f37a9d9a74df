//! The times of all-gathers (and so of reduce-scatters and all-reduces) and of all-to-alls: one step a network.

use shard_ir::{AxisList, Mesh};

use super::terms::{How, NetworkTime};
use crate::hardware::{Fabric, Hardware, TorusAxis, Wires};

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

    /// What brings each device to hold `D / parts`, with the rest of its part of the group.
    fn how(&self, parts: u64) -> How {
        match self.counts_own {
            true => How::Rings { parts },
            false => How::AllButOwn { members: self.members, parts },
        }
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
    pub(super) fn gather(&self, bits: u128) -> Vec<NetworkTime> {
        let mut parts: Vec<Part> = self.0.iter().enumerate().flat_map(|(i, share)| share.parts(i)).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.effective_rate()));
        let mut networks: Vec<NetworkTime> = self.0.iter().map(Share::gather_steps).collect();
        let mut divided = 1u64;
        for part in &parts {
            networks[part.network].terms.push(part.how(divided).at(bits, part.rate));
            divided = divided.saturating_mul(part.members);
        }
        networks
    }

    /// The time of an all-to-all in which each device holds `bits`: one exchange a network, of all that a device holds.
    pub(super) fn exchange(&self, bits: u128) -> Vec<NetworkTime> {
        self.0.iter().map(|share| share.exchange(bits)).collect()
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

    /// The hops from end to end, or the steps, of an all-gather, with what each takes at least; nothing is moved yet.
    fn gather_steps(&self) -> NetworkTime {
        let (kind, steps, step_time) = match self.fabric {
            Fabric::Flat { latency, .. } => ("flat network", 1, *latency),
            Fabric::Torus { hop_latency, .. } => ("torus", self.hops(), *hop_latency),
            Fabric::Switched { alpha, .. } => {
                ("switches", u64::from(self.inside > 1) + u64::from(self.inside < self.members), *alpha)
            }
        };
        NetworkTime { kind, terms: Vec::new(), at_once: false, steps, step_time }
    }

    fn hops(&self) -> u64 {
        self.torus.iter().map(|axis| if axis.ring { axis.size.div_ceil(2) } else { axis.size - 1 }).sum()
    }

    /// An all-to-all; behind switches, with a message to each member of the group (DeepSpeed's `p C1`).
    fn exchange(&self, bits: u128) -> NetworkTime {
        let steps = self.gather_steps();
        match self.fabric {
            Fabric::Flat { bandwidth, .. } => {
                let how = How::AllButOwn { members: self.members, parts: 1 };
                NetworkTime { terms: vec![how.at(bits, *bandwidth)], ..steps }
            }
            // Every part of the data crosses every axis, the n parts in different orders. With K devices on an axis, the
            // busiest link of a ring carries K/8 of what a device holds, that of a line floor(K/2) ceil(K/2) / K.
            Fabric::Torus { link_bandwidth, .. } => {
                let axes = self.torus.len() as u64;
                let on_axis = |axis: &TorusAxis| match axis.ring {
                    true => How::ExchangeOnRing { members: axis.size, axes }.at(bits, *link_bandwidth),
                    false => How::ExchangeOnLine { members: axis.size, axes }.at(bits, *link_bandwidth),
                };
                NetworkTime { terms: self.torus.iter().map(on_axis).collect(), ..steps }
            }
            // What stays in the node and what leaves it travel at the same time.
            Fabric::Switched { node_bandwidth, nic_bandwidth, .. } => {
                let sent = |others: u64, rate: u64| How::For { others, members: self.members }.at(bits, rate);
                let terms =
                    vec![sent(self.inside - 1, *node_bandwidth), sent(self.members - self.inside, *nic_bandwidth)];
                NetworkTime { terms, at_once: true, steps: self.members, ..steps }
            }
        }
    }
}
