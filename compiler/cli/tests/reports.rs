//! What the reports say of whole stacks: flops, utilisation, memory, and how sure the plan is.

use crate::common::{fed, shardc};
use serde_json::{Value, json};

const LAYERS: &str = "
hardware tpu-v5e
mesh x=4
dim B = 64
dim V = 32000
dim E = 4096
dim F = 16384
phase prefill { B = 64 }
phase decode { B = 8 }

layer embed(ids: int32 B_x, table: weight bf16 VE) -> bf16 B_xE {
  return take(table, ids over V)
}

layer turn(x: bf16 B_xE) -> bf16 EB_x {
  return einsum(x -> EB)
}

layer total(x: bf16 B_xE) -> bf16 B_x {
  return einsum(x -> B)
}

layer block(x: bf16 B_xE, up: weight bf16 EF, down: weight int8 F_xE) -> bf16 B_xE repeat 40 {
  return einsum(gelu(einsum(x, up -> BF)), down -> BE)
}
";

/// The named layer in its first phase, as `command --format json` prints it.
fn layer(command: &[&str], source: &str, name: &str) -> Value {
    let ran = fed(
        &[command, &["-", "--layer", name, "--phase", "prefill", "--format", "json"]].concat(),
        source,
    );
    assert_eq!(ran.status, 0, "{}", ran.err);
    let mut document: Value = serde_json::from_str(&ran.out).expect("JSON");
    document["layers"][0].take()
}

#[test]
fn mfu_counts_the_products_with_weights_and_is_null_without_one() {
    for (name, has_product) in
        [("embed", false), ("turn", false), ("total", false), ("block", true)]
    {
        let found = layer(&["cost"], LAYERS, name);
        assert_eq!(found["mfu"].is_number(), has_product, "{name}: {}", found["mfu"]);
        let hardware = found["hardware_utilisation"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&hardware), "{name}: {hardware}");
        assert!(found["mfu"].as_f64().unwrap_or(0.0) <= hardware, "{name}");
    }
    let block = layer(&["cost"], LAYERS, "block");
    let (flops, time) =
        (40.0 * 4.0 * 64.0 * 4096.0 * 16384.0, block["model_totals"]["serial_time_s"].as_f64());
    let expected = flops / (4.0 * 1.97e14 * time.expect("a time"));
    let mfu = block["mfu"].as_f64().expect("a share");
    assert!((mfu / expected - 1.0).abs() < 1e-9, "{mfu}, {expected}");
}

#[test]
fn an_einsum_of_one_operand_counts_what_it_adds_and_a_transposition_nothing() {
    assert_eq!(layer(&["explain"], LAYERS, "turn")["totals"]["flops"], 0);
    assert_eq!(layer(&["explain"], LAYERS, "total")["totals"]["flops"], 16 * 4095);
}

#[test]
fn explain_shows_the_memory_of_the_stack_that_cost_has() {
    let (explained, cost) =
        (layer(&["explain"], LAYERS, "block"), layer(&["cost"], LAYERS, "block"));
    let peak = cost["memory"]["peak_bytes"].as_u64().expect("bytes");
    assert!(peak > 40 * 4096 * 16384, "{peak}");
    assert_eq!(explained["model_totals"]["peak_hbm_bytes"], peak);
    assert_eq!(cost["model_totals"]["peak_hbm_bytes"], peak);
    let asked = |emit: &str| {
        let source = LAYERS.replace("repeat 40", "repeat 400");
        fed(
            &["explain", "-", "--layer", "block", "--objective", "overlap", "--emit", emit],
            &source,
        )
        .err
    };
    assert!(asked("text").contains("E0704"), "400 layers fit in no chip");
    let text = fed(&["explain", "-", "--layer", "block"], LAYERS).out;
    let line = text.lines().find(|line| line.contains("memory at the peak")).expect("a line of it");
    assert!(
        line.starts_with("  memory at the peak, 40 layers ") && line.ends_with(" GB of 16.0 GB"),
        "{line}"
    );
    let page = fed(&["explain", "-", "--layer", "block", "--emit", "html"], LAYERS).out;
    assert!(page.contains("<dt>memory at the peak, all layers</dt>"));
    assert!(
        page.contains("layer block, phase prefill <span")
            && page.contains("layer block, phase decode <span")
    );
}

#[test]
fn cost_says_which_weights_take_the_memory_largest_first() {
    let text = fed(&["cost", "-", "--layer", "block", "--phase", "prefill"], LAYERS).out;
    let lines: Vec<&str> =
        text.lines().skip_while(|line| !line.starts_with("what takes it, all layers")).collect();
    let names: Vec<&str> =
        lines.iter().skip(1).take(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["up:", "down:"], "{text}");
    assert!(lines.get(1).is_some_and(|line| line.ends_with('%')), "{text}");
    let cost = layer(&["cost"], LAYERS, "block");
    for kept in cost["memory"]["kept"].as_array().expect("weights") {
        let bytes = kept["model_chip_bytes"].as_u64().expect("bytes");
        assert_eq!(bytes, 40 * kept["chip_bytes"].as_u64().expect("bytes"));
        assert_eq!(kept["share"].as_f64(), Some(bytes as f64 / 16e9));
    }
}

#[test]
fn a_point_that_does_not_fit_says_so_in_its_row() {
    let source = "hardware tpu-v5e\nmesh x=4\ndim B = 64\ndim E = 4096\ndim F = 16384\n\n\
                  layer block(x: bf16 B_xE, up: weight bf16 EF) -> bf16 B_xE repeat 40 {\n  \
                  return einsum(einsum(x, up -> BF), up -> BE)\n}\n";
    let asked = ["sweep", "-", "-D", "F=16384,65536", "--format", "json"];
    let rows: Value = serde_json::from_str(&fed(&asked, source).out).expect("JSON");
    assert_eq!(rows["rows"][0]["status"], "ok");
    assert_eq!(
        (&rows["rows"][1]["status"], &rows["rows"][1]["code"]),
        (&"does-not-fit".into(), &"E0704".into())
    );
    let ran = fed(&["sweep", "-", "-D", "F=65536"], source);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("error[E0704]") && !ran.err.contains("internal"), "{}", ran.err);
}

#[test]
fn a_plan_that_is_bounded_is_marked_wherever_it_is_shown() {
    let overlap = ["--objective", "overlap"];
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/networks/two_level.shard");
    let source = std::fs::read_to_string(file).expect("an example");
    let of = ["-", "--layer", "across"];
    let with = |args: &[&str]| fed(&[args, &of[..], &overlap].concat(), &source).out;
    let text = with(&["cost"]);
    assert!(text.contains("\n  plan       bounded, at most "), "{text}");
    let cost: Value = serde_json::from_str(&with(&["cost", "--format", "json"])).expect("JSON");
    assert_eq!(cost["layers"][0]["optimality"]["status"], "bounded");
    assert!(with(&["explain", "--emit", "html"]).contains("<dt>plan</dt><dd>bounded, at most "));
    let rows = with(&["sweep", "-D", "B=8192"]);
    assert!(rows.contains("? 1 point is bounded, not proven"), "{rows}");
    let csv = with(&["sweep", "-D", "B=8192", "--format", "csv"]);
    let (heading, row) = csv.split_once('\n').expect("two lines");
    let at = heading.split(',').position(|name| name == "proof").expect("a column");
    // The quoted mesh contains commas itself.
    assert_eq!(
        row.split('"').nth(2).and_then(|rest| rest.split(',').nth(at - 2)),
        Some("bounded"),
        "{csv}"
    );
    assert!(!shardc(&["cost", "mlp.shard"]).out.contains("bounded"));
}

#[test]
fn a_memory_limit_is_what_plans_are_held_to_and_the_report_says_so() {
    let block = ["-", "--layer", "block", "--phase", "prefill"];
    let asked =
        |command: &str, more: &[&str]| fed(&[&[command][..], &block, more].concat(), LAYERS);
    let limited: Value =
        serde_json::from_str(&asked("cost", &["--memory-limit", "10GB", "--format", "json"]).out)
            .expect("JSON");
    let memory = &limited["layers"][0]["memory"];
    assert_eq!(
        (&memory["capacity_bytes"], &memory["chip_bytes"]),
        (&10_000_000_000_u64.into(), &16_000_000_000_u64.into())
    );
    assert_eq!((&memory["limited_by"], &memory["fits"]), (&"memory-limit".into(), &true.into()));
    for command in ["cost", "explain"] {
        let text = asked(command, &["--memory-limit", "10GB"]).out;
        assert!(
            text.contains("a program has 10.0 GB of a chip: --memory-limit, of the chip's 16.0 GB"),
            "{text}"
        );
    }
    for command in ["cost", "explain", "check", "lower"] {
        let ran = asked(command, &["--memory-limit", "1GiB"]);
        assert_eq!(ran.status, 1, "{command}");
        assert!(
            ran.err.contains("error[E0704]")
                && ran.err.contains("the program has 1 GiB of a chip (--memory-limit"),
            "{}",
            ran.err
        );
    }
    let swept =
        fed(&["sweep", "-", "--layer", "block", "-D", "V=32000", "--memory-limit", "10GB"], LAYERS)
            .out;
    assert!(
        swept.ends_with("a program has 10.0 GB of a chip: --memory-limit, of the chip's 16.0 GB\n"),
        "{swept}"
    );
    let swept =
        fed(&["sweep", "-", "--layer", "block", "-D", "V=32000", "--memory-limit", "1GB"], LAYERS);
    assert!(swept.err.contains("error[E0704]"), "{}", swept.err);
    let wrong = asked("cost", &["--memory-limit", "much"]);
    assert!(wrong.status == 2 && wrong.err.contains("16GB or 16GiB"), "{}", wrong.err);
}

#[test]
fn a_sweep_over_memory_draws_time_against_memory() {
    let limits = ["--memory-limit", "1kB,8GB..32GB:x2"];
    let sweep =
        [&["sweep", "-", "--layer", "block", "--phase", "decode", "-D", "V=32000"], &limits[..]]
            .concat();
    let with = |more: &[&str]| fed(&[&sweep[..], more].concat(), LAYERS);
    let json: serde_json::Value =
        serde_json::from_str(&with(&["--format", "json"]).out).expect("JSON");
    let rows = json["rows"].as_array().expect("rows");
    let limits: Vec<u64> =
        rows.iter().filter_map(|row| row["memory_limit_bytes"].as_u64()).collect();
    assert_eq!(limits, [1_000, 8_000_000_000, 16_000_000_000, 32_000_000_000]);
    assert_eq!(rows[0]["code"], "E0704");
    let mut before = f64::INFINITY;
    for (row, limit) in rows.iter().zip(limits).skip(1) {
        let (time, needs) = (&row["figures"]["time_s"], &row["figures"]["peak_hbm_bytes"]);
        assert!(needs.as_u64().expect("bytes") <= limit);
        assert!(time.as_f64().expect("seconds") <= before, "more memory makes no plan slower");
        before = time.as_f64().expect("seconds");
    }
    assert!(rows.iter().any(|row| row["pareto"] == true));
    let csv = with(&["--format", "csv"]).out;
    assert!(csv.starts_with("layer,phase,mesh,V,memory_limit_bytes,status,"), "{csv}");
    assert!(with(&[]).out.contains("V=32000 in 8.00 GB"), "{}", with(&[]).out);
    assert!(
        with(&["--plot"]).out.starts_with("memory of a device at the peak\n"),
        "{}",
        with(&["--plot"]).out
    );
}

#[test]
fn a_trace_is_written_to_a_file_or_printed_or_drawn_as_text() {
    let folder = std::env::temp_dir().join(format!("shardc-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let out = folder.join("spur für alle.json");
    let path = out.to_str().expect("UTF-8");
    let printed = shardc(&["trace", "mlp.shard"]).out;
    assert_eq!(shardc(&["trace", "mlp.shard", "-o", path]).out, format!("wrote {path}\n"));
    assert_eq!(std::fs::read_to_string(&out).expect("a file"), printed);
    assert_eq!(shardc(&["trace", "mlp.shard", "--format", "json"]).out, printed);
    let text = shardc(&["trace", "mlp.shard", "--emit", "text", "--width", "60"]).out;
    assert!(text.lines().all(|line| line.chars().count() <= 62), "{text}");
    assert!(text.contains("compute") && text.contains("memory at the peak"), "{text}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_trace_that_cannot_be_written_says_so_and_leaves_nothing_behind() {
    let ran = shardc(&["trace", "mlp.shard", "-o", "/no/such/folder/trace.json"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("cannot write `/no/such/folder/trace.json`"), "{}", ran.err);
}

#[test]
fn a_trace_has_every_phase_and_layer_and_the_lines_of_the_source() {
    let source = "hardware tpu-v4-face\nmesh x=4, y=4\nphase voll { L = 512 }\nphase schritt { L \
        = 1 }\ndim L = 512\ndim B = 32\ndim E = 1024\ndim F = 4096\n\
        layer netz(x: bf16 BLE_xy, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 BLE_xy repeat \
        40 {\n\
        \x20 let gross = gelu(einsum(x, w -> BLF))  // die Größe\n  return einsum(gross, v -> \
        BLE)\n}\n";
    let document = |args: &[&str]| {
        let ran = fed(&[&["trace", "-"], args].concat(), source);
        assert_eq!(ran.status, 0, "{}", ran.err);
        serde_json::from_str::<serde_json::Value>(&ran.out).expect("JSON")
    };
    let all = document(&[]);
    let layers = all["otherData"]["layers"].as_array().expect("layers");
    let phases: Vec<_> =
        layers.iter().map(|layer| layer["phase"].as_str().expect("a phase")).collect();
    assert_eq!(phases, ["voll", "schritt"]);
    assert!(layers.iter().all(|layer| layer["shown"] == 40 && layer["name"] == "netz"));
    assert!(
        all["traceEvents"]
            .as_array()
            .expect("events")
            .iter()
            .any(|event| event["args"]["copy"] == 39)
    );
    let sources = all["traceEvents"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["args"]["source"].as_str());
    assert!(sources.into_iter().any(|source| source.ends_with("// die Größe")));
    let one = document(&["--phase", "schritt", "--fuse", "--memory-limit", "4GB"]);
    assert_eq!(one["otherData"]["layers"].as_array().expect("layers").len(), 1);
    let text = fed(&["trace", "-", "--phase", "voll", "--emit", "text"], source).out;
    assert!(text.contains("gross = ") && text.contains("are alike, each"), "{text}");
}

/// The first layer, as `command --format json` prints it.
fn first(command: &[&str], source: &str) -> Value {
    let ran = fed(&[command, &["--format", "json"]].concat(), source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let mut document: Value = serde_json::from_str(&ran.out).expect("JSON");
    document["layers"][0].take()
}

fn cost_text(source: &str, more: &[&str]) -> String {
    let ran = fed(&[&["cost", "-"], more].concat(), source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    ran.out
}

#[test]
fn the_largest_size_that_the_language_allows_is_named_where_memory_has_room_for_more() {
    let source = "hardware h100\nmesh x=8\ndim B = 8\ndim L = 1024\ndim S = L\ndim D = 128\n\
        layer attn(q: bf16 B_xLD, k: bf16 B_xSD, v: bf16 B_xSD) -> bf16 B_xLD {\n\
        let p = softmax(einsum(q, k -> BLS) over S)\n  return einsum(p, v -> BLD)\n}\n";
    // The language allows 2^52 elements: 8 * L * L is no more than that up to this L.
    let text = cost_text(source, &[]);
    assert!(text.contains("largest L: 23726566, the most that the language allows\n"), "{text}");
    let more = ["-D", "L=10000000"];
    // With this L, B = 45 would still be allowed; 40 is the largest multiple of the mesh below it.
    let text = cost_text(source, &more);
    assert!(text.contains("largest B: 40, the most that the language allows\n"), "{text}");
    let cost = first(&[&["cost", "-"], more.as_slice()].concat(), source);
    let largest = &cost["memory"]["largest"][0];
    assert_eq!((&largest["dim"], &largest["size"]), (&json!("B"), &json!(40)));
    assert_eq!(largest["limit"], "language");
    // Without weights the report cannot know which dims count tokens.
    assert!(!text.contains("token"), "{text}");
    assert_eq!(cost["tokens"], Value::Null);
    assert_eq!(cost["tokens_per_second"], Value::Null);
}

#[test]
fn a_state_and_a_window_are_no_context() {
    let state = "hardware h100\ndim B = 8\ndim E = 16\ndim W = 3\ndim L = 1\ndim M = W + L\n\
        layer block(x: f32 BLE, w: weight f32 E, last: cache f32 BWE) -> (y: f32 BLE, \
        last1: f32 BWE) {\n  let all = concat(last, x * w, W, L -> M)\n\
        let last1 = slice(all, M -> W, L)\n  let y = x + slice(all, M -> L, W)\n\
        return (y, last1)\n}\n";
    let text = cost_text(state, &[]);
    assert!(!text.contains("context") && !text.contains("cache of a token"), "{text}");
    let window = |rope: &str| {
        format!(
            "hardware h100\ndim B = 2\ndim L = 1\ndim S = 64\ndim R = 16\ndim D = 8\n\
             layer two(x: bf16 BLD, w: weight bf16 D, a: cache bf16 BRD, b: cache bf16 BSD) -> \
             (y: bf16 BLD, a1: bf16 BRD, b1: bf16 BSD) {{\n  let k = {rope}\n\
             let a1 = append(a, k, L -> R)\n  let b1 = append(b, k, L -> S)\n\
             let y = k + sum(a1 over R) + sum(b1 over S)\n  return (y, a1, b1)\n}}\n"
        )
    };
    let text = cost_text(&window("rope(x * w over D at L, S)"), &[]);
    assert!(text.contains("largest context S") && !text.contains("context R"), "{text}");
    let text = cost_text(&window("x * w"), &[]);
    assert!(text.contains("largest context S") && text.contains("largest context R"), "{text}");
}

#[test]
fn a_diff_has_the_bytes_and_the_time_of_all_applications() {
    let of = |repeat: u64| {
        let source = format!(
            "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 1024\n\
             layer block(x: bf16 B_xE, w: weight bf16 E_xE2) -> bf16 B_xE repeat {repeat} {{\n\
             return rename(einsum(x, w -> BE2), E2 -> E)\n}}\n\
             model m(x: bf16 B_xE) -> bf16 B_xE {{ return block(x) }}\n"
        );
        source.replace("dim E = 1024\n", "dim E = 1024\ndim E2 = E\n")
    };
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("reports");
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let paths = [write("few.shard", &of(2)), write("many.shard", &of(6))];
    let ran = shardc(&["diff", &paths[0], &paths[1], "--layer", "m", "--format", "json"]);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    let resized = &report["layers"][0]["resized"][0];
    let ratio = |key: &str| {
        let of = |at: usize| resized[at][key].as_f64().expect("a number");
        of(1) / of(0)
    };
    assert!((ratio("bytes") - 3.0).abs() < 1e-6, "{report}");
    assert!((ratio("time_s") - 3.0).abs() < 1e-6, "{report}");
    assert!(resized[0]["bytes"].as_f64() > Some(0.0), "{report}");
}

#[test]
fn the_gap_of_a_plan_of_least_memory_is_of_bytes() {
    let source = "hardware h100\nmesh x=2, y=4\ndim B = 64\ndim E = 256\ndim F = 512\n\
        layer mlp(x: bf16 B_xE, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 B_xE {\n\
        return einsum(relu(einsum(x, w -> BF)), v -> BE)\n}\n";
    let of = first(&["explain", "-", "--no-alternatives", "--objective", "memory"], source);
    let bytes = |key: &str| of["memory"][key].as_f64().expect("bytes");
    let gap = bytes("peak_bytes") / bytes("lower_bound_bytes") - 1.0;
    assert!((of["optimality"]["gap"].as_f64().expect("a gap") - gap).abs() < 1e-9, "{of}");
}

#[test]
fn a_layer_without_flops_uses_nothing_of_the_chip_and_no_less() {
    let text = "hardware tpu-v5e\nmesh x=4, y=4\ndim B = 64\ndim E = 4096\n\
        layer moved(a: bf16 B_xE_y) -> bf16 BE { return a }\n";
    for args in [
        &["cost", "-"][..],
        &["cost", "-", "--format", "json"],
        &["sweep", "-", "-D", "B=64", "--format", "csv"],
        &["explain", "-", "--emit", "html"],
    ] {
        let ran = fed(args, text);
        assert_eq!(ran.status, 0, "{}", ran.err);
        for wrong in ["-0.0", "-0 ", "-0%", ",-0,"] {
            assert!(!ran.out.contains(wrong), "{args:?}: {wrong}");
        }
    }
}
