//! The prices of a branch as a guide of its search: what a state is still to pay at least.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use shard_ir::{Layout, ValueId, never};

use crate::kernel::{Kernel, Kernels};
use crate::relax::Guide;
use crate::relax::factors::ValueUse;
use crate::table::{LayoutId, Producer, Source, Tables};

/// The prices of a branch, for producers and layouts as the tables number them.
pub(super) struct Guided<'a> {
    guide: &'a Guide,
    tables: &'a Tables,
    kernels: Arc<Kernels>,
    /// For each kernel of a value, by number.
    members: FxHashMap<(ValueId, usize), Members>,
}

/// A kernel as the prices know it: op by op.
#[derive(Default)]
struct Members {
    /// For each value that the kernel reads, the index of that read among the uses of the value.
    uses: Vec<usize>,
    /// The terms of the bound for its members before the last and for the pins between them, in
    /// ticks. A plan that has the kernel does not pay these by themselves.
    terms: i64,
    /// The pins between its members that pay side prices, each with the number of the member behind
    /// which it stands.
    pins: Vec<(usize, ValueId)>,
}

impl<'a> Guided<'a> {
    pub(super) fn new(guide: &'a Guide, kernels: &Arc<Kernels>, tables: &'a Tables) -> Guided<'a> {
        let program = kernels.program.as_ref();
        let mut of = FxHashMap::default();
        for id in program.value_ids().filter(|id| kernels.live[id.index()]) {
            for (number, kernel) in kernels.of[id.index()].iter().enumerate() {
                of.insert((id, number), members(guide, kernels, kernel));
            }
        }
        Guided { guide, tables, kernels: Arc::clone(kernels), members: of }
    }

    /// Ticks in whole picoseconds, rounded up, since plans take whole ones; 0 for less than 0.
    pub(super) fn picoseconds(&self, ticks: i64) -> u64 {
        u64::try_from(ticks).unwrap_or(0).div_ceil(self.guide.ticks.unsigned_abs().max(1))
    }

    /// A time in ticks.
    pub(super) fn ticks(&self, time: u64) -> i64 {
        i64::try_from(time).unwrap_or(i64::MAX).saturating_mul(self.guide.ticks)
    }

    /// What any plan is to pay before anything is decided. This and what follows is in ticks.
    pub(super) fn of_all(&self) -> i64 {
        let Guide { terms, outputs, parts, .. } = self.guide;
        terms.iter().chain(outputs).fold(*parts, |sum, term| sum.saturating_add(*term))
    }

    /// By how much more a plan is to pay with a result in a layout; `None` where there is no such
    /// plan.
    pub(super) fn of_output(&self, output: usize, value: ValueId, layout: Layout) -> Option<i64> {
        let paid = self.for_output(output, value, layout)?;
        let side = self.guide.of_output(output, layout)?;
        Some(paid.saturating_add(side).saturating_sub(self.guide.outputs[output]))
    }

    /// The price that a result pays for its value in a layout.
    pub(super) fn for_output(&self, output: usize, value: ValueId, layout: Layout) -> Option<i64> {
        self.guide.paid(value, self.guide.use_of(value, ValueUse::Output(output))?, layout)
    }

    /// By how much more a plan is to pay once a value is made by a producer: the prices of what is
    /// read, less the terms of the bound that this settles; `None` where there is no such plan.
    pub(super) fn of_producer(
        &self,
        value: ValueId,
        layout: Layout,
        producer: &Producer,
    ) -> Option<i64> {
        let mut reads = self.for_reads(value, producer);
        let paid = reads.try_fold(0i64, |sum, paid| Some(sum.saturating_add(paid?)))?;
        let side = self.guide.of_value(value, layout)?;
        let inside = match producer.source {
            Source::Given | Source::Pin => 0,
            Source::Kernel(number, _) => self.members(value, number).map_or(0, |m| m.terms),
        };
        let side = side.saturating_add(self.paid_inside(value, layout, producer)?);
        let settled = self.guide.terms[value.index()].saturating_add(inside);
        Some(paid.saturating_add(side).saturating_sub(settled))
    }

    /// The side prices of the pins inside a kernel, in the layouts that they have there; `None`
    /// where there is no such plan.
    fn paid_inside(&self, value: ValueId, made: Layout, producer: &Producer) -> Option<i64> {
        let Source::Kernel(number, fused) = producer.source else { return Some(0) };
        let pins = self.members(value, number).map_or(&[][..], |members| &members.pins);
        if pins.is_empty() {
            return Some(0);
        }
        let kernel = self.kernels.of[value.index()].get(number)?;
        let layout = |(operand, layout): &(ValueId, LayoutId)| {
            self.tables.of(*operand).layouts[*layout as usize]
        };
        let read: Vec<Layout> = producer.reads.iter().map(layout).collect();
        let links = self.kernels.links(kernel, fused.as_ref(), &read, made)?;
        // A pin has the layout of the member behind which it stands.
        let paid =
            |(member, pin): &(usize, ValueId)| self.guide.of_value(*pin, links[*member].made);
        pins.iter().map(paid).try_fold(0i64, |sum, paid| Some(sum.saturating_add(paid?)))
    }

    /// The price that a producer pays for each value that it reads, in order; `None` for a layout
    /// in which no plan has it read the value.
    pub(super) fn for_reads<'p>(
        &'p self,
        value: ValueId,
        producer: &'p Producer,
    ) -> impl Iterator<Item = Option<i64>> + 'p {
        let of_pin = match producer.source {
            Source::Pin => self.guide.use_of(producer.reads[0].0, ValueUse::Operand(value, 0)),
            Source::Given | Source::Kernel(..) => None,
        };
        let uses: &[usize] = match producer.source {
            Source::Given | Source::Pin => &[],
            Source::Kernel(number, _) => {
                self.members(value, number).map_or(&[], |members| members.uses.as_slice())
            }
        };
        (0..producer.reads.len()).map(move |n| {
            let by = of_pin.or_else(|| uses.get(n).copied());
            by.and_then(|by| self.paid_by(producer, n, by))
        })
    }

    fn paid_by(&self, producer: &Producer, read: usize, by: usize) -> Option<i64> {
        let (operand, layout) = producer.reads[read];
        self.guide.paid(operand, by, self.tables.of(operand).layouts[layout as usize])
    }

    fn members(&self, value: ValueId, number: usize) -> Option<&Members> {
        self.members.get(&(value, number))
    }
}

fn members(guide: &Guide, kernels: &Kernels, kernel: &Kernel) -> Members {
    let (last, before) = match kernel.chain.split_last() {
        Some((last, before)) => (*last, before),
        None => never!("a kernel without an op", return Members::default()),
    };
    let pins = kernel.pins.iter().take(before.len()).flatten();
    let inside: Vec<ValueId> = before.iter().chain(pins).copied().collect();
    let mut uses = Vec::new();
    for op in before.iter().chain([&last]) {
        for (place, operand) in kernels.program.value(*op).def.operands().iter().enumerate() {
            if !inside.contains(operand) {
                uses.extend(guide.use_of(*operand, ValueUse::Operand(*op, place)));
            }
        }
    }
    let terms = inside.iter().fold(0i64, |sum, id| sum.saturating_add(guide.terms[id.index()]));
    let pins = kernel.pins.iter().take(before.len()).enumerate();
    let pins = pins.flat_map(|(member, pins)| pins.iter().map(move |pin| (member, *pin)));
    let pins = pins.filter(|(_, pin)| guide.has_places(*pin)).collect();
    Members { uses, terms, pins }
}
