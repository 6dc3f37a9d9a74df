//! `shardc.cost/1`.

use serde::Serialize;
use shard_cost::{Bytes, InstrPrice, Kept, Largest};
use shard_ir::{DimId, InstrId, InstrKind, ParameterKind, Picoseconds, Plan};

use super::explain::{
    ModelTotalsJson, OptimalityJson, TotalsJson, layer_optimality, model_totals, totals,
};
use super::instruction::{InstructionJson, instruction};
use super::{Ordered, text};
use crate::Layer;
use crate::cost::{CostLayer, intensity, share_of, share_of_memory};
use crate::formula::{Figure, figures};
use crate::strategy::strategy;

/// The document of `cost --format json`, with the formulas of one step where they are asked for.
pub fn cost(layers: &[CostLayer<'_>], why: Option<InstrId>) -> String {
    text(&CostJson {
        schema: "shardc.cost/1",
        layers: layers.iter().map(|l| layer(l, why)).collect(),
    })
}

#[derive(Debug, Serialize)]
struct CostJson {
    schema: &'static str,
    layers: Vec<LayerJson>,
}

#[derive(Debug, Serialize)]
struct LayerJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    repeat: u64,
    hardware: String,
    mesh: Ordered<u64>,
    mesh_axes: Vec<(String, u64)>,
    chips: u64,
    objective: &'static str,
    strategy: Vec<&'static str>,
    steps: Vec<StepJson>,
    communication: Vec<CommunicationJson>,
    axes: Vec<AxisJson>,
    totals: CostTotalsJson,
    model_totals: CostModelTotalsJson,
    /// As `shardc.explain/1` has it.
    optimality: Option<OptimalityJson>,
    memory: MemoryJson,
    parameters: u128,
    model_parameters: u128,
    tokens: Option<u64>,
    token_dims: Vec<String>,
    mfu: Option<f64>,
    hardware_utilisation: Option<f64>,
    peak_arithmetic: Option<&'static str>,
    chip_seconds_per_token: Option<f64>,
    tokens_per_second_per_chip: Option<f64>,
    tokens_per_second: Option<f64>,
    /// Steps of which each waits for the one before, in the overlapped schedule.
    critical_path: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<WhyJson>,
}

/// How the figures of one step come about.
#[derive(Debug, Serialize)]
struct WhyJson {
    id: u32,
    figures: Vec<FigureJson>,
}

#[derive(Debug, Serialize)]
struct FigureJson {
    name: &'static str,
    formula: String,
    numbers: String,
    value: String,
}

/// An instruction of `shardc.explain/1` with its place in the whole.
#[derive(Debug, Serialize)]
struct StepJson {
    #[serde(flatten)]
    instruction: InstructionJson,
    /// `network` for a move with traffic; an op has its own.
    #[serde(rename = "bound", skip_serializing_if = "Option::is_none")]
    move_bound: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intensity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arithmetic: Option<&'static str>,
    share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct CommunicationJson {
    axes: Vec<String>,
    moves: u64,
    wire_bytes: u64,
    time_s: f64,
}

#[derive(Debug, Serialize)]
struct AxisJson {
    axis: String,
    busy_s: f64,
    share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct CostTotalsJson {
    #[serde(flatten)]
    totals: TotalsJson,
    lower_bound_s: f64,
}

#[derive(Debug, Serialize)]
struct CostModelTotalsJson {
    #[serde(flatten)]
    totals: ModelTotalsJson,
    lower_bound_s: f64,
}

#[derive(Debug, Serialize)]
struct MemoryJson {
    capacity_bytes: u64,
    chip_bytes: u64,
    /// Why the program has not all of the chip; null where it has.
    limited_by: Option<&'static str>,
    cache_capacity_bytes: u64,
    fits: bool,
    free_bytes: u64,
    over_bytes: u64,
    weight_bytes: u64,
    cache_bytes: u64,
    activation_bytes: u64,
    model_weight_bytes: u64,
    model_cache_bytes: u64,
    peak_bytes: u64,
    replicated_bytes: u64,
    model_replicated_bytes: u64,
    mesh_weight_bytes: u64,
    mesh_cache_bytes: u64,
    cache_bytes_per_token: Option<u64>,
    kept: Vec<KeptJson>,
    largest: Vec<LargestJson>,
}

#[derive(Debug, Serialize)]
struct KeptJson {
    id: u32,
    name: Option<String>,
    kind: &'static str,
    layout: String,
    dtype: &'static str,
    bytes: u64,
    chip_bytes: u64,
    mesh_bytes: u64,
    copies: u64,
    replicated_chip_bytes: u64,
    /// On a chip, over all layers.
    model_chip_bytes: u64,
    /// Of the memory that there is.
    share: f64,
}

#[derive(Debug, Serialize)]
struct LargestJson {
    dim: String,
    role: &'static str,
    /// `null` where every size fits, 0 where none does.
    size: Option<u64>,
    /// What ends it where memory does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
}

fn layer(report: &CostLayer<'_>, why: Option<InstrId>) -> LayerJson {
    let (layer, summary) = (&report.layer, report.summary);
    let plan = layer.plan();
    let inventory = &summary.inventory;
    let counts_tokens = inventory.has_weights();
    let token_dims = if counts_tokens { inventory.roles.tokens.as_slice() } else { &[] };
    let efficiency = summary.efficiency.filter(|_| counts_tokens);
    let axis_name = |axis| plan.mesh.name(axis).to_string();
    let whole = layer.price.totals.serial_time;
    LayerJson {
        name: plan.name.clone(),
        phase: plan.phase.clone(),
        repeat: plan.repeat,
        hardware: layer.hardware.name.clone(),
        mesh: Ordered(plan.mesh.declared().to_vec()),
        mesh_axes: plan.mesh.declared().to_vec(),
        chips: plan.mesh.devices(),
        objective: layer.objective.name(),
        strategy: strategy(plan).into_iter().map(|s| s.name()).collect(),
        steps: plan.ids().map(|id| step(report, id)).collect(),
        communication: summary
            .communication
            .iter()
            .map(|group| CommunicationJson {
                axes: group.axes.iter().map(axis_name).collect(),
                moves: group.moves,
                wire_bytes: group.wire_bytes.0,
                time_s: group.time.seconds(),
            })
            .collect(),
        axes: summary
            .busy
            .iter()
            .map(|(axis, time)| AxisJson {
                axis: axis_name(*axis),
                busy_s: time.seconds(),
                share: share_of(*time, whole),
            })
            .collect(),
        totals: CostTotalsJson {
            totals: totals(layer),
            lower_bound_s: summary.lower_bound.seconds(),
        },
        model_totals: CostModelTotalsJson {
            totals: model_totals(layer),
            lower_bound_s: Picoseconds(summary.lower_bound.0.saturating_mul(plan.repeat)).seconds(),
        },
        optimality: layer_optimality(layer),
        memory: memory(report),
        parameters: inventory.parameters,
        model_parameters: inventory.parameters.saturating_mul(u128::from(plan.repeat)),
        tokens: (!token_dims.is_empty()).then_some(summary.tokens),
        token_dims: names(plan, token_dims),
        mfu: summary.utilisation.and_then(|u| u.model),
        hardware_utilisation: summary.utilisation.map(|u| u.hardware),
        peak_arithmetic: summary.utilisation.map(|u| u.arithmetic.name()),
        chip_seconds_per_token: efficiency.map(|e| e.chip_seconds_per_token),
        tokens_per_second_per_chip: efficiency.map(|e| e.tokens_per_second_per_chip),
        tokens_per_second: efficiency.map(|e| e.tokens_per_second),
        critical_path: layer.timeline.critical_path.iter().map(|id| id.0).collect(),
        why: why.filter(|id| id.index() < plan.instructions.len()).map(|id| why_json(layer, id)),
    }
}

fn why_json(layer: &Layer<'_>, id: InstrId) -> WhyJson {
    let figures = figures(layer, id).unwrap_or_default(); // what is free has none
    let json = |f: Figure| FigureJson {
        name: f.name,
        formula: f.formula,
        numbers: f.numbers,
        value: f.value,
    };
    WhyJson { id: id.0, figures: figures.into_iter().map(json).collect() }
}

fn names(plan: &Plan, dims: &[DimId]) -> Vec<String> {
    plan.dim_names(dims).into_iter().map(str::to_string).collect()
}

fn step(report: &CostLayer<'_>, id: InstrId) -> StepJson {
    let layer = &report.layer;
    let (move_bound, intensity, arithmetic) = match layer.price.of(id) {
        InstrPrice::Free => (None, None, None),
        InstrPrice::Kernel { flops, hbm_bytes, arithmetic, .. } => {
            (None, intensity(*flops, *hbm_bytes), (flops.0 > 0).then(|| arithmetic.name()))
        }
        InstrPrice::Move(cost) if cost.wire_bytes > Bytes(0) => (Some("network"), None, None),
        InstrPrice::Move(_) => (None, None, None),
    };
    let is_step = !matches!(
        layer.plan().instruction(id).kind,
        InstrKind::Parameter(_) | InstrKind::Constant(_)
    );
    let share =
        share_of(layer.time_in_step(id), layer.price.totals.serial_time).filter(|_| is_step);
    StepJson { instruction: instruction(layer, id), move_bound, intensity, arithmetic, share }
}

fn memory(report: &CostLayer<'_>) -> MemoryJson {
    let plan = report.layer.plan();
    let inventory = &report.summary.inventory;
    let (memory, peak) = (&inventory.memory, report.layer.peak());
    let hardware = report.layer.hardware;
    let chips = plan.mesh.devices();
    let replicated: Bytes = inventory.kept.iter().map(Kept::replicated_chip_bytes).sum();
    let per_token = inventory.cache_bytes_per_token.times(plan.repeat);
    MemoryJson {
        capacity_bytes: report.capacity.all.0,
        chip_bytes: hardware.chip_hbm_bytes,
        limited_by: if hardware.has_memory_limit {
            Some("memory-limit")
        } else {
            (hardware.hbm_bytes < hardware.chip_hbm_bytes).then_some("hbm_reserved_bytes")
        },
        cache_capacity_bytes: report.capacity.caches.0,
        fits: report.capacity.holds_peak(memory, peak),
        free_bytes: report.capacity.all.0.saturating_sub(peak.0),
        over_bytes: peak.0.saturating_sub(report.capacity.all.0),
        weight_bytes: memory.weights.0,
        cache_bytes: memory.caches.0,
        activation_bytes: memory.activations.0,
        model_weight_bytes: memory.all_weights().0,
        model_cache_bytes: memory.all_caches().0,
        peak_bytes: peak.0,
        replicated_bytes: replicated.0,
        model_replicated_bytes: replicated.times(plan.repeat).0,
        mesh_weight_bytes: memory.all_weights().times(chips).0,
        mesh_cache_bytes: memory.all_caches().times(chips).0,
        cache_bytes_per_token: (per_token > Bytes(0)).then_some(per_token.0),
        kept: inventory.kept.iter().map(|kept| kept_json(report, kept)).collect(),
        largest: report
            .largest
            .iter()
            .map(|l| LargestJson {
                dim: plan.dims[l.dim.index()].name.clone(),
                role: l.role.name(),
                size: match l.largest {
                    Largest::Size(size) | Largest::Legal(size) => Some(size),
                    Largest::None => Some(0),
                    Largest::Unlimited => None,
                },
                limit: match l.largest {
                    Largest::Legal(_) => Some("language"),
                    Largest::Size(_) | Largest::None | Largest::Unlimited => None,
                },
            })
            .collect(),
    }
}

fn kept_json(report: &CostLayer<'_>, kept: &Kept) -> KeptJson {
    let plan = report.layer.plan();
    let instr = plan.instruction(kept.id);
    KeptJson {
        id: kept.id.0,
        name: instr.name.clone(),
        kind: match kept.kind {
            ParameterKind::Activation => "activation",
            ParameterKind::Weight => "weight",
            ParameterKind::HostWeight => "weight",
            ParameterKind::Cache => "cache",
        },
        layout: plan.layout_text(kept.id),
        dtype: instr.dtype.name(),
        bytes: kept.bytes.0,
        chip_bytes: kept.chip_bytes.0,
        mesh_bytes: kept.chip_bytes.times(plan.mesh.devices()).0,
        copies: kept.copies,
        replicated_chip_bytes: kept.replicated_chip_bytes().0,
        model_chip_bytes: report.held(kept).0,
        share: share_of_memory(report.held(kept), Bytes(report.layer.hardware.chip_hbm_bytes)),
    }
}
