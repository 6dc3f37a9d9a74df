//! What the best plan of a layer sends.

mod source;

use std::collections::BTreeMap;

use shard_cost::Hardware;
use shard_driver::compile::{CompileOptions, Purpose, check_source};
use shard_driver::pipeline::Compiled;
use shard_driver::{Keeper, Outcome};
use shard_ir::{AxisId, Dtype, InstrKind, Picoseconds, Plan, Reduction};
use shard_words::SourceFile;

use super::sharding::Spec;
use super::translate::{Class, Layer};
use crate::axes::NamedMesh;
use crate::hlo::tables::Place;
use crate::report::Totals;

pub use source::text;

/// The layouts with which a layer is lowered: those of the program, or edits of them.
#[derive(Clone, Debug)]
pub struct Choice {
    /// For each parameter its layout; `None` for a free one.
    pub parameters: Vec<Option<Spec>>,
    /// For each constraint its layout; `None` for a constraint that is left out.
    pub constraints: Vec<Option<Spec>>,
    /// For each result its layout; `None` for a free one.
    pub outputs: Vec<Option<Spec>>,
    /// A dim that is written as two dims, and the size of the major one.
    pub parted: Option<(Class, u64)>,
}

impl Choice {
    /// The layouts of the program.
    pub fn of(layer: &Layer) -> Choice {
        Choice {
            parameters: layer.parameters.iter().map(|p| p.spec.clone()).collect(),
            constraints: layer.constraints.iter().map(|c| Some(c.spec.clone())).collect(),
            outputs: layer.outputs.iter().map(|o| o.spec.clone()).collect(),
            parted: None,
        }
    }
}

/// What the best plan of a layer sends and takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Optimum {
    /// What it sends, over all turns of its loop.
    pub totals: Totals,
    /// Its serial time with its computing, over all turns, by which edits are compared.
    pub time: Picoseconds,
    /// Whether no plan takes less time.
    pub proven: bool,
    /// What it sends, in order.
    pub moves: Vec<Move>,
    /// What it sends where floats of fewer bits are sent as `f32`, as XLA for CPU sends them.
    pub bytes_as_f32: u64,
    /// The layouts of its values.
    pub pins: Vec<Pin>,
    /// Values that stay partial sums through a linear op: the operands and the result of that op.
    pub sums: Vec<Pin>,
}

/// The layout of a value in the best plan: where it is made, or where one statement takes it in
/// another layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pin {
    /// The value of the layer.
    pub value: String,
    /// The statement that takes it in this layout; `None` for the layout in which it is made.
    pub by: Option<String>,
    /// For each dim of the value, by its class, the axes that split it.
    pub axes: BTreeMap<Class, Vec<String>>,
    /// The axes over which each device has a term of the value.
    pub terms: Vec<String>,
    /// Bytes that a device sends to bring it into this layout, over all turns.
    pub wire_bytes: u64,
}

/// A collective of the best plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// What it does: `all-gather`.
    pub op: &'static str,
    /// The axes that it runs along.
    pub axes: Vec<String>,
    /// Bytes that a device sends, over all turns.
    pub wire_bytes: u64,
    /// The line that makes or uses the value.
    pub place: Option<Place>,
    /// The value in the words of [`Origin`](super::translate::Origin), where it is known.
    pub value: Option<String>,
    /// The layout of the value behind it; `None` if the value is still partial.
    pub to: Option<Spec>,
}

/// The best plan of a layer with the layouts of a choice, or a clause that says why there is none.
pub fn optimum(
    layer: &Layer,
    mesh: &NamedMesh,
    choice: &Choice,
    hardware: &Hardware,
) -> Result<Optimum, String> {
    let source = SourceFile::new("before.shard", text(layer, mesh, choice));
    let mut host = Keeper::default();
    let lowered = lower(layer, mesh, &source, hardware, &mut host);
    let found = lowered.ok().flatten();
    found.ok_or_else(|| {
        let wrong = host.reported.iter().flat_map(|(_, found)| found).find(|d| d.is_error());
        wrong.map_or_else(|| "no plan was found".to_string(), |d| d.message.clone())
    })
}

fn lower(
    layer: &Layer,
    mesh: &NamedMesh,
    source: &SourceFile,
    hardware: &Hardware,
    host: &mut Keeper,
) -> Outcome<Option<Optimum>> {
    let options = CompileOptions::default();
    let mut sound = check_source(source, &options, Purpose::Check, host)?;
    sound.hardware = hardware.clone();
    let (compilation, outcome) = sound.lower(&options, Purpose::Check, host)?;
    outcome?;
    Ok(compilation.compiled.first().map(|(_, compiled)| {
        let turns = compiled.schedule.plan.repeat;
        let totals = compiled.price.totals;
        Optimum {
            totals: Totals {
                wire_bytes: totals.comm_bytes.0.saturating_mul(turns),
                time: Some(totals.comm_time.times(turns)),
            },
            time: totals.serial_time.times(turns),
            proven: compiled.optimality.as_ref().is_some_and(|o| o.proof.is_some()),
            moves: moves(layer, mesh, compiled),
            bytes_as_f32: bytes_as_f32(compiled),
            pins: pins(mesh, compiled),
            sums: sums(mesh, compiled),
        }
    }))
}

/// The collectives of a plan that send something, each with the value of the user's program that it
/// moves.
fn moves(layer: &Layer, mesh: &NamedMesh, compiled: &Compiled) -> Vec<Move> {
    let plan = &compiled.schedule.plan;
    let axis_name = |axis| axis_name(plan, mesh, axis);
    let mut found = Vec::new();
    for (instruction, price) in plan.instructions.iter().zip(&compiled.price.instructions) {
        let (InstrKind::Move(collective), Some(cost)) = (&instruction.kind, price.collective())
        else {
            continue;
        };
        if cost.wire_bytes.0 == 0 {
            continue;
        }
        let before = instruction.operands.first().map(|operand| plan.instruction(*operand));
        let from = before.map_or(instruction.layout, |before| before.layout);
        let known = instruction.name.as_deref().and_then(|name| layer.origin(name));
        let spec_of = |class: &Option<Class>| {
            let Some(class) = class else { return Some(Vec::new()) };
            let name = format!("D{}", layer.root(*class));
            let mut dims = instruction.dims.iter();
            let at = dims.position(|dim| plan.dims[dim.index()].name == name)?;
            instruction.layout.axes_of(at).iter().map(axis_name).collect()
        };
        let to = known
            .filter(|_| instruction.layout.is_complete())
            .and_then(|origin| origin.positions.iter().map(spec_of).collect());
        found.push(Move {
            op: instruction.kind.name(),
            axes: collective.axes(&plan.mesh, from).iter().filter_map(axis_name).collect(),
            wire_bytes: cost.wire_bytes.0.saturating_mul(plan.repeat),
            place: known.and_then(|origin| origin.place.cloned()),
            value: known.map(|origin| origin.words()),
            to,
        });
    }
    found
}

/// The bytes that a device sends if every float of 16 bits is sent as 32 bits.
fn bytes_as_f32(compiled: &Compiled) -> u64 {
    let plan = &compiled.schedule.plan;
    let priced = plan.instructions.iter().zip(&compiled.price.instructions);
    let sent = priced.filter_map(|(instruction, price)| {
        let bytes = price.collective()?.wire_bytes.0.saturating_mul(plan.repeat);
        let narrow = matches!(instruction.dtype, Dtype::Bf16 | Dtype::F16);
        Some(if narrow { bytes.saturating_mul(2) } else { bytes })
    });
    sent.fold(0, u64::saturating_add)
}

/// For each dim of an instruction, by its class, the axes that split it; `None` if it has a dim
/// without a class.
fn axes_of(mesh: &NamedMesh, plan: &Plan, at: usize) -> Option<BTreeMap<Class, Vec<String>>> {
    let instruction = &plan.instructions[at];
    let dims = instruction.dims.iter().enumerate().map(|(place, dim)| {
        // The major part of a dim that is written as two has no class in its name.
        let class: Class = plan.dims[dim.index()].name.strip_prefix('D')?.parse().ok()?;
        let axes = instruction.layout.axes_of(place);
        let names = axes.iter().map(|axis| axis_name(plan, mesh, axis));
        Some((class, names.collect::<Option<_>>()?))
    });
    dims.collect()
}

/// The partial sums that a linear op takes, and the partial sum that it gives.
fn sums(mesh: &NamedMesh, compiled: &Compiled) -> Vec<Pin> {
    let plan = &compiled.schedule.plan;
    let mut found: Vec<Pin> = Vec::new();
    let is_sum = |at: usize| {
        let layout = plan.instructions[at].layout;
        !layout.is_complete() && layout.partial(Reduction::Sum) == layout.partial_axes()
    };
    for (at, instruction) in plan.instructions.iter().enumerate() {
        let (true, InstrKind::Op(_)) = (is_sum(at), &instruction.kind) else { continue };
        let taken: Vec<usize> =
            instruction.operands.iter().map(|o| o.index()).filter(|one| is_sum(*one)).collect();
        if taken.is_empty() {
            continue;
        }
        for one in taken.into_iter().chain([at]) {
            let made = &plan.instructions[one];
            let (Some(name), InstrKind::Op(_)) = (made.name.clone(), &made.kind) else { continue };
            let terms = made.layout.partial_axes().iter().map(|axis| axis_name(plan, mesh, axis));
            let (Some(axes), Some(terms)) =
                (axes_of(mesh, plan, one), terms.collect::<Option<_>>())
            else {
                continue;
            };
            let pin = Pin { value: name, by: None, axes, terms, wire_bytes: 0 };
            if !found.contains(&pin) {
                found.push(pin);
            }
        }
    }
    found
}

/// The layouts of the named values of a plan that are complete.
fn pins(mesh: &NamedMesh, compiled: &Compiled) -> Vec<Pin> {
    let plan = &compiled.schedule.plan;
    let axes_of = |at: usize| {
        plan.instructions[at].layout.is_complete().then(|| axes_of(mesh, plan, at)).flatten()
    };
    // For each instruction the bytes that were sent since its value was computed.
    let mut sent = vec![0_u64; plan.instructions.len()];
    let mut made: BTreeMap<&str, (BTreeMap<Class, Vec<String>>, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, instruction) in plan.instructions.iter().enumerate() {
        match &instruction.kind {
            InstrKind::Move(_) => {
                let before =
                    instruction.operands.first().map_or(0, |operand| sent[operand.index()]);
                let cost = compiled.price.instructions[at].collective();
                let cost = cost.map_or(0, |cost| cost.wire_bytes.0).saturating_mul(plan.repeat);
                sent[at] = before.saturating_add(cost);
            }
            InstrKind::Op(_) | InstrKind::CollectiveEinsum(_) => {
                let Some(by) = instruction.name.as_deref() else { continue };
                for operand in &instruction.operands {
                    let value = plan.instruction(*operand).name.as_deref();
                    let Some((value, axes)) = value.zip(axes_of(operand.index())) else { continue };
                    let Some((first, before)) = made.get(value) else { continue };
                    let pin = Pin {
                        value: value.to_string(),
                        by: Some(by.to_string()),
                        axes,
                        terms: Vec::new(),
                        wire_bytes: sent[operand.index()].saturating_sub(*before),
                    };
                    if pin.axes != *first && !found.contains(&pin) {
                        found.push(pin);
                    }
                }
            }
            InstrKind::Parameter(_) | InstrKind::Constant(_) => {}
        }
        let Some(name) = instruction.name.as_deref() else { continue };
        if let (false, Some(axes)) = (made.contains_key(name), axes_of(at)) {
            made.insert(name, (axes.clone(), sent[at]));
            if !matches!(instruction.kind, InstrKind::Parameter(_)) {
                let value = name.to_string();
                found.push(Pin { value, by: None, axes, terms: Vec::new(), wire_bytes: sent[at] });
            }
        }
    }
    found
}

/// The name of an axis of a plan in the user's mesh.
fn axis_name(plan: &Plan, mesh: &NamedMesh, axis: AxisId) -> Option<String> {
    let number = plan.mesh.name(axis).strip_prefix('m')?.parse::<usize>().ok()?;
    Some(mesh.get(number)?.0.clone())
}
