//! From a file on the command line to compiled layers, with everything reported that is found on the way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shard_check::diagnostics::{ALL, HardwareProblem, InputProblem, Source};
use shard_check::{CheckOptions, Checked, Diagnostic, Severity};
use shard_cost::hardware::BUILT_IN;
use shard_cost::{Hardware, Objective};
use shard_grammar::{SourceFile, ast};
use shard_ir::{Plan, Program};
use shard_report::layout_notation::Notation;
use shard_report::printable::{escape_plan, escaped_name};
use shard_report::{Layer, Sharing};
use shard_rewrite::{Alternative, Detail, LowerError, LowerOptions, SharedWeights};

use crate::args::ProgramArgs;
use crate::commands::expected::Expected;
use crate::console::{Console, Outcome, Status, problem};
use crate::hardware_choice;
use crate::input::{Input, read_program};
use crate::lowering_diagnostics::{axis_orders, lower_error, no_host, replication_costs, search_limit, too_large};
use crate::pipeline::{self, CompileError, Compiled};
use crate::room::{Asked, does_not_fit, no_plan_fits};

/// The compiled layers of one file.
pub(crate) struct Compilation {
    pub(crate) source: Option<SourceFile>,
    pub(crate) objective: Objective,
    /// Each layer with the chip that it was compiled for.
    pub(crate) compiled: Vec<(Hardware, Compiled)>,
    /// For each layer of a phase the choice of weights that it shares with others, and which of the phases it is.
    sharing: Vec<Option<SharedBy>>,
    /// For each layer what its plan was preferred to, where that was asked for.
    alternatives: Vec<Vec<Alternative>>,
    /// The program of each layer; none for IR text.
    pub(crate) programs: Vec<Program>,
    pub(crate) options: LowerOptions,
    /// What the layers expect of their plans.
    pub(crate) expected: Expected,
    /// How layouts are written for people.
    pub(crate) notation: Notation,
}

impl Compilation {
    /// Another plan for a layer, as reports take it.
    pub(crate) fn layer_of<'a>(&'a self, hardware: &'a Hardware, compiled: &'a Compiled) -> Layer<'a> {
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
            notation: self.notation,
        }
    }

    /// The layers as reports take them.
    pub(crate) fn layers(&self) -> Vec<Layer<'_>> {
        self.compiled
            .iter()
            .enumerate()
            .map(|(i, (hardware, compiled))| Layer {
                sharing: self.sharing[i].as_ref().map(|(shared, phase)| Sharing { shared, phase: *phase }),
                alternatives: self.alternatives.get(i).map_or(&[], Vec::as_slice),
                ..self.layer_of(hardware, compiled)
            })
            .collect()
    }

    /// Reports what takes further searches to know, and is no error.
    pub(crate) fn search_for_warnings(&mut self, tree: &ast::File, console: &mut Console) {
        let pass = console.watch.begin("warnings", "orders of axes that cost a transfer".to_string(), (1, 1));
        self.options.limits.stop = pass.stop();
        let layers = self.programs.iter().zip(&self.compiled);
        let found =
            layers.flat_map(|(program, (hardware, layer))| axis_orders(tree, program, layer, hardware, &self.options));
        let found = found.collect();
        drop(pass);
        console.report(self.source.as_ref(), found);
    }

    /// Escapes what a terminal would take as commands, in names that IR text and hardware files may give.
    pub(crate) fn escape(&mut self) {
        for (hardware, compiled) in &mut self.compiled {
            escape_plan(&mut compiled.schedule.plan);
            hardware.name = escaped_name(&hardware.name).into_owned();
            hardware.source = hardware.source.as_deref().map(|source| escaped_name(source).into_owned());
        }
    }

    /// Asks what each plan was preferred to.
    pub(crate) fn ask_for_alternatives(&mut self, detail: Option<Detail>, console: &mut Console) -> Outcome {
        let pass = console.watch.begin("alternatives", "what each collective was preferred to".to_string(), (1, 1));
        self.options.limits.stop = pass.stop();
        for (hardware, compiled) in &self.compiled {
            match pipeline::alternatives(compiled, hardware, &self.options, detail) {
                Ok(found) => self.alternatives.push(found),
                // A report without them is better than none.
                Err(CompileError::Lower(LowerError::OutOfTime)) => {
                    drop(pass);
                    let message = "the time was up before all alternatives were searched: some are left out";
                    let said = Diagnostic { severity: Severity::Note, ..problem(message, Vec::new()) };
                    console.report(None, vec![said]);
                    break;
                }
                Err(error) => {
                    console.report(self.source.as_ref(), lower_error(None, None, error));
                    return Err(Status::Wrong);
                }
            }
        }
        Ok(())
    }
}

/// What a file is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To be shown: on a chip that is named, in whose memory it fits.
    Report,
    /// To be executed: the same plan, and where none fits the fastest, since what is executed is small.
    Run,
    /// To be judged: where no chip is named, on the first built-in one.
    Check,
}

/// Compiles a source file, or reads one of IR text.
pub(crate) fn compile_file(
    path: &Path,
    args: &ProgramArgs,
    purpose: Purpose,
    console: &mut Console,
) -> Outcome<Compilation> {
    let input = read_program(path, console)?;
    compile_input(path, input, args, purpose, console)
}

/// Compiles what was read from a file.
pub(crate) fn compile_input(
    path: &Path,
    input: Input,
    args: &ProgramArgs,
    purpose: Purpose,
    console: &mut Console,
) -> Outcome<Compilation> {
    match input {
        Input::Source(file) => compile_source(&file, args, purpose, console),
        Input::Ir(plans) => compile_ir(path, plans, args, console),
    }
}

fn compile_ir(path: &Path, plans: Vec<Plan>, args: &ProgramArgs, console: &mut Console) -> Outcome<Compilation> {
    if args.mesh.is_some() || !args.dims.is_empty() || args.strict || args.fuse {
        let message = "-D, --mesh, --strict and --fuse change a program or its plan, and IR text is lowered already";
        return Err(console.usage(message, None));
    }
    require_phase(args, plans.iter().map(|p| p.phase.as_deref()), path, console)?;
    let plans: Vec<Plan> = plans.into_iter().filter(|p| args.phase.is_none() || p.phase == args.phase).collect();
    let names: Vec<String> = plans.iter().map(|p| p.name.clone()).collect();
    let chosen: Vec<Plan> = match &args.layer {
        None => plans,
        Some(layer) => {
            require_layer(layer, &names, path, console)?;
            plans.into_iter().filter(|p| p.name == *layer).collect()
        }
    };
    let mut compiled = Vec::new();
    for plan in chosen {
        let hardware = match (&args.hardware, &plan.hardware) {
            (Some(name), _) => hardware_choice::from_command_line(name, console)?,
            (None, Some(name)) => hardware_choice::from_plan(name, path, console)?,
            (None, None) => return Err(hardware_choice::none(console)),
        };
        let hardware = limited(hardware, args);
        match pipeline::compile_plan(plan, &hardware, None, args.objective) {
            Ok(layer) => compiled.push((hardware, layer)),
            Err(error) => {
                console.report(None, lower_error(None, None, error));
                return Err(Status::Wrong);
            }
        }
    }
    Ok(Compilation {
        source: None,
        objective: args.objective,
        sharing: vec![None; compiled.len()],
        compiled,
        alternatives: Vec::new(),
        programs: Vec::new(),
        options: LowerOptions::default(),
        expected: Expected::default(),
        notation: Notation::default(),
    })
}

/// Checks and compiles a source file. Where somebody asks its searches to stop, layers are missing, and nothing is said of
/// them.
pub(crate) fn compile_source(
    file: &SourceFile,
    args: &ProgramArgs,
    purpose: Purpose,
    console: &mut Console,
) -> Outcome<Compilation> {
    let sound = check_source(file, args, purpose, console)?;
    let (mut compilation, outcome) = sound.lower(args, purpose, console)?;
    compilation.search_for_warnings(&sound.tree, console);
    outcome.map(|()| compilation)
}

/// A source file without an error as far as is known without a search, and what it is compiled for.
pub(crate) struct Sound {
    pub(crate) file: SourceFile,
    pub(crate) tree: ast::File,
    check: CheckOptions,
    checked: Checked,
    /// The layers that are wanted.
    pub(crate) programs: Vec<Program>,
    pub(crate) hardware: Hardware,
    /// No chip was named: that is no reason to refuse anything.
    any_size: bool,
}

/// Reports everything that is wrong with a source file and shows without a search.
pub(crate) fn check_source(
    file: &SourceFile,
    args: &ProgramArgs,
    purpose: Purpose,
    console: &mut Console,
) -> Outcome<Sound> {
    let check = check_options(args, console)?;
    let pass = console.watch.begin("check", String::new(), (0, 1));
    let tree = shard_grammar::parse(file).file;
    let mut checked = pipeline::check(file, &check);
    if let Some(name) = &args.hardware {
        // A plan names the chip that it was lowered for, and not the one that the file would have taken; but no path of one
        // machine.
        let chip = Some(name.clone()).filter(|name| !Path::new(name).is_absolute());
        checked.programs.iter_mut().for_each(|program| program.hardware.clone_from(&chip));
    }
    drop(pass);
    report_checked(file, &checked, console)?;
    if checked.programs.is_empty() && purpose != Purpose::Check {
        console.report(Some(file), vec![InputProblem::NoLayer { file: file.name.clone(), is_ir: false }.into()]);
        return Err(Status::Wrong);
    }
    let named = match &args.hardware {
        Some(name) => Some(hardware_choice::from_command_line(name, console)?),
        None => hardware_choice::from_source(file, tree.hardware().next().map(|line| &line.chip), console)?,
    };
    let programs: Vec<Program> = chosen_layers(&checked, args, file, console)?.into_iter().cloned().collect();
    let any_size = named.is_none() && args.memory_limit.is_none();
    let hardware = match named {
        Some(hardware) => hardware,
        None if purpose == Purpose::Check => BUILT_IN
            .first()
            .and_then(|chip| Hardware::built_in(chip.name))
            .ok_or_else(|| hardware_choice::none(console))?,
        None => return Err(hardware_choice::none(console)),
    };
    let hardware = limited(hardware, args);
    let line = tree.meshes().next().map(|line| line.span).filter(|_| args.mesh.is_none());
    let slices = programs.first().and_then(|program| hardware_choice::slices(&hardware, &program.mesh, line));
    let without_host = programs.iter().filter(|program| is_wanted(args, program));
    let found = slices.into_iter().chain(without_host.filter_map(|program| no_host(program, &hardware)));
    let found: Vec<Diagnostic> = found.collect();
    let wrong = found.iter().any(Diagnostic::is_error);
    console.report(Some(file), found);
    if wrong {
        return Err(Status::Wrong);
    }
    Ok(Sound { file: file.clone(), tree, check, checked, programs, hardware, any_size })
}

/// A layer, with its phase where it has one.
fn layer_name(program: &Program) -> String {
    match &program.phase {
        Some(phase) => format!("{} ({})", program.name, phase.name),
        None => program.name.clone(),
    }
}

/// Whether a program is of the phase that was asked for.
pub(crate) fn is_wanted(args: &ProgramArgs, program: &Program) -> bool {
    args.phase.is_none() || program.phase.as_ref().map(|p| &p.name) == args.phase.as_ref()
}

impl Sound {
    /// Compiles the layers, and reports what shows in doing so. Where something is wrong, the layers that are right are
    /// compiled all the same.
    pub(crate) fn lower(
        &self,
        args: &ProgramArgs,
        purpose: Purpose,
        console: &mut Console,
    ) -> Outcome<(Compilation, Outcome)> {
        let Sound { file, tree, check, checked, programs, hardware, any_size } = self;
        let mut options = LowerOptions {
            strict: args.strict,
            fuse: args.fuse,
            objective: args.objective,
            any_size: *any_size,
            ..LowerOptions::default()
        };
        let mut compiled = Vec::new();
        let mut found: Vec<Diagnostic> = Vec::new();
        let mut lowered = Vec::new();
        let mut sharing = Vec::new();
        let programs: Vec<&Program> = programs.iter().collect();
        let wanted = |program: &Program| is_wanted(args, program);
        let phases = programs.iter().filter(|program| program.phase.is_some()).count();
        let mut left = programs.iter().filter(|program| wanted(program)).count();
        let pass = console.watch.begin("search", "the weights of all phases".to_string(), (phases, phases + left));
        options.limits.stop = pass.stop();
        let (programs, shared) = share_weights(&programs, hardware, &options, &mut |program, error| {
            let header = layer_header(tree, &program.name);
            found.extend(match error {
                CompileError::Lower(LowerError::NoPlanFits { plan, least, proven }) => {
                    vec![does_not_fit(hardware, header, &plan, least, proven)]
                }
                error => lower_error(Some((file, program)), header, error),
            });
        });
        drop(pass);
        let compiled_programs = programs.iter().map(AsRef::as_ref).filter(|program| wanted(program));
        let expected = Expected::of(checked, compiled_programs, |program| args.layer.is_none() && wanted(program));
        for (program, shared) in programs.iter().zip(shared).filter(|(program, _)| wanted(program)) {
            let header = layer_header(tree, &program.name);
            let pass = console.watch.begin("search", format!("`{}`", layer_name(program)), (1, left));
            left = left.saturating_sub(1);
            options.limits.stop = pass.stop();
            let mut result = pipeline::compile(program, hardware, &options);
            if purpose == Purpose::Run && matches!(result, Err(CompileError::Lower(LowerError::NoPlanFits { .. }))) {
                options.any_size = true;
                result = pipeline::compile(program, hardware, &options);
            }
            match result {
                Ok(layer) => {
                    found.extend(search_limit(&layer, program, header));
                    found.extend(too_large(&layer, hardware));
                    found.extend(replication_costs(file, program, &layer));
                    found.extend(missing_arithmetic(&layer, hardware));
                    compiled.push((hardware.clone(), layer));
                    sharing.push(shared);
                    lowered.push(program.as_ref().clone());
                }
                Err(CompileError::Lower(LowerError::NoPlanFits { plan, least, proven })) => {
                    let asked = Asked { file, check, lower: &options, hardware, program };
                    found.push(no_plan_fits(&asked, header, &plan, least, proven));
                }
                Err(error) => found.extend(lower_error(Some((file, program)), header, error)),
            }
        }
        let wrong = found.iter().any(Diagnostic::is_error);
        console.report(Some(file), found);
        let compilation = Compilation {
            source: Some(file.clone()),
            objective: args.objective,
            compiled,
            sharing,
            alternatives: Vec::new(),
            programs: lowered,
            options,
            expected,
            notation: Notation::default(),
        };
        Ok((compilation, if wrong { Err(Status::Wrong) } else { Ok(()) }))
    }
}

/// What the phases of a layer have in common, and the place of one of them among them.
type SharedBy = (Arc<SharedWeights>, usize);

/// The programs with the stored layouts of weights chosen that phases have in common, and for each what was chosen. A layer
/// whose phases cannot be stored alike is reported and left out.
pub(crate) fn share_weights<'p>(
    programs: &[&'p Program],
    hardware: &Hardware,
    options: &LowerOptions,
    report: &mut dyn FnMut(&Program, CompileError),
) -> (Vec<Cow<'p, Program>>, Vec<Option<SharedBy>>) {
    let mut chosen: BTreeMap<&str, Option<Option<Arc<SharedWeights>>>> = BTreeMap::new();
    let (mut out, mut shared) = (Vec::new(), Vec::new());
    for program in programs {
        let phases: Vec<&Program> = programs.iter().filter(|p| p.name == program.name).copied().collect();
        let of_layer =
            chosen.entry(&program.name).or_insert_with(|| match pipeline::share_weights(&phases, hardware, options) {
                Ok(found) => Some(found.map(Arc::new)),
                Err(error) => {
                    report(program, error);
                    None
                }
            });
        let at = phases.iter().position(|p| std::ptr::eq(*p, *program)).unwrap_or(0);
        match of_layer {
            None => {}
            Some(None) => {
                out.push(Cow::Borrowed(*program));
                shared.push(None);
            }
            Some(Some(found)) => {
                out.push(Cow::Owned(found.programs[at].clone()));
                shared.push(Some((Arc::clone(found), at)));
            }
        }
    }
    (out, shared)
}

/// Reports what the checker found. Errors in what the command line changes are wrong usage, all others a wrong program.
fn report_checked(file: &SourceFile, checked: &Checked, console: &mut Console) -> Outcome {
    let of_command_line =
        |d: &Diagnostic| ALL.iter().any(|(code, _, source)| *code == d.code && *source == Source::CommandLine);
    console.report(Some(file), checked.diagnostics.clone());
    let errors: Vec<&Diagnostic> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    match errors.as_slice() {
        [] => Ok(()),
        errors if errors.iter().all(|d| of_command_line(d)) => Err(Status::Usage),
        _ => Err(Status::Wrong),
    }
}

/// What the command line changes of a program.
pub(crate) fn check_options(args: &ProgramArgs, console: &mut Console) -> Outcome<CheckOptions> {
    let mut dim_overrides = Vec::new();
    for text in &args.dims {
        match text.split_once('=') {
            Some((name, right)) => dim_overrides.push((name.trim().to_string(), right.trim().to_string())),
            None => {
                let message = format!("`-D {text}` is no new size of a dim");
                return Err(console.usage(&message, Some("-D B=64".to_string())));
            }
        }
    }
    let mesh_override = args.mesh.as_ref().map(|text| read_mesh(text, console)).transpose()?;
    Ok(CheckOptions { dim_overrides, mesh_override, strict: args.strict })
}

/// The axes of a `--mesh`.
pub(crate) fn read_mesh(text: &str, console: &mut Console) -> Outcome<Vec<(String, u64)>> {
    match shard_grammar::parse_mesh_axes(text) {
        Ok(axes) => Ok(axes.into_iter().map(|axis| (axis.name.value, axis.size.value)).collect()),
        Err(error) => {
            let message = format!("`--mesh {text}` is no mesh: {error}");
            Err(console.usage(&message, Some("--mesh x=8,y=8".to_string())))
        }
    }
}

fn chosen_layers<'c>(
    checked: &'c Checked,
    args: &ProgramArgs,
    file: &SourceFile,
    console: &mut Console,
) -> Outcome<Vec<&'c Program>> {
    let path = Path::new(&file.name);
    require_phase(
        args,
        checked.programs.iter().map(|p| p.phase.as_ref().map(|phase| phase.name.as_str())),
        path,
        console,
    )?;
    let Some(layer) = &args.layer else {
        return Ok(checked.roots.iter().filter_map(|root| checked.programs.get(*root)).collect());
    };
    let names: Vec<String> = checked.programs.iter().map(|p| p.name.clone()).collect();
    require_layer(layer, &names, path, console)?;
    Ok(checked.programs.iter().filter(|p| p.name == *layer).collect())
}

/// `--phase` names one of the phases that there are.
fn require_phase<'p>(
    args: &ProgramArgs,
    phases: impl Iterator<Item = Option<&'p str>>,
    file: &Path,
    console: &mut Console,
) -> Outcome {
    let Some(wanted) = &args.phase else { return Ok(()) };
    let mut known: Vec<&str> = Vec::new();
    for phase in phases.flatten() {
        if !known.contains(&phase) {
            known.push(phase);
        }
    }
    if known.contains(&wanted.as_str()) {
        return Ok(());
    }
    let help = match known.as_slice() {
        [] => format!("phase {wanted} {{ L = 1 }}    (a line of the file that gives dims their sizes)"),
        known => format!("its phases are {}", known.join(", ")),
    };
    Err(console.usage(&format!("`{}` has no phase `{wanted}`", file.display()), Some(help)))
}

fn require_layer(layer: &str, names: &[String], file: &Path, console: &mut Console) -> Outcome {
    if names.iter().any(|n| n == layer) {
        return Ok(());
    }
    let help = match names {
        [] => None,
        names => Some(format!("its layers are {}", names.join(", "))),
    };
    Err(console.usage(&format!("`{}` has no layer `{layer}`", file.display()), help))
}

/// A chip with what the command line leaves of its memory.
fn limited(hardware: Hardware, args: &ProgramArgs) -> Hardware {
    match args.memory_limit {
        Some(bytes) => hardware.with_memory_limit(bytes),
        None => hardware,
    }
}

/// The place of a layer's name.
pub(crate) fn layer_header(tree: &ast::File, name: &str) -> Option<shard_grammar::Span> {
    tree.items.iter().find_map(|item| match item {
        ast::Item::Layer(layer) if layer.name.value == name => Some(layer.name.span),
        _ => None,
    })
}

fn missing_arithmetic(layer: &Compiled, hardware: &Hardware) -> Vec<Diagnostic> {
    let plan = &layer.schedule.plan;
    let first_of = |dtype| {
        plan.instructions
            .iter()
            .filter(|i| i.kind.op() == Some(&shard_ir::Op::Einsum))
            .find(|i| i.dtype == dtype || i.operands.iter().any(|o| plan.instruction(*o).dtype == dtype))
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
