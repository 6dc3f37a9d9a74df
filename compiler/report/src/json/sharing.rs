//! What it costs that the phases of a layer store their weights alike.

use serde::Serialize;

use super::Ordered;
use super::explain::{OptimalityJson, optimality};
use crate::Sharing;
use crate::notation::parameter_layout;

/// `sharing` of a layer.
#[derive(Debug, Serialize)]
pub(super) struct SharingJson {
    /// The weights whose layouts were free.
    weights: Vec<WeightJson>,
    /// What a step of this phase would take if the weights were stored for it alone.
    alone_time_s: f64,
    /// How many steps of each phase a request takes.
    steps: Ordered<u64>,
    /// What a request takes with the weights stored so, and how far that is from the best choice.
    request: OptimalityJson,
    /// What a request would take if each phase had its weights stored for it alone.
    request_alone_time_s: f64,
}

#[derive(Debug, Serialize)]
struct WeightJson {
    name: String,
    layout: String,
    alone_layout: String,
}

/// The figures of one phase.
pub(super) fn sharing(sharing: Sharing<'_>) -> SharingJson {
    let (shared, phase) = (sharing.shared, sharing.phase);
    let program = &shared.programs[phase];
    let weights = shared.weights.iter().map(|weight| WeightJson {
        name: program.value(weight.value).name.clone().unwrap_or_default(),
        layout: parameter_layout(program, weight.value, weight.stored),
        alone_layout: parameter_layout(program, weight.value, weight.alone[phase]),
    });
    let steps = shared
        .programs
        .iter()
        .filter_map(|p| p.phase.as_ref().map(|phase| (phase.name.clone(), phase.repeat)));
    SharingJson {
        weights: weights.collect(),
        alone_time_s: shared.alone[phase].seconds(),
        steps: Ordered(steps.collect()),
        request: optimality(&shared.request),
        request_alone_time_s: shared.request_alone().seconds(),
    }
}
