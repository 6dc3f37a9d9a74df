//! `shardc cost FILE`.

use std::io::IsTerminal;
use std::path::PathBuf;

use shard_check::CheckOptions;
use shard_cost::{Capacity, DimRoles, Summary, largest};
use shard_driver::{Compilation, Purpose};
use shard_grammar::{Parsed, SourceFile};
use shard_ir::{Dim, DimId, InstrId, Plan};
use shard_report::Layer;
use shard_report::cost::{CostLayer, LargestDim, Role};
use shard_report::paint::Paint;

use crate::args::{Format, ProgramArgs, RoleArgs};
use crate::commands::bound_only;
use crate::commands::compile::{check_options, compile_file};
use crate::console::{Console, Outcome};

/// `cost`.
#[derive(Debug, clap::Args)]
pub(crate) struct CostArgs {
    /// A source file, or IR text (`.shir`)
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    /// Show how the figures of one step come about, by its number in the report
    #[arg(long, value_name = "N")]
    pub(crate) why: Option<u32>,
    /// Say what no plan falls below, and search for none
    #[arg(long, conflicts_with = "why")]
    pub(crate) bound_only: bool,
    /// Characters to a line; without it, those of the terminal, and 80 where there is none
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) width: Option<usize>,
}

/// Characters to a line where nothing says how wide the terminal is.
const WIDTH: usize = 80;

pub(crate) fn run(args: &CostArgs, console: &mut Console) -> Outcome {
    if args.bound_only {
        return bound_only::run(
            &args.file,
            &args.program,
            console.format == Format::Json,
            args.width,
            console,
        );
    }
    let mut compilation = compile_file(&args.file, &args.program, Purpose::Report, console)?;
    let options = check_options(&args.program, console)?;
    if console.format == Format::Text {
        compilation.escape();
    }
    let layers = compilation.layers();
    let mut summaries = Vec::new();
    for layer in &layers {
        let roles = roles(layer.plan(), &args.roles, console)?;
        let summary = Summary::of(
            layer.plan(),
            layer.price,
            layer.hardware,
            roles,
            layer.price.totals.serial_time,
        );
        let capacity = Capacity::of(layer.hardware, args.roles.cache_share);
        let largest = largest_dims(&compilation, &options, layer, &summary, &capacity);
        summaries.push((summary, capacity, largest));
    }
    let reports: Vec<CostLayer<'_>> = layers
        .into_iter()
        .zip(&summaries)
        .map(|(layer, (summary, capacity, largest))| CostLayer {
            layer,
            summary,
            capacity: *capacity,
            largest,
        })
        .collect();
    let why = why(args, &reports, console)?;
    let paint = Paint(console.result_color);
    match (console.format, why) {
        (Format::Json, why) => console.result(&shard_report::json::cost::cost(&reports, why)),
        (Format::Text, None) => {
            console.people(&shard_report::cost::cost(&reports, width(args.width), paint))
        }
        (Format::Text, Some(id)) => {
            let has = |report: &&CostLayer<'_>| id.index() < report.layer.plan().instructions.len();
            let texts: Vec<String> = reports
                .iter()
                .filter(has)
                .map(|r| shard_report::formula::why(&r.layer, id, paint))
                .collect();
            console.people(&texts.join("\n"))
        }
    }
}

/// The step of `--why`; an error where no layer has it.
fn why(
    args: &CostArgs,
    reports: &[CostLayer<'_>],
    console: &mut Console,
) -> Outcome<Option<InstrId>> {
    let Some(number) = args.why else { return Ok(None) };
    let steps = reports.iter().map(|r| r.layer.plan().instructions.len()).max().unwrap_or(0);
    if (number as usize) < steps {
        return Ok(Some(InstrId(number)));
    }
    let help = format!("the steps are numbered from 0 to {}", steps.saturating_sub(1));
    Err(console.usage(&format!("there is no step {number}"), Some(help)))
}

/// The roles of a plan's dims: as the command line states them, else as its parameters show.
fn roles(plan: &Plan, args: &RoleArgs, console: &mut Console) -> Outcome<DimRoles> {
    roles_or(plan, args).map_err(|name| {
        let known: Vec<&str> = plan.dims.iter().map(|d| d.name.as_str()).collect();
        let help = format!("the dims are {}", known.join(", "));
        console.usage(&format!("there is no dim `{name}`"), Some(help))
    })
}

/// As [`roles`], or the name on the command line that no dim has.
pub(crate) fn roles_or(plan: &Plan, args: &RoleArgs) -> Result<DimRoles, String> {
    let mut roles = DimRoles::of(plan);
    for (named, dims) in [(&args.batch, &mut roles.batch), (&args.context, &mut roles.context)] {
        if named.is_empty() {
            continue;
        }
        let at = |name: &String| {
            plan.dims.iter().position(|d| d.name == *name).ok_or_else(|| name.clone())
        };
        *dims =
            named.iter().map(|name| Ok(DimId(at(name)? as u16))).collect::<Result<_, String>>()?;
    }
    Ok(roles)
}

/// How far the batch and the context may grow; in a layer without either, the dims that count
/// tokens.
fn largest_dims(
    compilation: &Compilation,
    options: &CheckOptions,
    layer: &Layer<'_>,
    summary: &Summary,
    capacity: &Capacity,
) -> Vec<LargestDim> {
    let (plan, roles) = (layer.plan(), &summary.inventory.roles);
    let of = |dims: &[DimId], role| dims.iter().map(|dim| (*dim, role)).collect::<Vec<_>>();
    let mut asked = [of(&roles.batch, Role::Batch), of(&roles.context, Role::Context)].concat();
    if asked.is_empty() {
        asked = of(&roles.tokens, Role::Tokens);
    }
    // Many sizes are tried, and the source is parsed once for all of them.
    let source = compilation.source.as_ref();
    let source = source.map(|source| (source, shard_grammar::parse(source)));
    let source = source.as_ref().map(|(source, parsed)| (*source, parsed));
    asked
        .into_iter()
        .map(|(dim, role)| {
            let dims_with = |size| dims_with(source, options, plan, dim, size);
            LargestDim { dim, role, largest: largest(plan, dim, capacity, &dims_with) }
        })
        .collect()
}

/// All dims of a plan where one has another size. Dims derived from it follow, where there is a
/// source that says how.
fn dims_with(
    source: Option<(&SourceFile, &Parsed)>,
    options: &CheckOptions,
    plan: &Plan,
    dim: DimId,
    size: u64,
) -> Option<Vec<Dim>> {
    let Some((source, parsed)) = source else {
        let mut dims = plan.dims.clone();
        dims[dim.index()] = Dim { size, useful: size, ..dims[dim.index()].clone() };
        return Some(dims);
    };
    let name = &plan.dims[dim.index()].name;
    let mut options = options.clone();
    options.dim_overrides.retain(|(overridden, _)| overridden != name);
    options.dim_overrides.push((name.clone(), size.to_string()));
    // Errors in another phase or layer do not matter: this layer has a program if it has no error.
    let checked = shard_check::check_parsed(source, parsed, &options);
    let program = checked.programs.into_iter().find(|program| {
        program.name == plan.name && program.phase.as_ref().map(|p| &p.name) == plan.phase.as_ref()
    })?;
    // A program also has the dims of parts of other dims; a plan has those that it uses.
    let same = |dim: &Dim| program.dims.iter().find(|known| known.name == dim.name).cloned();
    plan.dims.iter().map(same).collect()
}

/// Characters to a line.
pub(crate) fn width(asked: Option<usize>) -> usize {
    let of_terminal = || {
        let size = std::io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
        size.map(|(width, _)| usize::from(width.0))
    };
    asked.or_else(of_terminal).unwrap_or(WIDTH).clamp(20, 1000)
}
