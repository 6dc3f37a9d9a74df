//! The whole compiler on one page: Source -> check -> [`Program`] -> lower -> [`Plan`] -> verify ->
//! price -> [`Schedule`] -> run. Each border is one type, each pass one call.

use shard_check::diagnostics::InternalProblem;
use shard_check::{CheckOptions, Checked};
use shard_cost::{Bytes, Hardware, Objective, PlanPrice};
use shard_grammar::SourceFile;
use shard_ir::{Plan, Program, Schedule};
use shard_runtime::{Report, RunError, RunOptions};
use shard_schedule::Timeline;
use shard_search::{
    Alternative, Detail, LowerError, LowerOptions, Lowered, Optimality, SharedWeights,
};

use crate::objectives;
use crate::on_streams::OnStreams;

/// A layer at the end of the compiler.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The plan in time.
    pub schedule: Schedule,
    /// What each instruction costs on the hardware.
    pub price: PlanPrice,
    /// When everything is done if computing and communicating overlap.
    pub timeline: Timeline,
    /// How good the plan is known to be; `None` for a plan that was given.
    pub optimality: Option<Optimality>,
    /// A lower bound on the bytes that a plan needs on a device over the whole stack; `None` where
    /// the plan was not chosen for its memory.
    pub least_bytes: Option<Bytes>,
    /// The result of the search, for questions about the plan; `None` for a plan that was given,
    /// and for one that was chosen by several searches.
    pub lowered: Option<Lowered>,
}

/// Why a program was not compiled.
#[derive(Clone, Debug)]
pub enum CompileError {
    /// It has no plan.
    Lower(LowerError),
    /// A pass broke the plan: a defect of the compiler.
    Internal(Box<InternalProblem>),
}

/// Source -> parse -> check -> Programs.
pub fn check(source: &SourceFile, options: &CheckOptions) -> Checked {
    shard_check::check_source(source, options)
}

/// The phases of a layer -> share weights -> the same with the stored layouts chosen; `None` where
/// nothing is to choose.
pub fn share_weights(
    phases: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Option<SharedWeights>, CompileError> {
    shard_search::share_weights(phases, hardware, options).map_err(CompileError::Lower)
}

/// Program -> lower -> Plan -> ... An objective that is no sum over steps takes several searches.
pub fn compile(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Compiled, CompileError> {
    match options.objective {
        Objective::Serial | Objective::Comm => {}
        Objective::Overlap => return objectives::least_overlap(program, hardware, options),
        Objective::Memory => return objectives::least_memory(program, hardware, options),
    }
    let lowered = shard_search::lower(program, hardware, options).map_err(CompileError::Lower)?;
    let compiled = compile_plan(
        lowered.plan.clone(),
        hardware,
        Some(lowered.optimality.clone()),
        options.objective,
    )?;
    Ok(Compiled { lowered: Some(lowered), ..compiled })
}

/// For each collective of a plan the best plan that does without it, or a bound on such plans;
/// empty where the search is not known.
pub fn alternatives(
    compiled: &Compiled,
    hardware: &Hardware,
    options: &LowerOptions,
    detail: Option<Detail>,
) -> Result<Vec<Alternative>, CompileError> {
    match &compiled.lowered {
        Some(lowered) => shard_search::alternatives(lowered, hardware, options, detail)
            .map_err(CompileError::Lower),
        None => Ok(Vec::new()),
    }
}

/// ... -> verify -> price -> Schedule, for a plan that was lowered or was given as text. A debug
/// build verifies the timeline too.
pub fn compile_plan(
    plan: Plan,
    hardware: &Hardware,
    optimality: Option<Optimality>,
    objective: Objective,
) -> Result<Compiled, CompileError> {
    shard_ir::verify::verify(&plan).map_err(|errors| {
        broken("lowering", errors.first().map(|e| e as &dyn std::fmt::Display))
    })?;
    let price = shard_cost::price(&plan, hardware);
    let priced = objective.time(&price.totals);
    if let Some(found) = optimality.as_ref().filter(|o| o.cost != priced) {
        let (search, pricer) = (found.cost.seconds(), priced.seconds());
        let why =
            format!("the search holds the plan for {search} s long, and its price is {pricer} s");
        return Err(broken("pricing", Some(&why)));
    }
    let schedule = shard_schedule::schedule(plan, &price);
    shard_schedule::verify(&schedule).map_err(|error| broken("scheduling", Some(&error)))?;
    let timeline = shard_schedule::overlap(&schedule.plan, &price, hardware);
    if cfg!(debug_assertions) {
        shard_schedule::verify_timeline(&schedule.plan, &price, hardware, &timeline)
            .map_err(|error| broken("overlapping", Some(&error)))?;
    }
    Ok(Compiled { schedule, price, timeline, optimality, least_bytes: None, lowered: None })
}

/// Schedule -> run -> Report: on small dims of the same divisibility and with few applications of
/// folded blocks, unless `full`. The results are compared with those of the program as it is
/// written; a plan that was given as text is compared with its own ops, unsharded.
pub fn run(
    program: Option<&Program>,
    compiled: &Compiled,
    hardware: &Hardware,
    full: bool,
    options: &RunOptions,
) -> Result<Ran, RunError> {
    let plan = if full {
        compiled.schedule.plan.clone()
    } else {
        shard_runtime::shrink(&compiled.schedule.plan)
    };
    let price = shard_cost::price(&plan, hardware);
    let applied = shard_runtime::written_out(&plan, full)?;
    let schedule =
        shard_schedule::schedule(applied.plan.clone(), &shard_cost::price(&applied.plan, hardware));
    let report = match program.map(Plan::unsharded) {
        None => shard_runtime::run(&schedule, options)?,
        Some(source) => {
            let source = shard_runtime::resized_as(&plan, &source);
            let source =
                source.ok_or(RunError::Internal("the program has not the sizes of its plan"))?;
            let source = shard_runtime::written_out(&source, full)?;
            shard_runtime::run_against(&source.plan, &schedule, options)?
        }
    };
    let report = shard_runtime::folded(report, &applied.of);
    Ok(Ran { plan, price, report, streams: None })
}

/// A layer that was executed.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The plan that was executed, of the sizes that were executed.
    pub plan: Plan,
    /// What the model says of it.
    pub price: PlanPrice,
    /// What was found.
    pub report: Report,
    /// The buffers that were held, where the overlapped schedule was executed.
    pub streams: Option<OnStreams>,
}

fn broken(pass: &str, error: Option<&dyn std::fmt::Display>) -> CompileError {
    let message = error.map_or_else(|| "no reason given".to_string(), ToString::to_string);
    CompileError::Internal(Box::new(InternalProblem {
        pass: pass.to_string(),
        message,
        span: None,
    }))
}
