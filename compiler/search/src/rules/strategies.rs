//! Strategies: an op makes a layout from its operands in layouts that fit together.
//!
//! All that is known of an op here is the layout rule, [`result_layout_as`]. A small probe of the
//! rule on one axis tells which operands may be partial together, and which partial result a split
//! of a vanishing dim leaves. The rule confirms every strategy that is found.

mod walk;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use shard_ir::layout_rule::{deal, iteration_dim};
use shard_ir::{
    AxisId, AxisList, Dim, DimId, Dtype, Layout, Mesh, MeshShape, Op, Operand, Place, Reduction,
    never, result_layout_as,
};

/// Called with each strategy, as the layout of the result and those of the operands; returns
/// whether to go on.
pub type StrategyVisitor<'a> = dyn FnMut(Layout, &[Layout]) -> ControlFlow<()> + 'a;

/// An op with all that its strategies depend on: the types of its operands and the dims of its
/// result.
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
    /// Whether composites over a split dim are computed in pieces ([`pieces`](super::pieces)). They
    /// are not where every collective has to be written.
    pub in_pieces: bool,
}

/// What the layout rule says of an op, for one axis.
#[derive(Clone, Debug, Default)]
pub struct OpProfile {
    /// Dims of the iteration space that the result does not have, each with how the result is
    /// partial over an axis that splits the dim.
    vanishing: Vec<(DimId, Reduction)>,
    /// The sets of operands that may be partial sums together; the result then is one.
    inherit_sum: Vec<Vec<usize>>,
    /// The sets of operands that may be partial maxima together; the result then is one.
    inherit_max: Vec<Vec<usize>>,
    /// The operand that may be the attention over a part of the keys; the result then is, too. The
    /// op alone does not tell which.
    pub(crate) carries: Option<usize>,
}

impl<'a> OpSite<'a> {
    /// The layout of the result where the operands have these layouts; a dim that the result alone
    /// has is whole. `None` where the layouts do not fit together.
    pub fn result_layout(&self, layouts: &[Layout]) -> Option<Layout> {
        self.result_layout_as(layouts, Layout::REPLICATED)
    }

    /// The same, where a dim that the result alone has is split as in the layout `wanted`.
    pub fn result_layout_as(&self, layouts: &[Layout], wanted: Layout) -> Option<Layout> {
        if self.is_in_pieces(layouts) {
            // A composite in pieces makes its result in the layout of its operand.
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

    /// The dim of the iteration space that a dim of an operand is, if it may be split.
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

    /// The layouts of the operands where these axes split the dims of the iteration space, and the
    /// operands in `partials` are partial over each axis.
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

    /// Every strategy that makes the result in `target`, as one layout for each operand.
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

    /// Finds all strategies by giving each partial axis of the target each possible cause: it
    /// splits a vanishing dim, at any place among the axes of the dim, or operands are partial over
    /// it.
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
