//! Holding plans to the `expect` lines of their layers.

use shard_check::Checked;
use shard_check::expectations::Expectation;
use shard_ir::Program;
use shard_report::Layer;

use crate::commands::compile::Compilation;
use crate::console::{Console, Outcome, Status};
use crate::lowering_diagnostics::lower_error;
use crate::pipeline;

/// What the layers of a file expect of their plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// Of each compiled layer.
    of_compiled: Vec<Vec<Expectation>>,
    /// Layers that only other layers need, and that expect something: they are lowered alone for it.
    of_called: Vec<(Program, Vec<Expectation>)>,
}

impl Expected {
    /// What is expected of the layers that are compiled and, unless one was asked for by name, of those that they call.
    pub(crate) fn of(checked: &Checked, compiled: &[&Program], one_by_name: bool) -> Expected {
        let all = || checked.programs.iter().zip(&checked.expectations);
        let is_compiled = |program: &Program| compiled.iter().any(|c| c.name == program.name);
        Expected {
            of_compiled: all().filter(|(p, _)| is_compiled(p)).map(|(_, expected)| expected.clone()).collect(),
            of_called: all()
                .filter(|(program, expected)| !one_by_name && !is_compiled(program) && !expected.is_empty())
                .map(|(program, expected)| (program.clone(), expected.clone()))
                .collect(),
        }
    }
}

/// Reports every expectation that a plan does not meet.
pub(crate) fn hold(compilation: &Compilation, console: &mut Console) -> Outcome {
    let mut found = Vec::new();
    for (layer, expected) in compilation.layers().iter().zip(&compilation.expected.of_compiled) {
        found.extend(shard_report::expectations::unmet(layer, expected));
    }
    if let (Some((hardware, _)), Some(source)) = (compilation.compiled.first(), &compilation.source) {
        for (program, expected) in &compilation.expected.of_called {
            match pipeline::compile(program, hardware, &compilation.options) {
                Ok(compiled) => {
                    let layer = Layer {
                        schedule: &compiled.schedule,
                        price: &compiled.price,
                        hardware,
                        objective: compilation.objective,
                        optimality: compiled.optimality.as_ref(),
                        source: Some(source),
                        alternatives: &[],
                    };
                    found.extend(shard_report::expectations::unmet(&layer, expected));
                }
                Err(error) => {
                    let header = expected.first().map(|e| e.span);
                    found.extend(lower_error(Some((source, program)), header, error));
                }
            }
        }
    }
    found.sort_by_key(|d| d.primary_span());
    let met = !found.iter().any(shard_check::Diagnostic::is_error);
    console.report(compilation.source.as_ref(), found);
    if met { Ok(()) } else { Err(Status::Wrong) }
}
