//! A [`Program`] as a [`Plan`] for one device: what the source says, with no layouts and no moves.

use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::plan::{InstrId, InstrKind, Instruction, Number, Origin, Plan, PlanFold, PlanOutput};
use crate::program::{Def, FoldId, Program, ValueId};

impl Plan {
    /// The program as it is written, on a mesh without axes: one instruction for each parameter,
    /// and for each constant and op that a result depends on. Pins only say in which layout a value
    /// is, so none is left.
    pub fn unsharded(program: &Program) -> Plan {
        let needed = needed(program);
        let mut plan = Plan {
            name: program.name.clone(),
            repeat: program.repeat,
            phase: program.phase.as_ref().map(|phase| phase.name.clone()),
            hardware: None,
            mesh: Mesh::default(),
            dims: program.dims.clone(),
            instructions: Vec::new(),
            outputs: Vec::new(),
            folds: Vec::new(),
        };
        // The instruction of each value. For a value that is not needed the entry means nothing,
        // and is never read.
        let mut made: Vec<InstrId> = Vec::with_capacity(program.values.len());
        for id in program.value_ids() {
            let value = program.value(id);
            let next = InstrId(plan.instructions.len() as u32);
            let kind = match &value.def {
                Def::Parameter { kind, .. } => InstrKind::Parameter(*kind),
                Def::Constant(number) => InstrKind::Constant(Number::Given(*number)),
                Def::Op { op, .. } => InstrKind::Op(op.clone()),
                Def::Pin { operand, .. } => {
                    made.push(made[operand.index()]);
                    continue;
                }
            };
            made.push(next);
            if !needed[id.index()] {
                continue;
            }
            plan.instructions.push(Instruction {
                kind,
                operands: value.def.operands().iter().map(|o| made[o.index()]).collect(),
                name: value.name.clone(),
                dims: value.dims.clone(),
                dtype: value.dtype,
                layout: Layout::REPLICATED,
                origin: Origin {
                    span: Some(value.span),
                    in_layers: value.in_layers.clone(),
                    ..Origin::default()
                },
                fold: value.fold,
            });
        }
        let outputs = program.outputs.iter().map(|output| PlanOutput {
            name: output.name.clone(),
            id: made[output.value.index()],
            dims: output.dims.clone(),
            state: output.state,
        });
        plan.outputs.extend(outputs);
        for (at, fold) in program.folds.iter().enumerate() {
            let made =
                |border: Option<ValueId>| border.map_or(InstrId::default(), |id| made[id.index()]);
            let id = FoldId(at as u16);
            let (from, to) = (made(program.entry(id)), made(program.exit(id)));
            plan.folds.push(PlanFold { layer: fold.layer.clone(), repeat: fold.repeat, from, to });
        }
        plan.drop_dims_behind(program.declared_dims());
        plan
    }
}

/// Whether each value is a parameter, or a result depends on it.
fn needed(program: &Program) -> Vec<bool> {
    let is_parameter = |id: ValueId| matches!(program.value(id).def, Def::Parameter { .. });
    let mut needed: Vec<bool> = program.value_ids().map(is_parameter).collect();
    program.outputs.iter().for_each(|output| needed[output.value.index()] = true);
    for id in program.value_ids().rev().filter(|id| !is_parameter(*id)) {
        if needed[id.index()] {
            program.value(id).def.operands().iter().for_each(|o| needed[o.index()] = true);
        }
    }
    needed
}
