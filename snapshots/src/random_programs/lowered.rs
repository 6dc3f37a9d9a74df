//! The plans of a random program.

use std::borrow::Cow;

use shard_check::Checked;
use shard_ir::{Plan, Program};
use shard_search::{Limits, LowerError, LowerOptions, Lowered, Optimality, lower, share_weights};

use crate::judge::hardware;

/// Codes that the generator cannot avoid: only the checker knows whether an op may act on a partial
/// value.
const REFUSALS: &[&str] = &["E0501", "E0502"];

/// A program in one phase, lowered.
pub struct LoweredPhase {
    /// The lowered program, with its weights stored as in all phases.
    pub program: Program,
    /// Its plan.
    pub plan: Plan,
    /// How far the plan is from the best one; `None` for a strict layer that lacks moves, whose
    /// plan has them.
    pub optimality: Option<Optimality>,
}

/// Whether the checker refuses a program for a partial value; any other error is a fault of the
/// generator.
pub fn refused(checked: &Checked) -> Result<bool, String> {
    let errors: Vec<_> = checked.diagnostics.iter().filter(|d| d.is_error()).collect();
    match errors.first() {
        _ if errors.iter().any(|d| REFUSALS.contains(&d.code)) => Ok(true),
        Some(error) => Err(format!("the checker refuses it: {} {}", error.code, error.message)),
        None => Ok(false),
    }
}

/// The plans of all phases of a checked program. The search is kept short: the plan of a search
/// that reached a limit has to be right, too.
pub fn lowered(checked: &Checked, fuse: bool) -> Result<Vec<LoweredPhase>, String> {
    let phases: Vec<&Program> = checked.roots.iter().map(|root| &checked.programs[*root]).collect();
    let strict = phases.first().is_some_and(|program| program.strict);
    let limits = Limits { expansions: 2_000, tie_expansions: 100, forms: 4, ..Limits::default() };
    let options = LowerOptions { limits, fuse, ..LowerOptions::default() };
    // The chip of these tests states no link to the host.
    let mut hardware = hardware();
    hardware.host_rate = Some(15_000_000_000);
    let shared = match share_weights(&phases, &hardware, &options) {
        Ok(shared) => shared.map(|shared| shared.programs),
        // The missing lines of a strict layer are reported for each phase.
        Err(LowerError::Strict { .. }) => None,
        Err(error) => return Err(format!("its weights are not stored: {error}")),
    };
    let phases: Vec<Cow<'_, Program>> = match shared {
        Some(programs) => programs.into_iter().map(Cow::Owned).collect(),
        None => phases.into_iter().map(Cow::Borrowed).collect(),
    };
    let one = |program: Cow<'_, Program>| match lower(&program, &hardware, &options) {
        Ok(Lowered { plan, optimality, .. }) => {
            Ok(LoweredPhase { program: program.into_owned(), plan, optimality: Some(optimality) })
        }
        // The plan has the missing lines: it is the plan of the layer with these lines.
        Err(LowerError::Strict { plan, inserted }) if strict && !inserted.is_empty() => {
            Ok(LoweredPhase { program: program.into_owned(), plan: *plan, optimality: None })
        }
        Err(error) => Err(format!("it is not lowered: {error}")),
    };
    phases.into_iter().map(one).collect()
}
