//! Executes a plan on devices and compares it with the unsharded program.

use std::collections::BTreeMap;
use std::sync::Arc;

use shard_ir::{Execution, InstrId, InstrKind, Plan, PlanOutput, Schedule};

use crate::arithmetic::Arithmetic;
use crate::compare::{Comparison, compare};
use crate::error::RunError;
use crate::execute::{
    CollectiveTrace, NamedTensor, RunOptions, Trace, check, choose, execute_in, in_program_order,
    inexact,
};
use crate::limits::cost_needed;
use crate::reference::{Expected, reference};
use crate::streams;
use crate::tensor::Tensor;

/// The verdict on a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Whether every result equals the unsharded program's.
    pub equal: bool,
    /// Whether arithmetic was exact, so that equal results are the same to the bit.
    pub exact: bool,
    /// The largest absolute difference over all results.
    pub max_abs_err: f64,
    /// The result whose difference is the largest part of its scale; `None` if there are no
    /// results.
    pub worst: Option<Worst>,
    /// The difference up to which results count as equal, as a part of a result's scale.
    pub tolerance: f64,
    /// How many devices there were.
    pub devices: u64,
    /// The bytes that each move sent.
    pub collectives: Vec<CollectiveTrace>,
    /// The most bytes that one device held at once; without weights and caches in an execution on
    /// streams.
    pub peak_bytes: u64,
    /// The results of the devices.
    pub outputs: Vec<NamedTensor>,
    /// The results of the unsharded program.
    pub expected: Vec<NamedTensor>,
    /// The first instruction whose value on the devices differs from that of the plan, unsharded.
    /// `None` if results are equal, if no instruction differs (the plan then computes something
    /// else than the source), or if an engine executed the plan.
    pub first_wrong: Option<InstrId>,
}

impl Report {
    /// The scale of the [`Self::worst`] result; 0 if there are no results.
    pub fn scale(&self) -> f64 {
        self.worst.as_ref().map_or(0.0, |worst| worst.scale)
    }
}

/// A result and how far off it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Worst {
    /// Its name.
    pub name: String,
    /// Its largest absolute difference.
    pub max_abs_err: f64,
    /// What differences of it are measured against
    /// ([`Expected::scale`](crate::reference::Expected::scale)).
    pub scale: f64,
}

/// Executes a schedule and compares it with its own ops, unsharded. If whole numbers leave the
/// range in which they are exact, it executes the schedule again in `f32`.
pub fn run(schedule: &Schedule, options: &RunOptions) -> Result<Report, RunError> {
    run_against(&schedule.plan, schedule, options)
}

/// [`run`], compared with the program that the plan was made from: a plan may multiply a chain in
/// another order, or take a factor out of a sum. `source` has the same sizes ([`Plan::unsharded`],
/// [`resized_as`](crate::resized_as)), parameters of the same names, and its results in the same
/// order.
pub fn run_against(
    source: &Plan,
    schedule: &Schedule,
    options: &RunOptions,
) -> Result<Report, RunError> {
    decide(source, &Executed::InOrder(schedule), options)
}

/// [`run_against`] for tasks on streams, whose buffers lie at their addresses.
///
/// # Errors
///
/// Beside those of [`run_against`]: two tasks touch the same bytes and are not ordered by streams
/// and waits, or a buffer is touched while it is not held.
pub fn run_on_streams(
    source: &Plan,
    execution: &Execution,
    options: &RunOptions,
) -> Result<Report, RunError> {
    decide(source, &Executed::OnStreams(execution), options)
}

/// [`run`] for a plan that is not scheduled: in program order.
pub fn run_plan(plan: &Plan, options: &RunOptions) -> Result<Report, RunError> {
    check(plan, options)?;
    run(&in_program_order(plan), options)
}

/// What is executed.
enum Executed<'a> {
    /// One instruction after the other.
    InOrder(&'a Schedule),
    /// On several streams.
    OnStreams(&'a Execution),
}

impl Executed<'_> {
    fn plan(&self) -> &Plan {
        match self {
            Executed::InOrder(schedule) => &schedule.plan,
            Executed::OnStreams(execution) => &execution.plan,
        }
    }

    fn execute(&self, options: &RunOptions, arithmetic: Arithmetic) -> Result<Trace, RunError> {
        match self {
            Executed::InOrder(schedule) => execute_in(schedule, options, arithmetic),
            Executed::OnStreams(execution) => streams::execute_in(execution, options, arithmetic),
        }
    }
}

/// The verdict, first in exact arithmetic if plan and source allow it.
fn decide(source: &Plan, what: &Executed<'_>, options: &RunOptions) -> Result<Report, RunError> {
    let plan = what.plan();
    check(plan, options)?;
    check(source, options)?;
    let arithmetic = match choose(plan, options) {
        Arithmetic::Exact => choose(source, options),
        other => other,
    };
    match judge(source, what, options, arithmetic) {
        Err(RunError::Overflow { .. }) if arithmetic == Arithmetic::Exact => {
            judge(source, what, options, inexact(plan))
        }
        verdict => verdict,
    }
}

/// The verdict in some arithmetic.
fn judge(
    source: &Plan,
    what: &Executed<'_>,
    options: &RunOptions,
    arithmetic: Arithmetic,
) -> Result<Report, RunError> {
    let plan = what.plan();
    if let Some(progress) = &options.progress {
        // The unsharded program takes about as long as what the devices do.
        progress.begin(cost_needed(plan).saturating_mul(2));
    }
    let trace = what.execute(options, arithmetic)?;
    let expected = reference(source, &parameters_of(source, plan, &trace.parameters)?, arithmetic)?;
    if expected.len() != trace.outputs.len() {
        return Err(RunError::Internal("the source has other results than the plan"));
    }
    let stated = arithmetic.tolerance(plan);
    let tolerance = match (options.tolerance, arithmetic) {
        (Some(given), _) => given,
        (None, Arithmetic::Emulated) => {
            emulated_tolerance(source, what, options, &trace, &expected, stated)?
        }
        (None, Arithmetic::F32 | Arithmetic::Single) if !all_equal(&trace, &expected, stated) => {
            // Every layer magnifies the errors of the layers before it. The devices may be as far
            // from the exact results as the plan, unsharded, and the expected results as the
            // source.
            let of = |program| magnified(program, plan, &trace, &expected, arithmetic);
            stated + of(source)? + of(plan)?
        }
        (None, Arithmetic::Exact | Arithmetic::F32 | Arithmetic::Single) => stated,
    };
    let comparisons = compared(&trace, &expected, tolerance);
    let badness =
        |c: &Comparison| if c.scale > 0.0 { c.max_abs_err / c.scale } else { c.max_abs_err };
    let named_so = plan.outputs.iter().map(|output| output.name.clone());
    let worst = comparisons
        .iter()
        .zip(named_so)
        .max_by(|(a, _), (b, _)| badness(a).total_cmp(&badness(b)))
        .map(|(c, name)| Worst { name, max_abs_err: c.max_abs_err, scale: c.scale });
    let named = |output: &PlanOutput, tensor| NamedTensor { name: output.name.clone(), tensor };
    let equal = comparisons.iter().all(|c| c.equal);
    // An engine gives results alone.
    let first_wrong = if equal || options.engine.is_some() {
        None
    } else {
        locate(plan, options, arithmetic, tolerance)?
    };
    Ok(Report {
        equal,
        first_wrong,
        exact: arithmetic == Arithmetic::Exact,
        max_abs_err: comparisons.iter().map(|c| c.max_abs_err).fold(0.0, f64::max),
        worst,
        tolerance,
        devices: trace.devices,
        collectives: trace.collectives,
        peak_bytes: trace.peak_bytes,
        outputs: trace.outputs,
        expected: plan.outputs.iter().zip(expected).map(|(o, t)| named(o, t.tensor)).collect(),
    })
}

fn compared(trace: &Trace, expected: &[Expected], tolerance: f64) -> Vec<Comparison> {
    let pairs = trace.outputs.iter().zip(expected);
    pairs.map(|(o, e)| compare(&o.tensor, &e.tensor, e.scale, tolerance)).collect()
}

fn all_equal(trace: &Trace, expected: &[Expected], tolerance: f64) -> bool {
    compared(trace, expected, tolerance).iter().all(|c| c.equal)
}

/// The tolerance with emulated dtypes, as a part of a result's scale: `stated`, and twice the error
/// that roundings make in the unsharded program.
///
/// A program can magnify roundings (a softmax of large scores does, and one layer after another),
/// and a sharded run rounds at other places: it may be as far off in one direction as the unsharded
/// program is in the other. If results differ by more, and the run is equal in `f32`, the error
/// that roundings made in the run takes the place of one of the two.
fn emulated_tolerance(
    source: &Plan,
    what: &Executed<'_>,
    options: &RunOptions,
    trace: &Trace,
    expected: &[Expected],
    stated: f64,
) -> Result<f64, RunError> {
    let parameters = parameters_of(source, what.plan(), &trace.parameters)?;
    let finer = reference(source, &parameters, Arithmetic::F32)?;
    let noise = apart(expected, &finer, expected);
    let tolerance = stated + 2.0 * noise;
    if all_equal(trace, expected, tolerance) || options.engine.is_some() {
        return Ok(tolerance);
    }
    let data = |(id, tensor): (&InstrId, &Arc<Tensor>)| {
        Some((what.plan().instruction(*id).name.clone()?, Arc::clone(tensor)))
    };
    let same_data = RunOptions {
        inputs: trace.parameters.iter().filter_map(data).collect(),
        ..options.clone()
    };
    let finer_trace = what.execute(&same_data, Arithmetic::F32)?;
    if !all_equal(&finer_trace, &finer, Arithmetic::F32.tolerance(source)) {
        return Ok(tolerance);
    }
    let of_run = trace.outputs.iter().zip(&finer_trace.outputs).zip(expected);
    let of_run = of_run.map(|((a, b), e)| share_apart(&a.tensor, &b.tensor, e.scale));
    Ok(tolerance.max(stated + noise + of_run.fold(0.0, f64::max)))
}

/// The error that roundings make in a program, unsharded, as a part of the scale of the expected
/// results.
fn magnified(
    program: &Plan,
    plan: &Plan,
    trace: &Trace,
    expected: &[Expected],
    arithmetic: Arithmetic,
) -> Result<f64, RunError> {
    let parameters = parameters_of(program, plan, &trace.parameters)?;
    let rounded = reference(program, &parameters, arithmetic)?;
    match reference(program, &parameters, Arithmetic::Exact) {
        Ok(finer) => Ok(apart(&rounded, &finer, expected)),
        // The exact results are not known.
        Err(RunError::Overflow { .. }) => Ok(0.0),
        Err(error) => Err(error),
    }
}

/// The largest difference between results and others, as a part of the scale of the expected ones.
fn apart(results: &[Expected], others: &[Expected], expected: &[Expected]) -> f64 {
    let off = results.iter().zip(others).zip(expected);
    off.map(|((a, b), e)| share_apart(&a.tensor, &b.tensor, e.scale)).fold(0.0, f64::max)
}

/// The largest difference of two tensors, as a part of a scale.
fn share_apart(a: &Tensor, b: &Tensor, scale: f64) -> f64 {
    let apart = compare(a, b, scale, 0.0).max_abs_err;
    if scale > 0.0 && apart.is_finite() { apart / scale } else { 0.0 }
}

/// The data of a plan's parameters, for the parameters of the same names of `source`.
fn parameters_of(
    source: &Plan,
    plan: &Plan,
    given: &BTreeMap<InstrId, Arc<Tensor>>,
) -> Result<BTreeMap<InstrId, Arc<Tensor>>, RunError> {
    let is_parameter =
        |id: &InstrId| matches!(source.instruction(*id).kind, InstrKind::Parameter(_));
    let data = |id: InstrId| {
        let asked = source.instruction(id);
        let same = |known: &InstrId| {
            let known = plan.instruction(*known);
            (&known.name, &known.dims, known.dtype) == (&asked.name, &asked.dims, asked.dtype)
        };
        let found = given.iter().find(|(known, _)| same(known));
        found
            .map(|(_, data)| (id, data.clone()))
            .ok_or(RunError::Internal("a parameter of the source has no data"))
    };
    source.ids().filter(is_parameter).map(data).collect()
}

/// The first instruction whose value on the devices is wrong. The plan is executed once more, and
/// every value of it compared.
fn locate(
    plan: &Plan,
    options: &RunOptions,
    arithmetic: Arithmetic,
    tolerance: f64,
) -> Result<Option<InstrId>, RunError> {
    let mut all = in_program_order(plan);
    all.frees.iter_mut().for_each(Vec::clear);
    let output = |id: InstrId| PlanOutput {
        name: String::new(),
        id,
        dims: plan.instruction(id).dims.clone(),
        state: false,
    };
    all.plan.outputs = plan.ids().map(output).collect();
    let trace = execute_in(&all, options, arithmetic)?;
    let expected = reference(&all.plan, &trace.parameters, arithmetic)?;
    let wrong = trace
        .outputs
        .iter()
        .zip(&expected)
        .position(|(o, e)| !compare(&o.tensor, &e.tensor, e.scale, tolerance).equal);
    Ok(wrong.map(|at| InstrId(at as u32)))
}

#[cfg(test)]
mod tests {
    use shard_ir::verify::verify;

    use super::*;

    /// Past the verifier, the judge must see by the data alone that something is wrong.
    fn judged(body: &str) -> Result<bool, RunError> {
        let text = format!("shir 1\nlayer l\nmesh x=2, y=2\ndims B=4, E=4, F=4, S=8\n{body}");
        let plan = shard_ir::text::parse(&text)
            .map_err(|_| RunError::Internal("the text of the test"))?
            .remove(0);
        assert!(verify(&plan).is_err());
        let arithmetic = choose(&plan, &RunOptions::default());
        judge(
            &plan,
            &Executed::InOrder(&in_program_order(&plan)),
            &RunOptions::default(),
            arithmetic,
        )
        .map(|r| {
            // The instruction that is wrong is the one named.
            assert!(
                r.equal || r.first_wrong == Some(InstrId(plan.instructions.len() as u32 - 1)),
                "{:?}",
                r.first_wrong
            );
            r.equal
        })
    }

    macro_rules! wrong {
        ($($name:ident: $body:literal;)+) => {$(
            #[test]
            fn $name() {
                let verdict = judged($body);
                assert!(!matches!(verdict, Ok(true)), "{verdict:?}");
            }
        )+};
    }

    wrong! {
        relu_of_a_partial_sum: "%0 = parameter a : f32 BE(partialsum-x)\n%1 = relu %0 : f32 \
            BE(partialsum-x)\nreturn r = %1 : BE(partialsum-x)\n";
        gelu_of_a_partial_sum: "%0 = parameter a : f32 BE(partialsum-x)\n%1 = gelu %0 : f32 \
            BE(partialsum-x)\nreturn r = %1 : BE(partialsum-x)\n";
        neg_of_a_partial_max: "%0 = parameter a : f32 B(partialmax-x)\n%1 = neg %0 : f32 \
            B(partialmax-x)\nreturn r = %1 : B(partialmax-x)\n";
        a_bias_added_on_every_device: "%0 = parameter a : f32 BE(partialsum-x)\n%1 = parameter b \
            : f32 E\n%2 = add %0, %1 : f32 BE(partialsum-x)\nreturn r = %2 : BE(partialsum-x)\n";
        a_forgotten_partial_sum: "%0 = parameter a : f32 BE_x\n%1 = sum %0 over E : f32 B\nreturn \
            r = %1 : B\n";
        a_sum_called_a_maximum: "%0 = parameter a : f32 BE_x\n%1 = sum %0 over E : f32 \
            B(partialmax-x)\nreturn r = %1 : B(partialmax-x)\n";
        a_diagonal_product: "%0 = parameter a : f32 B_xE\n%1 = parameter b : f32 EF_x\n%2 = \
            einsum BE,EF->BF %0, %1 : f32 B_xF\nreturn r = %2 : B_xF\n";
        a_softmax_over_a_split_dim: "%0 = parameter a : f32 BE_x\n%1 = softmax %0 over E : f32 \
            BE_x\nreturn r = %1 : BE_x\n";
        axes_in_the_other_order: "%0 = parameter a : f32 B_xyE\n%1 = relu %0 : f32 B_yxE\nreturn \
            r = %1 : B_yxE\n";
        a_split_value_called_replicated: "%0 = parameter a : f32 BS_x\n%1 = slice-dim %0, S -> F, \
            0 : f32 BF\nreturn r = %1 : BF\n";
        a_max_that_is_finished_before_its_sum: "%0 = parameter a : f32 B(partialsum-x, \
            partialmax-y)\n%1 = all-reduce %0 max over y : f32 B(partialsum-x)\nreturn r = %1 : \
            B(partialsum-x)\n";
    }
}
