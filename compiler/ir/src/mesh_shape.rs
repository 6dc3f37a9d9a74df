//! [`MeshShape`]: which layouts a tensor may have on a mesh, and what a device holds in each.

use crate::layout::{Layout, LayoutError, Place, Reduction};
use crate::mesh::{AxisList, AxisSet, Mesh};
use crate::never;
use crate::tensor::MAX_RANK;

/// A mesh and the global sizes of a tensor, which decide which layouts are legal.
#[derive(Clone, Copy, Debug)]
pub struct MeshShape<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The global size of each dim of the tensor.
    pub sizes: &'a [u64],
}

impl MeshShape<'_> {
    /// How many dims the tensor has.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Whether every dim that the layout splits exists and divides.
    pub fn admits(&self, layout: Layout) -> bool {
        self.first_indivisible(layout).is_none()
    }

    /// The first dim that the layout splits and that does not divide.
    pub(crate) fn first_indivisible(&self, layout: Layout) -> Option<LayoutError> {
        let mut devices = [1u64; MAX_RANK + 1];
        for axis in self.mesh.axis_ids() {
            if let Place::Split { dim, .. } = layout.place(axis) {
                devices[dim] *= self.mesh.size(axis);
            }
        }
        (0..=MAX_RANK).find_map(|dim| {
            // A dim that the tensor does not have counts as size 1, which nothing divides.
            let size = self.sizes.get(dim).copied().unwrap_or(1);
            (size % devices[dim] != 0).then_some(LayoutError::NotDivisible {
                dim,
                size,
                devices: devices[dim],
            })
        })
    }

    /// Whether a dim can be split over these axes in addition to its axes in the layout.
    pub fn can_append(&self, layout: Layout, dim: usize, axes: &AxisList) -> bool {
        let own = self.mesh.axis_ids().filter(|axis| layout.is_on(*axis, dim));
        let devices = self.mesh.group_size(own) * self.mesh.group_size(axes.iter());
        self.sizes[dim].is_multiple_of(devices)
    }

    /// The size of each dim on one device.
    pub fn local_sizes(&self, layout: Layout) -> Vec<u64> {
        let mut local = self.sizes.to_vec();
        for axis in self.mesh.axis_ids() {
            if let Place::Split { dim, .. } = layout.place(axis) {
                local[dim] /= self.mesh.size(axis);
            }
        }
        local
    }

    /// How many elements one device holds.
    pub fn local_elements(&self, layout: Layout) -> u64 {
        self.sizes.iter().product::<u64>() / self.mesh.group_size(layout.split_axes().iter())
    }

    /// Every legal layout of the tensor in which at most the axes of `partial_sum` are partial sums
    /// and at most those of `partial_max` partial maxima, in the order of [`Layout`].
    pub fn layouts(&self, partial_sum: AxisSet, partial_max: AxisSet) -> Vec<Layout> {
        let all = self.layouts_within(partial_sum, partial_max, usize::MAX);
        all.unwrap_or_else(|| never!("more layouts than a machine counts", Vec::new()))
    }

    /// Every legal layout that is split and partial over the same axes as the given one, itself
    /// included.
    pub fn layouts_like(&self, layout: Layout) -> Vec<Layout> {
        let bare = (0..self.rank()).fold(layout, |l, dim| l.with_dim(dim, AxisList::EMPTY));
        let mut out = vec![bare];
        for axis in layout.split_axes().iter() {
            let before = std::mem::take(&mut out);
            for layout in before {
                for dim in 0..self.rank() {
                    if self.can_append(layout, dim, &AxisList::EMPTY.then(axis)) {
                        let axes = layout.axes_of(dim);
                        let at = |at| axes.prefix(at).then(axis).concat(axes.suffix_from(at));
                        out.extend((0..=axes.len()).map(|place| layout.with_dim(dim, at(place))));
                    }
                }
            }
        }
        out.sort_unstable();
        out
    }

    /// Every legal layout that is `partialsoftmax` over some axes, and partial in no other way, in
    /// the order of [`Layout`].
    pub fn softmax_layouts(&self) -> Vec<Layout> {
        let mut out = Vec::new();
        for layout in self.layouts(AxisSet::EMPTY, AxisSet::EMPTY) {
            for axes in layout.replicated_axes(self.mesh).nonempty_subsets() {
                out.push(axes.iter().fold(layout, Layout::with_softmax));
            }
        }
        out.sort_unstable();
        out
    }

    /// As [`MeshShape::layouts`], but `None` where there are more than `limit`. Their number grows
    /// with the factorial of the number of axes.
    pub fn layouts_within(
        &self,
        partial_sum: AxisSet,
        partial_max: AxisSet,
        limit: usize,
    ) -> Option<Vec<Layout>> {
        let mut out = vec![Layout::REPLICATED];
        for axis in self.mesh.axis_ids() {
            let before = out.len();
            for i in 0..before {
                if out.len() > limit {
                    return None;
                }
                let layout = out[i];
                if partial_sum.contains(axis) {
                    out.push(layout.with_partial(axis, Reduction::Sum));
                }
                if partial_max.contains(axis) {
                    out.push(layout.with_partial(axis, Reduction::Max));
                }
                for dim in 0..self.rank() {
                    if self.can_append(layout, dim, &AxisList::EMPTY.then(axis)) {
                        let axes = layout.axes_of(dim);
                        for at in 0..=axes.len() {
                            out.push(layout.with_dim(
                                dim,
                                axes.prefix(at).then(axis).concat(axes.suffix_from(at)),
                            ));
                        }
                    }
                }
            }
        }
        out.sort_unstable();
        (out.len() <= limit).then_some(out)
    }
}
