//! Stacks of two kinds of layers: found, bounded, proven, executed.

use crate::common::{Ran, fed, shardc};
use serde_json::Value;

/// Five layers; memory has no room for a second copy of all their weights.
const STACK: &str = "hardware tpu-v5e
mesh x=2, y=2
dim B = 512
dim E = 1024
dim F = 4096
layer mlp(a: bf16 B_xE, w1: weight bf16 EF?, w2: weight bf16 FE?) -> bf16 B_xE repeat 5 {
  return a + einsum(relu(einsum(a, w1 -> BF)), w2 -> BE)
}
";

fn asked(source: &str, args: &[&str]) -> Ran {
    fed(&[&["explain", "-", "--no-alternatives"], args].concat(), source)
}

/// The time of the stack in picoseconds, with one kind of layers or, with `split`, with two.
fn time(split: &str, limit: &str) -> u64 {
    let source = STACK.replace("repeat 5", &format!("repeat {split}"));
    let ran = fed(&["cost", "-", "--format", "json", "--memory-limit", limit], &source);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{split}");
    let json: Value = serde_json::from_str(&ran.out).expect("JSON");
    let layer = &json["layers"][0];
    assert_eq!(layer["optimality"]["status"], "proven");
    let seconds = layer["optimality"]["cost_s"].as_f64().expect("a time");
    (seconds * 1e12).round() as u64 * layer["repeat"].as_u64().unwrap_or(1)
}

#[test]
fn the_split_that_is_found_and_said_to_be_proven_is_the_best_of_all() {
    for (limit, is_split) in [("25MB", false), ("30MB", true), ("40MB", true), ("50MB", false)] {
        let splits = ["5", "1 + 4", "2 + 3", "3 + 2", "4 + 1"];
        let best = splits.iter().min_by_key(|split| time(split, limit)).expect("several");
        let ran = asked(STACK, &["--two-kinds", "--memory-limit", limit]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        assert_eq!(*best != "5", is_split, "{limit}");
        let (said, proof) = match is_split {
            true => (format!("`repeat {best}`"), "no split takes less, as is proven"),
            false => ("no two kinds of layers take less than one".to_string(), "of every split"),
        };
        assert!(ran.err.contains(&said) && ran.err.contains(proof), "{limit}: {}", ran.err);
        assert_eq!(ran.out.starts_with("model mlp"), is_split, "{}", ran.out);
    }
}

#[test]
fn the_specification_shows_what_is_said() {
    let shown = include_str!("../../../spec/search.md");
    let ran = asked(STACK, &["--two-kinds", "--memory-limit", "40MB"]);
    assert!(ran.err.starts_with("note: `mlp`") && shown.contains(ran.err.trim()), "{}", ran.err);
    let stack = STACK.replace("hardware tpu-v5e\n", "").replace("repeat 5", "repeat 3 + 2");
    assert!(include_str!("../../../spec/language.md").contains(&stack));
}

#[test]
fn nothing_is_said_to_be_proven_of_splits_that_one_kind_does_not_bound() {
    // In the first program a mask is gathered once in a block, but once for each layer of a stack.
    // In the second two maps are one kernel where no block ends between them.
    let dims = "hardware tpu-v5e\nmesh x=4\ndim B = 1024\ndim E = 1024\ndim F = 1024\n";
    let masked = "layer f(a: bf16 B_xE, m: bf16 BE_x, w: weight bf16 EF?) -> bf16 B_xE repeat 60 {
        return a * m + rename(einsum(a, w -> BF), F -> E) }";
    let ran = asked(&format!("{dims}{masked}"), &["--two-kinds"]);
    assert!(ran.err.contains("less than one kind"), "{}", ran.err);
    assert!(ran.err.contains("is not known") && !ran.err.contains("proven"), "{}", ran.err);
    let maps = "layer f(a: bf16 B_xE) -> bf16 B_xE repeat 2 { return gelu(a) }";
    let ran = asked(&format!("{dims}{maps}").replace("x=4", "x=2"), &["--two-kinds"]);
    assert!(ran.err.contains("take 2.59 us, 50.00 % less than one kind (5.18 us)"), "{}", ran.err);
}

#[test]
fn what_is_found_is_as_if_the_source_said_so() {
    let written = STACK.replace("repeat 5", "repeat 3 + 2");
    let args = ["lower", "-", "--memory-limit", "40MB"];
    let split = fed(&[&args[..], &["--two-kinds"]].concat(), STACK);
    assert_eq!(split.out, fed(&args, &written).out);
    assert!(split.out.contains("fold 1 = mlp repeat 2 from"), "{}", split.out);
}

#[test]
fn a_stack_of_two_kinds_is_executed_and_has_a_certificate() {
    let args = ["run", "-", "--memory-limit", "36MB", "--two-kinds"];
    let ran = fed(&args, STACK);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("two_kinds.cert");
    let path = folder.to_string_lossy();
    let args = ["--two-kinds", "--memory-limit", "36MB", "--certificate", &path];
    let made = asked(STACK, &args);
    assert_eq!(made.status, 0, "{}", made.err);
    let held = shardc(&["verify-certificate", &path]);
    assert_eq!(held.status, 0, "{}{}", held.out, held.err);
}

#[test]
fn a_stack_of_more_layers_than_can_be_listed_is_searched_all_the_same() {
    let many = STACK.replace("repeat 5", "repeat 5000000000").replace("hardware tpu-v5e\n", "");
    let ran = asked(&many, &["--two-kinds", "--hardware", "tpu-v5e"]);
    assert!(ran.err.contains("E0704"), "{}", ran.err);
    let ran = asked(
        &STACK.replace("repeat 5", "repeat 5000"),
        &["--two-kinds", "--memory-limit", "40GB"],
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    // The cost of one split bounds no other split, so the search reports a bound for all of them.
    assert!(ran.err.contains("no split takes less than"), "{}", ran.err);
}

#[test]
fn what_has_no_stack_to_split_is_wrong_usage() {
    let model = format!("{STACK}model m(a: bf16 B_xE) -> bf16 B_xE {{ return mlp(a) }}\n");
    let refused = [
        (asked(&model, &["--two-kinds"]), "--layer mlp --two-kinds"),
        (asked(&STACK.replace(" repeat 5", ""), &["--two-kinds"]), "no stack (`repeat N`)"),
        (asked(STACK, &["--two-kinds", "--objective", "comm"]), "--objective serial"),
        (fed(&["explain", "-", "--two-kinds", "--bound-only"], STACK), "repeat 24 + 56"),
    ];
    for (ran, said) in refused {
        assert_eq!(ran.status, 2, "{}", ran.err);
        assert!(ran.err.contains(said), "{}", ran.err);
    }
}
