//! A plan of tensor parallelism in the form of Hugging Face models: a style for each weight,
//! `colwise`, `rowwise` or `embedding_rowwise`.
//!
//! The form allows few plans. The same axes split all weights. A weight that is split along a dim
//! of the result (`colwise`) is multiplied with whole activations; a weight that is split along a
//! contracted dim (`rowwise`) gives a sum that is all-reduced at once. Any other plan has no such
//! form.

use shard_ir::{AxisSet, Collective, DimId, InstrId, InstrKind, Op, Plan, Reduction};

use crate::layer::Parameter;

/// The style of each split weight, by name; or a clause that says why the plan has no such form.
pub(crate) fn tp_plan(
    plan: &Plan,
    parameters: &[Parameter],
) -> Result<Vec<(String, &'static str)>, String> {
    let weights: Vec<&Parameter> = parameters.iter().filter(|p| p.kind.is_weight()).collect();
    let cut_by = |weight: &Parameter| plan.instruction(weight.id).layout.split_axes();
    let axes = weights.iter().fold(AxisSet::EMPTY, |all, weight| all.union(cut_by(weight)));
    if axes.is_empty() {
        return Err("no axis cuts a weight".to_string());
    }
    let mut styles = Vec::new();
    for weight in weights.into_iter().filter(|weight| !cut_by(weight).is_empty()) {
        let (instr, name) = (plan.instruction(weight.id), &weight.name);
        let cut = (0..instr.dims.len()).find(|dim| instr.layout.axes_of(*dim).set() == axes);
        let Some(cut) = cut else {
            let text = plan.mesh.axes_text(axes.iter());
            return Err(format!("{text} cut weights, and no one dim of `{name}`"));
        };
        let style = style(plan, axes, weight.id, instr.dims[cut]);
        styles.push((name.clone(), style.map_err(|why| format!("`{name}` {why}"))?));
    }
    match plan.ids().find(|id| is_other_move(plan, axes, *id)) {
        Some(id) => Err(format!("{} is no part of one", plan.instruction(id).kind.name())),
        None => Ok(styles),
    }
}

/// Whether an instruction moves data over some of the axes, and is no all-reduce over all of them.
fn is_other_move(plan: &Plan, axes: AxisSet, id: InstrId) -> bool {
    let instr = plan.instruction(id);
    match &instr.kind {
        InstrKind::Move(Collective::AllReduce { kind: Reduction::Sum, axes: over }) => {
            *over != axes && !over.intersection(axes).is_empty()
        }
        InstrKind::Move(collective) => {
            let from = plan.instruction(plan.moved(id)).layout;
            !collective.axes(&plan.mesh, from).set().intersection(axes).is_empty()
        }
        InstrKind::CollectiveEinsum(fused) => !fused.axes().set().intersection(axes).is_empty(),
        InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => false,
    }
}

fn style(
    plan: &Plan,
    axes: AxisSet,
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
    // A side of the matrix may have several dims; the style cuts the major-most of them.
    let of_result = |dim: &DimId| read.dims.contains(dim);
    let side = plan.instruction(weight).dims.iter().filter(|d| of_result(d) == of_result(&cut));
    let others = read.operands.iter().filter(|o| **o != weight);
    let in_others =
        others.clone().any(|o| plan.instruction(*o).dims.contains(&cut) && of_result(&cut));
    if in_others {
        Err("is one matrix for each place of the dim that is cut")
    } else if side.into_iter().next() != Some(&cut) {
        Err("is cut along a dim that is not major")
    } else if of_result(&cut) {
        let is_whole = |o: &InstrId| {
            let layout = plan.instruction(*o).layout;
            layout.split_axes().union(layout.partial_axes()).intersection(axes).is_empty()
        };
        let whole = others.clone().all(is_whole);
        if whole { Ok("colwise") } else { Err("takes activations that are cut too") }
    } else {
        let reduced = plan.ids().filter(|id| plan.instruction(*id).operands.contains(&reader));
        let mut reduced = reduced.map(|id| &plan.instruction(id).kind);
        let is_all_reduce = |kind: &InstrKind| {
            matches!(
                kind,
                InstrKind::Move(Collective::AllReduce { kind: Reduction::Sum, axes: over })
                    if *over == axes
            )
        };
        match (reduced.next(), reduced.next()) {
            (Some(kind), None) if is_all_reduce(kind) => Ok(row),
            _ => Err("gives a sum that is not all-reduced at once"),
        }
    }
}
