//! `shardc audit` on dumps of XLA.

use crate::common::{fed, shardc};
use serde_json::Value;

const DUMPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../audit/tests/dumps/");

fn dump(path: &str) -> String {
    format!("{DUMPS}{path}")
}

fn json(args: &[&str]) -> Value {
    let ran = shardc(args);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).expect("JSON");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/schema/audit.schema.json");
    let schema = std::fs::read_to_string(schema).expect("a schema file");
    let schema = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a legal schema");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| format!("{} at {}", e, e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    document
}

#[test]
fn the_line_that_sends_most_comes_first_with_its_text_bytes_and_seconds() {
    let dump = dump("bad_wout_columns/cpu.hlo");
    let ran = shardc(&["audit", &dump, "--mesh", "data=2,model=4", "--hardware", "tpu-v5e"]);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let lines: Vec<&str> = ran.out.lines().skip(3).collect();
    assert!(lines[0].starts_with("bad_wout_columns.py:15 "), "{}", ran.out);
    assert!(lines[0].contains("12.6 MB"), "{}", ran.out);
    assert_eq!(lines[1], "  | return jnp.einsum(\"blf,fe->ble\", h, w_out)");
    assert!(lines[2].starts_with("  all-gather over model of f32[4,256,1024] "), "{}", ran.out);
    assert!(ran.out.contains("a result of the program is laid out as `out_shardings`"));
}

#[test]
fn every_dump_meets_the_schema() {
    for (path, mesh) in [
        ("bad_params_out_whole/cpu.hlo", "data=2,model=4"),
        ("train_fsdp_adam/tpu.hlo", "fsdp=8"),
        ("llama_scan/tpu.hlo", "data=4,model=4"),
        ("calibration/cpu.hlo", "a=2,b=4"),
    ] {
        let dump = dump(path);
        let args = ["audit", &dump, "--mesh", mesh, "--hardware", "tpu-v5e", "--format", "json"];
        let found = json(&args);
        let all = found["collectives"].as_array().expect("a list");
        let sum: u64 = all.iter().map(|one| one["wire_bytes"].as_u64().expect("bytes")).sum();
        assert_eq!(found["totals"]["wire_bytes"], sum, "{path}");
        assert!(found["totals"]["time_s"].as_f64().expect("a time") > 0.0, "{path}");
    }
}

#[test]
fn without_a_mesh_groups_are_shown_and_no_time() {
    let dump = dump("gqa_decode/tpu.hlo");
    let found = json(&["audit", &dump, "--emit", "json"]);
    assert_eq!(found["collectives"][0]["axes"], Value::Null);
    assert_eq!(found["totals"]["time_s"], Value::Null);
    assert_eq!(found["totals"]["wire_bytes"], 28672);
    let text = shardc(&["audit", &dump]).out;
    assert!(text.contains("all-reduce over groups of 8: 0 2 4 6 1 3 5 7, .."), "{text}");
}

#[test]
fn above_the_budget_the_status_is_1() {
    let dump = dump("bad_wout_columns/tpu.hlo");
    let ran = shardc(&["audit", &dump, "--max-bytes", "5MB"]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("E0881") && ran.err.contains("bad_wout_columns.py:14"), "{}", ran.err);
    assert_eq!(shardc(&["audit", &dump, "--max-bytes", "7864320"]).status, 0);
}

#[test]
fn what_is_no_dump_is_refused_with_its_place() {
    for (text, wanted) in [
        ("{}", "expected `HloModule`, with which the text of HLO begins, and found `{}`"),
        (
            "HloModule m\n\nENTRY %e () -> f32[] {\n  %a = f32[] add(%b, %b)\n}\n",
            "no instruction `%b`",
        ),
        ("HloModule m\n\nENTRY %e () -> f32[] {\n  %a = f32[] constant(0)\n", "cut off"),
    ] {
        let ran = fed(&["audit", "-"], text);
        assert_eq!(ran.status, 1, "{}", ran.err);
        assert!(ran.err.contains("E0880") && ran.err.contains(wanted), "{}", ran.err);
    }
    let dump = dump("gqa_decode/tpu.hlo");
    let ran = shardc(&["audit", &dump, "--mesh", "data=2,kv=4"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("the mesh has 8 devices, and the program runs on 16"), "{}", ran.err);
}

#[test]
fn workflow_commands_and_the_page_name_the_lines() {
    let dump = dump("bad_stack_axis/tpu.hlo");
    let args = ["audit", &dump, "--mesh", "data=2,model=4"];
    let github = shardc(&[&args[..], &["--emit", "github"]].concat()).out;
    assert!(
        github.starts_with("::notice::a device sends 50.3 MB here (100.0 %25 of all)"),
        "{github}"
    );
    assert!(github.contains("parameter `ws[1]` is gathered in every turn, though it stays"));
    let html = shardc(&[&args[..], &["--emit", "html"]].concat()).out;
    assert!(html.starts_with("<!doctype html>") && !html.contains("<script"));
    assert!(html.contains("all-gather over model of <code>bf16[2,1024,256]</code>, x8"), "{html}");
}

#[test]
fn the_optimum_stands_beside_what_was_compiled_with_the_edit_between_them() {
    let (after, before) =
        (dump("bad_stack_axis/cpu.hlo"), dump("bad_stack_axis/stablehlo.loc.mlir"));
    let args = ["audit", &after, "--before", &before, "--hardware", "tpu-v5e"];
    let found = json(&[&args[..], &["--emit", "json"]].concat());
    assert_eq!(found["mesh_axes"], serde_json::json!([["data", 2], ["model", 4]]));
    // The bytes that XLA sends once the specs are corrected.
    assert_eq!(found["optimum_free"]["wire_bytes"], 393_216);
    let to = |at: usize| found["advice"][at]["to"].as_str().expect("a spec").to_string();
    assert_eq!([to(0), to(1)], ["P(None, None, \"model\")", "P(None, \"model\", None)"]);
    assert_eq!(found["advice"][0]["source"]["line"], 26);
    let text = shardc(&args).out;
    assert!(text.contains("    + P(None, \"model\", None)\n"), "{text}");
    let without_mesh = dump("bad_stack_axis/cpu.hlo");
    assert_eq!(shardc(&["audit", &without_mesh, "--before", &after]).status, 1);
}
