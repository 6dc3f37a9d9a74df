//! Calls and what inlining makes of them; errors that stay where they are.

use crate::common::{check, codes, demand, pins, program};
use shard_ir::Def;

const BLOCK: &str = "
mesh x=2, y=2
dim B = 8
dim E = 8
layer inner(a: bf16 B_xE, w: weight bf16 EE2?) -> bf16 B_xE2 { return einsum(a, w -> BE2) }
dim E2 = E
layer outer(a: bf16 BE?, w: weight bf16 EE2?) -> bf16 BE?  {
  let h = inner(a, w)
  return rename(gelu(h), E2 -> E)
}";

#[test]
fn a_dim_may_be_declared_below_the_layer_that_uses_it() {
    assert_eq!(codes(BLOCK), Vec::<&str>::new());
}

#[test]
fn an_exactly_typed_parameter_and_result_of_a_callee_are_pins() {
    let p = program(BLOCK);
    assert_eq!(p.name, "outer");
    assert_eq!(
        pins(&p),
        [("a".to_string(), "B_xE".to_string()), ("result".to_string(), "B_xE2".to_string())]
    );
}

#[test]
fn inlined_values_bear_the_path_of_layers() {
    let text = "dim B = 4
layer a(x: f32 B?) -> f32 B? { return gelu(x) }
layer b(x: f32 B?) -> f32 B? { return a(x) }
layer c(x: f32 B?) -> f32 B? { return b(a(x)) }";
    let p = program(text);
    let paths: Vec<String> = p.values.iter().map(|v| v.in_layers.join("/")).collect();
    assert_eq!(paths, ["", "a", "b/a"]);
    assert_eq!(check(text).roots, [2]);
}

#[test]
fn labels_are_fresh_at_each_call() {
    let p = program(
        "mesh x=2\ndim B = 4
layer a(x: f32 B?l) -> f32 B?l { return gelu(x) }
layer b(x: f32 B?) -> f32 B? { return a(a(x)) }",
    );
    assert_eq!(p.labels.len(), 2);
    let labels: Vec<_> = p
        .values
        .iter()
        .filter_map(|v| if let Def::Pin { pattern, .. } = &v.def { pattern.label } else { None })
        .map(|l| l.0)
        .collect();
    assert_eq!(labels, [0, 0, 1, 1]);
}

#[test]
fn an_argument_in_another_order_of_dims_is_pinned_in_its_own() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim E = 8
layer a(x: f32 B_xE) -> f32 BE { return gelu(x) }
layer b(x: f32 EB) -> f32 BE { return a(x) }",
    );
    assert_eq!(demand(&p, &p.values[1]), "EB_x");
}

#[test]
fn under_a_label_every_value_has_the_same_order_of_dims() {
    let p = program(
        "mesh x=2\ndim B = 4\ndim E = 8
layer a(x: f32 BE?l) -> f32 BE?l { return gelu(x) }
layer b(x: f32 EB) -> f32 BE { return a(x) }",
    );
    for value in &p.values {
        if let Def::Pin { pattern, .. } = &value.def
            && pattern.label.is_some()
        {
            assert_eq!(p.dim_names(&value.dims).concat(), "BE");
        }
    }
}

#[test]
fn an_error_in_a_callee_silences_its_callers_and_no_other_layer() {
    let checked = check(
        "dim B = 4
layer a(x: f32 B) -> f32 B { return nothing }
layer b(x: f32 B) -> f32 B { return a(x) }
layer c(x: f32 B) -> f32 B { return gelu(x) }",
    );
    assert_eq!(checked.diagnostics.len(), 1);
    assert_eq!(checked.programs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(checked.roots, [0]);
}

#[test]
fn a_value_with_an_error_silences_what_depends_on_it() {
    let text = "dim B = 4\nlayer a(x: f32 B) -> f32 B { let h = gelu(nothing) let k = h + h \
        return k * x }";
    assert_eq!(codes(text), ["E0601"]);
}

#[test]
fn independent_errors_are_reported_in_one_run() {
    let text = "mesh x=3\ndim B = 4\nlayer a(x: f32 B_x) -> f32 B { return x }\nlayer b(x: f32 B) \
        -> f32 Z { return y }";
    assert_eq!(codes(text), ["E0205", "E0301", "E0601"]);
}

#[test]
fn what_a_syntax_error_hides_is_not_reported_missing() {
    let text = "dim B = \nmesh x=\nlayer a(x: f32 B_x) -> f32 B { let h = = x return h }";
    assert!(codes(text).iter().all(|code| code.starts_with("E01")), "{:?}", codes(text));
}

#[test]
fn hardware_is_taken_as_it_is_written() {
    let text = "hardware \"chips/mine.toml\"\ndim B = 4\nlayer a(x: f32 B) -> f32 B { return x }";
    assert_eq!(program(text).hardware.as_deref(), Some("chips/mine.toml"));
}

#[test]
fn several_results_are_taken_apart_by_a_let() {
    let p = program(
        "dim B = 4
layer two(x: f32 B?) -> (y: f32 B?, z: f32 B?) { return (gelu(x), relu(x)) }
layer f(x: f32 B) -> (p: f32 B, q: f32 B) { let (p, q) = two(x) return (q, p) }
",
    );
    assert_eq!(p.outputs.iter().map(|o| o.value.0).collect::<Vec<_>>(), [2, 1]);
}
