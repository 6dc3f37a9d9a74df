//! JSON output is checked against the schema files of the project.

use crate::common::{fed, shardc, text};

fn schema(name: &str) -> serde_json::Value {
    let path = format!("{}/../../spec/schema/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("a schema file")).expect("JSON")
}

/// Asserts that a document is JSON and valid against its schema.
fn holds(name: &str, document: &str) -> serde_json::Value {
    let document: serde_json::Value = serde_json::from_str(document).expect("JSON");
    let validator =
        jsonschema::validator_for(&schema(name)).expect("a legal schema that needs no other");
    let errors: Vec<String> = validator
        .iter_errors(&document)
        .map(|e| format!("{} at {}", e, e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
    document
}

#[test]
fn explain_meets_its_schema() {
    let document = holds("explain", &shardc(&["explain", "mlp.shard", "--format", "json"]).out);
    let layer = &document["layers"][0];
    assert_eq!(layer["strategy"], serde_json::json!(["2d-weight-stationary"]));
    assert_eq!(layer["optimality"]["status"], "proven");
    assert_eq!(layer["optimality"]["cost_s"], layer["totals"]["serial_time_s"]);
    let gather = &layer["instructions"][3];
    for (key, value) in [
        ("op", serde_json::json!("all-gather")),
        ("name", serde_json::json!("x")),
        ("axes", serde_json::json!(["y", "z"])),
        ("dim", serde_json::json!("E")),
        ("layout", serde_json::json!("BLE_x")),
        ("bytes", serde_json::json!(4_718_592)),
        ("wire_bytes", serde_json::json!(4_423_680)),
        ("time_s", serde_json::json!(1.6384e-5)),
    ] {
        assert_eq!(gather[key], value, "{key}");
    }
    assert_eq!(gather["span"]["line"], 15);
    let einsum = &layer["instructions"][4];
    assert_eq!(
        (&einsum["flops"], &einsum["hbm_bytes"]),
        (&21_743_271_936_u64.into(), &51_904_512.into())
    );
    assert_eq!((&einsum["bound"], &einsum["equation"]), (&"compute".into(), &"BLE,EF->BLF".into()));
    // Every step of this layer waits for the one before.
    assert_eq!(layer["totals"]["overlap_time_s"], layer["totals"]["serial_time_s"]);
}

#[test]
fn that_ties_were_not_all_compared_is_said_where_memory_binds() {
    let layer = "hardware tpu-v5e\nmesh x=8\ndim B = 8192\ndim E = 4096\ndim F = 8192\n\
                 layer f(x: bf16 B_xE, a: weight bf16 EF?, b: weight bf16 FE?) -> bf16 B_xE repeat \
                 10 {\n  return einsum(relu(einsum(x, a -> BF)), b -> BE)\n}\n";
    for (limit, is_cut) in [("400MB", true), ("16GB", false)] {
        let args = ["explain", "--format", "json", "--memory-limit", limit, "-"];
        let document = holds("explain", &fed(&args, layer).out);
        let optimality = &document["layers"][0]["optimality"];
        assert_eq!(optimality["status"], "proven", "{limit}");
        assert_eq!(optimality.get("ties_cut").is_some(), is_cut, "{limit}: {optimality}");
    }
}

#[test]
fn every_kind_of_instruction_meets_the_schema() {
    let document =
        holds("explain", &shardc(&["explain", "every_move.shir", "--format", "json"]).out);
    let layer = &document["layers"][0];
    assert_eq!(layer["mesh"], serde_json::json!({"data": 2, "model": 2, "w": 1}));
    assert_eq!(layer["outputs"][0]["layout"], "[Six, Batch_{model}]");
    assert_eq!(layer["outputs"][0]["local_shape"], serde_json::json!([6, 4]));
    assert_eq!(layer["instructions"][30]["in"], serde_json::json!(["block", "norm"]));
    assert_eq!(layer["instructions"][30]["fused_into"], 29);
    holds("explain", &shardc(&["explain", "mlp.shard", "--overlap", "--format", "json"]).out);
    holds("lower", &shardc(&["lower", "every_move.shir", "--emit", "json"]).out);
}

#[test]
fn a_bound_alone_meets_its_schema() {
    for command in ["explain", "cost", "lower"] {
        let document = holds(
            "bound",
            &shardc(&[command, "mlp.shard", "--bound-only", "--format", "json"]).out,
        );
        assert_eq!(document["layers"][0]["stopped_by"], serde_json::Value::Null);
    }
}

#[test]
fn lower_meets_its_schema() {
    let by_emit = shardc(&["lower", "mlp.shard", "--emit", "json"]).out;
    holds("lower", &by_emit);
    assert_eq!(shardc(&["lower", "mlp.shard", "--format", "json"]).out, by_emit);
}

#[test]
fn a_trace_meets_its_schema() {
    for file in ["mlp.shard", "every_move.shir"] {
        let document = holds("trace", &shardc(&["trace", file]).out);
        assert!(!document["traceEvents"].as_array().expect("events").is_empty());
    }
}

#[test]
fn layouts_are_structures_beside_the_strings() {
    let document = holds("lower", &shardc(&["lower", "mlp.shard", "--emit", "json"]).out);
    let layer = &document["layers"][0];
    let product = &layer["instructions"][4];
    assert_eq!(product["layout"], "BLF_yz(partialsum-x)");
    assert_eq!(
        product["placed"],
        serde_json::json!({
            "dims": [{"dim": "B", "axes": []}, {"dim": "L", "axes": []}, {"dim": "F", "axes": ["y", "z"]}],
            "partial": {"sum": ["x"], "max": []},
        })
    );
    assert_eq!(layer["dims"][0], serde_json::json!({"name": "B", "size": 512, "useful": 512}));
}

#[test]
fn specs_meet_their_schema() {
    for file in ["mlp.shard", "every_move.shir"] {
        holds("specs", &shardc(&["export", "specs", file]).out);
    }
    let document = holds("specs", &shardc(&["export", "specs", "mlp.shard"]).out);
    let layer = &document["layers"][0];
    let weight = &layer["parameters"][1];
    assert_eq!(weight["partition_spec"], serde_json::json!([["x"], ["y", "z"]]));
    assert_eq!(weight["jax"], "P('x', ('y','z'))");
    let product = &layer["values"][1];
    assert_eq!(product["unreduced"], serde_json::json!(["x"]));
    assert_eq!(product["dtensor"], "[Partial(sum), Shard(2), Shard(2)]");
}

#[test]
fn run_meets_its_schema_and_counts_what_the_model_says() {
    for file in ["mlp.shard", "every_move.shir"] {
        let document = holds("run", &shardc(&["run", file, "--format", "json"]).out);
        let layer = &document["layers"][0];
        assert_eq!(layer["equal"], true);
        for collective in layer["collectives"].as_array().expect("an array") {
            assert_eq!(collective["wire_bytes"], collective["model_wire_bytes"], "{collective}");
        }
    }
}

#[test]
fn diagnostics_meet_their_schema() {
    let wrong = text("mlp.shard").replace("E_xF_yz", "E_xF_yw");
    let ran = fed(&["explain", "-", "--error-format", "json"], &wrong);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""));
    let document = holds("diagnostics", &ran.err);
    assert_eq!(document["diagnostics"][0]["code"], "E0201");
    assert_eq!(document["diagnostics"][0]["span"]["line"], 12);
    for args in [&["explain", "no-such-file.shard"][..], &["check", "mlp.shard", "--strict"]] {
        holds("diagnostics", &shardc(&[args, &["--error-format", "json"]].concat()).err);
    }
    let ran = shardc(&["check", "mlp.shard", "--strict", "--format", "json"]);
    assert_eq!((ran.status, ran.err.as_str()), (1, ""));
    holds("diagnostics", &ran.out);
    let document = holds("diagnostics", &shardc(&["check", "mlp.shard", "--format", "json"]).out);
    assert_eq!(document["diagnostics"], serde_json::json!([]));
}

#[test]
fn cost_meets_its_schema_and_its_sums_are_those_of_explain() {
    for file in ["mlp.shard", "every_move.shir"] {
        let document = holds("cost", &shardc(&["cost", file, "--format", "json"]).out);
        let explained = holds(
            "explain",
            &shardc(&["explain", file, "--no-alternatives", "--format", "json"]).out,
        );
        let (layer, same) = (&document["layers"][0], &explained["layers"][0]);
        for (key, value) in same["totals"].as_object().expect("an object") {
            assert_eq!(&layer["totals"][key], value, "{key}");
        }
        let shares: f64 = layer["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .filter_map(|s| s["share"].as_f64())
            .sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    }
}

#[test]
fn the_formulas_of_every_step_meet_the_schema_and_end_in_its_time() {
    let plain = holds("cost", &shardc(&["cost", "every_move.shir", "--format", "json"]).out);
    for (id, step) in plain["layers"][0]["steps"].as_array().expect("steps").iter().enumerate() {
        let asked =
            shardc(&["cost", "every_move.shir", "--format", "json", "--why", &id.to_string()]);
        let why = &holds("cost", &asked.out)["layers"][0]["why"];
        let names: Vec<&str> = why["figures"]
            .as_array()
            .expect("figures")
            .iter()
            .filter_map(|f| f["name"].as_str())
            .collect();
        assert_eq!(names.last().copied(), step["time_s"].as_f64().map(|_| "time"), "{step}");
    }
    assert_eq!(shardc(&["cost", "every_move.shir", "--why", "999"]).status, 2);
}

#[test]
fn a_sweep_meets_its_schema_and_says_what_cost_says() {
    let meshes = ["--mesh", "x=4,y=4,z=5", "--mesh", "x=4,y=4,z=4"];
    let asked =
        [&["sweep", "mlp.shard", "-D", "B=64,L=1,3", "--format", "json"][..], &meshes].concat();
    let document = holds("sweep", &shardc(&asked).out);
    let rows = document["rows"].as_array().expect("rows");
    let statuses: Vec<&str> = rows.iter().filter_map(|r| r["status"].as_str()).collect();
    assert_eq!(statuses, ["wrong", "wrong", "ok", "ok"]);
    assert_eq!(rows[0]["code"], "E0205");
    let one =
        holds("cost", &shardc(&["cost", "mlp.shard", "-D", "B=64,L=3", "--format", "json"]).out);
    let (layer, figures) = (&one["layers"][0], &rows[3]["figures"]);
    assert_eq!(figures["mfu"], layer["mfu"]);
    assert_eq!(figures["time_s"], layer["model_totals"]["serial_time_s"]);
    assert_eq!(figures["peak_hbm_bytes"], layer["memory"]["peak_bytes"]);
}

/// The names of all schema files.
fn schemas() -> Vec<String> {
    let folder = format!("{}/../../spec/schema", env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(folder).expect("the folder of the schemas");
    let file = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("a file").file_name();
    let names = entries.map(|entry| file(entry).to_string_lossy().into_owned());
    names.map(|name| name.strip_suffix(".schema.json").expect("a schema").to_string()).collect()
}

/// Collects the references of a schema, at any depth.
fn references(schema: &serde_json::Value, found: &mut Vec<String>) {
    match schema {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(|to| to.as_str()).map(str::to_string));
            fields.values().for_each(|value| references(value, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_schema_is_a_schema() {
    for name in schemas() {
        assert!(jsonschema::meta::is_valid(&schema(&name)), "{name}");
    }
}

// One schema file must be all that a validator needs, since no validator can resolve a `urn:` by
// itself.
#[test]
fn a_schema_refers_to_itself_alone() {
    for name in schemas() {
        let mut found = Vec::new();
        references(&schema(&name), &mut found);
        found.retain(|to| !to.starts_with("#/"));
        assert!(found.is_empty(), "{name}: {found:?}");
    }
}

#[test]
fn chips_meet_their_schema() {
    let all = holds("hardware", &shardc(&["hardware", "--format", "json"]).out);
    assert_eq!(all["chips"][0]["name"], "tpu-v4-flat");
    let one = holds("hardware", &shardc(&["hardware", "h100", "--format", "json"]).out);
    assert_eq!(one["chips"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["chips"][0]["network"]["node_bandwidth"], 450_000_000_000_u64);
}

#[test]
fn questions_meet_their_schemas() {
    holds("why", &shardc(&["explain", "mlp.shard", "--why", "x", "--format", "json"]).out);
    holds("why", &shardc(&["explain", "mlp.shard", "--why", "4", "--format", "json"]).out);
    holds("why", &shardc(&["explain", "every_move.shir", "--why", "4", "--format", "json"]).out);
    holds(
        "why-not",
        &shardc(&["explain", "mlp.shard", "--why-not", "h: BLF_xyz", "--format", "json"]).out,
    );
    holds(
        "why-not",
        &shardc(&["explain", "mlp.shard", "--why-not", "all-gather:x", "--format", "json"]).out,
    );
    holds(
        "diff",
        &shardc(&["diff", "mlp.shard", "--mesh-b", "x=2,y=2,z=4", "--format", "json"]).out,
    );
    holds("diff", &shardc(&["diff", "mlp.shard", "every_move.shir", "--format", "json"]).out);
}

#[test]
fn collective_einsums_meet_the_schemas() {
    let document =
        holds("explain", &shardc(&["explain", "mlp.shard", "--fuse", "--format", "json"]).out);
    let layer = &document["layers"][0];
    let looped = &layer["instructions"][3];
    for (key, value) in [
        ("op", serde_json::json!("collective-einsum")),
        ("fused", serde_json::json!("all-gather")),
        ("equation", serde_json::json!("BLE,EF->BLF")),
        ("name", serde_json::json!("h")),
        ("operands", serde_json::json!([0, 1])),
        ("gathered", serde_json::json!(0)),
        ("axes", serde_json::json!(["y", "z"])),
        ("dim", serde_json::json!("E")),
        ("layout", serde_json::json!("BLF_yz(partialsum-x)")),
        ("bytes", serde_json::json!(4_718_592)),
        ("wire_bytes", serde_json::json!(4_423_680)),
        ("flops", serde_json::json!(21_743_271_936_u64)),
        ("hbm_bytes", serde_json::json!(51_904_512)),
        ("collective_time_s", serde_json::json!(1.6384e-5)),
        ("time_s", looped["einsum_time_s"].clone()),
        ("bound", serde_json::json!("compute")),
    ] {
        assert_eq!(looped[key], value, "{key}");
    }
    assert_eq!(looped["span"]["line"], 15);
    assert!(
        looped["reason"].as_str().is_some_and(|reason| reason.contains("next one travels")),
        "{looped}"
    );
    assert_eq!(layer["strategy"], serde_json::json!(["2d-weight-stationary"]));
    assert_eq!(layer["optimality"]["status"], "proven");
    let serial =
        |document: &serde_json::Value| document["layers"][0]["totals"]["serial_time_s"].as_f64();
    let plain = holds("explain", &shardc(&["explain", "mlp.shard", "--format", "json"]).out);
    assert!(serial(&document) < serial(&plain));

    holds("lower", &shardc(&["lower", "mlp.shard", "--fuse", "--emit", "json"]).out);
    let costs = holds("cost", &shardc(&["cost", "mlp.shard", "--fuse", "--format", "json"]).out);
    for (key, value) in layer["totals"].as_object().expect("an object") {
        assert_eq!(&costs["layers"][0]["totals"][key], value, "{key}");
    }
    holds("cost", &shardc(&["cost", "mlp.shard", "--fuse", "--why", "3", "--format", "json"]).out);
    holds(
        "why",
        &shardc(&["explain", "mlp.shard", "--fuse", "--why", "h", "--format", "json"]).out,
    );
    holds(
        "why-not",
        &shardc(&["explain", "mlp.shard", "--fuse", "--why-not", "h: BLF_xyz", "--format", "json"])
            .out,
    );
    holds(
        "sweep",
        &shardc(&["sweep", "mlp.shard", "--fuse", "-D", "B=64,512", "--format", "json"]).out,
    );
    let ran = holds("run", &shardc(&["run", "mlp.shard", "--fuse", "--format", "json"]).out);
    assert_eq!(ran["layers"][0]["equal"], true);
    let collectives = ran["layers"][0]["collectives"].as_array().expect("an array");
    assert!(collectives.iter().any(|c| c["id"] == 3), "{ran}");
    for collective in collectives {
        assert_eq!(collective["wire_bytes"], collective["model_wire_bytes"], "{collective}");
    }
}

#[test]
fn rings_meet_the_schemas() {
    let source = "hardware tpu-v5p-face\nmesh z=8\ndim L = 131072\ndim S = L\ndim H = 3\n\
        dim D = 128\nlayer f(q: bf16 L_zHD, k: bf16 S_zHD, v: bf16 S_zHD) -> bf16 L_zHD {\n\
        return einsum(softmax(causal(einsum(q, k -> HLS) over L, S) over S), v -> LHD)\n}\n";
    let said = |arguments: &[&str]| {
        let ran = fed(&[arguments, &["--fuse", "-"]].concat(), source);
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.out
    };
    let document = holds("explain", &said(&["explain", "--format", "json"]));
    let instructions = document["layers"][0]["instructions"].as_array().expect("an array");
    let ring: Vec<_> = instructions.iter().filter(|i| i["op"] == "collective-einsum").collect();
    let [scores, product] = ring.as_slice() else { panic!("{document}") };
    let travels = serde_json::json!({ "first": scores["id"], "travels": [1, 2] });
    assert_eq!((&scores["ring"], &product["ring"]), (&travels, &travels));
    assert_eq!((&scores["bytes"], &product["bytes"]), (&201_326_592.into(), &0.into()));
    holds("lower", &said(&["lower", "--emit", "json"]));
    holds("cost", &said(&["cost", "--why", "3", "--format", "json"]));
    holds("explain", &said(&["explain", "--objective", "overlap", "--format", "json"]));
    let ran = holds("run", &said(&["run", "--schedule", "--format", "json"]));
    assert_eq!(ran["layers"][0]["equal"], true);
    let collectives = ran["layers"][0]["collectives"].as_array().expect("an array");
    assert_eq!(collectives.len(), 1);
    assert_eq!(collectives[0]["wire_bytes"], collectives[0]["model_wire_bytes"]);
}

#[test]
fn pages_of_diagnostics_meet_their_schema() {
    for args in [&["explain-code", "E0806"][..], &["explain-code", "--list"]] {
        let mut args = args.to_vec();
        args.extend(["--format", "json"]);
        let ran = shardc(&args);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        holds("explain-code", &ran.out);
    }
}
