//! Which values of a program may be `partialsoftmax` (`spec/types.md`, *Parts of an attention*): an
//! attention over a part of the keys, or what ops make of one before it is merged.

use shard_ir::attention::local_statistics;
use shard_ir::{Def, DimId, DimSet, Dtype, Layout, MeshShape, Program, Reduction, ValueId};

use crate::actions::Site;
use crate::attention::Attention;
use crate::kernel::{local_bytes, site};

/// How a value may be `partialsoftmax`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartialSoftmax {
    /// The operand that is `partialsoftmax` then; `None` for a value that ends an attention itself.
    pub(crate) carries: Option<usize>,
    /// The dims of its statistics, by their places in the value.
    pub(crate) statistics: DimSet,
}

/// For each value of a program how it may be `partialsoftmax`, if it may.
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

/// For the result of an op: the first operand that may be `partialsoftmax` and on which the op may
/// act.
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

/// The dims of the statistics of an op's result, where the operand at `place` has statistics by the
/// dims `by`. `None` where the op may not act on a `partialsoftmax` operand: it is not linear in
/// this operand alone, or it sums over one of these dims or works along it.
pub(crate) fn after(site: &Site<'_>, place: usize, by: &[DimId]) -> Option<Vec<DimId>> {
    let is_linear = site.partial_together().contains(&(Reduction::Sum, vec![place]));
    if !is_linear || by.iter().any(|dim| site.is_whole(place, *dim)) {
        return None;
    }
    let left: Vec<DimId> = by.iter().map(|dim| site.renamed(place, *dim)).collect();
    left.iter().all(|dim| site.result.contains(dim)).then_some(left)
}

/// The number of statistics that a device holds beside a value in a layout.
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

/// The bytes of a value in a layout on a device, its statistics included.
pub(crate) fn bytes(
    program: &Program,
    id: ValueId,
    layout: Layout,
    part: Option<PartialSoftmax>,
) -> u64 {
    local_bytes(program, id, layout) + Dtype::F32.bytes(beside(program, id, layout, part))
}
