//! Holding plans to the `expect` lines of their layers.

use shard_check::expectations::Expectation;
use shard_check::{Checked, Diagnostic};
use shard_ir::Program;
use shard_report::Layer;

use crate::compile::Compilation;
use crate::host::{Host, Outcome, Status};
use crate::lowering_diagnostics::lower_error;
use crate::pipeline;

/// What the layers of a file expect of their plans.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The expectations of each compiled layer.
    of_compiled: Vec<Vec<Expectation>>,
    /// Layers with expectations that are only called by others: each is lowered by itself for them.
    of_called: Vec<(Program, Vec<Expectation>)>,
}

impl Expected {
    /// The expectations of the layers that are compiled, and of those called layers that `called`
    /// wants. A layer has a plan for each phase, and its expectations are about each.
    pub fn of<'p>(
        checked: &Checked,
        compiled: impl Iterator<Item = &'p Program>,
        called: impl Fn(&Program) -> bool,
    ) -> Expected {
        let all = || checked.programs.iter().zip(&checked.expectations);
        let same = |a: &Program, b: &Program| a.name == b.name && a.phase == b.phase;
        let (mut of_compiled, mut seen) = (Vec::new(), Vec::new());
        for program in compiled {
            of_compiled.push(
                all()
                    .find(|(p, _)| same(p, program))
                    .map_or(Vec::new(), |(_, found)| found.clone()),
            );
            seen.push(program);
        }
        let of_called = all()
            .filter(|(program, expected)| {
                !expected.is_empty()
                    && called(program)
                    && !seen.iter().any(|other| same(program, other))
            })
            .map(|(program, expected)| (program.clone(), expected.clone()))
            .collect();
        Expected { of_compiled, of_called }
    }
}

/// Reports every expectation that a plan does not meet.
pub fn hold(compilation: &Compilation, host: &mut dyn Host) -> Outcome {
    let mut found = Vec::new();
    for (layer, expected) in compilation.layers().iter().zip(&compilation.expected.of_compiled) {
        found.extend(unmet(layer, expected));
    }
    if let (Some((hardware, _)), Some(source)) = (compilation.compiled.first(), &compilation.source)
    {
        for (program, expected) in &compilation.expected.of_called {
            match pipeline::compile(program, hardware, &compilation.options) {
                Ok(compiled) => {
                    found.extend(unmet(&compilation.layer_of(hardware, &compiled), expected));
                }
                Err(error) => {
                    let header = expected.first().map(|e| e.span);
                    found.extend(lower_error(Some((source, program)), header, error));
                }
            }
        }
    }
    found.sort_by_key(|d| d.primary_span());
    let met = !found.iter().any(Diagnostic::is_error);
    host.report(compilation.source.as_ref(), found);
    if met { Ok(()) } else { Err(Status::Wrong) }
}

fn unmet(layer: &Layer<'_>, expected: &[Expectation]) -> Vec<Diagnostic> {
    let mut found = shard_report::expectations::unmet(layer, expected);
    if let Some(phase) = &layer.plan().phase {
        found.iter_mut().for_each(|d| d.notes.push(format!("in phase `{}`", phase)));
    }
    found
}
