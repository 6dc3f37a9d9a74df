//! What the steps in the tables of an e-graph hold, and which of them have no room.

use std::collections::BTreeMap;

use shard_ir::{Def, Layout, ParameterKind, ValueId};

use super::{DeviceMemory, is_passed_on};
use crate::kernel::Kernels;
use crate::passing::Passing;
use crate::table::{Producer, Source, Tables};

impl<'a> DeviceMemory<'a> {
    /// Drops from the tables what does not fit even beside the smallest weights and caches: no plan
    /// that fits uses it. Returns the memory with the bound on activations that follows.
    pub(crate) fn prune(&self, kernels: &Kernels, tables: &mut Tables) -> DeviceMemory<'a> {
        self.drop_what_has_no_room(kernels, tables);
        let activations = self.least_activations(kernels, tables);
        let least = self.least.clone();
        let memory =
            DeviceMemory { least, activations: activations.max(self.activations), ..*self };
        // With a greater bound on activations there may be less room for weights and caches.
        memory.drop_what_has_no_room(kernels, tables);
        memory
    }

    fn drop_what_has_no_room(&self, kernels: &Kernels, tables: &mut Tables) {
        let (free, spare) = (self.free(), self.room());
        let held = self.held_by_producers(kernels, tables);
        for id in self.program.value_ids() {
            for layout in 0..held.layouts[id.index()].len() as u32 {
                let made = held.value(id, layout).1;
                let fits = |producer: &Producer| match producer.source {
                    Source::Given => {
                        let stored = held.layouts[id.index()][layout as usize];
                        self.beyond_least(id, stored) <= spare
                    }
                    Source::Pin => true,
                    Source::Kernel(..) => held.while_made(id, layout, producer) <= free,
                };
                let beside = made.saturating_add(held.passing.beside_moves(id));
                let table = &mut tables.values[id.index()];
                table.producers[layout as usize].retain(fits);
                table.arcs_into[layout as usize]
                    .retain(|arc| held.value(id, arc.from).1.saturating_add(beside) <= free);
                table.arcs_from[layout as usize]
                    .retain(|(to, _)| held.value(id, *to).1.saturating_add(beside) <= free);
            }
        }
    }

    /// What the activations take at least of any plan whose steps are in these tables. A kernel
    /// makes each value that no kernel passes on, and holds at least what the way of making it
    /// holds that holds least.
    pub(crate) fn least_activations(&self, kernels: &Kernels, tables: &Tables) -> u64 {
        let held = self.held_by_producers(kernels, tables);
        let while_made = |id: &ValueId| {
            let layouts = tables.values[id.index()].producers.iter().zip(0u32..);
            layouts
                .flat_map(|(all, layout)| all.iter().map(move |producer| (layout, producer)))
                .map(|(layout, producer)| held.while_made(*id, layout, producer))
                .min()
        };
        let is_made = |id: &ValueId| {
            let op = matches!(self.program.value(*id).def, Def::Op { .. });
            op && kernels.live[id.index()] && !is_passed_on(kernels, *id)
        };
        let most = self.program.value_ids().filter(is_made).filter_map(|id| while_made(&id)).max();
        most.unwrap_or(0).max(self.given)
    }

    fn held_by_producers<'h>(&'h self, kernels: &'h Kernels, tables: &Tables) -> HeldBySteps<'h> {
        let spare = self.room();
        let stored = |id: ValueId| {
            let table = tables.of(id);
            let may_be = |(made, layout): (&Vec<Producer>, &Layout)| {
                made.iter().any(|p| p.source == Source::Given)
                    && self.beyond_least(id, *layout) <= spare
            };
            table.producers.iter().zip(&table.layouts).map(may_be).collect()
        };
        let passing = Passing::of(kernels, self, &|id: ValueId| {
            tables.of(id).layouts.iter().map(|layout| self.bytes(id, *layout)).min()
        });
        HeldBySteps {
            memory: self,
            kernels,
            passing,
            stored: self.program.value_ids().map(stored).collect(),
            layouts: tables.values.iter().map(|t| t.layouts.clone()).collect(),
        }
    }
}

/// What the steps in tables hold beside the stored weights and caches.
struct HeldBySteps<'h> {
    memory: &'h DeviceMemory<'h>,
    kernels: &'h Kernels,
    passing: Passing,
    /// For each value and layout, whether the value may be stored in that layout.
    stored: Vec<Vec<bool>>,
    layouts: Vec<Vec<Layout>>,
}

impl HeldBySteps<'_> {
    /// The value whose memory a value in a layout is, and the bytes that holding it adds to the
    /// weights and caches: 0 where it may be one of them.
    fn value(&self, value: ValueId, layout: u32) -> (ValueId, u64) {
        let (origin, viewed) = self.memory.origin(value);
        let layout = self.layouts[value.index()][layout as usize];
        let as_given = self.layouts[origin.index()].iter().position(|given| *given == layout);
        let is_stored = as_given.is_some_and(|at| self.stored[origin.index()][at]);
        let free_of_charge = match self.memory.program.value(origin).def {
            Def::Parameter { kind: ParameterKind::Activation, .. } => false,
            Def::Parameter { kind: ParameterKind::Weight | ParameterKind::Cache, .. } => {
                viewed || is_stored
            }
            // A weight of the host is cut in the memory of the host.
            Def::Parameter { kind: ParameterKind::HostWeight, .. } => true,
            Def::Constant(_) => viewed || origin != value || is_stored,
            Def::Op { .. } | Def::Pin { .. } => false,
        };
        (origin, if free_of_charge { 0 } else { self.memory.bytes(value, layout) })
    }

    /// What is held while a kernel makes a value in a layout; 0 for a producer that is no kernel.
    fn while_made(&self, value: ValueId, layout: u32, producer: &Producer) -> u64 {
        let Source::Kernel(number, _) = producer.source else { return 0 };
        let kernel = &self.kernels.of[value.index()][number];
        let mut read: BTreeMap<ValueId, u64> = BTreeMap::new();
        for (operand, layout) in &producer.reads {
            let (origin, bytes) = self.value(*operand, *layout);
            let known = read.entry(origin).or_default();
            *known = bytes.max(*known);
        }
        let shares = kernel.chain.last().is_some_and(|op| self.memory.shares_memory(*op));
        let made = if shares { 0 } else { self.value(value, layout).1 };
        let passes = self.memory.passes(&self.passing, value, &kernel.operands);
        read.into_values().fold(made.saturating_add(passes), u64::saturating_add)
    }
}
