//! Executes one instruction, or one ring, on every device.

use std::sync::Arc;

use shard_ir::attention::{Ring, carried_operand, carried_statistics, partial_softmax};
use shard_ir::{Collective, InstrId, InstrKind, MeshShape, Op, Reduction};

use crate::blocks::Blocks;
use crate::collectives::Move;
use crate::devices::usizes;
use crate::error::RunError;
use crate::execute::Machine;
use crate::limits::work_of;
use crate::local::{Target, View, evaluate};
use crate::looped::Loop;
use crate::merge::{Merged, merge, statistics};
use crate::narrow::{self, Operand};
use crate::parallel;
use crate::ring::{RingRun, reads, ring_of};
use crate::tensor::Tensor;

impl Machine<'_> {
    /// What an instruction makes of its operands in memory, on every device.
    pub(crate) fn step(&mut self, id: InstrId) -> Result<Blocks, RunError> {
        let plan = self.plan;
        let instr = plan.instruction(id);
        if let Some(ring) = ring_of(&self.rings, id).cloned() {
            return self.ring(&ring);
        }
        match &instr.kind {
            InstrKind::Parameter(_) => Err(RunError::Internal("parameters are dealt")),
            InstrKind::Constant(number) => {
                let value = self.arithmetic.round(instr.dtype, plan.number(*number));
                let block = Arc::new(Tensor::filled(Vec::new(), value));
                let blocks = vec![block; self.grid.devices()];
                Ok(Blocks::of(self.arithmetic, instr.dtype, blocks))
            }
            InstrKind::Move(collective) => self.move_by(id, collective),
            InstrKind::CollectiveEinsum(_) => {
                let operands = self.operands(id)?;
                let operands: Vec<_> = operands.iter().map(|o| o.widened()).collect();
                let operands =
                    operands.iter().map(|o| o.iter().map(|block| &**block).collect()).collect();
                let (out, network) =
                    Loop { plan, id, arithmetic: self.arithmetic, operands }.execute(self.grid)?;
                self.sent(id, &network);
                let out = out.into_iter().map(Arc::new).collect();
                Ok(Blocks::of(self.arithmetic, instr.dtype, out))
            }
            InstrKind::Op(op) => {
                if let Some(statistics) = self.statistics_of(id, op)? {
                    self.statistics.insert(id, statistics);
                }
                self.op(id, op)
            }
        }
    }

    /// What a ring makes of the values that it reads, on every device.
    fn ring(&mut self, ring: &Ring) -> Result<Blocks, RunError> {
        let (plan, arithmetic, last) = (self.plan, self.arithmetic, ring.last());
        let read = reads(plan, ring);
        let held = read.iter().map(|id| Ok((*id, self.blocks(*id, last)?.widened())));
        let held = held.collect::<Result<Vec<_>, RunError>>()?;
        let outside = held.iter().map(|(id, blocks)| (*id, blocks.iter().map(|b| &**b).collect()));
        let run = RingRun { plan, ring, arithmetic, outside: outside.collect() };
        let (out, network) = run.execute(self.grid)?;
        self.sent(ring.first(), &network);
        let out = out.into_iter().map(Arc::new).collect();
        Ok(Blocks::of(arithmetic, plan.instruction(last).dtype, out))
    }

    /// What a collective makes of its operand, on every device.
    fn move_by(&mut self, id: InstrId, collective: &Collective) -> Result<Blocks, RunError> {
        let plan = self.plan;
        let instr = plan.instruction(id);
        let sizes = plan.sizes(&instr.dims);
        let operand = instr.operands[0];
        let step = Move {
            id,
            collective: *collective,
            shape: MeshShape { mesh: &plan.mesh, sizes: &sizes },
            from: plan.instruction(operand).layout,
            to: instr.layout,
            dtype: instr.dtype,
            arithmetic: self.arithmetic,
            spare: &self.spare,
        };
        let blocks = self.blocks(operand, id)?;
        if let Collective::SoftmaxMerge { .. } = collective {
            let problem = "it merges a value that has no statistics";
            let statistics = self.statistics.get(&operand);
            let statistics = statistics.ok_or(RunError::Schedule { id, problem })?;
            let Merged { results, statistics, network } =
                merge(&step, self.grid, &blocks.widened(), statistics)?;
            self.statistics.insert(id, statistics);
            self.sent(id, &network);
            return Ok(Blocks::of(self.arithmetic, instr.dtype, results));
        }
        let (out, network) = match blocks {
            Blocks::Wide(blocks) => {
                let (out, network) = step.execute(self.grid, blocks)?;
                (Blocks::Wide(out), network)
            }
            Blocks::Narrow(blocks) => {
                let (out, network) = step.execute(self.grid, blocks)?;
                (Blocks::Narrow(out), network)
            }
        };
        self.sent(id, &network);
        Ok(out)
    }

    /// What an op makes of its operands, on every device.
    fn op(&self, id: InstrId, op: &Op) -> Result<Blocks, RunError> {
        let held = self.operands(id)?;
        let work = work_of(self.plan, id).min(usize::MAX as u128) as usize;
        let devices = self.grid.devices();
        let wide = |device: usize| self.op_on(device, id, op, &held);
        if !Blocks::are_narrow(self.arithmetic, self.plan.instruction(id).dtype) {
            return parallel::map(devices, work, wide).map(Blocks::wide);
        }
        let made = parallel::map(devices, work, |device| {
            let block = match self.narrow_op_on(device, id, op, &held) {
                Some(block) => block?,
                None => wide(device)?.held_as(),
            };
            Ok(Arc::new(block))
        });
        made.map(Blocks::Narrow)
    }

    /// The block that one device makes.
    fn op_on(
        &self,
        device: usize,
        id: InstrId,
        op: &Op,
        held: &[&Blocks],
    ) -> Result<Tensor, RunError> {
        let (plan, instr) = (self.plan, self.plan.instruction(id));
        let origin_of = |id: InstrId| {
            let sizes = plan.sizes(&plan.instruction(id).dims);
            let shape = MeshShape { mesh: &plan.mesh, sizes: &sizes };
            self.grid.origin(device, shape, plan.instruction(id).layout)
        };
        let blocks: Vec<_> = held.iter().map(|blocks| blocks.on(device)).collect();
        let origins: Vec<_> = instr.operands.iter().map(|o| origin_of(*o)).collect();
        let views: Vec<View<'_>> = (instr.operands.iter().zip(&blocks).zip(&origins))
            .map(|((o, block), origin)| View { dims: &plan.instruction(*o).dims, block, origin })
            .collect();
        let target = Target {
            plan,
            id,
            sizes: &usizes(&plan.local_sizes(id)),
            origin: &origin_of(id),
            is_term: !instr.layout.partial(Reduction::Sum).is_empty(),
            arithmetic: self.arithmetic,
        };
        evaluate(op, &views, &target)
    }

    /// The block that one device makes, if all operands are held as `f32` and the op can be done on
    /// such blocks.
    fn narrow_op_on(
        &self,
        device: usize,
        id: InstrId,
        op: &Op,
        held: &[&Blocks],
    ) -> Option<Result<Tensor<f32>, RunError>> {
        let instr = self.plan.instruction(id);
        let dims = instr.operands.iter().map(|o| &self.plan.instruction(*o).dims);
        let operands = dims.zip(held).map(|(dims, blocks)| match blocks {
            Blocks::Narrow(blocks) => Some(Operand { dims, block: &blocks[device] }),
            Blocks::Wide(_) => None,
        });
        let operands = operands.collect::<Option<Vec<_>>>()?;
        let sizes = usizes(&self.plan.local_sizes(id));
        narrow::evaluate(op, &operands, &instr.dims, &sizes, &self.spare)
    }

    /// The statistics beside the result of an op that is, or acts on, an attention over a part of
    /// the keys. The softmax of the attention computes them from the scores. Its product with the
    /// values, and the ops behind that, have those of their operand, dims in the order of their
    /// own.
    fn statistics_of(&self, id: InstrId, op: &Op) -> Result<Option<Vec<Tensor>>, RunError> {
        let instr = self.plan.instruction(id);
        let problem = "it acts on the attention over a part of the keys, and has no statistics";
        if let Some([lie, wanted]) = carried_statistics(self.plan, id) {
            let operand = carried_operand(self.plan, id).and_then(|at| instr.operands.get(at));
            let found = operand.and_then(|operand| self.statistics.get(operand));
            let found = found.ok_or(RunError::Schedule { id, problem })?;
            let order: Vec<usize> =
                wanted.iter().filter_map(|dim| lie.iter().position(|l| l == dim)).collect();
            return Ok(Some(found.iter().map(|block| block.transposed(&order)).collect()));
        }
        if let Some((softmax, _)) = partial_softmax(self.plan, id) {
            let found = self.statistics.get(&softmax);
            let found = found.ok_or(RunError::Schedule { id, problem })?;
            let own = &instr.dims;
            let has = self.plan.instruction(softmax).dims.iter();
            let has: Vec<_> = has.filter(|dim| own.contains(dim)).collect();
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
        let of_block =
            |block: &Arc<Tensor>| statistics(block, at, self.arithmetic).transposed(&order);
        Ok(Some(blocks.widened().iter().map(of_block).collect()))
    }
}
