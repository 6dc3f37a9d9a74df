//! Moves and ops in the notation of the reports: `all-gather yz along E`, `einsum BLE,EF->BLF`.

use shard_cost::{Bound, LoopPrice};
use shard_ir::attention::rings;
use shard_ir::collective::Move;
use shard_ir::op::{Argument, filled};
use shard_ir::{
    AxisList, Collective, InstrId, InstrKind, Layout, Mesh, Op, Plan, Program, Reduction, never,
};

/// `layer`, or `model` where it has folded blocks.
pub fn kind_of_layer(plan: &Plan) -> &'static str {
    if plan.folds.is_empty() { "layer" } else { "model" }
}

/// A mesh as it is declared.
pub fn mesh_text(mesh: &Mesh) -> String {
    if mesh.declared().is_empty() { "none".to_string() } else { mesh.to_string() }
}

/// ` (repeated 80 times)`; empty for what is not repeated.
pub fn repeated(times: u64) -> String {
    if times > 1 { format!(" (repeated {times} times)") } else { String::new() }
}

/// What an instruction does, in one phrase.
pub fn phrase(plan: &Plan, id: InstrId) -> String {
    let instr = plan.instruction(id);
    match &instr.kind {
        InstrKind::Parameter(kind) => kind.word().unwrap_or("parameter").to_string(),
        InstrKind::Constant(number) => format!("constant {}", plan.number(*number)),
        InstrKind::Op(op) => op_phrase(plan, id, op),
        InstrKind::Move(collective) => move_phrase(plan, id, collective),
        InstrKind::CollectiveEinsum(_) => {
            format!("{} with {}", op_phrase(plan, id, &Op::Einsum), loop_phrase(plan, id))
        }
    }
}

/// The collective inside the loop of a collective einsum: `all-gather yz along E of x`; empty for
/// anything else.
pub fn loop_phrase(plan: &Plan, id: InstrId) -> String {
    let Some((collective, moved, _)) = plan.fused_collective(id) else { return String::new() };
    let phrase = move_phrase(plan, moved, &collective);
    if moved == id { phrase } else { format!("{phrase} of {}", value_name(plan, moved)) }
}

/// What travels in the ring that begins with an instruction: `blocks of k and v passed round z
/// along S`; empty where none does.
pub fn ring_phrase(plan: &Plan, first: InstrId) -> String {
    let all = rings(plan);
    let Some(ring) = all.iter().find(|ring| ring.first() == first) else { return String::new() };
    let names: Vec<String> = ring.travels.iter().map(|(id, _)| value_name(plan, *id)).collect();
    let along = ring.travels.first().and_then(|(id, collective)| {
        let [at, _] = collective.terms().dims;
        plan.instruction(*id).dims.get(at?).map(|dim| plan.dims[dim.index()].name.as_str())
    });
    // What travels is what the einsums of the attention gather along its keys.
    let along = along.unwrap_or_else(|| never!("a ring along a dim that its values lack", "?"));
    let axes = plan.mesh.axes_text(ring.axes.iter());
    let names = match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    };
    format!("blocks of {names} passed round {axes} along {along}")
}

/// A move with its axes and dims.
fn move_phrase(plan: &Plan, id: InstrId, collective: &Collective) -> String {
    let instr = plan.instruction(id);
    let dim = |at: usize| match instr.dims.get(at) {
        Some(dim) => plan.dims[dim.index()].name.as_str(),
        None => never!("a move along a dim that its value lacks", "?"),
    };
    // Only the axes of a permute depend on where it starts.
    let from = instr.operands.first().map_or(instr.layout, |o| plan.instruction(*o).layout);
    let axes = plan.mesh.axes_text(collective.axes(&plan.mesh, from).iter());
    let name = collective.name();
    // `x along B and y along D`.
    let along = || {
        let part = |(d, axes): (usize, AxisList)| {
            format!("{} along {}", plan.mesh.axes_text(axes.iter()), dim(d))
        };
        collective.parts(from).into_iter().map(part).collect::<Vec<_>>().join(" and ")
    };
    let terms = collective.terms();
    let kind = if terms.kind == Some(Reduction::Max) { " of the maximum" } else { "" };
    if collective.row().several {
        return format!("{name}{kind} {}", along());
    }
    format!("{name}{kind} {axes}")
        + &match terms.dims {
            [Some(d), None] if collective.code() == Move::ToPartial => format!(" from {}", dim(d)),
            [Some(d), None] => format!(" along {}", dim(d)),
            [Some(from), Some(to)] => format!(" from {} to {}", dim(from), dim(to)),
            [None, _] => String::new(),
        }
}

/// An op with its subscripts or dims.
fn op_phrase(plan: &Plan, id: InstrId, op: &Op) -> String {
    let word = op.word();
    if *op == Op::Einsum {
        let stated = plan.stated_dtype(id).map_or(String::new(), |dtype| format!(" in {dtype}"));
        return format!("{word} {}{stated}", plan.equation(id));
    }
    let text = |argument: Argument| match argument {
        Argument::Dims(dims) => plan.dim_names(&dims).join(" "),
        Argument::Dim(_) | Argument::Number(_) | Argument::Dtype(_) => {
            plan.argument_text(&argument)
        }
    };
    let slot = |name: &str| {
        op.slots().find(|(slot, _)| slot.name == name).map(|(_, argument)| text(argument))
    };
    format!("{word} {}", filled(op.row().phrase, slot)).trim_end().to_string()
}

/// How a layer is spoken of: by its name, and its phase in a file that has them.
pub fn layer_name(plan: &Plan) -> String {
    match &plan.phase {
        Some(phase) => format!("{}, phase {phase}", plan.name),
        None => plan.name.clone(),
    }
}

/// How a value is spoken of: its name, or the number of the instruction that makes it.
pub fn value_name(plan: &Plan, id: InstrId) -> String {
    plan.instruction(id).name.clone().unwrap_or_else(|| format!("%{}", id.0))
}

/// What the time of a loop is bounded by: the network where the cores wait for it.
pub(crate) fn loop_bound(looped: &LoopPrice, einsum: Bound) -> &'static str {
    if looped.exposed().0 > 0 { "network" } else { einsum.name() }
}

/// The layout of a parameter as text.
pub(crate) fn parameter_layout(
    program: &Program,
    value: shard_ir::ValueId,
    layout: Layout,
) -> String {
    layout.text(&program.mesh, &program.dim_names(&program.value(value).dims))
}

/// The name of a weight.
pub(crate) fn weight_name(program: &Program, weight: shard_ir::ValueId) -> &str {
    let name = program.value(weight).name.as_deref();
    name.unwrap_or_else(|| never!("a weight without a name", "a weight"))
}
