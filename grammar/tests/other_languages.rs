//! Text of other languages gets a help that says what is written here, and the parser reads that.

use shard_grammar::{SourceFile, SyntaxError, parse};

fn errors(text: &str) -> Vec<SyntaxError> {
    parse(&SourceFile::new("t", text)).errors
}

/// The help of the first error of a text.
fn helped(text: &str) -> String {
    let errors = errors(text);
    let first = errors.first().unwrap_or_else(|| panic!("this is read:\n{text}"));
    first.help.clone().unwrap_or_default()
}

/// The text with the edit of its first error made, until there is no error or none has an edit.
fn mended(text: &str) -> String {
    let mut text = text.to_string();
    for _ in 0..8 {
        let errors = errors(&text);
        let Some(error) = errors.first() else { return text };
        let fix = error.fix.as_ref().unwrap_or_else(|| panic!("{error}: no edit\n{text}"));
        text.replace_range(fix.span.start..fix.span.end, &fix.replacement);
    }
    panic!("still wrong:\n{text}");
}

/// Each text gets the help, and its edits lead to the text that is meant.
fn are_told(frame: &str, cases: &[(&str, &str, &str)]) {
    for (written, help, meant) in cases {
        let text = frame.replace("HERE", written);
        assert_eq!(helped(&text), *help, "{written}");
        assert_eq!(mended(&text), frame.replace("HERE", meant), "{written}");
    }
}

/// Each text gets the help, which has no edit, and the parser reads the text that is meant.
fn are_told_alone(frame: &str, cases: &[(&str, &str, &str)]) {
    for (written, help, meant) in cases {
        let text = frame.replace("HERE", written);
        assert_eq!(helped(&text), *help, "{written}");
        assert!(errors(&text)[0].fix.is_none(), "{written}");
        assert_eq!(errors(&frame.replace("HERE", meant)), [], "{meant}");
    }
}

const ITEM: &str = "dim A = 8\nHERE\nlayer f(a: f32 A) -> f32 A { return a }\n";
const LAYER: &str = "dim A = 8\nHERE { return a }\n";
const PARAM: &str = "dim B = 8\ndim G = 2 * B\nlayer f(a: f32 B, HERE) -> f32 B { return a }\n";
const BODY: &str = "layer f(a: f32 B) -> f32 B {\n  let b = a\n  HERE\n  return b\n}\n";
const END: &str = "layer f(a: f32 B) -> f32 B {\n  let b = a\n  HERE\n}\n";

#[test]
fn hardware_is_named_without_a_sign() {
    let tpu = "hardware tpu-v5e";
    are_told(
        ITEM,
        &[
            ("hardware = tpu-v5e", tpu, tpu),
            ("hardware: tpu-v5e", tpu, tpu),
            ("hardware(tpu-v5e)", tpu, tpu),
            ("hardware tpu-v5e,", tpu, tpu),
            ("hardware tpu v5e", tpu, tpu),
            (
                "hardware = \"my chip.toml\"",
                "hardware \"my chip.toml\"",
                "hardware \"my chip.toml\"",
            ),
        ],
    );
}

#[test]
fn a_mesh_is_names_and_sizes() {
    let (one, two, three) = ("mesh x=4", "mesh x=4, y=2", "mesh x=2, y=4, z=4");
    let named = "mesh data=4, model=2";
    are_told(
        ITEM,
        &[
            ("mesh (x: 4)", one, one),
            ("mesh 4x2", two, two),
            ("mesh x4 y2", two, two),
            ("mesh x4, y2", two, two),
            ("mesh 4 x 2", two, two),
            ("mesh 2x4x4", three, three),
            ("mesh x: 4", one, one),
            ("mesh x 4, y 2", two, two),
            ("mesh {x: 4, y: 2}", two, two),
            ("mesh {\n  \"x\": 4,\n  \"y\": 2,\n}", two, two),
            ("mesh = x=4, y=2", two, two),
            ("mesh = {x: 4, y: 2}", two, two),
            ("mesh = 4x2", two, two),
            ("mesh: (4, 2)", two, two),
            ("mesh ((4, 2), (\"data\", \"model\"))", named, named),
            ("mesh = (data=4, model=2)", named, named),
            ("mesh data: 4,\n  model: 2", named, named),
            // Where adding one sign is enough, the help says that.
            ("mesh x 4", "put `=` before `4`", "mesh x = 4"),
            ("mesh x=4 y=2", "put `,` before `y`", two),
        ],
    );
}

#[test]
fn each_dim_has_a_line() {
    let (one, two) = ("dim B = 8", "dim B = 8\ndim E = 2 * B");
    let each = "dim B = 8 dim E = 2 * B    (a line each)";
    are_told(
        ITEM,
        &[
            ("dim B: 8", one, one),
            ("dim B := 8", one, one),
            ("dim B = 8K", "dim B = 8 * 1024", "dim B = 8 * 1024"),
            ("dim B: 2M", "dim B = 2 * 1048576", "dim B = 2 * 1048576"),
            ("dim B == 8", one, one),
            ("dim (B = 8)", one, one),
            ("const B = 8", one, one),
            ("B = 8", one, one),
            ("dim B = 8, E = 2 * B", each, two),
            ("dim B = 8,\n    E = 2 * B", each, two),
            ("dim B: 8, E: 2 * B,", each, two),
            ("dim {B: 8, E: 2 * B}", each, two),
            ("dim B = 8 E = 2 * B", each, two),
            ("dim B 8", "put `=` before `8`", one),
            ("dim B = 8;dim E = 4;", "remove it", "dim B = 8 dim E = 4"),
        ],
    );
}

#[test]
fn a_layer_is_called_one_and_states_its_result() {
    let meant = "layer g(a: f32 A) -> f32 A";
    for word in ["def", "fn", "func", "fun", "function", "module"] {
        let written = format!("{word} g(a: f32 A) -> f32 A");
        are_told(LAYER, &[(&written, "layer", meant)]);
    }
    are_told(
        LAYER,
        &[
            ("layer g(a: f32 A): f32 A", "-> f32 A", meant),
            ("layer g(a: f32 A) => f32 A", "-> f32 A", meant),
            ("layer g(a: f32 A) f32 A", "-> f32 A", meant),
            ("layer g(a: f32 A) -> (f32 A)", "-> f32 A", meant),
            ("layer g(a: f32 A) -> y: f32 A", "-> f32 A", meant),
            ("layer g(a: f32 A B) -> f32 AB", "a: f32 AB", "layer g(a: f32 AB) -> f32 AB"),
            ("layer g(a: f32 A) -> f32 A B", "-> f32 AB", "layer g(a: f32 A) -> f32 AB"),
        ],
    );
    let pair = |names: &str| format!("layer g(a: f32 A) -> (f32 A, f32 A) {{ return {names} }}");
    let named = "(b: f32 A, c: f32 A)";
    assert_eq!(helped(&pair("(b, c)")), named);
    assert_eq!(mended(&pair("(b, c)")), pair("(b, c)").replace("(f32 A, f32 A)", named));
    for (returned, help) in [
        ("(b, b)", "(b: f32 A, y: f32 A)"),
        ("(b + c, y)", "(z: f32 A, y: f32 A)"),
        ("g(a)", "(y: f32 A, z: f32 A)"),
    ] {
        assert_eq!(helped(&pair(returned)), help, "{returned}");
    }
    let half = pair("(b + c, c)").replace("(f32 A, f32 A)", "(f32 A, y: f32 A)");
    assert_eq!(helped(&half), "(z: f32 A, y: f32 A)");
    let help = "-> f32 [A, B_{x}]    (the type of what is returned)";
    let typed = "layer g(a: weight f32 [A, B_{x}], b: f32 A) -> f32 [A, B_{x}]";
    let any = "-> bf16 BE    (the type of what is returned)";
    are_told_alone(
        LAYER,
        &[
            ("layer g(a: weight f32 [A, B_{x}], b: f32 A)", help, typed),
            ("layer g(a: weight f32 [A, B_{x}], b: f32 A) ->", help, typed),
            ("layer g()", any, "layer g() -> bf16 BE"),
        ],
    );
    let braces = "{ return ... }    (the statements of a layer stand in braces)";
    assert_eq!(helped("layer g(a: f32 A) -> f32 A:\n  return a\n"), braces);
}

#[test]
fn a_type_is_a_kind_a_dtype_and_a_word_of_dims() {
    let meant = "x: bf16 BE";
    let weight = "x: weight bf16 B_xE";
    are_told(
        PARAM,
        &[
            ("x: bf16 B E", meant, meant),
            ("x: bf16 B*E", meant, meant),
            ("x: bf16 (B, E)", meant, meant),
            ("x: bf16<B, E>", meant, meant),
            ("x: BE bf16", meant, meant),
            ("x: [B, E] bf16", meant, meant),
            ("x: BE: bf16", meant, meant),
            ("x: bfloat16 B E", meant, meant),
            ("x: BF16 BE", meant, meant),
            ("x bf16 BE", meant, meant),
            ("x = bf16 BE", meant, meant),
            ("bf16 BE x", meant, meant),
            ("x: weight bf16 B_x E", weight, weight),
            ("x: bf16 weight B_xE", weight, weight),
            ("x: B_xE bf16 weight", weight, weight),
            ("x: f32 Batch Embed", "x: f32 [Batch, Embed]", "x: f32 [Batch, Embed]"),
            ("x: f32[8]", "x: f32 B", "x: f32 B"),
            ("x: tensor<8xbf16>", "x: bf16 B", "x: bf16 B"),
            ("x: Tensor[B, E]", meant, meant),
            ("x: bf16 Array[B, E]", meant, meant),
            ("x: bf16 B E (partialsum-x)", "x: bf16 BE(partialsum-x)", "x: bf16 BE(partialsum-x)"),
        ],
    );
    // A size that no dim line states needs a new dim, whose name is not taken.
    let sizes = "x: f32 BEF    (with dim E = 64 and dim F = 2)";
    are_told_alone(
        PARAM,
        &[
            ("x: f32[8, 64, 2]", sizes, "x: f32 BEF"),
            ("x: f32 8x64x2", sizes, "x: f32 BEF"),
            ("x: tensor<8x64x2xf32>", sizes, "x: f32 BEF"),
        ],
    );
    are_told(
        BODY,
        &[
            ("let h: bf16 B E = a", "h: bf16 BE", "let h: bf16 BE = a"),
            ("let h: B E = a", "h: BE", "let h: BE = a"),
            ("let h bf16 BE = a", "h: bf16 BE", "let h: bf16 BE = a"),
            ("let h: Tensor[B, E] = a", "h: BE", "let h: BE = a"),
        ],
    );
}

#[test]
fn dtypes_of_other_languages_are_told_the_nearest() {
    for (words, meant) in [
        ("float32 fp32 float double f64 float64 tf32", "f32"),
        ("bfloat16", "bf16"),
        ("half float16 fp16", "f16"),
        ("fp8 e4m3 float8_e4m3fn f8e5m2", "f8"),
        ("i8 u8 uint8 byte", "int8"),
        ("int i32 s32 int64 i64 long int16 short", "int32"),
        ("boolean pred bool_", "bool"),
    ] {
        for word in words.split(' ') {
            let written = format!("x: {word} BE");
            are_told(PARAM, &[(&written, meant, &format!("x: {meant} BE"))]);
        }
    }
}

#[test]
fn a_comment_starts_with_two_slashes() {
    let help = "// ...    (comments start with `//`)";
    are_told(
        ITEM,
        &[
            ("# a layer of two dims = 4", help, "// a layer of two dims = 4"),
            ("### let\n#\n# dim", help, "// let\n//\n// dim"),
            ("#!/bin/shardc", help, "// !/bin/shardc"),
            ("dim B = 8 # layer", help, "dim B = 8 // layer"),
            ("/* a layer */", help, "// a layer"),
            ("/*\n * one\n * two\n */", help, "//\n// one\n// two\n//"),
            ("dim B = /* eight */ 8", help, "dim B = // eight\n 8"),
            ("/* without an end", help, "// without an end"),
            ("-- a comment (of words)", help, "// a comment (of words)"),
            ("dim B = 8 -- a comment", help, "dim B = 8 // a comment"),
        ],
    );
    are_told(
        BODY,
        &[
            ("let h = gelu(b) -- a b", help, "let h = gelu(b) // a b"),
            ("let h = f(b # first\n, c)", help, "let h = f(b // first\n, c)"),
        ],
    );
    // Minus signs before a value, and the rest of a bracket, are no comments.
    assert_eq!(errors(&BODY.replace("HERE", "let h = a -- b")), []);
    assert_eq!(helped(&BODY.replace("HERE", "let h = f(a -- b c)")), "put `,` before `c`");
}

#[test]
fn a_statement_is_a_let_or_a_return() {
    let let_h = "let h = ...";
    let meant = "let h = gelu(b)";
    let pair = "let (h, k) = ...";
    are_told(
        BODY,
        &[
            ("h = gelu(b)", let_h, meant),
            ("val h = gelu(b)", let_h, meant),
            ("var h = gelu(b)", let_h, meant),
            ("const h = gelu(b)", let_h, meant),
            ("float32 h = gelu(b)", let_h, meant),
            ("let mut h = gelu(b)", let_h, meant),
            ("let h := gelu(b)", let_h, meant),
            ("let h == gelu(b)", let_h, meant),
            ("let h <- gelu(b)", let_h, meant),
            ("h := gelu(b)", let_h, meant),
            ("h: f32 B = gelu(b)", "let h: f32 B = ...", "let h: f32 B = gelu(b)"),
            ("let h: B <- gelu(b)", "let h: B = ...", "let h: B = gelu(b)"),
            ("let h, k = g(b)", pair, "let (h, k) = g(b)"),
            ("(h, k) = g(b)", pair, "let (h, k) = g(b)"),
            ("let h = gelu(b),", "remove it", meant),
            ("let h = gelu(b);", "remove it", meant),
        ],
    );
    let once = "let b2 = b * ...    (a name has one value: what comes later reads `b2`)";
    are_told_alone(BODY, &[("b *= a", once, "let b2 = b * a")]);
    let twice = helped(&BODY.replace("HERE", "let b2 = a\n  b -= a"));
    assert_eq!(twice, once.replace("b2", "b3").replace('*', "-"));
    are_told(
        END,
        &[
            ("gelu(b)", "return gelu(b)", "return gelu(b)"),
            ("b", "return b", "return b"),
            ("let h = b,\n  h", "remove it", "let h = b\n  return h"),
            ("return b,", "remove it", "return b"),
            ("return b, b", "return (b, b)", "return (b, b)"),
            ("return b;", "remove it", "return b"),
        ],
    );
    assert_eq!(
        mended("layer f(a: f32 B) -> f32 B { a }"),
        "layer f(a: f32 B) -> f32 B { return a }"
    );
}

#[test]
fn a_kind_in_the_plural_and_axes_behind_a_bracket_are_put_right() {
    let open = "b: weight bf16 A?";
    are_told(
        PARAM,
        &[
            ("b: weights bf16 A?", open, open),
            ("b: param bf16 [A]", "b: weight bf16 A", "b: weight bf16 A"),
            ("b: f32 [B, A]_x", "b: f32 BA_x", "b: f32 BA_x"),
        ],
    );
}

#[test]
fn an_op_that_lacks_a_part_is_told_how_it_is_written() {
    let told = |written: &str| helped(&BODY.replace("HERE", written));
    assert_eq!(told("let h = rope(b over B)"), "rope(a over dim at position[, extent])");
    assert_eq!(told("let h = split(b)"), "split(a, from -> to)");
    assert_eq!(told("let h = einsum(b, b)"), "einsum(a, b, ... -> dims)");
}

#[test]
fn an_error_in_a_body_is_not_told_of_the_results_in_the_header() {
    let text = "dim A = 8\nlayer f(a: f32 A) -> (y: f32 A, z: f32 A) {\n  let h == a\n  \
                return (h, a)\n}\n";
    assert_eq!(helped(text), "let h = ...");
}

#[test]
fn a_misspelt_op_with_slots_is_told_with_the_nearest() {
    for (written, meant) in [
        ("let h = insum(b, b -> B)", "let h = einsum(b, b -> B)"),
        ("let h = softmx(b over B)", "let h = softmax(b over B)"),
        ("let h = rop(b over B at B)", "let h = rope(b over B at B)"),
    ] {
        assert_eq!(mended(&BODY.replace("HERE", written)), BODY.replace("HERE", meant));
    }
}

#[test]
fn what_would_not_be_read_is_not_told() {
    for (frame, written) in [
        (ITEM, "hardware: tpu-v5e, chips: 16"),
        (ITEM, "mesh 2x2x2x2x2"),
        (ITEM, "mesh 0x10"),
        (ITEM, "mesh (x: 4, y)"),
        (ITEM, "mesh x=4, y={2}"),
        (ITEM, "dim B, E"),
        (ITEM, "dim B = 1,000"),
        (ITEM, "device tpu-v5e"),
        (ITEM, "class g(a: f32 A) -> f32 A { return a }"),
        (PARAM, "x: bf16"),
        (PARAM, "x: f32[B, 64]"),
        (PARAM, "x: f32 B = 3"),
        (BODY, "let h += b"),
        (BODY, "print(b)"),
        (BODY, "for i in b { }"),
        (BODY, "let h = if a then b else c"),
    ] {
        assert_eq!(helped(&frame.replace("HERE", written)), "", "{written}");
    }
    assert_eq!(helped(&PARAM.replace("HERE", "b: f32 A c: f32 B")), "put `,` before `c`");
}

#[test]
fn a_comment_within_is_not_taken_away_by_an_edit() {
    let text = ITEM.replace("HERE", "dim B = 8, // sequences\n    E = 64");
    assert_eq!(helped(&text), "dim B = 8 dim E = 64    (a line each)");
    assert!(errors(&text)[0].fix.is_none());
}

#[test]
fn names_of_other_languages_are_names() {
    for text in [
        "mesh hardware=2, mesh=4\nlayer f(a: f32 B_{mesh}) -> f32 B_{mesh} { return a }",
        "layer def(fn: f32 B, half: f32 B) -> f32 B { let val = fn let set = val return set }",
        "layer f(fn: f32 B) -> (y: f32 B, z: f32 B) { let func = fn return (func, fn) }",
        "layer f(a: f32 B) -> (y: f32 B, z: f32 B) { let layers = a let b = layers return (b, a) }",
        "layer f(a: f32 B) -> f32 B { let h = --a return a --h }",
    ] {
        assert_eq!(errors(text), [], "{text}");
    }
}

#[test]
fn a_file_of_such_errors_ends() {
    let size = 1 << 20;
    for piece in [
        "mesh (x: 4) ",
        "mesh (",
        "dim B: 8, ",
        "dim B = 8\n,",
        "# ",
        "# \n",
        "/* ",
        "/* */",
        "-- a b\n",
        "-- ",
        "def f(a: f32 A) { a }\n",
        "layer f(a: f32 A B, ",
        "layer f(a: f32[8, ",
        "layer f(a: f32 A): { h := a\n",
        "let h: ",
        "h, ",
        "val h <- a\n",
    ] {
        for start in ["", "layer f(a: f32 A) -> f32 A {\n", "layer f(a: f32 A B, "] {
            let text = start.to_string() + &piece.repeat((size - 100) / piece.len());
            assert!(!errors(&text).is_empty(), "{piece}");
        }
    }
    // A token, or the blanks between two, may be long.
    let long = " ".repeat(size / 2);
    assert!(!errors(&format!("mesh (x:{long}4)")).is_empty());
    assert!(!errors(&format!("layer f(x: f32 A{long}B) -> f32 A {{ return x }}")).is_empty());
}
