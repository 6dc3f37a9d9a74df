//! Moves along several dims at once: a device sends and gets [`Section`]s of its block.

use std::sync::Arc;

use shard_ir::{Collective, Layout, Reduction};

use crate::collectives::{Held, Move};
use crate::devices::{Grid, Groups, usizes};
use crate::error::RunError;
use crate::network::Network;
use crate::tensor::{Element, Section, Tensor};

impl Move<'_> {
    /// Each device gets every part of its new block straight from the device that has it. What a
    /// device has of its own new block is not sent.
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
            let has = Section { origin: had(sender), sizes: blocks[sender].sizes.clone() };
            common(&has, &Section { origin: goal(taker), sizes: local.clone() })
        };
        for group in groups.all() {
            for (sender, taker) in group.iter().flat_map(|s| group.iter().map(move |t| (*s, *t))) {
                if let Some(sent) = part(sender, taker).filter(|_| sender != taker) {
                    network.send(sender, sent.sizes.iter().product());
                }
            }
        }
        self.each(grid, |device| {
            let mut out = Tensor::filled(local.clone(), T::of(0.0));
            for sender in groups.group(device) {
                if let Some(Section { origin, sizes }) = part(*sender, device) {
                    let (into, of) =
                        (beyond(&origin, &goal(device)), beyond(&origin, &had(*sender)));
                    out.copy_box(&into, &blocks[*sender], &of, &sizes);
                }
            }
            Ok(out)
        })
    }

    /// As an all-gather along one dim: each device gets all blocks of its group.
    pub(crate) fn gather_dims<T: Element>(
        &self,
        network: &mut Network,
        grid: &Grid<'_>,
        blocks: &[Arc<Tensor<T>>],
        to: Layout,
    ) -> Result<Held<T>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let groups = Groups::of(grid, &self.collective.axes(grid.mesh, self.from));
        groups.all().for_each(|g| network.send_all(g, g.len() - 1, blocks[0].data.len()));
        self.once_a_group(&groups, |group| {
            let mut out = Tensor::filled(local.clone(), T::of(0.0));
            // The new block starts at the same place for all devices of the group.
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
        kind: Reduction,
        to: Layout,
    ) -> Result<Held<T>, RunError> {
        let local = usizes(&self.shape.local_sizes(to));
        let groups = Groups::of(grid, &self.collective.axes(grid.mesh, self.from));
        let elements = local.iter().product();
        groups.all().for_each(|g| network.send_all(g, g.len() - 1, elements));
        self.reduced(grid, &groups, blocks, kind, |device| {
            // Devices of a group have terms of one block.
            let had = grid.origin(device, self.shape, self.from);
            let origin = beyond(&grid.origin(device, self.shape, to), &had);
            Section { origin, sizes: local.clone() }
        })
    }
}

/// The elements that two sections of one tensor have in common; `None` if they have none.
fn common(one: &Section, other: &Section) -> Option<Section> {
    let (mut origin, mut sizes) = (Vec::new(), Vec::new());
    for dim in 0..one.origin.len() {
        let start = one.origin[dim].max(other.origin[dim]);
        let end = (one.origin[dim] + one.sizes[dim]).min(other.origin[dim] + other.sizes[dim]);
        origin.push(start);
        sizes.push(end.checked_sub(start).filter(|size| *size > 0)?);
    }
    Some(Section { origin, sizes })
}

/// A place, counted from an origin that is before it in every dim.
fn beyond(place: &[usize], origin: &[usize]) -> Vec<usize> {
    place.iter().zip(origin).map(|(p, o)| p.saturating_sub(*o)).collect()
}
