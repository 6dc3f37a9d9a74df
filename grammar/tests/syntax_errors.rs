//! What is wrong with a text, where, and how it is said.

use shard_grammar::{SourceFile, SyntaxErrorKind, parse};

/// Every error of a text, as `line:column message | help`.
fn errors(text: &str) -> Vec<String> {
    let source = SourceFile::new("t", text);
    let parsed = parse(&source);
    let worded = parsed.errors.iter().map(|error| {
        let at = source.line_column(error.span.start);
        let help = error.help.as_ref().map_or(String::new(), |help| format!(" | {help}"));
        format!("{}:{} {error}{help}", at.line, at.column)
    });
    worded.collect()
}

/// The errors of one statement in the body of a layer: its line is 2.
fn body(statement: &str) -> Vec<String> {
    errors(&format!("layer f(a: f32 A) -> f32 A {{\n{statement}\nreturn a\n}}\n"))
}

macro_rules! says {
    ($($name:ident: $of:ident($text:expr) => [$($error:literal),* $(,)?];)*) => {$(
        #[test]
        fn $name() {
            let expected: Vec<&str> = vec![$($error),*];
            assert_eq!($of($text), expected);
        }
    )*};
}

says! {
    a_missing_equals_sign: body("let h gelu(a)") => ["2:7 expected `:` or `=`, found `gelu` | put \
        `=` before `gelu`"];
    a_missing_comma: body("let h = einsum(a b -> A)") => ["2:18 expected `,`, `->` or an \
        operator, found `b` | put `,` before `b`"];
    a_missing_right_side: body("let h = ") => ["2:8 expected an expression, found `return`"];
    a_missing_let: body("let h = a\nc = h") => ["3:1 expected an operator or the next statement, \
        found `c` | let c = ..."];
    a_stray_semicolon: body("let h = a;") => ["2:10 there are no semicolons: `let`, `return` and \
        `}` end a statement | remove it"];
    a_misspelt_let: body("lte h = a") => ["2:1 unknown word `lte`, where `let` could stand | let"];
    a_misspelt_let_behind_another: body("let b = a lett h = a") => ["2:11 unknown word `lett`, \
        where `let` could stand | let"];
    a_misspelt_over: body("let h = sum(a ovr A)") => ["2:15 unknown word `ovr`, where `over` \
        could stand | over"];
    a_number_of_64_digits_with_a_point_and_a_sign_is_none_too_many:
        body(&format!("let h = a * 0.{}e-10", "1".repeat(61))) => [];
    a_number_of_65_digits_is_too_long: body(&format!("let h = a * {}", "1".repeat(65))) =>
        ["2:13 this number has more than 64 digits"];
    letters_behind_a_number_are_no_digits: body(&format!("let h = a * 1{}", "q".repeat(200))) =>
        ["2:13 this name is longer than 128 bytes"];
    an_unclosed_parenthesis: body("let h = gelu(a") => ["2:13 this `(` is never closed by a `)` | \
        put `)` behind `a`"];
    an_unclosed_bracket: body("let h: [A, B = a") => ["2:8 this `[` is never closed by a `]`"];
    an_unclosed_brace: body("let h: A_{data = a") => ["2:10 this `{` is never closed by a `}`"];
    an_unopened_parenthesis: body("let h = gelu(a))") => ["2:16 this `)` closes nothing"];
    a_value_that_starts_upper_case: body("let H = a") => ["2:5 `H` cannot name a value: a value \
        starts with a lower-case letter or `_` | h"];
    a_reserved_name: body("let gelu = a") => ["2:5 `gelu` is a word of the language and cannot \
        name a value or layer | another name, such as `gelu_out`"];
    a_word_of_items_is_no_name_and_not_kept_for_later: body("let phase = a") => ["2:5 `phase` is \
        a word of the language and cannot name a value or layer | another name, such as \
        `phase_out`"];
    a_name_kept_for_later: body("let grad = a") => ["2:5 `grad` is kept for a later version of \
        the language and cannot name a value or layer | another name, such as `grad_in`"];
    an_expectation_of_nothing: body("expect") => ["2:7 expected `no`, `strategy` or what is \
        measured, such as `comm` or `all-gathers`, found `return`"];
    an_expectation_without_a_sign: body("expect comm 40us") => ["2:13 expected `of` or a \
        comparison such as `<=`, found `40us`"];
    an_expectation_without_an_amount: body("expect comm <=") => ["2:15 expected an amount such as \
        `2` or `40us`, found `return`"];
    an_expectation_with_two_signs: body("expect comm <= <= 3us") => ["2:16 expected an amount \
        such as `2` or `40us`, found `<`"];
    a_misspelt_expect: body("expct comm <= 3us") => ["2:1 unknown word `expct`, where `expect` \
        could stand | expect"];
    an_expectation_outside_a_layer: errors("expect comm <= 3us") => ["1:1 `expect` stands outside \
        any layer"];
    a_comment_with_a_hash: body("let h = a # let b = a") => ["2:11 no comment starts with `#` | // \
        ...    (comments start with `//`)"];
    a_comment_with_an_end: body("let h = a /* let b\n = */") => ["2:11 no comment starts with `/*` \
        | // ...    (comments start with `//`)"];
    a_strange_character: body("let h = a £ a") => ["2:11 `£` is no character of the language"];
    an_unknown_dtype: body("let h: bfloat16 A = a") => ["2:8 unknown dtype `bfloat16` | bf16"];
    a_split_into_one: body("let h = split(a, A -> B)") => ["2:23 `split` needs two dims or more \
        here, major first, and one stands here"];
    a_merge_of_one: body("let h = merge(a, A -> B)") => ["2:18 `merge` needs two dims or more \
        here, major first, and one stands here"];
    a_float_beyond_all: body("let h = a * 1e999") => ["2:13 `1e999` is larger than any number of \
        the language"];
    a_missing_over: body("let h = softmax(a)") => ["2:9 `softmax` goes over dims, which it names \
        | softmax(a over E)"];
    a_keyword_as_a_value: body("let h = sum + a") => ["2:13 expected `(`, found `+`"];
    a_doubled_comma: body("let h = f(a,,a)") => ["2:13 expected `)` or an expression, found `,`"];
    a_phase_without_braces: errors("phase prefill L = 4") => ["1:15 expected `repeat` or `{`, \
        found `L`"];
    a_phase_left_open: errors("phase prefill { L = 4\nlayer f(a: f32 A) -> f32 A { return a }")
        => ["1:15 this `{` is never closed by a `}` | put `}` behind `4`"];
    a_missing_dtype: errors("layer f(a: A_x) -> f32 A { return a }") => ["1:12 this type has no \
        dtype | bf16 A_x"];
    a_missing_result: errors("layer f(a: f32 A) { return a }") => ["1:19 expected `->`, found `{` | \
        -> f32 A    (the type of what is returned)"];
    a_missing_body_brace: errors("layer f(a: f32 A) -> f32 A\nlet b = a }") => ["1:27 expected \
        `repeat` or `{`, found `let`"];
    a_word_before_the_sign_of_a_let: body("let h k = a") => ["2:7 expected `:` or `=`, found `k`"];
    a_list_of_dims_that_lacks_its_comma: body("let h = causal(a over A B)") => ["2:25 expected \
        `,`, found `B` | put `,` before `B`"];
    a_missing_closing_brace: errors("layer f(a: f32 A) -> f32 A {\nreturn a\nlayer g(a: f32 A) -> \
        f32 A { return a }")
        => ["1:28 this `{` is never closed by a `}` | close the layer with `}`"];
    a_brace_too_many: errors("layer f(a: f32 A) -> f32 A { return a } }") => ["1:41 this `}` \
        closes nothing | remove it"];
    a_statement_outside: errors("let a = b\nlet c = d") => ["1:1 `let` stands outside any layer"];
    a_value_that_is_near_the_word_layer: body("let layers = a return (layers)") => [];
    a_misspelt_item: errors("dim A = 3\ndmi B = 4") => ["2:1 unknown word `dmi`, where `dim` \
        could stand | dim"];
    a_misspelt_first_item: errors("laeyr f() {}") => ["1:1 unknown word `laeyr`, where `layer` \
        could stand | layer"];
    a_lower_case_dim: errors("dim b = 3") => ["1:5 `b` cannot name a dim: a dim is an upper-case \
        letter, then letters and digits | B"];
    an_upper_case_axis: errors("mesh X=3") => ["1:6 `X` cannot name a mesh axis: an axis is a \
        lower-case letter, then letters and digits | x"];
    a_mesh_size_with_a_point: errors("mesh x=3.5") => ["1:8 `3.5` is not a whole number"];
    a_missing_mesh_comma: errors("mesh x=3 y=4") => ["1:10 expected `,` or the next item, found \
        `y` | put `,` before `y`"];
    an_unfinished_dim: errors("dim A = 3 *") => ["1:12 expected a size (a number, a dim or `(`), \
        found the end of the file"];
    an_unclosed_string: errors("hardware \"abc\ndim A = 3") => ["1:10 this string has no closing \
        `\"` on its line"];
    a_size_with_too_many_digits: errors("dim A = 1234567890123456789") => ["1:9 this number has \
        more than 18 digits"];
    a_misplaced_word: errors("foo\ndim A = 3") => ["1:1 expected `hardware`, `mesh`, `dim`, \
        `phase`, `layer`, `strict layer` or `model`, found `foo`"];
    an_open_parameter_list: errors("layer f(a: f32 A -> f32 A { return a }") => ["1:18 expected \
        `)` or `,`, found `->`"];
}

#[test]
fn several_errors_of_one_file_are_reported_in_order() {
    let found = errors(
        "mesh x 4\ndim b = 3\nlayer f(X: f32 A) -> f32 A {\nlet h gelu(X)\nlet k = (h\nretrun \
            k\n}\nlayer g() -> f32 A { return }",
    );
    let places: Vec<&str> = found.iter().map(|error| error.split(' ').next().unwrap()).collect();
    assert_eq!(places, ["1:8", "2:5", "3:9", "4:7", "6:1", "8:28"]);
}

#[test]
fn applying_the_edits_mends_the_file() {
    let mut text = "dmi A = 4\nlayer F(a: bfloat16 A, b: A) -> f32 A {\n  lte h = maximum(a \
        b);\n  let k gelu(h)\n  m = k\n  return (h + k\n}\n"
        .to_string();
    for _ in 0..12 {
        let parsed = parse(&SourceFile::new("t", text.as_str()));
        let Some(error) = parsed.errors.first() else { return };
        let fix = error.fix.as_ref().unwrap_or_else(|| panic!("{error} has no edit in {text}"));
        text.replace_range(fix.span.start..fix.span.end, &fix.replacement);
    }
    panic!("still wrong: {text}");
}

#[test]
fn an_open_parenthesis_is_pointed_at() {
    let parsed = parse(&SourceFile::new("t", "layer f(a: f32 A -> f32 A { return a }"));
    assert_eq!(parsed.errors[0].note.as_ref().unwrap().text, "this `(` is still open");
    assert_eq!(parsed.errors[0].expected(), ["`)`", "`,`"]);
    assert_eq!(parsed.errors[0].found(), "`->`");
}

#[test]
fn limits_are_errors() {
    let nested = format!("dim A = {}1{}", "(".repeat(65), ")".repeat(65));
    assert_eq!(
        errors(&nested)[0],
        "1:73 brackets are nested more than 64 deep | name a part of it with `let`"
    );
    assert!(errors(&format!("dim A = {}1{}", "(".repeat(64), ")".repeat(64))).is_empty());
    let chain = |terms: usize| body(&format!("let h = a{}", " + a".repeat(terms)));
    assert!(chain(256).is_empty());
    assert!(body(&format!("let h = {}a", "-".repeat(256))).is_empty());
    assert!(body(&format!("let h = {}a", "-".repeat(257)))[0].contains("one upon another"));
    assert!(chain(257)[0].contains("more than 256 operations one upon another"));
    assert!(chain(10_000)[0].contains("more than 256 operations one upon another"));
    assert!(body(&format!("let h = {}a", "-".repeat(100_000)))[0].contains("one upon another"));
    assert!(errors(&format!("dim A = 1{}", " + 1".repeat(10_000)))[0].contains("one upon another"));
    assert!(body(&format!("let {} = a", "b".repeat(200)))[0].contains("longer than 128 bytes"));
    assert!(body(&format!("let b = {}", "1".repeat(200)))[0].contains("more than 64 digits"));
    let large = SourceFile::new("t", " ".repeat((1 << 20) + 1));
    assert!(matches!(parse(&large).errors[0].kind, SyntaxErrorKind::FileTooLarge { .. }));
    assert_eq!(errors(&"dim b = 3\n".repeat(1000)).len(), 50);
}

#[test]
fn warnings_name_docs_of_nothing_and_calls_over_lines() {
    let text = "//! file\n/// dim\ndim A = 3\n//! late\nlayer f(a: f32 A) -> f32 A {\n  let b = \
        a\n  /// stray\n  return g\n  (b)\n}\n";
    let parsed = parse(&SourceFile::new("t", text));
    assert_eq!(parsed.errors, []);
    let warnings: Vec<String> = parsed.warnings.iter().map(|warning| warning.to_string()).collect();
    assert_eq!(
        warnings,
        [
            "this `//!` is not at the top of the file, so it documents nothing",
            "this `///` documents nothing: no item, parameter or `let` starts below it",
            "this is a call of `g`, although its `(` stands on a later line: line ends mean \
                nothing",
        ]
    );
}
