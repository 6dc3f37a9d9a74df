//! `.shir` files: read, verified, printed, priced, scheduled, reported, shrunk and executed.

use shard_cost::{Hardware, Objective};
use shard_driver::lowering_diagnostics::no_host_of_plan;
use shard_driver::pipeline::{self, CompileError, Compiled};
use shard_grammar::SourceFile;
use shard_ir::{Plan, Program, text, verify};
use shard_report::Layer;
use shard_report::layout_notation::Notation;
use shard_report::paint::Paint;
use shard_runtime::{Random, RunError, RunOptions, bytes_needed, work_needed};

use super::{Depth, Mutator, Shardc, Surface, Verdict, hash, text_of, well_formed, words};
use crate::files::{read, root};
use crate::judge::lower_all;
use crate::random_programs::generate;

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "shir", extension: "shir", corpus, make, judge };

/// The most bytes and multiplications of a plan that is executed.
const MAX_BYTES: u128 = 8 << 20;
const MAX_WORK: u128 = 1 << 20;

/// A plan with every move, those of the parser's tests, and plans of random programs.
fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let written = ["compiler/cli/tests/files/every_move.shir", "compiler/ir/tests/plans.shir"];
    let mut texts: Vec<String> = written.iter().map(|path| read(&root().join(path))).collect();
    texts.extend(text::parse(&texts[1]).iter().flatten().map(text::print));
    let accepted = |seed: &u64| !crate::judge::check(&generate(*seed)).has_errors();
    let plans = (0..80).filter(accepted).flat_map(|seed| lower_all(&generate(seed)));
    texts.extend(plans.map(|plan| text::print(&plan)));
    texts.into_iter().map(String::into_bytes).collect()
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    Mutator::new(random, corpus, words::SHIR).text().into_bytes()
}

fn judge(_: &Shardc, case: &[u8]) -> Verdict {
    let file = SourceFile::new("case.shir", text_of(case));
    let plans = match text::parse(&file.text) {
        Ok(plans) => plans,
        Err(error) => {
            well_formed::within(&file, error.span)
                .map_err(|why| format!("an error of the parser {why}"))?;
            let columns =
                file.text.lines().nth(error.line - 1).map_or(0, |line| line.chars().count());
            let right =
                error.column >= 1 && error.column <= columns + 2 && !error.message.is_empty();
            return right.then_some(Depth::Refused).ok_or(format!("{error}: no such column"));
        }
    };
    let mut depth = Depth::Refused;
    for plan in plans.iter().take(8) {
        match verify::verify(plan) {
            Ok(()) => depth = depth.max(accepted(plan, hash(case))?),
            Err(errors) if errors.is_empty() => {
                return Err("refused by the verifier without a reason".to_string());
            }
            Err(errors) => drop(errors.iter().map(ToString::to_string).collect::<Vec<_>>()),
        }
    }
    Ok(depth)
}

/// A plan that the verifier accepts.
fn accepted(plan: &Plan, hash: u64) -> Verdict {
    let named = plan.hardware.as_deref().and_then(Hardware::built_in);
    let hardware =
        named.or_else(|| Hardware::built_in("tpu-v4-flat")).ok_or("a built-in chip is gone")?;
    // The driver refuses such a plan, too.
    if no_host_of_plan(plan, &hardware).is_some() {
        return Ok(Depth::Refused);
    }
    match pipeline::compile_plan(plan.clone(), &hardware, None, Objective::Serial) {
        Ok(compiled) => whole_pipeline(None, &compiled, &hardware, Objective::Serial, hash),
        Err(CompileError::Internal(problem)) => {
            Err(format!("internal: {}: {}", problem.pass, problem.message))
        }
        Err(CompileError::Lower(error)) => Err(format!("a plan was lowered again: {error}")),
    }
}

/// Everything that is claimed of a compiled layer, from whatever source.
pub(super) fn whole_pipeline(
    source: Option<(&SourceFile, &Program)>,
    compiled: &Compiled,
    hardware: &Hardware,
    objective: Objective,
    hash: u64,
) -> Verdict {
    let plan = &compiled.schedule.plan;
    let printed = text::print(plan);
    let parsed = text::parse(&printed)
        .map_err(|error| format!("its text is not read back: {error}\n{printed}"))?;
    let [again] = parsed.as_slice() else {
        return Err(format!("its text holds {} plans", parsed.len()));
    };
    verify::verify(again)
        .map_err(|errors| format!("its text is refused: {}\n{printed}", errors[0]))?;
    if text::print(again) != printed {
        return Err(format!(
            "its text reads back as another plan:\n{printed}\n{}",
            text::print(again)
        ));
    }
    let layer = Layer {
        schedule: &compiled.schedule,
        price: &compiled.price,
        timeline: &compiled.timeline,
        hardware,
        objective,
        optimality: compiled.optimality.as_ref(),
        least_bytes: compiled.least_bytes,
        source: source.map(|(file, _)| file),
        sharing: None,
        alternatives: &[],
        overlap_choice: None,
        paddings: &[],
        notation: Notation::ALL[(hash % Notation::ALL.len() as u64) as usize],
    };
    reported(&layer)?;
    executed(source.map(|(_, program)| program), compiled, hardware, hash)
}

/// Every report of a layer can be written, and JSON is JSON.
fn reported(layer: &Layer<'_>) -> Result<(), String> {
    let layers = [*layer];
    for width in [20, 80] {
        shard_report::explain::explain_within(&layers, width);
    }
    shard_report::html::html(&layers);
    shard_report::dot::dot(&layers);
    for id in layer.plan().ids() {
        shard_report::formula::why(layer, id, Paint(false));
    }
    for document in
        [shard_report::json::explain::explain(&layers), shard_report::json::explain::lower(&layers)]
    {
        serde_json::from_str::<serde_json::Value>(&document)
            .map_err(|error| format!("no JSON: {error}"))?;
    }
    Ok(())
}

/// A shrunk plan that takes little work is executed: it gives the results of the unsharded program,
/// and sends the bytes of the cost model.
fn executed(
    program: Option<&Program>,
    compiled: &Compiled,
    hardware: &Hardware,
    hash: u64,
) -> Verdict {
    let small = shard_runtime::shrink(&compiled.schedule.plan);
    verify::verify(&small).map_err(|errors| format!("shrunk, it is refused: {}", errors[0]))?;
    if bytes_needed(&small) > MAX_BYTES || work_needed(&small) > MAX_WORK {
        return Ok(Depth::Accepted);
    }
    let options =
        RunOptions { seed: hash, emulate_dtypes: hash % 11 == 1, ..RunOptions::default() };
    let ran = match pipeline::run(program, compiled, hardware, false, &options) {
        Ok(ran) => ran,
        Err(RunError::TooLarge { .. } | RunError::TooLong { .. } | RunError::TooMany { .. }) => {
            return Ok(Depth::Accepted);
        }
        Err(
            error @ (RunError::Invalid(_)
            | RunError::Input { .. }
            | RunError::Overflow { .. }
            | RunError::Schedule { .. }
            | RunError::Race { .. }
            | RunError::ReplicasDiffer { .. }
            | RunError::Engine(_)
            | RunError::Internal(_)),
        ) => return Err(format!("it does not run: {error}\n{}", text::print(&small))),
    };
    let report = &ran.report;
    if !report.equal {
        let (off, of) = (report.max_abs_err, report.scale());
        return Err(format!("it differs by {off:e} of {of:e}\n{}", text::print(&ran.plan)));
    }
    for trace in &report.collectives {
        let said = ran.price.of(trace.id).collective().map(|cost| cost.wire_bytes.0);
        if said != Some(trace.wire_bytes) {
            let (id, sent) = (trace.id.0, trace.wire_bytes);
            return Err(format!(
                "%{id} sent {sent} bytes, and the model says {said:?}\n{}",
                text::print(&ran.plan)
            ));
        }
    }
    Ok(Depth::Executed)
}
