//! Orders of axes that cost a transfer: where the source writes `E_yz`, whether another order would have been cheaper.

use shard_cost::Hardware;
use shard_ir::{Collective, Def, InstrKind, Layout, LayoutPattern, Picoseconds, Program, ValueId};

use crate::{LowerError, LowerOptions, Lowered, lower};

/// A layout whose axes in another order would save time.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderSaving {
    /// The parameter, pin or result at fault; for a result the value that is returned.
    pub value: ValueId,
    /// Which result it is, where it is one.
    pub output: Option<usize>,
    /// The layout that the compiler takes when the order is left to it.
    pub better: Layout,
    /// What it saves in a step.
    pub saved: Picoseconds,
}

/// With more axes than this, a search for each order asked about would make every command slow, so nothing is asked.
const MAX_AXES_ASKED: usize = 4;

/// For each layout of the source that names several axes on one dim, and whose value the plan moves, what leaving the order
/// to the compiler would save; those alone that would save something.
pub fn order_savings(
    program: &Program,
    lowered: &Lowered,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Vec<OrderSaving>, LowerError> {
    let ordered = |p: &LayoutPattern| p.dims.iter().any(|d| d.axes.len() > 1 && !d.any_order);
    let mut found = Vec::new();
    if program.mesh.axes().len() > MAX_AXES_ASKED {
        return Ok(found);
    }
    for id in program.value_ids() {
        let moved = match &program.value(id).def {
            Def::Parameter { pattern, .. } if ordered(pattern) => is_moved(lowered, program, id),
            Def::Pin { operand, pattern, .. } if ordered(pattern) => {
                is_moved(lowered, program, id) || is_moved(lowered, program, *operand)
            }
            Def::Parameter { .. } | Def::Pin { .. } | Def::Constant(_) | Def::Op { .. } => false,
        };
        if !moved {
            continue;
        }
        let mut freed = program.clone();
        if let Def::Parameter { pattern, .. } | Def::Pin { pattern, .. } = &mut freed.values[id.index()].def {
            any_order(pattern);
        }
        let other = lower(&freed, hardware, options)?;
        found.extend(saving(lowered, &other, id, None, |l| layout_of(l, &freed, id)));
    }
    for (i, output) in program.outputs.iter().enumerate() {
        if !ordered(&output.pattern) || !is_moved(lowered, program, output.value) {
            continue;
        }
        let mut freed = program.clone();
        any_order(&mut freed.outputs[i].pattern);
        let other = lower(&freed, hardware, options)?;
        found.extend(saving(lowered, &other, output.value, Some(i), |l| {
            l.plan.outputs.get(i).map(|o| l.plan.instruction(o.id).layout)
        }));
    }
    Ok(found)
}

fn any_order(pattern: &mut LayoutPattern) {
    for dim in &mut pattern.dims {
        dim.any_order = true;
    }
}

fn saving(
    chosen: &Lowered,
    other: &Lowered,
    value: ValueId,
    output: Option<usize>,
    layout: impl Fn(&Lowered) -> Option<Layout>,
) -> Option<OrderSaving> {
    let saved = chosen.optimality.cost.0.saturating_sub(other.optimality.cost.0);
    let better = layout(other)?;
    (saved > 0).then_some(OrderSaving { value, output, better, saved: Picoseconds(saved) })
}

/// Whether a plan moves a value of the program with traffic in which whole blocks change places or gather.
fn is_moved(lowered: &Lowered, program: &Program, id: ValueId) -> bool {
    let name = crate::emit::name_of(program, id);
    lowered.plan.instructions.iter().any(|instr| match &instr.kind {
        InstrKind::Move(Collective::ReduceScatter { .. } | Collective::AllReduce { .. }) => false,
        InstrKind::Move(c) => c.has_traffic() && instr.name.as_deref() == name,
        _ => false,
    })
}

/// The layout in which the plan has a parameter or a pinned value.
fn layout_of(lowered: &Lowered, program: &Program, id: ValueId) -> Option<Layout> {
    let value = program.value(id);
    let (Def::Parameter { pattern, .. } | Def::Pin { pattern, .. }) = &value.def else { return None };
    let name = crate::emit::name_of(program, id);
    let fits =
        |i: &&shard_ir::Instruction| i.name.as_deref() == name && i.dims == value.dims && pattern.admits(i.layout);
    lowered.plan.instructions.iter().find(fits).map(|i| i.layout)
}
