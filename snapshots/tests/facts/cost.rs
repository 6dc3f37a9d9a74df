//! Every fact of kind `flops`, `params`, `memory`, `kv-cache`, `roofline` and `layout-cost-formula`
//! of status exact, verified or derived: it is computed by compiling and pricing a program, or the
//! reason why it is not computed is listed beside the checks in [`models`] and [`rooflines`].

use serde_json::Value;

use crate::facts::{Check, models, rooflines};

const KINDS: [&str; 6] =
    ["flops", "params", "memory", "kv-cache", "roofline", "layout-cost-formula"];
const STATES: [&str; 3] = ["exact", "verified", "derived"];

fn check_of(id: &str) -> Option<Check> {
    let listed = models::CHECKS.iter().chain(rooflines::CHECKS).find(|(known, _)| *known == id);
    listed
        .map(|(_, check)| *check)
        .or_else(|| models::by_prefix(id))
        .or_else(|| rooflines::by_prefix(id))
}

#[test]
fn every_fact_of_flops_and_memory_is_what_the_price_says() {
    let text =
        shard_snapshots::files::read(&shard_snapshots::root().join("snapshots/facts/oracle.json"));
    let all: Vec<Value> = serde_json::from_str(&text).expect("facts are JSON");
    let of_these = |fact: &&Value| {
        let is = |key: &str, known: &[&str]| {
            fact[key].as_str().is_some_and(|word| known.contains(&word))
        };
        is("kind", &KINDS) && is("status", &STATES)
    };
    let not_computed =
        || models::NOT_COMPUTED.iter().chain(rooflines::NOT_COMPUTED).map(|(id, _)| *id);
    let mut failures = Vec::new();
    for fact in all.iter().filter(of_these) {
        let id = fact["id"].as_str().expect("an id");
        match (check_of(id), not_computed().any(|listed| listed == id)) {
            (Some(check), false) => {
                failures.extend(check(fact).err().map(|problem| format!("{id}: {problem}")))
            }
            (None, true) => {}
            (Some(_), true) => failures.push(format!("{id}: listed as not computed, and computed")),
            (None, false) => {
                failures.push(format!("{id}: neither computed nor listed: {}", fact["question"]))
            }
        }
    }
    let checks = models::CHECKS.iter().chain(rooflines::CHECKS).map(|(id, _)| *id);
    for listed in checks.chain(not_computed()) {
        let id = listed.split('/').next().unwrap_or_default();
        let known = match id.strip_suffix('*') {
            Some(prefix) => {
                all.iter().any(|fact| fact["id"].as_str().is_some_and(|id| id.starts_with(prefix)))
            }
            None => all.iter().any(|fact| fact["id"] == id),
        };
        if !known {
            failures.push(format!("{listed} is in no fact"));
        }
    }
    assert!(failures.is_empty(), "{} facts fail:\n{}", failures.len(), failures.join("\n"));
}
