//! A plan of tensor parallelism as models of Hugging Face have it: for each weight `colwise`,
//! `rowwise` or `embedding_rowwise`.
//!
//! Such a plan says little: one axis cuts weights, a weight that is cut along what it gives takes
//! whole activations, one that is cut along what it takes gives a sum that is all-reduced at once.
//! Whatever else a plan does, it has no such form.

use shard_ir::{
    AxisId, Collective, DimId, InstrId, InstrKind, Op, ParameterKind, Place, Plan, Reduction,
};

/// The style of each weight that an axis cuts, by name; or why there is no such plan.
pub(crate) fn tp_plan(plan: &Plan) -> Result<Vec<(String, &'static str)>, String> {
    let weights: Vec<InstrId> = plan.ids().filter(|id| is_weight(plan, *id)).collect();
    let cuts = |axis: &AxisId| weights.iter().any(|w| dim_cut(plan, *w, *axis).is_some());
    let axes: Vec<AxisId> = plan.mesh.axis_ids().filter(cuts).collect();
    let axis = match axes.as_slice() {
        [one] => *one,
        [] => return Err("no axis cuts a weight".to_string()),
        several => {
            let names = plan.mesh.axes_text(several.iter().copied());
            return Err(format!("{names} cut weights, and such a plan has one axis"));
        }
    };
    let mut styles = Vec::new();
    for weight in weights {
        let instr = plan.instruction(weight);
        let name = instr.name.clone().unwrap_or_default();
        if let Some(cut) = dim_cut(plan, weight, axis) {
            let style = style(plan, axis, weight, cut);
            styles.push((name.clone(), style.map_err(|why| format!("`{name}` {why}"))?));
        }
    }
    Ok(styles)
}

/// The dim of a value that an axis cuts.
fn dim_cut(plan: &Plan, id: InstrId, axis: AxisId) -> Option<DimId> {
    let instr = plan.instruction(id);
    match instr.layout.place(axis) {
        Place::Split { dim, .. } => instr.dims.get(dim).copied(),
        Place::Replicated | Place::Partial(_) => None,
    }
}

fn is_weight(plan: &Plan, id: InstrId) -> bool {
    match plan.instruction(id).kind {
        InstrKind::Parameter(ParameterKind::Weight | ParameterKind::HostWeight) => true,
        InstrKind::Parameter(ParameterKind::Activation | ParameterKind::Cache)
        | InstrKind::Constant(_)
        | InstrKind::Op(_)
        | InstrKind::Move(_)
        | InstrKind::CollectiveEinsum(_) => false,
    }
}

fn style(
    plan: &Plan,
    axis: AxisId,
    weight: InstrId,
    cut: DimId,
) -> Result<&'static str, &'static str> {
    let mut readers = plan.ids().filter(|id| plan.instruction(*id).operands.contains(&weight));
    let (Some(reader), None) = (readers.next(), readers.next()) else {
        return Err("is not read by one op");
    };
    let read = plan.instruction(reader);
    let row = match &read.kind {
        InstrKind::Op(Op::Einsum) => "rowwise",
        InstrKind::Op(Op::Take { over }) if *over == cut => "embedding_rowwise",
        InstrKind::Op(_) => return Err("is read by no einsum"),
        InstrKind::Move(_) => return Err("is moved before it is read"),
        InstrKind::CollectiveEinsum(_) => return Err("is read in the loop of a collective"),
        InstrKind::Parameter(_) | InstrKind::Constant(_) => return Err("is read by no op"),
    };
    // A matrix of several dims on a side is cut along the major-most of them.
    let of_result = |dim: &DimId| read.dims.contains(dim);
    let side = plan.instruction(weight).dims.iter().filter(|d| of_result(d) == of_result(&cut));
    let others = read.operands.iter().filter(|o| **o != weight);
    let in_others =
        others.clone().any(|o| plan.instruction(*o).dims.contains(&cut) && of_result(&cut));
    match () {
        () if in_others => Err("is one matrix for each place of the dim that is cut"),
        () if side.into_iter().next() != Some(&cut) => Err("is cut along a dim that is not major"),
        () if of_result(&cut) => {
            let is_whole =
                |o: &InstrId| plan.instruction(*o).layout.place(axis) == Place::Replicated;
            let whole = others.clone().all(is_whole);
            if whole { Ok("colwise") } else { Err("takes activations that are cut too") }
        }
        () => {
            let reduced = plan.ids().filter(|id| plan.instruction(*id).operands.contains(&reader));
            let mut reduced = reduced.map(|id| &plan.instruction(id).kind);
            let is_all_reduce = |kind: &InstrKind| {
                matches!(
                    kind,
                    InstrKind::Move(Collective::AllReduce { kind: Reduction::Sum, axes })
                        if axes.iter().eq([axis])
                )
            };
            match (reduced.next(), reduced.next()) {
                (Some(kind), None) if is_all_reduce(kind) => Ok(row),
                _ => Err("gives a sum that is not all-reduced at once"),
            }
        }
    }
}
