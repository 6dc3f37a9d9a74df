//! Dims that the mesh does not divide: what padding costs and saves, as `explain` and E0205 say it.

use crate::common::fed;
use serde_json::Value;

/// The last layer of GPT-2, on a mesh that does not divide its vocabulary. `types` are the types of
/// its weight and its result.
fn source(types: [&str; 2]) -> String {
    let [weight, result] = types;
    format!(
        "hardware tpu-v5e\nmesh x=3\ndim B = 256\ndim E = 4096\ndim V = 50257\n\
         layer unembed(x: bf16 BE, w: weight bf16 {weight}) -> bf16 {result} {{\n  \
         return einsum(rmsnorm(x over E), w -> BV)\n}}\n"
    )
}

fn paddings(source: &str, more: &[&str]) -> Vec<Value> {
    let ran = fed(&[&["explain", "-", "--format", "json"], more].concat(), source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    report["layers"][0]["paddings"].as_array().cloned().unwrap_or_default()
}

#[test]
fn an_open_layout_of_a_dim_that_does_not_divide_is_offered_the_padding_that_pays() {
    let found = paddings(&source(["EV?", "BV?"]), &[]);
    let of_v = &found[0];
    assert_eq!((&of_v["dim"], &of_v["padded"]), (&"V".into(), &50259.into()), "{found:?}");
    let seconds = |key: &str| of_v[key].as_f64().expect("seconds");
    // The offered time is that of the plan with the padding, about a third of the time without it.
    let padded = fed(
        &["explain", "-", "--format", "json", "-D", "V=50257 pad 50259", "--no-alternatives"],
        &source(["EV?", "BV?"]),
    );
    let padded: Value = serde_json::from_str(&padded.out).expect("JSON");
    let time = &padded["layers"][0]["totals"]["serial_time_s"];
    assert_eq!(time.as_f64(), Some(seconds("padded_time_s")));
    assert!(seconds("time_s") > 2.8 * seconds("padded_time_s"));
    // The padded program needs no more padding.
    let padded = paddings(&source(["EV?", "BV?"]), &["-D", "V=50257 pad 50259"]);
    assert!(padded.iter().all(|padding| padding["dim"] != "V"), "{padded:?}");
}

#[test]
fn a_dim_that_divides_and_one_that_nothing_would_gain_by_are_offered_none() {
    let source = source(["EV?", "BV?"]);
    assert!(paddings(&source, &["-D", "V=50259", "-D", "B=258"]).is_empty());
    assert!(paddings(&source, &["-D", "V=2", "-D", "B=258", "-D", "E=4095"]).is_empty());
    assert!(paddings(&source, &["--no-alternatives"]).is_empty());
    // The times of paddings are sums of steps, so they are not offered for another objective.
    assert!(paddings(&source, &["--objective", "memory"]).is_empty());
}

#[test]
fn the_text_names_the_option_and_the_option_compiles_and_runs() {
    let source = source(["EV?", "BV?"]);
    let ran = fed(&["explain", "-", "--width", "400"], &source);
    assert_eq!(ran.status, 0, "{}", ran.err);
    let option = "-D 'V=50257 pad 50259'";
    assert!(ran.out.contains(option), "{}", ran.out);
    let ran = fed(&["run", "-", "-D", "V=50257 pad 50259"], &source);
    assert_eq!(ran.status, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("equal on 3 devices"), "{}", ran.out);
}

#[test]
fn a_layout_that_is_written_is_told_what_padding_costs_and_saves() {
    let ran = fed(&["check", "-"], &source(["EV_x", "BV_x"]));
    assert_eq!(ran.status, 1);
    let help =
        "dim V = 50257 pad 50259    (0 % more work; with V whole a device has 3.0 times as much)";
    assert!(ran.err.contains(help), "{}", ran.err);
}
