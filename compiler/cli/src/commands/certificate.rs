//! `shardc explain FILE --certificate OUT`.

use std::path::Path;

use shard_check::diagnostics::InternalProblem;
use shard_cost::Objective;
use shard_rewrite::Limits;
use shard_rewrite::certificate::{Inputs, certify};

use crate::args::ProgramArgs;
use crate::commands::compile::{Compilation, check_options};
use crate::console::{Console, Outcome, Status};
use crate::hardware_choice;
use crate::output;

/// Writes the certificate of compiled layers.
pub(crate) fn write(out: &Path, compilation: &Compilation, args: &ProgramArgs, console: &mut Console) -> Outcome {
    let Some(source) = &compilation.source else {
        return Err(console.usage("a certificate is one of a source file: IR text says nothing of other plans", None));
    };
    if compilation.compiled.iter().any(|(_, compiled)| compiled.schedule.plan.phase.is_some()) {
        let help = "give the dims of one phase the sizes of their `dim` lines, without `phase`";
        return Err(console.usage("a certificate is of a file without phases", Some(help.to_string())));
    }
    if args.objective != Objective::Serial {
        let help = "--objective serial".to_string();
        return Err(console.usage("a certificate is of the serial time", Some(help)));
    }
    let options = check_options(args, console)?;
    let inputs = Inputs {
        file: source.name.clone(),
        source: source.text.clone(),
        dims: options.dim_overrides,
        mesh: options.mesh_override,
        strict: options.strict,
        fuse: args.fuse,
        hardware: hardware_choice::text(args.hardware.as_deref(), source, console)?,
    };
    let layers: Vec<_> = compilation
        .compiled
        .iter()
        .filter_map(|(_, compiled)| Some((&compiled.schedule.plan, compiled.optimality.as_ref()?)))
        .collect();
    let certificate = certify(inputs, &layers, &Limits::default()).map_err(|error| {
        let problem = InternalProblem { pass: "certifying".to_string(), message: error.to_string(), span: None };
        console.report(Some(source), vec![problem.into()]);
        Status::Wrong
    })?;
    output::replace_text(out, &certificate.text())
        .map_err(|why| console.usage(&format!("cannot write `{}`: {why}", out.display()), None))
}
