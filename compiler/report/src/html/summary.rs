//! What the page says of a layer above its program: its totals, the steps that matter most, how its
//! parameters are given.

use std::cmp::Reverse;

use askama::Template;
use shard_cost::{Bytes, Utilisation};
use shard_ir::{InstrId, InstrKind};

use super::{time_and_share, timed};
use crate::Layer;
use crate::notation::{phrase, value_name};
use crate::optimality::bounded;
use crate::scale;

/// So many of the longest steps are listed.
const MATTERING: usize = 3;

#[derive(Template)]
#[template(path = "summary.html")]
pub(super) struct Overview {
    at: usize,
    steps: Vec<Mattering>,
    parameters: Vec<Stored>,
}

/// A step that takes a large part of the time.
struct Mattering {
    id: u32,
    name: String,
    figures: String,
}

/// A parameter in the layout in which it is given.
struct Stored {
    name: String,
    layout: String,
    bytes: String,
}

/// A figure with its name.
pub(super) struct Tile {
    pub(super) name: &'static str,
    pub(super) figure: String,
}

/// The steps that take most of the time, the longest first, and how parameters are given: what the
/// types say, or what was chosen where they leave it open.
pub(super) fn overview(layer: &Layer<'_>, at: usize) -> Overview {
    let plan = layer.plan();
    let mut steps = timed(layer);
    steps.sort_by_key(|(id, time)| (Reverse(*time), *id));
    let step = |(id, time): (InstrId, _)| Mattering {
        id: id.0,
        name: format!("{}: {}", value_name(plan, id), phrase(plan, id)),
        figures: time_and_share(layer, time).join(", "),
    };
    let is_given = |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::Parameter(_));
    let stored = |id: InstrId| Stored {
        name: value_name(plan, id),
        layout: layer.layout_text(id),
        bytes: scale::bytes(Bytes(plan.local_bytes(id))),
    };
    Overview {
        at,
        steps: steps.into_iter().take(MATTERING).map(step).collect(),
        parameters: plan.ids().filter(is_given).map(stored).collect(),
    }
}

pub(super) fn totals(layer: &Layer<'_>) -> Vec<Tile> {
    let (plan, totals) = (layer.plan(), &layer.price.totals);
    let (capacity, peak) = (Bytes(layer.hardware.hbm_bytes), layer.peak());
    let fits = if peak > capacity { " (does not fit)" } else { "" };
    let limit =
        crate::memory::limit(layer.hardware).map_or(String::new(), |why| format!(" ({why})"));
    let peak = format!("{} of {}{limit}{fits}", scale::bytes(peak), scale::bytes(capacity));
    let stack = layer.hardware.stack_time(totals.serial_time, plan);
    let is_stack = plan.repeat > 1;
    let held = if is_stack { "memory at the peak, all layers" } else { "memory at the peak" };
    let mut tiles = vec![
        ("serial time", scale::time(totals.serial_time)),
        ("communication", scale::time(totals.comm_time)),
        ("compute", scale::time(totals.compute_time)),
        ("memory traffic", scale::time(totals.memory_time)),
        ("bytes sent", scale::bytes(totals.comm_bytes)),
        (held, peak),
    ];
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    if let Some(utilisation) = Utilisation::of(plan, layer.price, layer.hardware, stack) {
        tiles.extend(utilisation.model.map(|mfu| ("MFU", percent(mfu))));
        tiles.push(("hardware utilisation", percent(utilisation.hardware)));
    }
    tiles.extend(bounded(layer).map(|bounded| ("plan", bounded)));
    tiles.extend(is_stack.then(|| ("all layers", scale::time(stack))));
    tiles.into_iter().map(|(name, figure)| Tile { name, figure }).collect()
}
