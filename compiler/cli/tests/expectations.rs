//! `check --expect`, from outside: `mlp.shard` gathers x and a, and scatters h and y.

use crate::common::{Ran, fed, text};

/// `mlp.shard` with lines put before its first `let`.
fn expecting(lines: &str, options: &[&str]) -> Ran {
    let source = text("mlp.shard").replacen("  let h", &format!("  {lines}\n  let h"), 1);
    fed(&[&["check", "--expect", "-"][..], options].concat(), &source)
}

fn holds(line: &str) {
    let ran = expecting(line, &[]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{line}");
}

/// Asserts that the expectation fails, that the message says what the plan has, and that the
/// expectation in its help holds.
fn fails(line: &str, found: &str) -> String {
    let ran = expecting(line, &[]);
    assert_eq!(ran.status, 1, "{line}: {ran:?}");
    assert!(
        ran.err.starts_with(&format!("error[E0837]: the plan does not meet `{line}`\n")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains(&format!(" the plan has {found}\n")), "{line}: {}", ran.err);
    let help = ran.err.lines().find_map(|l| l.strip_prefix("  help: ")).expect("a help");
    holds(help);
    ran.err
}

#[test]
fn a_figure_that_would_read_as_if_it_kept_the_claim_is_said_to_the_last_digit() {
    fails("expect comm of x >= 16.39us", "16384 ns of comm of x");
}

#[test]
fn what_the_plan_keeps_passes_in_silence() {
    for line in [
        "expect comm <= 60us",
        "expect comm of x == 16.384us",
        "expect comm < 0.06 ms",
        "expect all-gathers == 2",
        "expect all-gather of x == 1",
        "expect einsums >= 2",
        "expect no all-gather of w_in",
        "expect no collective of w_out",
        "expect collectives == 4",
        "expect strategy 2d-weight-stationary",
        "expect peak-memory <= 1GiB",
        "expect serial-time > 100us",
        "expect wire-bytes of x == 4423680B",
    ] {
        holds(line);
    }
}

#[test]
fn what_it_does_not_keep_is_an_error_whose_help_holds() {
    fails("expect comm <= 40us", "59.0 us of comm");
    fails("expect comm == 40us", "59.0 us of comm");
    fails("expect comm < 58.982us", "59.0 us of comm");
    fails("expect comm > 100us", "59.0 us of comm");
    fails("expect comm >= 1ms", "59.0 us of comm");
    fails("expect no comm of h", "13.1 us of comm of h");
    fails("expect all-gathers == 3", "2 all-gathers");
    fails("expect no all-gather of x", "1 all-gather of x");
    fails("expect all-gathers > 2", "2 all-gathers");
    fails("expect all-gathers of w_in > 0", "0 all-gathers of w_in");
    fails("expect no collective", "4 collectives");
    fails("expect strategy xyz-weight-gathered", "the strategy 2d-weight-stationary");
    fails("expect serial-time < 1us", "a serial time of 219 us");
    fails("expect wire-bytes <= 1MB", "15.9 MB on the wire");
    fails("expect no wire-bytes of x", "4.42 MB on the wire of x");
    fails("expect peak-memory <= 1B", "94.4 MB at the peak");
}

#[test]
fn the_lines_that_made_it_so_are_shown() {
    let err = fails("expect comm <= 40us", "59.0 us of comm");
    for cause in [
        "all-gather yz along E of x: 16.4 us; reduce-scatter x along F of h: 13.1 us",
        "reduce-scatter yz along E of y: 16.4 us; all-gather x along F of a: 13.1 us",
    ] {
        assert!(err.contains(cause), "{err}");
    }
    let err = fails("expect no all-gather of x", "1 all-gather of x");
    assert!(err.contains("all-gather yz along E of x\n"), "{err}");
}

#[test]
fn without_the_option_expectations_are_only_read() {
    let source = text("mlp.shard").replacen("  let h", "  expect comm <= 1ps\n  let h", 1);
    for command in ["check", "explain", "lower", "run"] {
        let ran = fed(&[command, "-"], &source);
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{command}");
    }
    let plain = fed(&["lower", "-"], &text("mlp.shard")).out;
    assert_eq!(
        fed(&["lower", "-"], &source).out,
        plain,
        "an expectation changes nothing of the plan"
    );
    assert_eq!(fed(&["check", "-"], &source.replace("comm", "com")).status, 1);
}

#[test]
fn figures_are_of_the_chip_and_sizes_of_the_command_line() {
    assert_eq!(expecting("expect comm <= 60us", &["-D", "B=1024"]).status, 1);
    let source = text("mlp.shard").replace("hardware tpu-v4-flat\n", "");
    let ran = fed(&["check", "--expect", "-"], &source);
    assert!(ran.status == 2 && ran.err.starts_with("error[E0705]"), "{ran:?}");
}

const CALLED: &str = "hardware tpu-v4-flat\nmesh x=4\ndim B = 64\ndim E = 128\ndim F = 256
layer inner(a: f32 BE_x, w: weight f32 E_xF) -> f32 BF_x {
  expect all-gathers == 9
  return einsum(a, w -> BF)
}
layer outer(a: f32 BE_x, w: weight f32 E_xF) -> f32 BF {
  expect einsums == 1
  let y = inner(a, w)
  return y
}
";

#[test]
fn a_called_layer_is_held_to_its_expectations_alone_and_brings_none_along() {
    let ran = fed(&["check", "--expect", "-"], CALLED);
    assert_eq!(ran.status, 1);
    assert_eq!(ran.err.matches("error[E0837]").count(), 1, "{}", ran.err);
    assert!(ran.err.contains("the plan has 1 all-gather\n"), "{}", ran.err);
    assert_eq!(fed(&["check", "--expect", "--layer", "outer", "-"], CALLED).status, 0);
    assert_eq!(fed(&["check", "--expect", "--layer", "inner", "-"], CALLED).status, 1);
}

#[test]
fn another_name_of_a_value_is_that_value() {
    let source = text("mlp.shard").replacen(
        "  let h = einsum(x,",
        "  let x9 = x\n  expect no all-gather of x9\n  let h = einsum(x9,",
        1,
    );
    let ran = fed(&["check", "--expect", "-"], &source);
    assert!(ran.err.contains("the plan has 1 all-gather of x\n"), "{ran:?}");
}

#[test]
fn every_op_of_the_json_can_be_expected() {
    let path = format!("{}/../../spec/schema/explain.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a schema file")).expect("JSON");
    let ops = schema
        .pointer("/$defs/instruction/properties/op/enum")
        .and_then(|ops| ops.as_array())
        .expect("the ops");
    for op in ops.iter().filter_map(|op| op.as_str()).filter(|op| *op != "collective-einsum") {
        assert!(shard_check::expectations::Measure::from_word(op).is_some(), "{op}");
    }
}
