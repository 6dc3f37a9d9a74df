//! Source text through the whole compiler, and everything that is claimed of the result.

use shard_check::{CheckOptions, Checked, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::{InstrId, InstrKind, Plan, Program, text, verify};
use shard_runtime::{Report, RunOptions, run_plan};
use shard_search::{LowerError, LowerOptions, lower};

/// Checks a text.
pub fn check(source: &str) -> Checked {
    check_source(&SourceFile::new("test.shard", source), &CheckOptions::default())
}

/// The programs of all layers of a text without errors.
pub fn compile(source: &str) -> Vec<Program> {
    let checked = check(source);
    let errors: Vec<String> = checked
        .diagnostics
        .iter()
        .filter(|d| d.is_error())
        .map(|d| format!("{} {}", d.code, d.message))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{source}");
    checked.programs
}

/// ESTI's flat network, the hardware of all these tests.
pub fn hardware() -> Hardware {
    Hardware::built_in("tpu-v4-flat").expect("a built-in chip")
}

/// The plans of all layers of a text without errors, each verified; for a strict layer that lacks
/// collectives, the plan that has them.
pub fn lower_all(source: &str) -> Vec<Plan> {
    let mut chip = hardware();
    chip.host_rate = Some(15_000_000_000);
    let lowered = |program: &Program| match lower(program, &chip, &LowerOptions::default()) {
        Ok(lowered) => lowered.plan,
        Err(LowerError::Strict { plan, .. }) => *plan,
        Err(error) => panic!("{error}\n{source}"),
    };
    let plans: Vec<Plan> = compile(source).iter().map(lowered).collect();
    for plan in &plans {
        verify::verify(plan).unwrap_or_else(|errors| panic!("{errors:#?}\n{source}"));
    }
    plans
}

/// Everything that is claimed of a plan of executable size: it verifies, its printed text reads
/// back as the same plan, it gives the results of the unsharded program, and each move sends the
/// bytes of the cost model. Returns the verdict of the run.
pub fn judge(plan: &Plan, seed: u64) -> Result<Report, String> {
    verify::verify(plan).map_err(|errors| format!("the plan is wrong: {errors:?}"))?;
    let printed = text::print(plan);
    let parsed = text::parse(&printed)
        .map_err(|error| format!("its text is not read back: {error}\n{printed}"))?;
    let [parsed] = parsed.as_slice() else {
        return Err(format!("its text holds {} plans", parsed.len()));
    };
    if text::print(parsed) != printed {
        return Err(format!(
            "its text reads back as another plan:\n{printed}\n{}",
            text::print(parsed)
        ));
    }
    let failed = |error| format!("it does not run: {error}\n{printed}");
    let applied = shard_runtime::written_out(plan, false).map_err(failed)?;
    let report =
        run_plan(&applied.plan, &RunOptions { seed, ..RunOptions::default() }).map_err(failed)?;
    let report = shard_runtime::folded(report, &applied.of);
    if !report.equal {
        return Err(format!(
            "it differs by {:e} of {:e}\n{printed}",
            report.max_abs_err,
            report.scale()
        ));
    }
    let price = shard_cost::price(plan, &hardware());
    for trace in &report.collectives {
        let Some(cost) = price.of(trace.id).collective() else {
            return Err(format!("%{} was counted, and is no collective\n{printed}", trace.id.0));
        };
        if cost.wire_bytes.0 != trace.wire_bytes {
            let (sent, said) = (trace.wire_bytes, cost.wire_bytes.0);
            return Err(format!(
                "%{} sent {sent} bytes, and the model says {said}\n{printed}",
                trace.id.0
            ));
        }
    }
    Ok(report)
}

/// A move of a plan, in words.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moved {
    /// `all-gather`.
    pub op: String,
    /// `yz`.
    pub axes: String,
    /// The dim; both dims for an all-to-all, `H to B`; none for an all-reduce.
    pub dim: Option<String>,
    /// The layout after.
    pub to: String,
}

/// The moves of a plan that carry data, in program order, each with its instruction.
pub fn moves(plan: &Plan) -> Vec<(InstrId, Moved)> {
    let mut found = Vec::new();
    for id in plan.ids() {
        let instr = plan.instruction(id);
        let InstrKind::Move(collective) = &instr.kind else { continue };
        if !collective.has_traffic() {
            continue;
        }
        let from = plan.instruction(instr.operands[0]).layout;
        let names = plan.dim_names(&instr.dims);
        let dim = match collective.terms().dims {
            [Some(from_dim), Some(to_dim)] => {
                Some(format!("{} to {}", names[from_dim], names[to_dim]))
            }
            _ => {
                let dims: Vec<&str> =
                    collective.parts(from).iter().map(|(dim, _)| names[*dim]).collect();
                Some(dims.join(" and ")).filter(|dims| !dims.is_empty())
            }
        };
        let axes = plan.mesh.axes_text(collective.axes(&plan.mesh, from).iter());
        found.push((
            id,
            Moved { op: collective.name().to_string(), axes, dim, to: plan.layout_text(id) },
        ));
    }
    found
}
