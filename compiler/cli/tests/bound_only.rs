//! `--bound-only`: a lower bound on the cost of every plan, without a plan.

use crate::common::{fed, shardc};
use serde_json::Value;

/// The source of an example.
fn example(path: &str) -> String {
    let path = format!("{}/../../examples/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("an example")
}

const EXAMPLES: [&str; 5] = [
    "feed_forward/2d_weight_stationary.shard",
    "llama/llama_3_70b.shard",
    "llama/llama_3_70b_phases.shard",
    "palm/540b.shard",
    "moe/one_hot_routing.shard",
];

fn layers(source: &str, args: &[&str]) -> Vec<Value> {
    let ran = fed(&[&["explain", "-", "--format", "json"], args].concat(), source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let mut document: Value = serde_json::from_str(&ran.out).expect("JSON");
    match document["layers"].take() {
        Value::Array(layers) => layers,
        other => panic!("{other}"),
    }
}

#[test]
fn no_plan_is_below_the_bound_and_one_proven_by_prices_meets_it() {
    let mut met = 0;
    for path in EXAMPLES {
        let source = example(path);
        let bounds = layers(&source, &["--bound-only"]);
        let plans = layers(&source, &["--no-alternatives"]);
        assert_eq!(bounds.len(), plans.len(), "{path}");
        for (bound, plan) in bounds.iter().zip(&plans) {
            assert_eq!(bound["name"], plan["name"], "{path}");
            let least = bound["lower_bound_s"].as_f64().expect("seconds");
            let cost = plan["optimality"]["cost_s"].as_f64().expect("seconds");
            assert!(0.0 < least && least <= cost, "{path}: {least} {cost}");
            met += usize::from(plan["optimality"]["proof"] == "certificate" && least == cost);
        }
    }
    assert!(met >= 3, "{met}");
}

#[test]
fn every_command_that_shows_a_plan_shows_the_bound_alike() {
    let of = |args: &[&str]| shardc(&[args, &["mlp.shard", "--bound-only"]].concat());
    let explained = of(&["explain"]);
    assert_eq!(explained.status, 0, "{}", explained.err);
    assert_eq!(explained.out, of(&["cost"]).out);
    assert_eq!(explained.out, of(&["lower"]).out);
    assert_eq!(
        explained.out,
        "layer mlp
  mesh       x=4, y=4, z=4 (64 devices)
  hardware   tpu-v4-flat
  time       at least 219 us
  memory     at least 84.9 MB of 34.4 GB a device, for weights and caches
"
    );
}

#[test]
fn of_each_objective_no_plan_is_below_the_bound() {
    let source = example("feed_forward/by_batch.shard");
    for objective in ["serial", "comm", "overlap", "memory"] {
        let bounds = layers(&source, &["--bound-only", "--objective", objective]);
        let plans = layers(&source, &["--no-alternatives", "--objective", objective]);
        for (bound, plan) in bounds.iter().zip(&plans) {
            assert_eq!(bound["objective"], objective);
            let least = bound["lower_bound_s"].as_f64().expect("seconds");
            assert!(
                least <= plan["optimality"]["cost_s"].as_f64().expect("seconds"),
                "{objective}"
            );
        }
    }
}

#[test]
fn where_weights_are_too_large_no_plan_fits() {
    let source = example("llama/llama_3_70b.shard");
    let all = layers(&source, &["--bound-only"]);
    assert_eq!(all[0]["none_fits"], false);
    let small = layers(&source, &["--bound-only", "--memory-limit", "1MB"]);
    assert_eq!((&small[0]["none_fits"], &small[0]["hbm_bytes"]), (&true.into(), &1_000_000.into()));
    assert_eq!(small[0]["lower_bound_s"], all[0]["lower_bound_s"]);
    let text = fed(&["cost", "-", "--bound-only", "--memory-limit", "1MB"], &source).out;
    assert!(text.contains("no plan does"), "{text}");
}

#[test]
fn a_bound_is_no_picture_and_a_plan_has_none() {
    for args in [
        ["explain", "mlp.shard", "--bound-only", "--emit", "html"],
        ["lower", "mlp.shard", "--bound-only", "--emit", "dot"],
        ["explain", "every_move.shir", "--bound-only", "--format", "json"],
        ["explain", "mlp.shard", "--bound-only", "--why", "h"],
    ] {
        assert_eq!(shardc(&args).status, 2, "{args:?}");
    }
}
