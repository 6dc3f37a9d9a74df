//! What users see if a release build has a defect: an internal error beside the result, status 1,
//! and no panic.

use std::process::{Command, Output};

use serde_json::Value;
use shard_snapshots::files::root;

const FILE: &str = "examples/feed_forward/2d_weight_stationary.shard";

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"));
    command.args(arguments).current_dir(root()).env("SHARDC_PLANT_A_DEFECT", "1");
    command.output().expect("it starts")
}

#[test]
fn a_defect_is_an_internal_error_beside_the_result() {
    let output = run(&["explain", FILE]);
    let (result, told) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(result.contains("proven by certificate"), "{result}");
    assert!(!told.contains("panicked"), "{told}");
    for line in [
        "error[E0901]: internal error in an invariant: a defect that a test has planted",
        "this is a fault of shardc and not of your program",
        "please report it with the source file and the command line",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert!(told.contains("snapshots/src/shardc_under_test.rs:"), "{told}");
}

#[test]
fn a_defect_is_a_diagnostic_as_json() {
    let output = run(&["check", "--format", "json", FILE]);
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = document["diagnostics"].as_array().expect("a list");
    assert!(found.iter().any(|diagnostic| diagnostic["code"] == "E0901"), "{document}");
}
