//! `shardc new`, as a newcomer meets it: what it writes goes through every command.

use std::path::{Path, PathBuf};

use crate::common::{fed, shardc};
use rayon::prelude::*;

/// Templates and configurations, as arguments of `new`.
const SOURCES: &[&[&str]] = &[
    &["--template", "mlp"],
    &["--template", "llama-block"],
    &["--template", "palm-block"],
    &["--template", "moe-block"],
    &["--from-config", "configs/gpt2_xl.json"],
    &["--from-config", "configs/gpt_neox_20b.json"],
    &["--from-config", "configs/llama3_70b.json"],
    &["--from-config", "configs/mixtral_8x7b.json"],
];

/// What `new` writes.
fn new(arguments: &[&str]) -> String {
    let ran = shardc(&[&["new"], arguments].concat());
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{arguments:?}");
    ran.out
}

/// The path of a test's own file.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn what_is_written_is_checked_explained_costed_and_run_without_a_word() {
    SOURCES.par_iter().with_max_len(1).for_each(|source| {
        let program = new(source);
        assert_eq!(fed(&["fmt", "-"], &program).out, program, "{source:?} is not formatted");
        for command in [
            &["check"][..],
            &["explain"],
            &["explain", "--alternatives", "plans"],
            &["cost"],
            &["run"],
        ] {
            let ran = fed(&[command, &["-"]].concat(), &program);
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{source:?}: {command:?}");
        }
    });
}

#[test]
fn queries_and_keys_are_turned_by_their_positions_among_all() {
    let turned =
        |program: &str| program.matches("rope(").count() == program.matches(" at L, S)").count();
    for source in SOURCES {
        let program = new(source);
        assert!(turned(&program), "{source:?}");
        assert!(!source[1].contains("llama") || program.contains("rope("), "{source:?}");
    }
}

#[test]
fn a_model_reads_prompts_and_makes_tokens_with_one_set_of_weights_that_fits() {
    for source in SOURCES.iter().filter(|source| source[1] != "mlp") {
        let program = new(source);
        let report: serde_json::Value =
            serde_json::from_str(&fed(&["explain", "--format", "json", "-"], &program).out)
                .expect("JSON");
        let layers = report["layers"].as_array().expect("layers");
        let phases: Vec<&str> = layers.iter().filter_map(|layer| layer["phase"].as_str()).collect();
        assert_eq!(phases, ["prefill", "decode"], "{source:?}");
        let stored = |layer: &serde_json::Value| -> Vec<String> {
            let all = layer["instructions"].as_array().expect("instructions").iter();
            all.filter(|i| i["kind"] == "weight")
                .map(|i| format!("{} {}", i["name"], i["layout"]))
                .collect()
        };
        assert_eq!(stored(&layers[0]), stored(&layers[1]), "{source:?}");
        for layer in layers {
            let repeat = layer["folds"][0]["repeat"].as_u64().expect("a folded block");
            assert!(program.contains(&format!("// {repeat} of them")), "{source:?}");
            assert_eq!(layer["optimality"]["status"], "proven", "{source:?}");
        }
    }
}

/// The configuration of a small Llama 4 of eight layers: each four of them have all four kinds of
/// layers. `more` is added at its end.
fn small_llama4(more: &str) -> String {
    format!(
        r#"{{"model_type": "llama4_text", "hidden_size": 64, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128,
        "intermediate_size_mlp": 256, "num_hidden_layers": 8, "vocab_size": 256,
        "hidden_act": "silu", "num_local_experts": 4, "num_experts_per_tok": 1,
        "max_position_embeddings": 1024,
        "attention_chunk_size": 512, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2,
        "attention_bias": true, "vision_config": {{}}{more}}}"#
    )
}

#[test]
fn a_prompt_is_no_longer_than_a_chunk() {
    let config = small_llama4("").replace("_chunk_size\": 512", "_chunk_size\": 16");
    let program = fed(&["new", "--from-config", "-"], &config).out;
    assert!(program.contains("\nphase prefill { P = 2, L = 16, S = L, R = L }\n"), "{program}");
    let ran = fed(&["check", "--quick", "-"], &program);
    assert_eq!(ran.status, 0, "{}", ran.err);
}

/// With a cache of 1,024 positions, attention would be priced as if the prompt came after 512 other
/// positions.
#[test]
fn a_prompt_is_the_first_of_its_sequence() {
    let learned = r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
        "n_positions": 1024, "vocab_size": 256, "activation_function": "gelu_new"}"#;
    for (config, held) in [(small_llama4("").as_str(), ", S = L, R = L"), (learned, ", S = L")] {
        let program = fed(&["new", "--from-config", "-"], config).out;
        let prefill = program.lines().find(|line| line.starts_with("phase prefill"));
        let prefill = prefill.unwrap_or_else(|| panic!("{program}"));
        assert!(prefill.ends_with(&format!(", L = 512{held} }}")), "{prefill}");
        let ran = fed(&["check", "--quick", "-"], &program);
        assert_eq!(ran.status, 0, "{}", ran.err);
    }
}

/// The factor at position p is `ln(floor((p + 1) / floor_scale) + 1) * attn_scale + 1`. The
/// positions are those of the caches, and those of a step are the last ones.
#[test]
fn queries_of_llama_4_are_scaled_by_their_position_where_nothing_turns_them() {
    let written = |more: &str| {
        let ran = fed(&["new", "--from-config", "-"], &small_llama4(more));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{more}");
        ran.out
    };
    let program = written(r#", "floor_scale": 3, "attn_scale": 0.25"#);
    for part in [
        "  let tuned = cast(log(cast((positions + 1) / 3, f32) + 1) * 0.25 + 1, bf16)\n",
        "einsum(h, wq -> PTLKGD) + bq\n  let q = q0 * tuned\n",
        "  let positions = slice(iota(pad(ids, L -> S, S - L) over S), S -> L, S - L)\n",
        "(x, positions)",
    ] {
        assert!(program.contains(part), "no `{part}` in\n{program}");
    }
    for layer in program.split("\nlayer ").filter(|layer| layer.contains("rope(")) {
        assert!(!layer.contains("tuned"), "{layer}");
    }
    assert!(!program.contains("attn_scale") && !program.contains("floor_scale"), "{program}");
    let ran = fed(&["run", "--tolerance", "1e-5", "-"], &program);
    assert_eq!(ran.out.matches(": equal").count(), 2, "{}{}", ran.err, ran.out);
    // All of these values turn the tuning on, as they do in Hugging Face's library.
    for on in ["", r#", "attn_temperature_tuning": true"#, r#", "attn_temperature_tuning": 4"#] {
        assert!(written(on).contains("(positions + 1) / 8192, f32) + 1) * 0.1 + 1"), "{on}");
    }
    for off in [r#", "attn_temperature_tuning": false"#, r#", "attn_temperature_tuning": 0"#] {
        assert!(!written(off).contains("tuned"), "{off}");
    }
}

#[test]
fn full_slices_of_more_than_two_axes_are_laid_out_too() {
    let llama = ["--from-config", "configs/llama3_70b.json"];
    for (chip, chips) in [
        ("tpu-v5p", "64"),
        ("tpu-v5p", "256"),
        ("tpu-v5p", "512"),
        ("tpu-v5e", "256"),
        ("h100", "256"),
    ] {
        let program = new(&[&llama[..], &["--hardware", chip, "--chips", chips]].concat());
        let ran = fed(&["check", "--quick", "-"], &program);
        assert_eq!(ran.status, 0, "{chip} {chips}: {}", ran.err);
        assert!(
            !ran.err.contains("warning") && !ran.err.contains("error"),
            "{chip} {chips}: {}",
            ran.err
        );
    }
}

#[test]
fn what_the_configuration_says_and_the_program_lacks_is_listed() {
    let config = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 256, "hidden_act": "silu",
        "torch_dtype": "float16", "tie_word_embeddings": true, "rope_theta": 500000.0, "use_cache": true,
        "quantization_config": {"quant_method": "awq", "bits": 4}, "logit_softcap": 30.0, "mlp_bias": false}"#;
    let ran = fed(&["new", "--from-config", "-"], config);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let left_out = ran.out.lines().find(|line| line.starts_with("//! Left out: ")).expect("a list");
    for part in [
        "the scales of the quantisation of the weights to 4 bits (awq)",
        "the base of the rotary embedding (500000; `rope` has 10000)",
        "what else the configuration says: `logit_softcap`",
    ] {
        assert!(left_out.contains(part), "{left_out}");
    }
    assert!(!left_out.contains("use_cache") && !left_out.contains("bias"), "{left_out}");
    // The dtypes and the shared table are honoured.
    assert!(
        ran.out.contains("wq:     weight int4 ")
            && ran.out.contains("weight f16 VE?")
            && !ran.out.contains("bf16"),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("embed(ids, table: tied)") && ran.out.contains("unembed(y, table: tied)"),
        "{}",
        ran.out
    );
    let experts = new(&["--from-config", "configs/mixtral_8x7b.json"]);
    assert!(
        experts.contains("let w = own / sum(own over X)")
            && experts.contains("tokens beyond an expert's places")
    );
}

#[test]
fn sizes_of_a_configuration_are_those_of_the_program() {
    let program = new(&["--from-config", "configs/llama3_70b.json"]);
    for line in [
        "dim E = 8192 ",
        "dim K = 8 ",
        "dim G = 64 / K ",
        "dim D = 128 ",
        "dim F = 28672 ",
        "dim V = 128256 ",
    ] {
        assert!(program.contains(line), "no `{line}` in\n{program}");
    }
    assert!(program.contains("repeat 80 {"), "{program}");
    assert!(program.contains("w_gate: weight bf16 EF?"), "{program}");
    let plain = new(&["--from-config", "configs/gpt2_xl.json"]);
    assert!(
        !plain.contains("w_gate") && plain.contains("layernorm") && plain.contains("dim F = 4 * E"),
        "{plain}"
    );
    assert!(plain.contains("dim V = 50257 pad 50304"), "{plain}");
}

#[test]
fn caches_are_split_over_heads_where_there_are_enough_and_else_over_the_batch() {
    let cache = |mesh: &str| {
        let program = new(&["--from-config", "configs/llama3_70b.json", "--mesh", mesh]);
        program
            .lines()
            .find_map(|line| line.trim().strip_prefix("keys:   cache bf16 ").map(str::to_string))
    };
    assert_eq!(cache("x=2,y=8").as_deref(), Some("B_xSK_yD,"));
    assert_eq!(cache("data=4,model=16").as_deref(), Some("B_{data,model}SKD,"));
    assert_eq!(cache("y=4").as_deref(), Some("BSK_yD,"));
}

#[test]
fn meshes_suit_the_chip_and_the_model() {
    let mesh = |arguments: &[&str]| {
        let program = new(arguments);
        program.lines().find(|line| line.starts_with("mesh ")).map(str::to_string)
    };
    let llama = ["--from-config", "configs/llama3_70b.json"];
    // The mesh is as near to a square as can be, or to a cube where slices are made of cubes. The
    // axis of heads is no longer than the number of heads of keys and values, unless the chip has
    // no such slice.
    assert_eq!(mesh(&[&llama[..], &["--chips", "32"]].concat()).as_deref(), Some("mesh x=4, y=8"));
    assert_eq!(
        mesh(&[&llama[..], &["--chips", "128"]].concat()).as_deref(),
        Some("mesh x=4, y=4, z=8")
    );
    let wide = [&llama[..], &["--chips", "256", "--hardware", "tpu-v5e"]].concat();
    assert_eq!(mesh(&wide).as_deref(), Some("mesh x=16, y=16"));
    // A plane is no slice of a v5p, but a face of one: the file says so.
    let written = new(&[&llama[..], &["--chips", "32"]].concat());
    assert!(
        written.contains("hardware tpu-v5p-face\n")
            && written.contains("//! The mesh is taken for a face"),
        "{written}"
    );
    assert!(new(&llama).contains("hardware tpu-v5p\n"), "8 chips are a part of a cube");
    // The axis of heads stays behind the switch of a node.
    assert_eq!(
        mesh(&[&llama[..], &["--chips", "32", "--hardware", "h100"]].concat()).as_deref(),
        Some("mesh x=4, y=8")
    );
}

#[test]
fn a_configuration_that_is_not_understood_is_a_diagnostic_at_its_place() {
    let cases = [
        ("", "the configuration is not a JSON object: EOF while parsing a value"),
        ("[1]", "the configuration is not a JSON object: it is an array or a plain value"),
        ("\u{feff}{}", "the configuration has no `model_type`"),
        (
            "{\"model_type\": \"llama\", \u{e9}",
            "the configuration is not a JSON object: key must be a string",
        ),
        ("{}", "the configuration has no `model_type`"),
        (r#"{"model_type": 3}"#, "`model_type` is not a string"),
        (r#"{"model_type": "rwkv"}"#, "nothing is known of the layers of a `rwkv` model"),
        (
            r#"{"model_type": "mamba"}"#,
            "the layers of a `mamba` model need a scan over positions, which `new` does not write",
        ),
        (
            r#"{"model_type": "t5"}"#,
            "the layers of a `t5` model need an encoder beside the decoder, and positions by \
                distance, which `new` does not write",
        ),
        (
            r#"{"model_type": "llama", "hidden_size": 0}"#,
            "`hidden_size` is not a whole number from 1 to 4294967296",
        ),
        (
            r#"{"model_type": "llama", "hidden_size": 64}"#,
            "the configuration has no `num_attention_heads`",
        ),
        (r#"{"model_type": "gpt2"}"#, "the configuration has no `n_embd` and no `hidden_size`"),
        (
            r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 3}"#,
            "`num_attention_heads` = 3 does not divide the width, 64",
        ),
        (
            r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "activation_function": "mish"}"#,
            "`activation_function` is not one of `silu`, `swish`, `gelu`, `gelu_new`, \
                `gelu_fast`, `relu`",
        ),
    ];
    for (config, message) in cases {
        let ran = fed(&["new", "--from-config", "-"], config);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{config}");
        assert!(
            ran.err.starts_with(&format!("error[E0890]: {message}\n")),
            "{config}: {}",
            ran.err
        );
        assert!(ran.err.contains("\n  help: "), "{config}: {}", ran.err);
    }
}

#[test]
fn sizes_that_no_chip_holds_are_refused_and_not_computed_with() {
    let config = r#"{"model_type": "llama", "hidden_size": 4294967296, "num_attention_heads": 4294967296,
        "intermediate_size": 4294967296, "num_hidden_layers": 4294967296, "vocab_size": 4294967296, "hidden_act": "silu"}"#;
    let ran = fed(&["new", "--from-config", "-"], config);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(
        ran.err.contains("no mesh of `tpu-v5p` divides the heads and holds the model"),
        "{}",
        ran.err
    );
}

#[test]
fn a_mesh_that_does_not_suit_is_said_by_the_program() {
    let ran = shardc(&["new", "--mesh", "x=4096,y=4"]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.starts_with("error[E0"), "{}", ran.err);
}

#[test]
fn a_file_is_replaced_only_when_told_to() {
    let file = place("kept.shard");
    let path = file.to_str().expect("a plain path");
    std::fs::write(&file, "mine").expect("written");
    let ran = shardc(&["new", "-o", path]);
    assert_eq!(ran.status, 2);
    assert!(
        ran.err.contains("is there already") && ran.err.contains("help: --force"),
        "{}",
        ran.err
    );
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "mine");
    assert_eq!(shardc(&["new", "-o", path, "--force"]).status, 0);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), new(&[]));
}

#[test]
fn where_no_slice_divides_the_heads_the_last_axis_divides_d_ff() {
    for (config, said) in [
        ("phi4", "y is for d_ff (it does not divide the 40 heads)"),
        ("gpt2_xl", "y is for d_ff (it does not divide the 25 heads)"),
        ("falcon_7b", "y is for d_ff (it does not divide the 71 heads)"),
        ("gemma3_4b", "y is for d_ff (it does not divide the 8 heads)"),
        (
            "mamba2_codestral_7b",
            "y is for what is left open (it does not divide the 8 groups of heads)",
        ),
    ] {
        let config = format!("configs/{config}.json");
        let asked = ["--from-config", &config, "--hardware", "tpu-v5e", "--chips", "256"];
        let program = new(&asked);
        assert!(program.contains("\nmesh x=16, y=16\n") && program.contains(said), "{program}");
        let ran = fed(&["check", "-"], &program);
        assert_eq!(ran.status, 0, "{config}: {}", ran.err);
    }
}

#[test]
fn a_mesh_that_divides_the_heads_and_is_no_slice_is_said_to_be_so() {
    let llama = ["new", "--from-config", "configs/llama3_70b.json", "--hardware", "h100"];
    let ran = shardc(&[&llama[..], &["--chips", "12"]].concat());
    assert_eq!(ran.status, 2);
    assert!(
        ran.err.contains("no mesh of 12 chips that divides the heads is a slice of `h100`")
            && ran.err.contains("help: --mesh x=3,y=4 "),
        "{}",
        ran.err
    );
    let taken = shardc(&[&llama[..], &["--mesh", "x=3,y=4"]].concat());
    assert_eq!(taken.status, 0, "{}", taken.err);
}

#[test]
fn the_page_of_e0890_names_every_type_of_model() {
    let page = include_str!("../../../spec/diagnostics/E0890.md");
    for kind in shard_driver::new_program::config::types() {
        assert!(page.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn a_name_that_a_layer_cannot_have_is_told_as_one() {
    let spelt = [("größe", "groesse"), ("layer", "block"), ("embed", "embed2"), ("Block", "block")];
    for (name, help) in spelt {
        let ran = shardc(&["new", "--name", name]);
        assert_eq!(ran.status, 2, "{name}: {ran:?}");
        let said = format!("error: a layer cannot be named `{name}` here: ");
        assert!(ran.err.starts_with(&said), "{}", ran.err);
        assert!(ran.err.ends_with(&format!("help: --name {help}\n")), "{}", ran.err);
        assert!(!ran.err.contains("new.shard"), "{}", ran.err);
    }
    let ran = shardc(&["new", "--template", "mlp", "--chips", "7"]);
    let said = "error: no part of 7 chips but 1 divides the inner dim of the model, and no slice of \
                `tpu-v5p` has them in one row\n  help: --mesh x=7 ";
    assert!(ran.status == 2 && ran.err.starts_with(said), "{ran:?}");
    assert_eq!(shardc(&["new", "--template", "mlp", "--mesh", "x=7"]).status, 0);
}

/// transformers 5 writes the settings of rotary positions in one object.
#[test]
fn what_positions_turn_is_read_wherever_it_stands() {
    let config = |rope: &str| {
        format!(
            r#"{{"model_type": "glm4_moe", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "intermediate_size": 128, "moe_intermediate_size": 32, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": true, "num_hidden_layers": 3, "vocab_size": 256, "hidden_act": "silu",
        "torch_dtype": "bfloat16", {rope}}}"#
        )
    };
    let written = |rope: &str| {
        let ran = fed(&["new", "--from-config", "-"], &config(rope));
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{rope}");
        ran.out
    };
    let before = written(r#""partial_rotary_factor": 0.5, "rope_theta": 1000000.0"#);
    let inner =
        r#"{"rope_type": "default", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0}"#;
    for now in [inner.to_string(), format!(r#"{{"full_attention": {inner}}}"#)] {
        assert_eq!(written(&format!(r#""rope_parameters": {now}"#)), before);
    }
    let scaled = inner.replace("default", "yarn");
    let scaled = written(&format!(r#""rope_parameters": {scaled}"#));
    assert!(scaled.contains("the scaling of the rotary embedding") && before != scaled);
}
