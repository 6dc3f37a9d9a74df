//! [`Wire`]: a mesh axis, or a factor of one, and how its devices are connected.

/// A mesh axis, or a factor of one: an axis of a torus, or the part that lies inside nodes or
/// between nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wire {
    pub(crate) kind: WireKind,
    /// Devices along it.
    pub(crate) size: u64,
}

/// How the devices along a wire are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WireKind {
    /// Every device reaches every other one directly.
    Flat,
    /// Links from neighbour to neighbour.
    Line,
    /// Links from neighbour to neighbour; the ends are neighbours too.
    Ring,
    /// The devices are in one node.
    Inside,
    /// The devices are in different nodes.
    Outside,
}

impl WireKind {
    /// Whether it has links from neighbour to neighbour, which are followed one by one.
    pub(crate) fn has_links(self) -> bool {
        match self {
            WireKind::Line | WireKind::Ring => true,
            WireKind::Flat | WireKind::Inside | WireKind::Outside => false,
        }
    }
}

impl Wire {
    /// The most hops between two devices; 0 if there are no links.
    pub(crate) fn longest(&self) -> u64 {
        match self.kind {
            WireKind::Ring => self.size / 2,
            WireKind::Line => self.size - 1,
            WireKind::Flat | WireKind::Inside | WireKind::Outside => 0,
        }
    }
}

/// How many of the devices along some wires share a node.
pub(crate) fn inside(wires: &[Wire]) -> u64 {
    wires.iter().filter(|wire| wire.kind == WireKind::Inside).map(|wire| wire.size).product()
}
