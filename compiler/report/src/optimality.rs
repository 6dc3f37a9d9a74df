//! How far a plan is from the best one, and what sharing its weights with other phases costs.

use shard_cost::Objective;
use shard_ir::{Layout, Picoseconds, Program, never};
use shard_search::{Proof, SearchLimit, SharedWeight, SharedWeights, Status};

use crate::notation::{parameter_layout, weight_name};
use crate::page::Page;
use crate::status::gap;
use crate::{Layer, Sharing, overlap_choice, scale};

/// How the weights are shared, how good the plan is known to be, and what would be better.
pub(crate) fn optimality(page: &mut Page, layer: &Layer<'_>) {
    sharing(page, layer);
    page.wrapped(0, &optimality_text(layer));
    if let Some(choice) = layer.overlap_choice {
        page.wrapped(0, &overlap_choice::text(layer, choice));
    }
    for padding in layer.paddings {
        page.wrapped(0, &padding.text());
    }
}

/// The mark of a plan that was searched for and is not proven: how far above its bound it may be.
pub(crate) fn bounded(layer: &Layer<'_>) -> Option<String> {
    let o = layer.optimality.filter(|o| o.status == Status::Bounded)?;
    let within = match (layer.least_bytes, gap(o.cost, o.lower_bound)) {
        (Some(least), _) => format!(", {} or more needed", scale::bytes(least)),
        (None, Some(gap)) => format!(", at most {:.2} % above its bound", gap * 100.0),
        (None, None) => String::new(),
    };
    Some(format!("bounded{within}"))
}

/// How good the plan is known to be, in a sentence.
pub(crate) fn optimality_text(layer: &Layer<'_>) -> String {
    let Some(o) = layer.optimality else {
        return "plan given as IR: not searched for".to_string();
    };
    let status = o.status.word();
    // Phases that share weights store them as suits all of them. What is proven of one phase holds
    // for the weights stored so.
    let no_plan = match layer.sharing {
        Some(_) => "no plan with the weights stored so",
        None => "no plan",
    };
    if let Some(least) = layer.least_bytes {
        let needs = scale::bytes(layer.peak());
        return match o.status {
            Status::Proven => format!(
                "{status}: {no_plan} needs less than {needs} on each device over the whole stack, \
                    and none that needs no more \
                 takes less than {}",
                scale::time(o.cost)
            ),
            Status::Bounded => format!(
                "{status}: {needs} on each device over the whole stack; {no_plan} needs less than {}",
                scale::bytes(least)
            ),
        };
    }
    let takes = match layer.objective {
        Objective::Comm => "communicates for less",
        Objective::Serial | Objective::Overlap | Objective::Memory => "takes less",
    };
    match o.proof {
        Some(Proof::Search) if layer.objective == Objective::Overlap => {
            let done = scale::time(o.lower_bound);
            match layer.timeline.stack {
                Some(_) => {
                    format!(
                        "{status}: no schedule of any plan is done with all layers before {done}"
                    )
                }
                None => format!("{status}: no schedule of any plan is done before {done}"),
            }
        }
        Some(Proof::Certificate) => {
            format!(
                "{status} by certificate: {no_plan} {takes} than {}",
                scale::time(o.lower_bound)
            )
        }
        Some(Proof::Search) => format!(
            "{status} by search: {no_plan} {takes} than {} (prices alone rule out less than {})",
            scale::time(o.cost),
            scale::time(o.price_bound.unwrap_or_else(|| never!(
                "proven by a search without a bound by prices",
                o.lower_bound
            )))
        ),
        None => {
            let gap = at_most_above(o.cost, o.lower_bound);
            let limit = match o.stopped_by {
                Some(SearchLimit::Time) => {
                    " (its time was up: another run may give another plan)".to_string()
                }
                Some(limit) => format!(" (stopped by the limit of {limit})"),
                None => String::new(),
            };
            let whose = match layer.objective {
                Objective::Overlap if layer.timeline.stack.is_some() => {
                    ", before which no schedule of any plan is done with all layers"
                }
                Objective::Overlap => ", which no schedule of any plan is done before",
                Objective::Serial | Objective::Comm | Objective::Memory => "",
            };
            format!(
                "{status}: {gap} above the bound of {}{whose}{limit}",
                scale::time(o.lower_bound)
            )
        }
    }
}

/// How the weights are stored for all phases, and what that costs this one and a whole request.
fn sharing(page: &mut Page, layer: &Layer<'_>) {
    let Some(Sharing { shared, phase }) = layer.sharing else { return };
    let program = &shared.programs[phase];
    let name = phase_name(program);
    let named = |weight: &SharedWeight, text: Layout| {
        let of = weight_name(program, weight.value);
        format!("{of} {}", parameter_layout(program, weight.value, text))
    };
    let stored: Vec<String> = shared.weights.iter().map(|w| named(w, w.stored)).collect();
    page.wrapped(0, &format!("stored for all phases: {}", stored.join(", ")));
    let other: Vec<String> = shared
        .weights
        .iter()
        .filter(|w| w.alone[phase] != w.stored)
        .map(|w| named(w, w.alone[phase]))
        .collect();
    let (time, alone) = (layer.chosen_by(), shared.alone[phase]);
    // The weights are stored as the fastest plans have them. Where another objective chose the
    // plans that are shown, their times are not compared with those.
    let by_objective = match layer.objective {
        Objective::Serial | Objective::Comm => true,
        Objective::Overlap | Objective::Memory => false,
    };
    page.wrapped(
        2,
        &match (other.is_empty(), by_objective) {
            (true, true) => format!("as {name} alone would have it"),
            (true, false) => format!("as the fastest plan of {name} alone has it"),
            (false, true) => format!(
                "alone, {name} would have {} and {} {}: sharing costs it {}",
                other.join(", "),
                if layer.objective == Objective::Comm { "communicate for" } else { "take" },
                scale::time(alone),
                share(time, alone)
            ),
            (false, false) => format!(
                "the fastest plan of {name} alone has {} and takes {}, one step after another",
                other.join(", "),
                scale::time(alone)
            ),
        },
    );
    page.wrapped(2, &of_request(layer, shared, program.repeat.max(1)));
}

/// What a request takes in a stack of so many layers, with the weights stored so and if each phase
/// stored them for itself.
fn of_request(layer: &Layer<'_>, shared: &SharedWeights, layers: u64) -> String {
    let of_phase = |p: &Program| p.phase.as_ref().map_or(1, |phase| phase.repeat);
    let steps: Vec<String> =
        shared.programs.iter().map(|p| format!("{} {}", of_phase(p), phase_name(p))).collect();
    let status = match shared.request.status {
        Status::Proven => "proven: no stored layouts take less".to_string(),
        Status::Bounded => {
            let bound = scale::time(shared.request.lower_bound);
            if looks_as(shared.request.cost, shared.request.lower_bound) {
                let gap = at_most_above(shared.request.cost, shared.request.lower_bound);
                format!("bounded: {gap} above the bound of {bound}")
            } else {
                format!("bounded: none take less than {bound}")
            }
        }
    };
    let (cost, alone) = (shared.request.cost, shared.request_alone());
    let less = if alone < cost && looks_as(cost, alone) {
        format!(", {} less", scale::time(Picoseconds(cost.0.saturating_sub(alone.0))))
    } else {
        String::new()
    };
    let steps = steps.join(", ");
    let overhead = match layer.objective {
        Objective::Comm => Picoseconds(0),
        Objective::Serial | Objective::Overlap | Objective::Memory => {
            let once = layer.hardware.stack_time(Picoseconds(0), layer.plan());
            once.times(shared.programs.iter().map(of_phase).sum())
        }
    };
    let cost = match layers {
        1 => scale::time(cost),
        _ => format!(
            "{} a layer, {} in all {layers}",
            scale::time(cost),
            scale::time(cost.times(layers) + overhead)
        ),
    };
    let request = match layer.objective {
        Objective::Serial => format!("a request ({steps}) takes {cost}"),
        Objective::Comm => format!("a request ({steps}) communicates for {cost}"),
        // The plans that are shown are not the fastest.
        Objective::Overlap | Objective::Memory => {
            format!(
                "the fastest plans with the weights stored so, one step after another, take {cost} \
                 for a request ({steps})"
            )
        }
    };
    let alone = scale::time(alone) + if layers == 1 { "" } else { " a layer" };
    format!("{request}, {status}; stored for each phase alone, {alone}{less}")
}

/// The name of the phase of a program; nothing where it has none.
fn phase_name(program: &Program) -> &str {
    program.phase.as_ref().map_or("", |phase| phase.name.as_str())
}

/// Whether two times that differ are written alike.
fn looks_as(a: Picoseconds, b: Picoseconds) -> bool {
    a != b && scale::time(a) == scale::time(b)
}

/// `at most 1.80 %`: how far a cost may be above its bound.
fn at_most_above(cost: Picoseconds, bound: Picoseconds) -> String {
    match gap(cost, bound) {
        Some(gap) if gap < 1e-4 => "less than 0.01 %".to_string(),
        Some(gap) => format!("at most {:.2} %", gap * 100.0),
        None => "at most by an unknown share".to_string(),
    }
}

/// `nothing`, or how much one time is above another, also in percent.
fn share(time: Picoseconds, least: Picoseconds) -> String {
    let more = Picoseconds(time.0.saturating_sub(least.0));
    match gap(time, least) {
        _ if more == Picoseconds(0) => "nothing".to_string(),
        Some(part) => format!("{} ({:.2} %)", scale::time(more), part * 100.0),
        None => scale::time(more),
    }
}
