//! The devices of a mesh: which of them form groups, and which block each holds.

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

/// The groups over some axes, and where each device is in them.
pub(crate) struct Groups {
    groups: Vec<Vec<usize>>,
    /// The group of each device, as an index into `groups`.
    group_of: Vec<usize>,
    /// The rank of each device in its group.
    rank_of: Vec<usize>,
}

impl Groups {
    pub(crate) fn of(grid: &Grid<'_>, axes: &AxisList) -> Groups {
        let groups = grid.groups(axes);
        let (mut group_of, mut rank_of) = (vec![0; grid.devices()], vec![0; grid.devices()]);
        for (group, devices) in groups.iter().enumerate() {
            for (rank, device) in devices.iter().enumerate() {
                (group_of[*device], rank_of[*device]) = (group, rank);
            }
        }
        Groups { groups, group_of, rank_of }
    }

    /// The devices of each group, in the order of their ranks.
    pub(crate) fn all(&self) -> impl ExactSizeIterator<Item = &Vec<usize>> {
        self.groups.iter()
    }

    /// The devices of the group of this number.
    pub(crate) fn number(&self, group: usize) -> &[usize] {
        &self.groups[group]
    }

    /// How many devices there are in all groups.
    pub(crate) fn devices(&self) -> usize {
        self.group_of.len()
    }

    /// The number of a device's group.
    pub(crate) fn group_of(&self, device: usize) -> usize {
        self.group_of[device]
    }

    /// The devices of a device's group, in the order of their ranks.
    pub(crate) fn group(&self, device: usize) -> &[usize] {
        &self.groups[self.group_of[device]]
    }

    /// The rank of a device in its group.
    pub(crate) fn rank(&self, device: usize) -> usize {
        self.rank_of[device]
    }

    /// How many devices a group has.
    pub(crate) fn size(&self) -> usize {
        self.groups.first().map_or(1, Vec::len)
    }

    /// What each device has when every device of a group has passed on what it holds to the next
    /// rank, and the last rank to the first.
    pub(crate) fn passed_on<T>(&self, mut held: Vec<T>) -> Vec<T> {
        for group in &self.groups {
            // Rank by rank from the last down, each changes places with the one before it.
            for pair in group.windows(2).rev() {
                held.swap(pair[0], pair[1]);
            }
        }
        held
    }
}

/// Sizes as `usize`.
pub(crate) fn usizes(sizes: &[u64]) -> Vec<usize> {
    sizes.iter().map(|s| *s as usize).collect()
}
