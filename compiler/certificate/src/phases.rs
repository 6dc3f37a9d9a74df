//! The phases of a layer as one program: the weights are stored once, in one layout for all phases,
//! and each step counts as many times as a request takes it.

use shard_ir::{
    Def, Dim, DimId, FoldId, LabelId, Layout, LayoutPattern, MeshShape, Output, Plan, Program,
    Value, ValueId,
};

/// How many steps of a phase a request takes; 1 in a file without phases.
pub(crate) fn steps(program: &Program) -> u64 {
    program.phase.as_ref().map_or(1, |phase| phase.repeat)
}

/// The weights that phases share and whose layout the source leaves open. All phases have the same.
fn shared_weights(program: &Program) -> Vec<ValueId> {
    let is_open = |id: &ValueId| {
        let value = program.value(*id);
        let Def::Parameter { kind, pattern } = &value.def else { return false };
        let sizes = program.sizes(&value.dims);
        kind.is_weight()
            && pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes }).is_none()
    };
    program.value_ids().filter(is_open).collect()
}

/// The name of the first shared weight that the plans of two phases store in different layouts.
pub(crate) fn stored_apart(programs: &[&Program], plans: &[Plan]) -> Option<String> {
    let stored = |plan: &Plan, name: &Option<String>| -> Option<Layout> {
        let is_it = |i: &&shard_ir::Instruction| {
            matches!(i.kind, shard_ir::InstrKind::Parameter(_)) && i.name == *name
        };
        plan.instructions.iter().find(is_it).map(|i| i.layout)
    };
    let first = programs.first()?;
    let names = shared_weights(first).into_iter().map(|id| first.value(id).name.clone());
    let differs = |name: &Option<String>| {
        plans.windows(2).any(|two| stored(&two[0], name) != stored(&two[1], name))
    };
    names.into_iter().find(differs).map(Option::unwrap_or_default)
}

/// The phases of a layer in one program.
#[derive(Clone, Debug)]
pub struct Joint {
    /// The program.
    pub program: Program,
    /// For each phase the parameters that are in memory while it runs, counted in program order.
    pub present: Vec<Vec<usize>>,
}

/// The phases of a layer side by side in one program; with a single phase the program itself, and
/// `None` without any. The weights that the phases share come first and are stored before any step.
/// Each phase reads them through a pin of its own, from which it may move them.
pub fn side_by_side(programs: &[&Program]) -> Option<Joint> {
    let (first, others) = programs.split_first()?;
    let parameters = |program: &Program| program.parameters().count();
    if others.is_empty() {
        return Some(Joint {
            program: (*first).clone(),
            present: vec![(0..parameters(first)).collect()],
        });
    }
    let weights = shared_weights(first);
    let stored = |id: &ValueId| {
        let mut value = Value { times: 0, ..first.value(*id).clone() };
        if let Def::Parameter { pattern, .. } = &mut value.def {
            // A label belongs to one phase, so the pin of the phase bears it.
            pattern.label = None;
        }
        value
    };
    let mut joint = Program {
        phase: None,
        values: weights.iter().map(stored).collect(),
        outputs: Vec::new(),
        labels: Vec::new(),
        folds: Vec::new(),
        ..(*first).clone()
    };
    let mut present = Vec::new();
    for phase in programs {
        let before = parameters(&joint);
        add(&mut joint, phase, &weights);
        present.push((0..weights.len()).chain(before..parameters(&joint)).collect());
    }
    Some(Joint { program: joint, present })
}

/// Adds a phase to the joint program. Dims with the same name and size become one dim; labels,
/// folded blocks and values stay apart.
fn add(joint: &mut Program, phase: &Program, weights: &[ValueId]) {
    let (values, labels, folds) =
        (joint.values.len() as u32, joint.labels.len() as u16, joint.folds.len() as u16);
    let dims: Vec<DimId> = phase.dims.iter().map(|dim| dim_of(&mut joint.dims, dim)).collect();
    joint.cuts.extend(&phase.cuts, |dim| dims[dim.index()]);
    let renamed = |of: &[DimId]| -> Vec<DimId> { of.iter().map(|dim| dims[dim.index()]).collect() };
    let value_of = |id: &ValueId| ValueId(values + id.0);
    let pattern_of = |pattern: &LayoutPattern| LayoutPattern {
        label: pattern.label.map(|LabelId(label)| LabelId(labels + label)),
        ..pattern.clone()
    };
    for id in phase.value_ids() {
        let value = phase.value(id);
        let def = match &value.def {
            Def::Parameter { kind, pattern } => {
                match weights.iter().position(|weight| *weight == id) {
                    Some(at) => Def::Pin {
                        operand: ValueId(at as u32),
                        pattern: pattern_of(pattern),
                        written: false,
                    },
                    None => Def::Parameter { kind: *kind, pattern: pattern_of(pattern) },
                }
            }
            Def::Constant(number) => Def::Constant(*number),
            Def::Op { op, operands } => {
                let op = op.with_dims(|dim| dims[dim.index()]);
                Def::Op { op, operands: operands.iter().map(value_of).collect() }
            }
            Def::Pin { operand, pattern, written } => Def::Pin {
                operand: value_of(operand),
                pattern: pattern_of(pattern),
                written: *written,
            },
        };
        joint.values.push(Value {
            dims: renamed(&value.dims),
            def,
            times: value.times.saturating_mul(steps(phase)),
            fold: value.fold.map(|FoldId(fold)| FoldId(folds + fold)),
            ..value.clone()
        });
    }
    joint.outputs.extend(phase.outputs.iter().map(|output| Output {
        value: value_of(&output.value),
        dims: renamed(&output.dims),
        pattern: pattern_of(&output.pattern),
        ..output.clone()
    }));
    joint.labels.extend(phase.labels.iter().cloned());
    joint.folds.extend(phase.folds.iter().cloned());
}

fn dim_of(dims: &mut Vec<Dim>, dim: &Dim) -> DimId {
    let known = dims.iter().position(|d| d.name == dim.name && d.size == dim.size);
    DimId(known.unwrap_or_else(|| {
        dims.push(dim.clone());
        dims.len() - 1
    }) as u16)
}
