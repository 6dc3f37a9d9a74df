//! Ops on an attention over a part of the keys (`spec/types.md`, *Parts of an attention*): which
//! values may be such partial_softmaxes, and by which operand.

use shard_ir::attention::local_statistics;
use shard_ir::{Def, DimId, DimSet, Dtype, Layout, MeshShape, Program, Reduction, ValueId};

use crate::actions::Site;
use crate::attention::Attention;
use crate::kernel::{local_bytes, site};

/// How a value may be the attention over a part of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartialSoftmax {
    /// The operand that is, where the value does not end an attention itself.
    pub(crate) carries: Option<usize>,
    /// The places of the dims of its statistics.
    pub(crate) statistics: DimSet,
}

/// The values of a program that may be so.
pub(crate) fn partial_softmaxes(
    program: &Program,
    present: &[ValueId],
    attentions: &[Option<Attention>],
) -> Vec<Option<PartialSoftmax>> {
    let mut all: Vec<Option<PartialSoftmax>> = vec![None; program.values.len()];
    for id in present {
        let ends = attentions[id.index()].as_ref().and_then(|found| found.statistics);
        all[id.index()] = match ends {
            Some(statistics) => Some(PartialSoftmax { carries: None, statistics }),
            None => made_of_one(program, *id, &all),
        };
    }
    all
}

/// Of an op the first operand that may be a part, if it may act on it.
fn made_of_one(
    program: &Program,
    id: ValueId,
    known: &[Option<PartialSoftmax>],
) -> Option<PartialSoftmax> {
    let value = program.value(id);
    let (Def::Op { operands, .. }, Some(site)) = (&value.def, site(program, id)) else {
        return None;
    };
    if !matches!(value.dtype, Dtype::F32 | Dtype::Bf16) {
        return None;
    }
    operands.iter().enumerate().find_map(|(place, operand)| {
        let dims = &program.value(*operand).dims;
        let of_statistics =
            |at: &usize| known[operand.index()].is_some_and(|p| p.statistics.contains(*at));
        known[operand.index()]?;
        let by: Vec<DimId> = (0..dims.len()).filter(of_statistics).map(|at| dims[at]).collect();
        let left = after(&site, place, &by)?;
        let places = left.iter().map(|dim| value.dims.iter().position(|own| own == dim));
        let statistics = places.collect::<Option<DimSet>>()?;
        Some(PartialSoftmax { carries: Some(place), statistics })
    })
}

/// The dims of the statistics behind an op on such a part; `None` where it may not act on it: it is
/// not linear in this operand alone, or it sums over one of these dims or works along it.
pub(crate) fn after(site: &Site<'_>, place: usize, by: &[DimId]) -> Option<Vec<DimId>> {
    let is_linear = site.partial_together().contains(&(Reduction::Sum, vec![place]));
    if !is_linear || by.iter().any(|dim| site.is_whole(place, *dim)) {
        return None;
    }
    let left: Vec<DimId> = by.iter().map(|dim| site.renamed(place, *dim)).collect();
    left.iter().all(|dim| site.result.contains(dim)).then_some(left)
}

/// The statistics beside a value in a layout.
pub(crate) fn beside(
    program: &Program,
    id: ValueId,
    layout: Layout,
    part: Option<PartialSoftmax>,
) -> u64 {
    let Some(part) = part.filter(|_| !layout.softmax_axes().is_empty()) else { return 0 };
    let sizes = program.sizes(&program.value(id).dims);
    local_statistics(MeshShape { mesh: &program.mesh, sizes: &sizes }, layout, part.statistics)
}

/// The bytes of a value in a layout on a device, with the statistics beside it.
pub(crate) fn bytes(
    program: &Program,
    id: ValueId,
    layout: Layout,
    part: Option<PartialSoftmax>,
) -> u64 {
    local_bytes(program, id, layout) + Dtype::F32.bytes(beside(program, id, layout, part))
}
