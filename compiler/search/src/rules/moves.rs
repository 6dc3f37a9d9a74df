//! Moves: a value in a layout is made from the same value in another.

use shard_ir::{
    AxisId, AxisList, AxisSet, Collective, DimSet, Layout, Mesh, MeshShape, Program, Reduction,
    ValueId,
};

/// The exchanges of a value are in the plan space only where no more than so many layouts are split
/// by the same axes: there is an exchange for each two of them. Three axes split a value of four
/// dims in 120 ways, four axes a value of three dims in 360 ways.
pub const MAX_EXCHANGED: usize = 128;

/// Which moves a value has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Freedom {
    /// All moves.
    Any,
    /// The moves without traffic. The value is in the memory of the host, from which each device
    /// fetches the part that it wants.
    Cuts,
    /// No moves. The value is stored before any step.
    Fixed,
}

/// All that the moves of a value depend on, besides the mesh and the partials of its program.
///
/// Moves are worked out from this alone and stored by it. So values share moves only where they are
/// equal in this.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Movable {
    /// The global sizes of its dims, in memory order.
    pub sizes: Vec<u64>,
    /// Which moves there are.
    pub freedom: Freedom,
    /// The dims of its statistics, where it may be the attention over a part of the keys.
    pub statistics: Option<DimSet>,
}

impl Movable {
    /// The movable of a value that is never the attention over a part of the keys.
    pub fn of(program: &Program, value: ValueId) -> Movable {
        let freedom = match program.value(value).times {
            0 => Freedom::Fixed,
            _ if program.in_host_memory(value) => Freedom::Cuts,
            _ => Freedom::Any,
        };
        Movable { sizes: program.sizes(&program.value(value).dims), freedom, statistics: None }
    }

    /// Every layout that it may have, in the order of [`Layout`]. The layouts of an attention over
    /// a part of the keys come behind all others, so that a pin on the value numbers the others
    /// alike.
    pub fn layouts(&self, mesh: &Mesh, sums: AxisSet, maxima: AxisSet) -> Vec<Layout> {
        let shape = MeshShape { mesh, sizes: &self.sizes };
        let mut layouts = shape.layouts(sums, maxima);
        if self.statistics.is_some() {
            layouts.extend(shape.softmax_layouts());
        }
        layouts
    }

    /// Whether exchanges from a layout are in the plan space: no more than [`MAX_EXCHANGED`]
    /// layouts are split by the same axes.
    pub fn is_exchanged(&self, mesh: &Mesh, from: Layout) -> bool {
        let like = || MeshShape { mesh, sizes: &self.sizes }.layouts_like(from);
        self.freedom == Freedom::Any
            && from.softmax_axes().is_empty()
            && like().len() <= MAX_EXCHANGED
    }

    /// Every move from a layout, with the layout that it leads to.
    pub fn moves_from(
        &self,
        mesh: &Mesh,
        from: Layout,
        sums: AxisSet,
        maxima: AxisSet,
    ) -> Vec<(Collective, Layout)> {
        let mut all = self.moves_but_exchanges_from(mesh, from, sums, maxima);
        if self.is_exchanged(mesh, from) {
            let like = MeshShape { mesh, sizes: &self.sizes }.layouts_like(from);
            all.extend(self.exchanges_to(mesh, from, like.into_iter()));
        }
        all
    }

    /// Every move from a layout but exchanges, with the layout that it leads to.
    pub fn moves_but_exchanges_from(
        &self,
        mesh: &Mesh,
        from: Layout,
        sums: AxisSet,
        maxima: AxisSet,
    ) -> Vec<(Collective, Layout)> {
        let shape = MeshShape { mesh, sizes: &self.sizes };
        let all = || match self.statistics {
            Some(statistics) if !from.softmax_axes().is_empty() => {
                Collective::merges_from(shape, from, statistics)
            }
            _ => Collective::all_but_exchanges_from(shape, from, sums, maxima),
        };
        match self.freedom {
            Freedom::Any => all(),
            Freedom::Cuts => {
                all().into_iter().filter(|(collective, _)| !collective.has_traffic()).collect()
            }
            Freedom::Fixed => Vec::new(),
        }
    }

    /// The exchanges from a layout to some layouts. Most moves are exchanges, so that they are made
    /// only for layouts that are looked at. The caller asks first whether the layout [is
    /// exchanged](Movable::is_exchanged).
    pub fn exchanges_to(
        &self,
        mesh: &Mesh,
        from: Layout,
        to: impl Iterator<Item = Layout>,
    ) -> Vec<(Collective, Layout)> {
        let shape = MeshShape { mesh, sizes: &self.sizes };
        let exchange = |to: Layout| {
            let found = Collective::regrouping(shape, from, to);
            let is_one = |found: &Collective| matches!(found, Collective::Exchange { .. });
            found.filter(is_one).map(|exchange| (exchange, to))
        };
        if !from.softmax_axes().is_empty() {
            return Vec::new();
        }
        to.filter_map(exchange).collect()
    }
}

/// The generating moves from a layout: chains of them take no longer than any other move, except
/// moves between layouts that the same axes split. They are slices and to-partials over one axis,
/// all-reduces over any axes, and all-gathers and reduce-scatters. The last two are over one axis
/// where the network `adds_up`, that is, where a chain of them costs what the merged move costs;
/// elsewhere they are over any axes and along any dims. A test compares the closure of these moves,
/// with all all-to-alls, permutes and exchanges, with that of [`Collective::all_from`].
pub fn generating_moves(
    shape: MeshShape<'_>,
    from: Layout,
    sums: AxisSet,
    maxima: AxisSet,
    adds_up: bool,
    found: &mut Vec<(Collective, Layout)>,
) {
    let terms = [Reduction::Sum, Reduction::Max].map(|kind| (kind, from.partial(kind)));
    // The candidates of a maximum are complete only once no terms of a sum are left.
    let completes_max = terms[0].1.is_empty();
    let mut generating = Generating {
        shape,
        from,
        terms: if completes_max { &terms } else { &terms[..1] },
        allowed: [(Reduction::Sum, sums), (Reduction::Max, maxima)],
        replicated: from.replicated_axes(shape.mesh),
        adds_up,
        found,
    };
    for dim in 0..shape.rank() {
        generating.undo_splits_of(dim);
        generating.split(dim);
    }
    if !adds_up {
        generating.along_several_dims();
    }
    generating.along_no_dim();
}

/// The generating moves from a layout, as they are found.
struct Generating<'m> {
    shape: MeshShape<'m>,
    from: Layout,
    /// What a move may combine, with the axes over which it is partial.
    terms: &'m [(Reduction, AxisSet)],
    /// The axes over which the value may be partial.
    allowed: [(Reduction, AxisSet); 2],
    replicated: AxisSet,
    /// Whether chains over one axis at a time cost what the merged move costs.
    adds_up: bool,
    found: &'m mut Vec<(Collective, Layout)>,
}

impl Generating<'_> {
    /// All-gathers along a dim, and to-partials of the axes that split it.
    fn undo_splits_of(&mut self, dim: usize) {
        let axes = self.from.axes_of(dim);
        for keep in 0..axes.len() {
            let (kept, tail) = (axes.prefix(keep), axes.suffix_from(keep));
            let without = self.from.with_dim(dim, kept);
            if tail.len() == 1 || !self.adds_up {
                self.found.push((Collective::AllGather { dim, axes: tail }, without));
            }
            let (1, Some(axis)) = (tail.len(), tail.get(0)) else { continue };
            for (kind, _) in self.allowed.iter().filter(|(_, allowed)| allowed.contains(axis)) {
                let partial = Collective::ToPartial { kind: *kind, dim: Some(dim), axes: tail };
                self.found.push((partial, without.with_partial(axis, *kind)));
            }
        }
    }

    /// Slices and reduce-scatters along a dim.
    fn split(&mut self, dim: usize) {
        let (shape, from) = (self.shape, self.from);
        let with = |axes: AxisList| {
            let to = || (axes, from.with_dim(dim, from.axes_of(dim).concat(axes)));
            shape.can_append(from, dim, &axes).then(to)
        };
        let with_one = |axis: AxisId| with(AxisList::EMPTY.then(axis));
        for (axes, to) in self.replicated.iter().filter_map(with_one) {
            self.found.push((Collective::Slice { dim, axes }, to));
        }
        for (kind, partial) in self.terms {
            let scatter = |(axes, to)| (Collective::ReduceScatter { kind: *kind, dim, axes }, to);
            self.found.extend(partial.iter().filter_map(with_one).map(scatter));
            if !self.adds_up {
                let lists = AxisList::arrangements(*partial).into_iter();
                let several = lists.filter(|list| list.len() > 1);
                self.found.extend(several.filter_map(with).map(scatter));
            }
        }
    }

    /// All-gathers and reduce-scatters along several dims at once.
    fn along_several_dims(&mut self) {
        let gathered = Collective::gathers_along_several(self.shape, self.from).into_iter();
        self.found.extend(gathered.map(|to| (Collective::AllGatherDims { to }, to)));
        for (kind, _) in self.terms {
            let scattered = Collective::scatters_along_several(self.shape, self.from, *kind);
            let scatter = |to| (Collective::ReduceScatterDims { kind: *kind, to }, to);
            self.found.extend(scattered.into_iter().map(scatter));
        }
    }

    /// All-reduces, and to-partials over axes over which the value is replicated.
    fn along_no_dim(&mut self) {
        for (kind, partial) in self.terms {
            for axes in partial.nonempty_subsets() {
                let to = axes.iter().fold(self.from, Layout::with_replicated);
                self.found.push((Collective::AllReduce { kind: *kind, axes }, to));
            }
        }
        for (kind, allowed) in self.allowed {
            for axis in self.replicated.intersection(allowed).iter() {
                let axes = AxisList::EMPTY.then(axis);
                let partial = Collective::ToPartial { kind, dim: None, axes };
                self.found.push((partial, self.from.with_partial(axis, kind)));
            }
        }
    }
}

/// The all-to-alls from a layout.
pub(crate) fn all_to_alls(
    shape: MeshShape<'_>,
    from: Layout,
    found: &mut Vec<(Collective, Layout)>,
) {
    for from_dim in 0..shape.rank() {
        let axes_of = from.axes_of(from_dim);
        for keep in 0..axes_of.len() {
            let (without, axes) =
                (from.with_dim(from_dim, axes_of.prefix(keep)), axes_of.suffix_from(keep));
            for to_dim in
                (0..shape.rank()).filter(|d| *d != from_dim && shape.can_append(without, *d, &axes))
            {
                let to = without.with_dim(to_dim, without.axes_of(to_dim).concat(axes));
                found.push((Collective::AllToAll { from_dim, to_dim, axes }, to));
            }
        }
    }
}
