//! The compiler reproduces what ESTI says of PaLM 540B on 64 chips: the layouts of Table 2, the
//! contexts of Table 1.

use std::process::Command;

use serde_json::Value;
use shard_snapshots::files::root;

/// The layers that `shardc COMMAND --format json` reports.
fn layers(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(arguments)
        .args(["--format", "json"])
        .current_dir(root())
        .output()
        .expect("the compiler starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shardc {arguments:?}: {errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    report["layers"].as_array().expect("layers").clone()
}

/// The only layer, whose plan is proven best.
fn explained(arguments: &[&str]) -> Value {
    let layers = layers(&[&["explain"], arguments].concat());
    let [layer] = layers.as_slice() else { panic!("{arguments:?}: {} layers", layers.len()) };
    assert_eq!(layer["optimality"]["status"], "proven", "{arguments:?}");
    layer.clone()
}

fn strategy(layer: &Value) -> String {
    layer["strategy"]
        .as_array()
        .expect("names")
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn microseconds(layer: &Value) -> f64 {
    layer["totals"]["serial_time_s"].as_f64().expect("seconds") * 1e6
}

/// `all-to-all yz H to B`, in program order, of a value of this name.
fn all_to_alls(layer: &Value, name: &str) -> Vec<String> {
    let instructions = layer["instructions"].as_array().expect("instructions");
    let words = |i: &Value| {
        let axes: String =
            i["axes"].as_array().expect("axes").iter().filter_map(Value::as_str).collect();
        format!(
            "{axes} {} to {}",
            i["from_dim"].as_str().unwrap_or(""),
            i["to_dim"].as_str().unwrap_or("")
        )
    };
    instructions
        .iter()
        .filter(|i| i["op"] == "all-to-all" && i["name"] == name)
        .map(words)
        .collect()
}

const FLAT: &str = "tpu-v4-flat";

/// For each column of Table 2, on the paper's own network and at its peaks: the plan chosen where
/// layouts are open, and how much less it takes than the best plan with the paper's layouts.
#[test]
fn the_plans_of_table_2_are_the_papers_or_cheaper() {
    let columns = [
        (
            "low latency, prefill: WS 2D, heads",
            ("palm/540b_int8.shard", "prefill"),
            ("palm_540b_2d_int8.shard", "B=1,L=2048,S=2048"),
        ),
        (
            "low latency, decode: WS 2D, batch",
            ("palm/540b_int8.shard", "decode"),
            ("palm_540b_2d_int8.shard", "B=64,L=1,S=2048"),
        ),
        (
            "high throughput, prefill: WG XYZ, batch",
            ("palm/540b.shard", "prefill"),
            ("palm_540b_xyz.shard", "B=512"),
        ),
        (
            "high throughput, decode: WS 2D, batch",
            ("palm/540b.shard", "decode"),
            ("palm_540b_2d.shard", "B=512,L=1,S=2048"),
        ),
    ];
    let mut table = String::new();
    for (column, (open, phase), (pinned, sizes)) in columns {
        let chosen =
            explained(&["--hardware", FLAT, "--phase", phase, &format!("examples/{open}")]);
        let paper = explained(&[
            "--hardware",
            FLAT,
            "-D",
            sizes,
            &format!("examples/calibration/{pinned}"),
        ]);
        let (mine, theirs) = (microseconds(&chosen), microseconds(&paper));
        let cheaper = (1.0 - mine / theirs) * 100.0;
        table.push_str(&format!(
            "{column}\n  chosen  {:58} {mine:10.1} us a layer, {cheaper:.2} % less\n  paper's \
                {:58} {theirs:10.1} us\n",
            strategy(&chosen),
            strategy(&paper),
        ));
        // The open int8 program has scales, and a layout of w_k and w_v that both phases share: 0.4
        // us of 82, and more of a plan whose norms send next to nothing.
        assert!(cheaper > -0.6, "{table}");
        assert!(
            strategy(&chosen) == strategy(&paper) || cheaper > 0.0,
            "other layouts, and not cheaper: {table}"
        );
        let (form, attention) = column
            .split_once(": ")
            .and_then(|(_, paper)| paper.split_once(", "))
            .expect("a column");
        let form = if form == "WS 2D" { "2d-weight-stationary" } else { "xyz-weight-gathered" };
        let attention =
            if attention == "heads" { "head-sharded-attention" } else { "batch-sharded-attention" };
        assert_eq!(
            strategy(&paper),
            format!("{form}, {attention}"),
            "{column}: not what the paper has"
        );
    }
    insta::with_settings!({ snapshot_path => root().join("snapshots/esti"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("table_2", table);
    });
}

#[test]
fn decode_with_a_long_context_splits_attention_over_the_batch_with_the_two_all_to_alls_of_figure_5b()
 {
    for arguments in [
        ["--phase", "decode", "examples/palm/540b.shard"],
        ["--phase", "decode", "examples/palm/540b_int8.shard"],
        ["-D", "S=8192", "examples/palm/540b_serial.shard"],
    ] {
        let layer = explained(&arguments);
        assert_eq!(
            strategy(&layer),
            "2d-weight-stationary, batch-sharded-attention",
            "{arguments:?}"
        );
        assert_eq!(all_to_alls(&layer, "q"), ["yz H to B"], "{arguments:?}");
        assert_eq!(all_to_alls(&layer, "o"), ["yz B to H"], "{arguments:?}");
    }
}

#[test]
fn prefill_of_one_sequence_splits_attention_over_heads_without_an_all_to_all() {
    let layer = explained(&["--phase", "prefill", "examples/palm/540b_int8.shard"]);
    assert_eq!(strategy(&layer), "2d-weight-stationary, head-sharded-attention");
    assert_eq!(all_to_alls(&layer, "q"), [""; 0]);
    assert_eq!(all_to_alls(&layer, "o"), [""; 0]);
}

/// The largest context that fits, where caches may take 30 % of the memory.
fn longest_context(file: &str, batch: &str) -> f64 {
    let arguments = ["cost", "--cache-share", "0.3", "-D", &format!("B={batch}"), file];
    let layers = layers(&arguments);
    let largest = layers[0]["memory"]["largest"].as_array().expect("largest").iter();
    let of_context =
        largest.filter(|l| l["role"] == "context").map(|l| l["size"].as_f64().expect("a size"));
    of_context.sum()
}

#[test]
fn table_1_comes_out_within_its_rounding() {
    let table = [
        ("multihead", [("128", 1320.0), ("512", 330.0)]),
        ("baseline_multiquery", [("128", 660.0), ("512", 165.0)]),
        ("optimised_multiquery", [("128", 43_000.0), ("512", 10_700.0)]),
    ];
    for (form, columns) in table {
        for (batch, printed) in columns {
            let found = longest_context(&format!("examples/attention/table_1/{form}.shard"), batch);
            // 32 GiB a chip; the paper prints two or three digits.
            assert!(
                (found / printed - 1.0).abs() < 0.015,
                "{form}, batch {batch}: {found}, printed {printed}"
            );
        }
    }
}
