//! Models: a folded block counts as much as the same block written out.

use std::process::Command;

use serde_json::Value;
use shard_cost::{Hardware, Memory, price};
use shard_ir::{Plan, text, verify};
use shard_snapshots::examples;
use shard_snapshots::files::root;

fn shardc(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the compiler starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The paths of all examples that are models.
fn models() -> Vec<String> {
    let is_model = |text: &str| text.lines().any(|line| line.starts_with("model "));
    let found: Vec<String> =
        examples().into_iter().filter(|e| is_model(&e.text)).map(|e| e.path).collect();
    assert!(found.len() >= 2);
    found
}

fn plans(path: &str, options: &[&str]) -> Vec<Plan> {
    let plans = text::parse(&shardc(&[&["lower", path], options].concat())).expect("IR text");
    assert!(plans.iter().all(|plan| !plan.folds.is_empty()), "{path}");
    plans
}

#[test]
fn a_folded_plan_takes_the_time_the_bytes_and_the_memory_that_it_takes_written_out() {
    for path in models() {
        for plan in plans(&path, &[]).into_iter().chain(plans(&path, &["--fuse"])) {
            let hardware = Hardware::built_in(plan.hardware.as_deref().expect("a chip"))
                .expect("a built-in one");
            let written = plan.unrolled(u64::MAX).plan;
            assert_eq!(verify::verify(&written), Ok(()), "{path}");
            let (folded, whole) =
                (price(&plan, &hardware).totals, price(&written, &hardware).totals);
            assert_eq!(folded, whole, "{path}");
            assert_eq!(Memory::of(&plan), Memory::of(&written), "{path}");
        }
    }
}

#[test]
fn in_json_the_instructions_of_a_folded_block_say_how_often_they_are_run_and_totals_count_them_all()
{
    for path in models() {
        let report: Value =
            serde_json::from_str(&shardc(&["explain", "--format", "json", &path])).expect("JSON");
        for layer in report["layers"].as_array().expect("layers") {
            let folds = layer["folds"].as_array().expect("folded blocks");
            assert!(!folds.is_empty() && layer["repeat"] == 1);
            let mut seconds = 0.0;
            for instr in layer["instructions"].as_array().expect("instructions") {
                let repeat = instr["repeat"].as_u64().unwrap_or(1);
                let said = instr["fold"]
                    .as_u64()
                    .map_or(1, |at| folds[at as usize]["repeat"].as_u64().expect("a number"));
                assert_eq!(repeat, said, "{path}: {instr}");
                seconds += instr["time_s"].as_f64().unwrap_or(0.0) * repeat as f64;
            }
            let total = layer["totals"]["serial_time_s"].as_f64().expect("seconds");
            assert!((seconds - total).abs() <= 1e-9 * total, "{path}: {seconds} and {total}");
            assert_eq!(
                layer["totals"]["serial_time_s"], layer["model_totals"]["serial_time_s"],
                "{path}"
            );
        }
    }
}

#[test]
fn a_model_is_proven_and_has_a_certificate() {
    let file = std::env::temp_dir().join(format!("shardc-model-{}.json", std::process::id()));
    let path = file.to_str().expect("a plain path");
    shardc(&["explain", "examples/language/models.shard", "--certificate", path]);
    assert!(shardc(&["verify-certificate", path]).contains("proven"));
    // With another number of applications, or a weight gathered once for all of them, the plan is
    // another one.
    let text = std::fs::read_to_string(&file).expect("read");
    for (from, to) in [("repeat 12", "repeat 11"), ("fold 0 = block", "fold 0 = embed")] {
        assert!(text.contains(from), "{text}");
        std::fs::write(&file, text.replace(from, to)).expect("written");
        let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
            .args(["verify-certificate", path])
            .output()
            .expect("the compiler starts");
        assert_eq!(output.status.code(), Some(1), "{from} -> {to}");
    }
    std::fs::remove_file(&file).expect("removed");
}
