//! Reports where memory binds claim nothing that is false.

use std::path::PathBuf;

use crate::common::{Ran, fed, shardc};
use rayon::prelude::*;
use serde_json::Value;

/// Writes the hardware file of a chip with `hbm_bytes` of memory, and returns its path.
fn chip(name: &str, hbm_bytes: &str, [flops, hbm, network]: [&str; 3]) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memory");
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let path = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = \"small\"\nsource = \"a test\"\n[chip]\nflops = {{ bf16 = {flops} }}\nhbm_bytes = \
            {hbm_bytes}\n\
         hbm_bandwidth = {hbm}\n[network]\nkind = \"flat\"\nbandwidth = {network}\nlatency = 0\n"
    );
    std::fs::write(&path, text).expect("the hardware file is written");
    path.to_string_lossy().into_owned()
}

/// A block of PaLM 540B that reads prompts on 64 chips.
const PALM: &str = "mesh x=4, y=4, z=4
dim B = 64
dim L = 2048
dim S = 2048
dim E = 18432
dim F = 73728
dim H = 64
dim Q = 256
layer block(x: bf16 BLE_xyz, kc: cache bf16 B_xyzSQ, vc: cache bf16 B_xyzSQ, wq: weight bf16 E_xH_yzQ,
  wk: weight bf16 E_xyzQ, wv: weight bf16 E_xyzQ, wo: weight bf16 H_yzQE_x, w_in: weight bf16 E_xF_yz,
  w_out: weight bf16 F_yzE_x) -> (y: bf16 BLE_xyz, k2: bf16 B_xyzSQ, v2: bf16 B_xyzSQ) {
  let h = rmsnorm(x over E)
  let q = einsum(h, wq -> BLHQ)
  let k2 = append(kc, einsum(h, wk -> BLQ), L -> S)
  let v2 = append(vc, einsum(h, wv -> BLQ), L -> S)
  let s = einsum(q, k2 -> BLHS)
  let p = softmax(s over S)
  let o = einsum(p, v2 -> BLHQ)
  let attn = einsum(o, wo -> BLE)
  let g = gelu(einsum(h, w_in -> BLF))
  let ff = einsum(g, w_out -> BLE)
  let y = attn + ff + x
  return (y, k2, v2)
}
";

/// Blocks that normalise twice: the memory held in the middle of a block depends on more than one
/// op.
const TOWER: &str = "hardware tpu-v5e
mesh x=4, y=2
dim B = 32
dim L = 2
dim E = 16
dim D = 8
dim V = 32
layer block(x: bf16 BLE?l, w0: weight host bf16 ED?, w1: weight bf16 DE?) -> bf16 BLE?l repeat 4 {
  let v1 = x * rsqrt(mean(square(x) over E) + 1)
  let _v2 = v1 * rsqrt(sum(square(v1) over E) + 1)
  let v3 = einsum(v1, w0 -> BLD)
  return x + einsum(v3, w1 -> BLE)
}
model tower(x: bf16 BLV?, tied: weight bf16 VE?) -> bf16 BLV? {
  let a0 = einsum(x, tied -> BLE)
  return einsum(block(block(a0)), tied -> BLV)
}
";

fn explained(source: &str, hardware: &str, more: &[&str]) -> Ran {
    fed(&[&["explain", "-", "--hardware", hardware], more].concat(), source)
}

#[test]
fn that_no_plan_fits_is_said_only_where_there_is_none() {
    let of = |name: &str, bytes: &str| chip(name, bytes, ["275e12", "1.2e12", "270e9"]);
    let pinned = PALM.replace("let attn =", "let attn: bf16 B_yzLE_x =");
    let (scarce, small, smallest) =
        (of("scarce", "1.6e9"), of("small", "1.54e9"), of("smallest", "1.3e9"));
    let asked = [
        // A plan that needs all of the memory is found with the pin that leads to it, and without
        // the pin.
        (PALM, &scarce, 0),
        (&pinned, &scarce, 0),
        // Beside the operands and the result of each op, a device holds `x`, which is added later,
        // and then `attn`.
        (PALM, &small, 1),
        // The first product alone needs more than is left beside the weights.
        (PALM, &smallest, 1),
        (&pinned, &smallest, 1),
    ];
    asked.par_iter().with_max_len(1).for_each(|(program, chip, status)| {
        let ran = explained(program, chip, &[]);
        assert_eq!(ran.status, *status, "{}", ran.err);
        let none_fits = "E0704]: no plan of `block` fits in the memory of a small";
        assert_eq!(ran.err.contains(none_fits), *status == 1, "{}", ran.err);
    });
}

#[test]
fn where_plans_are_left_that_nobody_looked_at_it_is_not_said_that_none_fits() {
    let refused = fed(&["explain", "-", "--memory-limit", "1756"], TOWER);
    assert_eq!(refused.status, 1, "{}", refused.err);
    let found_none = "E0704]: no plan of `tower` that fits in the memory of a tpu-v5e was found";
    assert!(refused.err.contains(found_none), "{}", refused.err);
    let alone = "weights and caches alone take 384 B or more";
    assert!(refused.err.contains(alone), "{}", refused.err);
    assert!(!refused.err.contains("no plan of `tower` fits"), "{}", refused.err);
}

/// Llama 3 70B with open weights, which reads prompts on 32 chips. The fastest plan keeps a copy of
/// most of the weights on each chip.
const LLAMA: &str = include_str!("../../search/tests/memory/llama_70b.shard");

#[test]
fn a_faster_plan_that_was_not_chosen_is_no_tie_and_the_reason_is_said() {
    let small = chip("llama", "16e9", ["459e12", "2.8e12", "180e9"]);
    let asked = |what: &str, more: &[&str]| {
        explained(LLAMA, &small, &[&["--why-not", what], more].concat())
    };
    // The fastest plan needs 139 GB.
    let large = asked("data-parallel", &[]);
    assert!(
        large.out.contains("faster by") && large.out.contains("It does not fit: it needs 139 GB"),
        "{}",
        large.out
    );
    assert!(!large.out.contains("a tie") && !large.out.contains("it wins at"), "{}", large.out);
    // A plan with this layout fits, so it cannot be faster than the plan that is proven best.
    let json: serde_json::Value =
        serde_json::from_str(&asked("wo: K_yGDE_z", &["--format", "json"]).out).expect("JSON");
    let answer = &json["answers"][0];
    assert!(answer["added_s"].as_f64().expect("seconds") >= 0.0, "{answer}");
    assert_eq!(answer["other"]["fits"], true, "{answer}");
}

#[test]
fn where_memory_binds_plans_are_proven_and_their_alternatives_are_told() {
    let mut last = f64::INFINITY;
    for bytes in ["9e9", "10e9", "12e9", "16e9", "20e9"] {
        let small = chip(&format!("llama_{bytes}"), bytes, ["459e12", "2.8e12", "180e9"]);
        let found = explained(LLAMA, &small, &["--format", "json"]);
        assert_eq!((found.status, found.err.as_str()), (0, ""), "{bytes}");
        let json: serde_json::Value = serde_json::from_str(&found.out).expect("JSON");
        let optimality = &json["layers"][0]["optimality"];
        assert_eq!(optimality["status"], "proven", "{bytes}");
        let time = optimality["cost_s"].as_f64().expect("seconds");
        assert!(time <= last, "{bytes}: {time} s, and {last} s in less memory");
        last = time;
    }
}

/// Llama 3 8B as `new` writes it, prompts and steps of one request, on eight chips of 16 GB.
#[test]
#[ignore = "slow: phases within memory"]
fn the_phases_of_a_whole_model_are_near_the_best_within_any_memory_and_a_request_says_how_near() {
    let model = shardc(&[
        "new",
        "--template",
        "llama-block",
        "--hardware",
        "tpu-v5e",
        "--mesh",
        "x=2,y=2,z=2",
    ]);
    assert_eq!(model.status, 0, "{}", model.err);
    for (memory, most) in [("4.3GB", 0.01), ("10GB", 0.001), ("12GB", 0.0)] {
        let asked =
            ["explain", "--format", "json", "--no-alternatives", "--memory-limit", memory, "-"];
        let ran = fed(&asked, &model.out);
        assert_eq!(ran.status, 0, "{memory}: {}", ran.err);
        let report: Value = serde_json::from_str(&ran.out).expect("JSON");
        let [prefill, decode] = [0, 1].map(|phase| &report["layers"][phase]);
        let request = &prefill["sharing"]["request"];
        let [cost, bound] =
            ["cost_s", "lower_bound_s"].map(|key| request[key].as_f64().expect("seconds"));
        assert!(bound <= cost && cost <= bound * (1.0 + most), "{memory}: {request}");
        let taken =
            [prefill, decode].map(|layer| layer["optimality"]["cost_s"].as_f64().expect("seconds"));
        assert!((taken[0] + 512.0 * taken[1] - cost).abs() <= 1e-9 * cost, "{taken:?}: {request}");
        assert_eq!(ran.err.contains("W0803"), bound < cost, "{memory}: {}", ran.err);
    }
}
