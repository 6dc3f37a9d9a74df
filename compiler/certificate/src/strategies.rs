//! The strategies of an op: for each mesh axis what it does ([`actions`](crate::actions)), and for
//! each dim the order of the axes that split it.

use shard_ir::{AxisId, AxisList, DimId, Layout, Mesh, Op, never};

use crate::actions::{Along, PartialOperands, Site, To};

/// Called with each strategy: the layouts of the operands, and the layout of the result.
type Visit<'v> = dyn FnMut(&[Layout], Layout) + 'v;

impl Site<'_> {
    /// Every strategy of the op, each once.
    pub fn for_each_strategy(&self, visit: &mut Visit<'_>) {
        let (alongs, partial_together) = (self.alongs(), self.partial_together());
        let walk = Walk { site: self, alongs: &alongs, partial_together: &partial_together };
        let mut state = State {
            axes_of: vec![AxisList::EMPTY; alongs.len()],
            operands: vec![Layout::REPLICATED; self.operands.len()],
            result: Layout::REPLICATED,
        };
        walk.let_act(0, &mut state, visit);
    }
}

struct Walk<'a> {
    site: &'a Site<'a>,
    alongs: &'a [Along],
    partial_together: &'a [PartialOperands],
}

/// What the axes that are decided so far do.
#[derive(Clone)]
struct State {
    /// For each dim, the axes that split it, major to minor.
    axes_of: Vec<AxisList>,
    /// The layouts of the operands, so far with their partial axes alone.
    operands: Vec<Layout>,
    result: Layout,
}

impl Walk<'_> {
    /// Visits all strategies in which the axes before `axis` do what the state says.
    fn let_act(&self, axis: usize, state: &mut State, visit: &mut Visit<'_>) {
        if axis == self.site.mesh.axes().len() {
            self.visit(state, visit);
            return;
        }
        let id = AxisId(axis as u8);
        // Nothing.
        self.let_act(axis + 1, state, visit);
        // It splits a dim, at any place among the axes that split it already.
        for (dim, along) in self.alongs.iter().enumerate() {
            let others = state.axes_of[dim];
            let devices = self.site.mesh.group_size(others.iter()) * self.site.mesh.size(id);
            if !along.size.is_multiple_of(devices) {
                continue;
            }
            let result = state.result;
            if let To::Combined(kind) = along.to {
                state.result = result.with_partial(id, kind);
            }
            for place in 0..=others.len() {
                state.axes_of[dim] =
                    others.prefix(place).then(id).concat(others.suffix_from(place));
                self.let_act(axis + 1, state, visit);
            }
            state.axes_of[dim] = others;
            state.result = result;
        }
        // Operands are partial over it.
        for (kind, operands) in self.partial_together {
            let before = state.clone();
            operands
                .iter()
                .for_each(|i| state.operands[*i] = state.operands[*i].with_partial(id, *kind));
            state.result = state.result.with_partial(id, *kind);
            self.let_act(axis + 1, state, visit);
            *state = before;
        }
        // One operand is `partialsoftmax` over it.
        if let Some(operand) = self.site.carries {
            let before = state.clone();
            state.operands[operand] = state.operands[operand].with_softmax(id);
            state.result = state.result.with_softmax(id);
            self.let_act(axis + 1, state, visit);
            *state = before;
        }
    }

    fn visit(&self, state: &State, visit: &mut Visit<'_>) {
        // A result that is `partialsoftmax` is partial in no other way.
        let softmax = state.result.softmax_axes();
        if !softmax.is_empty() && state.result.partial_axes() != softmax {
            return;
        }
        let (mut operands, mut result) = (state.operands.clone(), state.result);
        for (along, axes) in
            self.alongs.iter().zip(&state.axes_of).filter(|(_, axes)| !axes.is_empty())
        {
            for (operand, dim) in &along.read {
                operands[*operand] = operands[*operand].with_dim(*dim, *axes);
            }
            match along.to {
                To::Dim(dim) => result = result.with_dim(dim, *axes),
                To::Combined(_) => {}
                To::Regrouped => {
                    let (parts, layout, dims) = match self.site.op {
                        Op::Merge { from, to } => {
                            let Some(at) = self.site.result.iter().position(|d| d == to) else {
                                never!("a merge into a dim that its result lacks", return)
                            };
                            result = result.with_dim(at, *axes);
                            (from, &mut operands[0], self.site.operands[0].0)
                        }
                        Op::Split { to, .. } => (to, &mut result, self.site.result),
                        _ => never!(
                            "an op that regroups no dims, of which some are regrouped",
                            return
                        ),
                    };
                    let Some(dealt) = self.dealt(*axes, parts) else { return };
                    for (part, axes) in parts.iter().zip(dealt).filter(|(_, axes)| !axes.is_empty())
                    {
                        let Some(at) = dims.iter().position(|d| d == part) else {
                            never!("a part that the tensor of parts lacks", return)
                        };
                        *layout = layout.with_dim(at, axes);
                    }
                }
            }
        }
        visit(&operands, result);
    }

    fn dealt(&self, axes: AxisList, parts: &[DimId]) -> Option<Vec<AxisList>> {
        let sizes: Vec<u64> = parts.iter().map(|d| self.site.size(*d)).collect();
        dealt(axes, &sizes, self.site.mesh)
    }
}

/// The axes of a whole dim dealt out to its parts, major to minor: a part takes axes until it has a
/// device for each of its entries, and then the next part does. `None` where an axis would fall on
/// two parts.
fn dealt(axes: AxisList, parts: &[u64], mesh: &Mesh) -> Option<Vec<AxisList>> {
    let mut dealt = vec![AxisList::EMPTY; parts.len()];
    let mut left: Vec<u64> = parts.to_vec();
    for axis in axes.iter() {
        let part = left.iter().position(|left| *left > 1)?;
        if !left[part].is_multiple_of(mesh.size(axis)) {
            return None;
        }
        left[part] /= mesh.size(axis);
        dealt[part] = dealt[part].then(axis);
    }
    Some(dealt)
}
