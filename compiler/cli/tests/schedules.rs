//! Schedules: `lower --emit schedule` writes them, `run` takes them back, `run --schedule` executes
//! what it has scheduled itself.

#![allow(missing_docs, unreachable_pub)]

mod common;

use common::{fed, shardc};
use serde_json::Value;

fn written(more: &[&str]) -> Value {
    let args = [&["lower", "mlp.shard", "--small", "--emit", "schedule"][..], more].concat();
    let ran = shardc(&args);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let path = format!("{}/../../spec/schema/schedule.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    document
}

fn run(document: &Value) -> common::Ran {
    fed(&["run", "-"], &document.to_string())
}

#[test]
fn a_schedule_is_written_and_taken_back() {
    for more in [&[][..], &["--fuse"]] {
        let ran = run(&written(more));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{}", ran.out);
        assert!(ran.out.starts_with("mlp: equal on 64 devices"), "{}", ran.out);
        assert!(ran.out.contains("without a race"), "{}", ran.out);
    }
}

#[test]
fn a_run_on_streams_counts_what_buffers_hold() {
    let ran = shardc(&["run", "mlp.shard", "--schedule", "--format", "json"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let held = &document["layers"][0]["schedule"];
    assert_eq!(held["peak_bytes"], held["model_peak_bytes"]);
    assert!(held["address_bytes"].as_u64() >= held["peak_bytes"].as_u64());
}

#[test]
fn a_wait_that_is_left_out_is_a_race() {
    let mut document = written(&[]);
    let tasks = document["layers"][0]["tasks"].as_array_mut().expect("tasks");
    let waiting = tasks.iter_mut().find(|task| task["waits"] != serde_json::json!([]));
    waiting.expect("a task that waits")["waits"] = serde_json::json!([]);
    let ran = run(&document);
    assert_eq!(ran.status, 1, "{}", ran.out);
    assert!(
        ran.err.contains("touch the same bytes, and neither waits for the other"),
        "{}",
        ran.err
    );
}

#[test]
fn two_buffers_at_one_address_are_refused() {
    let mut document = written(&[]);
    for buffer in document["layers"][0]["buffers"].as_array_mut().expect("buffers") {
        buffer["address"] = serde_json::json!(0);
    }
    let ran = run(&document);
    assert_eq!(ran.status, 1, "{}", ran.out);
    assert!(ran.err.contains("share bytes at the same time"), "{}", ran.err);
}

#[test]
fn an_async_that_is_done_too_early_is_refused() {
    let mut document = written(&[]);
    for task in document["layers"][0]["tasks"].as_array_mut().expect("tasks") {
        if task["waits"] != serde_json::json!([]) {
            let takes = task["finish_ps"].as_u64().zip(task["start_ps"].as_u64());
            let (finish, start) = takes.expect("times");
            task["start_ps"] = serde_json::json!(0);
            task["finish_ps"] = serde_json::json!(finish - start);
        }
    }
    let ran = run(&document);
    assert_eq!(ran.status, 1, "{}", ran.out);
    assert!(ran.err.contains("is wrong"), "{}", ran.err);
}

#[test]
fn what_is_no_schedule_is_refused_in_words() {
    let good = written(&[]);
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        let ran = run(&document);
        assert_eq!(ran.status, 1, "{}{}", ran.out, ran.err);
        assert!(ran.err.starts_with("error: `-`: "), "{}", ran.err);
    };
    broken(&|d| d["layers"][0]["streams"] = serde_json::json!([]));
    broken(&|d| d["layers"][0]["held_by"] = serde_json::json!([]));
    broken(&|d| d["layers"][0]["plan"] = serde_json::json!(["shir 1"]));
    broken(&|d| d["layers"][0]["peak_bytes"] = serde_json::json!(1));
    broken(&|d| d["layers"][0]["makespan_ps"] = serde_json::json!(1));
    broken(&|d| d["layers"][0]["tasks"] = serde_json::json!([]));
    broken(&|d| d["layers"][0]["buffers"] = serde_json::json!([]));
    broken(&|d| d["layers"][0]["tasks"][0]["ids"] = serde_json::json!([4_000_000_000u32]));
    broken(&|d| d["layers"][0]["tasks"][0]["waits"] = serde_json::json!([0]));
    broken(&|d| d["layers"][0]["tasks"][0]["work"] = serde_json::json!("chunk"));
    broken(&|d| d["layers"][0]["buffers"][0]["bytes"] = serde_json::json!(u64::MAX));
    broken(&|d| d["schema"] = serde_json::json!("shardc.schedule/2"));
    broken(&|d| {
        d["layers"][0].as_object_mut().expect("a layer").remove("tasks");
    });
    let mut far = good.clone();
    far["layers"][0]["buffers"][0]["address"] = serde_json::json!(u64::MAX / 2);
    let ran = run(&far);
    assert_eq!(ran.status, 2, "{}", ran.err);
    assert!(ran.err.contains("shardc lower FILE --small --emit schedule"), "{}", ran.err);
}

#[test]
fn a_schedule_takes_no_option_that_would_change_it() {
    let document = written(&[]).to_string();
    let ran = fed(&["run", "-", "-D", "B=4"], &document);
    assert_eq!(ran.status, 2, "{}", ran.err);
    assert!(ran.err.contains("executed as it stands"), "{}", ran.err);
}
