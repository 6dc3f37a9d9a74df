//! The certificate of compiled layers: why no plan takes less time.

use shard_check::diagnostics::InternalProblem;
use shard_cost::Objective;
use shard_search::certificate::{Found, Inputs, certify};
use shard_search::{Limits, Status as Proven};

use crate::compile::{Compilation, CompileOptions};
use crate::hardware_choice;
use crate::host::{Host, Outcome, Share, Status};

/// The certificate of compiled layers, as text.
pub fn certificate(
    compilation: &Compilation,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<String> {
    let Some(source) = &compilation.source else {
        return Err(host.usage(
            "a certificate is one of a source file: IR text says nothing of other plans",
            None,
        ));
    };
    if asked.phase.is_some() {
        let help = "leave out `--phase`: the phases share their weights".to_string();
        return Err(host.usage("a certificate is of all phases together", Some(help)));
    }
    if asked.objective != Objective::Serial {
        let help = "--objective serial".to_string();
        return Err(host.usage("a certificate is of the serial time", Some(help)));
    }
    let inputs = Inputs {
        file: source.name.clone(),
        source: source.text.clone(),
        dims: asked.check.dim_overrides.clone(),
        mesh: asked.check.mesh_override.clone(),
        strict: asked.check.strict,
        fuse: asked.fuse,
        memory_limit: asked.memory_limit,
        hardware: hardware_choice::text(asked.hardware.as_deref(), source, host)?,
    };
    let layers = found(compilation);
    let pass = host.begin("certificate", "the certificate".to_string(), Share::ALL);
    let limits = Limits { stop: pass.stop(), ..Limits::default() };
    let certificate = certify(inputs, &layers, &limits).map_err(|error| {
        let problem = InternalProblem {
            pass: "certifying".to_string(),
            message: error.to_string(),
            span: None,
        };
        host.report(Some(source), vec![problem.into()]);
        Status::Wrong
    })?;
    Ok(certificate.text())
}

/// The plans of each layer, those of all phases together. They count as proven if each is, and the
/// stored layouts that they share.
fn found(compilation: &Compilation) -> Vec<Found<'_>> {
    let mut all: Vec<Found<'_>> = Vec::new();
    for layer in compilation.layers() {
        let Some(optimality) = layer.optimality else { continue };
        let (plan, request) =
            (&layer.schedule.plan, layer.sharing.map(|sharing| sharing.shared.request.status));
        let proven = optimality.status == Proven::Proven
            && request.is_none_or(|status| status == Proven::Proven);
        let status = if proven { Proven::Proven } else { Proven::Bounded };
        match all.iter_mut().find(|found| found.plans[0].name == plan.name) {
            Some(found) => {
                found.plans.push(plan);
                found.status = if proven { found.status } else { Proven::Bounded };
            }
            None => all.push(Found { plans: vec![plan], status }),
        }
    }
    all
}
