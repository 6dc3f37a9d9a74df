//! Moves along several dims at once: the blocks are boxes, of which each device has, sends and gets
//! corners.

use std::sync::Arc;

use shard_ir::{AxisList, Collective, Layout, Reduction};

use crate::collectives::{Groups, Held, Move};
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::network::Network;
use crate::tensor::{Element, Tensor};

impl Move<'_> {
    /// Each device gets every part of its new block from the one that has it, straight; what it has
    /// itself stays.
    pub(crate) fn exchange<T: Element>(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
        to: Layout,
    ) -> Result<Held<T>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let axes = Collective::Exchange { to }.axes(grid.mesh, self.from);
        let groups = Groups::of(grid, &axes);
        let had = |device: usize| grid.origin(device, self.shape, self.from);
        let goal = |device: usize| grid.origin(device, self.shape, to);
        let part = |sender: usize, taker: usize| {
            common((&had(sender), &blocks[sender].sizes), (&goal(taker), &local))
        };
        for group in groups.all() {
            for (sender, taker) in group.iter().flat_map(|s| group.iter().map(move |t| (*s, *t))) {
                if let Some((_, sizes)) = part(sender, taker).filter(|_| sender != taker) {
                    network.send(sender, sizes.iter().product());
                }
            }
        }
        self.each(grid, |device| {
            let mut out = Tensor::filled(local.clone(), T::of(0.0));
            for sender in groups.group(device) {
                if let Some((origin, sizes)) = part(*sender, device) {
                    let (into, of) =
                        (beyond(&origin, &goal(device)), beyond(&origin, &had(*sender)));
                    out.copy_box(&into, &blocks[*sender], &of, &sizes);
                }
            }
            Ok(out)
        })
    }

    /// As an all-gather along one dim: all blocks are put where they belong.
    pub(crate) fn gather_dims<T: Element>(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
        (axes, to): (&AxisList, Layout),
    ) -> Result<Held<T>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let groups = Groups::of(grid, axes);
        groups.all().for_each(|g| network.send_all(g, g.len() - 1, blocks[0].data.len()));
        self.once_a_group(&groups, |group| {
            let mut out = Tensor::filled(local.clone(), T::of(0.0));
            // Where the block starts is the same for all that get it.
            let goal = grid.origin(group[0], self.shape, to);
            for sender in group {
                let at = grid.origin(*sender, self.shape, self.from);
                out.write_block(&beyond(&at, &goal), &blocks[*sender]);
            }
            Ok(out)
        })
    }

    /// As a reduce-scatter along one dim: the chunk of each device is its new block.
    pub(crate) fn scatter_dims<T: Element>(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
        (kind, axes, to): (Reduction, &AxisList, Layout),
    ) -> Result<Held<T>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let groups = Groups::of(grid, axes);
        let elements = local.iter().product();
        groups.all().for_each(|g| network.send_all(g, g.len() - 1, elements));
        self.reduced(grid, (&groups, blocks), kind, |device| {
            // Devices of a group have terms of one block.
            let had = grid.origin(device, self.shape, self.from);
            (beyond(&grid.origin(device, self.shape, to), &had), local.clone())
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
