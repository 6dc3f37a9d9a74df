//! `shardc.verify-certificate/1`.

use shard_search::Proof;
use shard_search::certificate::Verified;

use super::text;
use crate::object;

/// The document of `verify-certificate --format json`.
pub fn verified(layers: &[Verified]) -> String {
    let layers = layers
        .iter()
        .map(|l| {
            object!(LayerJson {
                name: &l.layer,
                cost_s: l.cost.seconds(),
                lower_bound_s: l.lower_bound.seconds(),
                status: if l.is_proven() { "proven" } else { "not proven by prices" },
                proof: l.proof.map(Proof::word),
                inequalities: l.inequalities,
                hardware: &l.chip,
                hardware_is_built_in: l.built_in,
                limit: l.limit.map(|limit| limit.to_string()),
                unshown: l.unshown.map(|why| why.to_string()),
            })
        })
        .collect::<Vec<_>>();
    text(&object!(VerifiedJson { schema: "shardc.verify-certificate/1", layers }))
}
