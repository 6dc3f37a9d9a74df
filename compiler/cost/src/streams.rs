//! [`Streams`]: the resources of a chip that can be busy at the same time.

use shard_ir::{AxisId, AxisSet, Mesh, never};

use crate::hardware::Hardware;
use crate::network::{RunsOver, WireKind};

/// The resources of a chip that can be busy at the same time, one stream each: its cores, the link
/// to its host, and those of its networks.
///
/// * A torus has a stream for each direction of each axis.
/// * A switched network has one for the traffic inside nodes and one for that between nodes.
/// * A flat network is one stream. A mesh axis with a network of its own has streams of its own.
///
/// A transfer keeps all streams of its mesh axes busy for as long as it takes, even if it uses one
/// after the other, so that no link ever carries more than it can.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Streams {
    names: Vec<String>,
    /// For each mesh axis its streams.
    of_axis: Vec<Vec<usize>>,
}

/// How many of some sets can be chosen at most so that no two of them, and none and `taken`, have
/// an element in common.
fn apart(sets: &[&[usize]], taken: &mut Vec<usize>) -> u32 {
    let Some((first, rest)) = sets.split_first() else { return 0 };
    let without = apart(rest, taken);
    if first.iter().any(|stream| taken.contains(stream)) {
        return without;
    }
    let before = taken.len();
    taken.extend_from_slice(first);
    let with = 1 + apart(rest, taken);
    taken.truncate(before);
    with.max(without)
}

impl Streams {
    /// The cores of the chip and its memory.
    pub const COMPUTE: usize = 0;
    /// The link to the host.
    pub const HOST: usize = 1;

    /// The streams of a chip in a mesh.
    pub fn of(hardware: &Hardware, mesh: &Mesh) -> Streams {
        let mut found = Streams {
            names: vec!["compute".to_string(), "host link".to_string()],
            of_axis: Vec::with_capacity(mesh.axes().len()),
        };
        let topology = hardware.network.topology(mesh);
        for (axis, RunsOver { network, wires }) in mesh.axes().iter().zip(&topology.axes) {
            let torus = wires.iter().filter(|wire| wire.kind.has_links()).count();
            let mut streams = Vec::new();
            for (at, wire) in wires.iter().enumerate().filter(|(_, wire)| wire.size > 1) {
                let own = if *network == 0 { String::new() } else { format!("{}: ", axis.name) };
                streams.extend(match wire.kind {
                    WireKind::Flat => found.named(&[format!("{own}network")]),
                    WireKind::Inside => found.named(&[format!("{own}inside nodes")]),
                    WireKind::Outside => found.named(&[format!("{own}between nodes")]),
                    WireKind::Ring | WireKind::Line => {
                        let link = if torus > 1 {
                            format!("{}.{at}", axis.name)
                        } else {
                            axis.name.clone()
                        };
                        found.named(&[format!("{link} up"), format!("{link} down")])
                    }
                });
            }
            found.of_axis.push(streams);
        }
        found
    }

    /// The streams of these names, which are added if the first of them is not there.
    fn named(&mut self, names: &[String]) -> Vec<usize> {
        let Some(first) = names.first() else { return Vec::new() };
        let at = self.names.iter().position(|name| name == first).unwrap_or_else(|| {
            self.names.extend(names.iter().cloned());
            self.names.len() - names.len()
        });
        (at..at + names.len()).collect()
    }

    /// The names of the streams in reports, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The streams that a transfer over some mesh axes keeps busy, in order.
    pub fn of_axes(&self, axes: AxisSet) -> Vec<usize> {
        let of = |axis: AxisId| match self.of_axis.get(axis.index()) {
            Some(streams) => streams.clone(),
            None => never!("a transfer over an axis that the mesh has not", Vec::new()),
        };
        let mut streams: Vec<usize> = axes.iter().flat_map(of).collect();
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The streams of the networks.
    pub fn of_networks(&self) -> std::ops::Range<usize> {
        Streams::HOST + 1..self.names.len()
    }

    /// How many transfers between chips can go on at the same time at most, but at least 1: each
    /// runs over some mesh axis, and two that go on at once have no stream in common.
    pub fn transfers_at_once(&self) -> u32 {
        let axes: Vec<&[usize]> =
            self.of_axis.iter().map(Vec::as_slice).filter(|streams| !streams.is_empty()).collect();
        apart(&axes, &mut Vec::new()).max(1)
    }
}
