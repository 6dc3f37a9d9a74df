//! Variants of an open program with pinned weights: one weight pinned to a layout, or all weights
//! laid out as a well-known strategy has them. The plan of the open program may not be slower than
//! the plan of any variant.

use shard_ir::{
    AxisId, AxisList, AxisSet, Def, Layout, LayoutPattern, MeshShape, ParameterKind, Program,
    ValueId,
};

/// A program with some weights pinned.
pub(crate) struct Variant {
    /// What is pinned, such as `wq as EK_yGD` or `FSDP`.
    pub(crate) name: String,
    pub(crate) program: Program,
}

/// The variants that pin a single weight, for each weight and each of its layouts.
pub(crate) fn one_pinned(program: &Program) -> Vec<Variant> {
    let mut out = Vec::new();
    for id in weights(program) {
        let value = program.value(id);
        let Def::Parameter { pattern, .. } = &value.def else { continue };
        let sizes = program.sizes(&value.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        for layout in pattern.candidates(shape, AxisSet::EMPTY, AxisSet::EMPTY) {
            let name = value.name.as_deref().unwrap_or("-");
            let written = layout.text(&program.mesh, &program.dim_names(&value.dims));
            out.push(Variant {
                name: format!("{name} as {written}"),
                program: with(program, &[(id, layout)]),
            });
        }
    }
    out
}

/// The variants that follow named strategies. `shardc new` uses the last axis of the mesh for heads
/// and d_ff, and so do these.
pub(crate) fn strategies(program: &Program) -> Vec<Variant> {
    let all: Vec<AxisId> = program.mesh.axis_ids().collect();
    let Some((last, rest)) = all.split_last() else { return Vec::new() };
    let last = std::slice::from_ref(last);
    // Each strategy has a list of axes for d_model, and one for heads and d_ff.
    let mut split: Vec<(&str, &[AxisId], &[AxisId])> = vec![
        ("data parallel", &[], &[]),
        ("FSDP", &all, &[]),
        ("tensor parallel, data parallel", &[], last),
        ("tensor parallel over all (1D weight-stationary)", &[], &all),
    ];
    if !rest.is_empty() {
        split.push(("FSDP, tensor parallel (2D weight-stationary)", rest, last));
        split.push(("2D weight-stationary, the other way", last, rest));
    }
    let of = |(name, model, inner): &(&str, &[AxisId], &[AxisId])| Variant {
        name: name.to_string(),
        program: with(
            program,
            &weights(program)
                .map(|id| (id, laid_out(program, id, model, inner)))
                .collect::<Vec<_>>(),
        ),
    };
    split.iter().map(of).collect()
}

/// The weights with open layouts.
fn weights(program: &Program) -> impl Iterator<Item = ValueId> {
    program.value_ids().filter(
        |id| matches!(&program.value(*id).def, Def::Parameter { kind: ParameterKind::Weight, pattern } if pattern.open),
    )
}

/// The layout of a weight with d_model (`E`) split over the axes `model`, and each axis of `inner`
/// on the first other dim that it divides. Heads come before the dims inside a head. An axis that
/// divides no dim is left out.
fn laid_out(program: &Program, id: ValueId, model: &[AxisId], inner: &[AxisId]) -> Layout {
    let dims = program.dim_names(&program.value(id).dims);
    let sizes = program.sizes(&program.value(id).dims);
    let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
    let mut lists = vec![AxisList::EMPTY; dims.len()];
    let mut layout = Layout::REPLICATED;
    let mut place = |axis: AxisId, may: &dyn Fn(&str) -> bool| {
        for (i, _) in dims.iter().enumerate().filter(|(_, dim)| may(dim)) {
            let mut tried = lists.clone();
            tried[i] = tried[i].then(axis);
            if let Ok(split) = Layout::new(shape, &tried, AxisSet::EMPTY, AxisSet::EMPTY) {
                (lists, layout) = (tried, split);
                return;
            }
        }
    };
    model.iter().for_each(|axis| place(*axis, &|dim| dim == "E"));
    // The dim of experts stays whole: splitting it is a strategy of its own.
    inner.iter().for_each(|axis| place(*axis, &|dim| dim != "E" && dim != "X"));
    layout
}

fn with(program: &Program, pinned: &[(ValueId, Layout)]) -> Program {
    let mut program = program.clone();
    for (id, layout) in pinned {
        let value = &mut program.values[id.index()];
        if let Def::Parameter { pattern, .. } = &mut value.def {
            *pattern = LayoutPattern::exactly(*layout, value.dims.len());
        }
    }
    program
}
