//! How much a plan holds at each step, estimated from the ways in which it makes values.
//!
//! The estimate steers a search and proves nothing: whether a plan fits is read off its own steps.
//! It assumes that a value is held, completed, from the step that makes it to the last one that
//! reads it. In any other layout in which steps read the value it is held from the first of these
//! steps to the last. What passes from op to op within a kernel is not held.

use shard_ir::{Def, Layout, ParameterKind, Program, ValueId};

use crate::kernel::Kernels;
use crate::memory::{DeviceMemory, is_passed_on};
use crate::relax::StrategyLayouts;

/// The price of a byte at each step, in 1 / 2^[`SCALE`] ticks.
pub(crate) struct Rates {
    /// For each step, and at the end, the sum of the rates of all steps before it.
    before: Vec<u64>,
}

const SCALE: u32 = 32;

impl Rates {
    /// From the rate of each step in ticks a byte.
    pub(crate) fn new(ticks: &[f64]) -> Rates {
        let (mut before, mut sum) = (vec![0u64], 0u64);
        for ticks in ticks {
            sum = sum.saturating_add((ticks * (1u64 << SCALE) as f64) as u64);
            before.push(sum);
        }
        Rates { before }
    }

    /// The sum of the rates of the steps `from..to`.
    fn between(&self, from: usize, to: usize) -> u64 {
        let last = self.before.len() - 1;
        self.before[to.min(last)].saturating_sub(self.before[from.min(last)])
    }

    fn at(&self, step: usize) -> u64 {
        self.between(step, step + 1)
    }

    fn of_all(&self) -> u64 {
        self.between(0, self.before.len())
    }
}

/// When each value of a program is held. A step has the number of the value that it makes.
pub(crate) struct Occupancy<'a> {
    program: &'a Program,
    memory: DeviceMemory<'a>,
    /// For each value, whether a step of its own makes it.
    is_step: Vec<bool>,
    /// For each value that has memory of its own, the first and the last step at which it is held.
    spans: Vec<Option<(usize, usize)>>,
    /// For each value, the steps that read it or another name of it, ascending.
    readers: Vec<Vec<usize>>,
    /// For each value, the steps that read it under its own name, ascending.
    direct: Vec<Vec<usize>>,
    /// For each value the least bytes: stored as small as it may be, or split over all devices.
    least: Vec<u64>,
}

impl<'a> Occupancy<'a> {
    pub(crate) fn new(kernels: &'a Kernels, memory: DeviceMemory<'a>) -> Occupancy<'a> {
        let program = kernels.program.as_ref();
        let count = program.values.len();
        let is_step = program.value_ids().map(|id| {
            let is_op = matches!(program.value(id).def, Def::Op { .. });
            is_op
                && kernels.live[id.index()]
                && !memory.shares_memory(id)
                && !is_passed_on(kernels, id)
        });
        let is_step: Vec<bool> = is_step.collect();
        let mut of = Occupancy {
            program,
            is_step,
            spans: vec![None; count],
            readers: vec![Vec::new(); count],
            direct: vec![Vec::new(); count],
            least: program.value_ids().map(|id| least(program, &memory, id)).collect(),
            memory,
        };
        let mut last = vec![0; count];
        for output in &program.outputs {
            last[output.value.index()] = count;
        }
        for id in program.value_ids().rev().filter(|id| kernels.live[id.index()]) {
            let step = of.step_of(id).unwrap_or(count);
            for (n, operand) in program.value(id).def.operands().iter().enumerate() {
                let o = operand.index();
                if n == 0 && of.is_name(id) {
                    let of_name = of.readers[id.index()].clone();
                    of.readers[o].extend(of_name);
                    last[o] = last[o].max(last[id.index()]);
                } else {
                    of.readers[o].push(step);
                    of.direct[o].push(step);
                    last[o] = last[o].max(step);
                }
            }
        }
        for steps in of.readers.iter_mut().chain(&mut of.direct) {
            steps.sort_unstable();
            steps.dedup();
        }
        for id in program.value_ids() {
            let from = match program.value(id).def {
                Def::Op { .. } if of.is_step[id.index()] => id.index(),
                Def::Parameter { kind: ParameterKind::Activation, .. } => 0,
                Def::Op { .. } | Def::Parameter { .. } | Def::Pin { .. } | Def::Constant(_) => {
                    continue;
                }
            };
            of.spans[id.index()] = Some((from, last[id.index()]));
        }
        of
    }

    /// The bytes that are free on a device beside the smallest weights and caches.
    pub(crate) fn room(&self) -> u64 {
        self.memory.spare()
    }

    /// What is charged for a way of making a value, in ticks: the bytes that it holds at each step,
    /// at the rate of the step.
    ///
    /// The ways of making other values, and so the layouts in which these read an operand, are not
    /// known. An operand that several steps read is taken to be held between two of them in the
    /// layout in which this way reads it, as far as that is more than the least bytes; half of that
    /// is charged to each of the two steps.
    pub(crate) fn charge(&self, rates: &Rates, value: ValueId, way: &StrategyLayouts) -> i64 {
        let mut charge = self.charge_of_made(rates, value, way.made);
        if let Some(step) = self.step_of(value) {
            for (operand, layout) in self.reads(value, way) {
                let bytes = self.memory.bytes(operand, layout);
                let beyond = u128::from(bytes.saturating_sub(self.least[operand.index()]));
                // The layout in which a weight or cache is stored is not known here.
                let now = if self.memory.is_kept(operand) {
                    beyond
                } else if self.is_held(operand) {
                    u128::from(bytes)
                } else {
                    continue;
                };
                charge += now * u128::from(rates.at(step));
                let steps = &self.direct[operand.index()];
                let before = steps.iter().rfind(|other| **other < step);
                let after = steps.iter().find(|other| **other > step);
                let since = before.map_or(0, |other| rates.between(other + 1, step));
                let until = after.map_or(0, |other| rates.between(step + 1, *other));
                charge += beyond * u128::from(since.saturating_add(until)) / 2;
            }
        }
        i64::try_from(charge >> SCALE).unwrap_or(i64::MAX)
    }

    /// The charge for holding a value in the layout in which it is made, or for storing it in that
    /// layout.
    fn charge_of_made(&self, rates: &Rates, value: ValueId, layout: Layout) -> u128 {
        if self.memory.is_kept(value) {
            let bytes = self.memory.beyond_least(value, layout);
            return u128::from(rates.of_all()) * u128::from(bytes);
        }
        let Some((from, to)) = self.spans[value.index()] else { return 0 };
        let is_made = self.is_step[value.index()];
        let first = if is_made { from + 1 } else { from };
        let readers = self.readers[value.index()].iter().filter(|step| first <= **step);
        // The steps that read it are charged for it themselves.
        let read = readers.fold(0u64, |sum, step| sum.saturating_add(rates.at(*step)));
        let parked = rates.between(first, to + 1).saturating_sub(read);
        let charge = u128::from(parked) * u128::from(self.parked(value, layout));
        if is_made {
            charge + u128::from(rates.at(from)) * u128::from(self.memory.bytes(value, layout))
        } else {
            charge
        }
    }

    /// What is held at each step, beside the smallest weights and caches, where values are made in
    /// these ways; 0 for a value that no step makes.
    pub(crate) fn used(&self, ways: &[(ValueId, StrategyLayouts)]) -> Vec<u64> {
        let mut used = vec![0u64; self.is_step.len()];
        let mut made_in: Vec<Option<Layout>> = vec![None; self.is_step.len()];
        let mut stored = 0u64;
        for (value, way) in ways {
            if self.memory.is_kept(*value) || self.spans[value.index()].is_some() {
                made_in[value.index()] = Some(way.made);
            }
            stored = stored.saturating_add(self.memory.beyond_least(*value, way.made));
        }
        let mut hold = |from: usize, to: usize, bytes: u64| {
            for held in used.iter_mut().take(to.saturating_add(1)).skip(from) {
                *held = held.saturating_add(bytes);
            }
        };
        let mut copies: Vec<(ValueId, Layout, usize)> = Vec::new();
        for (value, way) in ways {
            if let Some((from, to)) = self.spans[value.index()] {
                let is_made = self.is_step[value.index()];
                if is_made {
                    hold(from, from, self.memory.bytes(*value, way.made));
                }
                hold(if is_made { from + 1 } else { from }, to, self.parked(*value, way.made));
            }
            let Some(step) = self.step_of(*value) else { continue };
            let reads = self.reads(*value, way).filter(|(operand, layout)| {
                let is_held = self.is_held(*operand) || self.memory.is_kept(*operand);
                is_held && made_in[operand.index()] != Some(*layout)
            });
            copies.extend(reads.map(|(operand, layout)| (operand, layout, step)));
        }
        copies.sort_unstable();
        for same in copies.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let [(value, layout, first), ..] = same else { continue };
            let last = same.last().map_or(*first, |(_, _, last)| *last);
            hold(*first, last, self.memory.bytes(*value, *layout));
        }
        let at_step = |(held, is_step): (u64, &bool)| {
            if *is_step { held.saturating_add(stored) } else { 0 }
        };
        used.into_iter().zip(&self.is_step).map(at_step).collect()
    }

    /// The step that makes a value, or that ends the kernel in which it is made.
    fn step_of(&self, value: ValueId) -> Option<usize> {
        (value.index()..self.is_step.len()).find(|step| self.is_step[*step])
    }

    /// Whether a value is its first operand under another name.
    fn is_name(&self, value: ValueId) -> bool {
        self.memory.shares_memory(value) || matches!(self.program.value(value).def, Def::Pin { .. })
    }

    /// Whether a step that reads a value reads the memory of an activation.
    fn is_held(&self, value: ValueId) -> bool {
        self.spans[value.index()].is_some() || self.is_name(value)
    }

    /// The values that a step reads where it makes its value in this way, each once, with the
    /// layout.
    fn reads<'w>(
        &'w self,
        value: ValueId,
        way: &'w StrategyLayouts,
    ) -> impl Iterator<Item = (ValueId, Layout)> + 'w {
        let is_name = self.is_name(value);
        let operands = if is_name { &[] } else { self.program.value(value).def.operands() };
        let once = |(n, _): &(usize, (&ValueId, &Layout))| !operands[..*n].contains(&operands[*n]);
        operands
            .iter()
            .zip(&way.read)
            .enumerate()
            .filter(once)
            .map(|(_, (o, layout))| (*o, *layout))
    }

    /// The bytes of a value until it is read. A partial result is completed by then, and each
    /// device has its part.
    fn parked(&self, value: ValueId, layout: Layout) -> u64 {
        let mesh = &self.program.mesh;
        let parts: u64 = layout.partial_axes().iter().map(|axis| mesh.size(axis)).product();
        self.memory.bytes(value, layout) / parts.max(1)
    }
}

/// The least bytes of a value: stored as small as it may be, or split over all devices.
fn least(program: &Program, memory: &DeviceMemory<'_>, id: ValueId) -> u64 {
    if memory.is_kept(id) {
        return memory.smallest(id);
    }
    let value = program.value(id);
    let elements = program.sizes(&value.dims).into_iter().fold(1, u64::saturating_mul);
    value.dtype.bytes(elements / program.mesh.devices().max(1))
}
