//! Files with wrong syntax: an unknown name is reported unless the part that could not be read may
//! declare it.

use crate::common::codes;

const HEAD: &str = "mesh x=4\ndim B = 8\ndim E = 16\n";

#[test]
fn a_syntax_error_in_one_layer_hides_no_unknown_name_in_another() {
    let broken = "layer f(a: f32 BE) -> f32 BE {\n  let b = relu(a\n  return b\n}\n";
    let other = "layer g(a: f32 BE) -> f32 BE {\n  return relu(aa)\n}\n";
    for text in [format!("{HEAD}{broken}{other}"), format!("{HEAD}{other}{broken}")] {
        let found = codes(&text);
        assert!(found.contains(&"E0601"), "{found:?}\n{text}");
    }
}

#[test]
fn a_syntax_error_in_a_layer_leads_to_no_talk_of_the_values_that_it_hides() {
    let found = codes(&format!(
        "{HEAD}layer f(a: f32 BE) -> f32 BE {{\n  let b = = relu(a)\n  return b\n}}\n"
    ));
    assert!(!found.is_empty() && found.iter().all(|code| code.starts_with("E01")), "{found:?}");
}

#[test]
fn dims_axes_and_layers_that_do_not_exist_are_told_although_a_body_cannot_be_read() {
    let broken = "layer f(a: f32 BE) -> f32 BE {\n  let b = = relu(a)\n  return b\n}\n";
    for (layer, code) in [
        ("layer g(a: f32 BG) -> f32 BG {\n  return a\n}\n", "E0301"),
        ("layer g(a: f32 B_zE) -> f32 B_zE {\n  return a\n}\n", "E0201"),
        ("layer g(a: f32 BE) -> f32 BE {\n  return h(a)\n}\n", "E0603"),
    ] {
        let found = codes(&format!("{HEAD}{broken}{layer}"));
        assert!(found.contains(&code), "{code}: {found:?}");
    }
}

#[test]
fn a_line_that_cannot_be_read_keeps_all_names_unsaid_that_it_may_declare() {
    let layer = "layer g(a: f32 BG) -> f32 BG {\n  return relu(a)\n}\n";
    let found = codes(&format!("{HEAD}dim G == 3\n{layer}"));
    assert!(!found.is_empty() && found.iter().all(|code| code.starts_with("E01")), "{found:?}");
    // A call of a layer whose header cannot be read is not reported either.
    let caller = "layer g(a: f32 BE) -> f32 BE {\n  return f(a)\n}\n";
    let found = codes(&format!("{HEAD}layer f(a: f32 BE -> f32 BE {{\n  return a\n}}\n{caller}"));
    assert!(!found.contains(&"E0603"), "{found:?}");
}

#[test]
fn a_broken_layer_that_is_called_is_no_error_of_the_caller() {
    let broken = "layer f(a: f32 BE) -> f32 BE {\n  let b = = relu(a)\n  return b\n}\n";
    let caller = "layer g(a: f32 BE) -> f32 BE {\n  return f(a)\n}\n";
    let found = codes(&format!("{HEAD}{broken}{caller}"));
    assert!(found.iter().all(|code| code.starts_with("E01")), "{found:?}");
}

#[test]
fn a_layer_without_its_closing_brace_hides_nothing_and_invents_nothing() {
    let found = codes(&format!(
        "{HEAD}layer f(a: f32 BE) -> f32 BE {{\n  return a\nlayer g(a: f32 BE) -> f32 BE {{\n  \
            return a\n}}\n"
    ));
    assert!(!found.is_empty() && found.iter().all(|code| code.starts_with("E01")), "{found:?}");
}
