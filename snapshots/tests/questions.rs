//! `explain --why`, `--why-not` and `diff`: their text, and whether their answers are true.

use std::process::{Command, Stdio};

use serde_json::Value;
use shard_grammar::SourceFile;
use shard_snapshots::examples;
use shard_snapshots::files::root;

/// The output of `shardc`, run at the root with a text on standard input; and its exit status.
fn ran(arguments: &[&str], input: &str) -> (String, String, i32) {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_shardc-under-test"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the compiler starts");
    // A command that reads a file does not read its input.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the compiler ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code().expect("an exit status"))
}

fn shardc(arguments: &[&str]) -> String {
    let (out, err, status) = ran(arguments, "");
    assert_eq!(status, 0, "{arguments:?}: {err}");
    out
}

fn json(arguments: &[&str], input: &str) -> Value {
    let (out, err, status) = ran(&[arguments, &["--format", "json"]].concat(), input);
    assert_eq!(status, 0, "{arguments:?}: {err}\n{input}");
    serde_json::from_str(&out).expect("JSON")
}

const STATIONARY: &str = "examples/feed_forward/2d_weight_stationary.shard";
/// The PaLM block with the 2D weight-stationary products of ESTI; and free, with attention and
/// feed-forward layer one after the other or side by side (3.4 there).
const PALM: &str = "examples/calibration/palm_540b_2d.shard";
const PALM_SERIAL: &str = "examples/palm/540b_serial.shard";
const PALM_PARALLEL: &str = "examples/palm/540b.shard";
const LLAMA: &str = "examples/llama/llama_3_70b.shard";
const LOOPED: &str = "examples/book/collective_matmul.shard";
const RING: &str = "examples/book/ring_attention.shard";
const GATHERED: &str = "examples/feed_forward/x_weight_gathered.shard";

#[test]
fn questions_are_answered_as_their_snapshots_have_it() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/questions"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (name, arguments) in [
            ("collective-matmul-fuse", vec!["explain", LOOPED, "--fuse"]),
            ("collective-matmul-fuse-lower", vec!["lower", LOOPED, "--fuse"]),
            ("collective-matmul-fuse-cost", vec!["cost", LOOPED, "--fuse"]),
            ("collective-matmul-fuse-cost-why", vec!["cost", LOOPED, "--fuse", "--why", "3"]),
            ("collective-matmul-fuse-why", vec!["explain", LOOPED, "--fuse", "--why", "y"]),
            ("ring-attention-fuse", vec!["explain", RING, "--fuse"]),
            ("ring-attention-fuse-lower", vec!["lower", RING, "--fuse"]),
            ("ring-attention-fuse-cost-why", vec!["cost", RING, "--fuse", "--why", "17"]),
            ("stationary-fuse", vec!["explain", STATIONARY, "--fuse"]),
            ("stationary-why-x", vec!["explain", STATIONARY, "--why", "x"]),
            ("stationary-why-h", vec!["explain", STATIONARY, "--why", "h"]),
            ("stationary-why-y-narrow", vec!["explain", STATIONARY, "--why", "y", "--width", "60"]),
            ("stationary-why-not-layout", vec!["explain", STATIONARY, "--why-not", "h: BLF_xyz"]),
            (
                "stationary-why-not-all-gather",
                vec!["explain", STATIONARY, "--why-not", "all-gather:w_in"],
            ),
            (
                "stationary-why-not-x-weight-gathered",
                vec!["explain", STATIONARY, "--why-not", "x-weight-gathered", "-D", "L=2048,B=8"],
            ),
            (
                "stationary-why-not-1d",
                vec!["explain", STATIONARY, "--why-not", "1d-weight-stationary"],
            ),
            ("gathered-why-w_in", vec!["explain", GATHERED, "--why", "w_in"]),
            ("gathered-why-not-2d", vec!["explain", GATHERED, "--why-not", "2d-weight-stationary"]),
            (
                "gathered-why-not-layout",
                vec!["explain", GATHERED, "--why-not", "h: BLF_yz(partialsum-x)"],
            ),
            ("diff-stationary-gathered", vec!["diff", STATIONARY, GATHERED]),
            ("diff-meshes", vec!["diff", STATIONARY, "--mesh-b", "x=2,y=4,z=8"]),
            (
                "diff-batches-narrow",
                vec![
                    "diff",
                    "examples/feed_forward/by_batch.shard",
                    "--dim-a",
                    "B=8",
                    "--dim-b",
                    "B=64",
                    "--width",
                    "60",
                ],
            ),
            ("explain-stationary-narrow", vec!["explain", STATIONARY, "--width", "60"]),
            ("explain-stationary-narrowest", vec!["explain", STATIONARY, "--width", "40"]),
            ("palm-explain", vec!["explain", PALM]),
            ("palm-why-h", vec!["explain", PALM, "--why", "h"]),
            ("palm-why-gate", vec!["explain", PALM, "--why", "gate"]),
            ("palm-why-not-1d", vec!["explain", PALM, "--why-not", "1d-weight-stationary"]),
            (
                "palm-why-not-all-gather-w_gate",
                vec!["explain", PALM, "--why-not", "all-gather:w_gate"],
            ),
            (
                "palm-why-not-x-weight-gathered",
                vec!["explain", PALM, "--why-not", "x-weight-gathered"],
            ),
            (
                "diff-palm-serial-parallel",
                vec!["diff", PALM_SERIAL, PALM_PARALLEL, "--phase-b", "decode"],
            ),
            ("llama-explain", vec!["explain", LLAMA]),
            ("llama-why-q", vec!["explain", LLAMA, "--why", "q"]),
            ("llama-why-n", vec!["explain", LLAMA, "--why", "n"]),
            ("llama-why-not-layout", vec!["explain", LLAMA, "--why-not", "f: B_zLF_y"]),
            (
                "llama-why-not-sequence-sharded",
                vec!["explain", LLAMA, "--why-not", "sequence-sharded-attention"],
            ),
            ("diff-llama-meshes", vec!["diff", LLAMA, "--mesh-b", "y=4,z=8"]),
        ] {
            insta::assert_snapshot!(name, shardc(&arguments));
        }
    });
}

/// The time of the only layer of a text.
fn time(source: &str) -> f64 {
    json(&["explain", "--no-alternatives", "-"], source)["layers"][0]["totals"]["serial_time_s"]
        .as_f64()
        .expect("a time")
}

#[test]
fn the_answer_to_why_not_is_what_the_annotation_gives_when_it_is_written_by_hand() {
    for (file, ask, line, written) in [
        (STATIONARY, "h: BLF_xyz", "let h = ", "let h: BLF_xyz = "),
        (STATIONARY, "h: BLF", "let h = ", "let h: BLF = "),
        (STATIONARY, "y: BLE(partialsum-xyz)", "let y = ", "let y: BLE(partialsum-xyz) = "),
        (STATIONARY, "a: BLF_yz", "let a = ", "let a: BLF_yz = "),
        (GATHERED, "h: BLF_yz(partialsum-x)", "let h = ", "let h: BLF_yz(partialsum-x) = "),
        (
            GATHERED,
            "w_in: EF",
            "let h = einsum(x, w_in",
            "let w_in1 = reshard(w_in, EF)\n  let h = einsum(x, w_in1",
        ),
    ] {
        let answer = json(&["explain", file, "--why-not", ask], "");
        let source = std::fs::read_to_string(root().join(file)).expect("an example");
        assert!(source.contains(line), "{file}: {line}");
        let by_hand = time(&source.replacen(line, written, 1));
        let said = answer["answers"][0]["other"]["serial_time_s"].as_f64();
        assert_eq!(said, Some(by_hand), "{file}: {ask}\n{answer}");
    }
}

/// Each use of an axis that splits only one of the operands: experts gathered, or replicated
/// tokens.
const EXPERTS: &str = "hardware tpu-v4-flat\nmesh x=4\ndim X = 4\ndim C = 8192\ndim E = 256\ndim \
    F = 256\n\
    layer f(a: bf16 XC_xE, w: weight bf16 X_xEF) -> bf16 XC_xF {\n  let h = einsum(a, w -> \
    XCF)\n  return h\n}\n";
const TOKENS: &str = "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 4096\ndim F = 4096\n\
    layer f(a: bf16 BE_x, w: weight bf16 EF) -> bf16 BF_x {\n  let h = einsum(a, w -> BF)\n  \
    return h\n}\n";

/// A source with the lines of an answer written into it: a strict layer replaces the layer, a `let`
/// with a layout replaces the one without, and a `reshard` is put in front of all, and everything
/// behind reads it.
fn with_lines(source: &str, stated: &[&str]) -> String {
    let file = SourceFile::new("", source);
    if stated.first().is_some_and(|line| line.starts_with("strict layer ")) {
        let tree = shard_grammar::parse(&file).file;
        let name = stated[0]["strict layer ".len()..].split('(').next().unwrap_or_default();
        let layer = tree.layers().find(|l| l.name.value == name).expect("the layer");
        return format!(
            "{}{}{}",
            &source[..layer.span.start],
            stated.join("\n"),
            &source[layer.span.end..]
        );
    }
    let mut text = source.to_string();
    for line in stated {
        let line = line.split("  // ").next().unwrap_or_default();
        let name = line["let ".len()..].split([':', ' ']).next().unwrap_or_default();
        if line.contains("reshard(") && !source.contains(line) {
            let read =
                line.split("reshard(").nth(1).and_then(|r| r.split(',').next()).unwrap_or_default();
            let (head, body) = text.split_once(" {\n").expect("a body");
            let body = body.replace(&format!("({read}, "), &format!("({name}, "));
            let body = body.replace(&format!(", {read} ->"), &format!(", {name} ->"));
            text = format!("{head} {{\n  {line}\n{body}");
        } else {
            let old = text
                .lines()
                .find(|l| l.trim_start().starts_with(&format!("let {name} = ")))
                .expect("a let");
            text = text.replacen(old, &format!("  {line}"), 1);
        }
    }
    text
}

#[test]
#[ignore = "slow: a search for each answer"]
fn what_why_not_says_to_write_gives_the_time_that_it_says() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("an example");
    let attention = read("examples/attention/batch_sharded_multiquery.shard");
    let (stationary, gathered) = (read(STATIONARY), read(GATHERED));
    for (source, ask, strategy) in [
        (&stationary, "x-weight-gathered", true),
        (&stationary, "1d-weight-stationary", true),
        (&stationary, "all-gather:w_in", false),
        (&stationary, "all-to-all:h", false),
        (&stationary, "collective-permute:h", false),
        (&stationary, "collective-permute:x", false),
        (&gathered, "2d-weight-stationary", true),
        (&attention, "head-sharded-attention", true),
        (&attention, "sequence-sharded-attention", true),
        (&EXPERTS.to_string(), "expert-parallel", true),
        (&TOKENS.to_string(), "data-parallel", true),
    ] {
        let answer = json(&["explain", "-", "--why-not", ask], source);
        let answer = &answer["answers"][0];
        assert_eq!(answer["is_chosen"], false, "{ask}: {answer}");
        let said = answer["other"]["serial_time_s"].as_f64().expect("a time");
        let stated: Vec<&str> =
            answer["stated"].as_array().expect("lines").iter().filter_map(Value::as_str).collect();
        assert!(!stated.is_empty(), "{ask}: {answer}");
        let written = with_lines(source, &stated);
        let report = json(&["explain", "--no-alternatives", "-"], &written);
        let layer = &report["layers"][0];
        assert_eq!(layer["totals"]["serial_time_s"].as_f64(), Some(said), "{ask}:\n{written}");
        let has = if strategy {
            layer["strategy"].as_array().expect("names").iter().any(|s| s == ask)
        } else {
            let (op, name) = ask.split_once(':').expect("a value");
            let instructions = layer["instructions"].as_array().expect("instructions");
            // In a strict layer the value has its name where it is made, and its moves are numbered
            // from there.
            let mut moves = instructions.iter().filter(|i| i["op"] == op);
            moves.any(|i| {
                i["name"].as_str().is_some_and(|n| n.trim_end_matches(char::is_numeric) == name)
            })
        };
        assert!(has, "{ask}: {written}\n{report}");
    }
}

#[test]
#[ignore = "slow: a search for each answer"]
fn at_the_bandwidth_where_it_is_said_to_win_it_is_the_chosen_plan_or_ties_with_it() {
    // tpu-v4-flat with another bandwidth.
    let at = |rate: f64| {
        let chip = format!(
            "name = \"c\"\n[chip]\nflops = {{ bf16 = 275e12 }}\nhbm_bytes = \
                34359738368\nhbm_bandwidth = 1.2e12\n\
             [network]\nkind = \"flat\"\nbandwidth = {rate:?}\nlatency = 0.0\n"
        );
        let file = std::env::temp_dir().join(format!("shardc-at-{rate}.toml"));
        std::fs::write(&file, chip).expect("written");
        let file = file.to_str().expect("a name").to_string();
        json(&["explain", "-", "--why-not", "data-parallel", "--hardware", &file], TOKENS)
    };
    let rate = 270e9;
    let answer = at(rate);
    let turn = &answer["answers"][0]["bandwidth"]["down"];
    assert_eq!(turn["result"], "wins", "{answer}");
    for (factor, wins) in [(&turn["at"], true), (&turn["loses_at"], false)] {
        let there = at(rate * factor.as_f64().expect("a factor"));
        let added = there["answers"][0]["added_s"].as_f64().expect("a time");
        assert_eq!(added == 0.0, wins, "{factor}: {there}");
    }
}

#[test]
#[ignore = "slow: a search for each answer"]
fn at_the_size_where_it_is_said_to_win_it_is_the_chosen_plan_or_ties_with_it() {
    let answer = json(&["explain", STATIONARY, "--why-not", "all-gather:w_in"], "");
    let up = &answer["answers"][0]["crossings"][0]["up"];
    assert_eq!(up["result"], "wins", "{answer}");
    for (size, wins) in [(&up["at"], true), (&up["loses_at"], false)] {
        let there = json(
            &["explain", STATIONARY, "--why-not", "all-gather:w_in", "-D", &format!("B={size}")],
            "",
        );
        let added = there["answers"][0]["added_s"].as_f64().expect("a time");
        assert_eq!(added == 0.0, wins, "B={size}: {there}");
    }
}

#[test]
fn a_strategy_that_was_asked_for_is_the_strategy_of_the_answer() {
    for strategy in
        ["x-weight-gathered", "xy-weight-gathered", "xyz-weight-gathered", "1d-weight-stationary"]
    {
        let file = "examples/feed_forward/by_batch.shard";
        let answer = json(&["explain", file, "--why-not", strategy, "-D", "B=64"], "");
        let other =
            answer["answers"][0]["other"]["strategy"].as_array().expect("strategies").clone();
        assert!(other.contains(&Value::from(strategy)), "{strategy}: {answer}");
    }
}

/// A gated layer with all weights open. A plan has the name of a strategy because of most bytes of
/// its weights, or because of one weight.
const GATED: &str = "hardware tpu-v5e
mesh g=4, n=2
dim T = 8192
dim E = 2048
dim F = 8192
layer f(x: bf16 TE?l, wg: weight bf16 EF?, wu: weight bf16 EF?, wd: weight bf16 FE?) -> bf16 TE?l {
  let h = rmsnorm(x over E)
  let f = silu(einsum(h, wg -> TF)) * einsum(h, wu -> TF)
  return x + einsum(f, wd -> TE)
}
";

#[test]
fn no_plan_with_one_weight_pinned_that_bears_a_name_beats_the_answer_for_the_name() {
    let mut pinned: Vec<(f64, Value, String)> = Vec::new();
    for weight in ["wg: weight bf16 EF", "wu: weight bf16 EF", "wd: weight bf16 FE"] {
        for layout in ["", "_g", "_n", "_gn"] {
            for written in [format!("{weight}{layout}"), {
                let (kept, last) = weight.split_at(weight.len() - 1);
                format!("{kept}{layout}{last}")
            }] {
                let source = GATED.replace(&format!("{weight}?"), &written);
                let layer =
                    json(&["explain", "-", "--no-alternatives"], &source)["layers"][0].take();
                let time = layer["totals"]["serial_time_s"].as_f64().expect("a time");
                pinned.push((time, layer["strategy"].clone(), written));
            }
        }
    }
    for name in ["1d-weight-stationary", "2d-weight-stationary", "x-weight-gathered", "fsdp"] {
        let answer = json(&["explain", "-", "--no-alternatives", "--why-not", name], GATED);
        let time = answer["answers"][0]["other"]["serial_time_s"].as_f64().expect("a time");
        for (other, names, written) in &pinned {
            let bears_it = names.as_array().expect("names").iter().any(|n| n == name);
            assert!(!bears_it || *other >= time * 0.999_999, "{name}: {written} {other} {time}");
        }
    }
}

#[test]
fn what_is_said_to_do_away_with_a_collective_does() {
    let answer = json(&["explain", STATIONARY, "--why", "x"], "");
    let removals = answer["answers"][0]["removals"].as_array().expect("removals");
    assert!(!removals.is_empty(), "{answer}");
    let source = std::fs::read_to_string(root().join(STATIONARY)).expect("an example");
    let stored = source.replace("x:     bf16 BLE_xyz", "x:     bf16 BLE_x");
    assert_eq!(removals[0]["write"], "x: bf16 BLE_x");
    assert_eq!(removals[0]["time_s"].as_f64(), Some(time(&stored)));
    let plan = json(&["lower", "-"], &stored);
    let gathers = plan["layers"][0]["instructions"].as_array().expect("instructions");
    assert!(!gathers.iter().any(|i| i["op"] == "all-gather" && i["name"] == "x"), "{plan}");
}

#[test]
fn what_is_said_to_do_away_with_a_collective_of_a_repeated_layer_is_said_of_all_that_is_alike() {
    let source = "hardware tpu-v5e\nmesh x=4\ndim B = 512\ndim E = 1024\ndim F = 4096
layer f(x: bf16 BE?s, w1: weight bf16 EF_x, w2: weight bf16 F_xE) -> bf16 BE?s repeat 4 {
  return x + einsum(relu(einsum(x, w1 -> BF)), w2 -> BE)\n}\n";
    let answer = json(&["explain", "-", "--why", "x"], source);
    let removal = &answer["answers"][0]["removals"][0];
    assert_eq!(removal["write"], "x: bf16 BE, and -> bf16 BE    (the result `result`)");
    let written = source.replace("BE?s", "BE");
    assert_eq!(removal["time_s"].as_f64(), Some(time(&written)));
}

#[test]
fn a_derivation_ends_with_the_time_of_the_plan() {
    for value in ["h", "a", "y"] {
        let answers = json(&["explain", STATIONARY, "--why", value], "");
        for answer in answers["answers"].as_array().expect("answers") {
            let steps = answer["derivation"].as_array().expect("steps");
            let source = std::fs::read_to_string(root().join(STATIONARY)).expect("an example");
            assert!(steps.len() > 1, "{value}: {answer}");
            assert_eq!(
                steps.last().and_then(|s| s["best_time_s"].as_f64()),
                Some(time(&source)),
                "{value}: {answer}"
            );
        }
    }
}

/// Whether a text has a word: a dim `E` is not in `EF`.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word)
}

/// The axes that a reason names: runs of axes as layouts write them, `xy` or `{data,model}`.
fn names_axis(reason: &str, axis: &str, all: &[String]) -> bool {
    let is_run = |word: &str| {
        let mut rest = word;
        while !rest.is_empty() {
            let Some(axis) = all.iter().find(|a| rest.starts_with(a.as_str())) else {
                return false;
            };
            rest = &rest[axis.len()..];
        }
        true
    };
    let words = reason.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|w| !w.is_empty()).any(|w| w == axis || (is_run(w) && w.contains(axis)))
}

#[test]
fn every_collective_of_every_example_has_a_reason_with_its_dims_every_axis_the_value_and_what_forces_it()
 {
    let mut seen = 0;
    for example in examples() {
        let report = json(&["explain", "--no-alternatives", &example.path], "");
        for layer in report["layers"].as_array().expect("layers") {
            let axes = layer["mesh_axes"].as_array().expect("axes");
            let axes: Vec<String> =
                axes.iter().map(|a| a[0].as_str().expect("a name").to_string()).collect();
            let instructions = layer["instructions"].as_array().expect("instructions");
            let dims = |layout: &str| -> Vec<String> {
                let word = layout.split('(').next().unwrap_or_default();
                let names = word.split(|c: char| !c.is_alphanumeric());
                if word.starts_with('[') {
                    names
                        .filter(|n| n.starts_with(|c: char| c.is_ascii_uppercase()))
                        .map(str::to_string)
                        .collect()
                } else {
                    word.chars().filter(char::is_ascii_uppercase).map(|c| c.to_string()).collect()
                }
            };
            for c in instructions.iter().filter(|i| i["axes"].is_array()) {
                seen += 1;
                let path = &example.path;
                let reason =
                    c["reason"].as_str().unwrap_or_else(|| panic!("{path}: {c} has no reason"));
                // The dims along which the move goes; for a move without a dim of its own, a dim of
                // the moved value or one that was summed over.
                let own: Vec<&str> =
                    ["dim", "from_dim", "to_dim"].iter().filter_map(|k| c[*k].as_str()).collect();
                for dim in &own {
                    assert!(has_word(reason, dim), "{path}: {dim} is not in {reason:?}");
                }
                let behind = c["operands"][0].as_u64().expect("an operand") as usize;
                let mut at = behind;
                while instructions[at]["axes"].is_array() {
                    at = instructions[at]["operands"][0].as_u64().expect("an operand") as usize;
                }
                let reads = instructions[at]["operands"].as_array().expect("operands");
                let layouts = reads.iter().filter_map(|o| o.as_u64()).chain([behind as u64]);
                let mut near: Vec<String> = layouts
                    .flat_map(|o| {
                        dims(instructions[o as usize]["layout"].as_str().expect("a layout"))
                    })
                    .collect();
                near.extend(dims(c["to_layout"].as_str().unwrap_or_default()));
                let is_named = |d: &String| {
                    has_word(reason, d)
                        || c["to_layout"].as_str().is_some_and(|l| reason.contains(l))
                };
                // For a sum of sums, the reason names the dims of the first sum.
                let of_sums = reason.starts_with("contraction over ") || reason.starts_with("the ");
                assert!(
                    !own.is_empty() || near.iter().any(is_named) || of_sums,
                    "{path}: no dim in {reason:?}"
                );
                for axis in c["axes"].as_array().expect("axes") {
                    let axis = axis.as_str().expect("an axis");
                    assert!(names_axis(reason, axis, &axes), "{path}: {axis} is not in {reason:?}");
                }
                match c["name"].as_str() {
                    Some(name) => assert!(
                        reason.contains(&format!("`{name}`")),
                        "{path}: {name} is not in {reason:?}"
                    ),
                    None => assert!(reason.contains('`'), "{path}: no value in {reason:?}"),
                }
                let by = &c["forced_by"];
                assert!(by["line"].as_u64().is_some_and(|line| line > 0), "{path}: {c}");
                let splits = |axis: &Value| {
                    let layout = by["layout"].as_str().unwrap_or_default();
                    names_axis(
                        &layout.replace(|c: char| c == '_' || c.is_ascii_uppercase(), " "),
                        axis.as_str().unwrap_or_default(),
                        &axes,
                    )
                };
                let is_itself = [&c["id"], &Value::from(at)].contains(&&by["id"]);
                let is_split = c["axes"].as_array().expect("axes").iter().any(splits);
                assert!(is_itself || is_split, "{path}: {by} does not force {reason:?}");
                assert!(c["rule"].is_string() && c["span"]["line"].is_u64(), "{path}: {c}");
            }
        }
    }
    assert!(seen > 300, "{seen}");
}

/// The first collective of a kind in a text of one layer: its reason, and what forces it with its
/// layout.
fn first_reason(text: &str, op: &str) -> (String, String, String) {
    let report = json(&["explain", "--no-alternatives", "-"], text);
    let all = report["layers"][0]["instructions"].as_array().expect("instructions").clone();
    let found = all.iter().find(|i| i["op"] == op);
    let found = found.unwrap_or_else(|| panic!("no {op} in {all:#?}"));
    let word = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let by = &found["forced_by"];
    (word(&found["reason"]), word(&by["name"]), word(&by["layout"]))
}

#[test]
fn another_dim_in_the_source_gives_another_reason() {
    let head =
        "hardware tpu-v4-flat\nmesh x=4, y=2\ndim B = 64\ndim E = 4096\ndim F = 4096\ndim G = 64\n";
    // The axis on another dim of one type, and how each of the two changes the reason.
    for (op, layer, swapped, before, after) in [
        (
            "all-gather",
            "layer f(a: bf16 BE_x, w: weight bf16 EF_x) -> bf16 BF_x {\n  return einsum(a, w -> \
                BF)\n}\n",
            ("a: bf16 BE_x", "a: bf16 B_xE"),
            ("x splits E of `a`", "w", "EF_x"),
            ("x splits B of `a`", "w", "EF_x"),
        ),
        (
            "reduce-scatter",
            "layer f(a: bf16 BGE_x, w: weight bf16 E_xF) -> bf16 B_xGF {\n  return einsum(a, w -> \
                BGF)\n}\n",
            ("-> bf16 B_xGF", "-> bf16 BG_xF"),
            ("keeps its block of B; the result `result` is declared B_xGF", "w", "E_xF"),
            ("keeps its block of G; the result `result` is declared BG_xF", "w", "E_xF"),
        ),
        (
            "all-reduce",
            "layer f(a: bf16 BE_xG, w: weight bf16 E_xGF) -> bf16 BF {\n  return einsum(a, w -> \
                BF)\n}\n",
            ("(a: bf16 BE_xG, w: weight bf16 E_xGF)", "(a: bf16 BEG_x, w: weight bf16 EG_xF)"),
            ("contraction over E, which x", "w", "E_xGF"),
            ("contraction over G, which x", "w", "EG_xF"),
        ),
        (
            "all-to-all",
            "layer f(a: bf16 B_xGE) -> bf16 BG_xE {\n  let r = relu(a)\n  return r\n}\n",
            ("-> bf16 BG_xE", "-> bf16 BGE_x"),
            ("splits B of `", "a", "B_xGE"),
            ("is wanted on E", "a", "B_xGE"),
        ),
        (
            "collective-permute",
            "layer f(a: bf16 B_xyE) -> bf16 B_yxE {\n  return relu(a)\n}\n",
            ("(a: bf16 B_xyE) -> bf16 B_yxE", "(a: bf16 BE_xy) -> bf16 BE_yx"),
            ("lie as B_xyE and are wanted as B_yxE", "", "B_yxE"),
            ("lie as BE_xy and are wanted as BE_yx", "", "BE_yx"),
        ),
    ] {
        assert!(layer.contains(swapped.0), "{layer}");
        for (text, (words, by, layout)) in
            [(layer.to_string(), before), (layer.replacen(swapped.0, swapped.1, 1), after)]
        {
            let (reason, forced, as_layout) = first_reason(&format!("{head}{text}"), op);
            assert!(reason.contains(words), "{op}: {reason:?}\n{text}");
            assert_eq!(
                (forced.as_str(), as_layout.as_str()),
                (by, layout),
                "{op}: {reason:?}\n{text}"
            );
        }
        assert_ne!(before.0, after.0);
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_the_reason() {
    for (ask, code, words, help) in [
        ("h: BL_xF", "E0822", "L = 1 does not divide over x (4 devices)", "-D 'L=1 pad 4'"),
        ("h: BLF_xx", "E0822", "mesh axis x is named twice on F", ""),
        ("h: B_xLF_x", "E0822", "mesh axis x is used twice, on B and on F", ""),
        ("hh: BLF_x", "E0821", "`mlp` has no value `hh`", "help: h\n"),
        ("h: BLG", "E0823", "`h` has the dims BLF, each once", "'h: BLF'"),
        ("h: BLF_q", "E0823", "there is no mesh axis `q`", "the axes are x, y, z"),
        ("all-gathr", "E0823", "no question that can be answered", "help: all-gather"),
    ] {
        let (out, err, status) = ran(&["explain", STATIONARY, "--why-not", ask], "");
        assert_eq!((out.as_str(), status), ("", 2), "{ask}: {err}");
        assert!(err.contains(code) && err.contains(words) && err.contains(help), "{ask}: {err}");
    }
    let (_, err, status) = ran(&["explain", STATIONARY, "--why", "hx"], "");
    assert_eq!(status, 2);
    assert!(err.contains("E0821") && err.contains("help: h\n"), "{err}");
}

#[test]
fn diff_ends_with_1_on_a_difference_only_where_asked_and_reads_snapshots() {
    let snapshot = "snapshots/lowered/feed_forward-2d_weight_stationary.snap";
    for (arguments, status, words) in [
        (vec!["diff", STATIONARY, STATIONARY, "--exit-code"], 0, "no difference"),
        (vec!["diff", STATIONARY, snapshot, "--exit-code"], 0, "no difference"),
        (vec!["diff", STATIONARY, GATHERED], 0, "collectives"),
        (vec!["diff", STATIONARY, GATHERED, "--exit-code"], 1, "all-gather x along E: w_in"),
        (vec!["diff", STATIONARY, "--mesh-b", "x=2,y=2,z=4", "--exit-code"], 1, "mesh"),
    ] {
        let (out, err, ended) = ran(&arguments, "");
        assert_eq!(ended, status, "{arguments:?}: {err}");
        assert!(out.contains(words), "{arguments:?}: {out}");
    }
}

#[test]
fn the_explicit_form_of_a_file_does_not_differ_from_it() {
    let source = std::fs::read_to_string(root().join(STATIONARY)).expect("an example");
    let (written, err, status) = ran(&["fmt", "--explicit", "-"], &source);
    assert_eq!(status, 0, "{err}");
    let (out, err, status) = ran(&["diff", STATIONARY, "-", "--exit-code"], &written);
    assert_eq!(status, 0, "{err}{out}");
}

#[test]
fn pages_keep_to_their_width_where_names_allow() {
    for width in [40, 60, 80] {
        for arguments in [
            vec!["explain", STATIONARY],
            vec!["explain", STATIONARY, "--why", "x"],
            vec!["explain", STATIONARY, "--why-not", "h: BLF_xyz"],
            vec!["explain", STATIONARY, "--why-not", "1d-weight-stationary"],
            vec!["explain", PALM],
            vec!["explain", LLAMA],
            vec!["diff", STATIONARY, GATHERED],
            vec!["diff", PALM, PALM_SERIAL],
        ] {
            let out = shardc(&[arguments.as_slice(), &["--width", &width.to_string()]].concat());
            assert!(!out.contains('\u{1b}'), "no colour in a pipe");
            // The lines of the source, and lines to write into it, are not wrapped; a name is not
            // broken.
            let is_source = |l: &str| {
                l.contains(" | ") || l.contains('│') || l.contains('╭') || l.starts_with("    let ")
            };
            for line in out.lines().filter(|l| !is_source(l)) {
                let fits = line.chars().count() <= width || line.split_whitespace().count() == 1;
                assert!(fits && line.trim_end() == line, "{arguments:?}: {line:?}");
            }
        }
    }
}

#[test]
fn the_derivation_of_keys_that_are_joined_ends_with_the_plan_as_it_is() {
    let file = "examples/attention/shared_prefix.shard";
    let answer = shardc(&["explain", file, "--layer", "decode", "--why", "latent"]);
    let last = answer.lines().find(|line| line.trim_start().starts_with("y on S"));
    let last = last.unwrap_or_else(|| panic!("no step on S\n{answer}"));
    assert!(last.contains("71.7 us"), "{answer}");
    assert!(answer.contains("this plan takes exactly"), "{answer}");
}
