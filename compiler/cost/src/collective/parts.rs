//! The load of an exchange, by following each part of a block from device to device: for blocks
//! whose borders do not divide each other, and to test the faster way of `exchange`.

use std::collections::{BTreeMap, BTreeSet};

use shard_ir::tensor::MAX_RANK;
use shard_ir::{AxisId, Layout, Mesh, never};

use super::exchange::{ExchangeLoad, Fraction, WireOf, wires_of};
use crate::hardware::{Topology, WireKind};

/// How many parts are followed at most. In an exchange of more parts each link is taken to carry as
/// much as if all that a device holds went the longest way.
const MAX_PARTS: u64 = 1 << 16;

/// A stretch of one dim between two neighbouring borders of blocks, before or after the exchange.
struct Segment {
    length: u64,
    /// The coordinate, along each axis that splits the dim before, of the devices that have it.
    before: Vec<(AxisId, u64)>,
    /// The same after the exchange.
    after: Vec<(AxisId, u64)>,
}

/// A wire of a mesh axis that is split by dims which change.
struct AxisWire {
    wire: WireOf,
    axis: AxisId,
    /// How far apart neighbours along the wire are in the coordinate along the axis.
    stride: u64,
}

/// The load on each network.
pub(super) fn followed(
    topology: &Topology<'_>,
    mesh: &Mesh,
    from: Layout,
    to: Layout,
) -> Vec<ExchangeLoad> {
    let dims: Vec<Vec<Segment>> = (0..MAX_RANK)
        .filter(|d| from.axes_of(*d) != to.axes_of(*d))
        .map(|d| segments(mesh, from, to, d))
        .collect();
    let wires = wires_under(topology, mesh, &dims);
    let networks = 0..topology.fabrics.len();
    let count = dims.iter().try_fold(1u64, |n, d| n.checked_mul(d.len() as u64));
    if count.is_none_or(|n| n > MAX_PARTS) {
        return networks.map(|n| at_most(&wires, n)).collect();
    }
    let mut found = Followed { wires: &wires, ..Followed::default() };
    let (mut before, mut after) = (vec![0; mesh.axes().len()], vec![0; mesh.axes().len()]);
    found.each(&dims, 1, &mut before, &mut after);
    networks.map(|n| found.load(n)).collect()
}

/// The wires of the axes that split these dims before the exchange, network by network.
fn wires_under(topology: &Topology<'_>, mesh: &Mesh, dims: &[Vec<Segment>]) -> Vec<AxisWire> {
    let mut wires: Vec<AxisWire> = Vec::new();
    for axis in mesh
        .axis_ids()
        .filter(|a| dims.iter().flatten().any(|s| s.before.iter().any(|(b, _)| b == a)))
    {
        let mut stride = mesh.size(axis);
        for wire in wires_of(topology, axis) {
            stride /= wire.size;
            wires.push(AxisWire { wire, axis, stride });
        }
    }
    wires.sort_by_key(|own| own.wire.network);
    wires
}

/// The segments of a dim, whose length is counted in parts of one over the product of the numbers
/// of blocks before and after.
fn segments(mesh: &Mesh, from: Layout, to: Layout, dim: usize) -> Vec<Segment> {
    let (old, new) = (from.axes_of(dim), to.axes_of(dim));
    let (blocks, others) = (mesh.group_size(old.iter()), mesh.group_size(new.iter()));
    // In units of which a block before has `others` and a block after has `blocks`.
    let mut borders: Vec<u64> =
        (0..=blocks).map(|i| i * others).chain((0..=others).map(|i| i * blocks)).collect();
    borders.sort_unstable();
    borders.dedup();
    let place = |axes: shard_ir::AxisList, mut block: u64| -> Vec<(AxisId, u64)> {
        let mut places = Vec::new();
        for axis in axes.iter().rev() {
            places.push((axis, block % mesh.size(axis)));
            block /= mesh.size(axis);
        }
        places
    };
    let segment = |w: &[u64]| Segment {
        length: w[1] - w[0],
        before: place(old, w[0] / others),
        after: place(new, w[0] / blocks),
    };
    borders.windows(2).map(segment).collect()
}

/// A load of a network that no exchange over these wires exceeds.
fn at_most(wires: &[AxisWire], network: usize) -> ExchangeLoad {
    let own: Vec<&WireOf> =
        wires.iter().map(|own| &own.wire).filter(|wire| wire.network == network).collect();
    let all = Fraction { num: 1, den: 1 };
    let longest = |wire: &&WireOf| match wire.kind {
        WireKind::Ring => wire.size / 2,
        WireKind::Line => wire.size - 1,
        WireKind::Flat | WireKind::Inside | WireKind::Outside => 1,
    };
    let has = |kind: WireKind| own.iter().any(|wire| wire.kind == kind);
    let hops: u64 = own.iter().map(&longest).sum();
    match own.first().map(|wire| wire.kind) {
        None => ExchangeLoad::NONE,
        Some(WireKind::Line | WireKind::Ring) => {
            let most = own.iter().map(longest).max();
            let most = most.unwrap_or_else(|| never!("a network without wires", 1));
            ExchangeLoad { most: Fraction { num: most, den: 1 }, steps: hops, ..ExchangeLoad::NONE }
        }
        Some(WireKind::Flat) => ExchangeLoad { most: all, steps: 1, ..ExchangeLoad::NONE },
        Some(WireKind::Inside | WireKind::Outside) => ExchangeLoad {
            most: if has(WireKind::Outside) { all } else { Fraction::NONE },
            inside: if has(WireKind::Inside) { all } else { Fraction::NONE },
            steps: own.iter().map(|w| w.size).product(),
        },
    }
}

/// The loads of the parts that have been followed so far.
#[derive(Default)]
struct Followed<'a> {
    wires: &'a [AxisWire],
    /// The size of all parts together.
    total: u64,
    /// For each link, by wire, place and direction, twice what crosses it.
    links: BTreeMap<(usize, Vec<u64>, bool), u64>,
    /// What a device sends over a network out of its node; if there are no nodes, all that it
    /// sends.
    out: BTreeMap<(usize, Vec<u64>), u64>,
    /// What a device sends over a network inside its node.
    inside: BTreeMap<(usize, Vec<u64>), u64>,
    /// The devices that get parts from a device over a network, perhaps itself among them.
    partners: BTreeMap<(usize, Vec<u64>), BTreeSet<Vec<u64>>>,
    /// For each network the hops of the longest way.
    hops: BTreeMap<usize, u64>,
}

impl Followed<'_> {
    /// Follows the parts of every segment of these dims; those of the other dims are given by the
    /// coordinates `before` and `after`, and `size` is the product of their lengths.
    fn each(&mut self, dims: &[Vec<Segment>], size: u64, before: &mut [u64], after: &mut [u64]) {
        let [dim, rest @ ..] = dims else {
            self.total += size;
            return self.follow(size, before, after);
        };
        for segment in dim {
            segment.before.iter().for_each(|(a, place)| before[a.index()] = *place);
            segment.after.iter().for_each(|(a, place)| after[a.index()] = *place);
            self.each(rest, size * segment.length, before, after);
        }
    }

    /// Follows one part from the device that has it before to the one that has it after.
    fn follow(&mut self, size: u64, before: &[u64], after: &[u64]) {
        let along = |coordinates: &[u64], own: &AxisWire| {
            coordinates[own.axis.index()] / own.stride % own.wire.size
        };
        let mut at: Vec<u64> = self.wires.iter().map(|w| along(before, w)).collect();
        let goal: Vec<u64> = self.wires.iter().map(|w| along(after, w)).collect();
        let mut next = 0;
        while next < self.wires.len() {
            let network = self.wires[next].wire.network;
            let end =
                next + self.wires[next..].iter().take_while(|w| w.wire.network == network).count();
            let start = at.clone();
            let mut hops = 0;
            for i in next..end {
                if self.wires[i].wire.kind.has_links() {
                    hops += self.hop(i, size, &mut at, goal[i]);
                }
                at[i] = goal[i];
            }
            if self.wires[next].wire.kind.has_links() {
                let longest = self.hops.entry(network).or_default();
                *longest = hops.max(*longest);
            } else {
                let key = (network, start);
                let leaves = |kinds: &[WireKind]| {
                    (next..end)
                        .any(|i| kinds.contains(&self.wires[i].wire.kind) && key.1[i] != at[i])
                };
                if leaves(&[WireKind::Flat, WireKind::Outside]) {
                    *self.out.entry(key.clone()).or_default() += size;
                } else if leaves(&[WireKind::Inside]) {
                    *self.inside.entry(key.clone()).or_default() += size;
                }
                self.partners.entry(key).or_default().insert(at.clone());
            }
            next = end;
        }
    }

    /// The load on a network.
    fn load(&self, network: usize) -> ExchangeLoad {
        let on_it = |own: &&AxisWire| own.wire.network == network;
        let devices: u64 = self.wires.iter().map(|own| own.wire.size).product();
        let part = |n: u64, of: u64| {
            Fraction::new(
                u128::from(n) * u128::from(devices),
                u128::from(of) * u128::from(self.total),
            )
        };
        // The loads of links are doubled.
        let on_network =
            |((at, _, _), _): &(&(usize, Vec<u64>, bool), &u64)| on_it(&&self.wires[*at]);
        if let Some((_, halves)) = self.links.iter().filter(on_network).max_by_key(|(_, n)| **n) {
            let steps = self.hops.get(&network).copied();
            let steps = steps.unwrap_or_else(|| never!("links that no part takes", 0));
            return ExchangeLoad { most: part(*halves, 2), steps, ..ExchangeLoad::NONE };
        }
        let most = |of: &BTreeMap<(usize, Vec<u64>), u64>| {
            let sent = of.iter().filter(|((at, _), _)| *at == network).map(|(_, n)| *n);
            part(sent.max().unwrap_or(0), 1)
        };
        let (out, inside) = (most(&self.out), most(&self.inside));
        if out == Fraction::NONE && inside == Fraction::NONE {
            return ExchangeLoad::NONE;
        }
        let partners = self.partners.iter().filter(|((at, _), _)| *at == network);
        let partners = partners.map(|(_, to)| to.len() as u64).max();
        let is_flat = self.wires.iter().filter(on_it).any(|own| own.wire.kind == WireKind::Flat);
        let steps =
            if is_flat { 1 } else { partners.unwrap_or_else(|| never!("parts sent to nobody", 0)) };
        ExchangeLoad { most: out, inside, steps }
    }

    /// Takes a part along wire `i` of a torus, the shorter way; if both ways round a ring are
    /// equally long, half of it each way. Gives the hops.
    fn hop(&mut self, i: usize, size: u64, at: &mut [u64], goal: u64) -> u64 {
        let WireOf { kind, size: places, .. } = self.wires[i].wire;
        let here = at[i];
        let up = (goal + places - here) % places;
        let ways: &[(bool, u64)] = match kind {
            WireKind::Ring if 2 * up == places => &[(true, 1), (false, 1)],
            WireKind::Ring if 2 * up < places => &[(true, 2)],
            WireKind::Ring => &[(false, 2)],
            WireKind::Line | WireKind::Flat | WireKind::Inside | WireKind::Outside
                if goal > here =>
            {
                &[(true, 2)]
            }
            WireKind::Line | WireKind::Flat | WireKind::Inside | WireKind::Outside => &[(false, 2)],
        };
        let mut hops = 0;
        for (upwards, halves) in ways {
            hops = if *upwards { up } else { (places - up) % places };
            at[i] = here;
            for _ in 0..hops {
                *self.links.entry((i, at.to_vec(), *upwards)).or_default() += halves * size;
                at[i] = if *upwards { at[i] + 1 } else { at[i] + places - 1 } % places;
            }
        }
        hops
    }
}
