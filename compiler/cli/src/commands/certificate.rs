//! `shardc explain FILE --certificate OUT`.

use std::path::Path;

use shard_check::diagnostics::InternalProblem;
use shard_cost::Objective;
use shard_rewrite::certificate::{Found, Inputs, certify};
use shard_rewrite::{Limits, Status};

use crate::args::ProgramArgs;
use crate::commands::compile::{Compilation, check_options};
use crate::console::{self, Console, Outcome};
use crate::hardware_choice;
use crate::output;

/// Writes the certificate of compiled layers.
pub(crate) fn write(out: &Path, compilation: &Compilation, args: &ProgramArgs, console: &mut Console) -> Outcome {
    let Some(source) = &compilation.source else {
        return Err(console.usage("a certificate is one of a source file: IR text says nothing of other plans", None));
    };
    if args.phase.is_some() {
        let help = "leave out `--phase`: the phases share their weights".to_string();
        return Err(console.usage("a certificate is of all phases together", Some(help)));
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
        memory_limit: args.memory_limit,
        hardware: hardware_choice::text(args.hardware.as_deref(), source, console)?,
    };
    let layers = found(compilation);
    let certificate = certify(inputs, &layers, &Limits::default()).map_err(|error| {
        let problem = InternalProblem { pass: "certifying".to_string(), message: error.to_string(), span: None };
        console.report(Some(source), vec![problem.into()]);
        console::Status::Wrong
    })?;
    output::replace_text(out, &certificate.text())
        .map_err(|why| console.usage(&format!("cannot write `{}`: {why}", out.display()), None))
}

/// The plans of each layer, of all phases together: they are proven if each is, and the weights that they share.
fn found(compilation: &Compilation) -> Vec<Found<'_>> {
    let mut all: Vec<Found<'_>> = Vec::new();
    for layer in compilation.layers() {
        let Some(optimality) = layer.optimality else { continue };
        let (plan, request) = (&layer.schedule.plan, layer.sharing.map(|sharing| sharing.shared.request.status));
        let proven = optimality.status == Status::Proven && request.is_none_or(|status| status == Status::Proven);
        let status = if proven { Status::Proven } else { Status::Bounded };
        match all.iter_mut().find(|found| found.plans[0].name == plan.name) {
            Some(found) => {
                found.plans.push(plan);
                found.status = if proven { found.status } else { Status::Bounded };
            }
            None => all.push(Found { plans: vec![plan], status }),
        }
    }
    all
}
