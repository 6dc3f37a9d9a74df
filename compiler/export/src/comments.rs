//! The comment behind a line of a module: layout, bytes on a device, and bytes that are sent.

use shard_ir::{Collective, InstrId, InstrKind, Layout, MeshShape, Plan};

use crate::body::Form;
use crate::exchange::elements;

/// The comment on an instruction in a form.
pub(crate) fn comment(plan: &Plan, id: InstrId, form: Form) -> String {
    let instr = plan.instruction(id);
    let held = match form {
        Form::Devices | Form::Constraints => {
            format!("{}, {}", plan.layout_text(id), bytes(u128::from(plan.local_bytes(id))))
        }
        Form::Alone => plan.dims_text(&instr.dims),
    };
    match (&instr.kind, form) {
        (_, Form::Alone) => held,
        (InstrKind::Move(collective), _) => {
            let from = plan.instruction(plan.moved(id)).layout;
            format!(
                "{held}: {}{}",
                collective.name(),
                sent(plan, id, collective, from, instr.layout)
            )
        }
        (InstrKind::CollectiveEinsum(_), _) => match plan.fused_collective(id) {
            Some((collective, moved, from)) => {
                let after = moved_layout(plan, id, moved);
                format!(
                    "{held}: with {}{}",
                    collective.name(),
                    sent(plan, moved, &collective, from, after)
                )
            }
            None => held,
        },
        (InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_), _) => held,
    }
}

/// The layout of `moved` after the collective of a collective einsum: of the operand as it is
/// multiplied, or of the result.
fn moved_layout(plan: &Plan, id: InstrId, moved: InstrId) -> Layout {
    let inside = plan
        .loop_layouts(id)
        .and_then(|(fused, inside)| inside.operands.get(fused.gathered()?).copied());
    inside.filter(|_| moved != id).unwrap_or(plan.instruction(id).layout)
}

fn sent(plan: &Plan, id: InstrId, collective: &Collective, from: Layout, to: Layout) -> String {
    let instr = plan.instruction(id);
    let shape = MeshShape { mesh: &plan.mesh, sizes: &plan.sizes(&instr.dims) };
    if collective.has_traffic() {
        let elements = u128::from(elements(shape, collective, from, to));
        format!(", sends {}", bytes((elements * u128::from(instr.dtype.bits())).div_ceil(8)))
    } else {
        String::new()
    }
}

/// A number of bytes with three significant digits: `4.72 MB`, where a kB is 1000 bytes.
fn bytes(bytes: u128) -> String {
    const UNITS: [&str; 6] = ["B", "kB", "MB", "GB", "TB", "PB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let places = if unit == 0 || value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.places$} {}", UNITS[unit])
}

/// The comment on an instruction where each device computes on its own blocks.
pub(crate) fn comment_on_devices(plan: &Plan, id: InstrId) -> String {
    comment(plan, id, Form::Devices)
}
