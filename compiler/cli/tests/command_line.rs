//! The binary from outside: exit status, streams, options.

use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{command, fed, ran, shardc, text};

/// A layer that calls another one with a value of its own.
const CALLED: &str = "called.shard";

/// An empty folder of a test's own.
fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}

#[test]
fn a_right_program_exits_with_0_and_a_silent_check() {
    let ran = shardc(&["check", "mlp.shard"]);
    assert_eq!((ran.status, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
}

#[test]
fn a_wrong_program_exits_with_1_and_says_so_on_standard_error() {
    for command in ["check", "explain", "lower", "run"] {
        let ran = fed(&[command, "-"], &text("mlp.shard").replace("E_xF_yz", "E_xF_yw"));
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{command}: {ran:?}");
        assert!(ran.err.starts_with("error[E0201]: "), "{}", ran.err);
    }
    assert_eq!(fed(&["fmt", "-"], "layer (").status, 1);
}

#[test]
fn wrong_usage_and_unreadable_files_exit_with_2() {
    let wrong: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["explain"],
        &["explain", "mlp.shard", "--frobnicate"],
        &["explain", "no-such-file.shard"],
        &["explain", "."],
        &["explain", "mlp.shard", "--layer", "nope"],
        &["explain", "mlp.shard", "-D", "B"],
        &["explain", "mlp.shard", "-D", "Q=3"],
        &["explain", "mlp.shard", "-D", "B=x y"],
        &["explain", "mlp.shard", "-D", "B=8,B=16"],
        &["explain", "mlp.shard", "-D", "B=8", "-D", "B=16"],
        &["explain", "mlp.shard", "--why-not", "all-gather:x", "--vary", "Z"],
        &["explain", "mlp.shard", "--mesh", "x="],
        &["explain", "mlp.shard", "--hardware", "nope"],
        &["explain", "mlp.shard", "--hardware", "nope.toml"],
        &["explain", "mlp.shard", "--fuse", "--strict"],
        &["explain", "every_move.shir", "--fuse"],
        &["cost", "mlp.shard", "--why", "99"],
        &["cost", "mlp.shard", "--batch", "Z"],
        &["cost", "mlp.shard", "--format", "csv"],
        &["sweep", "mlp.shard", "-D", "B=1..99999"],
        &["sweep", "mlp.shard", "-D", "Z=1"],
        &["sweep", "every_move.shir"],
        &["explain", "mlp.shard", "--objective", "nope"],
        &["explain", "every_move.shir", "--mesh", "x=2"],
        &["run", "mlp.shard", "--full"],
        &["run", "mlp.shard", "--tolerance", "-1"],
        &["run", "mlp.shard", "--input", "x"],
        &["run", "mlp.shard", "--input", "x=no-such-file.npy"],
        &["hardware", "nope"],
        &["fmt", "no-such-file.shard"],
        &["man", "nope"],
    ];
    for args in wrong {
        let ran = shardc(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(!ran.err.is_empty(), "{args:?}");
    }
}

#[test]
fn a_file_that_is_not_text_exits_with_2() {
    let file = scratch("not-text").join("bytes.shard");
    std::fs::write(&file, [0xff, 0xfe, 0x00]).expect("written");
    let ran = shardc(&["check", file.to_str().expect("UTF-8")]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("it is not UTF-8 text"), "{}", ran.err);
}

#[test]
fn broken_input_never_panics() {
    let source = text("mlp.shard");
    let ir = text("every_move.shir");
    for (whole, command) in [(&source, "explain"), (&source, "fmt"), (&ir, "lower"), (&ir, "run")] {
        for part in 0..24 {
            let cut: String = whole.chars().take(whole.chars().count() * part / 24).collect();
            let ran = fed(&[command, "-"], &cut);
            assert!([0, 1, 2].contains(&ran.status), "{command} of {cut:?}: {ran:?}");
            assert!(!ran.err.contains("panicked"), "{}", ran.err);
        }
    }
}

#[test]
fn a_dash_reads_standard_input() {
    let of_file = shardc(&["explain", "mlp.shard"]);
    let of_stdin = fed(&["explain", "-"], &text("mlp.shard"));
    assert_eq!((of_stdin.status, of_stdin.out), (0, of_file.out));
}

#[test]
fn the_palm_block_is_explained_with_its_figures() {
    let ran = shardc(&["explain", "mlp.shard"]);
    for line in [
        "  strategy   2d-weight-stationary",
        "     + all-gather yz along E: x                         4.72 MB  16.4 us   7.5 %",
        "         BLE_xyz -> BLE_x",
        "  15 |   let h = einsum(x, w_in -> BLF)",
    ] {
        assert!(ran.out.lines().any(|l| l == line), "{line:?} is not in:\n{}", ran.out);
    }
    assert!(ran.out.lines().all(|l| l.trim_end() == l), "no line ends in blanks");
    assert!(ran.out.lines().all(|l| l.chars().count() <= 80), "all lines fit:\n{}", ran.out);
}

#[test]
fn the_command_line_changes_dims_mesh_and_hardware() {
    let ran = shardc(&["lower", "mlp.shard", "-D", "B=64,L=2", "--mesh", "x=2,y=2,z=2"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        ran.out.contains("mesh x=2, y=2, z=2\ndims B=64, L=2, E=18432, F=73728\n"),
        "{}",
        ran.out
    );
    let chip = scratch("chip").join("chip.toml");
    let tpu = shardc(&["hardware", "tpu-v4-flat"]).out;
    std::fs::write(&chip, tpu.replace("tpu-v4-flat", "mine")).expect("written");
    let ran = shardc(&["explain", "mlp.shard", "--hardware", chip.to_str().expect("UTF-8")]);
    assert!(ran.out.contains("  hardware   mine\n"), "{ran:?}");
}

#[test]
fn a_wrong_hardware_file_is_shown_with_its_line() {
    let folder = scratch("wrong-chip");
    let tpu = shardc(&["hardware", "tpu-v4-flat"]).out;
    std::fs::write(folder.join("chip.toml"), tpu.replace("270e9", "-270e9")).expect("written");
    let source = folder.join("mlp.shard");
    std::fs::write(
        &source,
        text("mlp.shard").replace("hardware tpu-v4-flat", "hardware \"chip.toml\""),
    )
    .expect("written");
    let ran = shardc(&["explain", source.to_str().expect("UTF-8")]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("`network.bandwidth` must be a number greater than 0"), "{}", ran.err);
    assert!(ran.err.contains("bandwidth = -270e9"), "{}", ran.err);
}

#[test]
fn everything_wrong_with_a_hardware_file_is_said_with_the_nearest_word() {
    let chip = scratch("wrong-words").join("chip.toml");
    let text = shardc(&["hardware", "tpu-v4"]).out;
    std::fs::write(&chip, text.replace("hbm_bytes", "hbm_bites").replace("\"torus\"", "\"tours\""))
        .expect("written");
    let ran = shardc(&["explain", "mlp.shard", "--hardware", chip.to_str().expect("UTF-8")]);
    assert_eq!(ran.status, 2);
    for said in [
        "unknown key `chip.hbm_bites`",
        "help: hbm_bytes\n",
        "unknown network kind `tours`",
        "help: \"torus\"\n",
    ] {
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
}

#[test]
fn a_mesh_and_a_size_in_the_words_of_others_are_told_as_they_are_written_here() {
    for (words, help) in [
        (["--mesh", "4x4"], "--mesh x=4,y=4"),
        (["--mesh", "x4 y2"], "--mesh x=4,y=2"),
        (["--mesh", "x:4"], "--mesh x=4"),
        (["--mesh", "4, 4, 4, 4, 4"], "--mesh x=8,y=8"),
        (["-D", "B:8"], "-D B=8"),
        (["-D", "B: 48 pad 64"], "-D 'B=48 pad 64'"),
        (["-D", "B:8,E:16"], "-D B=8"),
        (["-D", "B"], "-D B=64"),
    ] {
        let ran = shardc(&["check", "mlp.shard", words[0], words[1]]);
        assert_eq!(ran.status, 2, "{words:?}");
        assert!(ran.err.ends_with(&format!("help: {help}\n")), "{words:?}: {}", ran.err);
    }
}

#[test]
fn a_mesh_that_no_slice_has_is_a_warning_and_a_wrong_fold_an_error() {
    let ran = shardc(&["check", "mlp.shard", "--hardware", "tpu-v5e"]);
    assert_eq!(ran.status, 0);
    assert!(ran.err.contains("warning[W0850]: no slice of tpu-v5e is 4x4x4"), "{}", ran.err);
    assert!(ran.err.contains("help: mesh x=8, y=8, z=1    (the nearest slice"), "{}", ran.err);
    let ran = shardc(&["check", "mlp.shard", "--hardware", "tpu-v5e", "--mesh", "x=32,y=4,z=1"]);
    assert!(ran.err.contains("help: --mesh x=16,y=8,z=1    (the nearest"), "{}", ran.err);
    let chip = scratch("fold").join("chip.toml");
    let text = shardc(&["hardware", "tpu-v4"]).out;
    std::fs::write(&chip, text.replace("[network.axes]", "[network.axes]\nx = { torus = [4, 2] }"))
        .expect("written");
    let ran = shardc(&["check", "mlp.shard", "--hardware", chip.to_str().expect("UTF-8")]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.err.contains("error[E0850]: mesh axis `x` has 4 devices, and 4x2 are not as many"),
        "{}",
        ran.err
    );
}

#[test]
fn without_hardware_explain_asks_for_it_and_check_does_not() {
    let source = text("mlp.shard").replace("hardware tpu-v4-flat\n", "");
    let ran = fed(&["explain", "-"], &source);
    assert_eq!(ran.status, 2);
    assert!(ran.err.starts_with("error[E0705]"), "{}", ran.err);
    assert_eq!(fed(&["check", "-"], &source).status, 0);
}

#[test]
fn a_strict_layer_names_the_reshard_lines_that_it_lacks() {
    let ran = shardc(&["check", "mlp.shard", "--strict"]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("help: let x1 = reshard(x, BLE_x)\n"), "{}", ran.err);
}

#[test]
fn an_annotation_without_axes_that_costs_a_collective_is_a_warning() {
    let source = text("mlp.shard").replace("let a = gelu(h)", "let a: BLF = gelu(h)");
    let ran = fed(&["check", "-"], &source);
    assert_eq!(ran.status, 0);
    assert!(
        ran.err.starts_with("warning[W0801]: `BLF` pins `a` to full replication, which costs "),
        "{}",
        ran.err
    );
    let free = fed(&["check", "-"], &source.replace("BLF = gelu", "BLF? = gelu"));
    assert_eq!(free.err, "");
}

#[test]
fn an_annotation_in_a_layer_that_is_called_twice_is_warned_of_where_one_call_pays() {
    let source = |layout: &str| {
        format!(
            "hardware tpu-v5e\nmesh x=4\ndim B = 64\ndim E = 1024\nlayer half(a: bf16 BE?) -> \
             bf16 BE? {{\n  let h: {layout} = gelu(a)\n  return h * h\n}}\nlayer f(a: bf16 BE, b: \
             bf16 B_xE) -> (y: bf16 BE, z: bf16 B_xE) {{\n  return (half(a), half(b))\n}}\n"
        )
    };
    let [pinned, free] = ["BE", "BE?"].map(|layout| fed(&["check", "-"], &source(layout)));
    assert_eq!(pinned.err.matches("W0801").count(), 1, "{}", pinned.err);
    assert!(free.err.is_empty(), "{}", free.err);
}

#[test]
fn an_annotation_without_axes_is_no_warning_where_its_reader_needs_the_value_whole() {
    let source = |layout: &str| {
        format!(
            "hardware tpu-v5e\nmesh x=4\ndim B = 64\ndim E = 1024\ndim F = 4096\nlayer f(a: bf16 \
             BE, w: weight bf16 EF_x, v: weight bf16 FE_x) -> bf16 BE_x {{\n  let h: {layout} = \
             einsum(a, w -> BF)\n  return einsum(h, v -> BE)\n}}\n"
        )
    };
    let [pinned, free] = ["BF", "BF?"].map(|layout| fed(&["lower", "-"], &source(layout)));
    assert_eq!(pinned.out, free.out, "the same plan");
    assert!(pinned.out.contains("all-gather") && pinned.err.is_empty(), "{}", pinned.err);
}

#[test]
fn scores_inside_of_an_attention_are_not_said_to_be_larger_than_the_memory() {
    let source = "mesh x=4
dim L = 524288
dim S = 524288
dim D = 128
layer attention(q: bf16 L_xD, k: bf16 SD, v: bf16 SD) -> bf16 L_xD {
  let scores = einsum(q, k -> LS)
  let p = softmax(scores over S)
  return einsum(p, v -> LD)
}
";
    // The hardware file of this chip states attention as a kernel, which holds no scores. The
    // default chip has no such kernel, and there the size is a warning and no error.
    assert_eq!(fed(&["check", "-", "--hardware", "tpu-v5e"], source).err, "");
    let steps = fed(&["check", "-"], source).err;
    let said = "warning[W0701]: `scores` alone is larger than the memory of a ";
    assert!(steps.contains(said), "{steps}");
}

#[test]
fn colour_follows_the_option_and_no_colour_the_environment() {
    let plain = |args: &[&str]| !shardc(args).err.contains('\u{1b}');
    let wrong = ["check", "mlp.shard", "--strict"];
    assert!(plain(&wrong), "a pipe is no terminal");
    assert!(plain(&[&wrong[..], &["--color", "never"]].concat()));
    assert!(!plain(&[&wrong[..], &["--color", "always"]].concat()));
    let output = command(&wrong).env("NO_COLOR", "1").output().expect("the binary runs");
    assert!(!ran(output).err.contains('\u{1b}'));
}

#[test]
fn a_file_without_a_layer_has_nothing_to_lower_and_nothing_to_complain_of() {
    for text in ["", "mesh x=4\n", "// nothing\n", "shir 1\n"] {
        for command in ["explain", "lower", "cost", "run"] {
            let ran = fed(&[command, "-"], text);
            assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{command}: {text:?}");
            assert!(
                ran.err.starts_with("error[E0613]: `-` has no layer"),
                "{command}: {}",
                ran.err
            );
        }
    }
    assert_eq!(fed(&["check", "-"], "mesh x=4\n").status, 0);
}

#[test]
fn a_graph_has_a_node_for_each_instruction() {
    let ran = shardc(&["lower", "mlp.shard", "--emit", "dot"]);
    assert!(
        ran.out.starts_with("digraph shardc {") && ran.out.contains("l0_3 -> l0_4;"),
        "{}",
        ran.out
    );
}

#[test]
fn the_plan_is_executed_and_equals_the_unsharded_program() {
    let ran = shardc(&["run", "mlp.shard"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.starts_with("mlp: equal on 64 devices"), "{}", ran.out);
    assert_eq!(shardc(&["run", "every_move.shir"]).status, 0);
}

#[test]
fn results_are_written_and_inputs_read_as_npy() {
    let folder = scratch("npy");
    let at = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    assert_eq!(shardc(&["run", "mlp.shard", "--seed", "3", "--output", &at("a")]).status, 0);
    let bytes = std::fs::read(at("a/y.npy")).expect("written");
    assert!(bytes.starts_with(b"\x93NUMPY"));
    // The result has the shape of the parameter `x`.
    let input = format!("x={}", at("a/y.npy"));
    let ran = shardc(&["run", "mlp.shard", "--input", &input, "--output", &at("b")]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_ne!(std::fs::read(at("b/y.npy")).expect("written"), bytes);
    let ran = shardc(&["run", "mlp.shard", "--input", &format!("nope={}", at("a/y.npy"))]);
    assert_eq!(ran.status, 2, "{ran:?}");
}

/// A `.safetensors` file of one tensor, written by the definition of the format.
fn safetensors(name: &str, dtype: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let end = data.len();
    let header = format!(
        "{{\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[0,{end}]}}}}"
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}

#[test]
fn results_are_written_and_inputs_read_as_safetensors() {
    let folder = scratch("safetensors");
    let at = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    let source = "hardware tpu-v4-flat\nmesh x=2\ndim B = 4\nlayer f(size: f32 B_x, b: f32 B) -> f32 B_x {\n  \
        let y = size + b\n  return y\n}\n";
    std::fs::write(at("f.shard"), source).expect("written");
    let file = at("f.shard");
    let values: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(at("in.safetensors"), safetensors("size", "F32", "[4]", &values))
        .expect("written");
    let with = |inputs: &str, outputs: &str| {
        shardc(&["run", &file, "--full", "--inputs", &at(inputs), "--outputs", outputs])
    };
    let ran = with("in.safetensors", &at("out.safetensors"));
    assert_eq!(ran.status, 0, "{ran:?}");
    let bytes = std::fs::read(at("out.safetensors")).expect("written");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let text = std::str::from_utf8(&bytes[8..8 + header]).expect("a header");
    assert!(text.contains(r#""y":{"dtype":"F64","shape":[4]"#), "{text}");
    // The result has the shape of the parameter `b`.
    let renamed = text.replace("\"y\"", "\"b\"");
    assert_eq!(renamed.len(), text.len());
    let mut again = bytes.clone();
    again[8..8 + header].copy_from_slice(renamed.as_bytes());
    std::fs::write(at("b.safetensors"), again).expect("written");
    assert_eq!(with("b.safetensors", &at("two.safetensors")).status, 0);

    // Each mistake names the tensor, its shape and what was expected.
    let refused = |name: &str, content: &[u8], words: &[&str]| {
        std::fs::write(at(name), content).expect("written");
        let ran = with(name, &at("none.safetensors"));
        assert_eq!(ran.status, 2, "{ran:?}");
        words.iter().for_each(|word| assert!(ran.err.contains(word), "{word}: {}", ran.err));
        assert!(!folder.join("none.safetensors").exists());
    };
    let short = safetensors("size", "F32", "[2]", &values[..8]);
    refused("short.safetensors", &short, &["size", "[2]", "[4]"]);
    let unknown = safetensors("größe", "F32", "[2, 2]", &values);
    refused("unknown.safetensors", &unknown, &["`größe`", "[2, 2]", "`size`"]);
    let odd = safetensors("b", "F8_E5M2", "[4]", &values[..4]);
    refused("odd.safetensors", &odd, &["`b`", "F8_E5M2"]);
    refused("cut.safetensors", &short[..30], &["cut.safetensors"]);
    refused("x.npy", b"\x93NUMPY", &["--input NAME=FILE.npy"]);
    assert_eq!(with("in.safetensors", &at("no/such/folder.safetensors")).status, 2);
    let full = with("in.safetensors", "/dev/full");
    assert_eq!(full.status, 2, "{full:?}");
    assert!(full.err.contains("/dev/full"), "{}", full.err);
}

#[test]
fn fmt_formats_in_place_and_check_only_looks() {
    let file = scratch("fmt").join("mlp.shard");
    let name = file.to_str().expect("UTF-8");
    let untidy = text("mlp.shard").replace("let h =", "let   h=");
    std::fs::write(&file, &untidy).expect("written");
    let ran = shardc(&["fmt", "--check", name]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.out.contains("-  let   h= einsum") && ran.out.contains("+  let h = einsum"),
        "{}",
        ran.out
    );
    assert_eq!(std::fs::read_to_string(&file).expect("there"), untidy);
    assert_eq!(shardc(&["fmt", name]).status, 0);
    assert_eq!(shardc(&["fmt", "--check", name]).status, 0);
    assert_eq!(fed(&["fmt", "-"], &untidy).out, std::fs::read_to_string(&file).expect("there"));
}

#[test]
fn what_does_not_fit_in_memory_is_refused_with_ways_out_that_fit_and_runs_all_the_same() {
    let source = "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 65536\n\
                  layer stack(x: bf16 B_xE, w: weight bf16 EE2_x) -> bf16 B_xE repeat 64 {\n\
                  return rename(einsum(x, w -> [B, E2]), E2 -> E)\n}\n"
        .replace("E = 65536", "E = 65536\ndim E2 = E");
    let refused = fed(&["check", "-"], &source);
    assert_eq!(refused.status, 1, "{}", refused.err);
    assert!(
        refused.err.contains("error[E0704]") && refused.err.contains("`w: weight bf16 EE2_x`"),
        "{}",
        refused.err
    );
    let helps: Vec<&str> =
        refused.err.lines().filter_map(|l| l.trim().strip_prefix("help: ")).collect();
    let mesh = helps.iter().find_map(|h| h.strip_prefix("--mesh ")).expect("a larger mesh");
    let fits = fed(&["check", "--mesh", mesh, "-"], &source);
    assert_eq!(fits.status, 0, "{}", fits.err);
    assert_eq!(fed(&["run", "-"], &source).status, 0);
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = command(&["explain", "mlp.shard"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().expect("the binary ends"));
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
}

#[test]
fn the_other_commands_print_something() {
    assert!(shardc(&["hardware"]).out.starts_with("tpu-v4-flat  "));
    assert!(shardc(&["hardware", "tpu-v4-flat"]).out.contains("name = \"tpu-v4-flat\"\n"));
    assert!(shardc(&["completions", "bash"]).out.contains("shardc"));
    assert!(shardc(&["man"]).out.contains(".TH shardc 1"));
    assert!(shardc(&["man", "explain"]).out.contains(".TH shardc-explain 1"));
    assert_eq!(shardc(&["--help"]).status, 0);
}

#[test]
fn the_same_input_gives_the_same_output() {
    for args in [
        &["explain", "mlp.shard", "--format", "json"][..],
        &["run", "mlp.shard", "--format", "json"],
    ] {
        assert_eq!(shardc(args).out, shardc(args).out);
    }
}

#[test]
fn with_the_objective_comm_nothing_is_sent_that_need_not_be_and_flops_break_the_tie() {
    let layer = |to: &str| {
        format!(
            "hardware tpu-v4-flat\nmesh x=4\ndim B = 4096\ndim D = 8192\ndim F = 8192\n\
             layer f(x: bf16 BD, w: weight bf16 DF) -> bf16 {to} {{\n  let y = einsum(x, w -> \
             BF)\n  return y\n}}\n"
        )
    };
    let totals = |text: &str, objective: &str| {
        let ran = fed(&["cost", "-", "--format", "json", "--objective", objective], text);
        assert_eq!(ran.status, 0, "{}", ran.err);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        let totals = &document["layers"][0]["totals"];
        (totals["comm_bytes"].as_u64().expect("bytes"), totals["flops"].as_u64().expect("flops"))
    };
    let all = 2 * 4096 * 8192 * 8192;
    // It is faster if each device computes a quarter of the product and gathers the rest; nothing
    // is sent if each computes the whole product.
    assert_eq!(totals(&layer("BF"), "serial"), (3 * 4096 * 8192 * 2 / 4, all / 4));
    assert_eq!(totals(&layer("BF"), "comm"), (0, all));
    // Slicing before the product or after it sends nothing either way.
    assert_eq!(totals(&layer("BF_x"), "comm"), (0, all / 4));
}

#[test]
fn check_prints_every_error_before_it_searches_for_warnings() {
    let folder = scratch("errors-first");
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_string();
    let head = "mesh x=2, y=2\ndim B = 64\ndim E = 64\ndim F = 64\n";
    let order = "layer order(a: bf16 B_xyE) -> bf16 B_yxE { return gelu(a) }\n";
    let strict = "strict layer g(a: bf16 BE_x, w: weight bf16 E_xF) -> bf16 BF { return einsum(a, \
        w -> BF) }\n";
    std::fs::write(path("a.shard"), format!("{head}{order}{strict}")).expect("written");
    std::fs::write(path("b.shard"), format!("{head}{strict}")).expect("written");
    std::fs::write(path("c.shard"), "mesh x=0\n").expect("written");
    let ran = shardc(&["check", &path("a.shard"), &path("b.shard"), &path("c.shard")]);
    let codes: Vec<&str> = ran
        .err
        .lines()
        .filter_map(|l| l.split_once('[')?.1.split_once("]: ").map(|(code, _)| code))
        .collect();
    let mut codes: Vec<&str> =
        codes.into_iter().filter(|c| ["E0206", "E0802", "W0802"].contains(c)).collect();
    codes.dedup();
    assert_eq!((ran.status, codes), (1, vec!["E0206", "E0802", "W0802"]), "{}", ran.err);
    // `--quick` reports what needs no search, and names the layers that it did not search.
    let ran = shardc(&["check", "--quick", &path("a.shard"), &path("b.shard")]);
    assert!(ran.status == 0 && ran.out.is_empty(), "{ran:?}");
    assert!(
        ran.err.contains("note: no plan was searched for `order`, `g`\n")
            && ran.err.contains("E0802"),
        "{}",
        ran.err
    );
    let ran = shardc(&["check", "--quick", &path("a.shard"), &path("c.shard")]);
    assert!(
        ran.status == 1 && ran.err.contains("E0206") && ran.err.contains("`order`, `g`"),
        "{ran:?}"
    );
    assert_eq!(shardc(&["check", "--quick", "--expect", "mlp.shard"]).status, 2);
}

#[test]
fn an_axis_order_costs_an_overlapped_plan_what_no_longer_step_hides() {
    let folder = scratch("orders-overlapped");
    let warned = |name: &str, layer: &str, objective: &str| {
        let file = folder.join(name);
        let head = "mesh x=2, y=2\ndim B = 8192\ndim E = 8192\ndim F = 64\ndim G = 8192\n";
        std::fs::write(&file, format!("{head}{layer}")).expect("written");
        let file = file.to_str().expect("UTF-8");
        let ran = shardc(&["check", "--objective", objective, file]);
        assert_eq!(ran.status, 0, "{}", ran.err);
        ran.err.contains("W0802")
    };
    let alone = "layer order(a: bf16 B_xyF) -> bf16 B_yxF { return gelu(a) }\n";
    // The permute runs beside a product of two large matrices.
    let hidden = "layer hidden(a: bf16 B_xyF, c: bf16 B_yxE, w: weight bf16 EG) -> \
                  (r: bf16 B_yxF, s: bf16 B_yxG) { return (gelu(a), einsum(c, w -> BG)) }\n";
    assert!(warned("alone.shard", alone, "serial") && warned("alone.shard", alone, "overlap"));
    assert!(warned("hidden.shard", hidden, "serial"));
    assert!(!warned("hidden.shard", hidden, "overlap"));
}

#[test]
fn the_page_of_a_code_is_in_the_binary() {
    let page = include_str!("../../../spec/diagnostics/E0806.md");
    assert_eq!(shardc(&["explain-code", "E0806"]).out, page);
    assert_eq!(shardc(&["explain-code", "e0806"]).out, page);
    let list = shardc(&["explain-code", "--list"]).out;
    assert_eq!(list.lines().count(), shard_check::diagnostics::ALL.len());
    assert!(list.contains("\nE0806  a plan space larger than the search may look at\n"), "{list}");
    let ran = shardc(&["explain-code", "E0809"]);
    assert!(ran.status == 2 && ran.err.contains("help: shardc explain-code E080"), "{ran:?}");
    let ran = shardc(&["explain-code", "frobnicate"]);
    assert!(ran.status == 2 && ran.err.contains("help: --list"), "{ran:?}");
    let json = fed(&["check", "-", "--format", "json"], "mesh x=0\n").out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["diagnostics"][0]["page"], "spec/diagnostics/E0206.md");
}

#[test]
fn two_stacks_that_divide_by_one_number_are_one_model_and_run() {
    let stack = |name: &str, times: u32| {
        format!(
            "layer {name}(x: f32 BE?l, w: weight f32 EF?) -> f32 BE?l repeat {times} {{\n  \
            return rename(einsum(x / 8.5, w -> BF), F -> E)\n}}\n"
        )
    };
    let source = format!(
        "hardware tpu-v5e\nmesh x=2, y=2\ndim B = 4\ndim E = 8\ndim F = E\n{}{}\
        model two(x: f32 B_xE) -> f32 B_xE {{\n  let y = first(x)\n  return second(y)\n}}\n",
        stack("first", 2),
        stack("second", 3)
    );
    let run = fed(&["run", "-", "--layer", "two"], &source);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.out.contains("equal"), "{}", run.out);
}

#[test]
fn what_is_said_of_a_negative_number_is_what_the_option_takes() {
    for (option, takes) in [
        ("--time-limit=-1", "a time is a number of seconds above 0"),
        ("--memory-limit=-5GB", "a memory limit is a number of bytes"),
        ("--tolerance=-1", "tolerance"),
        ("--seed=-1", "invalid digit"),
    ] {
        let (name, value) = option.split_once('=').expect("a value");
        let ran = shardc(&["run", "mlp.shard", name, value]);
        assert_eq!(ran.status, 2, "{option}: {ran:?}");
        assert!(ran.err.contains(takes), "{option}: {}", ran.err);
        assert!(!ran.err.contains("unexpected argument"), "{option}: {}", ran.err);
    }
}

#[test]
fn a_built_in_chip_in_quotes_is_told_as_what_it_is() {
    let source = "hardware \"tpu-v5e\"\nmesh x=2\ndim B = 4\n\
                  layer f(a: f32 B_x) -> f32 B { return a }\n";
    let ran = fed(&["explain", "-"], source);
    assert!(ran.err.contains("E0702") && ran.err.contains("help: hardware tpu-v5e"), "{ran:?}");
}

#[test]
fn what_roundings_do_to_a_long_stack_is_no_difference() {
    let source = "hardware tpu-v5e\nmesh x=4, y=2\ndim B = 64\ndim E = 1024\ndim F = 4096\n\
                  layer blk(a: bf16 BE?l, w1: weight bf16 EF?, w2: weight bf16 FE?) -> bf16 BE?l \
                  repeat 5 + 3 {\n  return a + einsum(relu(einsum(a, w1 -> BF)), w2 -> BE)\n}\n\
                  layer top(a: bf16 BE?, u: weight bf16 EF?) -> bf16 BF? {\n  \
                  return einsum(rmsnorm(a over E), u -> BF)\n}\n\
                  model m(a: bf16 B_xE, u: weight bf16 EF?) -> (p: bf16 BF?, q: bf16 BE?) {\n  \
                  let h = blk(a)\n  let g = blk(h)\n  return (top(g, u: u), a + g)\n}\n";
    for seed in ["0", "1", "2", "5"] {
        let ran = fed(&["run", "-", "--emulate-dtypes", "--seed", seed], source);
        assert!(ran.status == 0, "{seed}: {ran:?}");
        assert!(ran.out.contains("largest difference of `p`"), "of one result: {ran:?}");
    }
    let ran = fed(&["run", "-", "--emulate-dtypes", "--tolerance", "1e-9"], source);
    assert!(ran.status == 1 && ran.out.contains("DIFFERENT"), "{ran:?}");
}

#[test]
fn a_sweep_of_a_phase_that_there_is_not_says_so() {
    let source = format!("{}phase long {{ B = 64 }}\n", text(CALLED));
    let swept = fed(&["sweep", "-", "--phase", "short"], &source);
    assert_eq!(swept.status, 2, "{swept:?}");
    assert!(swept.err.contains("no phase `short`"), "{swept:?}");
    assert!(swept.err.contains("help: its phases are long"), "{swept:?}");
}

#[test]
fn standard_input_is_compared_with_itself() {
    let same = fed(&["diff", "-", "-", "--exit-code"], &text(CALLED));
    assert_eq!(same.status, 0, "{same:?}");
    let other = fed(&["diff", "-", "--dim-b", "B=16", "--exit-code"], &text(CALLED));
    assert!(other.status == 1 && other.err.is_empty(), "{other:?}");
}

#[test]
fn what_is_wrong_in_phases_names_the_phase_and_each_layer_once() {
    let source = "hardware tpu-v5e\nmesh x=4\ndim B = 8\ndim E = 4096\nphase prefill { B = 64 }\n\
                  phase decode { B = 8 }\n\
                  layer f(a: bf16 BE?, w: weight bf16 EE2?) -> bf16 BE2? \
                  { return einsum(a, w -> BE2) }\ndim E2 = E\n";
    let absent = fed(&["explain", "-", "--layer", "nope"], source);
    assert!(absent.err.contains("help: its layers are f\n"), "{}", absent.err);
    let small = fed(&["explain", "-", "--memory-limit", "1MB"], source);
    let named = |phase| small.err.contains(&format!("no plan of `f` in phase `{phase}`"));
    assert!(named("prefill") || named("decode"), "{}", small.err);
}

#[test]
fn a_dim_that_two_options_set_is_told_with_both_sizes() {
    let ran = shardc(&["check", "mlp.shard", "-D", "B=8", "-D", "B=16"]);
    assert!(ran.err.contains("`-D` sets `B` twice, to 8 and to 16"), "{}", ran.err);
    assert!(ran.err.contains("help: -D 'B=16'"), "{}", ran.err);
}

#[test]
fn a_file_in_place_of_a_chip_is_told_where_files_are_taken() {
    let ran = shardc(&["hardware", "own.toml"]);
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("help: shardc cost FILE --hardware own.toml"), "{}", ran.err);
    let ran = shardc(&["cost", "mlp.shard", "--hardware", "nope"]);
    assert!(ran.err.contains("help: --hardware ./chip.toml"), "{}", ran.err);
}
