//! Moves along several dims at once: the blocks are boxes, of which each device has, sends and gets
//! corners.

use shard_ir::{AxisList, Collective, Layout, Reduction};

use crate::collectives::{Move, in_groups, ring_all_gather, tensor, tensors};
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::network::Network;
use crate::tensor::Tensor;

impl Move<'_> {
    /// Each device gets every part of its new block from the one that has it, straight; what it has
    /// itself stays.
    pub(crate) fn exchange(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[&Tensor],
        to: Layout,
    ) -> Result<Vec<Tensor>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let axes = Collective::Exchange { to }.axes(grid.mesh, self.from);
        in_groups(grid, &axes, |group| {
            let had: Vec<Vec<usize>> =
                group.iter().map(|d| grid.origin(*d, self.shape, self.from)).collect();
            let wanted: Vec<Vec<usize>> =
                group.iter().map(|d| grid.origin(*d, self.shape, to)).collect();
            let mut out: Vec<Tensor> =
                group.iter().map(|_| Tensor::filled(local.clone(), 0.0)).collect();
            for (rank, device) in group.iter().enumerate() {
                for (other, goal) in wanted.iter().enumerate() {
                    let Some((origin, sizes)) =
                        common((&had[rank], &blocks[*device].sizes), (goal, &local))
                    else {
                        continue;
                    };
                    let part = blocks[*device].block(&beyond(&origin, &had[rank]), &sizes);
                    if other == rank {
                        out[rank].write_block(&beyond(&origin, goal), &part)
                    } else {
                        network.send(*device, group[other], part.data)
                    }
                }
            }
            // Senders went in order of rank, so the messages wait in that order.
            for (rank, goal) in wanted.iter().enumerate() {
                for (other, from) in had.iter().enumerate().filter(|(other, _)| *other != rank) {
                    let sizes = &blocks[group[other]].sizes;
                    let Some((origin, sizes)) = common((from, sizes), (goal, &local)) else {
                        continue;
                    };
                    let part = tensor(&sizes, network.receive(group[rank])?)?;
                    out[rank].write_block(&beyond(&origin, goal), &part);
                }
            }
            Ok(out)
        })
    }

    /// As an all-gather along one dim: the blocks go round, and each device puts them where they
    /// belong.
    pub(crate) fn gather_dims(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[&Tensor],
        (axes, to): (&AxisList, Layout),
    ) -> Result<Vec<Tensor>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        in_groups(grid, axes, |group| {
            let own: Vec<Vec<f64>> = group.iter().map(|d| blocks[*d].data.clone()).collect();
            let sizes = &blocks[group[0]].sizes;
            let gathered = ring_all_gather(network, group, own, None)?;
            let whole = |pieces: Vec<Vec<f64>>| -> Result<Tensor, RunError> {
                let mut out = Tensor::filled(local.clone(), 0.0);
                for (device, piece) in group.iter().zip(tensors(sizes, pieces)?) {
                    let at = grid.origin(*device, self.shape, self.from);
                    out.write_block(&beyond(&at, &grid.origin(*device, self.shape, to)), &piece);
                }
                Ok(out)
            };
            gathered.into_iter().map(whole).collect()
        })
    }

    /// As a reduce-scatter along one dim: the chunk of each device is its new block.
    pub(crate) fn scatter_dims(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[&Tensor],
        (kind, axes, to): (Reduction, &AxisList, Layout),
    ) -> Result<Vec<Tensor>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        in_groups(grid, axes, |group| {
            // Devices of a group have terms of one block.
            let chunk = |block: &Tensor, device: usize| {
                let at = grid.origin(device, self.shape, to);
                block.block(&beyond(&at, &grid.origin(device, self.shape, self.from)), &local).data
            };
            let chunks = group
                .iter()
                .map(|d| group.iter().map(|to| chunk(blocks[*d], *to)).collect())
                .collect();
            tensors(&local, self.ring_reduce_scatter(network, group, chunks, kind, None)?)
        })
    }
}

/// What two boxes, each an origin and sizes, have in common; `None` where it is nothing.
fn common(
    one: (&[usize], &[usize]),
    other: (&[usize], &[usize]),
) -> Option<(Vec<usize>, Vec<usize>)> {
    let (mut origin, mut sizes) = (Vec::new(), Vec::new());
    for dim in 0..one.0.len() {
        let start = one.0[dim].max(other.0[dim]);
        let end = (one.0[dim] + one.1[dim]).min(other.0[dim] + other.1[dim]);
        origin.push(start);
        sizes.push(end.checked_sub(start).filter(|size| *size > 0)?);
    }
    Some((origin, sizes))
}

/// A place as seen from an origin that is before it in every dim.
fn beyond(place: &[usize], origin: &[usize]) -> Vec<usize> {
    place.iter().zip(origin).map(|(p, o)| p.saturating_sub(*o)).collect()
}
