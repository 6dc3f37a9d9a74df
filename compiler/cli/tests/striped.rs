//! What a striped order of queries and keys would save, as `explain` says it.

use crate::common::fed;
use serde_json::Value;

/// Attention with few heads over a split sequence: keys and values are gathered.
fn source(hardware: &str, scores: &str) -> String {
    format!(
        "hardware {hardware}\nmesh c=8\ndim B = 1\ndim L = 65536\ndim S = L\ndim K = 2\ndim G = 3\n\
         dim D = 128\nlayer cp(q: bf16 BL_cKGD, k: bf16 BS_cKD, v: bf16 BS_cKD) -> bf16 BL_cKGD {{\n  \
         let s = einsum(q, k -> BKGLS)\n  return einsum(softmax({scores} over S), v -> BLKGD)\n}}\n"
    )
}

fn striped(source: &str) -> Vec<Value> {
    striped_in(source, &[])
}

fn striped_in(source: &str, more: &[&str]) -> Vec<Value> {
    let arguments = ["explain", "-", "--format", "json", "--no-alternatives"];
    let ran = fed(&[&arguments[..], more].concat(), source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    report["layers"][0]["striped"].as_array().cloned().unwrap_or_default()
}

#[test]
fn contiguous_blocks_of_a_causal_mask_are_told_what_stripes_would_save() {
    let found = striped(&source("tpu-v5p-face", "causal(s over L, S)"));
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&one["queries"], &one["query_blocks"]), (&"L".into(), &8.into()));
    assert_eq!((&one["keys"], &one["key_blocks"]), (&"S".into(), &1.into()));
    let seconds = |key: &str| one[key].as_f64().expect("seconds");
    // The last of 8 blocks attends to seven and a half of 8 blocks of keys; in stripes each device
    // attends to four.
    let ratio = seconds("time_s") / seconds("striped_time_s");
    assert!((ratio - 15.0 / 8.0).abs() < 1e-3, "{ratio}");
}

/// Each step of a ring is as slow as its busiest device; in stripes every device has half a block
/// in each step.
#[test]
fn a_ring_is_told_that_stripes_halve_every_step() {
    let found = striped_in(&source("tpu-v5p-face", "causal(s over L, S)"), &["--fuse"]);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((&one["query_blocks"], &one["key_blocks"]), (&8.into(), &8.into()));
    let seconds = |key: &str| one[key].as_f64().expect("seconds");
    let ratio = seconds("time_s") / seconds("striped_time_s");
    assert!((ratio - 15.0 / 8.0).abs() < 1e-2, "{ratio}");
}

#[test]
fn the_text_names_the_share_and_the_order() {
    let source = source("tpu-v5p-face", "causal(s over L, S)");
    let ran = fed(&["explain", "-", "--width", "600"], &source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let share = "leave the busiest device 1.87 times its share of the pairs in sight; striped (position \
                 p of L in block p mod 8)";
    assert!(ran.out.contains(share), "{}", ran.out);
}

#[test]
fn nothing_is_said_without_a_mask_with_a_narrow_window_and_without_such_a_kernel() {
    for (hardware, scores) in [
        ("tpu-v5p-face", "s"),
        ("tpu-v5p-face", "causal(s over L, S, 1024)"),
        ("tpu-v4-flat", "causal(s over L, S)"),
    ] {
        let found = striped(&source(hardware, scores));
        assert!(found.is_empty(), "{hardware} {scores}: {found:?}");
    }
    // A shift needs the sequence in its order, so no stripes are offered.
    let scores = source("tpu-v5p-face", "causal(s over L, S)");
    let shifted = scores.replace("einsum(q, k", "einsum(q + shift(q over L, 1), k");
    assert_ne!(scores, shifted);
    assert!(striped(&shifted).is_empty());
}
