//! [`Wire`]: what a mesh axis, or a part of one, runs over.

/// A mesh axis, or the part of one that is one axis of a torus, or lies inside nodes or between
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wire {
    pub(crate) kind: WireKind,
    /// Devices along it.
    pub(crate) size: u64,
}

/// What a wire is to those who follow what goes over it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireKind {
    /// Every device reaches every other at once.
    Flat,
    /// Links from neighbour to neighbour.
    Line,
    /// The same, and the ends are neighbours.
    Ring,
    /// Devices of one node.
    Inside,
    /// Nodes.
    Outside,
}

impl Wire {
    /// Hops from end to end, the shortest way.
    pub(crate) fn longest(&self) -> u64 {
        match self.kind {
            WireKind::Ring => self.size / 2,
            WireKind::Line => self.size - 1,
            WireKind::Flat | WireKind::Inside | WireKind::Outside => 0,
        }
    }
}

/// The devices that share a node, of those along some wires.
pub(crate) fn inside(wires: &[Wire]) -> u64 {
    wires.iter().filter(|wire| wire.kind == WireKind::Inside).map(|wire| wire.size).product()
}
