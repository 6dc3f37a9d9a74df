//! The sums at the end of an explanation: times, memory, and the bytes sent over each axis.

use std::collections::BTreeMap;

use shard_cost::{Bytes, Objective};
use shard_ir::{Picoseconds, never};

use crate::Layer;
use crate::optimality::optimality;
use crate::origins::axis_by_axis;
use crate::page::Page;
use crate::scale;

/// The sums over a layer and its stack, and how good the plan is known to be.
pub(crate) fn totals(page: &mut Page, layer: &Layer<'_>) {
    let (plan, totals) = (layer.plan(), &layer.price.totals);
    page.line("totals, on each device");
    let hidden = |id| Some(layer.price.of(id).looped()?.hidden().times(plan.repeat_of(id)));
    let beside: Picoseconds = plan.ids().filter_map(hidden).sum();
    let exposed = Picoseconds(totals.comm_time.0.saturating_sub(beside.0));
    let part = scale::percent(exposed, totals.serial_time);
    let part = part.map_or_else(String::new, |part| format!("{part} of all steps  "));
    page.row("  communication", &format!("{part}{}", scale::time(exposed)));
    if beside > Picoseconds(0) {
        page.row("    and beside einsums, in loops", &scale::time(beside));
    }
    page.row(
        "  arithmetic",
        &format!("{}  {}", scale::flops(totals.flops), scale::time(totals.compute_time)),
    );
    page.row(
        "  memory traffic",
        &format!("{}  {}", scale::bytes(totals.hbm_bytes), scale::time(totals.memory_time)),
    );
    page.row("  all steps, one after another", &scale::time(totals.serial_time));
    if layer.objective == Objective::Overlap {
        page.row(
            "  all steps, computing beside communicating",
            &scale::time(layer.timeline.makespan),
        );
    }
    let overhead = layer.hardware.layer_overhead;
    if overhead > Picoseconds(0) {
        page.row("  overhead of the layer", &scale::time(overhead));
    }
    if plan.repeat > 1 {
        let model = layer.hardware.stack_time(totals.serial_time, plan);
        page.row(&format!("  {} layers", plan.repeat), &scale::time(model));
        if layer.objective == Objective::Overlap {
            page.row(
                &format!("  {} layers, computing beside communicating", plan.repeat),
                &scale::time(
                    layer.timeline.of_all_layers(plan)
                        + layer.hardware.stack_time(Picoseconds(0), plan),
                ),
            );
        }
    }
    let (capacity, peak) = (Bytes(layer.hardware.hbm_bytes), layer.peak());
    let layers = if plan.repeat > 1 { format!(", {} layers", plan.repeat) } else { String::new() };
    page.row(
        &format!("  memory at the peak{layers}"),
        &format!("{} of {}", scale::bytes(peak), scale::bytes(capacity)),
    );
    if let Some(line) = crate::memory::line(layer.hardware) {
        page.wrapped(4, &line);
    }
    let excess = peak.0.saturating_sub(capacity.0);
    if excess > 0 {
        page.row("  DOES NOT FIT in memory", &format!("over by {}", scale::bytes(Bytes(excess))));
    }
    page.row("  bytes sent", &scale::bytes(totals.comm_bytes));
    for (axes, bytes, time) in sent_over(layer) {
        page.row(
            &format!("    over {axes}"),
            &format!("{}  {}", scale::bytes(bytes), scale::time(time)),
        );
    }
    optimality(page, layer);
}

/// The bytes sent over each mesh axis and the time that takes, in the order in which axes are first
/// used. Moves that cross several axes at once count under all of these together.
pub(crate) fn sent_over(layer: &Layer<'_>) -> Vec<(String, Bytes, Picoseconds)> {
    let plan = layer.plan();
    let mut order: Vec<String> = Vec::new();
    let mut sent: BTreeMap<String, (Bytes, Picoseconds)> = BTreeMap::new();
    for id in plan.ids() {
        let Some(cost) = layer.price.of(id).collective() else { continue };
        if cost.wire_bytes == Bytes(0) {
            continue;
        }
        let mut steps = axis_by_axis(layer, id);
        if steps.is_empty() {
            let axes = crate::origins::axes(plan, id)
                .unwrap_or_else(|| never!("bytes sent over no axis", shard_ir::AxisSet::EMPTY));
            steps.push((plan.mesh.axes_text(axes.iter()), *cost));
        }
        for (axes, cost) in steps {
            if !order.contains(&axes) {
                order.push(axes.clone());
            }
            let sum = sent.entry(axes).or_default();
            let repeat = plan.repeat_of(id);
            *sum = (sum.0 + cost.wire_bytes.times(repeat), sum.1 + cost.time.times(repeat));
        }
    }
    order.into_iter().map(|axes| (axes.clone(), sent[&axes].0, sent[&axes].1)).collect()
}
