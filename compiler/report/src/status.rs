//! How good a plan is known to be, in the words that text and JSON have in common.

use shard_ir::Picoseconds;
use shard_search::{Proof, Status};

/// `proven` or `bounded`.
pub(crate) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Proven => "proven",
        Status::Bounded => "bounded",
    }
}

/// `certificate` or `search`.
pub(crate) fn proof_word(proof: Proof) -> &'static str {
    match proof {
        Proof::Certificate => "certificate",
        Proof::Search => "search",
    }
}

/// How far a cost is above its bound, as a fraction of the bound; `None` above a bound of 0.
pub(crate) fn gap(cost: Picoseconds, bound: Picoseconds) -> Option<f64> {
    match (cost.0.saturating_sub(bound.0), bound.0) {
        (0, _) => Some(0.0),
        (_, 0) => None,
        (excess, bound) => Some(excess as f64 / bound as f64),
    }
}
