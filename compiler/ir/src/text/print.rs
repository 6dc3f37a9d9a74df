//! Plans to text.

use std::fmt::Write as _;

use super::line::quoted;
use crate::collective::Collective;
use crate::collective_einsum::Fused;
use crate::op::Op;
use crate::plan::{InstrId, InstrKind, Number, Plan};
use crate::tensor::DimId;

/// The text of one plan, its header line included.
pub fn print(plan: &Plan) -> String {
    print_all(std::slice::from_ref(plan))
}

/// The text of several plans, one after the other.
pub fn print_all(plans: &[Plan]) -> String {
    let mut out = String::from("shir 1\n");
    for plan in plans {
        out.push('\n');
        print_plan(&mut out, plan);
    }
    out
}

fn print_plan(out: &mut String, plan: &Plan) {
    out.push_str(&format!("layer {}", quoted(&plan.name)));
    if plan.repeat != 1 {
        out.push_str(&format!(" repeat {}", plan.repeat));
    }
    if let Some(phase) = &plan.phase {
        out.push_str(&format!(" phase {}", quoted(phase)));
    }
    out.push('\n');
    if let Some(hardware) = &plan.hardware {
        out.push_str(&format!("hardware {}\n", quoted(hardware)));
    }
    if !plan.mesh.declared().is_empty() {
        out.push_str(&format!("mesh {}\n", plan.mesh));
    }
    if !plan.dims.is_empty() {
        let dims: Vec<String> = plan
            .dims
            .iter()
            .map(|d| {
                if d.size == d.useful {
                    format!("{}={}", d.name, d.size)
                } else {
                    format!("{}={} useful {}", d.name, d.size, d.useful)
                }
            })
            .collect();
        out.push_str(&format!("dims {}\n", dims.join(", ")));
    }
    for (at, fold) in plan.folds.iter().enumerate() {
        let (layer, repeat) = (quoted(&fold.layer), fold.repeat);
        let _ = writeln!(
            out,
            "fold {at} = {layer} repeat {repeat} from %{} to %{}",
            fold.from.0, fold.to.0
        );
    }
    if !plan.instructions.is_empty() {
        out.push('\n');
    }
    for id in plan.ids() {
        print_instruction(out, plan, id);
    }
    for output in &plan.outputs {
        let layout = plan.output_layout_text(output);
        let word = if output.state { "keep" } else { "return" };
        out.push_str(&format!("{word} {} = %{} : {layout}\n", quoted(&output.name), output.id.0));
    }
}

fn print_instruction(out: &mut String, plan: &Plan, id: InstrId) {
    let instr = plan.instruction(id);
    let operands: Vec<String> = instr.operands.iter().map(|o| format!("%{}", o.0)).collect();
    let operands = operands.join(", ");
    let _ = write!(out, "%{} = ", id.0);
    let is_parameter = matches!(instr.kind, InstrKind::Parameter(_));
    let mut kind_word = None;
    match &instr.kind {
        InstrKind::Parameter(kind) => {
            out.push_str("parameter");
            if let Some(name) = &instr.name {
                let _ = write!(out, " {}", quoted(name));
            }
            kind_word = kind.word();
        }
        InstrKind::Constant(Number::Given(value)) => {
            let _ = write!(out, "constant {value:?}");
        }
        InstrKind::Constant(Number::SizeOf(dim)) => {
            let _ = write!(out, "constant size {}", plan.dims[dim.index()].name);
        }
        InstrKind::Op(Op::Einsum) => {
            let _ = write!(out, "einsum {} {operands}", plan.equation(id));
        }
        InstrKind::CollectiveEinsum(fused) => {
            let equation = plan.equation(id);
            let _ = write!(
                out,
                "collective-einsum {equation} {operands} {}",
                fused_attributes(plan, id, fused)
            );
        }
        InstrKind::Op(op) => {
            let _ = write!(out, "{} {operands}{}", op.word(), op_attributes(plan, op));
        }
        InstrKind::Move(collective) => {
            let _ = write!(
                out,
                "{} {operands}{}",
                collective.name(),
                move_attributes(plan, id, collective)
            );
        }
    }
    out.push_str(" : ");
    if let Some(word) = kind_word {
        let _ = write!(out, "{word} ");
    }
    let _ = write!(out, "{} {}", instr.dtype, plan.layout_text(id));
    if let Some(name) = instr.name.as_ref().filter(|_| !is_parameter) {
        let _ = write!(out, " @{}", quoted(name));
    }
    if !instr.origin.in_layers.is_empty() {
        let layers: Vec<String> = instr.origin.in_layers.iter().map(|l| quoted(l)).collect();
        let _ = write!(out, " in {}", layers.join("/"));
    }
    if let Some(fold) = instr.fold {
        let _ = write!(out, " fold {}", fold.0);
    }
    if let Some(whole) = &instr.origin.piece_of {
        let _ = write!(out, " of {}", quoted(whole));
    }
    if instr.origin.attention {
        out.push_str(" as attention");
    }
    if let Some(rules) = instr.origin.rules.text() {
        let _ = write!(out, " ; {}", quoted(&rules));
    }
    out.push('\n');
}

fn op_attributes(plan: &Plan, op: &Op) -> String {
    op.slots()
        .map(|(slot, argument)| slot.lead.text().to_string() + &plan.argument_text(&argument))
        .collect()
}

/// The collective inside a loop: `all-gather 0 over yz along E`, with the operand by its place, or
/// `reduce-scatter over x along F`.
fn fused_attributes(plan: &Plan, id: InstrId, fused: &Fused) -> String {
    let instr = plan.instruction(id);
    let dim = |dims: &[DimId], d: usize| {
        dims.get(d).map_or("?", |d| plan.dims[d.index()].name.as_str()).to_string()
    };
    let axes = plan.mesh.axes_text(fused.axes().iter());
    match *fused {
        Fused::AllGather { operand, dim: d, .. } => {
            let dims = instr
                .operands
                .get(operand)
                .map_or(&[][..], |o| plan.instruction(*o).dims.as_slice());
            format!("all-gather {operand} over {axes} along {}", dim(dims, d))
        }
        Fused::ReduceScatter { dim: d, .. } => {
            format!("reduce-scatter over {axes} along {}", dim(&instr.dims, d))
        }
    }
}

fn move_attributes(plan: &Plan, id: InstrId, collective: &Collective) -> String {
    let instr = plan.instruction(id);
    let axes = |axes: crate::AxisList| plan.mesh.axes_text(axes.iter());
    let dim = |d: usize| instr.dims.get(d).map_or("?", |d| plan.dims[d.index()].name.as_str());
    // `x along B, y along D`.
    let parts = |collective: &Collective| {
        let from = instr.operands.first().map_or(instr.layout, |o| plan.instruction(*o).layout);
        let part = |(d, a): (usize, crate::AxisList)| format!("{} along {}", axes(a), dim(d));
        collective.parts(from).into_iter().map(part).collect::<Vec<_>>().join(", ")
    };
    let terms = collective.terms();
    let mut out = terms.kind.map_or(String::new(), |kind| format!(" {}", kind.short()));
    // A move without axes leads to the layout that is written as the type.
    if collective.row().several {
        out += &format!(" over {}", parts(collective));
    } else if let Some(a) = terms.axes {
        out += &format!(" over {}", axes(a));
    }
    out += &match terms.dims {
        [Some(d), None] => format!(" along {}", dim(d)),
        [Some(from), Some(to)] => format!(" from {} to {}", dim(from), dim(to)),
        [None, _] => String::new(),
    };
    if let Collective::SoftmaxMerge { statistics, .. } = collective {
        let dims: Vec<DimId> =
            statistics.iter().filter_map(|d| instr.dims.get(d).copied()).collect();
        out += &format!(" by {}", plan.dims_text(&dims));
    }
    out
}
