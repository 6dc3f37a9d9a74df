//! `shardc.cost/1`.

use serde::Serialize;
use shard_cost::{Bytes, InstrPrice, Kept, Largest};
use shard_ir::{DimId, InstrId, InstrKind, ParameterKind, Picoseconds, Plan};

use super::explain::{layer_optimality, model_totals, totals};
use super::instruction::{InstructionJson, instruction};
use super::object::{Fields, Said};
use super::{Ordered, text};
use crate::cost::{CostLayer, intensity, share_of, share_of_memory};
use crate::formula::{Figure, figures};
use crate::strategy::strategies;
use crate::{Layer, object};

/// The document of `cost --format json`, with the formulas of one step where they are asked for.
pub fn cost(layers: &[CostLayer<'_>], why: Option<InstrId>) -> String {
    text(&object!(CostJson {
        schema: "shardc.cost/1",
        layers: layers.iter().map(|l| layer(l, why)).collect::<Vec<_>>(),
    }))
}

/// An instruction of `shardc.explain/1` with its place in the whole.
#[derive(Debug, Serialize)]
struct CostStepJson {
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

fn layer(report: &CostLayer<'_>, why: Option<InstrId>) -> impl Serialize {
    let (layer, summary) = (&report.layer, report.summary);
    let plan = layer.plan();
    let inventory = &summary.inventory;
    let counts_tokens = inventory.has_weights();
    let token_dims = if counts_tokens { inventory.roles.tokens.as_slice() } else { &[] };
    let efficiency = summary.efficiency.filter(|_| counts_tokens);
    let axis_name = |axis| plan.mesh.name(axis).to_string();
    let whole = layer.price.totals.serial_time;
    object!(LayerJson {
        name: &plan.name,
        phase: Said(plan.phase.as_ref()),
        repeat: plan.repeat,
        hardware: &layer.hardware.name,
        mesh: Ordered(plan.mesh.declared().to_vec()),
        mesh_axes: plan.mesh.declared(),
        chips: plan.mesh.devices(),
        objective: layer.objective.name(),
        strategy: strategies(plan),
        steps: plan.ids().map(|id| step(report, id)).collect::<Vec<_>>(),
        communication: summary
            .communication
            .iter()
            .map(|group| object!(CommunicationJson {
                axes: group.axes.iter().map(axis_name).collect::<Vec<_>>(),
                moves: group.moves,
                wire_bytes: group.wire_bytes.0,
                time_s: group.time.seconds(),
            }))
            .collect::<Vec<_>>(),
        axes: summary
            .busy
            .iter()
            .map(|(axis, time)| object!(BusyAxisJson {
                axis: axis_name(*axis),
                busy_s: time.seconds(),
                share: share_of(*time, whole),
            }))
            .collect::<Vec<_>>(),
        totals: object!(CostTotalsJson {
            totals: Fields(totals(layer)),
            lower_bound_s: summary.lower_bound.seconds(),
        }),
        model_totals: object!(CostModelTotalsJson {
            totals: Fields(model_totals(layer)),
            lower_bound_s: Picoseconds(summary.lower_bound.0.saturating_mul(plan.repeat)).seconds(),
        }),
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
        // Steps of which each waits for the one before, in the overlapped schedule.
        critical_path: layer.timeline.critical_path.iter().map(|id| id.0).collect::<Vec<_>>(),
        why: Said(
            why.filter(|id| id.index() < plan.instructions.len()).map(|id| why_json(layer, id))
        ),
    })
}

/// How the figures of one step come about.
fn why_json(layer: &Layer<'_>, id: InstrId) -> impl Serialize {
    let figures = figures(layer, id).unwrap_or_default(); // what is free has none
    let json = |f: Figure| {
        object!(FigureJson { name: f.name, formula: f.formula, numbers: f.numbers, value: f.value })
    };
    object!(WhyJson { id: id.0, figures: figures.into_iter().map(json).collect::<Vec<_>>() })
}

fn names(plan: &Plan, dims: &[DimId]) -> Vec<String> {
    plan.dim_names(dims).into_iter().map(str::to_string).collect()
}

fn step(report: &CostLayer<'_>, id: InstrId) -> CostStepJson {
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
    CostStepJson { instruction: instruction(layer, id), move_bound, intensity, arithmetic, share }
}

fn memory(report: &CostLayer<'_>) -> impl Serialize {
    let plan = report.layer.plan();
    let inventory = &report.summary.inventory;
    let (memory, peak) = (&inventory.memory, report.layer.peak());
    let hardware = report.layer.hardware;
    let chips = plan.mesh.devices();
    let replicated: Bytes = inventory.kept.iter().map(Kept::replicated_chip_bytes).sum();
    let per_token = inventory.cache_bytes_per_token.times(plan.repeat);
    object!(MemoryJson {
        capacity_bytes: report.capacity.all.0,
        chip_bytes: hardware.chip_hbm_bytes,
        // Why the program has not all of the chip; null where it has.
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
        kept: inventory.kept.iter().map(|kept| kept_json(report, kept)).collect::<Vec<_>>(),
        largest: report
            .largest
            .iter()
            .map(|l| object!(LargestJson {
                dim: plan.dims[l.dim.index()].name.clone(),
                role: l.role.name(),
                // `null` where every size fits, 0 where none does.
                size: match l.largest {
                    Largest::Size(size) | Largest::Legal(size) => Some(size),
                    Largest::None => Some(0),
                    Largest::Unlimited => None,
                },
                // What ends it where memory does not.
                limit: Said(matches!(l.largest, Largest::Legal(_)).then_some("language")),
            }))
            .collect::<Vec<_>>(),
    })
}

fn kept_json(report: &CostLayer<'_>, kept: &Kept) -> impl Serialize {
    let plan = report.layer.plan();
    let instr = plan.instruction(kept.id);
    object!(KeptJson {
        id: kept.id.0,
        name: &instr.name,
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
        // On a chip, over all layers.
        model_chip_bytes: report.held(kept).0,
        // Of the memory that there is.
        share: share_of_memory(report.held(kept), Bytes(report.layer.hardware.chip_hbm_bytes)),
    })
}
