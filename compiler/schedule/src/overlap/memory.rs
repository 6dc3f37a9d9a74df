//! What is in memory along a timeline, while it is made and afterwards.

use std::collections::{BTreeMap, HashMap};

use shard_cost::buffers;
use shard_ir::{InstrId, InstrKind, ParameterKind, Picoseconds, Plan, never, state_homes};

use super::stages::{Made, Stages};

/// Who holds and reads the buffers of a plan.
pub(super) struct Holders<'a> {
    plan: &'a Plan,
    stages: &'a Stages,
    buffer_of: Vec<Option<InstrId>>,
    /// Bytes of the chunks under way in the loop that begins with an instruction.
    looped: HashMap<InstrId, u64>,
    /// Where the states lie that the applications of folded blocks leave: held throughout.
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

    /// The value in whose memory a value lies; none for one that is in no memory of the chip, or
    /// stays there for good.
    fn holder(&self, made: Made, copies: &dyn Fn(usize) -> u64) -> Option<Made> {
        let (mut id, mut stage, mut copy) = made;
        loop {
            let owner = self.buffer_of[id.index()]?;
            if owner == id {
                break;
            }
            // What shares memory shares that of its first operand.
            let operand = *self.plan.instruction(id).operands.first()?;
            (id, stage, copy) = self.stages.read(operand, stage, copy, copies);
        }
        let stays = matches!(
            self.plan.instruction(id).kind,
            InstrKind::Parameter(
                ParameterKind::Weight | ParameterKind::Cache | ParameterKind::HostWeight
            ) | InstrKind::Constant(_)
        );
        (!stays && !self.plan.in_host_memory(id)).then_some((id, stage, copy))
    }

    /// What a unit allocates in some copy of its stage, with the bytes; the homes of states are
    /// there already.
    pub(super) fn allocated(&self, unit: usize, copy: u64) -> Vec<(Made, u64)> {
        let stage = self.stages.stage_of(unit);
        let members = self.stages.units[unit].members.iter().copied();
        let own = members.filter(|id| {
            self.buffer_of[id.index()] == Some(*id)
                && !self.plan.in_host_memory(*id)
                && !self.homes.contains(id)
        });
        own.map(|id| ((id, stage, copy), self.plan.local_bytes(id))).collect()
    }

    /// Bytes that a unit takes beside what it reads and makes.
    pub(super) fn beside(&self, unit: usize) -> u64 {
        self.stages.units[unit].members.iter().filter_map(|id| self.looped.get(id)).sum()
    }

    /// The buffers that a unit reads or goes on writing in some copy of its stage, each once.
    pub(super) fn touched(
        &self,
        unit: usize,
        copy: u64,
        copies: &dyn Fn(usize) -> u64,
    ) -> Vec<Made> {
        let stage = self.stages.stage_of(unit);
        let mut found: Vec<Made> = Vec::new();
        for member in &self.stages.units[unit].members {
            let read = self.plan.instruction(*member).operands.iter();
            let read = read.map(|operand| self.stages.read(*operand, stage, copy, copies));
            found.extend(
                read.chain([(*member, stage, copy)]).filter_map(|made| self.holder(made, copies)),
            );
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The buffers of the results of a copy of a stage: held until all of it has run in a stack,
    /// and for good at its end.
    pub(super) fn results(
        &self,
        stage: usize,
        copy: u64,
        copies: &dyn Fn(usize) -> u64,
    ) -> Vec<Made> {
        let is_here = |made: &Made| {
            (made.1, made.2) == (stage, copy) && self.stages.unit_of(made.0).is_some()
        };
        let outputs = if self.is_stack {
            self.plan.outputs.iter().map(|output| (output.id, stage, copy)).collect()
        } else {
            self.outputs(copies)
        };
        let outputs = outputs.into_iter().filter_map(|made| self.holder(made, copies));
        let mut found: Vec<Made> = outputs.filter(is_here).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The parameters that are held from the start until they are read for the last time, with
    /// their bytes; those that are results too are held to the end.
    pub(super) fn given(&self) -> Vec<(Made, u64)> {
        let is_given = |id: &InstrId| {
            self.plan.instruction(*id).kind == InstrKind::Parameter(ParameterKind::Activation)
        };
        let owns = |id: &InstrId| self.buffer_of[id.index()] == Some(*id);
        let held = self.plan.ids().filter(|id| is_given(id) && owns(id));
        held.map(|id| ((id, 0, 0), self.plan.local_bytes(id))).collect()
    }

    /// The homes of states with their stages, of each copy the bytes.
    pub(super) fn homes(&self) -> impl Iterator<Item = (InstrId, usize, u64)> {
        self.homes.iter().filter_map(|home| {
            let stage = self.stages.stage_of(self.stages.unit_of(*home)?);
            Some((*home, stage, self.plan.local_bytes(*home)))
        })
    }

    /// What is given back: of a folded block what its last copy has made, and the states of all.
    fn outputs(&self, copies: &dyn Fn(usize) -> u64) -> Vec<Made> {
        let mut found = Vec::new();
        for output in &self.plan.outputs {
            let last = self.stages.outside(output.id, copies);
            if output.state && self.plan.runs_in(output.id).is_some() {
                found.extend((0..last.2).map(|copy| (last.0, last.1, copy)));
            }
            found.push(last);
        }
        found
    }

    /// The buffers in which the results lie when all is done: some of them made by an earlier copy,
    /// or given.
    pub(super) fn returned(&self, copies: &dyn Fn(usize) -> u64) -> Vec<Made> {
        let outputs = self.outputs(copies).into_iter();
        outputs.filter_map(|made| self.holder(made, copies)).collect()
    }
}

/// Bytes of the weights and caches of all layers, which never leave.
pub(super) fn kept(plan: &Plan) -> u64 {
    let stays =
        |id: &InstrId| plan.instruction(*id).kind.parameter().is_some_and(ParameterKind::is_kept);
    let bytes = |id: InstrId| {
        plan.local_bytes(id).saturating_mul(plan.copies_of(id)).saturating_mul(plan.repeat)
    };
    plan.ids().filter(stays).map(bytes).fold(0, u64::saturating_add)
}

/// What is live from each moment on, as far as is known while units are placed: what has no last
/// reader yet stays.
#[derive(Default)]
pub(super) struct Profile {
    change: BTreeMap<Picoseconds, i128>,
    open: i128,
    /// No more than this is ever live.
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

    /// From when on so many bytes more are within a limit all the time; none where what is left
    /// over is too much.
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

/// Who still reads each buffer, and when the last of those that are placed is done.
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

    /// One reader more is done: when the buffer is free, if that was the last.
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
