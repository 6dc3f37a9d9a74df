//! `shardc export jax|torch|stablehlo|specs FILE [-o DIR]`, and the small sizes of `--small`.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use shard_check::Diagnostic;
use shard_check::diagnostics::{ExportProblem, InternalProblem};
use shard_driver::{Compilation, Purpose, lowering_diagnostics, pipeline};
use shard_export::{ExportError, Exported, Floats, JaxOptions, Style, Texts};
use shard_ir::{Layout, Mesh, Plan};
use shard_report::layout_notation::Notation;
use shard_runtime::FEW_APPLICATIONS;

use crate::args::ProgramArgs;
use crate::commands::compile::compile_file;
use crate::console::{Console, Outcome, Status};
use crate::output::replace_text;

/// `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// The system
    #[command(subcommand)]
    pub(crate) to: ExportTo,
}

/// The systems that plans are written for.
#[derive(Debug, Subcommand)]
pub(crate) enum ExportTo {
    /// Write a module of JAX: a `shard_map` a layer, one line an instruction, and a check beside it
    Jax(ExportJaxArgs),
    /// Write text of StableHLO: a mesh of Shardy, and what each device does with every collective
    /// written out
    Stablehlo(ExportStablehloArgs),
    /// Write a module of PyTorch: what each process does, one line an instruction, placements of
    /// DTensor, and a check beside it
    Torch(ExportTorchArgs),
    /// Say how every parameter, value and result lies, as JSON: a PartitionSpec, placements of a
    /// DTensor, text of Shardy
    Specs(ExportedArgs),
}

/// What is exported, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportedArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Small sizes of the same divisibility, as `run` executes them
    #[arg(long)]
    pub(crate) small: bool,
    /// Write to a file of the source's name in this folder (NAME.py, NAME_torch.py or
    /// NAME.specs.json), and not to standard output
    #[arg(short = 'o', long = "out", value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// `export jax`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportJaxArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// How the module says where data lie: each collective written out, or whole tensors held to
    /// the plan's layouts, for which XLA finds the collectives
    #[arg(long, value_enum, default_value_t = ExportStyle::ShardMap, value_name = "STYLE")]
    pub(crate) style: ExportStyle,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, default_value_t = ExportFloats::Stated, value_name = "DTYPE")]
    pub(crate) dtype: ExportFloats,
}

/// `export stablehlo`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportStablehloArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, value_name = "FLOATS", default_value_t = ExportFloats::Stated)]
    pub(crate) dtype: ExportFloats,
}

/// `export torch`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportTorchArgs {
    #[command(flatten)]
    pub(crate) exported: ExportedArgs,
    /// The floats that the module computes in: those of the plan, or all of 32 or 64 bits
    #[arg(long, value_enum, default_value_t = ExportFloats::Stated, value_name = "DTYPE")]
    pub(crate) dtype: ExportFloats,
}

/// How an exported module says where data lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportStyle {
    ShardMap,
    Constraints,
}

/// Which floats an exported module computes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportFloats {
    Stated,
    F32,
    F64,
}

pub(crate) fn run(args: &ExportArgs, console: &mut Console) -> Outcome {
    match &args.to {
        ExportTo::Jax(args) => jax(args, console),
        ExportTo::Stablehlo(args) => stablehlo(args, console),
        ExportTo::Torch(args) => torch(args, console),
        ExportTo::Specs(args) => specs(args, console),
    }
}

fn jax(args: &ExportJaxArgs, console: &mut Console) -> Outcome {
    let style = match args.style {
        ExportStyle::ShardMap => Style::ShardMap,
        ExportStyle::Constraints => Style::Constraints,
    };
    let options = JaxOptions { style, floats: floats(args.dtype) };
    let write = |layers: &[Exported<'_>], origin: &str| shard_export::jax(layers, origin, options);
    module(&args.exported, "jax", ".py", &write, console)
}

fn torch(args: &ExportTorchArgs, console: &mut Console) -> Outcome {
    let floats = floats(args.dtype);
    let write = |layers: &[Exported<'_>], origin: &str| shard_export::torch(layers, origin, floats);
    module(&args.exported, "torch", "_torch.py", &write, console)
}

fn stablehlo(args: &ExportStablehloArgs, console: &mut Console) -> Outcome {
    let floats = floats(args.dtype);
    let write = |layers: &[Exported<'_>], origin: &str| {
        let plans: Vec<&Plan> = layers.iter().map(|layer| layer.plan).collect();
        shard_export::stablehlo(&plans, origin, floats)
    };
    module(&args.exported, "stablehlo", ".mlir", &write, console)
}

fn floats(asked: ExportFloats) -> Floats {
    match asked {
        ExportFloats::Stated => Floats::Stated,
        ExportFloats::F32 => Floats::F32,
        ExportFloats::F64 => Floats::F64,
    }
}

/// A function that writes a module of layers; the text is what they come from, for the header.
type Write<'a> = &'a dyn Fn(&[Exported<'_>], &str) -> Result<String, ExportError>;

/// Writes a module for a system; `end` is how the names of its files end.
fn module(
    args: &ExportedArgs,
    system: &str,
    end: &str,
    write: Write<'_>,
    console: &mut Console,
) -> Outcome {
    let compilation = compiled(args, console)?;
    let sources = sources(&compilation);
    let layers = exported(&compilation, &sources);
    match write(&layers, &origin(args, system)) {
        Ok(text) => give(args, end, &text, console),
        Err(error) => Err(refused(error, &compilation, console)),
    }
}

/// What an exported file comes from, for its header.
fn origin(args: &ExportedArgs, to: &str) -> String {
    let small = if args.small { " at small sizes" } else { "" };
    format!("{}, as `shardc export {to}` wrote it{small}.", args.file.display())
}

/// Each plan beside its source.
fn exported<'c>(compilation: &'c Compilation, sources: &'c [Option<Plan>]) -> Vec<Exported<'c>> {
    let layers = compilation.compiled.iter().zip(sources);
    layers
        .map(|((_, layer), source)| Exported {
            plan: &layer.schedule.plan,
            source: source.as_ref(),
        })
        .collect()
}

fn specs(args: &ExportedArgs, console: &mut Console) -> Outcome {
    let compilation = compiled(args, console)?;
    let writer = |mesh: &Mesh, layout: Layout, dims: &[&str]| {
        let [jax, dtensor, shardy] = [Notation::Jax, Notation::Dtensor, Notation::Shardy]
            .map(|notation| notation.layout(mesh, layout, dims));
        Texts { jax, dtensor, shardy }
    };
    let sources = sources(&compilation);
    match shard_export::specs(&exported(&compilation, &sources), &writer) {
        Ok(text) => give(args, ".specs.json", &text, console),
        Err(error) => Err(refused(error, &compilation, console)),
    }
}

/// The compiled layers of a file, with small sizes where those are asked for.
fn compiled(args: &ExportedArgs, console: &mut Console) -> Outcome<Compilation> {
    let purpose = if args.small { Purpose::Run } else { Purpose::Report };
    let mut compilation = compile_file(&args.file, &args.program, purpose, console)?;
    if args.small {
        make_small(&mut compilation, console)?;
        for (_, layer) in &mut compilation.compiled {
            let plan = &mut layer.schedule.plan;
            plan.repeat = plan.repeat.min(FEW_APPLICATIONS);
        }
    }
    Ok(compilation)
}

/// Small dims of the same divisibility, and few applications of folded blocks, as `run` executes
/// them.
pub(crate) fn make_small(compilation: &mut Compilation, console: &mut Console) -> Outcome {
    for (hardware, layer) in &mut compilation.compiled {
        let mut plan = shard_runtime::shrink(&layer.schedule.plan);
        plan.folds.iter_mut().for_each(|fold| fold.repeat = fold.repeat.min(FEW_APPLICATIONS));
        match pipeline::compile_plan(plan, hardware, None, compilation.objective) {
            Ok(small) => *layer = small,
            Err(error) => {
                let found = lowering_diagnostics::lower_error(None, None, error);
                console.report(compilation.source.as_ref(), found);
                return Err(Status::Wrong);
            }
        }
    }
    Ok(())
}

/// The program of each layer as its source states it, with the sizes of its plan; `None` for IR
/// text.
fn sources(compilation: &Compilation) -> Vec<Option<Plan>> {
    let source = |(at, (_, layer)): (usize, &(_, pipeline::Compiled))| {
        let plan = &layer.schedule.plan;
        let mut source =
            shard_runtime::resized_as(plan, &Plan::unsharded(compilation.programs.get(at)?))?;
        source.repeat = plan.repeat;
        source
            .folds
            .iter_mut()
            .zip(&plan.folds)
            .for_each(|(fold, of_plan)| fold.repeat = of_plan.repeat);
        Some(source)
    };
    compilation.compiled.iter().enumerate().map(source).collect()
}

/// Prints what was written, or puts it in a folder under the source's name.
fn give(args: &ExportedArgs, end: &str, text: &str, console: &mut Console) -> Outcome {
    let Some(folder) = &args.out else { return console.result(text) };
    let stem = args
        .file
        .file_stem()
        .and_then(|stem| stem.to_str())
        .filter(|stem| *stem != "-")
        .unwrap_or("exported");
    let path = folder.join(match end.strip_suffix(".py") {
        Some(end) => format!("{}.py", shard_export::module_name(&format!("{stem}{end}"))),
        None => format!("{}{end}", shard_export::module_name(stem)),
    });
    if folder.exists() && !folder.is_dir() {
        let problem = format!("cannot write into `{}`, which is no folder", folder.display());
        return Err(console.usage(&problem, None));
    }
    let write = |path: &Path| {
        std::fs::create_dir_all(folder)?;
        replace_text(path, text)
    };
    match write(&path) {
        Ok(()) => console.people(&format!("wrote {}\n", path.display())),
        Err(error) => {
            Err(console.usage(&format!("cannot write `{}`: {error}", path.display()), None))
        }
    }
}

fn refused(error: ExportError, compilation: &Compilation, console: &mut Console) -> Status {
    let found: Diagnostic = match error {
        ExportError::Einsum { layer, span } => ExportProblem::Einsum { layer, span }.into(),
        ExportError::Dtype { layer, op, dtype, span } => {
            ExportProblem::Dtype { layer, op, dtype, span }.into()
        }
        ExportError::Meshes => {
            let layer =
                compilation.compiled.first().map(|(_, layer)| layer.schedule.plan.name.clone());
            let help = format!("--layer {}", layer.unwrap_or_default());
            return console.usage(&format!("cannot export this: {error}"), Some(help));
        }
        ExportError::Devices { .. } => {
            return console.usage(&format!("cannot export this: {error}"), None);
        }
        ExportError::Internal(message) => InternalProblem {
            pass: "exporting".to_string(),
            message: message.to_string(),
            span: None,
        }
        .into(),
    };
    console.report(compilation.source.as_ref(), vec![found]);
    Status::Wrong
}
