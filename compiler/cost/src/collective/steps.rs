//! The times of all-gathers (and so of reduce-scatters and all-reduces) and of all-to-alls, network
//! by network.

use shard_ir::{AxisList, Mesh};

use super::terms::{How, NetworkTime};
use crate::hardware::{Fabric, Hardware, Wire};
use crate::network::{Gathered, Moved, RunsOver};

/// The networks that a collective runs over, each with its share of the group.
pub(super) struct Networks<'h>(Vec<Share<'h>>);

/// One network, and the part of a group that runs over it.
struct Share<'h> {
    fabric: &'h Fabric,
    /// Devices of the group that this network connects.
    members: u64,
    /// The wires that connect them.
    wires: Vec<Wire>,
}

/// A part of an all-gather, which runs over one network.
struct GatherPart {
    /// The network, as an index into [`Networks`].
    network: usize,
    gathered: Gathered,
}

impl GatherPart {
    /// Bytes per second at which the data that a device lacks arrives, times 2^16.
    fn effective_rate(&self) -> u128 {
        let rate = u128::from(self.gathered.rate) << 16;
        if self.gathered.counts_own {
            rate * u128::from(self.gathered.members - 1) / u128::from(self.gathered.members)
        } else {
            rate
        }
    }

    /// The formula of this part, after which each device holds `D / parts`.
    fn how(&self, parts: u64) -> How {
        if self.gathered.counts_own {
            How::Rings { parts }
        } else {
            How::AllButOwn { members: self.gathered.members, parts }
        }
    }
}

impl<'h> Networks<'h> {
    pub(super) fn of(hw: &'h Hardware, mesh: &Mesh, axes: &AxisList) -> Networks<'h> {
        let topology = hw.network.topology(mesh);
        let share = |fabric| Share { fabric, members: 1, wires: Vec::new() };
        let mut shares: Vec<Share<'h>> = topology.fabrics.iter().copied().map(share).collect();
        for axis in axes.iter() {
            let RunsOver { network, wires } = &topology.axes[axis.index()];
            shares[*network].members *= mesh.size(axis);
            shares[*network].wires.extend(wires);
        }
        shares.retain(|share| share.members > 1);
        Networks(shares)
    }

    /// The time of an all-gather that gives each device `bits`, network by network. A
    /// reduce-scatter of `bits` is the same backwards.
    ///
    /// The slowest part runs first, while a device has least; terms are made from the last part on.
    pub(super) fn gather(&self, bits: u128) -> Vec<NetworkTime> {
        let mut parts: Vec<GatherPart> =
            self.0.iter().enumerate().flat_map(|(i, share)| share.parts(i)).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.effective_rate()));
        let mut networks: Vec<NetworkTime> = self.0.iter().map(Share::gather_steps).collect();
        let mut divided = 1u64;
        for part in &parts {
            networks[part.network].terms.push(part.how(divided).at(bits, part.gathered.rate));
            divided = divided.saturating_mul(part.gathered.members);
        }
        networks
    }

    /// The time of an all-to-all in which each device holds `bits`: on each network, one all-to-all
    /// of all that a device holds.
    pub(super) fn exchange(&self, bits: u128) -> Vec<NetworkTime> {
        self.0.iter().map(|share| share.exchange(bits)).collect()
    }
}

impl Share<'_> {
    /// The parts of an all-gather over this network.
    fn parts(&self, network: usize) -> Vec<GatherPart> {
        let parts = self.fabric.kind().gather(self.members, &self.wires).into_iter();
        parts
            .filter(|part| part.members > 1)
            .map(|gathered| GatherPart { network, gathered })
            .collect()
    }

    /// The time of an all-gather on this network without terms: its hops or steps alone.
    fn gather_steps(&self) -> NetworkTime {
        let kind = self.fabric.kind();
        let steps = kind.gather_steps(self.members, &self.wires);
        NetworkTime {
            kind: kind.name(),
            terms: Vec::new(),
            at_once: false,
            steps,
            step_time: kind.latency(),
        }
    }

    /// The time of an all-to-all on this network.
    fn exchange(&self, bits: u128) -> NetworkTime {
        let kind = self.fabric.kind();
        let Moved { terms, at_once, steps } = kind.all_to_all(self.members, &self.wires, bits);
        NetworkTime { kind: kind.name(), terms, at_once, steps, step_time: kind.latency() }
    }
}
