//! The layouts in which parameters are stored: which parameters leave them open, and programs in
//! which they are given as a plan has them.

use std::cmp::Reverse;

use shard_ir::{Def, InstrId, Layout, LayoutPattern, MeshShape, Plan, Program, ValueId};

/// Whether a parameter may be given in several layouts.
pub(crate) fn is_open(program: &Program, id: ValueId) -> bool {
    let value = program.value(id);
    let Def::Parameter { pattern, .. } = &value.def else { return false };
    let sizes = program.sizes(&value.dims);
    pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes }).is_none()
}

/// The parameters that may be given in several layouts, those of most bytes in a plan first.
pub fn open_parameters(program: &Program, plan: &Plan) -> Vec<ValueId> {
    let mut open: Vec<ValueId> = program.value_ids().filter(|id| is_open(program, *id)).collect();
    open.sort_by_key(|id| Reverse(plan.local_bytes(InstrId(id.0))));
    open
}

/// A program with some parameters in the layouts that they have in a plan of it.
pub fn stored_as_in(program: &Program, plan: &Plan, parameters: &[ValueId]) -> Program {
    with_stored(program, parameters, &stored(plan, parameters))
}

/// The layouts of some parameters in a plan, which has its parameters in program order.
pub(crate) fn stored(plan: &Plan, parameters: &[ValueId]) -> Vec<Layout> {
    parameters.iter().map(|id| plan.instructions[id.index()].layout).collect()
}

/// A program with some parameters in these layouts.
pub(crate) fn with_stored(
    program: &Program,
    parameters: &[ValueId],
    layouts: &[Layout],
) -> Program {
    let mut program = program.clone();
    for (id, layout) in parameters.iter().zip(layouts) {
        let rank = program.value(*id).dims.len();
        if let Def::Parameter { pattern, .. } = &mut program.values[id.index()].def {
            *pattern =
                LayoutPattern { label: pattern.label, ..LayoutPattern::exactly(*layout, rank) };
        }
    }
    program
}
