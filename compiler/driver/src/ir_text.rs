//! Plans that are given as IR text. Nothing is searched for, and options that ask for a search are
//! refused.

use std::path::Path;

use shard_check::CheckOptions;
use shard_check::diagnostics::InputProblem;
use shard_cost::{Bytes, Hardware, Memory, Objective};
use shard_ir::Plan;
use shard_report::layout_notation::Notation;
use shard_search::LowerOptions;

use crate::compile::{Compilation, CompileOptions, Purpose, limited, require_layer, require_phase};
use crate::expected::Expected;
use crate::hardware_choice;
use crate::host::{Host, Outcome, Status};
use crate::lowering_diagnostics::{lower_error, no_host_of_plan};
use crate::pipeline::{self, Compiled};

/// Checks that there are the plans, the chip and the memory that the options ask for.
pub fn check(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome {
    if let Some(name) = &asked.hardware {
        hardware_choice::from_command_line(name, host)?;
    }
    let plans = chosen(path, plans, asked, host)?;
    if asked.memory_limit.is_none() {
        return Ok(());
    }
    let mut outcome = Ok(());
    for plan in plans {
        let has_room = match asked.hardware.as_ref().or(plan.hardware.as_ref()) {
            Some(_) => {
                let (_, layer) = priced(path, plan, asked, host)?;
                has_room(&layer.schedule.plan, peak(&layer, asked.objective), asked, host)
            }
            // The bytes that a plan holds do not depend on a chip.
            None => has_room(&plan, Memory::of(&plan).peak(), asked, host),
        };
        outcome = outcome.and(has_room);
    }
    outcome
}

/// Refuses a plan with more bytes at the peak than the memory limit. Without a limit a plan that is
/// too large for its chip passes: reports say that it does not fit.
fn has_room(plan: &Plan, peak: Bytes, asked: &CompileOptions, host: &mut dyn Host) -> Outcome {
    let Some(limit) = asked.memory_limit.filter(|limit| peak.0 > *limit) else { return Ok(()) };
    let (layer, phase, peak) = (plan.name.clone(), plan.phase.clone(), peak.0);
    host.report(None, vec![InputProblem::NoRoom { layer, phase, peak, limit }.into()]);
    Err(Status::Wrong)
}

/// What a device holds at the peak, as reports count it.
fn peak(layer: &Compiled, objective: Objective) -> Bytes {
    match objective {
        Objective::Overlap => Bytes(layer.timeline.whole().peak_bytes),
        Objective::Serial | Objective::Comm | Objective::Memory => layer.price.memory.peak(),
    }
}

/// The plans of IR text that are asked for; options that no plan can follow are refused.
fn chosen(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<Vec<Plan>> {
    if asked.check != CheckOptions::default() || asked.fuse || asked.two_kinds {
        let message = "-D, --mesh, --strict, --fuse and --two-kinds change a program or its plan, \
                       and IR text is lowered already";
        return Err(host.usage(message, None));
    }
    if asked.objective == Objective::Memory {
        let message = "--objective memory looks for a plan, and IR text is one already";
        return Err(host.usage(message, None));
    }
    require_phase(asked, plans.iter().map(|p| p.phase.as_deref()), path, host)?;
    let plans: Vec<Plan> =
        plans.into_iter().filter(|p| asked.phase.is_none() || p.phase == asked.phase).collect();
    let names: Vec<String> = plans.iter().map(|p| p.name.clone()).collect();
    Ok(match &asked.layer {
        None => plans,
        Some(layer) => {
            require_layer(layer, &names, path, host)?;
            plans.into_iter().filter(|p| p.name == *layer).collect()
        }
    })
}

/// A plan with its prices on the chip that is named for it.
fn priced(
    path: &Path,
    plan: Plan,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<(Hardware, Compiled)> {
    let hardware = match (&asked.hardware, &plan.hardware) {
        (Some(name), _) => hardware_choice::from_command_line(name, host)?,
        (None, Some(name)) => hardware_choice::from_plan(name, path, host)?,
        (None, None) => return Err(hardware_choice::none(host)),
    };
    let hardware = limited(hardware, asked);
    if let Some(problem) = no_host_of_plan(&plan, &hardware) {
        host.report(None, vec![problem]);
        return Err(Status::Wrong);
    }
    match pipeline::compile_plan(plan, &hardware, None, asked.objective) {
        Ok(layer) => Ok((hardware, layer)),
        Err(error) => {
            host.report(None, lower_error(None, None, error));
            Err(Status::Wrong)
        }
    }
}

/// The plans that are asked for, priced. A plan that is to be run may have any size, since its dims
/// are made small.
pub(crate) fn compile(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    purpose: Purpose,
    host: &mut dyn Host,
) -> Outcome<Compilation> {
    let mut compiled = Vec::new();
    let mut outcome = Ok(());
    for plan in chosen(path, plans, asked, host)? {
        let (hardware, layer) = priced(path, plan, asked, host)?;
        if purpose != Purpose::Run {
            let (plan, peak) = (&layer.schedule.plan, peak(&layer, asked.objective));
            outcome = outcome.and(has_room(plan, peak, asked, host));
        }
        compiled.push((hardware, layer));
    }
    outcome?;
    Ok(Compilation {
        source: None,
        objective: asked.objective,
        sharing: vec![None; compiled.len()],
        compiled,
        alternatives: Vec::new(),
        overlap_choices: Vec::new(),
        paddings: Vec::new(),
        programs: Vec::new(),
        options: LowerOptions::default(),
        expected: Expected::default(),
        notation: Notation::default(),
    })
}
