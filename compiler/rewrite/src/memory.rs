//! Memory as a constraint: what can be told of a plan's need before the plan is there.
//!
//! What a plan needs is one figure, [`Memory::peak`]. Of it a search can know beforehand, and never too much: what weights
//! and caches take, in the layouts chosen so far and else in the smallest that their types allow; and what any one
//! kernel or move has to hold beside them while it runs.

use std::collections::BTreeMap;

use shard_cost::Memory;
use shard_ir::{Def, Layout, MeshShape, Op, ParameterKind, Plan, Program, ValueId};

use crate::kernel::Kernels;
use crate::space::maxima;
use crate::table::{Producer, Source, Tables};

/// What a plan needs on each device, over the whole stack, in bytes.
pub(crate) fn needed(plan: &Plan) -> u64 {
    Memory::of(plan).peak().0
}

/// What plans must fit in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Within {
    /// The memory of a device, in bytes.
    pub(crate) capacity: u64,
    /// So much of it weights and caches may take, over the whole stack.
    pub(crate) kept: u64,
}

impl Within {
    /// A device whose memory weights and caches may fill.
    pub(crate) fn device(capacity: u64) -> Within {
        Within { capacity, kept: capacity }
    }
}

/// The memory of a device, and what is known of a program's need.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    program: &'a Program,
    within: Within,
    /// For each weight and cache, what it takes at least, over the whole stack; 0 for other values.
    least: Vec<u64>,
}

impl<'a> Room<'a> {
    pub(crate) fn new(program: &'a Program, within: Within) -> Room<'a> {
        let mut room = Room { program, within, least: vec![0; program.values.len()] };
        let maxima = maxima(program);
        for id in program.value_ids() {
            if let Def::Parameter { kind: ParameterKind::Weight | ParameterKind::Cache, pattern } =
                &program.value(id).def
            {
                let sizes = program.sizes(&program.value(id).dims);
                let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
                let stored = pattern.candidates(shape, program.mesh.all_axes(), maxima);
                room.least[id.index()] = stored.into_iter().map(|l| room.kept(id, l)).min().unwrap_or(0);
            }
        }
        room
    }

    /// What the weights and caches of any plan take at least, over the whole stack.
    pub(crate) fn least(&self) -> u64 {
        self.least.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether a plan that needs so many bytes fits.
    pub(crate) fn holds(&self, needed: u64) -> bool {
        needed <= self.within.capacity
    }

    /// What weights and caches may take beyond the least.
    pub(crate) fn spare(&self) -> u64 {
        self.within.kept.saturating_sub(self.least())
    }

    /// What is free beside the smallest weights and caches.
    fn free(&self) -> u64 {
        self.within.capacity.saturating_sub(self.least())
    }

    /// What a parameter that is stored in a layout takes beyond the least; 0 for activations and weights of the host,
    /// which come and go.
    pub(crate) fn beyond_least(&self, value: ValueId, layout: Layout) -> u64 {
        match &self.program.value(value).def {
            Def::Parameter { kind: ParameterKind::Weight | ParameterKind::Cache, .. } => {
                self.kept(value, layout).saturating_sub(self.least[value.index()])
            }
            Def::Parameter { kind: ParameterKind::Activation | ParameterKind::HostWeight, .. }
            | Def::Constant(_)
            | Def::Op { .. }
            | Def::Pin { .. } => 0,
        }
    }

    /// Drops from the tables what leaves no room even beside the smallest weights and caches. No plan that fits uses it.
    pub(crate) fn prune(&self, kernels: &Kernels, tables: &mut Tables) {
        let (free, spare) = (self.free(), self.spare());
        let stored: Vec<Vec<bool>> = tables
            .values
            .iter()
            .map(|t| t.producers.iter().map(|all| all.iter().any(|p| p.source == Source::Given)).collect())
            .collect();
        let layouts: Vec<Vec<Layout>> = tables.values.iter().map(|t| t.layouts.clone()).collect();
        // What holding a value in a layout adds to the weights and caches: nothing where it may be one of them.
        let held = |value: ValueId, layout: u32| {
            let (origin, viewed) = self.origin(value);
            let is_kept = match self.program.value(origin).def {
                Def::Parameter { kind, .. } => kind != ParameterKind::Activation,
                Def::Constant(_) => true,
                Def::Op { .. } | Def::Pin { .. } => false,
            };
            let bytes = self.bytes(value, layouts[value.index()][layout as usize]);
            let free_of_charge = is_kept && (viewed || origin != value || stored[value.index()][layout as usize]);
            (origin, if free_of_charge { 0 } else { bytes })
        };
        for id in self.program.value_ids() {
            for layout in 0..layouts[id.index()].len() as u32 {
                let made = held(id, layout).1;
                let fits = |producer: &Producer| match producer.source {
                    Source::Given => self.beyond_least(id, layouts[id.index()][layout as usize]) <= spare,
                    Source::Pin => true,
                    Source::Kernel(number, _) => {
                        let kernel = &kernels.of[id.index()][number];
                        let mut read: BTreeMap<ValueId, u64> = BTreeMap::new();
                        for (operand, layout) in &producer.reads {
                            let (origin, bytes) = held(*operand, *layout);
                            let known = read.entry(origin).or_default();
                            *known = bytes.max(*known);
                        }
                        let made = if kernel.chain.last().is_some_and(|op| self.is_view(*op)) { 0 } else { made };
                        read.into_values().fold(made, u64::saturating_add) <= free
                    }
                };
                let table = &mut tables.values[id.index()];
                table.producers[layout as usize].retain(fits);
                table.arcs_into[layout as usize].retain(|arc| held(id, arc.from).1.saturating_add(made) <= free);
                table.arcs_from[layout as usize].retain(|(to, _)| held(id, *to).1.saturating_add(made) <= free);
            }
        }
    }

    /// Which strategies of an op leave room, by the layout that it makes and those that it reads; `None` for what is no op.
    ///
    /// Of one op and not of a kernel, so what may pass between members of a kernel counts for nothing.
    pub(crate) fn strategies_of<'r>(
        &'r self,
        kernels: &'r Kernels,
        value: ValueId,
    ) -> Option<impl Fn(Layout, &[Layout]) -> bool + 'r> {
        let Def::Op { operands, .. } = &self.program.value(value).def else { return None };
        let free = self.free();
        let ends_a_kernel = !self.is_view(value) && !is_passed_on(kernels, value);
        let is_held: Vec<bool> = operands
            .iter()
            .map(|operand| match &self.program.value(self.origin(*operand).0).def {
                Def::Op { .. } => !is_passed_on(kernels, self.unpinned(*operand)),
                Def::Parameter { kind, .. } => *kind == ParameterKind::Activation,
                Def::Constant(_) | Def::Pin { .. } => false,
            })
            .collect();
        Some(move |out: Layout, read: &[Layout]| {
            let mut held: BTreeMap<ValueId, u64> = BTreeMap::new();
            for ((operand, layout), _) in operands.iter().zip(read).zip(&is_held).filter(|(_, held)| **held) {
                let known = held.entry(self.origin(*operand).0).or_default();
                *known = self.bytes(*operand, *layout).max(*known);
            }
            let made = if ends_a_kernel { self.bytes(value, out) } else { 0 };
            held.into_values().fold(made, u64::saturating_add) <= free
        })
    }

    fn unpinned(&self, mut value: ValueId) -> ValueId {
        while let Def::Pin { operand, .. } = &self.program.value(value).def {
            value = *operand;
        }
        value
    }

    fn bytes(&self, value: ValueId, layout: Layout) -> u64 {
        let value = self.program.value(value);
        let sizes = self.program.sizes(&value.dims);
        value.dtype.bytes(MeshShape { mesh: &self.program.mesh, sizes: &sizes }.local_elements(layout))
    }

    fn kept(&self, value: ValueId, layout: Layout) -> u64 {
        self.bytes(value, layout).saturating_mul(self.program.repeat).saturating_mul(self.program.copies(value))
    }

    /// Whether an op may give the memory of its first operand another name, and take none.
    fn is_view(&self, value: ValueId) -> bool {
        matches!(
            &self.program.value(value).def,
            Def::Op { op: Op::Rename { .. } | Op::Split { .. } | Op::Merge { .. } | Op::Append { .. }, .. }
        )
    }

    /// The value whose memory this one may be, and whether an op lies between.
    fn origin(&self, mut value: ValueId) -> (ValueId, bool) {
        let mut viewed = false;
        loop {
            match &self.program.value(value).def {
                Def::Pin { operand, .. } => value = *operand,
                Def::Op { operands, .. } if self.is_view(value) && !operands.is_empty() => {
                    viewed = true;
                    value = operands[0];
                }
                Def::Op { .. } | Def::Parameter { .. } | Def::Constant(_) => return (value, viewed),
            }
        }
    }
}

/// Whether a value may pass from op to op within a kernel, and then is in no memory.
fn is_passed_on(kernels: &Kernels, value: ValueId) -> bool {
    kernels.of.iter().flatten().any(|kernel| kernel.chain.iter().rev().skip(1).any(|link| *link == value))
}
