//! Collective einsums, chunk by chunk.
//!
//! | loop | at step s, the device of rank r in a group of K |
//! |---|---|
//! | all-gather | multiplies chunk r - s of the operand, which it holds, and passes it on to rank r + 1 |
//! | reduce-scatter | makes its term of chunk r - 1 - s of the result, adds it to what came from rank r - 1, and passes that on |
//!
//! There are K steps and K - 1 messages from each device, so D(K-1)/K is sent, as by the collective
//! alone. Nothing is ever gathered, and no product is ever held whole: beside its operands and its
//! result a device has the chunk that it works on and the one that arrives.

use shard_ir::{DimId, Fused, InstrId, LoopLayouts, MeshShape, Op, Plan, Reduction};

use crate::arithmetic::Arithmetic;
use crate::collectives::{combine, tensor};
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::local::{Target, View, evaluate};
use crate::network::Network;
use crate::tensor::Tensor;

/// One collective einsum to execute.
pub(crate) struct Loop<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) id: InstrId,
    pub(crate) arithmetic: Arithmetic,
    /// Of each operand the block of every device.
    pub(crate) operands: Vec<&'a [Tensor]>,
}

/// A chunk along a dim: from which index, and how many.
#[derive(Clone, Copy)]
struct Chunk {
    dim: DimId,
    from: usize,
    size: usize,
}

impl Loop<'_> {
    /// The block of every device, and the network that carried the chunks.
    pub(crate) fn execute(&self, grid: &Grid<'_>) -> Result<(Vec<Tensor>, Network), RunError> {
        let (fused, layouts) = self
            .plan
            .loop_layouts(self.id)
            .ok_or(RunError::Internal("a collective einsum does not type"))?;
        let moved = match fused.gathered() {
            Some(place) => {
                self.plan.instruction(self.plan.instruction(self.id).operands[place]).dtype
            }
            None => self.plan.instruction(self.id).dtype,
        };
        let mut network = Network::new(grid.devices(), moved.bits(), 1);
        let mut out: Vec<Option<Tensor>> = vec![None; grid.devices()];
        for group in grid.groups(&fused.axes()) {
            let made = match fused {
                Fused::AllGather { operand, dim, .. } => self.gathering(
                    &mut network,
                    &group,
                    operand,
                    dim,
                    &self.local_product(&layouts),
                )?,
                Fused::ReduceScatter { dim, .. } => {
                    self.scattering(&mut network, &group, dim, &self.local_product(&layouts))?
                }
            };
            for (device, block) in group.iter().zip(made) {
                out[*device] = Some(block);
            }
        }
        if !network.is_quiet() {
            return Err(RunError::Internal("a message was sent that nobody took"));
        }
        let blocks = out
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .ok_or(RunError::Internal("a device is in no group"))?;
        Ok((blocks, network))
    }

    /// The local sizes of the product inside the loop, before it is scattered.
    fn local_product(&self, layouts: &LoopLayouts) -> Vec<usize> {
        let sizes = self.plan.sizes(&self.plan.instruction(self.id).dims);
        usizes(&MeshShape { mesh: &self.plan.mesh, sizes: &sizes }.local_sizes(layouts.product))
    }

    fn gathering(
        &self,
        network: &mut Network,
        group: &[usize],
        place: usize,
        dim: usize,
        product: &[usize],
    ) -> Result<Vec<Tensor>, RunError> {
        let (k, instr) = (group.len(), self.plan.instruction(self.id));
        let gathered = self.plan.instruction(instr.operands[place]).dims[dim];
        let along = instr.dims.iter().position(|d| *d == gathered);
        let mut held: Vec<Tensor> =
            group.iter().map(|d| self.operands[place][*d].clone()).collect();
        let mut parts: Vec<Vec<Option<Tensor>>> = vec![vec![None; k]; k];
        for step in 0..k {
            for rank in 0..k {
                let size = held[rank].sizes[dim];
                let number = (rank + k - step) % k;
                let chunk = Chunk { dim: gathered, from: number * size, size };
                parts[rank][number] =
                    Some(self.multiply(group[rank], chunk, Some((place, &held[rank])), product)?);
            }
            if step + 1 < k {
                for rank in 0..k {
                    network.send(group[rank], group[(rank + 1) % k], held[rank].data.clone());
                }
                for rank in 0..k {
                    held[rank] = tensor(&held[rank].sizes, network.receive(group[rank])?)?;
                }
            }
        }
        let lost = RunError::Internal("a chunk is lost");
        let parts =
            parts.into_iter().map(|parts| parts.into_iter().collect::<Option<Vec<Tensor>>>());
        let parts = parts.collect::<Option<Vec<_>>>().ok_or(lost)?;
        parts
            .into_iter()
            .map(|parts| match along {
                // Each chunk makes its own part of the result,
                Some(along) => Ok(Tensor::joined(&parts, along)),
                // or a term of all of it. Terms are added in the order of the chunks, whichever
                // came first: devices that are to hold the same then hold the same bits. (Hardware
                // adds them as they come.)
                None => {
                    let mut sum = Tensor::filled(product.to_vec(), 0.0);
                    parts.iter().try_for_each(|part| self.add(&mut sum, part))?;
                    Ok(sum)
                }
            })
            .collect()
    }

    fn scattering(
        &self,
        network: &mut Network,
        group: &[usize],
        dim: usize,
        product: &[usize],
    ) -> Result<Vec<Tensor>, RunError> {
        let k = group.len();
        let scattered = self.plan.instruction(self.id).dims[dim];
        let size = product[dim] / k;
        let mut sums: Vec<Option<Tensor>> = vec![None; k];
        for step in 0..k {
            for rank in 0..k {
                let chunk =
                    Chunk { dim: scattered, from: (rank + 2 * k - 1 - step) % k * size, size };
                let mut term = self.multiply(group[rank], chunk, None, product)?;
                if step > 0 {
                    let arrived = tensor(&term.sizes, network.receive(group[rank])?)?;
                    self.add(&mut term, &arrived)?;
                }
                sums[rank] = Some(term);
            }
            if step + 1 < k {
                for rank in 0..k {
                    let sum = sums[rank].take().ok_or(RunError::Internal("a chunk is lost"))?;
                    network.send(group[rank], group[(rank + 1) % k], sum.data);
                }
            }
        }
        sums.into_iter().collect::<Option<Vec<_>>>().ok_or(RunError::Internal("a chunk is lost"))
    }

    fn add(&self, into: &mut Tensor, term: &Tensor) -> Result<(), RunError> {
        let dtype = self.plan.instruction(self.id).dtype;
        combine(self.id, self.arithmetic, dtype, Reduction::Sum, &mut into.data, &term.data)
    }

    /// What a device makes of one chunk: of every operand the part that belongs to it, of the one
    /// that is passed round the chunk that is held.
    fn multiply(
        &self,
        device: usize,
        chunk: Chunk,
        held: Option<(usize, &Tensor)>,
        product: &[usize],
    ) -> Result<Tensor, RunError> {
        let instr = self.plan.instruction(self.id);
        let dims_of = |at: usize| self.plan.instruction(instr.operands[at]).dims.as_slice();
        let part = |at: usize| -> Tensor {
            let block = &self.operands[at][device];
            match (held, dims_of(at).iter().position(|d| *d == chunk.dim)) {
                (Some((place, held)), _) if place == at => held.clone(),
                (_, Some(along)) => {
                    let (mut origin, mut sizes) = (vec![0; block.sizes.len()], block.sizes.clone());
                    (origin[along], sizes[along]) = (chunk.from, chunk.size);
                    block.block(&origin, &sizes)
                }
                (_, None) => block.clone(),
            }
        };
        let parts: Vec<Tensor> = (0..instr.operands.len()).map(part).collect();
        let nowhere = [0; shard_ir::tensor::MAX_RANK];
        let views: Vec<View<'_>> = parts
            .iter()
            .enumerate()
            .map(|(at, block)| View {
                dims: dims_of(at),
                block,
                origin: &nowhere[..block.sizes.len()],
            })
            .collect();
        let sized =
            |(dim, size): (&DimId, &usize)| if *dim == chunk.dim { chunk.size } else { *size };
        let sizes: Vec<usize> = instr.dims.iter().zip(product).map(sized).collect();
        let origin = &nowhere[..sizes.len()];
        let target = Target {
            plan: self.plan,
            id: self.id,
            sizes: &sizes,
            origin,
            arithmetic: self.arithmetic,
        };
        evaluate(&Op::Einsum, &views, &target)
    }
}
