//! `explain --why`, `--why-not` and `diff`, as a person reads them, and whether what they say holds.

#![allow(missing_docs)]

use std::process::{Command, Stdio};

use serde_json::Value;
use shard_snapshots::examples;
use shard_snapshots::files::root;

/// What `shardc` prints, from the root, with a text on standard input; and how it ended.
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
const GATHERED: &str = "examples/feed_forward/x_weight_gathered.shard";

#[test]
fn questions_are_answered_as_their_snapshots_have_it() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots/questions"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (name, arguments) in [
            ("stationary-why-x", vec!["explain", STATIONARY, "--why", "x"]),
            ("stationary-why-h", vec!["explain", STATIONARY, "--why", "h"]),
            ("stationary-why-y-narrow", vec!["explain", STATIONARY, "--why", "y", "--width", "60"]),
            ("stationary-why-not-layout", vec!["explain", STATIONARY, "--why-not", "h: BLF_xyz"]),
            ("stationary-why-not-all-gather", vec!["explain", STATIONARY, "--why-not", "all-gather:w_in"]),
            (
                "stationary-why-not-x-weight-gathered",
                vec!["explain", STATIONARY, "--why-not", "x-weight-gathered", "-D", "L=2048,B=8"],
            ),
            ("stationary-why-not-1d", vec!["explain", STATIONARY, "--why-not", "1d-weight-stationary"]),
            ("gathered-why-w_in", vec!["explain", GATHERED, "--why", "w_in"]),
            ("gathered-why-not-2d", vec!["explain", GATHERED, "--why-not", "2d-weight-stationary"]),
            ("gathered-why-not-layout", vec!["explain", GATHERED, "--why-not", "h: BLF_yz(partialsum-x)"]),
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
        (GATHERED, "w_in: EF", "let h = einsum(x, w_in", "let w_in1 = reshard(w_in, EF)\n  let h = einsum(x, w_in1"),
    ] {
        let answer = json(&["explain", file, "--why-not", ask], "");
        let source = std::fs::read_to_string(root().join(file)).expect("an example");
        assert!(source.contains(line), "{file}: {line}");
        let by_hand = time(&source.replacen(line, written, 1));
        let said = answer["answers"][0]["other"]["serial_time_s"].as_f64();
        assert_eq!(said, Some(by_hand), "{file}: {ask}\n{answer}");
    }
}

#[test]
fn at_the_size_where_it_is_said_to_win_it_is_the_chosen_plan_or_ties_with_it() {
    let answer = json(&["explain", STATIONARY, "--why-not", "all-gather:w_in"], "");
    let up = &answer["answers"][0]["crossings"][0]["up"];
    assert_eq!(up["result"], "wins", "{answer}");
    for (size, wins) in [(&up["at"], true), (&up["loses_at"], false)] {
        let there = json(&["explain", STATIONARY, "--why-not", "all-gather:w_in", "-D", &format!("B={size}")], "");
        let added = there["answers"][0]["added_s"].as_f64().expect("a time");
        assert_eq!(added == 0.0, wins, "B={size}: {there}");
    }
}

#[test]
fn a_strategy_that_was_asked_for_is_the_strategy_of_the_answer() {
    for strategy in ["x-weight-gathered", "xy-weight-gathered", "xyz-weight-gathered", "1d-weight-stationary"] {
        let file = "examples/feed_forward/by_batch.shard";
        let answer = json(&["explain", file, "--why-not", strategy, "-D", "B=64"], "");
        let other = answer["answers"][0]["other"]["strategy"].as_array().expect("strategies").clone();
        assert!(other.contains(&Value::from(strategy)), "{strategy}: {answer}");
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
fn a_derivation_ends_with_the_time_of_the_plan() {
    for value in ["h", "a", "y"] {
        let answers = json(&["explain", STATIONARY, "--why", value], "");
        for answer in answers["answers"].as_array().expect("answers") {
            let steps = answer["derivation"].as_array().expect("steps");
            let source = std::fs::read_to_string(root().join(STATIONARY)).expect("an example");
            assert!(steps.len() > 1, "{value}: {answer}");
            assert_eq!(steps.last().and_then(|s| s["best_time_s"].as_f64()), Some(time(&source)), "{value}: {answer}");
        }
    }
}

/// Every instruction of every layer of every example.
fn collectives() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for example in examples() {
        let report = json(&["explain", "--no-alternatives", &example.path], "");
        for layer in report["layers"].as_array().expect("layers") {
            for instruction in layer["instructions"].as_array().expect("instructions") {
                if !instruction["reason"].is_null() {
                    found.push((example.path.clone(), instruction.clone()));
                }
            }
        }
    }
    found
}

#[test]
fn every_collective_of_every_example_has_a_reason_with_a_dim_its_axes_its_value_and_the_line() {
    let all = collectives();
    assert!(all.len() > 20, "{}", all.len());
    for (path, c) in all {
        let reason = c["reason"].as_str().expect("a reason");
        // A dim of the collective; an all-reduce has none of its own, so any dim of the layout or of the contraction.
        let dims: Vec<&str> = ["dim", "from_dim", "to_dim"].iter().filter_map(|k| c[*k].as_str()).collect();
        let has_dim = dims.iter().any(|d| reason.contains(d)) || reason.chars().any(|l| l.is_ascii_uppercase());
        assert!(has_dim, "{path}: {c}");
        for axis in c["axes"].as_array().expect("axes") {
            assert!(reason.contains(axis.as_str().expect("an axis")), "{path}: {axis} is not in {reason}");
        }
        let names_a_value = reason.contains('`') || c["name"].is_null();
        assert!(names_a_value, "{path}: {reason}");
        assert!(c["span"]["line"].as_u64().is_some(), "{path}: {c}");
        assert!(c["rule"].is_string(), "{path}: {c}");
    }
}

#[test]
fn another_dim_in_the_source_gives_another_reason() {
    let source = |x: &str, w: &str| {
        format!(
            "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 4096\ndim F = 4096\n\
             layer f(a: bf16 {x}, w: weight bf16 {w}) -> bf16 BF_x {{\n  return einsum(a, w -> BF)\n}}\n"
        )
    };
    let reason = |text: &str| {
        let report = json(&["explain", "--no-alternatives", "-"], text);
        let all = report["layers"][0]["instructions"].as_array().expect("instructions").clone();
        let first = all.iter().find(|i| !i["reason"].is_null()).expect("a collective").clone();
        (first["reason"].as_str().expect("words").to_string(), first["forced_by"]["name"].clone())
    };
    let (split_e, forced) = reason(&source("BE_x", "EF_x"));
    assert!(split_e.contains("splits E of `a`") && split_e.contains("splits F of `w`"), "{split_e}");
    assert_eq!(forced, "w");
    let (split_b, _) = reason(&source("B_xE", "EF_x"));
    assert!(split_b.contains("splits B of `a`") && !split_b.contains("splits E of `a`"), "{split_b}");
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
    for width in [60, 80] {
        for arguments in [
            vec!["explain", STATIONARY],
            vec!["explain", STATIONARY, "--why-not", "h: BLF_xyz"],
            vec!["diff", STATIONARY, GATHERED],
        ] {
            let out = shardc(&[arguments.as_slice(), &["--width", &width.to_string()]].concat());
            assert!(!out.contains('\u{1b}'), "no colour in a pipe");
            // The source's own lines stand as they are.
            for line in out.lines().filter(|l| !l.contains(" | ")) {
                assert!(line.chars().count() <= width && line.trim_end() == line, "{arguments:?}: {line:?}");
            }
        }
    }
}
