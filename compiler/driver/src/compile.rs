//! From a source file, or IR text, to compiled layers, with everything reported that is found on
//! the way.

use std::path::Path;

use shard_check::{CheckOptions, Diagnostic, Severity};
use shard_cost::{Hardware, Objective};
use shard_grammar::{SourceFile, ast};
use shard_ir::Program;
use shard_report::layout_notation::Notation;
use shard_report::overlap_choice::OverlapChoice;
use shard_report::padding::Padding;
use shard_report::printable::{escape_plan, escaped_name};
use shard_report::{Layer, Sharing};
use shard_search::{Alternative, Detail, LowerError, LowerOptions};

use crate::expected::Expected;
use crate::host::{Host, Outcome, Share, Status, problem};
use crate::input::Input;
use crate::ir_text;
use crate::lowering_diagnostics::{axis_orders, lower_error};
use crate::objectives;
use crate::padding::paddings;
use crate::phases::SharedBy;
use crate::pipeline::{self, CompileError, Compiled};
pub use crate::sound::{Sound, check_source};

/// What is compiled of a file, and for what.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// The layer; `None`: every layer that no other layer calls.
    pub layer: Option<String>,
    /// The phase; `None`: all phases of the file.
    pub phase: Option<String>,
    /// What is changed of the file: sizes of dims, the mesh, and whether every layer is strict.
    pub check: CheckOptions,
    /// The chip, a built-in name or a hardware file; `None`: the one that the file names.
    pub hardware: Option<String>,
    /// What plans are chosen for.
    pub objective: Objective,
    /// Bytes that a device has for the program; `None`: all that the chip has.
    pub memory_limit: Option<u64>,
    /// Whether einsums may do a collective inside their loop.
    pub fuse: bool,
    /// Whether the layers of a stack may be of two kinds.
    pub two_kinds: bool,
}

impl CompileOptions {
    /// Whether a program is of the phase that is wanted.
    pub fn wants(&self, program: &Program) -> bool {
        self.phase.is_none() || program.phase.as_ref().map(|p| &p.name) == self.phase.as_ref()
    }
}

/// The compiled layers of one file.
pub struct Compilation {
    /// The source; none for IR text.
    pub source: Option<SourceFile>,
    /// What the plans were chosen for.
    pub objective: Objective,
    /// Each layer with the chip that it was compiled for.
    pub compiled: Vec<(Hardware, Compiled)>,
    /// For each layer of a phase, the choice of stored layouts that it shares with other phases,
    /// and its place among these.
    pub(crate) sharing: Vec<Option<SharedBy>>,
    /// For each layer the alternatives to its collectives, where these were asked for.
    pub(crate) alternatives: Vec<Vec<Alternative>>,
    /// For each layer what `--objective overlap` would choose, where that was asked for.
    pub(crate) overlap_choices: Vec<OverlapChoice>,
    /// For each layer the paddings that make its plan faster, where that was asked for.
    pub(crate) paddings: Vec<Vec<Padding>>,
    /// The program of each layer; none for IR text.
    pub programs: Vec<Program>,
    /// The options with which they were lowered, for questions about their plans.
    pub options: LowerOptions,
    /// What the layers expect of their plans.
    pub expected: Expected,
    /// How layouts are written for people.
    pub notation: Notation,
}

impl Compilation {
    /// Another plan for a layer, as reports take it.
    pub fn layer_of<'a>(&'a self, hardware: &'a Hardware, compiled: &'a Compiled) -> Layer<'a> {
        Layer {
            schedule: &compiled.schedule,
            price: &compiled.price,
            timeline: &compiled.timeline,
            hardware,
            objective: self.objective,
            optimality: compiled.optimality.as_ref(),
            least_bytes: compiled.least_bytes,
            source: self.source.as_ref(),
            sharing: None,
            alternatives: &[],
            overlap_choice: None,
            paddings: &[],
            notation: self.notation,
        }
    }

    /// The layers as reports take them.
    pub fn layers(&self) -> Vec<Layer<'_>> {
        self.compiled
            .iter()
            .enumerate()
            .map(|(i, (hardware, compiled))| Layer {
                sharing: self.sharing[i]
                    .as_ref()
                    .map(|(shared, phase)| Sharing { shared, phase: *phase }),
                alternatives: self.alternatives.get(i).map_or(&[], Vec::as_slice),
                overlap_choice: self.overlap_choices.get(i),
                paddings: self.paddings.get(i).map_or(&[], Vec::as_slice),
                ..self.layer_of(hardware, compiled)
            })
            .collect()
    }

    /// Reports warnings that take further searches: orders of axes that cost a transfer.
    pub fn search_for_warnings(&mut self, tree: &ast::File, host: &mut dyn Host) {
        let pass =
            host.begin("warnings", "orders of axes that cost a transfer".to_string(), Share::ALL);
        self.options.limits.stop = pass.stop();
        let layers = self.programs.iter().zip(&self.compiled);
        let found = layers.flat_map(|(program, (hardware, layer))| {
            axis_orders(tree, program, layer, hardware, &self.options)
        });
        let found = found.collect();
        drop(pass);
        host.report(self.source.as_ref(), found);
    }

    /// Escapes what a terminal would take as commands, in names that IR text and hardware files may
    /// give.
    pub fn escape(&mut self) {
        for (hardware, compiled) in &mut self.compiled {
            escape_plan(&mut compiled.schedule.plan);
            hardware.name = escaped_name(&hardware.name).into_owned();
            hardware.source =
                hardware.source.as_deref().map(|source| escaped_name(source).into_owned());
        }
    }

    /// Searches for the alternatives to the collectives of each plan.
    pub fn ask_for_alternatives(&mut self, detail: Option<Detail>, host: &mut dyn Host) -> Outcome {
        let pass = host.begin(
            "alternatives",
            "what each collective was preferred to".to_string(),
            Share::ALL,
        );
        self.options.limits.stop = pass.stop();
        for (hardware, compiled) in &self.compiled {
            match pipeline::alternatives(compiled, hardware, &self.options, detail) {
                Ok(found) => self.alternatives.push(found),
                // A report without them is better than none.
                Err(CompileError::Lower(LowerError::OutOfTime)) => {
                    drop(pass);
                    let message =
                        "the time was up before all alternatives were searched: some are left out";
                    let said =
                        Diagnostic { severity: Severity::Note, ..problem(message, Vec::new()) };
                    host.report(None, vec![said]);
                    break;
                }
                Err(error) => {
                    host.report(self.source.as_ref(), lower_error(None, None, error));
                    return Err(Status::Wrong);
                }
            }
        }
        Ok(())
    }

    /// Searches for dims that the mesh does not divide and that would pay to pad. Where a dim may
    /// be worth it, the file is compiled again a few times.
    pub fn ask_for_paddings(&mut self, asked: &CompileOptions, host: &mut dyn Host) {
        self.paddings = paddings(self, asked, host);
    }

    /// Searches for what `--objective overlap` would choose for each layer, with the weights that
    /// phases share stored as they are.
    pub fn ask_for_overlap(&mut self, host: &mut dyn Host) -> Outcome {
        let pass = host.begin("overlap", "what overlapping would choose".to_string(), Share::ALL);
        let mut options = LowerOptions { objective: Objective::Overlap, ..self.options.clone() };
        options.limits.stop = pass.stop();
        for (program, (hardware, own)) in self.programs.iter().zip(&self.compiled) {
            match objectives::overlap_choice(program, own, hardware, &options) {
                Ok(choice) => self.overlap_choices.push(choice),
                Err(error) => {
                    host.report(self.source.as_ref(), lower_error(None, None, error));
                    return Err(Status::Wrong);
                }
            }
        }
        Ok(())
    }
}

/// What a file is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be shown: on a chip that is named, in whose memory it fits.
    Report,
    /// To be executed: the same plan. Where none fits, it is the fastest of any size, since what is
    /// executed is small.
    Run,
    /// To be compared with a plan that is shown: its search may take an eighth of what another may.
    Trial,
    /// To be checked: where no chip is named, on the first built-in one.
    Check,
}

/// Compiles what was read from a file.
pub fn compile_input(
    path: &Path,
    input: Input,
    asked: &CompileOptions,
    purpose: Purpose,
    host: &mut dyn Host,
) -> Outcome<Compilation> {
    match input {
        Input::Source(file) => compile_source(&file, asked, purpose, host),
        Input::Ir(plans) => ir_text::compile(path, plans, asked, purpose, host),
    }
}

/// Checks and compiles a source file. Where somebody stops its searches, layers are missing without
/// a diagnostic.
pub fn compile_source(
    file: &SourceFile,
    asked: &CompileOptions,
    purpose: Purpose,
    host: &mut dyn Host,
) -> Outcome<Compilation> {
    let sound = check_source(file, asked, purpose, host)?.split(asked, host)?;
    let (mut compilation, outcome) = sound.lower(asked, purpose, host)?;
    compilation.search_for_warnings(&sound.tree, host);
    outcome.map(|()| compilation)
}

/// Refuses a `--phase` that names no phase of the file.
pub(crate) fn require_phase<'p>(
    asked: &CompileOptions,
    phases: impl Iterator<Item = Option<&'p str>>,
    file: &Path,
    host: &mut dyn Host,
) -> Outcome {
    match asked.phase.as_ref().and_then(|wanted| unknown_phase(wanted, phases, file)) {
        Some((message, help)) => Err(host.usage(&message, Some(help))),
        None => Ok(()),
    }
}

/// Message and help where no program of a file is of the phase `wanted`.
pub fn unknown_phase<'p>(
    wanted: &str,
    phases: impl Iterator<Item = Option<&'p str>>,
    file: &Path,
) -> Option<(String, String)> {
    let mut known: Vec<&str> = Vec::new();
    for phase in phases.flatten() {
        if !known.contains(&phase) {
            known.push(phase);
        }
    }
    if known.contains(&wanted) {
        return None;
    }
    let help = match known.as_slice() {
        [] => format!(
            "phase {wanted} {{ L = 1 }}    (a line of the file that gives dims their sizes)"
        ),
        known => format!("its phases are {}", known.join(", ")),
    };
    Some((format!("`{}` has no phase `{wanted}`", file.display()), help))
}

pub(crate) fn require_layer(
    layer: &str,
    names: &[String],
    file: &Path,
    host: &mut dyn Host,
) -> Outcome {
    if names.iter().any(|n| n == layer) {
        return Ok(());
    }
    // Each phase has all layers, so that their names recur.
    let mut known: Vec<&str> = Vec::new();
    for name in names.iter().map(String::as_str) {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let help = (!known.is_empty()).then(|| format!("its layers are {}", known.join(", ")));
    Err(host.usage(&format!("`{}` has no layer `{layer}`", file.display()), help))
}

/// A chip of whose memory a program has what the command line allows.
pub(crate) fn limited(hardware: Hardware, asked: &CompileOptions) -> Hardware {
    match asked.memory_limit {
        Some(bytes) => hardware.with_memory_limit(bytes),
        None => hardware,
    }
}

/// The place of a layer's name.
pub fn layer_header(tree: &ast::File, name: &str) -> Option<shard_grammar::Span> {
    tree.layers().find(|layer| layer.name.value == name).map(|layer| layer.name.span)
}
