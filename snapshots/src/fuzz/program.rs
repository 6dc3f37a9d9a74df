//! `.shard` files: checked, formatted, lowered under small limits, verified, priced, reported,
//! shrunk and executed.

use shard_check::{CheckOptions, Checked};
use shard_cost::{Hardware, Objective};
use shard_driver::pipeline::{self, CompileError};
use shard_grammar::ast::HardwareRef;
use shard_grammar::{SourceFile, SyntaxErrorKind};
use shard_ir::Program;
use shard_runtime::Random;
use shard_search::{Limits, LowerError, LowerOptions};

use super::plan::whole_pipeline;
use super::{Depth, Mutator, Shardc, Surface, Verdict, hash, strange, text_of, well_formed, words};
use crate::files::all_programs;
use crate::random_programs::generate;

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "shard", extension: "shard", corpus, make, judge };

/// The largest example that is spoiled: larger ones take long and say no more.
const MAX_EXAMPLE: usize = 4000;

/// Every example, right and wrong, programs of strange sizes, and random ones.
pub(super) fn corpus(_: &Shardc) -> Vec<Vec<u8>> {
    let examples = all_programs()
        .into_iter()
        .map(|example| example.text)
        .filter(|text| text.len() < MAX_EXAMPLE);
    // As many as of all others, since most of the others are wrong, or large.
    let strange = strange::programs().into_iter().cycle().take(70);
    examples.chain(strange).chain((0..70).map(generate)).map(String::into_bytes).collect()
}

fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    Mutator::new(random, corpus, words::SHARD).text().into_bytes()
}

fn judge(_: &Shardc, case: &[u8]) -> Verdict {
    let file = SourceFile::new("case.shard", text_of(case));
    let parsed = shard_grammar::parse(&file);
    for error in &parsed.errors {
        well_formed::within(&file, error.span).map_err(|why| format!("a syntax error {why}"))?;
    }
    let checked = pipeline::check(&file, &CheckOptions::default());
    well_formed::diagnostics(&file, &checked.diagnostics)?;
    formatted(&file, &checked)?;
    if checked.has_errors() {
        return Ok(Depth::Refused);
    }
    let named = match parsed.file.hardware().next().map(|line| &line.chip) {
        Some(HardwareRef::BuiltIn(name)) => Hardware::built_in(&name.value),
        _ => None,
    };
    let mut hardware =
        named.or_else(|| Hardware::built_in("tpu-v4-flat")).ok_or("a built-in chip is gone")?;
    // The driver refuses weights in host memory for a chip that states no way there.
    hardware.host_rate.get_or_insert(15_000_000_000);
    let mut depth = Depth::Accepted;
    for root in checked.roots.iter().take(4) {
        depth = depth.max(lowered(&file, &checked.programs[*root], &hardware, hash(case))?);
    }
    Ok(depth)
}

/// Formatting a formatted file does not change it, and formatting keeps its meaning.
fn formatted(file: &SourceFile, checked: &Checked) -> Result<(), String> {
    let once = match shard_grammar::format(file) {
        Ok(once) => SourceFile::new(file.name.as_str(), once),
        Err(errors) => {
            let outgrown =
                errors.iter().any(|e| matches!(e.kind, SyntaxErrorKind::FileTooLarge { .. }));
            let refused = checked.has_errors() || outgrown;
            return refused
                .then_some(())
                .ok_or("a file that checks cannot be formatted".to_string());
        }
    };
    let twice =
        shard_grammar::format(&once).map_err(|_| "a formatted file cannot be formatted again")?;
    if twice != once.text {
        return Err(format!("formatted again, it changes:\n{}\n---\n{twice}", once.text));
    }
    let again = pipeline::check(&once, &CheckOptions::default());
    let codes = |checked: &Checked| {
        let mut codes: Vec<&str> =
            checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| d.code).collect();
        codes.sort_unstable();
        codes
    };
    if codes(checked) == codes(&again) {
        Ok(())
    } else {
        Err(format!("{:?} before formatting, {:?} after", codes(checked), codes(&again)))
    }
}

/// Limits that keep a case short. A plan of a search that reached a limit has to be right, too.
pub(super) fn limits() -> Limits {
    Limits {
        nodes: 60_000,
        layouts: 20_000,
        strategies: 60_000,
        expansions: 500,
        tie_expansions: 50,
        sweeps: 8,
        label_layouts: 60,
        forms: 3,
        enumerated_forms: 64,
        logical_nodes: 256,
        ..Limits::default()
    }
}

fn lowered(file: &SourceFile, program: &Program, hardware: &Hardware, hash: u64) -> Verdict {
    let options = LowerOptions {
        limits: limits(),
        fuse: !program.strict && hash.is_multiple_of(3),
        any_size: !hash.is_multiple_of(5),
        objective: if hash % 7 == 1 { Objective::Comm } else { Objective::Serial },
        ..LowerOptions::default()
    };
    let compiled = match pipeline::compile(program, hardware, &options) {
        Ok(compiled) => compiled,
        Err(CompileError::Internal(problem)) => {
            return Err(format!("internal: {} broke: {}", problem.pass, problem.message));
        }
        Err(CompileError::Lower(LowerError::Internal(why))) => {
            return Err(format!("internal: {why}"));
        }
        Err(CompileError::Lower(
            LowerError::Unreachable { .. }
            | LowerError::Label(_)
            | LowerError::Strict { .. }
            | LowerError::NoPlanFits { .. }
            | LowerError::Limit { .. }
            | LowerError::TooLong(_)
            | LowerError::OutOfTime
            | LowerError::Stopped,
        )) => return Ok(Depth::Accepted),
    };
    if let Some(found) = compiled.optimality.as_ref().filter(|found| found.lower_bound > found.cost)
    {
        return Err(format!(
            "the plan costs {:?}, below the bound of {:?}",
            found.cost, found.lower_bound
        ));
    }
    whole_pipeline(Some((file, program)), &compiled, hardware, options.objective, hash)
}
