//! The costs of composites in pieces: exactly what their pieces cost in the plan, by the same
//! rules.

use std::borrow::Cow;

use shard_cost::{
    Hardware, KernelOp, LocalTensor, RingShape, Work, collective_cost, fuses_with,
    may_lead_a_kernel, ring_work,
};
use shard_ir::attention::local_statistics;
use shard_ir::composite::{Piece, Read};
use shard_ir::{Def, Dim, DimId, Dtype, Layout, MeshShape, Op, ValueId, never};

use crate::cost::Cost;
use crate::kernel::Kernels;
use crate::rules::pieces::Laid;
use crate::times::{steps_of, work_cost};

/// A tensor as one device holds it.
#[derive(Clone, Debug)]
pub(crate) struct Held<'a> {
    /// Which value it is, behind pins.
    pub(crate) value: u32,
    pub(crate) dims: Cow<'a, [DimId]>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) dtype: Dtype,
    pub(crate) constant: Option<f64>,
    /// The number of statistics beside it, where it is the attention over a part of the keys.
    pub(crate) statistics: u64,
}

impl<'a> Held<'a> {
    /// A value of the program in a layout.
    pub(crate) fn of(kernels: &'a Kernels, value: ValueId, layout: Layout) -> Held<'a> {
        let program = kernels.program.as_ref();
        let (held, origin) = (program.value(value), kernels.origin_of(value));
        let sizes = program.sizes(&held.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let statistics = kernels.statistics(value).filter(|_| !layout.softmax_axes().is_empty());
        Held {
            value: origin.0,
            dims: Cow::Borrowed(&held.dims),
            sizes: shape.local_sizes(layout),
            dtype: held.dtype,
            constant: program.value(origin).def.constant(),
            statistics: statistics.map_or(0, |of| local_statistics(shape, layout, of)),
        }
    }

    fn tensor(&self) -> LocalTensor<'_> {
        let Held { value, dims, sizes, dtype, constant, statistics } = self;
        let (dtype, constant, statistics) = (*dtype, *constant, *statistics);
        LocalTensor { value: *value, dims, sizes, dtype, constant, statistics }
    }
}

/// An op with what it reads and makes, on one device.
#[derive(Clone, Debug)]
pub(crate) struct HeldOp<'a> {
    pub(crate) op: Cow<'a, Op>,
    pub(crate) operands: Vec<Held<'a>>,
    pub(crate) result: Held<'a>,
}

impl HeldOp<'_> {
    /// The elements that the op touches, which are those of its operands and its result.
    pub(crate) fn elements(&self) -> u64 {
        let count = |held: &Held<'_>| held.sizes.iter().product::<u64>();
        self.operands.iter().fold(count(&self.result), |n, held| n.saturating_add(count(held)))
    }
}

/// The work of ops that run as one kernel, first to last. `dims` are those of the program.
pub(crate) fn work_of(chain: &[HeldOp<'_>], dims: &[Dim], ring: RingShape) -> Work {
    let operands: Vec<Vec<LocalTensor<'_>>> =
        chain.iter().map(|op| op.operands.iter().map(Held::tensor).collect()).collect();
    let chain: Vec<KernelOp<'_>> = chain
        .iter()
        .zip(&operands)
        .map(|(op, operands)| KernelOp { op: &op.op, operands, result: op.result.tensor() })
        .collect();
    ring_work(&chain, dims, ring)
}

/// A composite in pieces, as one device sees it.
#[derive(Debug)]
pub(crate) struct InPieces<'a> {
    ops: Vec<HeldOp<'a>>,
    /// The dims of the program.
    dims: &'a [Dim],
    /// The kernel of each piece, numbered in the order of their first pieces.
    kernel: Vec<usize>,
    /// The cost of all all-reduces.
    moves: Cost,
    /// For each piece, the pieces that it reads, and the time of its own all-reduce in picoseconds.
    reads: Vec<(Vec<usize>, u64)>,
}

impl<'a> InPieces<'a> {
    /// The pieces of a composite that reads its operand in a layout; `None` where it is computed
    /// whole.
    pub(crate) fn new(
        kernels: &'a Kernels,
        hardware: &Hardware,
        id: ValueId,
        operand: Layout,
    ) -> Option<InPieces<'a>> {
        let program = kernels.program.as_ref();
        let read_from = *program.value(id).def.operands().first()?;
        let pieces = kernels.site(id).pieces_on(operand)?;
        let dtype = program.value(read_from).dtype;
        let local = |dims: &[DimId], layout: Layout| {
            let sizes = program.sizes(dims);
            MeshShape { mesh: &program.mesh, sizes: &sizes }.local_sizes(layout)
        };
        // Pieces count as values with numbers that no value of the program has.
        let number = |piece: usize| u32::MAX - piece as u32;
        let mut ops: Vec<HeldOp<'a>> = Vec::with_capacity(pieces.len());
        let mut moves = Cost::ZERO;
        let mut reads = Vec::with_capacity(pieces.len());
        for (i, (piece, laid)) in pieces.iter().enumerate() {
            let read = |read: &Read| match read {
                Read::Operand => Held::of(kernels, read_from, operand),
                Read::Piece(at) => {
                    let (piece, laid) = &pieces[*at];
                    let sizes = local(&piece.dims, laid.read());
                    let dims = Cow::Owned(piece.dims.clone());
                    Held { value: number(*at), dims, sizes, dtype, constant: None, statistics: 0 }
                }
                Read::Number(of) => {
                    let value = number(pieces.len() + i);
                    Held {
                        value,
                        dims: Cow::Borrowed(&[]),
                        sizes: Vec::new(),
                        dtype,
                        constant: Some(of.value(&program.dims)),
                        statistics: 0,
                    }
                }
            };
            let is_last = i + 1 == pieces.len();
            ops.push(HeldOp {
                operands: piece.reads.iter().map(read).collect(),
                result: Held {
                    value: if is_last { id.0 } else { number(i) },
                    dims: Cow::Owned(piece.dims.clone()),
                    sizes: local(&piece.dims, laid.made),
                    dtype,
                    constant: None,
                    statistics: 0,
                },
                op: Cow::Owned(piece.op.clone()),
            });
            let from_piece = |read: &Read| match read {
                Read::Piece(at) => Some(*at),
                Read::Operand | Read::Number(_) => None,
            };
            reads.push((piece.reads.iter().filter_map(from_piece).collect(), 0));
            if let Some((collective, _)) = laid.completed {
                let sizes = program.sizes(&piece.dims);
                let cost =
                    collective_cost(hardware, &program.mesh, &collective, laid.made, &sizes, dtype);
                let steps = steps_of(&collective);
                reads[i].1 = cost.time.0;
                moves = moves
                    + Cost { time: cost.time.0, steps, moved: cost.wire_bytes.0, ..Cost::ZERO };
            }
        }
        let (kernel, dims) = (kernel_of_each(kernels, id, &pieces), program.dims.as_slice());
        Some(InPieces { kernel, ops, dims, moves, reads })
    }

    /// The ops of the last kernel, which other ops may join.
    pub(crate) fn last_kernel(&self) -> Vec<HeldOp<'a>> {
        let last = self.kernel.last();
        self.ops
            .iter()
            .zip(&self.kernel)
            .filter(|(_, kernel)| Some(*kernel) == last)
            .map(|(op, _)| op.clone())
            .collect()
    }

    /// The cost of all kernels but the last, and of the all-reduces.
    pub(crate) fn before_the_last(&self, hardware: &Hardware) -> Cost {
        self.kernels_before_the_last(hardware).into_iter().fold(self.moves, |sum, cost| sum + cost)
    }

    /// The cost of each kernel but the last.
    fn kernels_before_the_last(&self, hardware: &Hardware) -> Vec<Cost> {
        let last = self.kernel.last().copied();
        let last = last.unwrap_or_else(|| never!("a composite has no pieces", 0));
        let of_kernel = |kernel| {
            let members = self.ops.iter().zip(&self.kernel).filter(|(_, k)| **k == kernel);
            let chain: Vec<HeldOp<'_>> = members.map(|(op, _)| op.clone()).collect();
            let elements = chain.iter().fold(0u64, |n, op| n.saturating_add(op.elements()));
            work_cost(hardware, &work_of(&chain, self.dims, RingShape::NONE), elements)
        };
        (0..last).map(of_kernel).collect()
    }

    /// The time of its all-reduces, in picoseconds.
    pub(crate) fn sending(&self) -> u64 {
        self.moves.time
    }

    /// How much less time it may take, in picoseconds, where all-reduces run beside kernels and not
    /// one after another. It takes no less than its kernels, and no less than any chain of pieces.
    pub(crate) fn beside_each_other(&self, hardware: &Hardware) -> u64 {
        let kernels = self.kernels_before_the_last(hardware);
        let computing = kernels.iter().fold(0u64, |sum, cost| sum.saturating_add(cost.time));
        let mut done: Vec<u64> = Vec::with_capacity(self.reads.len());
        for (at, (reads, sent)) in self.reads.iter().enumerate() {
            let began = reads.iter().map(|by| done[*by]).max().unwrap_or(0);
            // The time of a kernel counts at its first piece.
            let begins = !self.kernel[..at].contains(&self.kernel[at]);
            let takes = kernels.get(self.kernel[at]).filter(|_| begins).map_or(0, |c| c.time);
            done.push(began.saturating_add(takes).saturating_add(*sent));
        }
        let chain = done.last().copied();
        let chain = chain.unwrap_or_else(|| never!("a composite has no pieces", 0));
        let all = computing.saturating_add(self.moves.time);
        all.saturating_sub(chain.max(computing))
    }
}

/// What the last kernel of a composite in pieces reads.
pub(crate) struct LastPiece {
    /// The bytes of the pieces of other kernels that it reads.
    pub(crate) bytes: u64,
    pub(crate) reads_operand: bool,
}

/// What the last kernel of a composite reads, where its operand is in a layout; `None` where the
/// composite is computed whole.
pub(crate) fn held_by_the_last(
    kernels: &Kernels,
    id: ValueId,
    operand: Layout,
) -> Option<LastPiece> {
    let (program, site) = (kernels.program.as_ref(), kernels.site(id));
    let pieces = site.pieces_on(operand)?;
    let (_, dtype) = *site.operands.first()?;
    let kernel = kernel_of_each(kernels, id, &pieces);
    let of_last = |at: &usize| kernel.get(*at) == kernel.last();
    let reads = (0..pieces.len()).filter(of_last).flat_map(|at| &pieces[at].0.reads);
    let mut read: Vec<usize> = Vec::new();
    let mut reads_operand = false;
    for source in reads {
        match source {
            Read::Operand => reads_operand = true,
            Read::Piece(at) if !of_last(at) && !read.contains(at) => read.push(*at),
            Read::Piece(_) | Read::Number(_) => {}
        }
    }
    let bytes = |at: usize| {
        let (piece, laid) = &pieces[at];
        let sizes = program.sizes(&piece.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        dtype.bytes(shape.local_elements(laid.read()))
    };
    let bytes = read.into_iter().map(bytes).fold(0, u64::saturating_add);
    Some(LastPiece { bytes, reads_operand })
}

/// The kernel of each piece of a composite, by the rule of [`fuses_with`], numbered in the order of
/// their first pieces.
pub(crate) fn kernel_of_each(
    kernels: &Kernels,
    id: ValueId,
    pieces: &[(Piece, Laid)],
) -> Vec<usize> {
    let program = kernels.program.as_ref();
    let operands = program.value(id).def.operands();
    let by_op =
        operands.iter().any(|o| matches!(program.value(kernels.origin_of(*o)).def, Def::Op { .. }));
    let readers = |at: usize| {
        pieces.iter().filter(|(piece, _)| piece.reads.contains(&Read::Piece(at))).count()
    };
    let mut kernel: Vec<usize> = Vec::with_capacity(pieces.len());
    let mut count = 0;
    for (piece, _) in pieces {
        let made = piece.reads.iter().copied().filter(|read| match read {
            Read::Operand => by_op,
            Read::Piece(_) => true,
            Read::Number(_) => false,
        });
        let joined = fuses_with(&piece.op, made, |read| match read {
            Read::Piece(at) => {
                let (piece, laid) = &pieces[at];
                laid.completed.is_none() && may_lead_a_kernel(&piece.op) && readers(at) == 1
            }
            // Every composite reads its operand in two of its pieces.
            Read::Operand | Read::Number(_) => false,
        });
        kernel.push(match joined {
            Some(Read::Piece(at)) => kernel[at],
            _ => {
                count += 1;
                count - 1
            }
        });
    }
    kernel
}
