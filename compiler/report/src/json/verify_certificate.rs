//! `shardc.verify-certificate/1`.

use serde::Serialize;
use shard_search::Proof;
use shard_search::certificate::Verified;

use super::text;

#[derive(Debug, Serialize)]
struct LayerJson<'a> {
    name: &'a str,
    cost_s: f64,
    lower_bound_s: f64,
    status: &'static str,
    proof: Option<&'static str>,
    inequalities: u64,
    hardware: &'a str,
    hardware_is_built_in: bool,
    limit: Option<String>,
    unshown: Option<String>,
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
            status: if l.is_proven() { "proven" } else { "not proven by prices" },
            proof: l.proof.map(|proof| match proof {
                Proof::Certificate => "certificate",
                Proof::Search => "search",
            }),
            inequalities: l.inequalities,
            hardware: &l.chip,
            hardware_is_built_in: l.built_in,
            limit: l.limit.map(|limit| limit.to_string()),
            unshown: l.unshown.map(|why| why.to_string()),
        })
        .collect();
    text(&VerifiedJson { schema: "shardc.verify-certificate/1", layers })
}
