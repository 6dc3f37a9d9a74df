//! One instruction of a plan as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use shard_cost::InstrPrice;
use shard_ir::attention::rings;
use shard_ir::op::{Argument, Code, Field};
use shard_ir::{
    Collective, DimId, Fused, InstrId, InstrKind, Number, Op, ParameterKind, Plan, Reduction, never,
};

use super::SpanJson;
use super::placed::{PlacedJson, placed};
use crate::Layer;
use crate::notation::{loop_bound, phrase};
use crate::origins::{axis_by_axis, forcing};
use crate::words::reason_of;

/// What every instruction bears, and then what its kind adds.
#[derive(Debug, Serialize)]
pub(crate) struct InstructionJson {
    id: u32,
    op: &'static str,
    name: Option<String>,
    /// What it does, in the words of the reports.
    phrase: String,
    operands: Vec<u32>,
    layout: String,
    placed: PlacedJson,
    dtype: &'static str,
    shape: Vec<u64>,
    local_shape: Vec<u64>,
    #[serde(flatten)]
    detail: Detail,
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    in_layers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    piece_of: Option<String>,
    /// The folded block that it is in, as an index into `folds`, and how many times it is run
    /// there.
    #[serde(skip_serializing_if = "Option::is_none")]
    fold: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<u64>,
    /// When it runs if computing and communicating overlap, the first time in a folded block; none
    /// for what is not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_s: Option<f64>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Detail {
    Parameter {
        kind: &'static str,
        /// `host` where it is not in the chip's own memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<&'static str>,
        span: Option<SpanJson>,
    },
    Constant {
        value: f64,
        /// The dim whose size it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        size_of: Option<String>,
    },
    Op(OpJson),
    Move(MoveJson),
    CollectiveEinsum(Box<LoopJson>),
}

#[derive(Debug, Default, Serialize)]
struct OpJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    equation: Option<String>,
    /// Which map, binary, reduction or norm.
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<&'static str>,
    /// What fills its slots.
    #[serde(flatten)]
    arguments: Arguments,
    flops: u128,
    hbm_bytes: u64,
    time_s: f64,
    bound: &'static str,
    /// The first op of the kernel, which bears its figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    fused_into: Option<u32>,
    rule: Option<String>,
    /// Why it is not what the source says, where a logical rule made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    span: Option<SpanJson>,
}

/// What fills the slots of an op, in the order of [`Field`].
#[derive(Debug, Default)]
struct Arguments(BTreeMap<Field, Value>);

impl Serialize for Arguments {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(field, value)| (field.name(), value)))
    }
}

#[derive(Debug, Serialize)]
struct MoveJson {
    axes: Vec<String>,
    #[serde(flatten)]
    along: Along,
    /// What combines the terms, where the move combines or makes some.
    #[serde(skip_serializing_if = "Option::is_none")]
    reduction: Option<&'static str>,
    /// The dims of the statistics by which a softmax-merge weighs.
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Vec<String>>,
    bytes: u64,
    wire_bytes: u64,
    time_s: f64,
    rule: Option<String>,
    reason: Option<String>,
    span: Option<SpanJson>,
    /// Its part of the time of all steps, 0 to 1; absent where they take none.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// Axis by axis, where several are crossed one after another.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_axis: Vec<AxisCostJson>,
    /// The value whose layout forces it, or the move itself where only the place that asks for it
    /// does.
    forced_by: ForcedByJson,
}

/// An einsum with a collective inside its loop: what both bear.
#[derive(Debug, Serialize)]
struct LoopJson {
    fused: &'static str,
    equation: String,
    axes: Vec<String>,
    dim: Option<String>,
    /// The operand that is gathered.
    #[serde(skip_serializing_if = "Option::is_none")]
    gathered: Option<u32>,
    /// The ring that the einsum is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    ring: Option<RingJson>,
    chunks: u64,
    bytes: u64,
    wire_bytes: u64,
    flops: u128,
    hbm_bytes: u64,
    time_s: f64,
    /// What the collective and the einsum would take one after the other, each by itself.
    collective_time_s: f64,
    einsum_time_s: f64,
    bound: &'static str,
    rule: Option<String>,
    reason: Option<String>,
    span: Option<SpanJson>,
}

/// A ring: an attention whose keys and values travel.
#[derive(Debug, Serialize)]
struct RingJson {
    /// The instruction that bears the figures of all of it.
    first: u32,
    /// What travels, each value once.
    travels: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct AxisCostJson {
    axis: String,
    wire_bytes: u64,
    time_s: f64,
}

#[derive(Debug, Serialize)]
struct ForcedByJson {
    id: u32,
    name: Option<String>,
    layout: String,
    line: Option<usize>,
}

/// The dims that a move changes.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Along {
    One { dim: Option<String> },
    Two { from_dim: String, to_dim: String },
    Layouts { from_layout: String, to_layout: String },
    Several { dim: Option<String>, along: Vec<PartJson> },
}

/// One of several dims that a gather or a scatter is along.
#[derive(Debug, Serialize)]
struct PartJson {
    dim: String,
    axes: Vec<String>,
}

pub(crate) fn instruction(layer: &Layer<'_>, id: InstrId) -> InstructionJson {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let detail = match &instr.kind {
        InstrKind::Parameter(kind) => {
            let (kind, memory) = match kind {
                ParameterKind::Activation => ("activation", None),
                ParameterKind::Weight => ("weight", None),
                ParameterKind::HostWeight => ("weight", Some("host")),
                ParameterKind::Cache => ("cache", None),
            };
            Detail::Parameter { kind, memory, span: span(layer, id) }
        }
        InstrKind::Constant(number) => {
            let size_of = match number {
                Number::SizeOf(dim) => Some(plan.dims[dim.index()].name.clone()),
                Number::Given(_) => None,
            };
            Detail::Constant { value: plan.number(*number), size_of }
        }
        InstrKind::Op(op) => Detail::Op(op_json(layer, id, op)),
        InstrKind::Move(collective) => Detail::Move(move_json(layer, id, collective)),
        InstrKind::CollectiveEinsum(fused) => {
            Detail::CollectiveEinsum(Box::new(loop_json(layer, id, fused)))
        }
    };
    let runs = layer.timeline.span(id);
    InstructionJson {
        id: id.0,
        op: instr.kind.name(),
        name: instr.name.clone(),
        phrase: phrase(plan, id),
        operands: instr.operands.iter().map(|o| o.0).collect(),
        layout: plan.layout_text(id),
        placed: placed(plan, &instr.dims, instr.layout),
        dtype: instr.dtype.name(),
        shape: plan.sizes(&instr.dims),
        local_shape: plan.local_sizes(id),
        detail,
        in_layers: instr.origin.in_layers.clone(),
        piece_of: instr.origin.piece_of.clone(),
        fold: instr.fold.map(|fold| fold.0),
        repeat: instr.fold.map(|_| plan.repeat_of(id)),
        start_s: runs.map(|(start, _)| start.seconds()),
        finish_s: runs.map(|(_, finish)| finish.seconds()),
    }
}

fn span(layer: &Layer<'_>, id: InstrId) -> Option<SpanJson> {
    Some(SpanJson::new(layer.source?, layer.plan().instruction(id).origin.span?))
}

fn names(plan: &Plan, dims: &[DimId]) -> Vec<String> {
    plan.dim_names(dims).into_iter().map(str::to_string).collect()
}

fn op_json(layer: &Layer<'_>, id: InstrId, op: &Op) -> OpJson {
    let plan = layer.plan();
    let origin = &plan.instruction(id).origin;
    let (rule, reason) = (origin.rules.text(), reason_of(plan, id));
    let mut json = OpJson { rule, reason, span: span(layer, id), ..OpJson::default() };
    if let InstrPrice::Kernel { flops, hbm_bytes, time, bound, fused_into, .. } =
        *layer.price.of(id)
    {
        json.flops = flops.0;
        json.hbm_bytes = hbm_bytes.0;
        json.time_s = time.seconds();
        json.bound = bound.name();
        json.fused_into = fused_into.map(|first| first.0);
    }
    if *op == Op::Einsum {
        json.equation = Some(plan.equation(id));
    }
    json.function = match op.code() {
        Code::Map(_) | Code::Binary(_) | Code::Reduce(_) | Code::Norm(_) => Some(op.word()),
        Code::Form(_) => None,
    };
    for (slot, argument) in op.slots() {
        let text = match &argument {
            Argument::Number(number) => json!(number),
            Argument::Dtype(dtype) => json!(dtype.name()),
            Argument::Dim(_) | Argument::Dims(_) => json!(names(plan, argument.dims())),
        };
        let Some(field) = slot.field else { continue };
        match (json.arguments.0.entry(field).or_insert(Value::Null), text) {
            (Value::Array(all), Value::Array(more)) => all.extend(more),
            (one, Value::Array(mut names)) if !field.is_list() => {
                *one = names.pop().unwrap_or_else(|| {
                    never!("an argument of no dim, where it is one", Value::Null)
                })
            }
            (one, text) => *one = text,
        }
    }
    json
}

fn loop_json(layer: &Layer<'_>, id: InstrId, fused: &Fused) -> LoopJson {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let gathered = fused.gathered().and_then(|place| instr.operands.get(place)).copied();
    let (Fused::AllGather { dim, .. } | Fused::ReduceScatter { dim, .. }) = *fused;
    let mut json = LoopJson {
        fused: fused.collective().name(),
        equation: plan.equation(id),
        axes: fused.axes().iter().map(|a| plan.mesh.name(a).to_string()).collect(),
        dim: names(
            plan,
            &plan.instruction(gathered.unwrap_or(id /* it scatters the result */)).dims,
        )
        .into_iter()
        .nth(dim),
        gathered: gathered.map(|id| id.0),
        ring: rings(plan).into_iter().find(|ring| ring.members.contains(&id)).map(|ring| {
            RingJson {
                first: ring.first().0,
                travels: ring.travels.iter().map(|(id, _)| id.0).collect(),
            }
        }),
        chunks: fused.chunks(&plan.mesh),
        bytes: 0,
        wire_bytes: 0,
        flops: 0,
        hbm_bytes: 0,
        time_s: layer.price.of(id).time().seconds(),
        collective_time_s: 0.0,
        einsum_time_s: 0.0,
        bound: "network",
        rule: instr.origin.rules.text(),
        reason: reason_of(plan, id),
        span: span(layer, id),
    };
    if let InstrPrice::Kernel { flops, hbm_bytes, bound, looped: Some(looped), .. } =
        *layer.price.of(id)
    {
        (json.bytes, json.wire_bytes) = (looped.collective.bytes.0, looped.collective.wire_bytes.0);
        (json.flops, json.hbm_bytes) = (flops.0, hbm_bytes.0);
        (json.collective_time_s, json.einsum_time_s) =
            (looped.collective.time.seconds(), looped.einsum.seconds());
        json.bound = loop_bound(&looped, bound);
    }
    json
}

/// The name of a dim of what a move makes.
fn dim_of(plan: &Plan, id: InstrId, at: usize) -> Option<String> {
    let name = plan.instruction(id).dims.get(at).map(|d| plan.dims[d.index()].name.clone());
    name.or_else(|| never!("a move along a dim that its value lacks", None))
}

/// Along which dims a move goes, or between which layouts.
fn along(plan: &Plan, id: InstrId, collective: &Collective) -> Along {
    let source = plan.moved(id);
    let dim = |at: usize| dim_of(plan, id, at);
    let terms = collective.terms();
    match terms.dims {
        _ if collective.row().several => Along::Several {
            dim: None,
            along: collective
                .parts(plan.instruction(source).layout)
                .into_iter()
                .map(|(d, axes)| PartJson {
                    dim: dim(d).unwrap_or_default(),
                    axes: axes.iter().map(|a| plan.mesh.name(a).to_string()).collect(),
                })
                .collect(),
        },
        _ if terms.to.is_some() => Along::Layouts {
            from_layout: plan.layout_text(source),
            to_layout: plan.layout_text(id),
        },
        [Some(from), Some(to)] => Along::Two {
            from_dim: dim(from).unwrap_or_default(),
            to_dim: dim(to).unwrap_or_default(),
        },
        [d, _] => Along::One { dim: d.and_then(dim) },
    }
}

/// The value whose layout forces a move; the move itself where only the place that asks for it
/// does.
fn forced_by(layer: &Layer<'_>, id: InstrId) -> ForcedByJson {
    let plan = layer.plan();
    let by = forcing(plan, id).unwrap_or(id);
    let span = plan.instruction(by).origin.span;
    ForcedByJson {
        id: by.0,
        name: plan.instruction(by).name.clone(),
        layout: plan.layout_text(by),
        line: layer.source.zip(span).map(|(s, at)| s.line_column(at.start).line),
    }
}

fn move_json(layer: &Layer<'_>, id: InstrId, collective: &Collective) -> MoveJson {
    let plan = layer.plan();
    let instr = plan.instruction(id);
    let source = plan.moved(id);
    let dim = |at: usize| dim_of(plan, id, at);
    let reduction = collective.terms().kind.map(Reduction::short);
    let mut statistics = None;
    if let Collective::SoftmaxMerge { statistics: beside, .. } = collective {
        statistics = Some(beside.iter().filter_map(dim).collect());
    }
    let axes = collective.axes(&plan.mesh, plan.instruction(source).layout);
    let (bytes, wire_bytes) = match layer.price.of(id) {
        InstrPrice::Move(cost) => (cost.bytes.0, cost.wire_bytes.0),
        InstrPrice::Free | InstrPrice::Kernel { .. } => (0, 0),
    };
    MoveJson {
        axes: axes.iter().map(|a| plan.mesh.name(a).to_string()).collect(),
        along: along(plan, id, collective),
        reduction,
        statistics,
        bytes,
        wire_bytes,
        time_s: layer.price.of(id).time().seconds(),
        rule: instr.origin.rules.text(),
        reason: reason_of(plan, id),
        span: span(layer, id),
        share: match layer.price.totals.serial_time.0 {
            0 => None,
            all => Some(layer.time_in_step(id).0 as f64 / all as f64),
        },
        by_axis: axis_by_axis(layer, id)
            .into_iter()
            .map(|(axis, cost)| AxisCostJson {
                axis,
                wire_bytes: cost.wire_bytes.0,
                time_s: cost.time.seconds(),
            })
            .collect(),
        forced_by: forced_by(layer, id),
    }
}
