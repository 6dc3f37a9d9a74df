//! Ops on an attention over a part of the keys (`spec/types.md`, *Parts of an attention*): which
//! values may be such parts, and by which operand.

use shard_ir::attention::local_statistics;
use shard_ir::{
    Binary, Def, DimId, DimSet, Dtype, Layout, Map, MeshShape, Op, Program, Reduce, ValueId,
};

use crate::attention::Attention;
use crate::kernel::local_bytes;

/// How a value may be the attention over a part of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// The operand that is, where the value does not end an attention itself.
    pub(crate) carries: Option<usize>,
    /// The places of the dims of its statistics.
    pub(crate) statistics: DimSet,
}

/// The values of a program that may be so.
pub(crate) fn parts(
    program: &Program,
    present: &[ValueId],
    attentions: &[Option<Attention>],
) -> Vec<Option<Part>> {
    let mut all: Vec<Option<Part>> = vec![None; program.values.len()];
    for id in present {
        let ends = attentions[id.index()].as_ref().and_then(|found| found.statistics);
        all[id.index()] = match ends {
            Some(statistics) => Some(Part { carries: None, statistics }),
            None => made_of_one(program, *id, &all),
        };
    }
    all
}

/// Of an op the first operand that may be a part, if it may act on it.
fn made_of_one(program: &Program, id: ValueId, known: &[Option<Part>]) -> Option<Part> {
    let value = program.value(id);
    let Def::Op { op, operands } = &value.def else { return None };
    if !matches!(value.dtype, Dtype::F32 | Dtype::Bf16) {
        return None;
    }
    operands.iter().enumerate().find_map(|(place, operand)| {
        let dims = &program.value(*operand).dims;
        let of_statistics =
            |at: &usize| known[operand.index()].is_some_and(|p| p.statistics.contains(*at));
        known[operand.index()]?;
        let by: Vec<DimId> = (0..dims.len()).filter(of_statistics).map(|at| dims[at]).collect();
        let left = after(op, place, &by)?;
        let places = left.iter().map(|dim| value.dims.iter().position(|own| own == dim));
        let statistics = places.collect::<Option<DimSet>>()?;
        Some(Part { carries: Some(place), statistics })
    })
}

/// The dims of the statistics behind an op on such a part; `None` where it may not act on it.
pub(crate) fn after(op: &Op, place: usize, by: &[DimId]) -> Option<Vec<DimId>> {
    let mut left = by.to_vec();
    match op {
        Op::Einsum
        | Op::Binary(Binary::Mul)
        | Op::Map(Map::Neg)
        | Op::Reduce { kind: Reduce::Sum | Reduce::Mean, .. }
        | Op::Cast(_) => Some(left),
        Op::Binary(Binary::Div) => (place == 0).then_some(left),
        Op::SliceDim { from, .. } | Op::Split { from, .. } => (!by.contains(from)).then_some(left),
        Op::Merge { from, .. } => from.iter().all(|dim| !by.contains(dim)).then_some(left),
        Op::Rename { from, to } => {
            left.iter_mut().filter(|dim| *dim == from).for_each(|dim| *dim = *to);
            Some(left)
        }
        // Another op does not make of merged parts what it makes of the parts, merged.
        _ => None,
    }
}

/// The statistics beside a value in a layout.
pub(crate) fn beside(program: &Program, id: ValueId, layout: Layout, part: Option<Part>) -> u64 {
    let Some(part) = part.filter(|_| !layout.softmax_axes().is_empty()) else { return 0 };
    let sizes = program.sizes(&program.value(id).dims);
    local_statistics(MeshShape { mesh: &program.mesh, sizes: &sizes }, layout, part.statistics)
}

/// The bytes of a value in a layout on a device, with the statistics beside it.
pub(crate) fn bytes(program: &Program, id: ValueId, layout: Layout, part: Option<Part>) -> u64 {
    local_bytes(program, id, layout) + Dtype::F32.bytes(beside(program, id, layout, part))
}
