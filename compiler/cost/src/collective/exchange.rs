//! The time of an exchange: each device sends parts of its block to the devices whose new blocks
//! have them.
//!
//! If the sizes of a dim's blocks before and after divide each other, the place of an element along
//! the dim is a list of independent digits, each of which belongs to at most one coordinate before
//! and one after. What crosses a link is then a product over digits (`digits`). Else (an axis of 2
//! in place of one of 3) parts are followed one by one (`parts`).

use shard_ir::{AxisId, Layout, Mesh, gcd, kept_by_each};

use super::digits::Digits;
use super::parts::followed;
use super::terms::NetworkTime;
use super::times::{MoveTimes, NetworkLoad};
use crate::hardware::{Fabric, Topology, Wire, WireKind};
use crate::network::RunsOver;

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

    pub(super) fn at_most(self, other: Fraction) -> bool {
        u128::from(self.num) * u128::from(other.den) <= u128::from(other.num) * u128::from(self.den)
    }

    pub(super) fn larger(self, other: Fraction) -> Fraction {
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
    let RunsOver { network, wires } = &topology.axes[axis.index()];
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
