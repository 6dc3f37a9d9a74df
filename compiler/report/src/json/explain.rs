//! `shardc.explain/1` and `shardc.lower/1`.

use serde::Serialize;
use shard_ir::{Picoseconds, PlanFold, PlanOutput};
use shard_search::{Alternative, Optimality, Proof, SearchLimit};

use super::instruction::instruction;
use super::object::{Fields, Object, Said};
use super::placed::{dims, placed};
use super::sharing::sharing;
use super::{Ordered, text};
use crate::padding::Padding;
use crate::status::gap;
use crate::strategy::strategies;
use crate::striped;
use crate::words::without;
use crate::{Layer, object};

/// The document of `explain --format json`.
pub fn explain(layers: &[Layer<'_>]) -> String {
    document("shardc.explain/1", layers, true)
}

/// The document of `lower --emit json`: the same instructions, without what only an explanation
/// has.
pub fn lower(layers: &[Layer<'_>]) -> String {
    document("shardc.lower/1", layers, false)
}

fn document(schema: &str, layers: &[Layer<'_>], explains: bool) -> String {
    let layers = layers.iter().map(|layer| layer_json(layer, explains)).collect::<Vec<_>>();
    text(&object!(LowerJson { schema, layers }))
}

fn layer_json(layer: &Layer<'_>, explains: bool) -> impl Serialize {
    let plan = layer.plan();
    let output_json = |output: &PlanOutput| {
        let order: Vec<usize> = output
            .dims
            .iter()
            .filter_map(|d| plan.instruction(output.id).dims.iter().position(|i| i == d))
            .collect();
        let local = plan.local_sizes(output.id);
        object!(OutputJson {
            name: output.name.clone(),
            id: output.id.0,
            layout: plan.output_layout_text(output),
            placed: placed(plan, &output.dims, plan.output_layout(output)),
            dtype: plan.instruction(output.id).dtype.name(),
            shape: plan.sizes(&output.dims),
            local_shape: order.iter().map(|at| local[*at]).collect::<Vec<_>>(),
        })
    };
    // A folded block: its instructions are run `repeat` times. The first run reads `from`, each
    // later one the `to` of the run before.
    let fold_json = |fold: &PlanFold| {
        object!(FoldJson {
            layer: fold.layer.clone(),
            repeat: fold.repeat,
            from: fold.from.0,
            to: fold.to.0,
        })
    };
    object!(LayerJson {
        name: &plan.name,
        phase: Said(plan.phase.as_ref()),
        repeat: plan.repeat,
        hardware: &layer.hardware.name,
        mesh: Ordered(plan.mesh.declared().to_vec()),
        mesh_axes: plan.mesh.declared(),
        dims: dims(plan),
        objective: layer.objective.name(),
        strategy: Said(explains.then(|| strategies(plan))),
        instructions: plan.ids().map(|id| instruction(layer, id)).collect::<Vec<_>>(),
        outputs: plan.results().map(output_json).collect::<Vec<_>>(),
        // The caches of a model's layers after the step: kept, not returned.
        states: Said::list(plan.outputs.iter().filter(|output| output.state).map(output_json)),
        folds: Said::list(plan.folds.iter().map(fold_json)),
        explained: Fields(explains.then(|| explained(layer))),
    })
}

/// What an explanation says beyond the plan.
fn explained(layer: &Layer<'_>) -> impl Object {
    object!(ExplainedJson {
        totals: totals(layer),
        model_totals: model_totals(layer),
        optimality: layer_optimality(layer),
        // Where the plan was chosen for its memory; bytes on a device over the whole stack.
        memory: Said(layer.least_bytes.map(|least| object!(MemoryJson {
            peak_bytes: layer.peak().0,
            lower_bound_bytes: least.0,
        }))),
        sharing: Said(layer.sharing.map(sharing)),
        alternatives: layer.alternatives.iter().map(|a| alternative(layer, a)).collect::<Vec<_>>(),
        overlap_choice: Said(layer.overlap_choice.map(|choice| object!(OverlapChoiceJson {
            same_plan: choice.is_same,
            overlap_time_s: choice.own_time.seconds(),
            other_overlap_time_s: choice.time.seconds(),
            saves_s: choice.saves().seconds(),
            other_serial_time_s: choice.serial_time.seconds(),
            lower_bound_s: choice.lower_bound.seconds(),
        }))),
        striped: Said::list(striped::all(layer).iter().map(|striped| striped.json(layer))),
        paddings: Said::list(layer.paddings.iter().map(Padding::json)),
    })
}

/// What is known of a layer's plan. Where the plan was chosen for its memory, the gap is one of
/// bytes, and the times are those of the fastest plan in so many bytes.
pub(super) fn layer_optimality(layer: &Layer<'_>) -> Option<impl Serialize> {
    let o = layer.optimality?;
    Some(match layer.least_bytes {
        Some(least) => optimality(o, gap(Picoseconds(layer.peak().0), Picoseconds(least.0))),
        None => optimality(o, gap(o.cost, o.lower_bound)),
    })
}

pub(super) fn optimality(o: &Optimality, gap: Option<f64>) -> impl Serialize {
    object!(OptimalityJson {
        status: o.status.word(),
        proof: o.proof.map(Proof::word),
        cost_s: o.cost.seconds(),
        lower_bound_s: o.lower_bound.seconds(),
        // What prices alone prove; less than the lower bound where the search proved more.
        price_bound_s: o.price_bound.map(Picoseconds::seconds),
        gap,
        stopped_by: o.stopped_by.map(SearchLimit::name),
        ties_cut: Said(o.ties_cut.then_some(true)),
    })
}

/// The sums over one layer.
pub(super) fn totals(layer: &Layer<'_>) -> impl Object + Serialize {
    let totals = &layer.price.totals;
    object!(TotalsJson {
        comm_time_s: totals.comm_time.seconds(),
        compute_time_s: totals.compute_time.seconds(),
        memory_time_s: totals.memory_time.seconds(),
        serial_time_s: totals.serial_time.seconds(),
        overlap_time_s: layer.timeline.makespan.seconds(),
        comm_bytes: totals.comm_bytes.0,
        flops: totals.flops.0,
        hbm_bytes: totals.hbm_bytes.0,
        peak_hbm_bytes: totals.peak_hbm_bytes.0,
    })
}

/// The sums over all layers of the stack.
pub(super) fn model_totals(layer: &Layer<'_>) -> impl Object + Serialize {
    let (totals, plan) = (&layer.price.totals, layer.plan());
    let repeat = plan.repeat;
    let times = |time: Picoseconds| Picoseconds(time.0.saturating_mul(repeat)).seconds();
    let overhead = layer.hardware.stack_time(Picoseconds(0), plan);
    object!(ModelTotalsJson {
        comm_time_s: times(totals.comm_time),
        compute_time_s: times(totals.compute_time),
        memory_time_s: times(totals.memory_time),
        serial_time_s: layer.hardware.stack_time(totals.serial_time, plan).seconds(),
        // Of the timeline of all layers, with the overhead of each.
        overlap_time_s: (layer.timeline.of_all_layers(plan) + overhead).seconds(),
        comm_bytes: totals.comm_bytes.times(repeat).0,
        flops: totals.flops.0.saturating_mul(u128::from(repeat)),
        // What a device holds at the peak: weights and caches of all layers, and of one what else
        // is alive.
        peak_hbm_bytes: layer.peak().0,
    })
}

fn alternative(layer: &Layer<'_>, other: &Alternative) -> impl Serialize {
    let instead = other.plan.iter().flat_map(|plan| {
        other.instead.iter().map(|id| {
            let instr = plan.instruction(*id);
            let from = instr.operands.first().map_or_else(String::new, |o| plan.layout_text(*o));
            object!(InsteadJson {
                op: instr.kind.name(),
                name: &instr.name,
                from_layout: from,
                layout: plan.layout_text(*id),
            })
        })
    });
    object!(AlternativeJson {
        // The collective of the chosen plan.
        id: other.id.0,
        without: without(layer.plan(), &other.avoided),
        // Whether the times are of a plan, and not only bounds on all such plans.
        exact: other.plan.is_some(),
        time_s: other.time.seconds(),
        added_s: Picoseconds(other.time.0.saturating_sub(layer.chosen_by().0)).seconds(),
        // The collectives that the other plan has instead.
        instead: instead.collect::<Vec<_>>(),
    })
}
