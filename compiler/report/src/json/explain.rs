//! `shardc.explain/1` and `shardc.lower/1`.

use serde::Serialize;
use shard_cost::Flops;
use shard_ir::{Picoseconds, PlanOutput};
use shard_search::{Alternative, Optimality};

use super::instruction::{InstructionJson, instruction};
use super::placed::{DimJson, PlacedJson, dims, placed};
use super::sharing::{SharingJson, sharing};
use super::{Ordered, text};
use crate::Layer;
use crate::padding::{Padding, PaddingJson};
use crate::status::{gap, proof_word, status_word};
use crate::strategy::strategy;
use crate::striped::{self, StripedJson};
use crate::words::without;

/// The document of `explain --format json`.
pub fn explain(layers: &[Layer<'_>]) -> String {
    text(&LowerJson { schema: "shardc.explain/1", layers: layers.iter().map(explained).collect() })
}

/// The document of `lower --emit json`: the same instructions, without what only an explanation
/// has.
pub fn lower(layers: &[Layer<'_>]) -> String {
    text(&LowerJson { schema: "shardc.lower/1", layers: layers.iter().map(lowered).collect() })
}

#[derive(Debug, Serialize)]
struct LowerJson {
    schema: &'static str,
    layers: Vec<LoweredJson>,
}

#[derive(Debug, Serialize)]
struct LoweredJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    repeat: u64,
    hardware: String,
    mesh: Ordered<u64>,
    mesh_axes: Vec<(String, u64)>,
    dims: Vec<DimJson>,
    objective: &'static str,
    /// Of an explanation.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<Vec<&'static str>>,
    instructions: Vec<InstructionJson>,
    outputs: Vec<OutputJson>,
    /// The caches of a model's layers after the step: kept, not returned.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<OutputJson>,
    /// The folded blocks of a model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    folds: Vec<FoldJson>,
    #[serde(flatten)]
    explained: Option<ExplainedJson>,
}

/// What an explanation says beyond the plan.
#[derive(Debug, Serialize)]
struct ExplainedJson {
    totals: TotalsJson,
    model_totals: ModelTotalsJson,
    optimality: Option<OptimalityJson>,
    /// Where the plan was chosen for its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sharing: Option<SharingJson>,
    /// For collectives, the best plan that does without.
    alternatives: Vec<AlternativeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_choice: Option<OverlapChoiceJson>,
    /// Attentions that stripes would make faster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    striped: Vec<StripedJson>,
    /// Paddings that make the plan faster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paddings: Vec<PaddingJson>,
}

/// What `--objective overlap` would choose.
#[derive(Debug, Serialize)]
struct OverlapChoiceJson {
    same_plan: bool,
    overlap_time_s: f64,
    other_overlap_time_s: f64,
    saves_s: f64,
    other_serial_time_s: f64,
    lower_bound_s: f64,
}

/// Bytes on a device over the whole stack.
#[derive(Debug, Serialize)]
struct MemoryJson {
    peak_bytes: u64,
    /// No plan needs less.
    lower_bound_bytes: u64,
}

#[derive(Debug, Serialize)]
struct AlternativeJson {
    /// The collective of the chosen plan.
    id: u32,
    without: String,
    /// Whether the times are of a plan, and not only bounds on all such plans.
    exact: bool,
    time_s: f64,
    added_s: f64,
    /// The collectives that the other plan has instead.
    instead: Vec<InsteadJson>,
}

#[derive(Debug, Serialize)]
struct InsteadJson {
    op: &'static str,
    name: Option<String>,
    from_layout: String,
    layout: String,
}

/// A folded block: its instructions are run `repeat` times, on `from` first and then on what `to`
/// was before.
#[derive(Debug, Serialize)]
struct FoldJson {
    layer: String,
    repeat: u64,
    from: u32,
    to: u32,
}

#[derive(Debug, Serialize)]
struct OutputJson {
    name: String,
    id: u32,
    layout: String,
    placed: PlacedJson,
    dtype: &'static str,
    shape: Vec<u64>,
    local_shape: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct TotalsJson {
    comm_time_s: f64,
    compute_time_s: f64,
    memory_time_s: f64,
    serial_time_s: f64,
    overlap_time_s: Option<f64>,
    comm_bytes: u64,
    flops: u128,
    hbm_bytes: u64,
    peak_hbm_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelTotalsJson {
    comm_time_s: f64,
    compute_time_s: f64,
    memory_time_s: f64,
    serial_time_s: f64,
    /// Of the timeline of all layers, with the overhead of each.
    overlap_time_s: f64,
    comm_bytes: u64,
    flops: u128,
    /// What a device holds at the peak: weights and caches of all layers, and of one what else is
    /// alive.
    peak_hbm_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct OptimalityJson {
    status: &'static str,
    proof: Option<&'static str>,
    cost_s: f64,
    lower_bound_s: f64,
    /// What prices alone prove; less than the lower bound where the search proved more.
    price_bound_s: Option<f64>,
    gap: Option<f64>,
    stopped_by: Option<String>,
    /// Said where it is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ties_cut: bool,
}

/// What is known of a layer's plan. Of least memory it is bytes that are bounded, and the gap is of
/// these; the times are of the fastest plan in so many.
pub(super) fn layer_optimality(layer: &Layer<'_>) -> Option<OptimalityJson> {
    let known = optimality(layer.optimality?);
    Some(match layer.least_bytes {
        Some(least) => {
            OptimalityJson { gap: gap(Picoseconds(layer.peak().0), Picoseconds(least.0)), ..known }
        }
        None => known,
    })
}

pub(super) fn optimality(o: &Optimality) -> OptimalityJson {
    OptimalityJson {
        status: status_word(o.status),
        proof: o.proof.map(proof_word),
        cost_s: o.cost.seconds(),
        lower_bound_s: o.lower_bound.seconds(),
        price_bound_s: o.price_bound.map(Picoseconds::seconds),
        gap: gap(o.cost, o.lower_bound),
        stopped_by: o.stopped_by.clone(),
        ties_cut: o.ties_cut,
    }
}

fn lowered(layer: &Layer<'_>) -> LoweredJson {
    let plan = layer.plan();
    let output_json = |output: &PlanOutput| {
        let order: Vec<usize> = output
            .dims
            .iter()
            .filter_map(|d| plan.instruction(output.id).dims.iter().position(|i| i == d))
            .collect();
        let local = plan.local_sizes(output.id);
        OutputJson {
            name: output.name.clone(),
            id: output.id.0,
            layout: plan.output_layout_text(output),
            placed: placed(plan, &output.dims, plan.output_layout(output)),
            dtype: plan.instruction(output.id).dtype.name(),
            shape: plan.sizes(&output.dims),
            local_shape: order.iter().map(|at| local[*at]).collect(),
        }
    };
    let folds = plan.folds.iter().map(|fold| FoldJson {
        layer: fold.layer.clone(),
        repeat: fold.repeat,
        from: fold.from.0,
        to: fold.to.0,
    });
    LoweredJson {
        name: plan.name.clone(),
        phase: plan.phase.clone(),
        repeat: plan.repeat,
        hardware: layer.hardware.name.clone(),
        mesh: Ordered(plan.mesh.declared().to_vec()),
        mesh_axes: plan.mesh.declared().to_vec(),
        dims: dims(plan),
        objective: layer.objective.name(),
        strategy: None,
        instructions: plan.ids().map(|id| instruction(layer, id)).collect(),
        outputs: plan.results().map(output_json).collect(),
        states: plan.outputs.iter().filter(|output| output.state).map(output_json).collect(),
        folds: folds.collect(),
        explained: None,
    }
}

fn explained(layer: &Layer<'_>) -> LoweredJson {
    let strategy = strategy(layer.plan()).into_iter().map(|s| s.name()).collect();
    let explained = ExplainedJson {
        totals: totals(layer),
        model_totals: model_totals(layer),
        alternatives: layer.alternatives.iter().map(|a| alternative(layer, a)).collect(),
        overlap_choice: layer.overlap_choice.map(|choice| OverlapChoiceJson {
            same_plan: choice.is_same,
            overlap_time_s: choice.own_time.seconds(),
            other_overlap_time_s: choice.time.seconds(),
            saves_s: choice.saves().seconds(),
            other_serial_time_s: choice.serial_time.seconds(),
            lower_bound_s: choice.lower_bound.seconds(),
        }),
        striped: striped::all(layer).iter().map(|striped| striped.json(layer)).collect(),
        paddings: layer.paddings.iter().map(Padding::json).collect(),
        sharing: layer.sharing.map(sharing),
        optimality: layer_optimality(layer),
        memory: layer
            .least_bytes
            .map(|least| MemoryJson { peak_bytes: layer.peak().0, lower_bound_bytes: least.0 }),
    };
    LoweredJson { strategy: Some(strategy), explained: Some(explained), ..lowered(layer) }
}

/// The sums over one layer.
pub(super) fn totals(layer: &Layer<'_>) -> TotalsJson {
    let totals = &layer.price.totals;
    TotalsJson {
        comm_time_s: totals.comm_time.seconds(),
        compute_time_s: totals.compute_time.seconds(),
        memory_time_s: totals.memory_time.seconds(),
        serial_time_s: totals.serial_time.seconds(),
        overlap_time_s: Some(layer.timeline.makespan.seconds()),
        comm_bytes: totals.comm_bytes.0,
        flops: totals.flops.0,
        hbm_bytes: totals.hbm_bytes.0,
        peak_hbm_bytes: totals.peak_hbm_bytes.0,
    }
}

/// The sums over all layers of the stack.
pub(super) fn model_totals(layer: &Layer<'_>) -> ModelTotalsJson {
    let (totals, repeat) = (&layer.price.totals, layer.plan().repeat);
    let times = |time: Picoseconds| Picoseconds(time.0.saturating_mul(repeat)).seconds();
    ModelTotalsJson {
        comm_time_s: times(totals.comm_time),
        compute_time_s: times(totals.compute_time),
        memory_time_s: times(totals.memory_time),
        serial_time_s: layer
            .hardware
            .stack_time(totals.serial_time, &layer.schedule.plan)
            .seconds(),
        overlap_time_s: {
            let plan = &layer.schedule.plan;
            let overhead = layer.hardware.stack_time(Picoseconds(0), plan);
            (layer.timeline.of_all_layers(plan) + overhead).seconds()
        },
        comm_bytes: totals.comm_bytes.times(repeat).0,
        flops: Flops(totals.flops.0.saturating_mul(u128::from(repeat))).0,
        peak_hbm_bytes: layer.peak().0,
    }
}

fn alternative(layer: &Layer<'_>, other: &Alternative) -> AlternativeJson {
    let instead = other.plan.iter().flat_map(|plan| {
        other.instead.iter().map(|id| {
            let instr = plan.instruction(*id);
            let from = instr.operands.first().map_or_else(String::new, |o| plan.layout_text(*o));
            InsteadJson {
                op: instr.kind.name(),
                name: instr.name.clone(),
                from_layout: from,
                layout: plan.layout_text(*id),
            }
        })
    });
    AlternativeJson {
        id: other.id.0,
        without: without(layer.plan(), &other.avoided),
        exact: other.plan.is_some(),
        time_s: other.time.seconds(),
        added_s: Picoseconds(other.time.0.saturating_sub(layer.chosen_by().0)).seconds(),
        instead: instead.collect(),
    }
}
