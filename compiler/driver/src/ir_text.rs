//! Plans that are given as IR text: nothing is searched for, and no option may ask for that.

use std::path::Path;

use shard_check::CheckOptions;
use shard_cost::Objective;
use shard_ir::Plan;
use shard_report::layout_notation::Notation;
use shard_search::LowerOptions;

use crate::compile::{Compilation, CompileOptions, limited, require_layer, require_phase};
use crate::expected::Expected;
use crate::hardware_choice;
use crate::host::{Host, Outcome, Status};
use crate::lowering_diagnostics::lower_error;
use crate::pipeline;

/// Whether there are the plans, and the chip, that options ask for.
pub fn check(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome {
    if let Some(name) = &asked.hardware {
        hardware_choice::from_command_line(name, host)?;
    }
    chosen(path, plans, asked, host).map(|_| ())
}

/// The plans of IR text that are asked for; options that no plan can follow are refused.
fn chosen(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<Vec<Plan>> {
    let message = match asked {
        _ if asked.check != CheckOptions::default() || asked.fuse || asked.two_kinds => {
            "-D, --mesh, --strict, --fuse and --two-kinds change a program or its plan, and IR \
                text is lowered already"
        }
        _ if asked.objective == Objective::Memory => {
            "--objective memory looks for a plan, and IR text is one already"
        }
        _ => "",
    };
    if !message.is_empty() {
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

/// The plans that are asked for, priced.
pub(crate) fn compile(
    path: &Path,
    plans: Vec<Plan>,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<Compilation> {
    let mut compiled = Vec::new();
    for plan in chosen(path, plans, asked, host)? {
        let hardware = match (&asked.hardware, &plan.hardware) {
            (Some(name), _) => hardware_choice::from_command_line(name, host)?,
            (None, Some(name)) => hardware_choice::from_plan(name, path, host)?,
            (None, None) => return Err(hardware_choice::none(host)),
        };
        let hardware = limited(hardware, asked);
        match pipeline::compile_plan(plan, &hardware, None, asked.objective) {
            Ok(layer) => compiled.push((hardware, layer)),
            Err(error) => {
                host.report(None, lower_error(None, None, error));
                return Err(Status::Wrong);
            }
        }
    }
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
