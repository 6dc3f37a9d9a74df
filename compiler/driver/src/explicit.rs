//! `shardc fmt --explicit`: the chosen plans as a strict file, which is lowered and compared before
//! anything is written.

use std::collections::BTreeSet;

use shard_check::diagnostics::QuestionProblem;
use shard_check::{CheckOptions, Diagnostic};
use shard_cost::Hardware;
use shard_cost::hardware::BUILT_IN;
use shard_grammar::SourceFile;
use shard_ir::{Collective, InstrId, InstrKind, Plan};
use shard_report::explicit::{Overrides, difference, explicit, made_dims};
use shard_report::notation::phrase;
use shard_search::LowerOptions;

use crate::compile::{Compilation, CompileOptions};
use crate::host::{Host, Outcome, Status};
use crate::pipeline;

/// The source of a compilation, and its plans as a strict file.
pub fn strict_file(
    compilation: &Compilation,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<(SourceFile, String)> {
    let Some(source) = compilation.source.clone() else {
        return Err(host.usage(
            "IR text states every collective already: `fmt --explicit` takes a source file",
            None,
        ));
    };
    let overrides = overrides(asked);
    let plans: Vec<&Plan> = compilation.compiled.iter().map(|(_, c)| &c.schedule.plan).collect();
    if let Some(phase) =
        plans.iter().find_map(|p| p.phase.as_ref()).filter(|_| asked.phase.is_none())
    {
        let message =
            format!("`{}` has a plan for each phase, and a strict file states one", source.name);
        return Err(host.usage(&message, Some(format!("--phase {phase}"))));
    }
    if let Some(model) = plans.iter().find(|plan| !plan.folds.is_empty()) {
        // A stack of several kinds is several folded blocks of one layer.
        let layers: BTreeSet<&str> = model.folds.iter().map(|fold| fold.layer.as_str()).collect();
        let layers: Vec<String> = layers.iter().map(|layer| format!("--layer {layer}")).collect();
        let reason = format!(
            "a model is written layer by layer: {}, and the layers before and behind it",
            layers.join(", ")
        );
        let problem =
            QuestionProblem::NotExplicit { layer: model.name.clone(), span: None, reason };
        host.report(Some(&source), vec![problem.into()]);
        return Err(Status::Wrong);
    }
    let text = explicit(&source, &plans, &overrides).map_err(|errors| {
        host.report(Some(&source), errors.iter().map(Diagnostic::from).collect());
        Status::Wrong
    })?;
    for (hardware, compiled) in &compilation.compiled {
        let plan = &compiled.schedule.plan;
        let is_loop =
            |id: &InstrId| matches!(plan.instruction(*id).kind, InstrKind::CollectiveEinsum(_));
        if let Some(id) = plan.ids().find(is_loop) {
            let reason = format!(
                "no `reshard` can stand for what is done inside a loop: {}",
                phrase(plan, id)
            );
            let span = plan.instruction(id).origin.span;
            let problem = QuestionProblem::NotExplicit { layer: plan.name.clone(), span, reason };
            host.report(Some(&source), vec![problem.into()]);
            return Err(Status::Wrong);
        }
        let is_merge = |id: &InstrId| {
            matches!(plan.instruction(*id).kind, InstrKind::Move(Collective::SoftmaxMerge { .. }))
        };
        if let Some(id) = plan.ids().find(is_merge) {
            let reason = format!(
                "no type states the attention over a part of the keys, so no `reshard` can stand \
                    for what merges them: {}",
                phrase(plan, id)
            );
            let span = plan.instruction(id).origin.span;
            let problem = QuestionProblem::NotExplicit { layer: plan.name.clone(), span, reason };
            host.report(Some(&source), vec![problem.into()]);
            return Err(Status::Wrong);
        }
        if let Err(reason) = gives(&text, plan, hardware) {
            let problem =
                QuestionProblem::NotExplicit { layer: plan.name.clone(), span: None, reason };
            host.report(Some(&source), vec![problem.into()]);
            return Err(Status::Wrong);
        }
    }
    Ok((source, text))
}

/// What the options change of a file, as it is written into a strict one.
pub fn overrides(asked: &CompileOptions) -> Overrides {
    let mesh = asked.check.mesh_override.as_ref().map(|axes| {
        let axes: Vec<String> = axes.iter().map(|(name, size)| format!("{name}={size}")).collect();
        axes.join(", ")
    });
    let built_in = |name: &&String| BUILT_IN.iter().any(|chip| chip.name == **name);
    let hardware = asked.hardware.as_ref().filter(built_in).cloned();
    Overrides {
        dims: asked.check.dim_overrides.clone(),
        mesh,
        hardware,
        phase: asked.phase.clone(),
    }
}

/// The layer of a plan as a strict layer that lowers to that plan, with the `dim` lines that it
/// needs; `None` where there is no such text.
pub fn strict_layer(
    source: &SourceFile,
    plan: &Plan,
    hardware: &Hardware,
    overrides: &Overrides,
) -> Option<String> {
    if !plan.folds.is_empty() {
        return None;
    }
    let text = explicit(source, &[plan], overrides).ok()?;
    gives(&text, plan, hardware).ok()?;
    let tree = shard_grammar::parse(&SourceFile::new("", text.clone())).file;
    let layer = tree.layers().find(|layer| layer.name.value == plan.name)?;
    let of_source = shard_grammar::parse(source).file;
    let layer = text.get(layer.span.start..layer.span.end)?;
    Some(format!("{}{layer}", made_dims(&of_source, &[plan])))
}

/// Checks that a text has a strict layer that lowers to this plan on this chip.
fn gives(text: &str, plan: &Plan, hardware: &Hardware) -> Result<(), String> {
    let checked = pipeline::check(&SourceFile::new("", text), &CheckOptions::default());
    if let Some(error) = checked.diagnostics.iter().find(|d| d.is_error()) {
        return Err(format!("what was written does not check: {}", error.message));
    }
    let program = checked.programs.iter().find(|p| p.name == plan.name && p.strict);
    let program = program.ok_or("what was written has no such strict layer")?;
    let written = pipeline::compile(program, hardware, &LowerOptions::default())
        .map_err(|error| format!("what was written does not lower: {error:?}"))?;
    match difference(plan, &written.schedule.plan) {
        None => Ok(()),
        Some(what) => Err(format!("what was written lowers otherwise: {what}")),
    }
}
