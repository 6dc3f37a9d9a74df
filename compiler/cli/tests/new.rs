//! `shardc new`, as a newcomer meets it: what it writes goes through every command.

#![allow(missing_docs, unreachable_pub)]

mod common;

use std::path::{Path, PathBuf};

use common::{fed, shardc};

/// Templates and configurations, as arguments.
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

/// A place of its own for a file of a test.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn what_is_written_is_checked_explained_costed_and_run_without_a_word_of_warning() {
    for source in SOURCES {
        let program = new(source);
        assert_eq!(fed(&["fmt", "-"], &program).out, program, "{source:?} is not formatted");
        for command in [&["check"][..], &["explain"], &["explain", "--alternatives", "plans"], &["cost"], &["run"]] {
            let ran = fed(&[command, &["-"]].concat(), &program);
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{source:?}: {command:?}");
        }
    }
}

#[test]
fn queries_and_keys_are_turned_by_their_positions_among_all() {
    let turned = |program: &str| program.matches("rope(").count() == program.matches(" at L, S)").count();
    for source in SOURCES {
        let program = new(source);
        assert!(turned(&program), "{source:?}");
        assert!(!source[1].contains("llama") || program.contains("rope("), "{source:?}");
    }
}

#[test]
fn prompts_of_the_sizes_that_the_header_names_are_read_and_fit() {
    for source in SOURCES {
        let program = new(source);
        let Some(advice) = program.lines().find(|line| line.ends_with("reads a prompt.")) else {
            assert_eq!(source[1], "mlp");
            continue;
        };
        let sizes = advice.split("`-D ").nth(1).and_then(|rest| rest.split('`').next()).expect("sizes");
        let ran = fed(&["cost", "-D", sizes, "-"], &program);
        // The search need not end with a proof, but it ends with a plan.
        let is_fine =
            |line: &str| !line.starts_with("error") && (!line.starts_with("warning") || line.contains("W0803"));
        assert!(ran.status == 0 && ran.err.lines().all(is_fine), "{source:?} -D {sizes}: {}", ran.err);
        let dense = ["llama-block", "configs/gpt2_xl.json", "configs/gpt_neox_20b.json", "configs/llama3_70b.json"];
        assert!(ran.err.is_empty() || !dense.contains(&source[1]), "{source:?} -D {sizes}: {}", ran.err);
    }
}

#[test]
fn sizes_of_a_configuration_are_those_of_the_program() {
    let program = new(&["--from-config", "configs/llama3_70b.json"]);
    for line in ["dim E = 8192 ", "dim K = 8 ", "dim G = 64 / K ", "dim D = 128 ", "dim F = 28672 ", "dim V = 128256 "]
    {
        assert!(program.contains(line), "no `{line}` in\n{program}");
    }
    assert!(program.contains("repeat 80 {"), "{program}");
    assert!(program.contains("w_gate: weight bf16 EF?"), "{program}");
    let plain = new(&["--from-config", "configs/gpt2_xl.json"]);
    assert!(!plain.contains("w_gate") && plain.contains("layernorm") && plain.contains("dim F = 4 * E"), "{plain}");
    assert!(plain.contains("dim V = 50257 pad 50304"), "{plain}");
}

#[test]
fn caches_are_split_over_heads_where_there_are_enough_and_else_over_the_batch() {
    let cache = |mesh: &str| {
        let program = new(&["--from-config", "configs/llama3_70b.json", "--mesh", mesh]);
        program.lines().find_map(|line| line.trim().strip_prefix("keys:   cache bf16 ").map(str::to_string))
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
    // As near to a square as can be, and no more ways than there are heads of keys and values.
    assert_eq!(mesh(&[&llama[..], &["--chips", "128"]].concat()).as_deref(), Some("mesh x=16, y=8"));
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
        ("{\"model_type\": \"llama\", \u{e9}", "the configuration is not a JSON object: key must be a string"),
        ("{}", "the configuration has no `model_type`"),
        (r#"{"model_type": 3}"#, "`model_type` is not a string"),
        (r#"{"model_type": "t5"}"#, "nothing is known of the layers of a `t5` model"),
        (r#"{"model_type": "llama", "hidden_size": 0}"#, "`hidden_size` is not a whole number from 1 to 4294967296"),
        (r#"{"model_type": "llama", "hidden_size": 64}"#, "the configuration has no `num_attention_heads`"),
        (r#"{"model_type": "gpt2"}"#, "the configuration has no `n_embd` and no `hidden_size`"),
        (
            r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 3}"#,
            "`num_attention_heads` = 3 does not divide the width, 64",
        ),
        (
            r#"{"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "activation_function": "mish"}"#,
            "`activation_function` is not one of `silu`, `swish`, `gelu`, `gelu_new`, `gelu_fast`, `relu`",
        ),
    ];
    for (config, message) in cases {
        let ran = fed(&["new", "--from-config", "-"], config);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{config}");
        assert!(ran.err.starts_with(&format!("error[E0890]: {message}\n")), "{config}: {}", ran.err);
        assert!(ran.err.contains("\n  help: "), "{config}: {}", ran.err);
    }
}

#[test]
fn sizes_that_no_chip_holds_are_refused_and_not_computed_with() {
    let config = r#"{"model_type": "llama", "hidden_size": 4294967296, "num_attention_heads": 4294967296,
        "intermediate_size": 4294967296, "num_hidden_layers": 4294967296, "vocab_size": 4294967296, "hidden_act": "silu"}"#;
    let ran = fed(&["new", "--from-config", "-"], config);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("no mesh of `tpu-v5p` divides the heads and holds the model"), "{}", ran.err);
}

#[test]
fn a_mesh_and_a_name_that_do_not_suit_are_said_by_the_program() {
    for arguments in [&["--mesh", "x=4096,y=4"][..], &["--name", "Block"], &["--name", "embed"]] {
        let ran = shardc(&[&["new"], arguments].concat());
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{arguments:?}");
        assert!(ran.err.starts_with("error[E0"), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_file_is_replaced_only_when_told_to() {
    let file = place("kept.shard");
    let path = file.to_str().expect("a plain path");
    std::fs::write(&file, "mine").expect("written");
    let ran = shardc(&["new", "-o", path]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("is there already") && ran.err.contains("help: --force"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), "mine");
    assert_eq!(shardc(&["new", "-o", path, "--force"]).status, 0);
    assert_eq!(std::fs::read_to_string(&file).expect("read"), new(&[]));
}
