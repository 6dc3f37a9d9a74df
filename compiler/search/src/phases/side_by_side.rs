//! The phases of a layer as one program, so that one search chooses for all of them.

use shard_ir::{Def, Dim, DimId, FoldId, LabelId, LayoutPattern, Output, Program, Value, ValueId};

use super::steps;

/// All phases as one program. The free weights come first and are stored before any step; each
/// phase reads them through pins.
pub(super) fn side_by_side(programs: &[&Program], free: &[ValueId]) -> Program {
    let first = programs[0];
    let mut joint = Program {
        phase: None,
        values: Vec::new(),
        outputs: Vec::new(),
        labels: Vec::new(),
        folds: Vec::new(),
        ..first.clone()
    };
    for id in free {
        let mut weight = Value { times: 0, ..first.value(*id).clone() };
        if let Def::Parameter { pattern, .. } = &mut weight.def {
            pattern.label = None;
        }
        joint.values.push(weight);
    }
    for program in programs {
        // The folded blocks of the first phase come first, so that the weights, which stand in
        // them, keep their numbers.
        let folds = joint.folds.len() as u16;
        joint.folds.extend(program.folds.iter().cloned());
        let dims: Vec<DimId> =
            program.dims.iter().map(|dim| common_dim(&mut joint.dims, dim)).collect();
        joint.cuts.extend(&program.cuts, |dim| dims[dim.index()]);
        let rename =
            |list: &[DimId]| -> Vec<DimId> { list.iter().map(|d| dims[d.index()]).collect() };
        let labels = joint.labels.len() as u16;
        let relabel = |pattern: &LayoutPattern| LayoutPattern {
            label: pattern.label.map(|LabelId(label)| LabelId(labels + label)),
            ..pattern.clone()
        };
        let base = joint.values.len() as u32;
        let moved = |id: &ValueId| ValueId(base + id.0);
        for id in program.value_ids() {
            let value = program.value(id);
            let def = match &value.def {
                Def::Parameter { kind, pattern } => {
                    match free.iter().position(|weight| *weight == id) {
                        Some(at) => Def::Pin {
                            operand: ValueId(at as u32),
                            pattern: relabel(pattern),
                            written: false,
                        },
                        None => Def::Parameter { kind: *kind, pattern: relabel(pattern) },
                    }
                }
                Def::Constant(number) => Def::Constant(*number),
                Def::Op { op, operands } => Def::Op {
                    op: op.with_dims(|d| dims[d.index()]),
                    operands: operands.iter().map(moved).collect(),
                },
                Def::Pin { operand, pattern, written } => Def::Pin {
                    operand: moved(operand),
                    pattern: relabel(pattern),
                    written: *written,
                },
            };
            let times = value.times.saturating_mul(steps(program));
            let fold = value.fold.map(|FoldId(fold)| FoldId(folds + fold));
            joint.values.push(Value {
                dims: rename(&value.dims),
                def,
                times,
                fold,
                ..value.clone()
            });
        }
        joint.outputs.extend(program.outputs.iter().map(|output| Output {
            value: moved(&output.value),
            dims: rename(&output.dims),
            pattern: relabel(&output.pattern),
            ..output.clone()
        }));
        joint.labels.extend(program.labels.iter().cloned());
    }
    joint
}

/// The dim with the name and size of this one, added where there is none yet.
fn common_dim(dims: &mut Vec<Dim>, dim: &Dim) -> DimId {
    let same = |d: &Dim| d.name == dim.name && d.size == dim.size;
    let at = dims.iter().position(same).unwrap_or_else(|| {
        dims.push(dim.clone());
        dims.len() - 1
    });
    DimId(at as u16)
}
