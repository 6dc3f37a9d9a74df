//! Layout labels: all types that bear the same label have the same layout.

use shard_ir::{DimId, LabelId, Layout, LayoutPattern, MeshShape, Program, ValueId};

use crate::maxima::maxima;

/// A layout of a labelled type as the label sees it: dims in the order of their ids, since types
/// with one label may have their dims in different memory orders.
pub(crate) fn label_layout(dims: &[DimId], layout: Layout) -> Layout {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|i| dims[*i]);
    layout.permuted(&order)
}

/// Every assignment of layouts to the labels of a program, by the number of the label. Where there
/// are more than `most`, the one empty assignment: the bound then covers plans in which the types
/// of a label differ, too.
pub fn assignments(program: &Program, most: usize) -> Vec<Vec<Layout>> {
    let mut all: Vec<Vec<Layout>> = vec![Vec::new()];
    for label in (0..program.labels.len() as u16).map(LabelId) {
        let layouts = layouts_of(program, label);
        if all.len().saturating_mul(layouts.len()) > most {
            return vec![Vec::new()];
        }
        all = all
            .iter()
            .flat_map(|one| layouts.iter().map(|layout| [&one[..], &[*layout]].concat()))
            .collect();
    }
    all
}

/// The layouts that every type with the label allows.
pub(crate) fn layouts_of(program: &Program, label: LabelId) -> Vec<Layout> {
    let of = |(value, pattern): (ValueId, &LayoutPattern)| -> Vec<Layout> {
        let dims = &program.value(value).dims;
        let sizes = program.sizes(dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let allowed = pattern.candidates(shape, program.mesh.all_axes(), maxima(program));
        let mut seen: Vec<Layout> =
            allowed.into_iter().map(|layout| label_layout(dims, layout)).collect();
        seen.sort_unstable();
        seen
    };
    // A pin that no result needs is in no plan, so its label does not count.
    let pattern = |id: ValueId| program.value(id).def.pattern().map(|pattern| (id, pattern));
    let values = program.live_values().into_iter().filter_map(pattern);
    let results = program.outputs.iter().map(|output| (output.value, &output.pattern));
    let places = values.chain(results).filter(|(_, pattern)| pattern.label == Some(label));
    let common = places.map(of).reduce(|mut one, other| {
        one.retain(|layout| other.binary_search(layout).is_ok());
        one
    });
    common.unwrap_or_else(|| vec![Layout::REPLICATED])
}
