//! Better plans for the objective that counts moves alone.
//!
//! Where moves alone count, nearly all ways of doing an op tie, and a search may reach a limit
//! among them with a plan that moves far more than it need. A search in which ops count a little
//! does not.

use shard_cost::{Hardware, Objective, Weights, price};
use shard_ir::Program;

use crate::{LowerError, LowerOptions, Lowered, Optimality, Proof, Status, lower};

/// How many times as much as the time of an op the time of a move counts, in the searches that are
/// made after the one for moves alone has ended at a limit.
const MOVES_COUNT: [u32; 3] = [64, 8, 1];

/// The plan of least communication time among `found` and the plans that are best where ops count
/// too. A limit ended the search for `found`; `hardware` counts moves alone.
pub(crate) fn improved(
    mut found: Lowered,
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Lowered, LowerError> {
    let all_steps = LowerOptions { objective: Objective::Serial, ..options.clone() };
    for moves in MOVES_COUNT {
        if found.optimality.status == Status::Proven {
            break;
        }
        let weighed = hardware.weighted(Weights { ops: 1, moves });
        let other = match lower::lower(program, &weighed, &all_steps) {
            Ok(other) => other,
            // The plan that is known stands.
            Err(
                LowerError::Limit { .. }
                | LowerError::NoPlanFits { .. }
                | LowerError::OutOfTime
                | LowerError::TooLong(_)
                | LowerError::Unreachable { .. },
            ) => continue,
            Err(other) => return Err(other),
        };
        found = better(found, other, hardware)?;
    }
    Ok(found)
}

/// The plan of less communication time of two, with the bound on all plans that `found` has.
fn better(found: Lowered, other: Lowered, hardware: &Hardware) -> Result<Lowered, LowerError> {
    let cost = price(&other.plan, hardware).totals.serial_time;
    let least = found.optimality.lower_bound;
    if cost >= found.optimality.cost {
        return Ok(found);
    }
    if cost < least {
        let (cost, least) = (cost.0, least.0);
        return Err(LowerError::Internal(format!(
            "a plan of {cost} ps of moves is below the bound of {least} ps"
        )));
    }
    let mut optimality = Optimality { cost, ..found.optimality };
    if cost == least {
        (optimality.status, optimality.proof) = (Status::Proven, Some(Proof::Search));
        optimality.stopped_by = None;
    }
    Ok(Lowered { optimality, remembered: other.remembered.unpriced(), ..other })
}
