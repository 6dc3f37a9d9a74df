//! Composites in pieces (`spec/types.md`): a softmax or a norm whose dim is split, as the ops and
//! small all-reduces that it is then done by.

use shard_cost::{
    Hardware, KernelOp, LocalTensor, collective_cost, fuses_with, kernel_work, may_lead_a_kernel,
    roofline,
};
use shard_ir::composite::{Piece, Read, composite_dim, pieces};
use shard_ir::{
    AxisSet, Collective, Def, DimId, Layout, MeshShape, Op, Program, Reduction, ValueId,
};

use crate::actions::combining;
use crate::kernel::{Kernel, is_constant, site, unpinned};

/// The last kernel of a composite that reads its operand in a layout which splits the dim, with the
/// time of all that goes before; `None` where it is not done in pieces.
pub(crate) fn last_kernel(
    program: &Program,
    hardware: &Hardware,
    id: ValueId,
    operand: Layout,
) -> Option<Kernel> {
    let site = site(program, id)?;
    let over = site.pieces_over()?;
    let (dims, dtype) = (site.operands[0].0, site.operands[0].1);
    let split = operand.axes_of(dims.iter().position(|d| *d == over)?).set();
    if split.is_empty() {
        return None;
    }
    let read_from = *program.value(id).def.operands().first()?;
    let all = pieces(site.op, dims, site.result)?;
    let sizes = |of: &[DimId]| -> Vec<u64> {
        // Every piece is split as the operand is, along the dims that it has.
        let shape = MeshShape { mesh: &program.mesh, sizes: &program.sizes(of) };
        shape.local_sizes(laid(operand, dims, of))
    };
    // Numbers for what is no value of the program.
    let of_piece = |at: usize| u32::MAX - at as u32;
    let local: Vec<Vec<u64>> = all.iter().map(|piece| sizes(&piece.dims)).collect();
    let whole = sizes(dims);
    let operands: Vec<Vec<LocalTensor<'_>>> = all
        .iter()
        .enumerate()
        .map(|(i, piece)| {
            let tensor = |read: &Read| match read {
                Read::Operand => LocalTensor {
                    value: unpinned(program, read_from).0,
                    dims,
                    sizes: &whole,
                    dtype,
                    constant: is_constant(program, read_from),
                    statistics: 0,
                },
                Read::Piece(at) => LocalTensor {
                    value: of_piece(*at),
                    dims: &all[*at].dims,
                    sizes: &local[*at],
                    dtype,
                    constant: false,
                    statistics: 0,
                },
                Read::Number(_) => LocalTensor {
                    value: of_piece(all.len() + i),
                    dims: &[],
                    sizes: &[],
                    dtype,
                    constant: true,
                    statistics: 0,
                },
            };
            piece.reads.iter().map(tensor).collect()
        })
        .collect();
    let ops: Vec<KernelOp<'_>> = (0..all.len())
        .map(|i| {
            let (dims, sizes) = (&all[i].dims, &local[i]);
            let (value, constant, statistics) = (of_piece(i), false, 0);
            let result = LocalTensor { value, dims, sizes, dtype, constant, statistics };
            KernelOp { op: &all[i].op, operands: &operands[i], result }
        })
        .collect();
    let is_made_by_op = matches!(program.value(unpinned(program, read_from)).def, Def::Op { .. });
    let (kernels, last) = in_kernels(&all, over, is_made_by_op);
    let mut before = 0u64;
    for kernel in (0..=last).filter(|kernel| *kernel != last) {
        let (time, _) =
            roofline(hardware, &kernel_work(&members(&ops, &kernels, kernel), &program.dims));
        before = before.saturating_add(time.0);
    }
    for piece in all.iter() {
        let Some(kind) = combined(piece, over) else { continue };
        let partial = split
            .iter()
            .fold(laid(operand, dims, &piece.dims), |l, axis| l.with_partial(axis, kind));
        let time = all_reduce(program, hardware, kind, split, partial, piece, dtype);
        before = before.saturating_add(time);
    }
    Some(Kernel {
        work: kernel_work(&members(&ops, &kernels, last), &program.dims),
        before,
        looped: None,
    })
}

/// What a piece combines, if it goes over the dim of the composite: it is then partial over the
/// axes that split the dim.
fn combined(piece: &Piece, over: DimId) -> Option<Reduction> {
    match &piece.op {
        Op::Reduce { kind, .. } => Some(combining(*kind)),
        Op::Einsum if !piece.dims.contains(&over) => Some(Reduction::Sum),
        _ => None,
    }
}

fn all_reduce(
    program: &Program,
    hardware: &Hardware,
    kind: Reduction,
    axes: AxisSet,
    partial: Layout,
    piece: &Piece,
    dtype: shard_ir::Dtype,
) -> u64 {
    let collective = Collective::AllReduce { kind, axes };
    collective_cost(
        hardware,
        &program.mesh,
        &collective,
        partial,
        &program.sizes(&piece.dims),
        dtype,
    )
    .time
    .0
}

/// The layout of a piece of these dims where the operand has this layout.
fn laid(operand: Layout, dims: &[DimId], of: &[DimId]) -> Layout {
    let at = |dim: &DimId| dims.iter().position(|d| d == dim);
    of.iter().enumerate().filter_map(|(i, dim)| Some((i, at(dim)?))).fold(
        Layout::REPLICATED,
        |layout, (i, at)| match operand.axes_of(at) {
            axes if axes.is_empty() => layout,
            axes => layout.with_dim(i, axes),
        },
    )
}

fn members<'a>(ops: &[KernelOp<'a>], kernels: &[usize], kernel: usize) -> Vec<KernelOp<'a>> {
    ops.iter().zip(kernels).filter(|(_, k)| **k == kernel).map(|(op, _)| *op).collect()
}

/// The kernel of each piece, by the rule of [`fuses_with`], and that of the last.
fn in_kernels(all: &[Piece], over: DimId, operand_is_made_by_op: bool) -> (Vec<usize>, usize) {
    debug_assert!(all.iter().all(|piece| composite_dim(&piece.op).is_none()));
    let mut kernels: Vec<usize> = Vec::new();
    let mut count = 0;
    for piece in all {
        let made = piece.reads.iter().copied().filter(|read| match read {
            Read::Operand => operand_is_made_by_op,
            Read::Piece(_) => true,
            Read::Number(_) => false,
        });
        let joins = fuses_with(&piece.op, made, |read| match read {
            Read::Piece(at) => {
                let readers =
                    all.iter().filter(|piece| piece.reads.contains(&Read::Piece(at))).count();
                combined(&all[at], over).is_none() && may_lead_a_kernel(&all[at].op) && readers == 1
            }
            // Two of its pieces read the operand of a composite.
            Read::Operand | Read::Number(_) => false,
        });
        kernels.push(match joins {
            Some(Read::Piece(at)) => kernels[at],
            _ => {
                count += 1;
                count - 1
            }
        });
    }
    let last = kernels.last().copied().unwrap_or(0);
    (kernels, last)
}
