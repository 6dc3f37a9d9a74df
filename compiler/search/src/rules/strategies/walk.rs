//! All strategies of an op at once, axis by axis.

use std::ops::ControlFlow;

use shard_ir::{AxisId, AxisList, DimId, Layout, Reduction};

use super::{OpProfile, OpSite, StrategyVisitor};

impl OpSite<'_> {
    /// Visits every strategy of the op once. The set is that of [`OpSite::strategies`] over all
    /// layouts of the result, and is found faster: axis by axis, where each axis splits a dim of
    /// the iteration space at any place, or is one over which operands are partial together, or
    /// does nothing. `result_layouts` is used only for ops that regroup dims.
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
        // Axes may split a dim that operands have and that the result has, or that leaves it
        // partial. Of the dims that the result alone has, axes may split the one that each device
        // makes a part of.
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

/// The enumeration of the strategies of an op. Dims of the iteration space are numbered.
struct StrategyWalk<'a> {
    site: &'a OpSite<'a>,
    profile: &'a OpProfile,
    sizes: Vec<u64>,
    in_result: Vec<Option<usize>>,
    in_operands: Vec<Vec<Option<usize>>>,
    /// For each dim that vanishes, how the result is partial over an axis that splits it.
    leaves: Vec<Option<Reduction>>,
}

/// What the axes that were assigned so far do.
struct Assignment {
    /// The axes that split each dim.
    lists: Vec<AxisList>,
    /// For each operand, a layout that has its partial axes alone.
    partial: Vec<Layout>,
    /// The same for the result.
    result_partial: Layout,
    /// Scratch: the layouts of the operands.
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
        // The layout rule decides where two axes do not go together: a sum inside a maximum, or
        // anything beside a partial softmax.
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
