//! `explain --why` and `--why-not` on programs that are not examples: what the answers say, and
//! that no line that a reader could write gives a better plan than the answer.

use crate::common::{fed, shardc, text};

/// A layer that calls another one with a value of its own.
const CALLED: &str = "called.shard";

/// Open weights may be stored whole, and then nothing is gathered. `--why-not` must still find the
/// plans that gather them.
#[test]
fn open_weights_that_are_gathered_are_found_when_they_are_asked_for() {
    let source = "hardware tpu-v5e\nmesh x=2, y=4\ndim B = 16384\ndim E = 2048\ndim F = 8192\n\
                  layer mlp(a: bf16 BE?l, w1: weight bf16 EF?, w2: weight bf16 FE?) -> bf16 BE?l {\n  \
                  return a + einsum(gelu(einsum(a, w1 -> BF)), w2 -> BE)\n}\n";
    for strategy in ["fsdp", "xy-weight-gathered"] {
        let ran = fed(&["explain", "-", "--why-not", strategy], source);
        assert_eq!(ran.status, 0, "{strategy}: {ran:?}");
        let best = ran.out.lines().find(|line| line.contains("best with it")).expect("a best one");
        assert!(best.contains(strategy), "{best}");
    }
}

#[test]
fn one_annotation_beats_no_answer_of_a_collective() {
    let open = "hardware tpu-v5e\nmesh x=4, y=4\ndim B = 96\ndim E = 1536\ndim F = 6144\n\
                layer mlp(x: bf16 BE?, w1: weight bf16 EF?, w2: weight bf16 FE?, w3: weight bf16 \
                EF?) -> bf16 BE? {\n  let n = layernorm(x over E)\n  \
                let g = silu(einsum(n, w1 -> BF)) * einsum(n, w3 -> BF)\n  \
                return x + einsum(g, w2 -> BE)\n}\n";
    let asked = fed(&["explain", "-", "--why-not", "all-gather:x"], open);
    assert_eq!(asked.status, 0, "{asked:?}");
    let pinned = fed(&["explain", "-"], &open.replace("x: bf16 BE?", "x: bf16 BE_y"));
    assert!(pinned.out.contains("all-gather y along E: x"), "{}", pinned.out);
    assert_eq!(time_with_it(&asked.out), time_proven(&pinned.out));
}

#[test]
fn a_layout_that_one_reader_has_is_asked_for_of_all() {
    let open = "hardware h100\nmesh x=4, y=4\ndim B = 64\ndim E = 1024\ndim F = 1024\n\
                layer sh(x: bf16 BE?, w: weight bf16 EF?, v: weight bf16 EF?) -> (p: bf16 BE?, q: \
                bf16 BF?) {\n  let a = einsum(x, w -> BF)\n  let b = einsum(tanh(a), w -> BE)\n  \
                let c = einsum(b, v + w -> BF)\n  return (b + x, c - a)\n}\n";
    let asked = fed(&["explain", "-", "--why-not", "a: BF_xy"], open);
    assert!(asked.out.contains("why not `a` as BF_xy for all that read it?"), "{asked:?}");
    assert!(asked.out.contains("let a: BF_xy = einsum(x, w -> BF)"), "{asked:?}");
    let pinned = fed(&["explain", "-"], &open.replace("let a =", "let a: BF_xy ="));
    assert_eq!(time_with_it(&asked.out), time_proven(&pinned.out));
}

#[test]
fn a_value_that_a_call_takes_is_asked_about_where_it_is_made() {
    let asked = fed(&["explain", "-", "--why-not", "b: B_xL"], &text(CALLED));
    assert!(asked.out.contains("let b: B_xL = a * a"), "{asked:?}");
    let pinned = fed(&["explain", "-"], &text(CALLED).replace("let b =", "let b: B_xL ="));
    assert_eq!(time_with_it(&asked.out), time_proven(&pinned.out));
}

#[test]
fn a_parameter_that_pins_what_it_is_given_is_told_as_such() {
    let source = text(CALLED).replace("let b =", "let b: B_xL =");
    let checked = fed(&["check", "-", "--error-format", "json"], &source);
    let help = "BL?    (in the type of that parameter: the layout free)";
    assert!(checked.err.contains("W0801") && checked.err.contains(help), "{checked:?}");
    assert!(!checked.err.contains("\"text\":\"?\""), "no edit where the call stands: {checked:?}");
    let mended = fed(&["check", "-"], &source.replace("ids: f32 BL)", "ids: f32 BL?)"));
    assert!(mended.status == 0 && mended.err.is_empty(), "{mended:?}");
}

#[test]
fn a_layout_of_a_label_is_written_in_all_its_places() {
    let source = "hardware tpu-v5p\nmesh x=4, y=4, z=4\ndim B = 1024\ndim E = 1024\ndim F = 4096\n\
                  layer f(x: bf16 BE?l, w: weight bf16 EF?, v: weight bf16 FE?) -> bf16 BE?l \
                  repeat 8 {\n  return x + einsum(relu(einsum(x, w -> BF)), v -> BE)\n}\n";
    let asked = fed(&["explain", "-", "--why-not", "x: BE_x"], source);
    for line in ["    x: bf16 BE_x\n", "    -> bf16 BE_x    (the result `result`)\n"] {
        assert!(asked.out.contains(line), "{asked:?}");
    }
    let pinned = fed(&["explain", "-"], &source.replace("BE?l", "BE_x"));
    assert_eq!(time_with_it(&asked.out), time_proven(&pinned.out));
}

/// The time of the best plan that has what was asked for.
fn time_with_it(answer: &str) -> String {
    let best = answer.lines().find(|line| line.contains("best with it")).expect("a best one");
    let words: Vec<&str> = best.split_whitespace().collect();
    words[words.len() - 2..].join(" ")
}

/// The proven lower bound on the time, from the last line that states one.
fn time_proven(explained: &str) -> String {
    let (_, time) = explained.rsplit_once("no plan takes less than ").expect("a proof");
    time.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_dim_to_vary_that_there_is_not_is_told_with_those_that_there_are() {
    let ran = shardc(&["explain", "mlp.shard", "--why-not", "all-gather:x", "--vary", "Z"]);
    assert_eq!((ran.status, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("error[E0312]: `--vary Z`: the file has no dim `Z`"), "{}", ran.err);
    assert!(ran.err.contains("note: dims of the file: `B`"), "{}", ran.err);
}
