//! The warning about a search that ended at a limit, with what would have helped.

use shard_check::Diagnostic;
use shard_check::diagnostics::LoweringProblem;
use shard_cost::{Bytes, Hardware, Memory, Objective};
use shard_grammar::Span;
use shard_ir::{InstrId, Plan, Program, ValueId};
use shard_report::scale;
use shard_search::{
    Limits, LowerOptions, Lowered, Optimality, SearchLimit, SharedWeights, Status, lower,
    open_parameters, stored_as_in,
};

use crate::noted::ok_or_noted;
use crate::pipeline::Compiled;

/// A limit stopped the search before the plan was proven best.
pub(crate) fn search_limit(
    layer: &Compiled,
    program: &Program,
    header: Option<Span>,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Option<Diagnostic> {
    let optimality = layer.optimality.as_ref().filter(|o| is_worth_saying(o))?;
    // A plan that several searches chose has a bound and no proof by nature, which is no news.
    if layer.lowered.is_none() && optimality.stopped_by.is_none() {
        return None;
    }
    let limits = Limits { trials: false, ..options.limits.part(PART) };
    let trials = LowerOptions { limits, ..options.clone() };
    let (with, fits_with) = match (&layer.lowered, optimality.stopped_by) {
        // No trial is made where the time is up, or where several searches chose the plan: a trial
        // is one search.
        (_, Some(SearchLimit::Time)) | (None, _) => (Vec::new(), None),
        (Some(Lowered { plan, proven_with: known, .. }), limit) => {
            let with =
                known.clone().unwrap_or_else(|| proven_with(program, plan, hardware, &trials));
            let of_memory = limit == Some(SearchLimit::Memory);
            let fits_with = of_memory.then(|| fits_with(program, hardware, &trials)).flatten();
            (written(plan, &with), fits_with)
        }
    };
    let problem = LoweringProblem::SearchLimit {
        layer: program.name.clone(),
        of_phases: false,
        span: header?,
        limit: limit(optimality),
        gap: gap(optimality),
        proven_with: with,
        fits_with,
    };
    Some(problem.into())
}

/// A limit stopped the search for stored layouts that suit all phases of a layer.
pub(crate) fn search_limit_of_phases(
    shared: &SharedWeights,
    layer: &str,
    header: Option<Span>,
    objective: Objective,
) -> Option<Diagnostic> {
    let request = Some(&shared.request).filter(|request| is_worth_saying(request))?;
    // That layouts in little memory are not the fastest is no news.
    if objective == Objective::Memory && request.stopped_by.is_none() {
        return None;
    }
    let problem = LoweringProblem::SearchLimit {
        layer: layer.to_string(),
        of_phases: true,
        span: header?,
        limit: limit(request),
        gap: gap(request),
        proven_with: Vec::new(),
        fits_with: None,
    };
    Some(problem.into())
}

/// Whether a warning is due. A plan less than a hundredth of a percent above its bound is as good
/// as the best one, and the report says how far it is; but where the time was up another run may
/// give another plan, which is always said.
fn is_worth_saying(optimality: &Optimality) -> bool {
    let is_near = gap(optimality).is_some_and(|gap| gap < 1e-4);
    let is_timed = optimality.stopped_by == Some(SearchLimit::Time);
    optimality.status == Status::Bounded && (is_timed || !is_near)
}

fn limit(optimality: &Optimality) -> String {
    optimality.stopped_by.map_or("steps", SearchLimit::name).to_string()
}

/// How far the plan is above the bound at most, as a share of the bound.
fn gap(optimality: &Optimality) -> Option<f64> {
    let (cost, bound) = (optimality.cost.0, optimality.lower_bound.0);
    (bound > 0).then(|| cost.saturating_sub(bound) as f64 / bound as f64)
}

/// The `--memory-limit` with which the fastest plan of any size fits, where that plan is proven to
/// be the fastest.
fn fits_with(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Option<String> {
    let mut larger = hardware.clone();
    larger.hbm_bytes = u64::MAX;
    let found = ok_or_noted(lower(program, &larger, options))?;
    let peak = Memory::of(&found.plan).peak().0;
    // The limit is printed with three digits, and must be enough.
    let most = peak.saturating_add(peak / 100);
    (found.optimality.status == Status::Proven)
        .then(|| format!("--memory-limit {}", scale::bytes(Bytes(most)).replace(' ', "")))
}

/// The fewest open parameters with which a search proves its plan, once they are stated in the
/// layouts of the plan; the largest parameters come first. Empty where no number that is tried
/// suffices.
fn proven_with(
    program: &Program,
    plan: &Plan,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Vec<ValueId> {
    let open = open_parameters(program, plan);
    let tried = TRIED.iter().copied().filter(|count| *count < open.len());
    let tried: Vec<usize> = tried.chain((open.len() <= MOST).then_some(open.len())).collect();
    let helps = |count: &usize| {
        let pinned = stored_as_in(program, plan, &open[..*count]);
        let found = lower(&pinned, hardware, options);
        found.is_ok_and(|found| found.optimality.status == Status::Proven)
    };
    let count = tried.into_iter().filter(|count| *count > 0).find(helps);
    open[..count.unwrap_or(0)].to_vec()
}

/// Parameters, each with its layout in a plan.
fn written(plan: &Plan, parameters: &[ValueId]) -> Vec<String> {
    let written = |value: &ValueId| {
        let id = InstrId(value.0);
        let name = shard_report::notation::value_name(plan, id);
        format!("{name}: {}", plan.layout_text(id))
    };
    parameters.iter().map(written).collect()
}

/// The numbers of parameters that are tried; all of them come last, where they are at most
/// [`MOST`].
const TRIED: [usize; 2] = [1, 4];
const MOST: usize = 8;

/// The part of the limits of the search that a trial has.
const PART: usize = 8;

#[cfg(test)]
mod tests {
    use shard_ir::Picoseconds;

    use super::*;

    fn bounded(cost: u64, stopped_by: SearchLimit) -> Optimality {
        Optimality {
            status: Status::Bounded,
            proof: None,
            cost: Picoseconds(cost),
            lower_bound: Picoseconds(1_000_000),
            price_bound: None,
            stopped_by: Some(stopped_by),
            ties_cut: false,
        }
    }

    #[test]
    fn a_plan_near_its_bound_is_warned_of_only_where_another_run_may_give_another() {
        assert!(is_worth_saying(&bounded(1_000_200, SearchLimit::Expansions)));
        assert!(!is_worth_saying(&bounded(1_000_050, SearchLimit::Expansions)));
        assert!(is_worth_saying(&bounded(1_000_050, SearchLimit::Time)));
    }
}
