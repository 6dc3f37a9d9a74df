//! A schedule on simulated devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::attention::partial_softmax;
use shard_ir::liveness::Liveness;
use shard_ir::verify::verify;
use shard_ir::{
    Collective, InstrId, InstrKind, MeshShape, Op, Picoseconds, Plan, PlanOutput, Reduction,
    Schedule, Step, Stream,
};

use crate::arithmetic::{Arithmetic, EXACT_LIMIT, allows_exact};
use crate::collectives::{Move, neutral};
use crate::devices::{Grid, usizes};
use crate::engine::{self, Engine};
use crate::error::RunError;
use crate::inputs;
use crate::limits::{
    MAX_BYTES, MAX_SECONDS, SINGLE_WORK, bytes_needed, cost_of, seconds_needed, work_needed,
    work_of,
};
use crate::local::{Target, View, evaluate};
use crate::looped::Loop;
use crate::merge::{Merged, merge, statistics};
use crate::network::Network;
use crate::parallel;
use crate::progress::Progress;
use crate::scalar::maximum;
use crate::tensor::Tensor;

/// What an execution is to do.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Of the random inputs and terms.
    pub seed: u64,
    /// Whole tensors for parameters, by name; the others are drawn.
    pub inputs: BTreeMap<String, Tensor>,
    /// Round each result to its own dtype ([`Arithmetic::Emulated`]).
    pub emulate_dtypes: bool,
    /// The tolerance to use in place of [`Arithmetic::tolerance`].
    pub tolerance: Option<f64>,
    /// It may take as long as it takes; else what would take longer than
    /// [`MAX_SECONDS`](crate::MAX_SECONDS) is refused.
    pub patient: bool,
    /// Where it is told how far it is.
    pub progress: Option<Arc<Progress>>,
    /// What executes the plan in place of the simulated devices; it counts no bytes.
    pub engine: Option<Arc<dyn Engine>>,
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
    pub parameters: BTreeMap<InstrId, Tensor>,
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
        stream: match &plan.instruction(id).kind {
            InstrKind::Move(collective) if collective.has_traffic() => Stream::Network,
            InstrKind::Move(_)
            | InstrKind::Parameter(_)
            | InstrKind::Constant(_)
            | InstrKind::Op(_)
            | InstrKind::CollectiveEinsum(_) => Stream::Compute,
        },
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

pub(crate) fn choose(plan: &Plan, options: &RunOptions) -> Arithmetic {
    match () {
        () if options.emulate_dtypes => Arithmetic::Emulated,
        () if allows_exact(plan) && inputs::all_whole(&options.inputs) => Arithmetic::Exact,
        () => inexact(plan),
    }
}

/// The arithmetic of numbers that are not whole.
pub(crate) fn inexact(plan: &Plan) -> Arithmetic {
    if work_needed(plan) > SINGLE_WORK { Arithmetic::Single } else { Arithmetic::F32 }
}

pub(crate) fn execute_in(
    schedule: &Schedule,
    options: &RunOptions,
    arithmetic: Arithmetic,
) -> Result<Trace, RunError> {
    let plan = &schedule.plan;
    let parameters = inputs::parameters(plan, &options.inputs, arithmetic, options.seed)?;
    let grid = Grid::new(&plan.mesh);
    let mut machine = Machine::of(plan, &grid, arithmetic);
    if let Some(engine) = &options.engine {
        let data = (&parameters, options.seed);
        for (id, blocks) in engine::execute(engine.as_ref(), plan, data, &grid, arithmetic)? {
            machine.memory[id.index()] = Some(blocks);
        }
        machine.replicas_within = arithmetic.tolerance(plan);
        let outputs = machine.outputs()?;
        return Ok(Trace {
            arithmetic,
            devices: plan.mesh.devices(),
            parameters,
            outputs,
            collectives: Vec::new(),
            peak_bytes: 0,
        });
    }
    let mut done = vec![false; plan.instructions.len()];
    let (mut held, mut peak_bytes) = (0u64, 0u64);
    for (at, step) in schedule.steps.iter().enumerate() {
        let problem = |problem| RunError::Schedule { id: step.id, problem };
        if done.get(step.id.index()) != Some(&false) {
            return Err(problem("it is run twice, or does not exist"));
        }
        let blocks = match &plan.instruction(step.id).kind {
            InstrKind::Parameter(_) => {
                let whole = parameters
                    .get(&step.id)
                    .ok_or(RunError::Internal("a parameter has no data"))?;
                inputs::deal(plan, step.id, whole, &grid, arithmetic, options.seed)?
            }
            InstrKind::Constant(_)
            | InstrKind::Op(_)
            | InstrKind::Move(_)
            | InstrKind::CollectiveEinsum(_) => machine.step(step.id)?,
        };
        machine.memory[step.id.index()] = Some(blocks);
        done[step.id.index()] = true;
        if let Some(progress) = &options.progress {
            progress.add(cost_of(plan, step.id));
        }
        held += plan.local_bytes(step.id);
        peak_bytes = peak_bytes.max(held + plan.loop_bytes(step.id));
        for freed in schedule.frees.get(at).into_iter().flatten() {
            if machine.memory.get_mut(freed.index()).and_then(Option::take).is_none() {
                return Err(problem("it frees a value that is not in memory"));
            }
            held -= plan.local_bytes(*freed);
        }
    }
    if let Some(id) = plan.ids().find(|id| !done[id.index()]) {
        return Err(RunError::Schedule { id, problem: "it is never run" });
    }
    let outputs = machine.outputs()?;
    let mut collectives = machine.collectives;
    collectives.sort_by_key(|c| c.id);
    Ok(Trace {
        arithmetic,
        devices: plan.mesh.devices(),
        parameters,
        outputs,
        collectives,
        peak_bytes,
    })
}

/// The devices, each with its own blocks.
pub(crate) struct Machine<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) grid: &'p Grid<'p>,
    pub(crate) arithmetic: Arithmetic,
    /// Of each live instruction, the block of each device.
    pub(crate) memory: Vec<Option<Vec<Tensor>>>,
    pub(crate) collectives: Vec<CollectiveTrace>,
    /// Of each attention over a part of the keys, and of its softmax, the statistics of each
    /// device, their dims in the order of the value.
    statistics: BTreeMap<InstrId, Vec<Tensor>>,
    /// How far copies of a block may be apart, as a part of its largest element.
    replicas_within: f64,
}

impl<'p> Machine<'p> {
    pub(crate) fn of(plan: &'p Plan, grid: &'p Grid<'p>, arithmetic: Arithmetic) -> Machine<'p> {
        let memory = vec![None; plan.instructions.len()];
        let collectives = Vec::new();
        let statistics = BTreeMap::new();
        Machine { plan, grid, arithmetic, memory, collectives, statistics, replicas_within: 0.0 }
    }

    /// The whole tensors of all results.
    fn outputs(&self) -> Result<Vec<NamedTensor>, RunError> {
        let named = |output: &PlanOutput| {
            Ok(NamedTensor { name: output.name.clone(), tensor: self.assemble(output)? })
        };
        self.plan.outputs.iter().map(named).collect()
    }

    fn blocks(&self, id: InstrId, reader: InstrId) -> Result<&[Tensor], RunError> {
        let problem = "it reads a value that is not in memory";
        self.memory[id.index()].as_deref().ok_or(RunError::Schedule { id: reader, problem })
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

    /// What an instruction makes of its operands in memory, on every device.
    pub(crate) fn step(&mut self, id: InstrId) -> Result<Vec<Tensor>, RunError> {
        let plan = self.plan;
        let instr = plan.instruction(id);
        let sizes = plan.sizes(&instr.dims);
        let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
        match &instr.kind {
            InstrKind::Parameter(_) => Err(RunError::Internal("parameters are dealt")),
            InstrKind::Constant(number) => {
                let value = self.arithmetic.round(instr.dtype, plan.number(*number));
                Ok(vec![Tensor::filled(Vec::new(), value); self.grid.devices()])
            }
            InstrKind::Move(collective) => {
                let operand = instr.operands[0];
                let from = plan.instruction(operand).layout;
                let (dtype, arithmetic) = (instr.dtype, self.arithmetic);
                let step = Move {
                    id,
                    collective: *collective,
                    shape,
                    from,
                    to: instr.layout,
                    dtype,
                    arithmetic,
                };
                let blocks: Vec<&Tensor> = self.blocks(operand, id)?.iter().collect();
                if let Collective::SoftmaxMerge { .. } = collective {
                    let problem = "it merges a value that has no statistics";
                    let statistics = self.statistics.get(&operand);
                    let statistics = statistics.ok_or(RunError::Schedule { id, problem })?;
                    let Merged { results, statistics, network } =
                        merge(&step, self.grid, &blocks, statistics)?;
                    self.statistics.insert(id, statistics);
                    self.sent(id, &network);
                    return Ok(results);
                }
                let (out, network) = step.execute(self.grid, &blocks)?;
                self.sent(id, &network);
                Ok(out)
            }
            InstrKind::CollectiveEinsum(_) => {
                let operands = instr
                    .operands
                    .iter()
                    .map(|o| self.blocks(*o, id))
                    .collect::<Result<Vec<_>, _>>()?;
                let (out, network) =
                    Loop { plan, id, arithmetic: self.arithmetic, operands }.execute(self.grid)?;
                self.sent(id, &network);
                Ok(out)
            }
            InstrKind::Op(op) => {
                if let Some(statistics) = self.statistics_of(id, op)? {
                    self.statistics.insert(id, statistics);
                }
                let local = usizes(&shape.local_sizes(instr.layout));
                let operands = instr
                    .operands
                    .iter()
                    .map(|o| self.blocks(*o, id))
                    .collect::<Result<Vec<_>, _>>()?;
                let operand_sizes: Vec<Vec<u64>> =
                    instr.operands.iter().map(|o| plan.sizes(&plan.instruction(*o).dims)).collect();
                let work = work_of(plan, id).min(usize::MAX as u128) as usize;
                parallel::map(self.grid.devices(), work, |device| {
                    let origins: Vec<Vec<usize>> = instr
                        .operands
                        .iter()
                        .zip(&operand_sizes)
                        .map(|(o, sizes)| {
                            let shape = MeshShape { mesh: &plan.mesh, sizes };
                            self.grid.origin(device, shape, plan.instruction(*o).layout)
                        })
                        .collect();
                    let views: Vec<View<'_>> = instr
                        .operands
                        .iter()
                        .zip(&operands)
                        .zip(&origins)
                        .map(|((o, blocks), origin)| View {
                            dims: &plan.instruction(*o).dims,
                            block: &blocks[device],
                            origin,
                        })
                        .collect();
                    let origin = self.grid.origin(device, shape, instr.layout);
                    let target = Target {
                        plan,
                        id,
                        sizes: &local,
                        origin: &origin,
                        is_term: !instr.layout.partial(Reduction::Sum).is_empty(),
                        arithmetic: self.arithmetic,
                    };
                    evaluate(op, &views, &target)
                })
            }
        }
    }

    /// The statistics beside what an op makes of an attention over split keys: its softmax works
    /// them out, and its product has them in the order of its own dims.
    fn statistics_of(&self, id: InstrId, op: &Op) -> Result<Option<Vec<Tensor>>, RunError> {
        let instr = self.plan.instruction(id);
        if let Some((softmax, _)) = partial_softmax(self.plan, id) {
            let problem = "it is the attention over a part of the keys, and has no statistics";
            let found = self.statistics.get(&softmax);
            let found = found.ok_or(RunError::Schedule { id, problem })?;
            let has: Vec<_> = self.plan.instruction(softmax).dims.iter().collect();
            let (mut has, own) = (has, &instr.dims);
            has.retain(|dim| own.contains(dim));
            let order: Vec<usize> =
                own.iter().filter_map(|dim| has.iter().position(|h| *h == dim)).collect();
            return Ok(Some(found.iter().map(|block| block.transposed(&order)).collect()));
        }
        let Op::Softmax { over } = op else { return Ok(None) };
        let scores = instr.operands[0];
        let dims = &self.plan.instruction(scores).dims;
        let Some(at) = dims.iter().position(|dim| dim == over) else { return Ok(None) };
        if !instr.origin.attention || self.plan.instruction(scores).layout.axes_of(at).is_empty() {
            return Ok(None);
        }
        let blocks = self.blocks(scores, id)?;
        // Dims in the order of the softmax's own.
        let left: Vec<_> = dims.iter().filter(|dim| *dim != over).collect();
        let order: Vec<usize> =
            instr.dims.iter().filter_map(|dim| left.iter().position(|l| *l == dim)).collect();
        let of_block = |block| statistics(block, at, self.arithmetic).transposed(&order);
        Ok(Some(blocks.iter().map(of_block).collect()))
    }

    /// The whole tensor of a result: terms summed, candidates maximised, blocks put in their
    /// places; devices that should hold the same must hold the same.
    pub(crate) fn assemble(&self, output: &PlanOutput) -> Result<Tensor, RunError> {
        let plan = self.plan;
        let instr = plan.instruction(output.id);
        let problem = "a result is not in memory at the end";
        let blocks = self.memory[output.id.index()]
            .as_deref()
            .ok_or(RunError::Schedule { id: output.id, problem })?;
        let sizes = plan.sizes(&instr.dims);
        let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
        let layout = instr.layout;
        let maxima = layout.partial(Reduction::Max);
        // By place and candidate: the sum of the terms.
        let mut sums: BTreeMap<(Vec<usize>, usize), Tensor> = BTreeMap::new();
        for device in 0..self.grid.devices() {
            let block = &blocks[device];
            let first =
                self.grid.projected(device, layout.split_axes().union(layout.partial_axes()));
            if first != device {
                if !engine::same(block, &blocks[first], self.replicas_within) {
                    return Err(RunError::ReplicasDiffer { id: output.id, first, second: device });
                }
                continue;
            }
            let key =
                (self.grid.origin(device, shape, layout), self.grid.projected(device, maxima));
            match sums.get_mut(&key) {
                None => {
                    sums.insert(key, block.clone());
                }
                Some(sum) => {
                    for (a, b) in sum.data.iter_mut().zip(&block.data) {
                        *a = self.arithmetic.round_term(instr.dtype, *a + *b);
                        if self.arithmetic == Arithmetic::Exact
                            && a.is_finite()
                            && a.abs() > EXACT_LIMIT
                        {
                            return Err(RunError::Overflow { id: output.id });
                        }
                    }
                }
            }
        }
        let mut whole = Tensor::filled(usizes(&sizes), neutral(Reduction::Max));
        for ((origin, _), mut block) in sums {
            let rounded = self.arithmetic.round_all(instr.dtype, false, &mut block.data);
            rounded.ok_or(RunError::Overflow { id: output.id })?;
            let mut have = whole.block(&origin, &block.sizes);
            have.data.iter_mut().zip(&block.data).for_each(|(a, b)| *a = maximum(*a, *b));
            whole.write_block(&origin, &have);
        }
        let order: Vec<usize> =
            output.dims.iter().filter_map(|d| instr.dims.iter().position(|i| i == d)).collect();
        Ok(whole.transposed(&order))
    }
}
