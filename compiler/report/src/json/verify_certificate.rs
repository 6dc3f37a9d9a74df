//! `shardc.verify-certificate/1`.

use serde::Serialize;
use shard_rewrite::Proof;
use shard_rewrite::certificate::Verified;

use super::text;

#[derive(Debug, Serialize)]
struct LayerJson<'a> {
    name: &'a str,
    cost_s: f64,
    lower_bound_s: f64,
    proof: Option<&'static str>,
    inequalities: u64,
}

#[derive(Debug, Serialize)]
struct VerifiedJson<'a> {
    schema: &'static str,
    layers: Vec<LayerJson<'a>>,
}

/// The document of `verify-certificate --format json`.
pub fn verified(layers: &[Verified]) -> String {
    let layers = layers
        .iter()
        .map(|l| LayerJson {
            name: &l.layer,
            cost_s: l.cost.seconds(),
            lower_bound_s: l.lower_bound.seconds(),
            proof: l.proof.map(|proof| match proof {
                Proof::Certificate => "certificate",
                Proof::Search => "search",
            }),
            inequalities: l.inequalities,
        })
        .collect();
    text(&VerifiedJson { schema: "shardc.verify-certificate/1", layers })
}
