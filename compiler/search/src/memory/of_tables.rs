//! What the steps in the tables of an e-graph hold, and which of them have no room.

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
            for (layout, stored) in tables.of(id).layouts.clone().into_iter().enumerate() {
                let made = held.value(id, layout as u32);
                let fits = |producer: &Producer| match producer.source {
                    Source::Given => self.beyond_least(id, stored) <= spare,
                    Source::Pin => true,
                    Source::Kernel(..) => held.while_made(id, layout as u32, producer) <= free,
                };
                let beside = made.saturating_add(held.passing.beside_moves(id));
                let table = &mut tables.values[id.index()];
                table.producers[layout].retain(fits);
                table.arcs_into[layout]
                    .retain(|arc| held.value(id, arc.from).saturating_add(beside) <= free);
                table.arcs_from[layout]
                    .retain(|(to, _)| held.value(id, *to).saturating_add(beside) <= free);
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
        let stored: Vec<Vec<bool>> = self.program.value_ids().map(stored).collect();
        let of_value = |id: ValueId| self.bytes_in_tables(tables, &stored, id);
        HeldBySteps {
            memory: self,
            kernels,
            passing,
            origins: self.program.value_ids().map(|id| self.origin(id).0).collect(),
            bytes: self.program.value_ids().map(of_value).collect(),
        }
    }

    /// For each layout of a value in the tables, the bytes that holding the value in it adds to the
    /// weights and caches: 0 where the value may be one of them. `stored` says for each value and
    /// layout whether the value may be stored so.
    fn bytes_in_tables(&self, tables: &Tables, stored: &[Vec<bool>], id: ValueId) -> Vec<u64> {
        let (origin, viewed) = self.origin(id);
        let given = &tables.of(origin).layouts;
        let is_stored = |layout: &Layout| {
            let as_given = given.iter().position(|given| given == layout);
            as_given.is_some_and(|at| stored[origin.index()][at])
        };
        let is_free_of_charge = |layout: &Layout| match self.program.value(origin).def {
            Def::Parameter { kind: ParameterKind::Activation, .. } => false,
            Def::Parameter { kind: ParameterKind::Weight | ParameterKind::Cache, .. } => {
                viewed || is_stored(layout)
            }
            // A weight of the host is cut in the memory of the host.
            Def::Parameter { kind: ParameterKind::HostWeight, .. } => true,
            Def::Constant(_) => viewed || origin != id || is_stored(layout),
            Def::Op { .. } | Def::Pin { .. } => false,
        };
        let bytes = |layout: &Layout| {
            if is_free_of_charge(layout) { 0 } else { self.bytes(id, *layout) }
        };
        tables.of(id).layouts.iter().map(bytes).collect()
    }
}

/// What the steps in tables hold beside the stored weights and caches.
struct HeldBySteps<'h> {
    memory: &'h DeviceMemory<'h>,
    kernels: &'h Kernels,
    passing: Passing,
    /// For each value, the value whose memory it is.
    origins: Vec<ValueId>,
    /// For each value and layout, the bytes that holding it adds.
    bytes: Vec<Vec<u64>>,
}

impl HeldBySteps<'_> {
    /// The bytes that holding a value in a layout adds to the weights and caches.
    fn value(&self, value: ValueId, layout: u32) -> u64 {
        self.bytes[value.index()][layout as usize]
    }

    /// What is held while a kernel makes a value in a layout; 0 for a producer that is no kernel.
    fn while_made(&self, value: ValueId, layout: u32, producer: &Producer) -> u64 {
        let Source::Kernel(number, _) = producer.source else { return 0 };
        let kernel = &self.kernels.of[value.index()][number];
        // Of the operands with one memory the largest counts.
        let mut read: Vec<(ValueId, u64)> = Vec::with_capacity(producer.reads.len());
        for (operand, layout) in &producer.reads {
            let (origin, bytes) = (self.origins[operand.index()], self.value(*operand, *layout));
            match read.iter_mut().find(|(known, _)| *known == origin) {
                Some((_, most)) => *most = bytes.max(*most),
                None => read.push((origin, bytes)),
            }
        }
        let shares = kernel.chain.last().is_some_and(|op| self.memory.shares_memory(*op));
        let made = if shares { 0 } else { self.value(value, layout) };
        let passes = self.memory.passes(&self.passing, value, &kernel.operands);
        read.iter().fold(made.saturating_add(passes), |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}
