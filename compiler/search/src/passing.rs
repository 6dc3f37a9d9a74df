//! What is held beside an op while it runs, and beside a value while it is moved: the values that
//! pass, since they are made before and read behind.
//!
//! A plan runs its kernels in the order of their last ops, and a kernel reads from memory what is
//! made outside of it. So, whatever the layouts, some layout of a value is held between the op that
//! makes the value and the last op that reads it. It takes no less than the smallest layout.

use std::ops::{Range, RangeInclusive};

use rustc_hash::FxHashMap;
use shard_ir::{Def, FoldId, ParameterKind, Program, ValueId};

use crate::kernel::Kernels;
use crate::memory::DeviceMemory;

/// The time for which a value is held that has memory of its own in every plan.
#[derive(Clone, Copy, Debug)]
struct HeldSpan {
    /// The step that makes the value; `None` for an activation given to the layer, which is there
    /// from the first step.
    made: Option<u32>,
    /// The last step that reads the value; the number of steps for a result.
    last: u32,
    /// The bytes of the value in the smallest of its layouts, on each device.
    least: u64,
}

impl HeldSpan {
    /// The steps at whose beginning it is there.
    fn before(&self) -> Range<u32> {
        self.made.map_or(0, |made| made + 1)..self.last.saturating_add(1)
    }

    /// The steps at whose end it is there and still to be read.
    fn behind(&self) -> Range<u32> {
        self.made.unwrap_or(0)..self.last
    }

    /// The steps that neither make it nor are the last to read it.
    fn passed(&self) -> Range<u32> {
        self.before().start..self.last
    }
}

/// What passes each step of a program and each move of a value at least, in bytes.
#[derive(Debug)]
pub(crate) struct Passing {
    held: FxHashMap<ValueId, HeldSpan>,
    /// For each step the bytes of all values that pass it; 0 where nothing is known.
    at_steps: Vec<u64>,
    /// For each value the least that is held beside it at any moment at which it may be moved; 0
    /// where nothing is known.
    beside_moves: Vec<u64>,
}

impl Passing {
    /// What passes in any plan of a form, given the bytes of each value in its smallest layout. The
    /// steps of several phases side by side have no common order, so that nothing is known of them.
    pub(crate) fn of(
        kernels: &Kernels,
        memory: &DeviceMemory<'_>,
        least: &dyn Fn(ValueId) -> Option<u64>,
    ) -> Passing {
        let program = kernels.program.as_ref();
        let count = program.values.len();
        let (at_steps, beside_moves) = (vec![0; count], vec![0; count]);
        if memory.is_of_phases() {
            return Passing { held: FxHashMap::default(), at_steps, beside_moves };
        }
        let order = Order::of(kernels);
        let held = held(memory, &order, least);
        let mut passing = Passing { held, at_steps, beside_moves };
        let at_steps = passing.sums(HeldSpan::passed, count);
        for id in order.live().filter(|id| order.runs_in_place(*id)) {
            passing.at_steps[id.index()] = at_steps[id.index()];
        }
        let moments =
            [passing.sums(HeldSpan::before, count), passing.sums(HeldSpan::behind, count)];
        let mut readers = vec![Vec::new(); count];
        for id in order.live() {
            for operand in program.value(id).def.operands() {
                readers[operand.index()].push(id);
            }
        }
        for id in order.live() {
            let known = passing.beside_moves_of(&order, memory, id, &readers[id.index()], &moments);
            passing.beside_moves[id.index()] = known.unwrap_or(0);
        }
        passing
    }

    /// For each step, and behind all steps, the bytes of the values whose steps by `at` include it.
    fn sums(&self, at: fn(&HeldSpan) -> Range<u32>, count: usize) -> Vec<u64> {
        let mut changes = vec![0i128; count + 2];
        for of in self.held.values() {
            let Range { start, end } = at(of);
            if start < end {
                changes[start as usize] += i128::from(of.least);
                changes[end as usize] -= i128::from(of.least);
            }
        }
        let mut sum = 0;
        let sums = changes.into_iter().map(|change| {
            sum += change;
            u64::try_from(sum).unwrap_or(u64::MAX)
        });
        sums.collect()
    }

    /// The least that is held beside a value at any moment at which it may be moved: as soon as it
    /// is made, or right before a step that reads it. `None` where one of these steps may run
    /// elsewhere.
    fn beside_moves_of(
        &self,
        order: &Order<'_>,
        memory: &DeviceMemory<'_>,
        id: ValueId,
        readers: &[ValueId],
        [before, behind]: &[Vec<u64>; 2],
    ) -> Option<u64> {
        let program = order.program;
        let own = self.held.get(&memory.origin(id).0);
        let beside = |sums: &[u64], at: fn(&HeldSpan) -> Range<u32>, step: u32| {
            let own = own.filter(|of| at(of).contains(&step)).map_or(0, |of| of.least);
            sums[step as usize].saturating_sub(own)
        };
        let mut least = u64::MAX;
        match program.value(id).def {
            Def::Op { .. } if order.is_made_in_place(id) => {
                least = least.min(beside(behind, HeldSpan::behind, id.0));
            }
            Def::Parameter { .. } => {}
            Def::Op { .. } | Def::Pin { .. } | Def::Constant(_) => return None,
        }
        for reader in readers {
            let is_op = matches!(program.value(*reader).def, Def::Op { .. });
            let is_of_one_block = program.value(*reader).fold == program.value(id).fold;
            if !(is_op && is_of_one_block && order.runs_in_place(*reader)) {
                return None;
            }
            least = least.min(beside(before, HeldSpan::before, reader.0));
        }
        if program.outputs.iter().any(|output| output.value == id) {
            let end = program.values.len() as u32;
            least = least.min(beside(before, HeldSpan::before, end));
        }
        Some(least).filter(|least| *least < u64::MAX)
    }

    /// What passes a step at least, without the values whose memory is one of these.
    pub(crate) fn at(&self, step: ValueId, origins: impl Iterator<Item = ValueId>) -> u64 {
        let all = self.at_steps[step.index()];
        if all == 0 {
            return 0;
        }
        let mut counted: Vec<ValueId> = origins.collect();
        counted.sort_unstable();
        counted.dedup();
        let known = counted.iter().filter_map(|origin| self.held.get(origin));
        let known = known.filter(|of| of.passed().contains(&step.0)).map(|of| of.least);
        all.saturating_sub(known.fold(0, u64::saturating_add))
    }

    /// What is held at least beside a value while it is moved; 0 where nothing is known.
    pub(crate) fn beside_moves(&self, value: ValueId) -> u64 {
        self.beside_moves[value.index()]
    }
}

/// For each value that has memory of its own in every plan, when it is held.
fn held(
    memory: &DeviceMemory<'_>,
    order: &Order<'_>,
    least: &dyn Fn(ValueId) -> Option<u64>,
) -> FxHashMap<ValueId, HeldSpan> {
    let program = order.program;
    let mut held: FxHashMap<ValueId, HeldSpan> = FxHashMap::default();
    for id in order.live().filter(|id| order.is_made_in_place(*id)) {
        let made = match &program.value(id).def {
            Def::Op { .. } if memory.shares_memory(id) || order.may_be_inside[id.index()] => {
                continue;
            }
            Def::Op { .. } => Some(id.0),
            Def::Parameter { kind: ParameterKind::Activation, .. } => None,
            Def::Parameter { .. } | Def::Constant(_) | Def::Pin { .. } => continue,
        };
        held.insert(id, HeldSpan { made, last: 0, least: u64::MAX });
    }
    let origin = |id: ValueId| memory.origin(id).0;
    // The memory of a value may be held under each of its names, in a layout of that name.
    for id in order.live() {
        if let (Some(of), Some(least)) = (held.get_mut(&origin(id)), least(id)) {
            of.least = of.least.min(least);
        }
    }
    let reads = |reader: &ValueId| {
        let is_op = matches!(program.value(*reader).def, Def::Op { .. });
        is_op && !memory.shares_memory(*reader) && order.is_made_in_place(*reader)
    };
    for reader in order.live().filter(reads) {
        for operand in program.value(reader).def.operands() {
            if let Some(of) = held.get_mut(&origin(*operand)) {
                of.last = of.last.max(reader.0);
            }
        }
    }
    for output in &program.outputs {
        if let Some(of) = held.get_mut(&origin(output.value)) {
            of.last = program.values.len() as u32;
        }
    }
    held.retain(|_, of| of.least < u64::MAX);
    held
}

/// The order of the steps, as far as it is that of the program in every plan.
struct Order<'p> {
    kernels: &'p Kernels,
    program: &'p Program,
    blocks: FxHashMap<FoldId, RangeInclusive<u32>>,
    /// For each value, whether it may pass from op to op within a kernel. It is then in no memory,
    /// and its op runs when the last op of that kernel does.
    may_be_inside: Vec<bool>,
}

impl<'p> Order<'p> {
    fn of(kernels: &'p Kernels) -> Order<'p> {
        let program = kernels.program.as_ref();
        let mut may_be_inside = vec![false; program.values.len()];
        for kernel in kernels.of.iter().flatten() {
            for link in kernel.chain.iter().rev().skip(1) {
                may_be_inside[link.index()] = true;
            }
        }
        let mut blocks: FxHashMap<FoldId, RangeInclusive<u32>> = FxHashMap::default();
        for id in program.value_ids().filter(|id| is_step(program, *id)) {
            if let Some(fold) = program.value(id).fold {
                let known = blocks.entry(fold).or_insert(id.0..=id.0);
                *known = *known.start()..=id.0;
            }
        }
        Order { kernels, program, blocks, may_be_inside }
    }

    fn live(&self) -> impl Iterator<Item = ValueId> {
        self.program.value_ids().filter(|id| self.kernels.live[id.index()])
    }

    /// Whether a value is made at its place in the program. A step that stands between the steps of
    /// a folded block and is not of it runs before the block or behind it.
    fn is_made_in_place(&self, id: ValueId) -> bool {
        let own = self.program.value(id).fold;
        let stands_in = |(fold, block): (&FoldId, &RangeInclusive<u32>)| {
            own != Some(*fold) && block.contains(&id.0)
        };
        // What no step makes is there from the first step.
        !is_step(self.program, id) || !self.blocks.iter().any(stands_in)
    }

    fn runs_in_place(&self, id: ValueId) -> bool {
        self.is_made_in_place(id) && !self.may_be_inside[id.index()]
    }
}

fn is_step(program: &Program, id: ValueId) -> bool {
    matches!(program.value(id).def, Def::Op { .. })
}
