//! Which device holds which block.

use shard_ir::{AxisId, AxisList, Layout, Mesh, MeshShape};

/// The devices of a mesh by their numbers: coordinates, groups, and where blocks start.
pub(crate) struct Grid<'m> {
    pub(crate) mesh: &'m Mesh,
    pub(crate) coordinates: Vec<Vec<u64>>,
}

impl<'m> Grid<'m> {
    pub(crate) fn new(mesh: &'m Mesh) -> Grid<'m> {
        Grid { mesh, coordinates: (0..mesh.devices()).map(|d| mesh.coordinates(d)).collect() }
    }

    pub(crate) fn devices(&self) -> usize {
        self.coordinates.len()
    }

    pub(crate) fn coordinate(&self, device: usize, axis: AxisId) -> u64 {
        self.coordinates[device][axis.index()]
    }

    /// The rank of a device in its group over some axes, major to minor.
    pub(crate) fn rank(&self, device: usize, axes: &AxisList) -> usize {
        axes.iter().fold(0, |rank, a| rank * self.mesh.size(a) + self.coordinate(device, a))
            as usize
    }

    /// The groups over some axes: devices that differ in these axes alone, in order of rank.
    pub(crate) fn groups(&self, axes: &AxisList) -> Vec<Vec<usize>> {
        let size = self.mesh.group_size(axes.iter()) as usize;
        let mut at = vec![usize::MAX; self.devices()];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for device in 0..self.devices() {
            let mut first = self.coordinates[device].clone();
            axes.iter().for_each(|a| first[a.index()] = 0);
            let leader = self.mesh.device_at(&first) as usize;
            if at[leader] == usize::MAX {
                at[leader] = groups.len();
                groups.push(vec![0; size]);
            }
            groups[at[leader]][self.rank(device, axes)] = device;
        }
        groups
    }

    /// Where a device's block starts in the whole tensor.
    pub(crate) fn origin(&self, device: usize, shape: MeshShape<'_>, layout: Layout) -> Vec<usize> {
        let local = shape.local_sizes(layout);
        (0..shape.rank())
            .map(|d| self.rank(device, &layout.axes_of(d)) * local[d] as usize)
            .collect()
    }

    /// The device that has a device's coordinates along `axes`, and 0 along all other axes.
    pub(crate) fn projected(&self, device: usize, axes: shard_ir::AxisSet) -> usize {
        let mut at = self.coordinates[device].clone();
        for (i, c) in at.iter_mut().enumerate() {
            if !axes.contains(AxisId(i as u8)) {
                *c = 0;
            }
        }
        self.mesh.device_at(&at) as usize
    }
}

/// Sizes as `usize`.
pub(crate) fn usizes(sizes: &[u64]) -> Vec<usize> {
    sizes.iter().map(|s| *s as usize).collect()
}
