//! How good a plan is known to be.

use shard_ir::Picoseconds;

/// How far a cost is above its bound, as a fraction of the bound; `None` above a bound of 0.
pub(crate) fn gap(cost: Picoseconds, bound: Picoseconds) -> Option<f64> {
    match (cost.0.saturating_sub(bound.0), bound.0) {
        (0, _) => Some(0.0),
        (_, 0) => None,
        (excess, bound) => Some(excess as f64 / bound as f64),
    }
}
