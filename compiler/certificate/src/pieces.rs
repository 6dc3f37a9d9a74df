//! Composites in pieces (`spec/types.md`): a softmax or a norm over a split dim is computed by
//! several ops, with small all-reduces of their statistics between them.

use shard_cost::{
    Hardware, KernelOp, LocalTensor, Work, collective_cost, fuses_with, kernel_work,
    may_lead_a_kernel, roofline,
};
use shard_ir::composite::{Piece, Read, composite_dim, pieces};
use shard_ir::{
    AxisSet, Collective, Def, DimId, Dtype, Layout, MeshShape, Program, Reduction, ValueId, never,
};

use crate::actions::Site;
use crate::kernel::{Kernel, constant, site};

/// The last kernel of a composite whose operand is read in a layout that splits the composite's
/// dim; the time of everything before is in `before`. `None` where the composite is not done in
/// pieces.
pub(crate) fn last_kernel(
    program: &Program,
    hardware: &Hardware,
    id: ValueId,
    operand: Layout,
) -> Option<Kernel> {
    let composite = InPieces::of(program, id, operand)?;
    let mut works = composite.works();
    let work = works.pop()?;
    let kernels = works.iter().map(|work| roofline(hardware, work).0.0);
    let before = kernels.chain(composite.all_reduces(hardware)).fold(0, u64::saturating_add);
    Some(Kernel { work, before, in_loop: None })
}

/// A composite in pieces. Every dim of a piece is split as the same dim of the operand.
struct InPieces<'p> {
    program: &'p Program,
    /// The operand, its dims, its dtype and its layout.
    operand: ValueId,
    dims: &'p [DimId],
    dtype: Dtype,
    layout: Layout,
    /// The dim of the composite, and the axes that split it.
    over: DimId,
    split: AxisSet,
    pieces: Vec<Piece>,
}

impl<'p> InPieces<'p> {
    /// `None` where the composite is not done in pieces: its dim is whole, or it may not be.
    fn of(program: &'p Program, id: ValueId, layout: Layout) -> Option<InPieces<'p>> {
        let site = site(program, id)?;
        let over = site.pieces_over()?;
        let (dims, dtype) = *site.operands.first()?;
        let split = layout.axes_of(dims.iter().position(|d| *d == over)?).set();
        let operand = *program.value(id).def.operands().first()?;
        let pieces = pieces(site.op, dims, site.result)?;
        let of = InPieces { program, operand, dims, dtype, layout, over, split, pieces };
        (!split.is_empty()).then_some(of)
    }

    /// The layout of a piece of these dims.
    fn layout_of(&self, of: &[DimId]) -> Layout {
        let at = |dim: &DimId| self.dims.iter().position(|d| d == dim);
        of.iter().enumerate().filter_map(|(i, dim)| Some((i, at(dim)?))).fold(
            Layout::REPLICATED,
            |layout, (i, at)| match self.layout.axes_of(at) {
                axes if axes.is_empty() => layout,
                axes => layout.with_dim(i, axes),
            },
        )
    }

    /// The sizes on a device of a piece of these dims.
    fn sizes(&self, of: &[DimId]) -> Vec<u64> {
        let shape = MeshShape { mesh: &self.program.mesh, sizes: &self.program.sizes(of) };
        shape.local_sizes(self.layout_of(of))
    }

    /// What each kernel does on a device, first to last.
    fn works(&self) -> Vec<Work> {
        // Pieces are no values of the program: they are numbered from the top.
        let of_piece = |at: usize| u32::MAX - at as u32;
        let local: Vec<Vec<u64>> =
            self.pieces.iter().map(|piece| self.sizes(&piece.dims)).collect();
        let (whole, dtype) = (self.sizes(self.dims), self.dtype);
        let tensor = |value, dims, sizes, constant| LocalTensor {
            value,
            dims,
            sizes,
            dtype,
            constant,
            statistics: 0,
        };
        let read = |by: usize, read: &Read| match read {
            Read::Operand => {
                let value = self.program.unpinned(self.operand);
                tensor(value.0, self.dims, &whole, constant(self.program, self.operand))
            }
            Read::Piece(at) => tensor(of_piece(*at), &self.pieces[*at].dims, &local[*at], None),
            Read::Number(number) => {
                let number = number.value(&self.program.dims);
                tensor(of_piece(self.pieces.len() + by), &[], &[], Some(number))
            }
        };
        let operands: Vec<Vec<LocalTensor<'_>>> = (self.pieces.iter().enumerate())
            .map(|(i, piece)| piece.reads.iter().map(|of| read(i, of)).collect())
            .collect();
        let op = |i: usize| KernelOp {
            op: &self.pieces[i].op,
            operands: &operands[i],
            result: tensor(of_piece(i), &self.pieces[i].dims, &local[i], None),
        };
        let kernels = self.in_kernels();
        let last = kernels.last().copied();
        let last = last.unwrap_or_else(|| never!("a composite has no pieces", 0));
        let members = |kernel: usize| -> Vec<KernelOp<'_>> {
            (0..kernels.len()).filter(|i| kernels[*i] == kernel).map(op).collect()
        };
        (0..=last).map(|kernel| kernel_work(&members(kernel), &self.program.dims)).collect()
    }

    /// The number of the kernel that each piece runs in, by the rule of [`fuses_with`].
    fn in_kernels(&self) -> Vec<usize> {
        debug_assert!(self.pieces.iter().all(|piece| composite_dim(&piece.op).is_none()));
        let operand = self.program.unpinned(self.operand);
        let operand_is_made_by_op = matches!(self.program.value(operand).def, Def::Op { .. });
        let mut kernels: Vec<usize> = Vec::new();
        let mut count = 0;
        for piece in &self.pieces {
            let made = piece.reads.iter().copied().filter(|read| match read {
                Read::Operand => operand_is_made_by_op,
                Read::Piece(_) => true,
                Read::Number(_) => false,
            });
            let joins = fuses_with(&piece.op, made, |read| match read {
                Read::Piece(at) => {
                    let reads_it = |piece: &&Piece| piece.reads.contains(&Read::Piece(at));
                    let made_by = &self.pieces[at];
                    self.combined(made_by).is_none()
                        && may_lead_a_kernel(&made_by.op)
                        && self.pieces.iter().filter(reads_it).count() == 1
                }
                // Two pieces of a composite read its operand, so the first joins no kernel that
                // makes the operand.
                Read::Operand | Read::Number(_) => false,
            });
            kernels.push(match joins {
                Some(Read::Piece(at)) => kernels[at],
                Some(Read::Operand | Read::Number(_)) | None => {
                    count += 1;
                    count - 1
                }
            });
        }
        kernels
    }

    /// The reduction of a piece that runs over the composite's dim: its result is partial over the
    /// axes that split the dim. `None` of other pieces.
    fn combined(&self, piece: &Piece) -> Option<Reduction> {
        let dims = |read: &Read| match read {
            Read::Operand => self.dims,
            Read::Piece(at) => &self.pieces[*at].dims,
            Read::Number(_) => &[],
        };
        let site = Site {
            op: &piece.op,
            operands: piece.reads.iter().map(|read| (dims(read), self.dtype)).collect(),
            result: &piece.dims,
            mesh: &self.program.mesh,
            dims: &self.program.dims,
            in_pieces: false,
            carries: None,
        };
        site.combines(self.over)
    }

    /// The time in picoseconds of each all-reduce of a partial piece.
    fn all_reduces(&self, hardware: &Hardware) -> impl Iterator<Item = u64> {
        self.pieces.iter().filter_map(move |piece| {
            let (kind, axes) = (self.combined(piece)?, self.split);
            let partial = |layout: Layout, axis| layout.with_partial(axis, kind);
            let partial = axes.iter().fold(self.layout_of(&piece.dims), partial);
            let collective = Collective::AllReduce { kind, axes };
            let sizes = self.program.sizes(&piece.dims);
            let mesh = &self.program.mesh;
            let cost = collective_cost(hardware, mesh, &collective, partial, &sizes, self.dtype);
            Some(cost.time.0)
        })
    }
}
