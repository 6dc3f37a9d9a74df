//! Lower bounds on all plans of a layer, without a search for a plan.

use shard_check::Diagnostic;
use shard_ir::Program;
use shard_search::{LowerBound, LowerOptions};

use crate::compile::{CompileOptions, Sound, layer_header};
use crate::host::{Host, Outcome, Share, Status};
use crate::lowering_diagnostics::lower_error;
use crate::objectives;

/// Bounds the layers of a file, each phase by itself: no plan of a phase is faster for storing its
/// weights as the other phases do.
pub fn bounds<'s>(
    sound: &'s Sound,
    asked: &CompileOptions,
    host: &mut dyn Host,
) -> Outcome<Vec<(&'s Program, LowerBound)>> {
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut bounds = Vec::new();
    let wanted: Vec<&Program> =
        sound.programs.iter().filter(|program| asked.wants(program)).collect();
    for (at, program) in wanted.iter().enumerate() {
        let pass = host.begin(
            "bound",
            format!("`{}`", program.name),
            Share { part: 1, whole: wanted.len() - at },
        );
        let mut options = LowerOptions {
            strict: asked.check.strict,
            fuse: asked.fuse,
            objective: asked.objective,
            ..LowerOptions::default()
        };
        options.limits.stop = pass.stop();
        match objectives::lower_bound(program, &sound.hardware, &options) {
            Ok(bound) => bounds.push((*program, bound)),
            Err(error) => found.extend(lower_error(
                Some((&sound.file, program)),
                layer_header(&sound.tree, &program.name),
                error,
            )),
        }
    }
    let wrong = found.iter().any(Diagnostic::is_error);
    host.report(Some(&sound.file), found);
    if wrong { Err(Status::Wrong) } else { Ok(bounds) }
}
