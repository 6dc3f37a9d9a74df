//! Every layout of a value, by trying every way of writing one.

use shard_ir::{AxisId, AxisSet, DimId, Layout, LayoutPattern, MeshShape, Reduction};

/// A layout as it is written: for each dim its axes, major to minor, and the partial axes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Written {
    pub(crate) dims: Vec<Vec<AxisId>>,
    pub(crate) sums: Vec<AxisId>,
    pub(crate) maxima: Vec<AxisId>,
    /// The axes over which it is the attention over a part of the keys.
    pub(crate) softmax: Vec<AxisId>,
}

/// The axes on each dim, then those of partial sums and of partial maxima.
pub(crate) type ByName = (Vec<(DimId, Vec<AxisId>)>, Vec<AxisId>, Vec<AxisId>);

impl Written {
    pub(crate) fn of(layout: Layout, rank: usize) -> Written {
        Written {
            dims: (0..rank).map(|d| layout.axes_of(d).iter().collect()).collect(),
            sums: layout.partial(Reduction::Sum).iter().collect(),
            maxima: layout.partial(Reduction::Max).iter().collect(),
            softmax: layout.softmax_axes().iter().collect(),
        }
    }

    fn layout(&self, shape: MeshShape<'_>) -> Option<Layout> {
        let lists: Vec<_> = self.dims.iter().map(|axes| axes.iter().copied().collect()).collect();
        let set = |axes: &[AxisId]| axes.iter().copied().collect::<AxisSet>();
        let rest = Layout::new(shape, &lists, set(&self.sums), set(&self.maxima)).ok()?;
        Some(self.softmax.iter().fold(rest, |layout, axis| layout.with_softmax(*axis)))
    }

    /// The axes by the name of the dim, so that types whose dims stand in another order can be
    /// compared.
    pub(crate) fn by_name(&self, dims: &[DimId]) -> ByName {
        let mut named: Vec<(DimId, Vec<AxisId>)> =
            dims.iter().copied().zip(self.dims.iter().cloned()).collect();
        named.sort();
        (named, self.sums.clone(), self.maxima.clone())
    }
}

/// Every legal layout: each axis nowhere, partial, or on a dim; the axes of a dim in every order.
pub(crate) fn all_layouts(
    shape: MeshShape<'_>,
    with_maxima: bool,
    with_softmax: bool,
) -> Vec<(Layout, Written)> {
    let mut dealt = vec![Written { dims: vec![Vec::new(); shape.rank()], ..Written::default() }];
    for axis in shape.mesh.axis_ids() {
        let mut next = Vec::new();
        for layout in dealt {
            for dim in 0..shape.rank() {
                for at in 0..=layout.dims[dim].len() {
                    let mut split = layout.clone();
                    split.dims[dim].insert(at, axis);
                    next.push(split);
                }
            }
            let mut sum = layout.clone();
            sum.sums.push(axis);
            next.push(sum);
            if with_maxima {
                let mut max = layout.clone();
                max.maxima.push(axis);
                next.push(max);
            }
            if with_softmax {
                let mut part = layout.clone();
                part.softmax.push(axis);
                next.push(part);
            }
            next.push(layout);
        }
        dealt = next;
    }
    // The attention over a part of the keys is partial in no other way.
    dealt.retain(|l| l.softmax.is_empty() || (l.sums.is_empty() && l.maxima.is_empty()));
    // A pin on such a value numbers the others as it does.
    dealt.sort_by_key(|l| !l.softmax.is_empty());
    dealt.into_iter().filter_map(|written| Some((written.layout(shape)?, written))).collect()
}

/// Whether a layout is one that a pattern asks for, labels aside: section 2 of the language.
pub(crate) fn meets(pattern: &LayoutPattern, layout: &Written) -> bool {
    let dims_fit = pattern.dims.iter().zip(&layout.dims).all(|(pattern_dim, has)| {
        let written: Vec<AxisId> = pattern_dim.axes.iter().collect();
        let kept: Vec<AxisId> = has.iter().copied().filter(|a| written.contains(a)).collect();
        let nothing_else = kept.len() == has.len();
        let as_written =
            if pattern_dim.any_order { kept.len() == written.len() } else { kept == written };
        as_written && (pattern.open || nothing_else)
    });
    let partial_fits = |written: AxisSet, has: &[AxisId]| {
        let all_there = written.iter().all(|a| has.contains(&a));
        all_there && ((pattern.open && pattern.free_partial) || has.len() == written.len())
    };
    dims_fit
        && layout.softmax.is_empty()
        && partial_fits(pattern.partial_sum, &layout.sums)
        && partial_fits(pattern.partial_max, &layout.maxima)
}
