//! Making the factors of a program, readers before what they read.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use shard_cost::Hardware;
use shard_ir::composite::composite_dim;
use shard_ir::{Def, DimId, Dtype, Layout, Op, ValueId, never};

use super::super::Setting;
use super::super::graph::{Graph, NodeId};
use super::strategies::Strategies;
use super::{Factor, InKernel, KernelStates, allowed};
use crate::kernel::Kernels;
use crate::{LowerError, SearchLimit};

/// What ops must have in common to share a factor. Two values of one type may differ in the number
/// of their nodes, and so in the numbers of their kernel states, where one of them never moves: the
/// number of the first state is part of the key.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct FactorKey {
    op: Op,
    operands: Vec<(Vec<DimId>, Dtype, usize, bool)>,
    /// Whether an op makes the operand of a composite; the pieces of the composite are then
    /// different kernels.
    by_op: bool,
    result: (Vec<DimId>, Dtype),
    states: Vec<(NodeId, InKernel)>,
    first_state: usize,
    times: u64,
}

/// The factors of a program in the making.
pub(super) struct Builder<'s> {
    pub(super) graphs: Vec<Arc<Graph>>,
    pub(super) states: Vec<KernelStates>,
    pub(super) factors: Vec<Arc<Factor>>,
    pub(super) known: &'s mut FxHashMap<FactorKey, Arc<Factor>>,
    /// The factors whose strategies were counted against the limit; a shared factor is counted
    /// once.
    pub(super) counted: FxHashSet<*const Factor>,
    pub(super) exact: bool,
    /// How many more strategies the limit allows.
    pub(super) strategies_left: usize,
}

impl Builder<'_> {
    fn node(&self, value: ValueId, layout: Layout) -> Option<NodeId> {
        self.graphs[value.index()].node(layout)
    }

    pub(super) fn state(&mut self, value: ValueId, layout: NodeId, place: InKernel) -> NodeId {
        let base = self.graphs[value.index()].nodes() as NodeId;
        let states = &mut self.states[value.index()];
        *states.index.entry((layout, place)).or_insert_with(|| {
            states.of.push((layout, place));
            base + states.of.len() as NodeId - 1
        })
    }

    fn pin(&mut self, id: ValueId, operand: ValueId, allowed: &[NodeId]) -> Factor {
        let mut factor = Factor::passed(allowed);
        let base = self.graphs[id.index()].nodes() as NodeId;
        for i in 0..self.states[id.index()].of.len() {
            let (layout, place) = self.states[id.index()].of[i];
            if allowed.contains(&layout) {
                let read = self.state(operand, layout, place);
                factor.push(base + i as NodeId, [read], 0);
            }
        }
        factor
    }

    /// The factor of a value.
    ///
    /// # Errors
    ///
    /// When time is up, or the limit of strategies is reached.
    pub(super) fn factor(
        &mut self,
        kernels: &Kernels,
        setting: Setting<'_>,
        id: ValueId,
    ) -> Result<Arc<Factor>, LowerError> {
        let Setting { hardware, maxima, limits, .. } = setting;
        let program = kernels.program.as_ref();
        let def = &program.value(id).def;
        let factor = match def {
            Def::Parameter { pattern, .. } => {
                Factor::given(&allowed(&self.graphs, program, id, pattern, maxima))
            }
            Def::Constant(_) => Factor::given(self.node(id, Layout::REPLICATED).as_slice()),
            Def::Pin { operand, pattern, .. } => {
                let allowed = allowed(&self.graphs, program, id, pattern, maxima);
                self.pin(id, *operand, &allowed)
            }
            Def::Op { op, .. } => {
                limits.stop.check()?;
                let factor = self.op_shared(kernels, hardware, id, op);
                return factor.ok_or_else(|| limits.reached(SearchLimit::Strategies));
            }
        };
        Ok(Arc::new(Factor { arity: def.operands().len(), ..factor }))
    }

    /// The factor of an op, shared with the same op elsewhere. An op that joins a kernel has a
    /// factor of its own, since it also makes kernel states of what it reads. So has an op that may
    /// act on a part of an attention, which the op alone does not tell.
    fn op_shared(
        &mut self,
        kernels: &Kernels,
        hardware: &Hardware,
        id: ValueId,
        op: &Op,
    ) -> Option<Arc<Factor>> {
        let program = kernels.program.as_ref();
        let value = program.value(id);
        let operands = value.def.operands();
        let arity = operands.len();
        if kernels.fusible_operand(id).is_some()
            || kernels.attention(id).is_some()
            || kernels.joined(id).is_some()
            || kernels.carries(id).is_some()
        {
            return Some(Arc::new(Factor { arity, ..self.op(kernels, hardware, id)? }));
        }
        let origins: Vec<ValueId> = operands.iter().map(|o| kernels.origin_of(*o)).collect();
        let site = FactorKey {
            op: op.clone(),
            operands: operands
                .iter()
                .zip(&origins)
                .map(|(operand, origin)| {
                    let same = origins.iter().position(|o| o == origin);
                    let same = same.unwrap_or_else(|| never!("an origin that is not there", 0));
                    let constant = matches!(program.value(*origin).def, Def::Constant(_));
                    (
                        program.value(*operand).dims.clone(),
                        program.value(*operand).dtype,
                        same,
                        constant,
                    )
                })
                .collect(),
            by_op: composite_dim(op).is_some()
                && origins.iter().any(|o| matches!(program.value(*o).def, Def::Op { .. })),
            result: (value.dims.clone(), value.dtype),
            states: self.states[id.index()].of.clone(),
            first_state: self.graphs[id.index()].nodes(),
            times: value.times,
        };
        if let Some(known) = self.known.get(&site) {
            let strategies = known.out.len();
            if self.counted.insert(Arc::as_ptr(known)) {
                self.strategies_left = self.strategies_left.checked_sub(strategies)?;
            }
            return Some(Arc::clone(known));
        }
        let factor = Arc::new(Factor { arity, ..self.op(kernels, hardware, id)? });
        self.counted.insert(Arc::as_ptr(&factor));
        self.known.insert(site, Arc::clone(&factor));
        Some(factor)
    }

    /// The strategies of an op: alone, as the head of a kernel, and as a later member of one;
    /// `None` where they are more than the limit allows.
    fn op(&mut self, kernels: &Kernels, hardware: &Hardware, id: ValueId) -> Option<Factor> {
        let Some(profile) = kernels.profile(id) else { return Some(Factor::default()) };
        let left = self.strategies_left;
        let mut found = Strategies::new(self, kernels, hardware, id);
        let site = kernels.site(id);
        let result_layouts =
            if site.op.regroups() { Arc::clone(&found.own.layouts) } else { Arc::default() };
        let whole = site.for_each_strategy(profile, &result_layouts, &mut |result, layouts| {
            if found.factor.out.len() > left {
                return ControlFlow::Break(());
            }
            found.strategy(result, layouts);
            ControlFlow::Continue(())
        });
        if kernels.may_split_joined(id) {
            found.joins_parts();
        }
        let factor = found.factor;
        self.strategies_left = left.saturating_sub(factor.out.len());
        whole.is_continue().then_some(factor)
    }
}
