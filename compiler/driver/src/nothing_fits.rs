//! The diagnostic where no plan fits in memory: what takes too much, and what would fit, found by
//! lowering again.

use shard_check::diagnostics::{HardwareProblem, NoPlanFits};
use shard_check::{CheckOptions, Diagnostic};
use shard_cost::{Hardware, Memory, buffers};
use shard_grammar::{SourceFile, Span};
use shard_ir::{Def, DimId, Dtype, InstrId, Op, ParameterKind, Plan, Program, ValueId};
use shard_search::{Limits, LowerOptions, least_kept, lower};

use crate::pipeline;

/// At most so many of the largest values are named.
const MOST_NAMED: usize = 3;

/// What was lowered: enough to lower it again with something changed.
pub(crate) struct Asked<'a> {
    pub(crate) file: &'a SourceFile,
    pub(crate) check: &'a CheckOptions,
    pub(crate) lower: &'a LowerOptions,
    pub(crate) hardware: &'a Hardware,
    pub(crate) program: &'a Program,
}

/// The diagnostic for a program of which no plan was found that fits, with changes that would fit,
/// if any was found. `plan` is the fastest plan of any size, `least` the least bytes that a plan
/// needs; `proven` where no plan fits, and not only none was found.
pub(crate) fn no_plan_fits(
    asked: &Asked<'_>,
    header: Option<Span>,
    plan: &Plan,
    least: u64,
    proven: bool,
) -> Diagnostic {
    problem(asked.hardware, header, plan, least, proven, ways_out(asked)).into()
}

/// As `no_plan_fits`, without a search for what would fit: for one of many points of a sweep.
pub fn does_not_fit(
    hardware: &Hardware,
    header: Option<Span>,
    plan: &Plan,
    least: u64,
    proven: bool,
) -> Diagnostic {
    problem(hardware, header, plan, least, proven, Vec::new()).into()
}

fn problem(
    hardware: &Hardware,
    header: Option<Span>,
    plan: &Plan,
    least: u64,
    proven: bool,
    ways_out: Vec<String>,
) -> HardwareProblem {
    let memory = Memory::of(plan);
    let layers =
        if plan.repeat > 1 { format!(" of {} layers", plan.repeat) } else { String::new() };
    let parts = vec![
        (format!("weights{layers}"), memory.all_weights().0),
        (format!("caches{layers}"), memory.all_caches().0),
        ("activations".to_string(), memory.activations.0),
    ];
    HardwareProblem::NoPlanFits(NoPlanFits {
        layer: plan.name.clone(),
        phase: plan.phase.clone(),
        span: header.unwrap_or_default(),
        chip: hardware.name.clone(),
        capacity: hardware.hbm_bytes,
        limited: shard_report::memory::limit(hardware),
        least,
        proven,
        parts: parts.into_iter().filter(|(_, n)| *n > 0).collect(),
        largest: largest(plan),
        ways_out,
    })
}

/// The values that take most memory: weights and caches with all their layers, and activations.
fn largest(plan: &Plan) -> Vec<(String, u64, Option<Span>)> {
    let held = |id: InstrId| match plan.instruction(id).kind.parameter() {
        Some(ParameterKind::Weight | ParameterKind::Cache) => {
            let layers = plan.repeat.saturating_mul(plan.copies_of(id));
            plan.local_bytes(id).saturating_mul(layers)
        }
        Some(ParameterKind::HostWeight) => 0,
        Some(ParameterKind::Activation) | None => plan.local_bytes(id),
    };
    // A value that lies in the buffer of another value, or in none, is left out.
    let mut ids: Vec<InstrId> =
        plan.ids().zip(buffers(plan)).filter(|(id, at)| *at == Some(*id)).map(|p| p.0).collect();
    ids.sort_by_key(|id| (std::cmp::Reverse(held(*id)), *id));
    let text = |id: InstrId| {
        let instr = plan.instruction(id);
        let word = instr.kind.parameter().and_then(ParameterKind::word);
        let kind = word.map(|word| format!("{word} ")).unwrap_or_default();
        let name = instr.name.clone().unwrap_or_else(|| format!("%{}", id.0));
        format!("{name}: {kind}{} {}", instr.dtype.name(), plan.layout_text(id))
    };
    ids.into_iter()
        .take(MOST_NAMED)
        .map(|id| (text(id), held(id), plan.instruction(id).origin.span))
        .collect()
}

/// Changes with which a plan fits, as they can be typed: a smaller dim, a larger mesh, narrower
/// weights. Each was lowered.
fn ways_out(asked: &Asked<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(smaller_dims(asked));
    found.extend(larger_mesh(asked));
    found.extend(narrower_weights(asked));
    found
}

/// Searches that are tried for each kind of way out.
const TRIES: usize = 4;

/// The part of the limits of a usual search that one for a way out has.
const PART_OF_A_SEARCH: usize = 8;

/// Whether a plan is found that fits, without a long search for a small one or a better one.
fn fits(asked: &Asked<'_>, program: &Program) -> bool {
    let limits = Limits { descents: 0, trials: false, ..asked.lower.limits.part(PART_OF_A_SEARCH) };
    lower(program, asked.hardware, &LowerOptions { limits, ..asked.lower.clone() }).is_ok()
}

fn may_fit(asked: &Asked<'_>, program: &Program) -> bool {
    least_kept(program) <= asked.hardware.hbm_bytes
}

/// The program of the same layer when it is checked with other options.
fn checked(asked: &Asked<'_>, options: &CheckOptions) -> Option<Program> {
    let checked = pipeline::check(asked.file, options);
    let sound = !checked.diagnostics.iter().any(Diagnostic::is_error);
    let phase = |p: &Program| p.phase.as_ref().map(|phase| phase.name.clone());
    let is_same = |p: &Program| p.name == asked.program.name && phase(p) == phase(asked.program);
    checked.programs.into_iter().find(|p| sound && is_same(p))
}

/// For each dim that caches or activations have and no weight has: the size, halved as often as
/// needed, with which a plan fits.
fn smaller_dims(asked: &Asked<'_>) -> Vec<String> {
    let program = asked.program;
    let dims_of = |wanted: &dyn Fn(ParameterKind) -> bool| -> Vec<DimId> {
        program
            .values
            .iter()
            .filter(|v| matches!(v.def, Def::Parameter { kind, .. } if wanted(kind)))
            .flat_map(|v| v.dims.iter().copied())
            .collect()
    };
    let of_weights = dims_of(&|kind| kind == ParameterKind::Weight);
    let mut dims = dims_of(&|kind| kind != ParameterKind::Weight);
    dims.sort_unstable();
    dims.dedup();
    let mut found = Vec::new();
    for dim in dims.into_iter().filter(|d| !of_weights.contains(d)) {
        let dim = &program.dims[dim.index()];
        let halves = std::iter::successors(Some(dim.size / 2), |size| Some(size / 2))
            .take_while(|size| *size > 0);
        let candidates = halves.filter_map(|size| {
            let mut options = asked.check.clone();
            options.dim_overrides.retain(|(name, _)| *name != dim.name);
            options.dim_overrides.push((dim.name.clone(), size.to_string()));
            Some((size, checked(asked, &options)?))
        });
        let mut promising = candidates.filter(|(_, program)| may_fit(asked, program)).take(TRIES);
        if let Some((size, _)) = promising.find(|(_, program)| fits(asked, program)) {
            found.push(format!("-D {}={size}", dim.name));
        }
    }
    found
}

/// The mesh with one axis made larger by the least power of two with which a plan fits.
fn larger_mesh(asked: &Asked<'_>) -> Option<String> {
    let axes = asked.program.mesh.declared();
    let mut tries = TRIES;
    for factor in [2, 4, 8, 16, 32, 64] {
        for larger in 0..axes.len() {
            let mesh: Vec<(String, u64)> = axes
                .iter()
                .enumerate()
                .map(|(i, (name, size))| {
                    (name.clone(), if i == larger { size * factor } else { *size })
                })
                .collect();
            let options = CheckOptions { mesh_override: Some(mesh.clone()), ..asked.check.clone() };
            let Some(program) = checked(asked, &options).filter(|p| may_fit(asked, p)) else {
                continue;
            };
            if fits(asked, &program) {
                let axes: Vec<String> =
                    mesh.iter().map(|(name, size)| format!("{name}={size}")).collect();
                return Some(format!("--mesh {}", axes.join(",")));
            }
            tries -= 1;
            if tries == 0 {
                return None;
            }
        }
    }
    None
}

/// The weights that only einsums read, as int8, where a plan fits then.
fn narrower_weights(asked: &Asked<'_>) -> Option<String> {
    let read_by_einsums_alone = |id: ValueId| {
        asked.program.values.iter().filter(|v| v.def.operands().contains(&id)).all(|v| {
            let products = v
                .def
                .operands()
                .iter()
                .filter(|o| asked.program.value(**o).dtype.is_narrow())
                .count();
            matches!(v.def, Def::Op { op: Op::Einsum, .. }) && products == 0
        })
    };
    let mut program = asked.program.clone();
    let mut narrowed = Vec::new();
    for id in asked.program.value_ids() {
        let value = asked.program.value(id);
        let is_weight = matches!(value.def, Def::Parameter { kind: ParameterKind::Weight, .. });
        if is_weight
            && value.dtype.bits() > Dtype::Int8.bits()
            && value.dtype.is_float()
            && read_by_einsums_alone(id)
        {
            program.values[id.index()].dtype = Dtype::Int8;
            narrowed.extend(value.name.clone());
        }
    }
    let fits = !narrowed.is_empty() && may_fit(asked, &program) && fits(asked, &program);
    fits.then(|| format!("`weight int8` for {}", narrowed.join(", ")))
}
