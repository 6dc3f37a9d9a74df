//! [`LayoutPattern`]: what an annotation demands of a layout.

use crate::layout::{Layout, MeshShape, Reduction};
use crate::mesh::{AxisList, AxisSet};
use crate::tensor::DimId;

/// A layout label (`?l`) of a layer, as an index into [`Program::labels`](crate::Program::labels).
/// All patterns with the label must be met by the same layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LabelId(pub u16);

/// What a pattern says about one dim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DimPattern {
    /// The axes written, major to minor as written.
    pub axes: AxisList,
    /// Whether the order of the axes is open: `E_(xy)`.
    pub any_order: bool,
}

/// What an annotation demands of a layout: `BLE_x` exactly this layout; `BLE_(xy)` one of two;
/// `B_xLE?` any layout with x on B; `BLE?l` any layout, but the same wherever `l` stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LayoutPattern {
    /// What is written on each dim, in the order of the value's dims.
    pub dims: Vec<DimPattern>,
    /// The axes written as partial sums.
    pub partial_sum: AxisSet,
    /// The axes written as partial maxima.
    pub partial_max: AxisSet,
    /// Whether a `?` stands behind it: axes that are not written may split any dim, at any place
    /// among its axes.
    pub open: bool,
    /// In an open pattern: whether axes that are not written may be partial, too. True for
    /// intermediates, false at a layer's boundary, where partial axes have to be written.
    pub free_partial: bool,
    /// The label behind the `?`.
    pub label: Option<LabelId>,
    /// Axes over which the value must be replicated. No source states this in an open pattern;
    /// questions about a plan do.
    pub whole: AxisSet,
}

impl LayoutPattern {
    /// The pattern that only this layout meets.
    pub fn exactly(layout: Layout, rank: usize) -> LayoutPattern {
        LayoutPattern {
            dims: (0..rank)
                .map(|d| DimPattern { axes: layout.axes_of(d), any_order: false })
                .collect(),
            partial_sum: layout.partial(Reduction::Sum),
            partial_max: layout.partial(Reduction::Max),
            open: false,
            free_partial: false,
            label: None,
            whole: AxisSet::EMPTY,
        }
    }

    /// The pattern that every layout of this rank meets.
    pub fn any(rank: usize, free_partial: bool) -> LayoutPattern {
        LayoutPattern {
            dims: vec![DimPattern::default(); rank],
            partial_sum: AxisSet::EMPTY,
            partial_max: AxisSet::EMPTY,
            open: true,
            free_partial,
            label: None,
            whole: AxisSet::EMPTY,
        }
    }

    /// The pattern for the same value with its dims, which are in the order `from`, in the order
    /// `to`.
    pub fn permuted(&self, from: &[DimId], to: &[DimId]) -> LayoutPattern {
        let mut out = self.clone();
        for (i, dim) in to.iter().enumerate() {
            if let Some(at) = from.iter().position(|d| d == dim) {
                out.dims[i] = self.dims[at];
            }
        }
        out
    }

    /// The one layout that meets the pattern, where it names exactly one.
    pub fn exact(&self, shape: MeshShape<'_>) -> Option<Layout> {
        if self.open || self.dims.iter().any(|d| d.any_order && d.axes.len() > 1) {
            return None;
        }
        let lists: Vec<AxisList> = self.dims.iter().map(|d| d.axes).collect();
        Layout::new(shape, &lists, self.partial_sum, self.partial_max).ok()
    }

    /// Whether a layout meets the pattern (labels aside).
    pub fn admits(&self, layout: Layout) -> bool {
        // No type can name a `partialsoftmax` layout.
        if !layout.softmax_axes().is_empty() {
            return false;
        }
        let (sums, maxima) = (layout.partial(Reduction::Sum), layout.partial(Reduction::Max));
        let written = self.dims.iter().fold(AxisSet::EMPTY, |s, d| s.union(d.axes.set()));
        self.dims.iter().enumerate().all(|(i, dim)| {
            let has = layout.axes_of(i);
            match (self.open, dim.any_order) {
                (false, false) => has == dim.axes,
                (false, true) => has.set() == dim.axes.set(),
                // Written axes keep their relative order; free ones may stand anywhere among them.
                (true, false) => {
                    has.iter().filter(|a| dim.axes.set().contains(*a)).eq(dim.axes.iter())
                }
                (true, true) => dim.axes.set().is_subset(has.set()),
            }
        }) && if self.open && self.free_partial {
            self.partial_sum.is_subset(sums) && self.partial_max.is_subset(maxima)
        } else {
            self.partial_sum == sums && self.partial_max == maxima
        } && (self.open || layout.split_axes() == written)
            && self.whole.intersection(layout.split_axes().union(sums).union(maxima)).is_empty()
    }

    /// Every legal layout that meets the pattern, in the order of [`Layout`]; a free axis is
    /// partial only where `sums` or `maxima` has it.
    pub fn candidates(&self, shape: MeshShape<'_>, sums: AxisSet, maxima: AxisSet) -> Vec<Layout> {
        if let Some(layout) = self.exact(shape) {
            return vec![layout];
        }
        let (sums, maxima) = if self.open && self.free_partial {
            (sums.union(self.partial_sum), maxima.union(self.partial_max))
        } else {
            (self.partial_sum, self.partial_max)
        };
        shape.layouts(sums, maxima).into_iter().filter(|l| self.admits(*l)).collect()
    }
}
