//! The time of a collective-permute: whole blocks from device to device.

use shard_ir::mesh::MAX_AXES;
use shard_ir::{AxisId, AxisSet, Layout, Mesh, Place};

use super::terms::{How, NetworkTime};
use super::times::{MoveTimes, NetworkLoad};
use crate::hardware::{Fabric, Topology, Wire, WireKind};
use crate::network::{RunsOver, inside};

/// Up to how many blocks times hops a permute is followed link by link. One of more is taken to
/// load links as if it shifted every block the longest way along every axis.
const MAX_HOPS: u64 = 1 << 22;

/// The load that a permute puts on one network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PermuteLoad {
    /// How many blocks cross the busiest link of a torus; on other networks 1 if any block travels.
    blocks: u64,
    /// Hops of the longest way.
    hops: u64,
    /// Whether a block leaves its node.
    pub(crate) leaves_node: bool,
}

/// The times of permutes on one mesh.
pub type PermuteTimes<'h> = MoveTimes<'h, PermuteLoad>;

/// What a move does to each affected axis: a code of its place before and of its place after, 0 if
/// it splits no dim. Dims are numbered in the order in which they are first met, so that moves that
/// differ only in the names of dims have the same relation. Other axes have zeros.
pub(super) type Relation = [(u8, u8); MAX_AXES];

/// The axes along which blocks may travel: those that split, before or after, a dim whose axes
/// change.
pub(super) fn affected(mesh: &Mesh, from: Layout, to: Layout) -> AxisSet {
    // A bit for each dim that an axis splits, before or after.
    let dims = |axis: AxisId| {
        [from, to].into_iter().fold(0u64, |dims, layout| match layout.place(axis) {
            Place::Split { dim, .. } => dims | 1 << dim,
            Place::Partial(_) | Place::PartialSoftmax | Place::Replicated => dims,
        })
    };
    let moved = mesh.axis_ids().filter(|axis| from.place(*axis) != to.place(*axis));
    let changed = moved.fold(0, |changed, axis| changed | dims(axis));
    mesh.axis_ids().filter(|axis| dims(*axis) & changed != 0).collect()
}

/// The [`Relation`] of a move that affects these axes.
pub(super) fn relation(axes: AxisSet, from: Layout, to: Layout) -> Relation {
    let (mut dims, mut count) = ([0; 2 * MAX_AXES], 0);
    let mut code = |place: Place| match place {
        Place::Split { dim, position } => {
            let number = dims[..count].iter().position(|d| *d == dim).unwrap_or_else(|| {
                dims[count] = dim;
                count += 1;
                count - 1
            });
            (number * MAX_AXES + position + 1) as u8
        }
        Place::Partial(_) | Place::PartialSoftmax | Place::Replicated => 0,
    };
    let mut relation = [(0, 0); MAX_AXES];
    for axis in axes.iter() {
        relation[axis.index()] = (code(from.place(axis)), code(to.place(axis)));
    }
    relation
}

impl NetworkLoad for PermuteLoad {
    fn on_each(
        topology: &Topology<'_>,
        mesh: &Mesh,
        from: Layout,
        to: Layout,
        ids: &[AxisId],
    ) -> Vec<PermuteLoad> {
        let mut loads = vec![PermuteLoad::default(); topology.fabrics.len()];
        let is_flat =
            |axis: &RunsOver| axis.network == 0 && topology.fabrics[0].kind().is_uniform();
        if ids.iter().all(|a| is_flat(&topology.axes[a.index()])) {
            loads[0] = PermuteLoad { blocks: 1, hops: 1, leaves_node: false };
            return loads;
        }
        let grid = Grid { sizes: ids.iter().map(|a| mesh.size(*a)).collect() };
        let reach: u64 = ids.iter().map(|a| longest(&topology.axes[a.index()].wires)).sum();
        if grid.devices().saturating_mul(reach) > MAX_HOPS {
            for id in ids {
                let RunsOver { network, wires } = &topology.axes[id.index()];
                let load = &mut loads[*network];
                load.blocks = load.blocks.max(longest(wires)).max(1);
                let has_links = topology.fabrics[*network].kind().has_links();
                load.hops = if has_links { load.hops + longest(wires) } else { 1 };
                load.leaves_node |=
                    wires.iter().any(|wire| wire.kind == WireKind::Outside && wire.size > 1);
            }
            return loads;
        }
        let messages = messages(mesh, from, to, ids, &grid);
        for (network, load) in loads.iter_mut().enumerate() {
            let on: Vec<(usize, &[Wire])> = ids
                .iter()
                .enumerate()
                .map(|(i, a)| (i, &topology.axes[a.index()]))
                .filter(|(_, axis)| axis.network == network)
                .map(|(i, axis)| (i, axis.wires.as_slice()))
                .collect();
            if topology.fabrics[network].kind().has_links() {
                *load = link_load(&grid, &on, &messages);
                continue;
            }
            for (source, target) in &messages {
                for (axis, wires) in &on {
                    let (a, b) = (grid.coordinate(*source, *axis), grid.coordinate(*target, *axis));
                    if a != b {
                        (load.blocks, load.hops) = (1, 1);
                        load.leaves_node |= node_of(wires, a) != node_of(wires, b);
                    }
                }
            }
        }
        loads
    }

    fn under(&self, fabric: &Fabric, bits: u128) -> Option<NetworkTime> {
        let kind = fabric.kind();
        let terms = || vec![How::Blocks { blocks: self.blocks }.at(bits, kind.permute_rate(self))];
        (self.blocks > 0 || self.hops > 0).then(|| NetworkTime {
            kind: kind.name(),
            terms: terms(),
            at_once: false,
            steps: self.hops,
            step_time: kind.latency(),
        })
    }
}

/// The hops of the longest way along a mesh axis.
fn longest(wires: &[Wire]) -> u64 {
    wires.iter().map(Wire::longest).sum()
}

/// The node of a device by its coordinate along a mesh axis; 0 if there are no nodes.
fn node_of(wires: &[Wire], coordinate: u64) -> u64 {
    let has_nodes = wires.iter().any(|wire| wire.kind == WireKind::Outside);
    if has_nodes { coordinate / inside(wires) } else { 0 }
}

/// The devices that differ along the affected axes alone, numbered with the last axis fastest.
struct Grid {
    sizes: Vec<u64>,
}

impl Grid {
    fn devices(&self) -> u64 {
        self.sizes.iter().product()
    }

    fn stride(&self, axis: usize) -> u64 {
        self.sizes[axis + 1..].iter().product()
    }

    fn coordinate(&self, device: u64, axis: usize) -> u64 {
        device / self.stride(axis) % self.sizes[axis]
    }
}

/// The messages, as sender and receiver. If several devices hold a block, the first of them sends
/// it to the first that wants it, and so on, as in `run`. A device that has the block that it wants
/// sends and receives nothing.
fn messages(mesh: &Mesh, from: Layout, to: Layout, ids: &[AxisId], grid: &Grid) -> Vec<(u64, u64)> {
    let holders = |layout: Layout| -> Vec<u64> {
        (0..grid.devices()).map(|device| block(mesh, layout, ids, grid, device)).collect()
    };
    let (held, wanted) = (holders(from), holders(to));
    let sorted = |blocks: &[u64]| {
        let moving = (0..blocks.len()).filter(|d| held[*d] != wanted[*d]);
        let mut devices: Vec<(u64, u64)> = moving.map(|d| (blocks[d], d as u64)).collect();
        devices.sort_unstable();
        devices
    };
    sorted(&held)
        .into_iter()
        .zip(sorted(&wanted))
        .map(|((_, source), (_, target))| (source, target))
        .collect()
}

/// The number of the block that a device has in a layout.
fn block(mesh: &Mesh, layout: Layout, ids: &[AxisId], grid: &Grid, device: u64) -> u64 {
    let mut number = 0;
    for dim in 0..layout.split_rank() {
        for axis in layout.axes_of(dim).iter() {
            // All devices of the grid have the same coordinate along an axis that is not affected.
            let at = ids.iter().position(|a| *a == axis).map_or(0, |i| grid.coordinate(device, i));
            number = number * mesh.size(axis) + at;
        }
    }
    number
}

/// The load of a torus. Each block goes the shortest way along one axis after the other; if both
/// ways round a ring are equally long, upwards.
fn link_load(grid: &Grid, on: &[(usize, &[Wire])], messages: &[(u64, u64)]) -> PermuteLoad {
    // Torus axes, each with its stride in the numbering of devices.
    let mut axes: Vec<(Wire, u64)> = Vec::new();
    for (axis, wires) in on {
        let mut stride = grid.stride(*axis) * grid.sizes[*axis];
        for wire in *wires {
            stride /= wire.size;
            axes.push((*wire, stride));
        }
    }
    let devices = grid.devices() as usize;
    // For each axis and direction, how many blocks leave each device.
    let mut links = vec![0u64; devices * axes.len() * 2];
    let mut hops = 0;
    for (source, target) in messages {
        let (mut at, mut way) = (*source, 0);
        for (i, (axis, stride)) in axes.iter().enumerate() {
            let (here, there) = (at / stride % axis.size, target / stride % axis.size);
            let up = (there + axis.size - here) % axis.size;
            let upwards =
                if axis.kind == WireKind::Ring { up * 2 <= axis.size } else { there > here };
            let count = if upwards { up } else { axis.size - up } % axis.size;
            for _ in 0..count {
                links[(i * 2 + usize::from(upwards)) * devices + at as usize] += 1;
                let here = at / stride % axis.size;
                let next = if upwards { here + 1 } else { here + axis.size - 1 } % axis.size;
                at = at - here * stride + next * stride;
            }
            way += count;
        }
        hops = hops.max(way);
    }
    // There are no links if no axis of this network is affected.
    PermuteLoad { blocks: links.into_iter().max().unwrap_or(0), hops, leaves_node: false }
}

#[cfg(test)]
mod tests {
    use shard_ir::{AxisSet, Collective, Dtype, MeshShape};

    use super::*;
    use crate::Hardware;

    #[test]
    fn permutes_that_do_the_same_take_the_same_time() {
        for network in [
            "kind = \"torus\"\nlink_bandwidth = 7e9\nwraparound = \"full-axis-4\"",
            "kind = \"switched\"\nnode = 4\nnode_bandwidth = 7e9\nnic_bandwidth = 1e9",
        ] {
            let chip = "name = \"c\"\n[chip]\nflops = { bf16 = 1e12 }\nhbm_bytes = \
                1e9\nhbm_bandwidth = 1e12\n[network]\n";
            let hw = Hardware::parse(&format!("{chip}{network}")).expect("well formed");
            let mesh = Mesh::new([("x", 4), ("y", 2), ("z", 2)]).expect("a mesh");
            let shape = MeshShape { mesh: &mesh, sizes: &[16, 4, 16] };
            let mut shared = PermuteTimes::new(&hw, &mesh);
            for from in shape.layouts(AxisSet::EMPTY.with(AxisId(1)), AxisSet::EMPTY) {
                for (collective, to) in
                    Collective::all_from(shape, from, AxisSet::EMPTY, AxisSet::EMPTY)
                {
                    if matches!(collective, Collective::Permute { .. }) {
                        let once =
                            PermuteTimes::new(&hw, &mesh).time(from, to, 1 << 20, Dtype::Bf16);
                        assert_eq!(
                            shared.time(from, to, 1 << 20, Dtype::Bf16),
                            once,
                            "{from:?} to {to:?}"
                        );
                        assert!(
                            once >= crate::least_permute_time(&hw, &mesh, 1 << 20, Dtype::Bf16)
                        );
                    }
                }
            }
        }
    }
}
