//! A source file that is right as far as shows without a search, and the layers that are lowered
//! from it.

use std::borrow::Cow;
use std::path::Path;

use shard_check::diagnostics::{ALL, HardwareProblem, InputProblem, Source};
use shard_check::{Checked, Diagnostic};
use shard_cost::Hardware;
use shard_cost::hardware::BUILT_IN;
use shard_grammar::{SourceFile, ast};
use shard_ir::Program;
use shard_report::layout_notation::Notation;
use shard_search::{Limits, LowerError, LowerOptions};

use crate::compile::{
    Compilation, CompileOptions, Purpose, layer_header, limited, require_layer, require_phase,
};
use crate::expected::Expected;
use crate::hardware_choice;
use crate::host::{Host, Outcome, Share, Status};
use crate::lowering_diagnostics::{lower_error, no_host, replication_costs, too_large};
use crate::nothing_fits::{Asked, no_plan_fits};
use crate::phases::{SharedBy, share_weights};
use crate::pipeline::{self, CompileError, Compiled};
use crate::search_limit::{search_limit, search_limit_of_phases};
use crate::two_kinds::split_stacks;

/// The part of the usual limits that the search of a [`Purpose::Trial`] has.
const PART_OF_A_TRIAL: usize = 8;

/// A source file without an error as far as shows without a search, and what it is compiled for.
pub struct Sound {
    /// The file.
    pub file: SourceFile,
    /// Its syntax tree.
    pub tree: ast::File,
    checked: Checked,
    /// The layers that are wanted.
    pub programs: Vec<Program>,
    /// The chip.
    pub hardware: Hardware,
    /// Whether plans may have any size: no chip was named, so that none can be too large.
    any_size: bool,
}

/// Reports everything that is wrong with a source file and shows without a search.
pub fn check_source(
    file: &SourceFile,
    asked: &CompileOptions,
    purpose: Purpose,
    host: &mut dyn Host,
) -> Outcome<Sound> {
    let pass = host.begin("check", String::new(), Share::NONE);
    let parsed = shard_grammar::parse(file);
    let mut checked = shard_check::check_parsed(file, &parsed, &asked.check);
    let tree = parsed.file;
    if let Some(name) = &asked.hardware {
        // A plan names the chip that it was lowered for, and not the one that the file would have
        // taken; but never an absolute path, which is of one machine.
        let chip = Some(name.clone()).filter(|name| !Path::new(name).is_absolute());
        checked.programs.iter_mut().for_each(|program| program.hardware.clone_from(&chip));
    }
    drop(pass);
    report_checked(file, &checked, host)?;
    if checked.programs.is_empty() && purpose != Purpose::Check {
        host.report(
            Some(file),
            vec![InputProblem::NoLayer { file: file.name.clone(), is_ir: false }.into()],
        );
        return Err(Status::Wrong);
    }
    let named = match &asked.hardware {
        Some(name) => Some(hardware_choice::from_command_line(name, host)?),
        None => {
            hardware_choice::from_source(file, tree.hardware().next().map(|line| &line.chip), host)?
        }
    };
    let programs: Vec<Program> =
        chosen_layers(&checked, asked, file, host)?.into_iter().cloned().collect();
    let any_size = named.is_none() && asked.memory_limit.is_none();
    let hardware = match named {
        Some(hardware) => hardware,
        None if purpose == Purpose::Check => BUILT_IN
            .first()
            .and_then(|chip| Hardware::built_in(chip.name))
            .ok_or_else(|| hardware_choice::none(host))?,
        None => return Err(hardware_choice::none(host)),
    };
    let hardware = limited(hardware, asked);
    let line =
        tree.meshes().next().map(|line| line.span).filter(|_| asked.check.mesh_override.is_none());
    let slices = programs
        .first()
        .and_then(|program| hardware_choice::slices(&hardware, &program.mesh, line));
    let without_host = programs.iter().filter(|program| asked.wants(program));
    let found =
        slices.into_iter().chain(without_host.filter_map(|program| no_host(program, &hardware)));
    let found: Vec<Diagnostic> = found.collect();
    let wrong = found.iter().any(Diagnostic::is_error);
    host.report(Some(file), found);
    if wrong {
        return Err(Status::Wrong);
    }
    Ok(Sound { file: file.clone(), tree, checked, programs, hardware, any_size })
}

/// A layer, with its phase where it has one.
fn layer_name(program: &Program) -> String {
    match &program.phase {
        Some(phase) => format!("{} ({})", program.name, phase.name),
        None => program.name.clone(),
    }
}

impl Sound {
    /// The same file with its stacks split in two kinds of layers, where that is asked for and
    /// takes less.
    pub fn split(self, asked: &CompileOptions, host: &mut dyn Host) -> Outcome<Sound> {
        if !asked.two_kinds {
            return Ok(self);
        }
        let file = split_stacks(&self.file, &self.programs, &self.hardware, asked, host)?;
        let tree = shard_grammar::parse(&file).file;
        let checked = pipeline::check(&file, &asked.check);
        let programs = chosen_layers(&checked, asked, &file, host)?.into_iter().cloned().collect();
        Ok(Sound { file, tree, checked, programs, ..self })
    }

    /// Compiles the layers, and reports what shows in doing so. Where something is wrong with a
    /// layer, the others are compiled all the same, and the inner outcome says so.
    pub fn lower(
        &self,
        asked: &CompileOptions,
        purpose: Purpose,
        host: &mut dyn Host,
    ) -> Outcome<(Compilation, Outcome)> {
        let options = LowerOptions {
            strict: asked.check.strict,
            fuse: asked.fuse,
            objective: asked.objective,
            any_size: self.any_size,
            limits: match purpose {
                Purpose::Trial => Limits::default().part(PART_OF_A_TRIAL),
                Purpose::Report | Purpose::Run | Purpose::Check => Limits::default(),
            },
            ..LowerOptions::default()
        };
        let mut lowering = Lowering { sound: self, asked, purpose, options, found: Vec::new() };
        let wanted = |program: &Program| asked.wants(program);
        let mut left = self.programs.iter().filter(|program| wanted(program)).count();
        let (programs, shared) = lowering.share_weights(left, host);
        let compiled_programs =
            programs.iter().map(AsRef::as_ref).filter(|program| wanted(program));
        let expected = Expected::of(&self.checked, compiled_programs, |program| {
            asked.layer.is_none() && wanted(program)
        });
        let (mut compiled, mut lowered, mut sharing) = (Vec::new(), Vec::new(), Vec::new());
        for (program, shared) in programs.iter().zip(shared).filter(|(program, _)| wanted(program))
        {
            let share = Share { part: 1, whole: left };
            let pass = host.begin("search", format!("`{}`", layer_name(program)), share);
            left = left.saturating_sub(1);
            lowering.options.limits.stop = pass.stop();
            if let Some(layer) = lowering.layer(program, shared.as_ref()) {
                compiled.push((self.hardware.clone(), layer));
                sharing.push(shared);
                lowered.push(program.as_ref().clone());
            }
        }
        let Lowering { options, found, .. } = lowering;
        let wrong = found.iter().any(Diagnostic::is_error);
        host.report(Some(&self.file), found);
        let compilation = Compilation {
            source: Some(self.file.clone()),
            objective: asked.objective,
            compiled,
            sharing,
            alternatives: Vec::new(),
            overlap_choices: Vec::new(),
            paddings: Vec::new(),
            programs: lowered,
            options,
            expected,
            notation: Notation::default(),
        };
        Ok((compilation, if wrong { Err(Status::Wrong) } else { Ok(()) }))
    }
}

/// The search for weights that phases share may take so many times what the search for one layer
/// may.
const OF_WEIGHTS: usize = 8;

/// The layers of a file while they are compiled.
struct Lowering<'s> {
    sound: &'s Sound,
    asked: &'s CompileOptions,
    purpose: Purpose,
    options: LowerOptions,
    /// What was found on the way.
    found: Vec<Diagnostic>,
}

impl<'s> Lowering<'s> {
    /// Chooses the stored layouts of weights that phases share: the programs with these, and for
    /// each program what it shares. So many layers are `left` to compile.
    fn share_weights(
        &mut self,
        left: usize,
        host: &mut dyn Host,
    ) -> (Vec<Cow<'s, Program>>, Vec<Option<SharedBy>>) {
        let programs: Vec<&Program> = self.sound.programs.iter().collect();
        let phases = programs.iter().filter(|program| program.phase.is_some()).count();
        // Here each phase is searched by itself, and layouts that suit all; with the weights stated
        // little is left to search.
        let part = OF_WEIGHTS * phases;
        let share = Share { part, whole: part + left };
        let pass = host.begin("search", "the weights of all phases".to_string(), share);
        self.options.limits.stop = pass.stop();
        let at_any_size = self.purpose == Purpose::Run;
        let mut found = Vec::new();
        let mut report = |program: &Program, error: CompileError| {
            let mut of_plan = program;
            if let CompileError::Lower(LowerError::NoPlanFits { plan, .. }) = &error {
                let is_of_plan = |p: &&&Program| {
                    p.name == plan.name
                        && p.phase.as_ref().map(|phase| &phase.name) == plan.phase.as_ref()
                };
                of_plan = programs.iter().find(is_of_plan).copied().unwrap_or(program);
            }
            found.extend(self.failed(of_plan, error));
        };
        let Sound { hardware, .. } = self.sound;
        let shared = share_weights(&programs, hardware, &self.options, at_any_size, &mut report);
        self.found.extend(found);
        shared
    }

    /// Compiles a layer, if it has a plan; one that is to be run may have any size.
    fn layer(&mut self, program: &Program, shared: Option<&SharedBy>) -> Option<Compiled> {
        let Sound { file, tree, hardware, .. } = self.sound;
        let header = layer_header(tree, &program.name);
        let mut result = pipeline::compile(program, hardware, &self.options);
        if self.purpose == Purpose::Run
            && matches!(result, Err(CompileError::Lower(LowerError::NoPlanFits { .. })))
        {
            self.options.any_size = true;
            result = pipeline::compile(program, hardware, &self.options);
        }
        match result {
            Ok(layer) => {
                let (options, found) = (&self.options, &mut self.found);
                found.extend(search_limit(&layer, program, header, hardware, options));
                // It is reported once, with the first phase.
                if let Some((shared, 0)) = shared {
                    found.extend(search_limit_of_phases(
                        shared,
                        &program.name,
                        header,
                        options.objective,
                    ));
                }
                found.extend(too_large(&layer, hardware));
                found.extend(replication_costs(file, program, &layer, hardware, options));
                found.extend(missing_arithmetic(&layer, hardware));
                Some(layer)
            }
            Err(error) => {
                self.found.extend(self.failed(program, error));
                None
            }
        }
    }

    /// The diagnostics for a layer without a plan.
    fn failed(&self, program: &Program, error: CompileError) -> Vec<Diagnostic> {
        let Sound { file, tree, hardware, .. } = self.sound;
        let header = layer_header(tree, &program.name);
        match error {
            CompileError::Lower(LowerError::NoPlanFits { plan, least, proven }) => {
                let (check, lower) = (&self.asked.check, &self.options);
                let asked = Asked { file, check, lower, hardware, program };
                vec![no_plan_fits(&asked, header, &plan, least, proven)]
            }
            error => lower_error(Some((file, program)), header, error),
        }
    }
}

/// Reports what the checker found. Errors in what the command line changes are wrong usage; any
/// other error makes the program wrong.
fn report_checked(file: &SourceFile, checked: &Checked, host: &mut dyn Host) -> Outcome {
    let of_command_line = |d: &Diagnostic| {
        ALL.iter().any(|(code, _, source)| *code == d.code && *source == Source::CommandLine)
    };
    host.report(Some(file), checked.diagnostics.clone());
    let errors: Vec<&Diagnostic> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    match errors.as_slice() {
        [] => Ok(()),
        errors if errors.iter().all(|d| of_command_line(d)) => Err(Status::Usage),
        _ => Err(Status::Wrong),
    }
}

fn chosen_layers<'c>(
    checked: &'c Checked,
    asked: &CompileOptions,
    file: &SourceFile,
    host: &mut dyn Host,
) -> Outcome<Vec<&'c Program>> {
    let path = Path::new(&file.name);
    require_phase(
        asked,
        checked.programs.iter().map(|p| p.phase.as_ref().map(|phase| phase.name.as_str())),
        path,
        host,
    )?;
    let Some(layer) = &asked.layer else {
        return Ok(checked.roots.iter().filter_map(|root| checked.programs.get(*root)).collect());
    };
    let names: Vec<String> = checked.programs.iter().map(|p| p.name.clone()).collect();
    require_layer(layer, &names, path, host)?;
    Ok(checked.programs.iter().filter(|p| p.name == *layer).collect())
}

fn missing_arithmetic(layer: &Compiled, hardware: &Hardware) -> Vec<Diagnostic> {
    let plan = &layer.schedule.plan;
    let first_of = |dtype| {
        plan.instructions
            .iter()
            .filter(|i| i.kind.op() == Some(&shard_ir::Op::Einsum))
            .find(|i| {
                let mut read = i.operands.iter().map(|o| plan.instruction(*o).dtype);
                let first = read.next();
                first.and_then(|first| read.try_fold(first, |a, b| a.product(b))) == Some(dtype)
            })
            .and_then(|i| i.origin.span)
    };
    layer
        .price
        .arithmetic_as_bf16
        .iter()
        .map(|dtype| {
            HardwareProblem::MissingArithmetic {
                dtype: dtype.name().to_string(),
                taken: "bf16".to_string(),
                chip: hardware.name.clone(),
                span: first_of(*dtype),
            }
            .into()
        })
        .collect()
}
