//! Devices by their numbers: which devices are a group, and which device sends to which.

use std::collections::BTreeMap;

use shard_ir::{AxisId, AxisList, Layout, Mesh, MeshShape};

use crate::error::ExportError;

/// The groups of devices over some axes. The devices of a group are in the order of their ranks, of
/// which the first axis of the list is the major digit.
pub(crate) fn groups(mesh: &Mesh, axes: &AxisList) -> Vec<Vec<u64>> {
    let mut groups: BTreeMap<Vec<u64>, Vec<(Vec<u64>, u64)>> = BTreeMap::new();
    for device in 0..mesh.devices() {
        let at = mesh.coordinates(device);
        let outside = mesh.axis_ids().filter(|a| !axes.set().contains(*a));
        let group = outside.map(|a| at[a.index()]).collect();
        let rank = axes.iter().map(|a| at[a.index()]).collect();
        groups.entry(group).or_default().push((rank, device));
    }
    let ordered = |mut group: Vec<(Vec<u64>, u64)>| {
        group.sort_unstable();
        group.into_iter().map(|(_, device)| device).collect()
    };
    groups.into_values().map(ordered).collect()
}

/// The pairs `[sender, receiver]` of a permute, by receiver. A device that already has its new
/// block sends it to itself; any other receives it from a device whose coordinates differ in as few
/// axes as possible.
pub(crate) fn permute_pairs(
    shape: MeshShape<'_>,
    from: Layout,
    to: Layout,
) -> Result<Vec<[u64; 2]>, ExportError> {
    let mesh = shape.mesh;
    let block = |device: u64, layout: Layout| -> Vec<u64> {
        let at = mesh.coordinates(device);
        let number = |axes: &mut dyn Iterator<Item = AxisId>| {
            axes.fold(0, |n, a| n * mesh.size(a) + at[a.index()])
        };
        let of_dims = (0..shape.rank()).map(|dim| number(&mut layout.axes_of(dim).iter()));
        // A permute moves each term to a device that has to hold the same term.
        of_dims.chain([number(&mut layout.partial_axes().iter())]).collect()
    };
    let mut spare: BTreeMap<Vec<u64>, Vec<u64>> = BTreeMap::new();
    for device in 0..mesh.devices() {
        if block(device, from) != block(device, to) {
            spare.entry(block(device, from)).or_default().push(device);
        }
    }
    let mut pairs = Vec::new();
    for device in 0..mesh.devices() {
        let wanted = block(device, to);
        if block(device, from) == wanted {
            pairs.push([device, device]);
            continue;
        }
        let here = mesh.coordinates(device);
        let far =
            |other: u64| mesh.coordinates(other).iter().zip(&here).filter(|(a, b)| a != b).count();
        let nearest = spare.get_mut(&wanted).and_then(|senders| {
            let nearest = (0..senders.len()).min_by_key(|at| (far(senders[*at]), senders[*at]))?;
            Some(senders.remove(nearest))
        });
        let sender =
            nearest.ok_or(ExportError::Internal("no device holds the block that is wanted"))?;
        pairs.push([sender, device]);
    }
    Ok(pairs)
}

/// The pairs `[sender, receiver]` of a ring: each device sends to the next one of its group, the
/// last one to the first.
pub(crate) fn ring_pairs(mesh: &Mesh, axes: &AxisList) -> Vec<[u64; 2]> {
    let next = |group: Vec<u64>| {
        (0..group.len())
            .map(move |at| [group[at], group[(at + 1) % group.len()]])
            .collect::<Vec<_>>()
    };
    groups(mesh, axes).into_iter().flat_map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stands_in_the_order_of_its_axes() {
        let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).expect("a mesh");
        let axes: AxisList = [AxisId(2), AxisId(0)].into_iter().collect();
        assert_eq!(groups(&mesh, &axes), [[0, 4, 1, 5], [2, 6, 3, 7]]);
    }

    #[test]
    fn a_ring_goes_through_a_group_in_the_order_of_its_axes() {
        let mesh = Mesh::new([("x", 2), ("y", 2)]).expect("a mesh");
        let axes: AxisList = [AxisId(1), AxisId(0)].into_iter().collect();
        assert_eq!(ring_pairs(&mesh, &axes), [[0, 2], [2, 1], [1, 3], [3, 0]]);
    }

    #[test]
    fn a_permute_gives_every_device_one_block_and_takes_one_from_each() {
        let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).expect("a mesh");
        let shape = MeshShape { mesh: &mesh, sizes: &[8, 8] };
        let layouts = shape.layouts(mesh.all_axes(), shard_ir::AxisSet::EMPTY);
        for from in &layouts {
            for to in &layouts {
                let permute = shard_ir::Collective::Permute { to: *to };
                if permute.apply(shape, *from).is_err() {
                    continue;
                }
                let pairs = permute_pairs(shape, *from, *to).expect("pairs");
                let mut senders: Vec<u64> = pairs.iter().map(|[sender, _]| *sender).collect();
                senders.sort_unstable();
                assert_eq!(senders, (0..8).collect::<Vec<_>>());
                assert!(pairs.iter().enumerate().all(|(at, [_, to])| *to == at as u64));
            }
        }
    }
}
