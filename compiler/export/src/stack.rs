//! A repeated layer as the stack of its applications.

use shard_ir::{FoldId, InstrId, InstrKind, Mesh, ParameterKind, Plan, PlanFold};

use crate::body::{Form, seen_by};
use crate::error::ExportError;
use crate::layer::Exported;

/// What stands behind the name of a layer, where the function is of its stack.
pub(crate) const STACK: &str = ".stack";

/// The mesh that all layers are on.
pub(crate) fn one_mesh(layers: &[Exported<'_>]) -> Result<Mesh, ExportError> {
    let mesh = layers.first().map_or_else(Mesh::default, |layer| layer.plan.mesh.clone());
    let is_one = layers.iter().all(|layer| layer.plan.mesh == mesh);
    if is_one { Ok(mesh) } else { Err(ExportError::Meshes) }
}

/// The functions of all layers, one behind another; the stack of a repeated layer stands behind the
/// layer. `write` writes a layer, given the text that stands behind its name.
pub(crate) fn with_stacks(
    layers: &[Exported<'_>],
    write: &mut dyn FnMut(&Exported<'_>, &str) -> Result<String, ExportError>,
) -> Result<String, ExportError> {
    let mut functions = String::new();
    for layer in layers {
        functions += &write(layer, "")?;
        let source = layer.source.map_or_else(|| seen_by(layer.plan, Form::Alone), Plan::clone);
        if let (Some(plan), Some(source)) = (stack(layer.plan), stack(&source)) {
            functions += &write(&Exported { plan: &plan, source: Some(&source) }, STACK)?;
        }
    }
    Ok(functions)
}

/// A layer of `repeat N` as one folded block of N applications. Each application takes as its first
/// parameter the first result of the one before, and has weights, caches and other results of its
/// own. `None` where the layer is not repeated, or its first result has another type than its first
/// parameter.
pub(crate) fn stack(plan: &Plan) -> Option<Plan> {
    if plan.repeat < 2 || !plan.folds.is_empty() {
        return None;
    }
    let is_parameter = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let from = plan.ids().find(is_parameter)?;
    let (first, others) = plan.outputs.split_first()?;
    let (taken, given) = (plan.instruction(from), plan.instruction(first.id));
    let alike =
        (&taken.dims, taken.dtype, taken.layout) == (&given.dims, given.dtype, given.layout);
    let is_given = |id: InstrId| {
        matches!(plan.instruction(id).kind, InstrKind::Parameter(_) | InstrKind::Constant(_))
    };
    let apart = others.iter().all(|output| output.id != first.id && !is_given(output.id));
    if !alike || first.dims != given.dims || is_given(first.id) || !apart {
        return None;
    }
    let mut stack = plan.clone();
    for (at, instr) in stack.instructions.iter_mut().enumerate() {
        let of_all = matches!(
            instr.kind,
            InstrKind::Constant(_) | InstrKind::Parameter(ParameterKind::Activation)
        );
        instr.fold = (!of_all && at != from.index()).then_some(FoldId(0));
    }
    stack.outputs.iter_mut().skip(1).for_each(|output| output.state = true);
    stack.folds.push(PlanFold {
        layer: plan.name.clone(),
        repeat: plan.repeat,
        from,
        to: first.id,
    });
    Some(stack)
}
