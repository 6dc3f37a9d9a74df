//! Which pins cost time: whether a plan takes less time where they are left open.

use shard_cost::Hardware;
use shard_ir::{Def, LayoutPattern, Program, ValueId};

use crate::axis_orders::{PART_OF_STATES, questions};
use crate::demand::is_argument;
use crate::lower::{KnownForms, lower_below};
use crate::{Limits, LowerError, LowerOptions, Lowered};

/// Of some groups of pins those that cost time, by index, given the best plan with all of them. A
/// group costs time if a plan takes less where this group alone is left open. A group that there is
/// no work left to ask about counts as one. Where all groups together cost time and none does
/// alone, all are returned.
pub fn pins_that_cost(
    program: &Program,
    lowered: &Lowered,
    hardware: &Hardware,
    options: &LowerOptions,
    groups: &[Vec<ValueId>],
) -> Result<Vec<usize>, LowerError> {
    let hardware = &*options.priced_by(hardware);
    let expansions = options.limits.expansions / PART_OF_STATES;
    let limits = Limits { expansions, trials: false, time_alone: true, ..options.limits.clone() };
    let options = LowerOptions { limits, ..options.clone() };
    let known = KnownForms::of(&lowered.remembered);
    let cost = |pins: &[ValueId]| -> Result<bool, LowerError> {
        let freed = without(program, pins);
        let below = lowered.optimality.cost.0;
        match lower_below(&freed, hardware, &options, below, &known) {
            Ok(found) => Ok(found.is_some()),
            // A search that ended early does not show that the pins cost nothing.
            Err(LowerError::Limit { .. } | LowerError::OutOfTime) => Ok(true),
            Err(other) => Err(other),
        }
    };
    if groups.is_empty() || !cost(&groups.concat())? {
        return Ok(Vec::new());
    }
    let asked = questions(lowered);
    let mut found = Vec::new();
    for (place, pins) in groups.iter().enumerate() {
        if groups.len() == 1 || place >= asked || cost(pins)? {
            found.push(place);
        }
    }
    Ok(if found.is_empty() { (0..groups.len()).collect() } else { found })
}

/// The program with some pins left open.
fn without(program: &Program, pins: &[ValueId]) -> Program {
    let mut freed = program.clone();
    for pin in pins {
        let at_a_border = is_argument(program, *pin);
        if let Def::Pin { pattern, .. } = &mut freed.values[pin.index()].def {
            *pattern = LayoutPattern::any(pattern.dims.len(), !at_a_border);
        }
    }
    freed
}
