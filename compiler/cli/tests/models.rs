//! Current models: what `new` writes for each configuration is checked, lowered and run, and has
//! the published number of parameters.

use crate::common::{fed, shardc};
use rayon::prelude::*;
use serde_json::Value;

/// Configurations, with the published number of parameters of the parts that `new` writes.
const MODELS: &[(&str, f64)] = &[
    ("bloom_176b", 176.247e9),
    ("command_r", 34.981e9),
    ("command_r7b", 8.028e9),
    ("deepseek_v2_lite", 15.706e9),
    ("deepseek_v3", 671.0e9),
    ("falcon_40b", 41.303e9),
    ("falcon_7b", 6.922e9),
    ("gemma2_9b", 9.242e9),
    ("gemma3_27b", 27.016e9),
    ("gemma3_4b", 3.880e9),
    ("gemma_7b", 8.538e9),
    ("glm45", 355.0e9),
    ("gpt2_xl", 1.558e9),
    ("gpt_neox_20b", 20.555e9),
    ("gpt_oss_120b", 116.83e9),
    ("gpt_oss_20b", 20.91e9),
    ("granite_8b", 8.171e9),
    ("llama3_70b", 70.554e9),
    ("llama4_scout", 109.0e9),
    ("mamba2_codestral_7b", 7.285e9),
    ("mistral_7b", 7.242e9),
    ("mixtral_8x7b", 46.703e9),
    ("olmo2_7b", 7.299e9),
    ("olmoe_1b_7b", 6.919e9),
    ("phi2", 2.780e9),
    ("phi4", 14.660e9),
    ("qwen15_moe_a27b", 14.316e9),
    ("qwen2_7b", 7.616e9),
    ("qwen3_30b_a3b", 30.532e9),
    ("qwen3_8b", 8.191e9),
    ("stablelm2_1_6b", 1.645e9),
    ("starcoder2_15b", 15.958e9),
];

/// The text that `new` writes for a configuration.
fn new(name: &str) -> String {
    let ran = shardc(&["new", "--from-config", &format!("configs/{name}.json")]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{name}");
    ran.out
}

/// The weights of a layer, each with its number of elements; a weight of folded blocks counts once
/// for each repetition.
fn weights(layer: &Value) -> impl Iterator<Item = (&Value, f64)> {
    let of = |instruction: &Value| {
        let shape = instruction["shape"].as_array().expect("a shape").iter();
        let elements: f64 = shape.map(|size| size.as_f64().expect("a size")).product();
        elements * instruction["repeat"].as_f64().unwrap_or(1.0)
    };
    let all = layer["instructions"].as_array().expect("instructions").iter();
    let weights = all.filter(|instruction| instruction["kind"] == "weight");
    weights.map(move |instruction| (instruction, of(instruction)))
}

/// The number of parameters of a layer. The scales of weights in narrow types do not count.
fn parameters(layer: &Value) -> f64 {
    let is_scale = |weight: &Value| weight["name"].as_str().expect("a name").contains("_scales");
    weights(layer).filter(|(weight, _)| !is_scale(weight)).map(|(_, elements)| elements).sum()
}

/// The bytes of the weights of a layer.
fn stored(layer: &Value) -> f64 {
    let bytes = |weight: &Value| match weight["dtype"].as_str() {
        Some("bf16") => 2.0,
        Some("f8") => 1.0,
        Some("f4") => 0.5,
        other => panic!("weights in {other:?}"),
    };
    weights(layer).map(|(weight, elements)| elements * bytes(weight)).sum()
}

/// One of each family, for the fast set.
const FEW: &[&str] = &[
    "deepseek_v2_lite",
    "falcon_7b",
    "gemma3_27b",
    "gpt_oss_120b",
    "mamba2_codestral_7b",
    "mixtral_8x7b",
    "phi2",
];

fn is_lowered_with_the_published_parameters(name: &str, published: f64) {
    let ran = fed(&["explain", "--format", "json", "-"], &new(name));
    assert_eq!(ran.status, 0, "{name}: {}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    let layers = report["layers"].as_array().expect("layers");
    assert_eq!(layers.len(), 2, "{name}: prefill and decode");
    for layer in layers {
        let share = parameters(layer) / published;
        assert!((0.98..1.02).contains(&share), "{name}: {share} of what is published");
        assert_eq!(layer["optimality"]["status"], "proven", "{name}");
    }
}

/// Runs the program of a model. In the 32 layers of `command_r7b`, attention and feed-forward stand
/// side by side, not one behind the other, and rounding leaves more than 1e-5.
fn runs(name: &str) {
    let tolerance = if name == "command_r7b" { "1e-3" } else { "1e-5" };
    let ran = fed(&["run", "--tolerance", tolerance, "-"], &new(name));
    assert_eq!(ran.status, 0, "{name}: {}{}", ran.err, ran.out);
    assert_eq!(ran.out.matches(": equal").count(), 2, "{name}: {}", ran.out);
}

#[test]
fn what_a_configuration_leaves_to_the_library_is_said() {
    let program = new("gemma3_4b");
    let assumed = "//! Not in the configuration, and as transformers has them: vocab_size = 262208, \
                   num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256, ";
    assert!(program.contains(assumed), "{program}");
    assert!(!new("gemma3_27b").contains("Not in the configuration"));
}

#[test]
fn kimi_k2_is_made_of_the_blocks_of_deepseek_v3() {
    let config = include_str!("files/configs/deepseek_v3.json").replace("deepseek_v3", "kimi_k2");
    let ran = fed(&["new", "--from-config", "-", "--hardware", "tpu-v5p"], &config);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let layers = |text: &str| text.split_once("layer ").map(|(_, layers)| layers.to_string());
    let deepseek = new("deepseek_v3").replace("deepseek_v3", "kimi_k2");
    assert_eq!(layers(&ran.out), layers(&deepseek));
}

/// The checkpoints of gpt-oss have 60.8 and 12.8 GiB (model card, table 1): experts in 4 bits, and
/// 8 bits more for 32 of them.
#[test]
fn experts_in_mxfp4_are_stored_with_their_scales() {
    for (name, published) in [("gpt_oss_120b", 60.8), ("gpt_oss_20b", 12.8)] {
        let program = new(name);
        let ran = fed(&["explain", "--format", "json", "--no-alternatives", "-"], &program);
        let report: Value = serde_json::from_str(&ran.out).expect("JSON");
        for layer in report["layers"].as_array().expect("layers") {
            let share = stored(layer) / (published * f64::from(1 << 30));
            assert!((0.998..1.002).contains(&share), "{name}: {share} of what is published");
            assert_eq!(layer["optimality"]["status"], "proven", "{name}");
            let whole = "einsum(there, w_gate, gate_scales -> XPLCF)";
            assert!(program.contains(whole), "{name}");
        }
        assert!(!program.contains("the scales of the quantisation"), "{name}");
    }
}

#[test]
fn strategies_are_asked_of_weights_in_blocks_as_of_others() {
    let layer = "../../../../examples/models/gpt_oss_120b.shard";
    for (strategy, answer) in [
        ("expert-parallel", "The chosen plan has it: it is the best plan"),
        ("1d-weight-stationary", "The chosen plan has it: it is the best plan"),
        ("data-parallel", "The best of 2 ways of having it."),
    ] {
        let ran = shardc(&["explain", layer, "--why-not", strategy]);
        assert!(ran.out.contains(answer), "{strategy}: {}{}", ran.out, ran.err);
    }
}

#[test]
fn every_model_is_checked_and_formatted() {
    for (name, _) in MODELS {
        let program = new(name);
        assert_eq!(fed(&["fmt", "-"], &program).out, program, "{name} is not formatted");
        let ran = fed(&["check", "--quick", "-"], &program);
        assert_eq!(ran.status, 0, "{name}: {}", ran.err);
        assert!(!ran.err.contains("error["), "{name}: {}", ran.err);
    }
}

#[test]
fn a_model_of_each_family_is_lowered_with_its_parameters_and_run() {
    for (name, published) in MODELS.iter().filter(|(name, _)| FEW.contains(name)) {
        is_lowered_with_the_published_parameters(name, *published);
        runs(name);
    }
}

#[test]
#[ignore = "slow: every model, some of which are searched for ten seconds and more"]
fn the_rest_of_the_models_are_lowered_with_their_parameters_and_run() {
    let rest: Vec<_> = MODELS.iter().filter(|(name, _)| !FEW.contains(name)).collect();
    rest.par_iter().with_max_len(1).for_each(|(name, published)| {
        is_lowered_with_the_published_parameters(name, *published);
        runs(name);
    });
}

/// Where memory binds and nothing is annotated, the weights of a model can be stored in more ways
/// than can be tried. The search ends when it has priced its limit of them, with a plan that is
/// nearly the best.
#[test]
#[ignore = "slow: searches within memory of whole models"]
fn whole_models_on_chips_of_little_memory_have_a_plan_near_the_best() {
    for (name, chip) in [("gemma3_27b", "tpu-v5e"), ("glm45", "tpu-v5e"), ("bloom_176b", "tpu-v6e")]
    {
        let config = format!("configs/{name}.json");
        let program = shardc(&["new", "--from-config", &config, "--hardware", chip]).out;
        // These prompts follow a full cache, which leaves less memory.
        let program = program.replace(", S = L", "").replace(", R = L", "");
        let ran = fed(&["explain", "--format", "json", "--no-alternatives", "-"], &program);
        assert_eq!(ran.status, 0, "{name}: {}", ran.err);
        let report: Value = serde_json::from_str(&ran.out).expect("JSON");
        let gap = report["layers"][0]["sharing"]["request"]["gap"].as_f64().expect("a gap");
        assert!(gap < 0.003, "{name} on {chip}: {gap} above its bound");
    }
}

/// The block of DeepSeek-V3 that reads prompts of 512 tokens, with open weights, on 32 chips. The
/// fastest plan takes 182 GB of each chip; weights and caches take 25 GB in any plan.
fn prompts_of_deepseek_v3() -> String {
    let program = new("deepseek_v3");
    let lines = program.lines().filter(|line| !line.starts_with("phase "));
    let text: Vec<&str> = lines.collect();
    text.join("\n").replace("\ndim L = 1 ", "\ndim L = 512 ")
}

fn within(memory: &str) -> (Value, f64) {
    let asked = ["explain", "--format", "json", "--no-alternatives", "--layer", "block", "-"];
    let ran = fed(&[&asked[..], &["--memory-limit", memory]].concat(), &prompts_of_deepseek_v3());
    assert_eq!(ran.status, 0, "{memory}: {}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    let layer = &report["layers"][0];
    let peak = layer["model_totals"]["peak_hbm_bytes"].as_f64().expect("bytes");
    (layer["optimality"].clone(), peak)
}

#[test]
#[ignore = "slow: a search within memory"]
fn a_map_is_one_kernel_with_what_it_reads_where_memory_binds() {
    let (optimality, peak) = within("150GB");
    assert!(peak <= 150e9, "{peak}");
    assert_eq!(optimality["status"], "proven");
    let cost = optimality["cost_s"].as_f64().expect("seconds");
    assert!(cost < 7.5e-3, "{cost}");
}

#[test]
#[ignore = "slow: a search within memory"]
fn the_best_plan_is_proven_at_the_memory_of_the_chip_and_nearly_at_little_more_than_any_plan_takes()
{
    for (memory, most, gap) in [("96GB", 96e9, 1.0), ("30GB", 30e9, 1.01)] {
        let (optimality, peak) = within(memory);
        assert!(peak <= most, "{peak}");
        let [cost, bound] =
            ["cost_s", "lower_bound_s"].map(|key| optimality[key].as_f64().expect("seconds"));
        assert!(bound <= cost && cost <= gap * bound, "{memory}: {optimality}");
        // Certificates price no activations, so a certificate cannot prove a plan that memory
        // limits.
        assert_ne!(optimality["proof"], "certificate", "{memory}: {optimality}");
    }
}

/// DeepSeek-V3 as a whole, both phases, on 32 chips of 96 GB; its fastest plan takes 182 GB.
#[test]
#[ignore = "slow: the phases of a model of 671 billion parameters share their weights"]
fn a_whole_model_that_stores_its_weights_for_two_phases_fits_and_is_proven() {
    let ran = fed(&["cost", "--format", "json", "-"], &new("deepseek_v3"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    let layers = report["layers"].as_array().expect("phases");
    assert_eq!(layers.len(), 2);
    for layer in layers {
        assert_eq!(layer["optimality"]["status"], "proven", "{}", layer["phase"]);
        assert!(layer["memory"]["peak_bytes"].as_f64().expect("bytes") <= 96e9);
    }
}

/// Weights that all phases store alike, where the fastest plans do not fit. In the first model the
/// layouts that one phase wants cost the other phase nothing; in the second all phases are searched
/// together.
#[test]
#[ignore = "slow: the phases of two models share their weights"]
fn stored_layouts_within_memory_are_proven_best_for_a_request() {
    for name in ["deepseek_v2_lite", "starcoder2_15b"] {
        let config = format!("configs/{name}.json");
        let chips = ["--hardware", "tpu-v5e", "--chips", "64"];
        let ran = shardc(&[&["new", "--from-config", &config], &chips[..]].concat());
        let ran = fed(&["explain", "--format", "json", "--no-alternatives", "-"], &ran.out);
        assert_eq!(ran.status, 0, "{name}: {}", ran.err);
        let report: Value = serde_json::from_str(&ran.out).expect("JSON");
        for layer in report["layers"].as_array().expect("phases") {
            assert_eq!(layer["sharing"]["request"]["status"], "proven", "{name}");
        }
    }
}

#[test]
fn layers_of_different_kinds_stand_in_the_order_of_the_configuration() {
    let of = |name: &str, parts: &[&str]| {
        let program = new(name);
        for part in parts {
            assert!(program.contains(part), "{name}: no `{part}` in\n{program}");
        }
    };
    of("deepseek_v3", &["y1 = dense(x)   // 3 of them", "y2 = block(y1)  // 58 of them"]);
    of(
        "gemma3_27b",
        &[
            "(y_6, keys1_6, values1_6) = global(",
            "(y_5, keys1_5, values1_5) = local(",
            "y1 = block(x)  // 10 of them",
            "y2 = block_2(y1)\n",
        ],
    );
    of("gpt_oss_120b", &["(y_1, keys1_1, values1_1) = local(\n    x,\n", "// 18 of them"]);
    of(
        "llama4_scout",
        &[
            "y1 = local(x)               // 36 of them",
            "y2 = global(y1, positions)  // 12 of them",
            "dim R = 8192 ",
        ],
    );
}

/// A block whose weights two phases share. Their layouts are open in the source, and they are
/// stored as all phases want them.
const SHARED: &str = "hardware tpu-v5e
mesh x=4
dim B = 16
dim L = 1
dim E = 1024
dim F = 4096
phase prefill { L = 512, B = 4 }
phase decode repeat 16 { L = 1 }
layer block(x: bf16 BLE?l, w_in: weight bf16 EF?, w_out: weight bf16 FE?) -> bf16 BLE?l repeat 4 {
  let h = einsum(x, w_in -> BLF)
  return x + einsum(gelu(h), w_out -> BLE)
}
model tower(x: bf16 BLE?) -> bf16 BLE? { return block(x) }
";

#[test]
fn what_to_write_for_a_weight_of_a_block_stands_in_the_block() {
    let mut seen = 0;
    for (layout, line) in [
        ("E_xF", "    w_in: weight bf16 E_xF    (in layer `block`)\n"),
        ("EF_x", "    w_in: weight bf16 EF_x    (in layer `block`)\n"),
        ("EF", "    w_in: weight bf16 EF    (in layer `block`)\n"),
    ] {
        let question = format!("block.w_in: {layout}");
        let ran = fed(&["explain", "-", "--phase", "decode", "--why-not", &question], SHARED);
        if ran.out.contains("to have it, write") {
            seen += 1;
            assert!(ran.out.contains(line), "{}", ran.out);
        }
    }
    assert!(seen >= 1);
}
