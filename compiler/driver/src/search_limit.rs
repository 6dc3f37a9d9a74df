//! A search that ended at a limit, and what would have helped.

use shard_check::Diagnostic;
use shard_check::diagnostics::LoweringProblem;
use shard_cost::Hardware;
use shard_grammar::Span;
use shard_ir::{Def, InstrId, LayoutPattern, MeshShape, Plan, Program, ValueId};
use shard_search::{Limits, LowerOptions, Status, TIME_LIMIT, lower};

use crate::pipeline::Compiled;

/// A limit stopped the search before the plan was proven best.
pub(crate) fn search_limit(
    layer: &Compiled,
    program: &Program,
    header: Option<Span>,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Option<Diagnostic> {
    let lowered = layer.lowered.as_ref().filter(|l| l.optimality.status == Status::Bounded)?;
    let optimality = &lowered.optimality;
    let (cost, bound) = (optimality.cost.0, optimality.lower_bound.0);
    let gap = (bound > 0).then(|| cost.saturating_sub(bound) as f64 / bound as f64);
    let limit = optimality.stopped_by.clone().unwrap_or_else(|| "steps".to_string());
    let (layer, span) = (program.name.clone(), header?);
    // There is no time for a trial where the time is up.
    let proven_with = match limit.as_str() {
        TIME_LIMIT => Vec::new(),
        _ => proven_with(program, &lowered.plan, hardware, options),
    };
    Some(LoweringProblem::SearchLimit { layer, span, limit, gap, proven_with }.into())
}

/// The fewest parameters, of those tried, with which in the layouts of the plan a search of the
/// rest ends with a proof; each with its layout.
fn proven_with(
    program: &Program,
    plan: &Plan,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Vec<String> {
    let open = open_parameters(program, plan);
    let mut tried = TRIED.iter().copied().filter(|count| *count < open.len()).collect::<Vec<_>>();
    tried.push(open.len());
    let helps = |count: &usize| {
        let pinned = pinned(program, plan, &open[..*count]);
        let options = LowerOptions { limits: less(&options.limits), ..options.clone() };
        let found = lower(&pinned, hardware, &options);
        found.is_ok_and(|found| found.optimality.status == Status::Proven)
    };
    match tried.into_iter().filter(|count| *count > 0).find(helps) {
        None => Vec::new(),
        Some(count) => open[..count]
            .iter()
            .map(|value| {
                let id = InstrId(value.0);
                format!(
                    "{}: {}",
                    shard_report::notation::value_name(plan, id),
                    plan.layout_text(id)
                )
            })
            .collect(),
    }
}

/// So many parameters are tried, the largest first, and all of them in the end.
const TRIED: [usize; 2] = [1, 4];

/// A trial may take this part of what the search may.
const PART: usize = 8;

fn less(limits: &Limits) -> Limits {
    Limits {
        nodes: limits.nodes / PART,
        expansions: limits.expansions / PART,
        branches: limits.branches / PART,
        ..limits.clone()
    }
}

/// The parameters whose types leave their layouts open, the one of most bytes first; a plan has its
/// parameters in the order of the program.
fn open_parameters(program: &Program, plan: &Plan) -> Vec<ValueId> {
    let is_open = |id: &ValueId| {
        let value = program.value(*id);
        let Def::Parameter { pattern, .. } = &value.def else { return false };
        let sizes = program.sizes(&value.dims);
        pattern.exact(MeshShape { mesh: &program.mesh, sizes: &sizes }).is_none()
    };
    let mut open: Vec<ValueId> = program.value_ids().filter(is_open).collect();
    open.sort_by_key(|id| std::cmp::Reverse(plan.local_bytes(InstrId(id.0))));
    open
}

/// The program with some parameters in the layouts that they have in a plan of it.
fn pinned(program: &Program, plan: &Plan, parameters: &[ValueId]) -> Program {
    let mut pinned = program.clone();
    for id in parameters {
        let (layout, rank) =
            (plan.instruction(InstrId(id.0)).layout, program.value(*id).dims.len());
        if let Def::Parameter { pattern, .. } = &mut pinned.values[id.index()].def {
            let label = pattern.label;
            *pattern = LayoutPattern { label, ..LayoutPattern::exactly(layout, rank) };
        }
    }
    pinned
}
