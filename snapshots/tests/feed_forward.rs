//! The strategy of a feed-forward layer follows from its batch alone, as in ESTI's Figure 3.

use std::process::Command;

use shard_snapshots::files::root;

/// The strategy that `shardc explain` names for `by_batch.shard` with this batch.
fn strategy(batch: u64) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args([
            "explain",
            "--format",
            "json",
            "-D",
            &format!("B={batch}"),
            "examples/feed_forward/by_batch.shard",
        ])
        .current_dir(root())
        .output()
        .expect("the compiler starts");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let layer = &report["layers"][0];
    assert_eq!(layer["optimality"]["status"], "proven", "{batch}");
    layer["strategy"]
        .as_array()
        .expect("strategies")
        .iter()
        .filter_map(|s| s.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn the_form_goes_from_weight_stationary_to_weight_gathered_as_the_batch_grows() {
    let forms = [
        ("2d-weight-stationary", [4, 8].as_slice()),
        ("x-weight-gathered", &[16, 32]),
        ("xy-weight-gathered", &[64, 128, 512]),
        ("xyz-weight-gathered", &[1024, 2048]),
    ];
    for (form, batches) in forms {
        for batch in batches {
            assert_eq!(strategy(*batch), form, "{batch} sequences of 2048 tokens");
        }
    }
}
