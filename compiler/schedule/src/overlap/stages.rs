//! [`Stages`]: a plan as a list of stages that are run one after another, each once or many times.

use std::ops::Range;

use shard_cost::{PlanPrice, Streams, buffers};
use shard_ir::{InstrId, InstrKind, Op, ParameterKind, Plan};

use super::units::{Unit, units};

/// A range of a plan's units: those of a folded block, those between two folded blocks, or the
/// whole layer of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its units, as indices.
    pub units: Range<usize>,
    /// How many times it is run.
    pub copies: u64,
    /// The value that the first copy reads, and the value of the copy before that every later copy
    /// reads in place of it.
    pub(super) carry: Option<(InstrId, InstrId)>,
}

/// The units of a plan, and the stages that they are in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stages {
    /// In the order of their last instructions.
    pub units: Vec<Unit>,
    /// The stages, in the order in which they are run.
    pub stages: Vec<Stage>,
    /// For each instruction the unit that runs it: none for a parameter or a constant.
    unit_of: Vec<Option<usize>>,
    /// For each unit its stage.
    stage_of: Vec<usize>,
    /// For each unit the units that read what it overwrites.
    overwritten: Vec<Vec<usize>>,
}

/// A value that a copy of a stage makes; a value that no unit makes is in copy 0 of stage 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Made {
    /// The instruction that makes it.
    pub(super) id: InstrId,
    pub(super) stage: usize,
    pub(super) copy: u64,
}

/// A unit of one copy of its stage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct UnitCopy {
    pub(super) unit: usize,
    pub(super) copy: u64,
}

impl Stages {
    /// The stages of one layer, or of a model.
    pub(super) fn of_layer(plan: &Plan, price: &PlanPrice, streams: &Streams) -> Stages {
        let units = units(plan, price, streams);
        let mut stages: Vec<Stage> = Vec::new();
        let mut begin = 0;
        while begin < units.len() {
            let fold = plan.runs_in(units[begin].first());
            let alike =
                units[begin..].iter().take_while(|unit| plan.runs_in(unit.first()) == fold).count();
            let fold = fold.map(|fold| &plan.folds[fold.index()]);
            stages.push(Stage {
                units: begin..begin + alike,
                copies: fold.map_or(1, |fold| fold.repeat),
                carry: fold.map(|fold| (fold.from, fold.to)),
            });
            begin += alike;
        }
        Stages::of(plan, units, stages)
    }

    /// The stage of a stack of layers. `None` if the plan is no stack, a layer is not one stage,
    /// its result cannot take the place of its parameter, or an append overwrites what other layers
    /// read.
    pub(super) fn of_stack(plan: &Plan, price: &PlanPrice, streams: &Streams) -> Option<Stages> {
        let layer = Stages::of_layer(plan, price, streams);
        let is_parameter =
            |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
        let (from, to) = (plan.ids().find(is_parameter)?, plan.results().next()?.id);
        let (taken, made) = (plan.instruction(from), plan.instruction(to));
        let alike =
            (&taken.dims, taken.dtype, taken.layout) == (&made.dims, made.dtype, made.layout);
        // A result lies on the chip, a parameter in host memory is fetched from there.
        let alike = alike && plan.in_host_memory(from) == plan.in_host_memory(to);
        let [stage] = layer.stages.as_slice() else { return None };
        let stage = Stage { copies: plan.repeat, carry: Some((from, to)), ..stage.clone() };
        let is_stack =
            alike && plan.repeat > 1 && plan.folds.is_empty() && !overwrites_an_activation(plan);
        is_stack.then(|| Stages::of(plan, layer.units, vec![stage]))
    }

    fn of(plan: &Plan, units: Vec<Unit>, stages: Vec<Stage>) -> Stages {
        let mut unit_of = vec![None; plan.instructions.len()];
        for (at, unit) in units.iter().enumerate() {
            unit.members.iter().for_each(|member| unit_of[member.index()] = Some(at));
        }
        let stage_of = stages
            .iter()
            .enumerate()
            .flat_map(|(at, stage)| stage.units.clone().map(move |_| at))
            .collect();
        let overwritten = overwritten(plan, &units, &unit_of);
        Stages { units, stages, unit_of, stage_of, overwritten }
    }

    /// The units that have to be done before a unit starts because they read what it overwrites.
    /// `copies` says how many copies a stage has.
    pub(super) fn read_before(
        &self,
        of: UnitCopy,
        copies: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = UnitCopy> {
        let own_stage = self.stage_of(of.unit);
        self.overwritten[of.unit].iter().map(move |unit| {
            let stage = self.stage_of(*unit);
            let last = || copies(stage).saturating_sub(1);
            UnitCopy { unit: *unit, copy: if stage == own_stage { of.copy } else { last() } }
        })
    }

    /// The unit that runs an instruction: none for a parameter or a constant.
    pub fn unit_of(&self, id: InstrId) -> Option<usize> {
        self.unit_of[id.index()]
    }

    /// The stage of a unit.
    pub fn stage_of(&self, unit: usize) -> usize {
        self.stage_of[unit]
    }

    /// The value that a copy of a stage reads for an operand of its instructions. `copies` says how
    /// many copies a stage has.
    pub(super) fn read(
        &self,
        operand: InstrId,
        stage: usize,
        copy: u64,
        copies: impl Fn(usize) -> u64,
    ) -> Made {
        let (mut operand, mut copy) = (operand, copy);
        if let Some((from, to)) = self.stages[stage].carry {
            // In a layer that returns its parameter `to` is `from`, and each copy hands it on.
            while operand == from && copy > 0 {
                (operand, copy) = (to, copy - 1);
            }
            if operand == from {
                return self.outside(operand, &copies);
            }
        }
        match self.unit_of(operand).map(|unit| self.stage_of(unit)) {
            Some(of) if of == stage => Made { id: operand, stage, copy },
            _ => self.outside(operand, &copies),
        }
    }

    /// What is read of an instruction outside of its stage: the value that its last copy has made.
    pub(super) fn outside(&self, id: InstrId, copies: impl Fn(usize) -> u64) -> Made {
        match self.unit_of(id).map(|unit| self.stage_of(unit)) {
            Some(stage) => Made { id, stage, copy: copies(stage).saturating_sub(1) },
            None => Made { id, stage: 0, copy: 0 },
        }
    }
}

/// For each unit the units that read what it overwrites. An append writes into the memory of the
/// cache that it reads, unless a later instruction reads that cache; all units that read the cache
/// before it have to be done.
fn overwritten(plan: &Plan, units: &[Unit], unit_of: &[Option<usize>]) -> Vec<Vec<usize>> {
    let shared = buffers(plan);
    let mut found: Vec<Vec<usize>> = vec![Vec::new(); units.len()];
    for id in plan.ids() {
        let is_append = matches!(plan.instruction(id).kind, InstrKind::Op(Op::Append { .. }));
        let (Some(holder), Some(unit)) = (shared[id.index()], unit_of[id.index()]) else {
            continue;
        };
        if !is_append || holder == id {
            continue;
        }
        let lies_there = |operand: &InstrId| shared[operand.index()] == Some(holder);
        let readers = plan
            .ids()
            .take(id.index())
            .filter(|old| plan.instruction(*old).operands.iter().any(lies_there));
        found[unit] =
            readers.filter_map(|old| unit_of[old.index()]).filter(|by| *by != unit).collect();
        found[unit].sort_unstable();
        found[unit].dedup();
    }
    found
}

/// Whether an append overwrites a parameter that is no cache. All layers of a stack may read it, or
/// a layer may take it while the layer before still reads it.
fn overwrites_an_activation(plan: &Plan) -> bool {
    let shared = buffers(plan);
    plan.ids().any(|id| {
        let is_append = matches!(plan.instruction(id).kind, InstrKind::Op(Op::Append { .. }));
        let over = shared[id.index()].filter(|holder| is_append && *holder != id);
        let activation = InstrKind::Parameter(ParameterKind::Activation);
        over.is_some_and(|holder| plan.instruction(holder).kind == activation)
    })
}
