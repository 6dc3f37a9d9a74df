//! What it costs that the phases of a layer store their weights alike.

use serde::Serialize;

use super::Ordered;
use super::explain::optimality;
use crate::notation::{parameter_layout, weight_name};
use crate::status::gap;
use crate::{Sharing, object};

/// The figures of one phase.
pub(super) fn sharing(sharing: Sharing<'_>) -> impl Serialize {
    let (shared, phase) = (sharing.shared, sharing.phase);
    let request = &shared.request;
    let program = &shared.programs[phase];
    let weights = shared.weights.iter().map(|weight| {
        object!(WeightJson {
            name: weight_name(program, weight.value),
            layout: parameter_layout(program, weight.value, weight.stored),
            alone_layout: parameter_layout(program, weight.value, weight.alone[phase]),
        })
    });
    let steps = shared
        .programs
        .iter()
        .filter_map(|p| p.phase.as_ref().map(|phase| (phase.name.clone(), phase.repeat)));
    object!(SharingJson {
        // The weights whose layouts were free.
        weights: weights.collect::<Vec<_>>(),
        // What a step of this phase would take if the weights were stored for it alone.
        alone_time_s: shared.alone[phase].seconds(),
        // How many steps of each phase a request takes.
        steps: Ordered(steps.collect()),
        // What a request takes with the weights stored so, and how far that is from the best
        // choice.
        request: optimality(request, gap(request.cost, request.lower_bound)),
        // What a request would take if each phase had its weights stored for it alone.
        request_alone_time_s: shared.request_alone().seconds(),
    })
}
