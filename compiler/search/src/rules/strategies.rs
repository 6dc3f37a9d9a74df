//! Strategies: an op in a layout, from its operands in layouts that fit together.
//!
//! Nothing about any op is known here but what [`result_layout_as`] says: a small probe of it, axis
//! by axis, tells which operands may be partial together and what a split of a vanishing dim leaves
//! behind; every strategy found is one that [`result_layout_as`] confirms.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use shard_ir::layout_rule::{deal, iteration_dim};
use shard_ir::{
    AxisId, AxisList, Dim, DimId, Dtype, Layout, Mesh, MeshShape, Op, Operand, Place, Reduction,
    never, result_layout_as,
};

/// What is done with a strategy: the layout of the result, those of the operands; says whether to
/// go on.
pub type StrategyVisitor<'a> = dyn FnMut(Layout, &[Layout]) -> ControlFlow<()> + 'a;

/// An op with the types of its operands and the dims of its result: all that strategies depend on.
#[derive(Clone, Debug)]
pub struct OpSite<'a> {
    /// The op.
    pub op: &'a Op,
    /// Dims and dtype of each operand.
    pub operands: Vec<(&'a [DimId], Dtype)>,
    /// Dims of the result.
    pub result: &'a [DimId],
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The dims of the program.
    pub dims: &'a [Dim],
    /// Whether composites over a split dim are computed in pieces ([`pieces`](super::pieces)): not
    /// where every collective has to be written.
    pub in_pieces: bool,
}

/// What [`result_layout_as`] says of an op, one axis at a time.
#[derive(Clone, Debug, Default)]
pub struct OpProfile {
    /// Dims of the iteration space that the result lacks, each with what an axis on it leaves: the
    /// result partial.
    vanishing: Vec<(DimId, Reduction)>,
    /// The sets of operands that may be partial together, so that the result is.
    inherit_sum: Vec<Vec<usize>>,
    inherit_max: Vec<Vec<usize>>,
    /// The operand that may be the attention over a part of the keys, so that the result is. The op
    /// alone does not tell.
    pub(crate) carries: Option<usize>,
}

impl<'a> OpSite<'a> {
    /// The layout of the result when the operands have these layouts, and a dim that it alone has
    /// is whole.
    pub fn result_layout(&self, layouts: &[Layout]) -> Option<Layout> {
        self.result_layout_as(layouts, Layout::REPLICATED)
    }

    /// The layout of the result when the operands have these layouts, and a dim that it alone has
    /// is split as in the one that is wanted.
    pub fn result_layout_as(&self, layouts: &[Layout], wanted: Layout) -> Option<Layout> {
        if self.is_in_pieces(layouts) {
            // Each device has its part of the result where it has that of the operand.
            let order: Option<Vec<usize>> = self
                .result
                .iter()
                .map(|d| self.operands[0].0.iter().position(|o| o == d))
                .collect();
            let whole = [Reduction::Sum, Reduction::Max]
                .iter()
                .all(|kind| layouts[0].partial(*kind).is_empty());
            return order.filter(|_| whole).map(|order| layouts[0].permuted(&order));
        }
        let operands = self.operands_in(layouts);
        result_layout_as(self.op, &operands, self.result, wanted, self.mesh, self.dims).ok()
    }

    /// The operands in these layouts.
    pub fn operands_in(&self, layouts: &[Layout]) -> Vec<Operand<'a>> {
        let operands = self.operands.iter().zip(layouts);
        operands.map(|(&(dims, dtype), &layout)| Operand { dims, dtype, layout }).collect()
    }

    /// The dim of the iteration space that a dim of an operand is: one that may be split.
    fn iteration_dim(&self, operand: usize, dim: DimId) -> Option<DimId> {
        match self.dim_in_pieces() {
            Some(over) if dim == over => Some(over),
            _ => iteration_dim(self.op, operand, dim),
        }
    }

    fn size(&self, dim: DimId) -> u64 {
        self.dims[dim.index()].size
    }

    /// Probes the layout rule of the op on a mesh of one axis that divides everything it has to.
    pub fn profile(&self) -> OpProfile {
        let Ok(mesh) = Mesh::new([("probe", 2)]) else {
            never!("no mesh of one axis", return OpProfile::default())
        };
        let dims: Vec<Dim> = self
            .dims
            .iter()
            .map(|d| Dim { name: d.name.clone(), size: 2 * d.size, useful: d.useful })
            .collect();
        let axis = AxisId(0);
        let probe = OpSite { mesh: &mesh, dims: &dims, ..self.clone() };
        let outcome = |layouts: &[Layout]| probe.result_layout(layouts).map(|l| l.place(axis));

        let mut vanishing = Vec::new();
        if !self.op.regroups() {
            let mut seen: Vec<DimId> = Vec::new();
            for (i, (operand, _)) in self.operands.iter().enumerate() {
                seen.extend(operand.iter().filter_map(|d| self.iteration_dim(i, *d)));
            }
            seen.sort_unstable();
            seen.dedup();
            for dim in seen.into_iter().filter(|d| !self.result.contains(d)) {
                let lists = BTreeMap::from([(dim, AxisList::EMPTY.then(axis))]);
                if let Some(Place::Partial(kind)) = outcome(&self.project(&lists, &[])) {
                    vanishing.push((dim, kind));
                }
            }
        }
        let inherit = |kind: Reduction| {
            let count = self.operands.len();
            (1u32..1 << count.min(8))
                .map(|set| (0..count).filter(|i| set >> i & 1 == 1).collect::<Vec<usize>>())
                .filter(|set| {
                    let layouts: Vec<Layout> = (0..count)
                        .map(|i| {
                            if set.contains(&i) {
                                Layout::REPLICATED.with_partial(axis, kind)
                            } else {
                                Layout::REPLICATED
                            }
                        })
                        .collect();
                    outcome(&layouts) == Some(Place::Partial(kind))
                })
                .collect::<Vec<_>>()
        };
        OpProfile {
            vanishing,
            inherit_sum: inherit(Reduction::Sum),
            inherit_max: inherit(Reduction::Max),
            carries: None,
        }
    }

    /// Layouts of the operands when the dims of the iteration space have these axes and operands
    /// are partial so.
    fn project(
        &self,
        lists: &BTreeMap<DimId, AxisList>,
        partials: &[(AxisId, Reduction, &[usize])],
    ) -> Vec<Layout> {
        self.operands
            .iter()
            .enumerate()
            .map(|(i, (dims, _))| {
                let mut layout = Layout::REPLICATED;
                for (at, dim) in dims.iter().enumerate() {
                    if let Some(axes) = self.iteration_dim(i, *dim).and_then(|d| lists.get(&d)) {
                        layout = layout.with_dim(at, *axes);
                    }
                }
                for (axis, kind, operands) in partials {
                    if operands.contains(&i) {
                        layout = layout.with_partial(*axis, *kind);
                    }
                }
                layout
            })
            .collect()
    }

    /// Every way of having the result in `target`: one layout for each operand.
    pub fn strategies(&self, profile: &OpProfile, target: Layout) -> Vec<Vec<Layout>> {
        let mut lists: BTreeMap<DimId, AxisList> = BTreeMap::new();
        for (at, dim) in self.result.iter().enumerate() {
            let axes = target.axes_of(at);
            if !axes.is_empty() {
                lists.insert(*dim, axes);
            }
        }
        if let Op::Split { from, to } = self.op {
            let parts = to.iter().filter_map(|d| lists.remove(d));
            let whole = parts.fold(AxisList::EMPTY, AxisList::concat);
            lists.insert(*from, whole);
        }
        if let Op::Merge { from, to } = self.op {
            let sizes: Vec<u64> = from.iter().map(|d| self.size(*d)).collect();
            let whole = lists.remove(to).unwrap_or(AxisList::EMPTY);
            let Some(parts) = deal(whole, &sizes, self.mesh) else { return Vec::new() };
            lists.extend(from.iter().copied().zip(parts));
        }
        let partial: Vec<(AxisId, Reduction)> = [Reduction::Sum, Reduction::Max]
            .into_iter()
            .flat_map(|kind| target.partial(kind).iter().map(move |a| (a, kind)))
            .collect();
        let mut found = Vec::new();
        self.assign(profile, target, &partial, &mut lists, &mut Vec::new(), &mut found);
        found
    }

    /// Gives each partial axis of the target its cause in turn: a vanishing dim, at any place among
    /// its axes, or operands that are partial over it already.
    fn assign<'p>(
        &self,
        profile: &'p OpProfile,
        target: Layout,
        rest: &[(AxisId, Reduction)],
        lists: &mut BTreeMap<DimId, AxisList>,
        partials: &mut Vec<(AxisId, Reduction, &'p [usize])>,
        found: &mut Vec<Vec<Layout>>,
    ) {
        let Some(((axis, kind), rest)) = rest.split_first() else {
            let mut layouts = self.project(lists, partials);
            if let Some(part) = profile.carries.and_then(|place| layouts.get_mut(place)) {
                *part = target.softmax_axes().iter().fold(*part, Layout::with_softmax);
            }
            let legal = self.operands.iter().zip(&layouts).all(|((dims, _), layout)| {
                let sizes: Vec<u64> = dims.iter().map(|d| self.size(*d)).collect();
                MeshShape { mesh: self.mesh, sizes: &sizes }.admits(*layout)
            });
            if legal && self.result_layout_as(&layouts, target) == Some(target) {
                found.push(layouts);
            }
            return;
        };
        for (dim, _) in profile.vanishing.iter().filter(|(_, k)| k == kind) {
            let axes = lists.get(dim).copied().unwrap_or(AxisList::EMPTY);
            let devices = self.mesh.group_size(axes.iter()) * self.mesh.size(*axis);
            if !self.size(*dim).is_multiple_of(devices) {
                continue;
            }
            for at in 0..=axes.len() {
                lists.insert(*dim, axes.prefix(at).then(*axis).concat(axes.suffix_from(at)));
                self.assign(profile, target, rest, lists, partials, found);
            }
            lists.insert(*dim, axes);
        }
        let inherit = match kind {
            Reduction::Sum => &profile.inherit_sum,
            Reduction::Max => &profile.inherit_max,
        };
        for operands in inherit {
            partials.push((*axis, *kind, operands));
            self.assign(profile, target, rest, lists, partials, found);
            partials.pop();
        }
    }
}

impl OpSite<'_> {
    /// Every strategy of the op, each once: the layout of the result and those of the operands. The
    /// same set as [`OpSite::strategies`] over all layouts of the result, found faster: axis by
    /// axis, each free to split a dim of the iteration space at any place, to be partial in
    /// operands that may be so together, or to do nothing.
    pub fn for_each_strategy(
        &self,
        profile: &OpProfile,
        result_layouts: &[Layout],
        visit: &mut StrategyVisitor<'_>,
    ) -> ControlFlow<()> {
        if self.op.regroups() {
            for target in result_layouts {
                for operands in self.strategies(profile, *target) {
                    visit(*target, &operands)?;
                }
            }
            return ControlFlow::Continue(());
        }
        let mut dims: Vec<DimId> = self.result.to_vec();
        for (i, (operand, _)) in self.operands.iter().enumerate() {
            dims.extend(operand.iter().filter_map(|d| self.iteration_dim(i, *d)));
        }
        dims.sort_unstable();
        dims.dedup();
        // A dim that only the result has (a dim of a concat, say) is whole, but for one that each
        // device makes a part of; and so is one that vanishes into nothing.
        let own = self.op.own_dim();
        let dims: Vec<DimId> = dims
            .into_iter()
            .filter(|d| {
                let read = self.operands.iter().enumerate().any(|(i, (operand, _))| {
                    operand.iter().any(|o| self.iteration_dim(i, *o) == Some(*d))
                });
                own == Some(*d)
                    || read
                        && (self.result.contains(d)
                            || profile.vanishing.iter().any(|(v, _)| v == d))
            })
            .collect();
        let place_of = |operand: &[DimId], i: Option<usize>, d: DimId| {
            operand.iter().position(|o| match i {
                Some(i) => self.iteration_dim(i, *o) == Some(d),
                None => *o == d,
            })
        };
        let walk = StrategyWalk {
            site: self,
            profile,
            sizes: dims
                .iter()
                .map(|d| self.op.blocks_of(*d).unwrap_or_else(|| self.size(*d)))
                .collect(),
            in_result: dims.iter().map(|d| place_of(self.result, None, *d)).collect(),
            in_operands: self
                .operands
                .iter()
                .enumerate()
                .map(|(i, (operand, _))| {
                    dims.iter().map(|d| place_of(operand, Some(i), *d)).collect()
                })
                .collect(),
            leaves: dims
                .iter()
                .map(|d| profile.vanishing.iter().find(|(v, _)| v == d).map(|(_, kind)| *kind))
                .collect(),
        };
        let mut state = Assignment {
            lists: vec![AxisList::EMPTY; dims.len()],
            partial: vec![Layout::REPLICATED; self.operands.len()],
            result_partial: Layout::REPLICATED,
            operands: vec![Layout::REPLICATED; self.operands.len()],
        };
        walk.axis(0, &mut state, visit)
    }
}

/// What the enumeration needs to know of an op, by number of iteration dim.
struct StrategyWalk<'a> {
    site: &'a OpSite<'a>,
    profile: &'a OpProfile,
    sizes: Vec<u64>,
    in_result: Vec<Option<usize>>,
    in_operands: Vec<Vec<Option<usize>>>,
    /// What an axis on the dim leaves of the result, where the dim vanishes.
    leaves: Vec<Option<Reduction>>,
}

/// What the axes so far do.
struct Assignment {
    lists: Vec<AxisList>,
    /// For each operand, a layout that has its partial axes alone.
    partial: Vec<Layout>,
    result_partial: Layout,
    /// Scratch.
    operands: Vec<Layout>,
}

impl StrategyWalk<'_> {
    fn axis(
        &self,
        axis: u8,
        state: &mut Assignment,
        visit: &mut StrategyVisitor<'_>,
    ) -> ControlFlow<()> {
        if usize::from(axis) == self.site.mesh.axes().len() {
            return self.found(state, visit);
        }
        let id = AxisId(axis);
        self.axis(axis + 1, state, visit)?;
        for dim in 0..self.sizes.len() {
            let list = state.lists[dim];
            let devices = self.site.mesh.group_size(list.iter()) * self.site.mesh.size(id);
            if !self.sizes[dim].is_multiple_of(devices) {
                continue;
            }
            let before = state.result_partial;
            if let Some(kind) = self.leaves[dim] {
                state.result_partial = before.with_partial(id, kind);
            }
            for at in 0..=list.len() {
                state.lists[dim] = list.prefix(at).then(id).concat(list.suffix_from(at));
                self.axis(axis + 1, state, visit)?;
            }
            state.lists[dim] = list;
            state.result_partial = before;
        }
        for (kind, sets) in [
            (Reduction::Sum, &self.profile.inherit_sum),
            (Reduction::Max, &self.profile.inherit_max),
        ] {
            for set in sets {
                let before = state.result_partial;
                state.result_partial = before.with_partial(id, kind);
                for operand in set {
                    state.partial[*operand] = state.partial[*operand].with_partial(id, kind);
                }
                self.axis(axis + 1, state, visit)?;
                for operand in set {
                    state.partial[*operand] = state.partial[*operand].with_replicated(id);
                }
                state.result_partial = before;
            }
        }
        if let Some(place) = self.profile.carries {
            let before = (state.result_partial, state.partial[place]);
            state.result_partial = before.0.with_softmax(id);
            state.partial[place] = before.1.with_softmax(id);
            self.axis(axis + 1, state, visit)?;
            (state.result_partial, state.partial[place]) = before;
        }
        ControlFlow::Continue(())
    }

    fn found(&self, state: &mut Assignment, visit: &mut StrategyVisitor<'_>) -> ControlFlow<()> {
        let place = |mut layout: Layout, places: &[Option<usize>]| {
            for (list, at) in state.lists.iter().zip(places) {
                if let (false, Some(at)) = (list.is_empty(), at) {
                    layout = layout.with_dim(*at, *list);
                }
            }
            layout
        };
        let result = place(state.result_partial, &self.in_result);
        for (i, places) in self.in_operands.iter().enumerate() {
            state.operands[i] = place(state.partial[i], places);
        }
        // Rules that look at two axes at once (a sum inside a maximum, nothing beside a softmax)
        // have the last word.
        let partial = state.result_partial;
        if partial.partial(Reduction::Max).is_empty() && partial.softmax_axes().is_empty() {
            debug_assert_eq!(
                self.site.result_layout_as(&state.operands, result),
                Some(result),
                "{:?}",
                self.site.op
            );
        } else if self.site.result_layout_as(&state.operands, result) != Some(result) {
            return ControlFlow::Continue(());
        }
        visit(result, &state.operands)
    }
}
