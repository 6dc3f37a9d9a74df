//! [`Stages`]: the parts of a plan that are run one after another, each once or many times.

use std::ops::Range;

use shard_cost::{PlanPrice, Streams, buffers};
use shard_ir::{InstrId, InstrKind, Op, ParameterKind, Plan};

use super::units::{Unit, units};

/// A part of a plan: a folded block, what stands between two of them, or the layer of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its units, as indices.
    pub units: Range<usize>,
    /// How often it is run.
    pub copies: u64,
    /// What its first copy takes, and in place of which every other takes what the copy before has
    /// made.
    pub(super) carry: Option<(InstrId, InstrId)>,
}

/// The units of a plan, and the stages that they are in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stages {
    /// In the order of their last instructions.
    pub units: Vec<Unit>,
    /// In the order in which they are run.
    pub stages: Vec<Stage>,
    /// For each instruction the unit that runs it: none for a parameter or a constant.
    unit_of: Vec<Option<usize>>,
    /// For each unit its stage.
    stage_of: Vec<usize>,
    /// For each unit those that read what it overwrites.
    overwritten: Vec<Vec<usize>>,
}

/// A value of one copy of a stage: the instruction, its stage, and the copy.
pub(super) type Made = (InstrId, usize, u64);

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

    /// The stages of a stack of layers; none where there is no stack, or not all of a layer is one
    /// stage.
    pub(super) fn of_stack(plan: &Plan, price: &PlanPrice, streams: &Streams) -> Option<Stages> {
        let layer = Stages::of_layer(plan, price, streams);
        let is_parameter =
            |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
        let (from, to) = (plan.ids().find(is_parameter)?, plan.results().next()?.id);
        let (taken, made) = (plan.instruction(from), plan.instruction(to));
        let alike =
            (&taken.dims, taken.dtype, taken.layout) == (&made.dims, made.dtype, made.layout);
        // What the next layer takes lies on the chip: its ops fetch nothing from the host.
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

    /// What has to be done before a copy of a unit starts because it reads what the unit writes
    /// over: units, each with its copy.
    pub(super) fn read_before(
        &self,
        unit: usize,
        copy: u64,
        copies: impl Fn(usize) -> u64,
    ) -> impl Iterator<Item = (usize, u64)> {
        let stage = self.stage_of(unit);
        self.overwritten[unit].iter().map(move |by| match self.stage_of(*by) {
            of if of == stage => (*by, copy),
            of => (*by, copies(of).saturating_sub(1)),
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

    /// What a copy of a stage reads where its instructions name an operand. `copies` says how many
    /// copies a stage has.
    pub(super) fn read(
        &self,
        operand: InstrId,
        stage: usize,
        copy: u64,
        copies: impl Fn(usize) -> u64,
    ) -> Made {
        let (mut operand, mut copy) = (operand, copy);
        if let Some((from, to)) = self.stages[stage].carry {
            // A layer that gives what it takes hands it on from copy to copy.
            while operand == from && copy > 0 {
                (operand, copy) = (to, copy - 1);
            }
            if operand == from {
                return self.outside(operand, &copies);
            }
        }
        match self.unit_of(operand).map(|unit| self.stage_of(unit)) {
            Some(of) if of == stage => (operand, stage, copy),
            _ => self.outside(operand, &copies),
        }
    }

    /// What is read from outside of the stage that makes it: what its last copy has made.
    pub(super) fn outside(&self, id: InstrId, copies: impl Fn(usize) -> u64) -> Made {
        match self.unit_of(id).map(|unit| self.stage_of(unit)) {
            Some(stage) => (id, stage, copies(stage).saturating_sub(1)),
            None => (id, 0, 0),
        }
    }
}

/// For each unit those that read what it overwrites: an append writes into the cache that it reads
/// where nobody reads that cache behind it in the program, and whoever reads it before has to be
/// done.
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

/// Whether an append writes in place over a parameter that is no cache: what all layers of a stack
/// read, or one layer takes while the one before still reads it.
fn overwrites_an_activation(plan: &Plan) -> bool {
    let shared = buffers(plan);
    plan.ids().any(|id| {
        let is_append = matches!(plan.instruction(id).kind, InstrKind::Op(Op::Append { .. }));
        let over = shared[id.index()].filter(|holder| is_append && *holder != id);
        let activation = InstrKind::Parameter(ParameterKind::Activation);
        over.is_some_and(|holder| plan.instruction(holder).kind == activation)
    })
}
