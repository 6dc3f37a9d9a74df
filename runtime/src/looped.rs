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
//!
//! The interpreter keeps the terms of all steps of an all-gather, and joins them at the end.

use shard_ir::{DimId, Fused, InstrId, Layout, LoopLayouts, MeshShape, Op, Plan, Reduction};

use crate::arithmetic::Arithmetic;
use crate::collectives::combine;
use crate::devices::{Grid, Groups, usizes};
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
    /// For each operand the block of every device.
    pub(crate) operands: Vec<Vec<&'a Tensor>>,
}

/// A chunk along a dim.
#[derive(Clone, Copy)]
struct Chunk {
    dim: DimId,
    /// Its first index along the dim.
    from: usize,
    size: usize,
}

/// Whether devices hold terms of a sum in a layout.
fn is_term(layout: Layout) -> bool {
    !layout.partial(Reduction::Sum).is_empty()
}

impl Loop<'_> {
    /// The block of every device, and the network that carried the chunks.
    pub(crate) fn execute(&self, grid: &Grid<'_>) -> Result<(Vec<Tensor>, Network), RunError> {
        let (fused, _) = self.layouts()?;
        let groups = Groups::of(grid, &fused.axes());
        let (moved, chunk, blocks) = match fused {
            Fused::AllGather { operand, .. } => {
                let mut held = self.operands[operand].clone();
                let mut terms = vec![self.gathered_terms(grid, 0, &held)?];
                for step in 1..groups.size() {
                    held = groups.passed_on(held);
                    terms.push(self.gathered_terms(grid, step, &held)?);
                }
                let moved = self.plan.instruction(self.id).operands[operand];
                (moved, held[0].data.len(), self.joined_terms(grid, terms)?)
            }
            Fused::ReduceScatter { .. } => {
                let mut sums = self.scattered_terms(grid, 0)?;
                for step in 1..groups.size() {
                    let arrived = groups.passed_on(sums);
                    sums = self.scattered_terms(grid, step)?;
                    self.add_all(&mut sums, &arrived)?;
                }
                let chunk = sums[0].data.len();
                let finished = sums.into_iter().map(|sum| self.finish(sum));
                (self.id, chunk, finished.collect::<Result<_, _>>()?)
            }
        };
        let bits = self.plan.instruction(moved).dtype.bits();
        let mut network = Network::new(grid.devices(), bits, 1);
        groups.all().for_each(|group| network.send_all(group, group.len() - 1, chunk));
        Ok((blocks, network))
    }

    /// The local sizes of the product inside the loop, before it is scattered.
    fn local_product(&self, layouts: &LoopLayouts) -> Vec<usize> {
        let sizes = self.plan.sizes(&self.plan.instruction(self.id).dims);
        usizes(&MeshShape { mesh: &self.plan.mesh, sizes: &sizes }.local_sizes(layouts.product))
    }

    /// What each device makes of the chunk that it holds at a step of a loop that gathers: the
    /// chunk of rank r - step, its own at step 0.
    pub(crate) fn gathered_terms(
        &self,
        grid: &Grid<'_>,
        step: usize,
        held: &[&Tensor],
    ) -> Result<Vec<Tensor>, RunError> {
        let (fused @ Fused::AllGather { operand, dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not gather"));
        };
        let instr = self.plan.instruction(self.id);
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let gathered = self.plan.instruction(instr.operands[operand]).dims[dim];
        let is_term = is_term(layouts.product) || !instr.dims.contains(&gathered);
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            let size = held[device].sizes[dim];
            let number = (rank + k - step % k) % k;
            let chunk = Chunk { dim: gathered, from: number * size, size };
            self.multiply(device, chunk, Some((operand, held[device])), &product, is_term)
        })
    }

    /// The results of a loop that gathers, from the [`Self::gathered_terms`] of each step.
    pub(crate) fn joined_terms(
        &self,
        grid: &Grid<'_>,
        steps: Vec<Vec<Tensor>>,
    ) -> Result<Vec<Tensor>, RunError> {
        let (fused @ Fused::AllGather { operand, dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not gather"));
        };
        let instr = self.plan.instruction(self.id);
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let gathered = self.plan.instruction(instr.operands[operand]).dims[dim];
        let along = instr.dims.iter().position(|d| *d == gathered);
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            // Terms are added in the order of the chunks, and not as they came: devices that are to
            // hold the same then hold the same bits. (Hardware adds them as they come.)
            let parts = (0..k).map(|number| &steps[(rank + k - number) % k][device]);
            match along {
                // Each chunk makes its own part of the result; or a term of all of it.
                Some(along) => Ok(Tensor::joined(&parts.collect::<Vec<_>>(), along)),
                None => {
                    let mut sum = Tensor::filled(product.clone(), 0.0);
                    parts.into_iter().try_for_each(|part| self.add(&mut sum, part))?;
                    self.finish(sum)
                }
            }
        })
    }

    /// The term that each device makes at a step of a loop that scatters: that of the chunk of rank
    /// r - 1 - step, its own at the last step.
    pub(crate) fn scattered_terms(
        &self,
        grid: &Grid<'_>,
        step: usize,
    ) -> Result<Vec<Tensor>, RunError> {
        let (fused @ Fused::ReduceScatter { dim, .. }, layouts) = self.layouts()? else {
            return Err(RunError::Internal("a loop that does not scatter"));
        };
        let groups = Groups::of(grid, &fused.axes());
        let product = self.local_product(&layouts);
        let scattered = self.plan.instruction(self.id).dims[dim];
        self.on_all(grid, |device| {
            let (k, rank) = (groups.size(), groups.rank(device));
            let size = product[dim] / k;
            let number = (rank + 2 * k - 1 - step) % k;
            let chunk = Chunk { dim: scattered, from: number * size, size };
            self.multiply(device, chunk, None, &product, true)
        })
    }

    /// Adds to the term of every device the term that arrived there.
    pub(crate) fn add_all(&self, into: &mut [Tensor], terms: &[Tensor]) -> Result<(), RunError> {
        into.iter_mut().zip(terms).try_for_each(|(into, term)| self.add(into, term))
    }

    fn layouts(&self) -> Result<(Fused, LoopLayouts), RunError> {
        let problem = RunError::Internal("a collective einsum does not type");
        self.plan.loop_layouts(self.id).ok_or(problem)
    }

    fn on_all(
        &self,
        grid: &Grid<'_>,
        make: impl Fn(usize) -> Result<Tensor, RunError> + Sync,
    ) -> Result<Vec<Tensor>, RunError> {
        let work = crate::limits::work_of(self.plan, self.id).min(usize::MAX as u128) as usize;
        parallel::map(grid.devices(), work, make)
    }

    /// Rounds a result whose terms are all added.
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

    /// What a device makes of one chunk, from the part of every operand that belongs to the chunk.
    /// `held` is the operand that is passed round, by its place, with the chunk that the device
    /// has. `product` has the local sizes of the product of all chunks.
    fn multiply(
        &self,
        device: usize,
        chunk: Chunk,
        held: Option<(usize, &Tensor)>,
        product: &[usize],
        is_term: bool,
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
