//! The time of a collective-permute: whole blocks from device to device.

use shard_ir::{AxisId, AxisList, Layout, Mesh, Picoseconds};

use crate::hardware::{Fabric, Hardware, Topology, TorusAxis, Wires};
use crate::units::time_at_rate;

/// Blocks times hops that are followed link by link; a permute of more is taken to load links as one does that shifts every
/// block the longest way along every axis.
const MAX_HOPS: u64 = 1 << 22;

/// What the blocks of a permute do to one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Load {
    /// Blocks over the busiest link; on other networks, 1 if any block travels over it.
    blocks: u64,
    /// Hops of the longest way.
    hops: u64,
    /// Whether a block leaves its node.
    leaves_node: bool,
}

/// The time of a permute of blocks of `bits` that changes the places of these axes.
pub(super) fn time(hw: &Hardware, mesh: &Mesh, from: Layout, to: Layout, axes: &AxisList, bits: u128) -> Picoseconds {
    let topology = hw.network.topology(mesh);
    let loads = loads(&topology, mesh, from, to, axes);
    let on = |(fabric, load): (&&Fabric, Load)| {
        let (rate, hop) = match **fabric {
            Fabric::Flat { bandwidth, latency } => (bandwidth, latency),
            Fabric::Torus { link_bandwidth, hop_latency, .. } => (link_bandwidth, hop_latency),
            Fabric::Switched { node_bandwidth, nic_bandwidth, alpha, .. } => {
                (if load.leaves_node { nic_bandwidth } else { node_bandwidth }, alpha)
            }
        };
        let time = time_at_rate(bits.saturating_mul(u128::from(load.blocks)), 8, rate);
        time.max(Picoseconds(hop.0.saturating_mul(load.hops)))
    };
    topology.fabrics.iter().zip(loads).map(on).fold(Picoseconds(0), |a, b| a + b)
}

/// The load on each network.
fn loads(topology: &Topology<'_>, mesh: &Mesh, from: Layout, to: Layout, axes: &AxisList) -> Vec<Load> {
    let mut loads = vec![Load::default(); topology.fabrics.len()];
    let only_flat = axes.iter().all(|a| topology.axes[a.index()] == (0, Wires::Flat));
    if only_flat {
        loads[0] = Load { blocks: 1, hops: 1, leaves_node: false };
        return loads;
    }
    let ids: Vec<AxisId> = axes.iter().collect();
    let grid = Grid { sizes: ids.iter().map(|a| mesh.size(*a)).collect() };
    let reach: u64 = ids.iter().map(|a| longest(&topology.axes[a.index()].1)).sum();
    if grid.devices().saturating_mul(reach) > MAX_HOPS {
        for id in &ids {
            let (network, wires) = &topology.axes[id.index()];
            let load = &mut loads[*network];
            load.blocks = load.blocks.max(longest(wires)).max(1);
            load.hops = if matches!(wires, Wires::Torus(_)) { load.hops + longest(wires) } else { 1 };
            load.leaves_node |= matches!(wires, Wires::Switched { outside, .. } if *outside > 1);
        }
        return loads;
    }
    let messages = messages(mesh, from, to, &ids, &grid);
    for (network, load) in loads.iter_mut().enumerate() {
        let on: Vec<(usize, &Wires)> = ids
            .iter()
            .enumerate()
            .filter(|(_, a)| topology.axes[a.index()].0 == network)
            .map(|(i, a)| (i, &topology.axes[a.index()].1))
            .collect();
        if matches!(topology.fabrics[network], Fabric::Torus { .. }) {
            *load = torus_load(&grid, &on, &messages);
            continue;
        }
        for (source, target) in &messages {
            for (axis, wires) in &on {
                let (a, b) = (grid.coordinate(*source, *axis), grid.coordinate(*target, *axis));
                if a != b {
                    (load.blocks, load.hops) = (1, 1);
                    load.leaves_node |= matches!(wires, Wires::Switched { inside, .. } if a / inside != b / inside);
                }
            }
        }
    }
    loads
}

/// The hops from end to end of a mesh axis.
fn longest(wires: &Wires) -> u64 {
    match wires {
        Wires::Torus(axes) => axes.iter().map(|a| if a.ring { a.size / 2 } else { a.size - 1 }).sum(),
        Wires::Flat | Wires::Switched { .. } => 0,
    }
}

/// The devices that differ along the axes of the permute alone, the last axis fastest.
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

/// Who sends its block to whom. Where several devices hold a block, they serve those that want it in order of device, as
/// `run` does; a device that has what it wants sends and receives nothing.
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
    sorted(&held).into_iter().zip(sorted(&wanted)).map(|((_, source), (_, target))| (source, target)).collect()
}

/// The number of the block that a device has in a layout.
fn block(mesh: &Mesh, layout: Layout, ids: &[AxisId], grid: &Grid, device: u64) -> u64 {
    let mut number = 0;
    for dim in 0..shard_ir::tensor::MAX_RANK {
        for axis in layout.axes_of(dim).iter() {
            let at = ids.iter().position(|a| *a == axis).map_or(0, |i| grid.coordinate(device, i));
            number = number * mesh.size(axis) + at;
        }
    }
    number
}

/// Blocks over the busiest link of a torus, each going the shortest way along one axis after the other; half-way round a
/// ring, upwards.
fn torus_load(grid: &Grid, on: &[(usize, &Wires)], messages: &[(u64, u64)]) -> Load {
    // Torus axes, each with its stride in the numbering of devices.
    let mut axes: Vec<(TorusAxis, u64)> = Vec::new();
    for (axis, wires) in on {
        let Wires::Torus(torus) = wires else { continue };
        let mut stride = grid.stride(*axis) * grid.sizes[*axis];
        for axis in torus {
            stride /= axis.size;
            axes.push((*axis, stride));
        }
    }
    let devices = grid.devices() as usize;
    // For each axis and direction, the blocks that leave each device.
    let mut links = vec![0u64; devices * axes.len() * 2];
    let mut hops = 0;
    for (source, target) in messages {
        let (mut at, mut way) = (*source, 0);
        for (i, (axis, stride)) in axes.iter().enumerate() {
            let (here, there) = (at / stride % axis.size, target / stride % axis.size);
            let up = (there + axis.size - here) % axis.size;
            let upwards = if axis.ring { up * 2 <= axis.size } else { there > here };
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
    Load { blocks: links.into_iter().max().unwrap_or(0), hops, leaves_node: false }
}
