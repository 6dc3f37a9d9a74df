//! [`Switched`]: nodes of devices behind one switch.

use shard_ir::Picoseconds;

use super::kind::{Figure, Gathered, Kind, Moved, SlicesOf, part};
use super::{Slice, Wire, WireKind, inside};
use crate::collective::{ExchangeLoad, How, PermuteLoad, Term};
use crate::hardware::{CHIPS, SliceProblem, Table, latency, rate};

/// Devices behind one switch form a node; each has an adapter to the devices of other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switched {
    /// Devices in a node.
    pub node: u64,
    /// Bytes per second that a device sends inside its node.
    pub node_bandwidth: u64,
    /// Bytes per second that a device sends to other nodes.
    pub nic_bandwidth: u64,
    /// The time that a step takes at least.
    pub alpha: Picoseconds,
}

impl Kind for Switched {
    fn name(&self) -> &'static str {
        "switches"
    }

    fn read(table: &mut Table<'_, '_>, efficiency: f64) -> Option<Switched> {
        let node = table.need_number("node", CHIPS, "add `node = 8`: devices in a node");
        let inside = rate(
            table,
            "node_bandwidth",
            efficiency,
            "add `node_bandwidth = 450e9`: one way, a device",
        );
        let nic = rate(
            table,
            "nic_bandwidth",
            efficiency,
            "add `nic_bandwidth = 50e9`: one way, a device",
        );
        let alpha = latency(table, "alpha");
        Some(Switched { node: node? as u64, node_bandwidth: inside?, nic_bandwidth: nic?, alpha })
    }

    fn figures(&self) -> Vec<(&'static str, Figure)> {
        vec![
            ("node", Figure::Count(self.node)),
            ("node_bandwidth", Figure::Count(self.node_bandwidth)),
            ("nic_bandwidth", Figure::Count(self.nic_bandwidth)),
            ("alpha_s", Figure::Seconds(self.alpha.seconds())),
        ]
    }

    fn rates(&mut self) -> Vec<&mut u64> {
        vec![&mut self.node_bandwidth, &mut self.nic_bandwidth]
    }

    fn latency(&self) -> Picoseconds {
        self.alpha
    }

    fn wires(&self, axes: &[Vec<u64>]) -> Vec<Vec<Wire>> {
        let sizes: Vec<u64> = axes.iter().map(|sizes| sizes.iter().product()).collect();
        let wires = |(size, inside): (&u64, u64)| {
            vec![
                Wire { kind: WireKind::Outside, size: size / inside },
                Wire { kind: WireKind::Inside, size: inside },
            ]
        };
        sizes.iter().zip(inside_nodes(&sizes, self.node)).map(wires).collect()
    }

    fn is_uniform(&self) -> bool {
        false
    }

    fn has_links(&self) -> bool {
        false
    }

    fn slice_problem(&self, slice: &Slice) -> Option<SliceProblem> {
        let sizes: Vec<u64> = slice.0.iter().map(|axis| axis.size).collect();
        let mut left = self.node;
        for (axis, inside) in slice.0.iter().zip(inside_nodes(&sizes, self.node)).rev() {
            if inside < left.min(axis.size) {
                return Some(SliceProblem::Straddles {
                    axis: axis.name.clone(),
                    node: self.node,
                    fits: left,
                    inside,
                });
            }
            left = if inside == axis.size { left / axis.size.max(1) } else { 1 };
        }
        None
    }

    fn gather(&self, members: u64, wires: &[Wire]) -> Vec<Gathered> {
        let inside = inside(wires);
        vec![
            Gathered { members: inside, rate: self.node_bandwidth, counts_own: false },
            Gathered { members: members / inside, rate: self.nic_bandwidth, counts_own: false },
        ]
    }

    fn gather_steps(&self, members: u64, wires: &[Wire]) -> u64 {
        let inside = inside(wires);
        u64::from(inside > 1) + u64::from(inside < members)
    }

    /// Each device sends a message to each member of the group (DeepSpeed's `p C1`). Data that
    /// stays in the node and data that leaves it travel at the same time.
    fn all_to_all(&self, members: u64, wires: &[Wire], bits: u128) -> Moved {
        let inside = inside(wires);
        let sent = |others: u64, rate: u64| How::For { others, members }.at(bits, rate);
        let terms =
            vec![sent(inside - 1, self.node_bandwidth), sent(members - inside, self.nic_bandwidth)];
        Moved { terms, at_once: true, steps: members }
    }

    fn permute_rate(&self, load: &PermuteLoad) -> u64 {
        if load.leaves_node { self.nic_bandwidth } else { self.node_bandwidth }
    }

    fn exchange(&self, load: &ExchangeLoad, bits: u128) -> Vec<Term> {
        vec![
            part(load.inside, bits, self.node_bandwidth),
            part(load.most, bits, self.nic_bandwidth),
        ]
    }

    fn fastest(&self) -> u64 {
        self.node_bandwidth.max(self.nic_bandwidth)
    }

    /// The last axis as large as fits into a node, since the bandwidth is largest there.
    fn mesh(&self, chips: u64, last: &[u64], problem: &SlicesOf<'_>) -> Option<Vec<u64>> {
        let within = last.iter().rev().filter(|y| **y <= self.node);
        within.map(|y| vec![chips / y, *y]).find(|shape| problem(shape) == Some(None))
    }
}

/// How many devices along each mesh axis, major to minor, share a node.
///
/// Nodes are filled from the last axis on. An axis lies inside nodes if its groups fit into a node
/// together with the axes behind it. The first axis for which they do not is cut into the fewest
/// equal parts that do; the axes before it are between nodes. So every node has equally many
/// devices of the mesh, and perhaps others that are not in the mesh.
pub(crate) fn inside_nodes(sizes: &[u64], node: u64) -> Vec<u64> {
    let mut left = node;
    let mut inside: Vec<u64> = sizes
        .iter()
        .rev()
        .map(|size| {
            let part =
                (1..=left.min(*size)).rev().find(|part| size.is_multiple_of(*part)).unwrap_or(1);
            left = if part == *size { left / size.max(&1) } else { 1 };
            part
        })
        .collect();
    inside.reverse();
    inside
}
