//! A program with more layouts of its labels than can be searched: one label after another is searched, the others held.
//!
//! What comes out is bounded by the same program without its labels, which has every plan of this one and more.

use shard_cost::Hardware;
use shard_ir::{Def, DimId, LabelId, Layout, LayoutPattern, Program};

use crate::labels::{label_layout, layouts_of_label};
use crate::{LowerError, LowerOptions, Lowered, Optimality, Proof, Status, lower};

/// The limit that is named where not all layouts of labels were searched.
pub(crate) const LABELS: &str = "layouts of labels";

/// How often each label has its turn: a later turn sees what the others have become.
const TURNS: usize = 3;

/// The best plan that is found so, and a bound; `refused` where there is none.
pub(crate) fn descend(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    refused: LowerError,
) -> Result<Lowered, LowerError> {
    let any_size = LowerOptions { any_size: true, ..options.clone() };
    let Ok(free) = lower::lower(&relabelled(program, |_, pattern, _| pattern.label = None), hardware, &any_size) else {
        return Err(refused);
    };
    let mut layouts = Vec::with_capacity(program.labels.len());
    for (label, name) in program.labels.iter().enumerate() {
        layouts.push(first_guess(program, LabelId(label as u16), &free).ok_or(LowerError::Label(name.clone()))?);
    }
    let (mut best, mut failure): (Option<Lowered>, Option<LowerError>) = (None, None);
    for _ in 0..TURNS {
        let mut better = false;
        for label in 0..layouts.len() {
            let held = relabelled(program, |dims, pattern, own| {
                let own = usize::from(own.0);
                if own != label
                    && let Some(layout) = layouts.get(own)
                {
                    let exact = LayoutPattern::exactly(seen_by_value(dims, *layout), dims.len());
                    *pattern = LayoutPattern { label: pattern.label, ..exact };
                }
            });
            match lower::lower(&held, hardware, options) {
                Ok(found) if best.as_ref().is_none_or(|known| found.optimality.cost < known.optimality.cost) => {
                    layouts[label] = found.memory.labels.get(label).copied().unwrap_or(layouts[label]);
                    (best, better) = (Some(found), true);
                }
                Ok(_) => {}
                Err(fits @ LowerError::NoPlanFits { .. }) => failure = Some(unproven(fits)),
                Err(LowerError::Unreachable { .. } | LowerError::Label(_) | LowerError::Limit { .. }) => {}
                Err(LowerError::OutOfTime) if best.is_some() => break,
                Err(other) => return Err(other),
            }
        }
        if !better {
            break;
        }
    }
    let mut found = best.ok_or(failure.unwrap_or(refused))?;
    found.optimality = bounded(&found.optimality, &free.optimality);
    // What was priced is of layouts of labels that were held.
    found.memory.whole = None;
    Ok(found)
}

/// Of a few layouts of labels it may be that none has a plan that fits: of all of them that is not known.
fn unproven(error: LowerError) -> LowerError {
    match error {
        LowerError::NoPlanFits { plan, least, .. } => LowerError::NoPlanFits { plan, least, proven: false },
        other => other,
    }
}

fn bounded(found: &Optimality, free: &Optimality) -> Optimality {
    let lower_bound = free.lower_bound.min(found.cost);
    let proven = lower_bound == found.cost;
    Optimality {
        status: if proven { Status::Proven } else { Status::Bounded },
        proof: proven.then_some(Proof::Search),
        lower_bound,
        price_bound: free.price_bound.map(|bound| bound.min(found.cost)),
        stopped_by: (!proven).then(|| LABELS.to_owned()),
        ..found.clone()
    }
}

/// The layout that a parameter with the label has in the plan without labels, if the label allows it; else the first that
/// it allows.
fn first_guess(program: &Program, label: LabelId, free: &Lowered) -> Option<Layout> {
    let allowed = layouts_of_label(program, label);
    let parameters = program.value_ids().filter(|id| match &program.value(*id).def {
        Def::Parameter { pattern, .. } => pattern.label == Some(label),
        Def::Constant(_) | Def::Op { .. } | Def::Pin { .. } => false,
    });
    let stored = |id: shard_ir::ValueId| {
        let instr = free.plan.instructions.get(id.index())?;
        let layout = label_layout(&program.value(id).dims, instr.layout);
        allowed.contains(&layout).then_some(layout)
    };
    parameters.filter_map(stored).next().or_else(|| allowed.first().copied())
}

/// A program with other patterns where it has labels.
fn relabelled(program: &Program, mut change: impl FnMut(&[DimId], &mut LayoutPattern, LabelId)) -> Program {
    let mut out = program.clone();
    for value in &mut out.values {
        if let Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } = &mut value.def
            && let Some(label) = pattern.label
        {
            change(&value.dims, pattern, label);
        }
    }
    for output in &mut out.outputs {
        if let Some(label) = output.pattern.label {
            change(&program.value(output.value).dims, &mut output.pattern, label);
        }
    }
    out
}

/// A layout of a label as a value with these dims has it: the inverse of [`label_layout`].
fn seen_by_value(dims: &[DimId], layout: Layout) -> Layout {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.sort_by_key(|i| dims[*i]);
    let inverse: Vec<usize> = (0..dims.len()).filter_map(|i| order.iter().position(|o| *o == i)).collect();
    layout.permuted(&inverse)
}
