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

use shard_ir::{DimId, Fused, InstrId, Layout, LoopLayouts, MeshShape, Op, Plan, Reduction};

use crate::arithmetic::Arithmetic;
use crate::collectives::{Groups, combine};
use crate::devices::{Grid, usizes};
use crate::error::RunError;
use crate::local::{Target, View, evaluate};
use crate::network::Network;
use crate::parallel;
use crate::tensor::Tensor;

/// One collective einsum to execute.
pub(crate) struct Loop<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) id: InstrId,
    pub(crate) arithmetic: Arithmetic,
    /// Of each operand the block of every device.
    pub(crate) operands: Vec<Vec<&'a Tensor>>,
}

/// A chunk along a dim: from which index, and how many.
#[derive(Clone, Copy)]
struct Chunk {
    dim: DimId,
    from: usize,
    size: usize,
}

/// Whether values in a layout are terms of sums that are not taken yet.
fn is_term(layout: Layout) -> bool {
    !layout.partial(Reduction::Sum).is_empty()
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
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let chunk = match fused {
            Fused::AllGather { operand, .. } => self.operands[operand][0].data.len(),
            Fused::ReduceScatter { .. } => product.iter().product::<usize>() / groups.size(),
        };
        groups.all().for_each(|g| network.send_all(g, g.len() - 1, chunk));
        let work = crate::limits::work_of(self.plan, self.id).min(usize::MAX as u128) as usize;
        let is_term = is_term(layouts.product);
        let blocks = parallel::map(grid.devices(), work, |device| {
            let (group, rank) = (groups.group(device), groups.rank(device));
            match fused {
                Fused::AllGather { operand, dim, .. } => {
                    self.gathering((group, rank), operand, dim, (&product, is_term))
                }
                Fused::ReduceScatter { dim, .. } => self.scattering((group, rank), dim, &product),
            }
        })?;
        Ok((blocks, network))
    }

    /// The local sizes of the product inside the loop, before it is scattered.
    fn local_product(&self, layouts: &LoopLayouts) -> Vec<usize> {
        let sizes = self.plan.sizes(&self.plan.instruction(self.id).dims);
        usizes(&MeshShape { mesh: &self.plan.mesh, sizes: &sizes }.local_sizes(layouts.product))
    }

    /// The chunks come round, that of rank r - s at step s: each is the block of the device of its
    /// rank.
    fn gathering(
        &self,
        (group, rank): (&[usize], usize),
        place: usize,
        dim: usize,
        (product, is_term): (&[usize], bool),
    ) -> Result<Tensor, RunError> {
        let (k, instr) = (group.len(), self.plan.instruction(self.id));
        let gathered = self.plan.instruction(instr.operands[place]).dims[dim];
        let along = instr.dims.iter().position(|d| *d == gathered);
        let parts = (0..k).map(|number| {
            let held = self.operands[place][group[number]];
            let size = held.sizes[dim];
            let chunk = Chunk { dim: gathered, from: number * size, size };
            self.multiply(
                group[rank],
                chunk,
                Some((place, held)),
                (product, is_term || along.is_none()),
            )
        });
        match along {
            // Each chunk makes its own part of the result,
            Some(along) => Ok(Tensor::joined(&parts.collect::<Result<Vec<_>, _>>()?, along)),
            // or a term of all of it. Terms are added in the order of the chunks, whichever came
            // first: devices that are to hold the same then hold the same bits. (Hardware adds them
            // as they come.)
            None => {
                let mut sum = Tensor::filled(product.to_vec(), 0.0);
                parts.into_iter().try_for_each(|part| self.add(&mut sum, &part?))?;
                self.finish(sum)
            }
        }
    }

    /// A device's chunk comes by all others of its group, from rank + 1 on, and each adds its term;
    /// its own comes last.
    fn scattering(
        &self,
        (group, rank): (&[usize], usize),
        dim: usize,
        product: &[usize],
    ) -> Result<Tensor, RunError> {
        let k = group.len();
        let scattered = self.plan.instruction(self.id).dims[dim];
        let size = product[dim] / k;
        let chunk = Chunk { dim: scattered, from: rank * size, size };
        let term =
            |step: usize| self.multiply(group[(rank + step) % k], chunk, None, (product, true));
        let mut sum = term(1)?;
        for step in 2..=k {
            let mut own = term(step)?;
            self.add(&mut own, &sum)?;
            sum = own;
        }
        self.finish(sum)
    }

    /// What each device makes of the chunk that it holds at a step of a loop that gathers, its own
    /// at step 0.
    pub(crate) fn gathered_terms(
        &self,
        grid: &Grid<'_>,
        step: usize,
        held: &[&Tensor],
    ) -> Result<Vec<Tensor>, RunError> {
        let (Fused::AllGather { operand, dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not gather"));
        };
        let (fused, instr) = (self.fused()?, self.plan.instruction(self.id));
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let gathered = self.plan.instruction(instr.operands[operand]).dims[dim];
        let is_term = is_term(layouts.product) || !instr.dims.contains(&gathered);
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            let size = held[device].sizes[dim];
            let number = (rank + k - step % k) % k;
            let chunk = Chunk { dim: gathered, from: number * size, size };
            self.multiply(device, chunk, Some((operand, held[device])), (&product, is_term))
        })
    }

    /// The results of a loop that gathers, from what each step has given.
    pub(crate) fn joined_terms(
        &self,
        grid: &Grid<'_>,
        steps: Vec<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>, RunError> {
        let (Fused::AllGather { operand, dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not gather"));
        };
        let (fused, instr) = (self.fused()?, self.plan.instruction(self.id));
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let gathered = self.plan.instruction(instr.operands[operand]).dims[dim];
        let along = instr.dims.iter().position(|d| *d == gathered);
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            // In the order of the chunks, as in `gathering`.
            let parts = (0..k).map(|number| &steps[(rank + k - number) % k][device]);
            match along {
                Some(along) => Ok(Tensor::joined(&parts.collect::<Vec<_>>(), along)),
                None => {
                    let mut sum = Tensor::filled(product.clone(), 0.0);
                    parts.into_iter().try_for_each(|part| self.add(&mut sum, part))?;
                    self.finish(sum)
                }
            }
        })
    }

    /// The term that each device makes at a step of a loop that scatters.
    pub(crate) fn scattered_terms(
        &self,
        grid: &Grid<'_>,
        step: usize,
    ) -> Result<Vec<Tensor>, RunError> {
        let (Fused::ReduceScatter { dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not scatter"));
        };
        let groups = Groups::of(grid, &self.fused()?.axes());
        let product = self.local_product(&layouts);
        let scattered = self.plan.instruction(self.id).dims[dim];
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            let size = product[dim] / k;
            let number = (rank + 2 * k - 1 - step) % k;
            let chunk = Chunk { dim: scattered, from: number * size, size };
            self.multiply(device, chunk, None, (&product, true))
        })
    }

    /// Adds to the terms of all devices what came for them.
    pub(crate) fn add_all(&self, into: &mut [Tensor], terms: &[Tensor]) -> Result<(), RunError> {
        into.iter_mut().zip(terms).try_for_each(|(into, term)| self.add(into, term))
    }

    fn layouts(&self) -> Result<(Fused, LoopLayouts), RunError> {
        let not = RunError::Internal("a collective einsum does not type");
        self.plan.loop_layouts(self.id).ok_or(not)
    }

    fn fused(&self) -> Result<Fused, RunError> {
        self.layouts().map(|(fused, _)| fused)
    }

    fn on_all(
        &self,
        grid: &Grid<'_>,
        make: impl Fn(usize) -> Result<Tensor, RunError> + Sync,
    ) -> Result<Vec<Tensor>, RunError> {
        let work = crate::limits::work_of(self.plan, self.id).min(usize::MAX as u128) as usize;
        parallel::map(grid.devices(), work, make)
    }

    /// Rounds a result that is complete.
    pub(crate) fn finish(&self, mut sum: Tensor) -> Result<Tensor, RunError> {
        let instr = self.plan.instruction(self.id);
        let is_term = is_term(instr.layout);
        let rounded = self.arithmetic.round_all(instr.dtype, is_term, &mut sum.data);
        rounded.map(|()| sum).ok_or(RunError::Overflow { id: self.id })
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
        (product, is_term): (&[usize], bool),
    ) -> Result<Tensor, RunError> {
        let instr = self.plan.instruction(self.id);
        let dims_of = |at: usize| self.plan.instruction(instr.operands[at]).dims.as_slice();
        let part = |at: usize| -> Tensor {
            let block = self.operands[at][device];
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
            is_term,
            arithmetic: self.arithmetic,
        };
        evaluate(&Op::Einsum, &views, &target)
    }
}
