//! The objectives that plans are chosen for: `--objective`.

use crate::common::{fed, shardc};
use serde_json::Value;

/// Layers whose plans differ between objectives, on a network of one stream and on a network of
/// several.
const LAYERS: &[(&str, &str)] = &[
    ("tpu-v4-flat", "x: bf16 B_xyE, w_in: weight bf16 E_xF_y, w_out: weight bf16 F_yE_x"),
    ("tpu-v4-flat", "x: bf16 BE_xy, w_in: weight bf16 E?, w_out: weight bf16 F_yE_x"),
    ("tpu-v4-face", "x: bf16 B_xyE, w_in: weight bf16 E_yF_x, w_out: weight bf16 F_xE_y"),
    ("tpu-v4-face", "x: bf16 B_xE_y, w_in: weight bf16 EF?, w_out: weight bf16 FE?"),
];

fn source(hardware: &str, parameters: &str, batch: u64) -> String {
    let parameters = parameters.replace("bf16 E?", "bf16 EF?");
    format!(
        "hardware {hardware}\nmesh x=4, y=4\ndim B = {batch}\ndim E = 4096\ndim F = 16384\n\
         layer mlp({parameters}) -> bf16 B_xE_y {{\n  let h = gelu(einsum(x, w_in -> BF))\n  let \
         z = relu(einsum(x, w_in -> BF))\n  \
         return einsum(h, w_out -> BE) + einsum(z, w_out -> BE)\n}}\n"
    )
}

fn explained(source: &str, objective: &str) -> Value {
    let ran = fed(
        &["explain", "-", "--format", "json", "--no-alternatives", "--objective", objective],
        source,
    );
    assert_eq!(ran.status, 0, "{}\n{source}", ran.err);
    let mut report: Value = serde_json::from_str(&ran.out).expect("JSON");
    report["layers"][0].take()
}

fn all() -> impl Iterator<Item = String> {
    LAYERS
        .iter()
        .flat_map(|(chip, layer)| [16, 256, 4096, 65536].map(|batch| source(chip, layer, batch)))
}

#[test]
fn the_overlapped_plan_is_done_no_later_than_any_other_that_is_known_and_none_is_done_before_the_bound()
 {
    let mut sooner_than_serial = 0;
    for source in all() {
        let chosen = explained(&source, "overlap");
        let time = |layer: &Value| layer["totals"]["overlap_time_s"].as_f64().expect("seconds");
        let optimality = &chosen["optimality"];
        assert_eq!(optimality["cost_s"].as_f64(), Some(time(&chosen)), "{source}");
        let bound = optimality["lower_bound_s"].as_f64().expect("seconds");
        let status = if bound == time(&chosen) { "proven" } else { "bounded" };
        assert_eq!(optimality["status"], status, "{source}");
        assert!(0.0 < bound && bound <= time(&chosen), "{source}");
        for other in ["serial", "comm", "memory"] {
            assert!(
                bound <= time(&explained(&source, other)),
                "{other} is done before the bound\n{source}"
            );
        }
        let serial = time(&explained(&source, "serial"));
        assert!(time(&chosen) <= serial, "{source}");
        sooner_than_serial += usize::from(time(&chosen) < serial);
    }
    assert!(sooner_than_serial > 0);
}

#[test]
fn a_report_says_on_request_what_overlapping_would_choose() {
    let mut saving = 0;
    for source in all() {
        let ran =
            fed(&["explain", "-", "--format", "json", "--no-alternatives", "--overlap"], &source);
        assert_eq!(ran.status, 0, "{}\n{source}", ran.err);
        let report: Value = serde_json::from_str(&ran.out).expect("JSON");
        let choice = &report["layers"][0]["overlap_choice"];
        let seconds = |key: &str| choice[key].as_f64().expect("seconds");
        let chosen = explained(&source, "overlap");
        let (serial, other) = (explained(&source, "serial"), &chosen["totals"]);
        assert_eq!(choice["overlap_time_s"], serial["totals"]["overlap_time_s"], "{source}");
        assert_eq!(choice["other_overlap_time_s"], other["overlap_time_s"], "{source}");
        assert_eq!(choice["other_serial_time_s"], other["serial_time_s"], "{source}");
        assert_eq!(choice["lower_bound_s"], chosen["optimality"]["lower_bound_s"], "{source}");
        assert_eq!(choice["same_plan"] == true, seconds("saves_s") == 0.0, "{source}");
        saving += usize::from(seconds("saves_s") > 0.0);
        let text =
            fed(&["explain", "-", "--no-alternatives", "--overlap", "--width", "400"], &source).out;
        let says = if choice["same_plan"] == true { "the same plan" } else { "another plan" };
        assert!(text.contains(&format!("--objective overlap chooses {says}: ")), "{text}");
    }
    assert!(saving > 0);
    for args in [
        &["explain", "mlp.shard", "--overlap", "--objective", "overlap"][..],
        &["explain", "every_move.shir", "--overlap"],
    ] {
        assert_eq!(shardc(args).status, 2, "{args:?}");
    }
}

/// Layers whose weights are gathered: those of the next layer arrive while one computes.
const STACK: &str = "hardware tpu-v4-flat\nmesh x=4\ndim B = 16384\ndim D = 4096\ndim F = 16384\n\
    layer block(x: bf16 B_xD, up: weight bf16 D_xF, down: weight bf16 FD_x) -> bf16 B_xD \
    repeat 8 {\n  return einsum(gelu(einsum(x, up -> BF)), down -> BD)\n}\n";

#[test]
fn what_fits_is_judged_by_the_schedule_of_the_objective() {
    let figures = |objective: &str| {
        let of = |command: &[&str]| -> Value {
            let args = [command, &["-", "--format", "json", "--objective", objective]].concat();
            let ran = fed(&args, STACK);
            assert_eq!(ran.status, 0, "{}", ran.err);
            serde_json::from_str::<Value>(&ran.out).expect("JSON")["layers"][0].take()
        };
        let (explained, cost) = (of(&["explain"]), of(&["cost"]));
        let peak = explained["model_totals"]["peak_hbm_bytes"].as_u64().expect("bytes");
        assert_eq!(cost["memory"]["peak_bytes"].as_u64(), Some(peak), "{objective}");
        let capacity = cost["memory"]["capacity_bytes"].as_u64().expect("bytes");
        assert_eq!(cost["memory"]["free_bytes"].as_u64(), Some(capacity - peak), "{objective}");
        peak
    };
    // The weights of two layers are held at once.
    assert!(figures("overlap") > figures("serial"));
    let text = fed(&["cost", "-", "--objective", "overlap"], STACK).out;
    assert!(text.contains("free along the overlapped schedule"), "{text}");
    // The bound is on the time of the overlapped schedule, and the report says so.
    let text = fed(&["explain", "-", "--objective", "overlap"], STACK).out;
    assert!(text.contains("8 layers, computing beside communicating"), "{text}");
}

#[test]
fn a_collective_that_goes_on_beside_something_longer_costs_no_time() {
    let source = |long: u64| {
        format!(
            "hardware tpu-v4-flat\nmesh x=4\ndim B = 1024\ndim E = 4096\ndim F = 4096\ndim G = \
             {long}\nlayer f(x: bf16 B_xE, w: weight bf16 EF, v: weight bf16 F_xE, u: weight bf16 \
             EG) -> (y: bf16 BE_x, z: bf16 B_xG) {{\n  let h: BF = einsum(x, w -> BF)\n  let y = \
             einsum(h, v -> BE)\n  let z = einsum(x, u -> BG)\n  return (y, z)\n}}\n"
        )
    };
    let warned = |long: u64, objective: &str| {
        let ran = fed(&["explain", "-", "--objective", objective], &source(long));
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.err.contains("W0801")
    };
    assert!(warned(65536, "serial") && warned(4, "serial"));
    assert!(!warned(65536, "overlap"), "beside the product of `u`");
    assert!(warned(4, "overlap"), "beside next to nothing");
}

#[test]
fn the_smallest_plan_needs_no_more_than_the_fastest_and_no_less_than_its_weights() {
    let (mut smaller_than_serial, mut proven) = (0, 0);
    for source in all() {
        let chosen = explained(&source, "memory");
        let needs = |layer: &Value| layer["totals"]["peak_hbm_bytes"].as_u64().expect("bytes");
        let memory = &chosen["memory"];
        assert_eq!(memory["peak_bytes"].as_u64(), Some(needs(&chosen)), "{source}");
        assert!(memory["lower_bound_bytes"].as_u64() <= memory["peak_bytes"].as_u64(), "{source}");
        let fastest = explained(&source, "serial");
        assert!(needs(&chosen) <= needs(&fastest), "{source}");
        smaller_than_serial += usize::from(needs(&chosen) < needs(&fastest));
        let is_least = memory["lower_bound_bytes"] == memory["peak_bytes"];
        assert_eq!(chosen["optimality"]["status"] == "proven", is_least, "{source}");
        proven += usize::from(is_least);
    }
    assert!(smaller_than_serial > 0);
    assert!(proven > 0, "none is proven to need least");
}

#[test]
fn questions_are_answered_for_sums_over_steps_alone() {
    for objective in ["overlap", "memory"] {
        for question in ["--why", "--why-not"] {
            let ran = shardc(&["explain", "mlp.shard", "--objective", objective, question, "h"]);
            assert_eq!(ran.status, 2, "{}", ran.err);
            assert!(ran.err.contains("--objective serial"), "{}", ran.err);
        }
    }
}

/// Weights that two phases share.
const PHASES: &str = "hardware h100\nmesh x=4, y=4\ndim B = 512\ndim E = 4096\ndim F = 16384\n\
        phase prefill { B = 4096 }\nphase decode { B = 512 }\n\
        layer mlp(x: bf16 B_xyE, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 B_xyE {\n  \
        return einsum(gelu(einsum(x, w -> BF)), v -> BE)\n}\n";

#[test]
fn weights_that_phases_share_are_stored_in_little_memory_where_that_is_the_objective() {
    let source = PHASES;
    let peak = |objective: &str| {
        let peak = &explained(source, objective)["totals"]["peak_hbm_bytes"];
        peak.as_u64().expect("bytes")
    };
    let (fastest, smallest) = (peak("serial"), peak("memory"));
    assert!(smallest * 4 < fastest, "{smallest} of {fastest}");
    let ran = fed(&["check", "-", "--objective", "memory"], source);
    assert!(!ran.err.contains("W0803"), "that they are not the fastest is no news: {}", ran.err);
}

/// The activations take several times as much memory as the weights.
#[test]
fn weights_that_phases_share_take_little_memory_beside_large_activations_too() {
    let source = "hardware tpu-v5e\nmesh x=4, y=2\ndim B = 16\ndim E = 2048\ndim F = 8192\n\
                  phase prefill repeat 3 { B = 4096 }\nphase decode repeat 200 { B = 16 }\n\
                  layer mlp(x: bf16 B_yE_x, w1: weight bf16 EF?, w3: weight bf16 EF?, w2: weight \
                  bf16 FE?) -> bf16 BE? {\n  let n: bf16 BE? = rmsnorm(x over E)\n  let u: bf16 \
                  BF? = silu(einsum(n, w1 -> BF))\n  let g: bf16 BF_y = u * einsum(n, w3 -> BF)\n  \
                  return x + einsum(g, w2 -> BE)\n}\n";
    let peak = |source: &str| {
        let explained = explained(source, "memory");
        explained["totals"]["peak_hbm_bytes"].as_u64().expect("bytes")
    };
    // The search once chose a plan that needed more memory than this one with a single pinned
    // weight.
    let pinned = source.replacen("EF?", "E_xyF", 1);
    assert!(peak(source) <= peak(&pinned), "{} and {}", peak(source), peak(&pinned));
}

/// Weights are stored for the fastest plans. A report on plans of another objective therefore says
/// what a request takes with the fastest plans.
#[test]
fn what_a_request_takes_is_said_of_the_fastest_plans_where_others_are_shown() {
    let said_of = |source: &str, objective: &str| {
        let page = fed(&["explain", "-", "--objective", objective], source).out;
        page.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let said = |objective: &str| said_of(PHASES, objective);
    let of_fastest = "the fastest plans with the weights stored so, one step after another, take";
    let request = "a request (1 prefill, 1 decode)";
    assert!(said("serial").contains(&format!("{request} takes")));
    assert!(said("comm").contains(&format!("{request} communicates for")));
    for objective in ["memory", "overlap"] {
        let other = said(objective);
        assert!(other.contains(of_fastest) && other.contains(&format!("for {request}")), "{other}");
        assert!(!other.contains("sharing costs it"), "{other}");
    }
    let stack =
        said_of(&PHASES.replace(") -> bf16 B_xyE {", ") -> bf16 B_xyE repeat 10 {"), "serial");
    assert!(stack.contains(" a layer, ") && stack.contains(" in all 10, "), "{stack}");
}
