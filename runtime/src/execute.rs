//! Executes a schedule on simulated devices, one instruction after the other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use shard_ir::attention::{Ring, rings};
use shard_ir::liveness::Liveness;
use shard_ir::verify::verify;
use shard_ir::{
    InstrId, InstrKind, MeshShape, Picoseconds, Plan, PlanOutput, Reduction, Schedule, Step,
};

use crate::arithmetic::{Arithmetic, allows_exact};
use crate::blocks::Blocks;
use crate::collectives::{combine, neutral};
use crate::devices::{Grid, usizes};
use crate::engine::{self, Engine};
use crate::error::RunError;
use crate::inputs;
use crate::limits::{
    MAX_BYTES, MAX_SECONDS, SINGLE_WORK, bytes_needed, cost_of, seconds_needed, work_needed,
};
use crate::network::Network;
use crate::progress::Progress;
use crate::ring::passes_in;
use crate::scalar::maximum;
use crate::spare::Spare;
use crate::tensor::Tensor;

/// What an execution is to do.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// The seed of random inputs and of the random terms of partial parameters.
    pub seed: u64,
    /// Whole tensors for parameters, by name; other parameters get random data.
    pub inputs: BTreeMap<String, Arc<Tensor>>,
    /// Round each result to its own dtype ([`Arithmetic::Emulated`]).
    pub emulate_dtypes: bool,
    /// Use the arithmetic of large plans ([`Arithmetic::Single`]) even where the plan is small.
    pub single: bool,
    /// The tolerance to use in place of [`Arithmetic::tolerance`].
    pub tolerance: Option<f64>,
    /// Whether the execution may take any time; else one that would take longer than
    /// [`MAX_SECONDS`](crate::MAX_SECONDS) is refused.
    pub patient: bool,
    /// Is told how far the execution is.
    pub progress: Option<Arc<Progress>>,
    /// What executes the plan in place of the simulated devices; it counts no bytes.
    pub engine: Option<Arc<dyn Engine>>,
    /// Memory for blocks; executions with the same [`Spare`] use it one after the other.
    pub spare: Arc<Spare>,
}

/// A tensor and its name.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTensor {
    /// The name of the result.
    pub name: String,
    /// The whole tensor, dims in the declared order.
    pub tensor: Tensor,
}

/// What one move, or the collective inside one loop, sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectiveTrace {
    /// The instruction.
    pub id: InstrId,
    /// Its name: `all-gather`.
    pub name: &'static str,
    /// Bytes that the busiest device sent, rounded up.
    pub wire_bytes: u64,
    /// Bytes that all devices sent, each rounded up.
    pub total_bytes: u64,
    /// How many messages there were.
    pub messages: u64,
}

/// What happened on the devices.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// How results were rounded.
    pub arithmetic: Arithmetic,
    /// How many devices there were.
    pub devices: u64,
    /// The whole tensors that the parameters had.
    pub parameters: BTreeMap<InstrId, Arc<Tensor>>,
    /// The results, combined from all devices.
    pub outputs: Vec<NamedTensor>,
    /// Every move (slices and to-partials included) and every collective einsum, in program order.
    pub collectives: Vec<CollectiveTrace>,
    /// The most bytes that one device held at once, each value counted in its dtype; of an engine
    /// 0.
    pub peak_bytes: u64,
}

/// Executes a schedule on simulated devices.
pub fn execute(schedule: &Schedule, options: &RunOptions) -> Result<Trace, RunError> {
    check(&schedule.plan, options)?;
    let arithmetic = choose(&schedule.plan, options);
    match execute_in(schedule, options, arithmetic) {
        Err(RunError::Overflow { .. }) if arithmetic == Arithmetic::Exact => {
            execute_in(schedule, options, inexact(&schedule.plan))
        }
        trace => trace,
    }
}

/// A verified plan as a schedule without times: one step after the other, values freed after their
/// last use.
pub fn in_program_order(plan: &Plan) -> Schedule {
    let liveness = Liveness::of(plan);
    let step = |id: InstrId| Step {
        id,
        stream: plan.instruction(id).kind.stream(),
        start: Picoseconds(0),
        finish: Picoseconds(0),
        live_bytes: liveness.live_bytes[id.index()],
    };
    Schedule {
        plan: plan.clone(),
        steps: plan.ids().map(step).collect(),
        frees: liveness.frees.clone(),
    }
}

/// Whether a plan is correct, written out and small enough to execute.
pub(crate) fn check(plan: &Plan, options: &RunOptions) -> Result<(), RunError> {
    verify(plan).map_err(RunError::Invalid)?;
    if !plan.folds.is_empty() {
        return Err(RunError::Internal(
            "a folded block has to be written out before it is executed",
        ));
    }
    let needed = bytes_needed(plan);
    if needed > MAX_BYTES {
        return Err(RunError::TooLarge { needed, cap: MAX_BYTES });
    }
    let seconds = seconds_needed(plan);
    if !options.patient && seconds > u128::from(MAX_SECONDS) {
        return Err(RunError::TooLong { seconds, cap: MAX_SECONDS });
    }
    Ok(())
}

/// The arithmetic that a plan is executed in at first.
pub(crate) fn choose(plan: &Plan, options: &RunOptions) -> Arithmetic {
    if options.emulate_dtypes {
        Arithmetic::Emulated
    } else if options.single {
        Arithmetic::Single
    } else if allows_exact(plan) && inputs::all_whole(&options.inputs) {
        Arithmetic::Exact
    } else {
        inexact(plan)
    }
}

/// The arithmetic of a plan whose numbers are not whole, or too large.
pub(crate) fn inexact(plan: &Plan) -> Arithmetic {
    if work_needed(plan) > SINGLE_WORK { Arithmetic::Single } else { Arithmetic::F32 }
}

/// Executes a schedule in some arithmetic; an error if whole numbers overflow in
/// [`Arithmetic::Exact`].
pub(crate) fn execute_in(
    schedule: &Schedule,
    options: &RunOptions,
    arithmetic: Arithmetic,
) -> Result<Trace, RunError> {
    let plan = &schedule.plan;
    let parameters = inputs::parameters(plan, &options.inputs, arithmetic, options.seed)?;
    let grid = Grid::new(&plan.mesh);
    let mut machine = Machine::of(plan, &grid, arithmetic, &options.spare);
    let (outputs, peak_bytes) = match &options.engine {
        Some(engine) => {
            let (engine, seed) = (engine.as_ref(), options.seed);
            let results = engine::execute(engine, plan, &parameters, seed, &grid, arithmetic)?;
            for (id, blocks) in results {
                machine.memory[id.index()] = Some(Blocks::wide(blocks));
            }
            machine.replicas_within = arithmetic.tolerance(plan);
            (machine.outputs()?, 0)
        }
        None => machine.run(schedule, options, &parameters)?,
    };
    let mut collectives = machine.collectives;
    collectives.sort_by_key(|c| c.id);
    let devices = plan.mesh.devices();
    Ok(Trace { arithmetic, devices, parameters, outputs, collectives, peak_bytes })
}

/// The devices, each with its own blocks.
pub(crate) struct Machine<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) grid: &'p Grid<'p>,
    pub(crate) arithmetic: Arithmetic,
    /// For each instruction whose value is live, the block of each device.
    pub(crate) memory: Vec<Option<Blocks>>,
    pub(crate) collectives: Vec<CollectiveTrace>,
    /// Memory of values that are freed.
    pub(crate) spare: Arc<Spare>,
    /// For each attention over a part of the keys, and for its softmax, the statistics of each
    /// device, dims in the order of the value's.
    pub(crate) statistics: BTreeMap<InstrId, Vec<Tensor>>,
    /// The rings of the plan.
    pub(crate) rings: Vec<Ring>,
    /// How far copies of a block may be apart, as a part of its largest element.
    replicas_within: f64,
}

impl<'p> Machine<'p> {
    pub(crate) fn of(
        plan: &'p Plan,
        grid: &'p Grid<'p>,
        arithmetic: Arithmetic,
        spare: &Arc<Spare>,
    ) -> Machine<'p> {
        let memory = vec![None; plan.instructions.len()];
        let collectives = Vec::new();
        let (statistics, spare) = (BTreeMap::new(), spare.clone());
        let (rings, replicas_within) = (rings(plan), 0.0);
        Machine {
            plan,
            grid,
            arithmetic,
            memory,
            collectives,
            spare,
            statistics,
            rings,
            replicas_within,
        }
    }

    /// Executes the steps of a schedule, one after the other. Gives the results, and the most bytes
    /// that a device held at once.
    fn run(
        &mut self,
        schedule: &Schedule,
        options: &RunOptions,
        parameters: &BTreeMap<InstrId, Arc<Tensor>>,
    ) -> Result<(Vec<NamedTensor>, u64), RunError> {
        let plan = self.plan;
        let in_loops: BTreeMap<InstrId, u64> =
            plan.loops_held().into_iter().map(|held| (held.last, held.bytes)).collect();
        let mut done = vec![false; plan.instructions.len()];
        let (mut held, mut peak_bytes) = (0u64, 0u64);
        for (at, step) in schedule.steps.iter().enumerate() {
            let problem = |problem| RunError::Schedule { id: step.id, problem };
            if done.get(step.id.index()) != Some(&false) {
                return Err(problem("it is run twice, or does not exist"));
            }
            done[step.id.index()] = true;
            if passes_in(&self.rings, step.id) {
                // The ring makes its value, in parts.
                continue;
            }
            let blocks = match &plan.instruction(step.id).kind {
                InstrKind::Parameter(_) => {
                    let whole = parameters.get(&step.id);
                    let whole = whole.ok_or(RunError::Internal("a parameter has no data"))?;
                    let (grid, arithmetic) = (self.grid, self.arithmetic);
                    let (seed, spare) = (options.seed, &options.spare);
                    inputs::deal(plan, step.id, whole, grid, arithmetic, seed, spare)?
                }
                InstrKind::Constant(_)
                | InstrKind::Op(_)
                | InstrKind::Move(_)
                | InstrKind::CollectiveEinsum(_) => self.step(step.id)?,
            };
            self.memory[step.id.index()] = Some(blocks);
            if let Some(progress) = &options.progress {
                progress.add(cost_of(plan, step.id));
            }
            held += plan.local_bytes(step.id);
            let beside = in_loops.get(&step.id).copied().unwrap_or(0);
            peak_bytes = peak_bytes.max(held + beside);
            let freed = schedule.frees.get(at).into_iter().flatten();
            for freed in freed.filter(|id| !passes_in(&self.rings, **id)) {
                let blocks = self.memory.get_mut(freed.index()).and_then(Option::take);
                self.spare.take(blocks.ok_or(problem("it frees a value that is not in memory"))?);
                held -= plan.local_bytes(*freed);
            }
        }
        if let Some(id) = plan.ids().find(|id| !done[id.index()]) {
            return Err(RunError::Schedule { id, problem: "it is never run" });
        }
        let outputs = self.outputs()?;
        self.memory.drain(..).flatten().for_each(|blocks| options.spare.take(blocks));
        Ok((outputs, peak_bytes))
    }

    /// The whole tensors of all results.
    fn outputs(&self) -> Result<Vec<NamedTensor>, RunError> {
        let named = |output: &PlanOutput| {
            Ok(NamedTensor { name: output.name.clone(), tensor: self.assemble(output)? })
        };
        self.plan.outputs.iter().map(named).collect()
    }

    pub(crate) fn blocks(&self, id: InstrId, reader: InstrId) -> Result<&Blocks, RunError> {
        let problem = "it reads a value that is not in memory";
        self.memory[id.index()].as_ref().ok_or(RunError::Schedule { id: reader, problem })
    }

    /// The blocks of all operands of an instruction.
    pub(crate) fn operands(&self, id: InstrId) -> Result<Vec<&Blocks>, RunError> {
        self.plan.instruction(id).operands.iter().map(|o| self.blocks(*o, id)).collect()
    }

    /// Remembers what an instruction has sent.
    pub(crate) fn sent(&mut self, id: InstrId, network: &Network) {
        self.collectives.push(CollectiveTrace {
            id,
            name: self.plan.instruction(id).kind.name(),
            wire_bytes: network.wire_bytes(),
            total_bytes: (0..self.grid.devices()).map(|d| network.sent_bytes(d)).sum(),
            messages: network.messages(),
        });
    }

    /// The whole tensor of a result: terms summed, candidates maximised, blocks put in their
    /// places; devices that should hold the same must hold the same.
    pub(crate) fn assemble(&self, output: &PlanOutput) -> Result<Tensor, RunError> {
        let plan = self.plan;
        let instr = plan.instruction(output.id);
        let problem = "a result is not in memory at the end";
        let blocks = self.memory[output.id.index()]
            .as_ref()
            .ok_or(RunError::Schedule { id: output.id, problem })?;
        let sizes = plan.sizes(&instr.dims);
        let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
        let layout = instr.layout;
        let maxima = layout.partial(Reduction::Max);
        let held = layout.split_axes().union(layout.partial_axes());
        // The sum of the terms, for each origin of a block and each candidate for a maximum.
        let mut sums: BTreeMap<(Vec<usize>, usize), Tensor> = BTreeMap::new();
        // Sums and candidates are combined with what is there by a maximum.
        let nothing = if layout.partial_axes().is_empty() { 0.0 } else { neutral(Reduction::Max) };
        let mut whole = Tensor::filled(usizes(&sizes), nothing);
        for device in 0..self.grid.devices() {
            let first = self.grid.projected(device, held);
            if first != device {
                if !blocks.are_same(first, device, self.replicas_within) {
                    return Err(RunError::ReplicasDiffer { id: output.id, first, second: device });
                }
                continue;
            }
            let origin = self.grid.origin(device, shape, layout);
            if layout.partial_axes().is_empty() {
                blocks.write_to(&mut whole, &origin, device);
                continue;
            }
            match sums.entry((origin, self.grid.projected(device, maxima))) {
                Entry::Vacant(place) => {
                    place.insert(blocks.on(device).into_owned());
                }
                Entry::Occupied(mut sum) => {
                    let term = blocks.on(device);
                    let (sum, term) = (&mut sum.get_mut().data, &term.data[..]);
                    let (arithmetic, dtype) = (self.arithmetic, instr.dtype);
                    combine(output.id, arithmetic, dtype, Reduction::Sum, sum, term)?;
                }
            }
        }
        for ((origin, _), block) in sums {
            let mut have = whole.block(&origin, &block.sizes);
            have.data.iter_mut().zip(&block.data).for_each(|(a, b)| *a = maximum(*a, *b));
            whole.write_block(&origin, &have);
        }
        if let Blocks::Wide(_) = blocks {
            let rounded = self.arithmetic.round_all(instr.dtype, false, &mut whole.data);
            rounded.ok_or(RunError::Overflow { id: output.id })?;
        }
        let order: Vec<usize> =
            output.dims.iter().filter_map(|d| instr.dims.iter().position(|i| i == d)).collect();
        Ok(whole.into_transposed(&order))
    }
}
