//! [`Collective`]: the moves that turn one layout of a value into another, and their laws.

use crate::layout::{DimSet, Layout, MeshShape, Place, Reduction};
use crate::mesh::{AxisId, AxisList, AxisSet, Mesh};
use crate::regroup;
pub use shard_ops::{Move, MoveRow, Sends};

/// A move of one value from one layout to another: a collective, or one of the two moves without
/// traffic (slice and to-partial).
///
/// | move | from | to |
/// |---|---|---|
/// | all-gather over z, along E | `E_yz` | `E_y` |
/// | slice over z, along E | `E_y` | `E_yz` |
/// | reduce-scatter over x, along E | `E_y(partialsum-x)` | `E_yx` |
/// | all-reduce over x | `E_y(partialsum-x)` | `E_y` |
/// | all-to-all over x, from H to B | `BH_yx` | `B_xH_y` |
/// | collective-permute | `E_xy` | `E_yx` |
/// | exchange | `BE_xy` | `B_yxE` |
/// | all-gather over y along E, x along B | `B_xE_y` | `BE` |
/// | reduce-scatter over x along B, y along E | `BE(partialsum-xy)` | `B_xE_y` |
/// | to-partial over x | `E_y` | `E_y(partialsum-x)` |
/// | to-partial over y, from E | `E_xy` | `E_x(partialsum-y)` |
/// | softmax-merge over z | `BLD(partialsoftmax-z)` | `BLD` |
/// | softmax-merge over z, along D | `BLD(partialsoftmax-z)` | `BLD_z` |
///
/// **The suffix rule.** The blocks of `E_yz` are numbered y major, z minor: the devices that differ
/// in z alone hold neighbouring blocks. So a move that adds or takes away axes of a dim does so at
/// its minor end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Collective {
    /// Each device receives the blocks of its group: `axes`, the minor-most axes of `dim`, no
    /// longer split it.
    AllGather {
        /// Index of the dim in the tensor.
        dim: usize,
        /// The axes gathered, major to minor.
        axes: AxisList,
    },
    /// Each device keeps its own block of what it has: `axes`, over which the value was replicated,
    /// become the minor-most axes of `dim`. No traffic.
    Slice {
        /// Index of the dim in the tensor.
        dim: usize,
        /// The axes, major to minor.
        axes: AxisList,
    },
    /// The terms are combined, each device receiving one block: `axes`, partial before, become the
    /// minor-most axes of `dim`.
    ReduceScatter {
        /// What combines the terms.
        kind: Reduction,
        /// Index of the dim in the tensor.
        dim: usize,
        /// The axes, major to minor.
        axes: AxisList,
    },
    /// The terms are combined on every device of the group.
    AllReduce {
        /// What combines the terms.
        kind: Reduction,
        /// The axes, partial before and replicated after.
        axes: AxisSet,
    },
    /// The minor-most axes of one dim become the minor-most axes of another.
    AllToAll {
        /// Index of the dim that loses the axes.
        from_dim: usize,
        /// Index of the dim that gains them.
        to_dim: usize,
        /// The axes, major to minor.
        axes: AxisList,
    },
    /// Whole blocks change places: the local shape and the partial axes stay the same; other axes
    /// split the dims, or the same in another order.
    Permute {
        /// The layout after.
        to: Layout,
    },
    /// Each device gets its new block from the devices that hold parts of it: the same axes split
    /// the value in another way. A move that is also an all-to-all or a permute is called by that
    /// name only.
    Exchange {
        /// The layout after.
        to: Layout,
    },
    /// An all-gather along several dims at once.
    AllGatherDims {
        /// The layout after: two dims or more have lost minor-most axes.
        to: Layout,
    },
    /// A reduce-scatter along several dims at once.
    ReduceScatterDims {
        /// What combines the terms.
        kind: Reduction,
        /// The layout after: two dims or more have got minor-most axes, all of them partial before.
        to: Layout,
    },
    /// The value becomes partial: each device keeps its term, and the neutral element (0, or minus
    /// infinity for a maximum) stands where another device's data would be. No traffic.
    ToPartial {
        /// What will combine the terms.
        kind: Reduction,
        /// The dim whose minor-most axes become partial, each device's block staying in its place;
        /// `None` where `axes` were replicated, and the first device of each group keeps the value.
        dim: Option<usize>,
        /// The axes, major to minor.
        axes: AxisList,
    },
    /// Attentions over parts of the keys become the attention over all keys: the maximum of the
    /// statistics goes to every device, each device weighs its own result by it, and the weighted
    /// results and the weights are summed. A value that is `partialsoftmax` over other axes, too,
    /// keeps its statistics.
    SoftmaxMerge {
        /// The dim of which each device gets one block: `axes` become its minor-most axes. `None`
        /// where every device gets the whole value.
        dim: Option<usize>,
        /// The axes, major to minor; in mesh order where there is no dim.
        axes: AxisList,
        /// The dims of the statistics, by their places in the value: the dims of the scores without
        /// the keys.
        statistics: DimSet,
    },
}

/// A move taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Which move it is.
    pub code: Move,
    /// The reduction of a move that combines terms, or makes them.
    pub kind: Option<Reduction>,
    /// Its axes; `None` where the layout after the move gives them.
    pub axes: Option<AxisList>,
    /// The dim along which it moves, or the dims from which and to which axes go.
    pub dims: [Option<usize>; 2],
    /// The layout after it, for a move that names this layout.
    pub to: Option<Layout>,
}

/// Why a collective does not apply to a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CollectiveError {
    /// The list of axes is empty, or has an axis twice.
    #[error("a collective needs at least one axis, each once")]
    NoAxes,
    /// A dim that the tensor does not have.
    #[error("the tensor has no dim {0}")]
    NoSuchDim(usize),
    /// The axes are not the minor-most axes of the dim.
    #[error("the axes are not the minor-most axes of dim {dim}")]
    NotASuffix {
        /// The dim.
        dim: usize,
    },
    /// The value is not partial over the axis in this way.
    #[error("the value is not partial over mesh axis {axis:?}")]
    NotPartial {
        /// The axis.
        axis: AxisId,
    },
    /// The value is not replicated over the axis.
    #[error("the value is not replicated over mesh axis {axis:?}")]
    NotReplicated {
        /// The axis.
        axis: AxisId,
    },
    /// The dim would not divide over its axes.
    #[error("dim {dim} does not divide over its axes")]
    NotDivisible {
        /// The dim.
        dim: usize,
    },
    /// An all-to-all from a dim to itself.
    #[error("an all-to-all needs two dims")]
    SameDim,
    /// A permute that changes the local shape or the partial axes, or changes nothing.
    #[error("a collective-permute keeps the local shape and the partial axes, and moves something")]
    NotAPermutation,
    /// An exchange between layouts that are split by different axes, or that is an all-to-all or a
    /// permute, or changes nothing.
    #[error(
        "an exchange keeps the axes that split and the partial axes, and is no all-to-all and no \
            permute"
    )]
    NotAnExchange,
    /// A gather or scatter over several dims that changes fewer than two dims, or changes something
    /// else.
    #[error("a move along several dims changes two or more of them, each at its minor end")]
    NotSeveralDims,
    /// A move other than a merge of a `partialsoftmax` value.
    #[error("the value is the attention over a part of the keys: it is merged before it moves")]
    NotMerged,
    /// A partial maximum is completed while a partial sum is left inside it.
    #[error("a partial maximum can be completed only after the partial sum inside it")]
    SumInsideMax,
}

impl Collective {
    /// The layout after the move, or why it does not apply. This is the only definition of the
    /// moves: the checker, the e-graph, the cost model, the verifier and the interpreter all use
    /// it.
    pub fn apply(&self, shape: MeshShape<'_>, from: Layout) -> Result<Layout, CollectiveError> {
        use CollectiveError as E;
        let is_merge = matches!(self, Collective::SoftmaxMerge { .. });
        if !is_merge && !from.softmax_axes().is_empty() {
            return Err(E::NotMerged);
        }
        match *self {
            Collective::SoftmaxMerge { dim, axes, statistics } => {
                check_axes(&axes)?;
                if let Some(axis) = axes.iter().find(|a| from.place(*a) != Place::PartialSoftmax) {
                    return Err(E::NotPartial { axis });
                }
                if let Some(dim) = statistics.iter().find(|dim| *dim >= shape.rank()) {
                    return Err(E::NoSuchDim(dim));
                }
                match dim {
                    Some(dim) => append(shape, from, dim, &axes),
                    None => Ok(axes.iter().fold(from, Layout::with_replicated)),
                }
            }
            Collective::AllGather { dim, axes } => {
                let kept = strip_suffix(shape, from, dim, &axes)?;
                Ok(from.with_dim(dim, kept))
            }
            Collective::Slice { dim, axes } => {
                check_replicated(from, &axes)?;
                append(shape, from, dim, &axes)
            }
            Collective::ReduceScatter { kind, dim, axes } => {
                check_axes(&axes)?;
                check_partial(from, kind, axes.set())?;
                append(shape, from, dim, &axes)
            }
            Collective::AllReduce { kind, axes } => {
                if axes.is_empty() {
                    return Err(E::NoAxes);
                }
                check_partial(from, kind, axes)?;
                Ok(axes.iter().fold(from, Layout::with_replicated))
            }
            Collective::AllToAll { from_dim, to_dim, axes } => {
                if from_dim == to_dim {
                    return Err(E::SameDim);
                }
                let kept = strip_suffix(shape, from, from_dim, &axes)?;
                append(shape, from.with_dim(from_dim, kept), to_dim, &axes)
            }
            Collective::Permute { to } => {
                let same_partials = from.is_partial_like(to);
                if from == to
                    || !same_partials
                    || !shape.admits(to)
                    || shape.local_sizes(from) != shape.local_sizes(to)
                {
                    return Err(E::NotAPermutation);
                }
                Ok(to)
            }
            Collective::Exchange { to } => {
                let between = regroup::between(shape, from, to);
                let is_one = matches!(between, Some(Collective::Exchange { .. }));
                if is_one && shape.admits(to) { Ok(to) } else { Err(E::NotAnExchange) }
            }
            Collective::AllGatherDims { to } => gather_dims(from, to),
            Collective::ReduceScatterDims { kind, to } => scatter_dims(shape, from, to, kind),
            Collective::ToPartial { kind, dim: None, axes } => {
                check_replicated(from, &axes)?;
                Ok(axes.iter().fold(from, |l, a| l.with_partial(a, kind)))
            }
            Collective::ToPartial { kind, dim: Some(dim), axes } => {
                let kept = strip_suffix(shape, from, dim, &axes)?;
                Ok(axes.iter().fold(from.with_dim(dim, kept), |l, a| l.with_partial(a, kind)))
            }
        }
    }

    /// Every move that applies to a layout, with the layout after it, in a fixed order. Moves to a
    /// partial sum are listed for axes in `sums`, to a partial maximum for axes in `maxima`.
    pub fn all_from(
        shape: MeshShape<'_>,
        from: Layout,
        sums: AxisSet,
        maxima: AxisSet,
    ) -> Vec<(Collective, Layout)> {
        let mut found = Collective::all_but_exchanges_from(shape, from, sums, maxima);
        for to in shape.layouts_like(from) {
            if let Some(exchange @ Collective::Exchange { .. }) =
                Collective::regrouping(shape, from, to)
            {
                found.push((exchange, to));
            }
        }
        found
    }

    /// The same without exchanges, which are by far the most numerous: [`Collective::regrouping`]
    /// tells whether one leads to a given layout.
    pub fn all_but_exchanges_from(
        shape: MeshShape<'_>,
        from: Layout,
        sums: AxisSet,
        maxima: AxisSet,
    ) -> Vec<(Collective, Layout)> {
        let mut found = Collective::along_one_dim_from(shape, from, sums, maxima);
        let mut offer = |c: Collective| {
            if let Ok(to) = c.apply(shape, from) {
                found.push((c, to));
            }
        };
        for to in regroup::gathers(shape, from) {
            offer(Collective::AllGatherDims { to });
        }
        for kind in [Reduction::Sum, Reduction::Max] {
            for to in regroup::scatters(shape, from, kind) {
                offer(Collective::ReduceScatterDims { kind, to });
            }
        }
        found
    }

    /// The same without gathers and scatters along several dims: one dim changes, or two in an
    /// all-to-all, or blocks change places.
    pub fn along_one_dim_from(
        shape: MeshShape<'_>,
        from: Layout,
        sums: AxisSet,
        maxima: AxisSet,
    ) -> Vec<(Collective, Layout)> {
        let mut found = Vec::new();
        let mut offer = |c: Collective| {
            if let Ok(to) = c.apply(shape, from) {
                found.push((c, to));
            }
        };
        let replicated = from.replicated_axes(shape.mesh);
        for dim in 0..shape.rank() {
            let axes = from.axes_of(dim);
            for keep in 0..axes.len() {
                let tail = axes.suffix_from(keep);
                offer(Collective::AllGather { dim, axes: tail });
                for to_dim in (0..shape.rank()).filter(|d| *d != dim) {
                    offer(Collective::AllToAll { from_dim: dim, to_dim, axes: tail });
                }
                for (kind, allowed) in [(Reduction::Sum, sums), (Reduction::Max, maxima)] {
                    if tail.set().is_subset(allowed) {
                        offer(Collective::ToPartial { kind, dim: Some(dim), axes: tail });
                    }
                }
            }
            for list in AxisList::arrangements(replicated) {
                offer(Collective::Slice { dim, axes: list });
            }
            for kind in [Reduction::Sum, Reduction::Max] {
                for list in AxisList::arrangements(from.partial(kind)) {
                    offer(Collective::ReduceScatter { kind, dim, axes: list });
                }
            }
        }
        for kind in [Reduction::Sum, Reduction::Max] {
            for axes in from.partial(kind).nonempty_subsets() {
                offer(Collective::AllReduce { kind, axes });
            }
        }
        for (kind, allowed) in [(Reduction::Sum, sums), (Reduction::Max, maxima)] {
            for axes in replicated.intersection(allowed).nonempty_subsets() {
                offer(Collective::ToPartial { kind, dim: None, axes: axes.iter().collect() });
            }
        }
        for to in permutations(shape, from) {
            offer(Collective::Permute { to });
        }
        found
    }

    /// The all-to-all, permute or exchange between two layouts that the same axes split, partial
    /// over the same axes. `None` where other axes split the value, or nothing changes. Both
    /// layouts must be legal.
    pub fn regrouping(shape: MeshShape<'_>, from: Layout, to: Layout) -> Option<Collective> {
        regroup::between(shape, from, to)
    }

    /// The layouts after an all-gather along two dims or more.
    pub fn gathers_along_several(shape: MeshShape<'_>, from: Layout) -> Vec<Layout> {
        regroup::gathers(shape, from)
    }

    /// The layouts after a reduce-scatter along two dims or more.
    pub fn scatters_along_several(
        shape: MeshShape<'_>,
        from: Layout,
        kind: Reduction,
    ) -> Vec<Layout> {
        regroup::scatters(shape, from, kind)
    }

    /// The merges of a `partialsoftmax` value, with the layout after each; empty for any other
    /// layout.
    pub fn merges_from(
        shape: MeshShape<'_>,
        from: Layout,
        statistics: DimSet,
    ) -> Vec<(Collective, Layout)> {
        let mut found = Vec::new();
        for axes in from.softmax_axes().nonempty_subsets() {
            let axes = axes.iter().collect();
            let merge = Collective::SoftmaxMerge { dim: None, axes, statistics };
            found.extend(merge.apply(shape, from).ok().map(|to| (merge, to)));
        }
        for dim in 0..shape.rank() {
            for axes in AxisList::arrangements(from.softmax_axes()) {
                let merge = Collective::SoftmaxMerge { dim: Some(dim), axes, statistics };
                found.extend(merge.apply(shape, from).ok().map(|to| (merge, to)));
            }
        }
        found
    }

    /// Whether a device holds more after the move than before: the blocks of others, or its own
    /// block among neutral elements.
    pub fn makes_more(&self) -> bool {
        self.row().gathers || matches!(self, Collective::ToPartial { dim: Some(_), .. })
    }

    /// The dims that an all-gather or a reduce-scatter changes, if the value is in the layout
    /// `from`: each with the axes that it loses or gains, major to minor. Empty for other moves.
    pub fn parts(&self, from: Layout) -> Vec<(usize, AxisList)> {
        let row = self.row();
        if row.sends != Sends::Around {
            return Vec::new();
        }
        let Terms { dims: [dim, _], axes, to, .. } = self.terms();
        match to {
            Some(to) if row.gathers => regroup::appended(to, from).unwrap_or_default(),
            Some(to) => regroup::appended(from, to).unwrap_or_default(),
            None => dim.zip(axes).into_iter().collect(),
        }
    }

    /// The axes that the move works over, major to minor; for a move along several dims, dim by
    /// dim. For a permute these are all axes whose place changes, and for an exchange all along
    /// which data travel, both in mesh order.
    pub fn axes(&self, mesh: &Mesh, from: Layout) -> AxisList {
        let Terms { axes, to, .. } = self.terms();
        match (axes, to, self.row().sends) {
            (Some(axes), ..) => axes,
            (None, Some(to), Sends::Blocks) => {
                mesh.axis_ids().filter(|a| from.place(*a) != to.place(*a)).collect()
            }
            (None, Some(to), Sends::Lacking) => regroup::crossed(mesh, from, to).iter().collect(),
            (None, ..) => self
                .parts(from)
                .into_iter()
                .fold(AxisList::EMPTY, |all, (_, axes)| all.concat(axes)),
        }
    }

    /// Which move it is.
    pub fn code(&self) -> Move {
        self.terms().code
    }

    /// Its row of the catalogue.
    pub fn row(&self) -> &'static MoveRow {
        self.code().row()
    }

    /// The parts of the move: which move it is, and what it names.
    pub fn terms(&self) -> Terms {
        let named = |code, kind, dims, axes| Terms { code, kind, dims, axes: Some(axes), to: None };
        let towards =
            |code, kind, to| Terms { code, kind, dims: [None; 2], axes: None, to: Some(to) };
        match *self {
            Collective::AllGather { dim, axes } => {
                named(Move::AllGather, None, [Some(dim), None], axes)
            }
            Collective::AllGatherDims { to } => towards(Move::AllGatherDims, None, to),
            Collective::Slice { dim, axes } => named(Move::Slice, None, [Some(dim), None], axes),
            Collective::ReduceScatter { kind, dim, axes } => {
                named(Move::ReduceScatter, Some(kind), [Some(dim), None], axes)
            }
            Collective::ReduceScatterDims { kind, to } => {
                towards(Move::ReduceScatterDims, Some(kind), to)
            }
            Collective::AllReduce { kind, axes } => {
                named(Move::AllReduce, Some(kind), [None; 2], axes.iter().collect())
            }
            Collective::AllToAll { from_dim, to_dim, axes } => {
                named(Move::AllToAll, None, [Some(from_dim), Some(to_dim)], axes)
            }
            Collective::Permute { to } => towards(Move::Permute, None, to),
            Collective::Exchange { to } => towards(Move::Exchange, None, to),
            Collective::SoftmaxMerge { dim, axes, .. } => {
                named(Move::SoftmaxMerge, None, [dim, None], axes)
            }
            Collective::ToPartial { kind, dim, axes } => {
                named(Move::ToPartial, Some(kind), [dim, None], axes)
            }
        }
    }

    /// Whether bytes travel between devices.
    pub fn has_traffic(&self) -> bool {
        self.row().sends != Sends::Nothing
    }

    /// The name in IR text and JSON: `all-gather`.
    pub fn name(&self) -> &'static str {
        self.row().name
    }
}

/// The layout after an all-gather along several dims.
fn gather_dims(from: Layout, to: Layout) -> Result<Layout, CollectiveError> {
    let gone = several(regroup::appended(to, from))?;
    arrives(gone.iter().fold(from, |l, (dim, _)| l.with_dim(*dim, to.axes_of(*dim))), to)
}

/// The layout after a reduce-scatter along several dims.
fn scatter_dims(
    shape: MeshShape<'_>,
    from: Layout,
    to: Layout,
    kind: Reduction,
) -> Result<Layout, CollectiveError> {
    let come = several(regroup::appended(from, to))?;
    let axes = come.iter().fold(AxisSet::EMPTY, |set, (_, axes)| set.union(axes.set()));
    check_partial(from, kind, axes)?;
    let cannot = |(dim, axes): &&(usize, AxisList)| {
        *dim >= shape.rank() || !shape.can_append(from, *dim, axes)
    };
    if let Some((dim, _)) = come.iter().find(cannot) {
        return Err(CollectiveError::NotDivisible { dim: *dim });
    }
    arrives(come.iter().fold(from, |l, (dim, _)| l.with_dim(*dim, to.axes_of(*dim))), to)
}

/// The changed dims of a move along several dims; an error where fewer than two change.
fn several<T>(parts: Option<Vec<T>>) -> Result<Vec<T>, CollectiveError> {
    parts.filter(|parts| parts.len() > 1).ok_or(CollectiveError::NotSeveralDims)
}

/// Checks that a move along several dims leads to the layout that it names.
fn arrives(at: Layout, to: Layout) -> Result<Layout, CollectiveError> {
    if at == to { Ok(to) } else { Err(CollectiveError::NotSeveralDims) }
}

fn check_replicated(from: Layout, axes: &AxisList) -> Result<(), CollectiveError> {
    check_axes(axes)?;
    match axes.iter().find(|a| from.place(*a) != Place::Replicated) {
        Some(axis) => Err(CollectiveError::NotReplicated { axis }),
        None => Ok(()),
    }
}

fn check_axes(axes: &AxisList) -> Result<(), CollectiveError> {
    if axes.is_empty() || axes.set().len() != axes.len() {
        return Err(CollectiveError::NoAxes);
    }
    Ok(())
}

fn check_partial(from: Layout, kind: Reduction, axes: AxisSet) -> Result<(), CollectiveError> {
    if let Some(axis) = axes.iter().find(|a| from.place(*a) != Place::Partial(kind)) {
        return Err(CollectiveError::NotPartial { axis });
    }
    if kind == Reduction::Max && !from.partial(Reduction::Sum).is_empty() {
        return Err(CollectiveError::SumInsideMax);
    }
    Ok(())
}

/// The axes of a dim without these minor-most axes.
fn strip_suffix(
    shape: MeshShape<'_>,
    from: Layout,
    dim: usize,
    axes: &AxisList,
) -> Result<AxisList, CollectiveError> {
    check_axes(axes)?;
    if dim >= shape.rank() {
        return Err(CollectiveError::NoSuchDim(dim));
    }
    let on_dim = from.axes_of(dim);
    if !on_dim.ends_with(axes) {
        return Err(CollectiveError::NotASuffix { dim });
    }
    Ok(on_dim.prefix(on_dim.len() - axes.len()))
}

/// The layout with additional axes, which split no dim yet, at the minor end of a dim.
fn append(
    shape: MeshShape<'_>,
    from: Layout,
    dim: usize,
    axes: &AxisList,
) -> Result<Layout, CollectiveError> {
    if dim >= shape.rank() {
        return Err(CollectiveError::NoSuchDim(dim));
    }
    if !shape.can_append(from, dim, axes) {
        return Err(CollectiveError::NotDivisible { dim });
    }
    Ok(from.with_dim(dim, from.axes_of(dim).concat(*axes)))
}

/// Every other layout with the same local shape and the same partial axes, in the order of
/// [`Layout`].
fn permutations(shape: MeshShape<'_>, from: Layout) -> Vec<Layout> {
    let free = shape.mesh.all_axes().difference(from.partial_axes());
    let counts: Vec<u64> =
        (0..shape.rank()).map(|d| shape.mesh.group_size(from.axes_of(d).iter())).collect();
    let bare = (0..shape.rank()).fold(from, |l, d| l.with_dim(d, AxisList::EMPTY));
    let mut found = vec![(bare, free)];
    for (dim, count) in counts.iter().enumerate().filter(|(_, c)| **c > 1) {
        let mut next = Vec::new();
        for (layout, free) in &found {
            for list in AxisList::arrangements(*free) {
                if shape.mesh.group_size(list.iter()) == *count {
                    next.push((layout.with_dim(dim, list), free.difference(list.set())));
                }
            }
        }
        found = next;
    }
    let mut layouts: Vec<Layout> =
        found.into_iter().map(|(l, _)| l).filter(|l| *l != from).collect();
    layouts.sort_unstable();
    layouts
}
