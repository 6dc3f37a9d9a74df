//! Layout labels: types that bear one have one and the same layout.

use shard_ir::{DimId, LabelId, Layout, LayoutPattern, MeshShape, Program, ValueId};

use crate::LowerError;
use crate::space::maxima;

/// A layout of a labelled type as a layout of the label: its dims are in the order of their ids,
/// since types with one label may have their dims in different memory orders.
pub(crate) fn label_layout(dims: &[DimId], layout: Layout) -> Layout {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|i| dims[*i]);
    layout.permuted(&order)
}

/// The layouts of a label that every pattern with it allows, sorted.
pub(crate) fn layouts_of_label(program: &Program, label: LabelId) -> Vec<Layout> {
    let (sums, maxima) = (program.mesh.all_axes(), maxima(program));
    let mut common: Option<Vec<Layout>> = None;
    let mut meet = |value: ValueId, pattern: &LayoutPattern| {
        if pattern.label != Some(label) {
            return;
        }
        let dims = &program.value(value).dims;
        let sizes = program.sizes(dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let mut allowed: Vec<Layout> = pattern
            .candidates(shape, sums, maxima)
            .into_iter()
            .map(|l| label_layout(dims, l))
            .collect();
        allowed.sort_unstable();
        match &mut common {
            None => common = Some(allowed),
            Some(common) => common.retain(|l| allowed.binary_search(l).is_ok()),
        }
    };
    for id in program.value_ids() {
        if let Some(pattern) = program.value(id).def.pattern() {
            meet(id, pattern);
        }
    }
    for output in &program.outputs {
        meet(output.value, &output.pattern);
    }
    common.unwrap_or_else(|| vec![Layout::REPLICATED])
}

/// Fails where some label has no layout that all its types allow.
pub(crate) fn check_labels(program: &Program) -> Result<(), LowerError> {
    let empty = |label: &usize| layouts_of_label(program, LabelId(*label as u16)).is_empty();
    match (0..program.labels.len()).find(empty) {
        Some(label) => Err(LowerError::Label(program.labels[label].clone())),
        None => Ok(()),
    }
}
