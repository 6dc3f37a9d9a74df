//! The buffers that units hold and read, and the bytes that are live while units are placed.

use std::collections::{BTreeMap, HashMap};

use shard_cost::buffers;
use shard_ir::{InstrId, InstrKind, ParameterKind, Picoseconds, Plan, never, state_homes};

use super::stages::{Made, Stages, UnitCopy};

/// Where a state lies that every application of a folded block leaves; each has a buffer of its
/// own, which is held throughout.
#[derive(Clone, Copy)]
pub(super) struct Home {
    /// The instruction whose value it holds first.
    pub(super) id: InstrId,
    pub(super) stage: usize,
    /// The bytes of one copy.
    pub(super) bytes: u64,
}

impl Home {
    /// The state of each of so many copies.
    pub(super) fn of_copies(self, copies: u64) -> impl Iterator<Item = Made> {
        (0..copies).map(move |copy| Made { id: self.id, stage: self.stage, copy })
    }
}

/// Which units hold and read the buffers of a plan.
pub(super) struct Holders<'a> {
    plan: &'a Plan,
    stages: &'a Stages,
    /// The value in whose memory each value lies ([`buffers`]).
    buffer_of: Vec<Option<InstrId>>,
    /// By the first instruction of a loop, the bytes of the chunks that are under way in it.
    looped: HashMap<InstrId, u64>,
    /// The instructions in whose buffers states lie ([`Home`]).
    homes: Vec<InstrId>,
    /// Whether the layer is stacked: its results are then the next one's parameters.
    is_stack: bool,
}

impl<'a> Holders<'a> {
    pub(super) fn of(plan: &'a Plan, stages: &'a Stages, is_stack: bool) -> Holders<'a> {
        let held = plan.loops_held().into_iter();
        let looped = held.map(|held| (held.first, held.bytes)).collect();
        let buffer_of = buffers(plan);
        let homes = state_homes(plan, &buffer_of);
        Holders { plan, stages, buffer_of, looped, homes, is_stack }
    }

    /// The value in whose buffer a value lies. `None` for a value that is never in the memory of
    /// the chip, or stays there from step to step.
    fn holder(&self, made: Made, copies: &dyn Fn(usize) -> u64) -> Option<Made> {
        let mut holder = made;
        while self.buffer_of[holder.id.index()]? != holder.id {
            // A value without a buffer of its own lies in that of its first operand.
            let operand = *self.plan.instruction(holder.id).operands.first()?;
            holder = self.stages.read(operand, holder.stage, holder.copy, copies);
        }
        let stays = match self.plan.instruction(holder.id).kind {
            InstrKind::Parameter(kind) => kind.is_kept() || kind.is_weight(),
            InstrKind::Constant(_) => true,
            InstrKind::Op(_) | InstrKind::Move(_) | InstrKind::CollectiveEinsum(_) => false,
        };
        (!stays && !self.plan.in_host_memory(holder.id)).then_some(holder)
    }

    /// The buffers that a unit allocates, with their bytes. Homes of states are allocated before.
    pub(super) fn allocated(&self, of: UnitCopy) -> Vec<(Made, u64)> {
        let (stage, copy) = (self.stages.stage_of(of.unit), of.copy);
        let members = self.stages.units[of.unit].members.iter().copied();
        let own = members.filter(|id| {
            self.buffer_of[id.index()] == Some(*id)
                && !self.plan.in_host_memory(*id)
                && !self.homes.contains(id)
        });
        own.map(|id| (Made { id, stage, copy }, self.plan.local_bytes(id))).collect()
    }

    /// Bytes that a unit holds beside what it reads and makes: the chunks of its loop.
    pub(super) fn beside(&self, unit: usize) -> u64 {
        self.stages.units[unit].members.iter().filter_map(|id| self.looped.get(id)).sum()
    }

    /// The buffers that a unit reads or writes, each once.
    pub(super) fn touched(&self, of: UnitCopy, copies: &dyn Fn(usize) -> u64) -> Vec<Made> {
        let (stage, copy) = (self.stages.stage_of(of.unit), of.copy);
        let mut found: Vec<Made> = Vec::new();
        for member in &self.stages.units[of.unit].members {
            let read = self.plan.instruction(*member).operands.iter();
            let read = read.map(|operand| self.stages.read(*operand, stage, copy, copies));
            let own = Made { id: *member, stage, copy };
            found.extend(read.chain([own]).filter_map(|made| self.holder(made, copies)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The buffers of results that a copy of a stage makes. In a stack they are held until the copy
    /// is done, those of the last copy to the end.
    pub(super) fn results(
        &self,
        stage: usize,
        copy: u64,
        copies: &dyn Fn(usize) -> u64,
    ) -> Vec<Made> {
        let is_here = |made: &Made| {
            (made.stage, made.copy) == (stage, copy) && self.stages.unit_of(made.id).is_some()
        };
        let outputs = if self.is_stack {
            self.plan.outputs.iter().map(|output| Made { id: output.id, stage, copy }).collect()
        } else {
            self.outputs(copies)
        };
        let outputs = outputs.into_iter().filter_map(|made| self.holder(made, copies));
        let mut found: Vec<Made> = outputs.filter(is_here).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The buffers of activations that are parameters, with their bytes. They are held from the
    /// start until they are last read; to the end if they are results too.
    pub(super) fn given(&self) -> Vec<(Made, u64)> {
        let is_given = |id: &InstrId| {
            self.plan.instruction(*id).kind == InstrKind::Parameter(ParameterKind::Activation)
        };
        let owns = |id: &InstrId| self.buffer_of[id.index()] == Some(*id);
        let held = self.plan.ids().filter(|id| is_given(id) && owns(id));
        held.map(|id| (Made { id, stage: 0, copy: 0 }, self.plan.local_bytes(id))).collect()
    }

    /// Where the states lie that the applications of folded blocks leave.
    pub(super) fn homes(&self) -> impl Iterator<Item = Home> {
        self.homes.iter().filter_map(|home| {
            let stage = self.stages.stage_of(self.stages.unit_of(*home)?);
            Some(Home { id: *home, stage, bytes: self.plan.local_bytes(*home) })
        })
    }

    /// The results of the plan: of a folded block the values that its last copy has made, and the
    /// states of all copies.
    fn outputs(&self, copies: &dyn Fn(usize) -> u64) -> Vec<Made> {
        let mut found = Vec::new();
        for output in &self.plan.outputs {
            let last = self.stages.outside(output.id, copies);
            if output.state && self.plan.runs_in(output.id).is_some() {
                found.extend((0..last.copy).map(|copy| Made { copy, ..last }));
            }
            found.push(last);
        }
        found
    }

    /// The buffers in which the results lie when all is done. An earlier copy may have made some of
    /// them, or they may be parameters.
    pub(super) fn returned(&self, copies: &dyn Fn(usize) -> u64) -> Vec<Made> {
        let outputs = self.outputs(copies).into_iter();
        outputs.filter_map(|made| self.holder(made, copies)).collect()
    }
}

/// Bytes of the weights and caches of all layers, which are held throughout.
pub(super) fn kept(plan: &Plan) -> u64 {
    let stays =
        |id: &InstrId| plan.instruction(*id).kind.parameter().is_some_and(ParameterKind::is_kept);
    let bytes = |id: InstrId| {
        plan.local_bytes(id).saturating_mul(plan.copies_of(id)).saturating_mul(plan.repeat)
    };
    plan.ids().filter(stays).map(bytes).fold(0, u64::saturating_add)
}

/// The bytes that are live from each moment on, while units are placed. A buffer whose last reader
/// is not placed yet counts to the end.
#[derive(Default)]
pub(super) struct Profile {
    /// By how much the bytes change at each moment.
    change: BTreeMap<Picoseconds, i128>,
    /// The bytes that are live at the end.
    open: i128,
    /// The bytes of all buffers together, an upper bound of what is ever live.
    most: i128,
}

impl Profile {
    pub(super) fn hold(&mut self, from: Picoseconds, bytes: u64) {
        *self.change.entry(from).or_default() += i128::from(bytes);
        self.open += i128::from(bytes);
        self.most += i128::from(bytes);
    }

    pub(super) fn free(&mut self, at: Picoseconds, bytes: u64) {
        *self.change.entry(at).or_default() -= i128::from(bytes);
        self.open -= i128::from(bytes);
    }

    /// The first moment from which on so many more bytes are within a limit all the time; `None` if
    /// they are not even at the end.
    pub(super) fn fits_from(&self, bytes: u64, limit: u64) -> Option<Picoseconds> {
        let limit = i128::from(limit) - i128::from(bytes);
        if self.most <= limit {
            return Some(Picoseconds(0));
        }
        let mut live = self.open;
        if live > limit {
            return None;
        }
        for (from, change) in self.change.iter().rev() {
            live -= change;
            if live > limit {
                return Some(*from);
            }
        }
        Some(Picoseconds(0))
    }
}

/// How many reads of each buffer are to come, and when the last of those that are placed is done.
#[derive(Default)]
pub(super) struct Readers {
    left: HashMap<Made, u64>,
    last: HashMap<Made, Picoseconds>,
}

impl Readers {
    pub(super) fn are_expected(&self, buffer: Made) -> bool {
        self.left.contains_key(&buffer)
    }

    pub(super) fn expect(&mut self, buffer: Made) {
        *self.left.entry(buffer).or_default() += 1;
    }

    /// Records a read that is done at a moment. If no more are expected, gives the moment from
    /// which on the buffer is free.
    pub(super) fn done(&mut self, buffer: Made, at: Picoseconds) -> Option<Picoseconds> {
        let last = self.last.entry(buffer).or_default();
        *last = at.max(*last);
        match self.left.get_mut(&buffer) {
            Some(left) if *left > 0 => {
                *left -= 1;
                (*left == 0).then_some(*last)
            }
            _ => never!("a reader that nobody expects", None),
        }
    }
}
