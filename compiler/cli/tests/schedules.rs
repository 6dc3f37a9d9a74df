//! Schedules: `lower --emit schedule` writes them, `run` reads them back, and `run --schedule`
//! executes a schedule that it makes itself.

use crate::common::{fed, shardc};
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

fn run(document: &Value) -> crate::common::Ran {
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
fn a_time_that_is_not_the_chip_s_is_refused() {
    let mut document = written(&[]);
    let tasks = document["layers"][0]["tasks"].as_array_mut().expect("tasks");
    let last = tasks.last_mut().expect("a task");
    let finish = last["finish_ps"].as_u64().expect("a time") + 5;
    last["finish_ps"] = serde_json::json!(finish);
    document["layers"][0]["makespan_ps"] = serde_json::json!(finish);
    let buffers = document["layers"][0]["buffers"].as_array_mut().expect("buffers");
    for buffer in buffers.iter_mut().filter(|b| b["until_ps"] == serde_json::json!(finish - 5)) {
        buffer["until_ps"] = serde_json::json!(finish);
    }
    let ran = run(&document);
    assert_eq!(ran.status, 1, "{}", ran.out);
    assert!(ran.err.contains("is not one of tpu-v4-flat: task"), "{}", ran.err);
    assert!(ran.err.contains("and the chip takes"), "{}", ran.err);
    let other = fed(&["run", "-", "--hardware", "tpu-v5p"], &written(&[]).to_string());
    assert_eq!(other.status, 1, "{}", other.out);
    assert!(other.err.contains("is not one of tpu-v5p"), "{}", other.err);
}

const TWO: &str = "mesh x=4\nhardware tpu-v4-flat\ndim B=16\ndim D=32\ndim F=64\nlayer up(x: \
    bf16 B_xD, w: weight bf16 D_xF) -> bf16 B_xF {\n  let y = einsum(x, w -> BF)\n  return y\n}\n\
    layer down(x: bf16 B_xF, v: weight bf16 FD_x) -> bf16 B_xD {\n  let y = einsum(x, v -> BD)\n  \
    return y\n}\n";

#[test]
fn a_layer_is_picked_of_a_file_and_of_what_was_written_of_it() {
    let lower = ["lower", "-", "--small", "--emit", "schedule"];
    let all = fed(&lower, TWO);
    assert_eq!((all.status, all.err.as_str()), (0, ""));
    let one = fed(&[&lower[..], &["--layer", "down"]].concat(), TWO);
    let layers = |text: &str| -> Value { serde_json::from_str::<Value>(text).expect("JSON") };
    assert_eq!(layers(&one.out)["layers"].as_array().map(Vec::len), Some(1));
    assert_eq!(layers(&one.out)["layers"][0], layers(&all.out)["layers"][1]);
    let ran = fed(&["run", "-", "--layer", "down"], &all.out);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("down: equal"), "{}", ran.out);
    assert_eq!(fed(&["run", "-", "--layer", "none"], &all.out).status, 2);
    assert_eq!(fed(&["run", "-", "--phase", "none"], &all.out).status, 2);
}

#[test]
fn inputs_and_outputs_of_a_schedule_are_files_as_those_of_a_layer() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("of_schedules");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let all = fed(&["lower", "-", "--small", "--emit", "schedule"], TWO).out;
    let (first, again) = (at("first.safetensors"), at("again.safetensors"));
    let run = ["run", "-", "--layer", "up"];
    let ran = fed(
        &[&run[..], &["--seed", "1", "--outputs", &first, "--output", &at("all")]].concat(),
        &all,
    );
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert!(folder.join("all/y.npy").is_file());
    // The second layer takes a result of the first as its `x`.
    let x = format!("x={}", at("all/y.npy"));
    let down = ["run", "-", "--layer", "down", "--input", &x, "--outputs", &again];
    let ran = fed(&down, &all);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    // With several layers, a name begins with the name of its layer; a name that no parameter has
    // is an error.
    let ran = fed(&["run", "-", "--inputs", &again], &all);
    assert_eq!(ran.status, 2, "{}", ran.out);
    assert!(ran.err.contains("no parameter has that name"), "{}", ran.err);
    let ran = fed(&["run", "-", "--outputs", &first], &all);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let file = std::fs::read(&first).expect("a file");
    let head = String::from_utf8_lossy(&file[..200.min(file.len())]).to_string();
    assert!(head.contains("\"up.y\"") && head.contains("\"down.y\""), "{head}");
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
