//! Layout words, partials and dim lists, read alone.

use shard_grammar::ast::{DimsForm, PartialOp};
use shard_grammar::{
    Span, parse_dim_list, parse_layout_with_partial, parse_layout_word, print_dim_list,
    print_layout_word, print_partial,
};

/// These words print back as they were written.
macro_rules! prints_back {
    ($($name:ident: $($word:literal),+;)*) => {$(
        #[test]
        fn $name() {
            $({
                let (word, partial) = parse_layout_with_partial($word, 0).expect($word);
                assert_eq!(print_layout_word(&word) + &print_partial(&partial), $word);
            })+
        }
    )*};
}

prints_back! {
    compact_words_print_back: "BLE", "BLE_xyz", "B_xyLE_z", "E2_x", "E_{data}F_{model}", "E_(xy)", "E_({data,model})", "A12B3_yC";
    free_words_print_back: "BLE?", "B_xLE?", "BLE?l", "[Batch_x]?same1", "E_(xy)?";
    bracketed_words_print_back: "[]", "[Batch_{data}, Seq, Embed_{fsdp,model}]", "[B_x, D_yz]", "[B]", "[Heads_(xy)]";
    partials_print_back: "BLF_yz(partialsum-x)", "BLF(partialsum-x, partialmax-y)", "[](partialsum-xy)", "B(partialsum-{data,model})";
}

/// This word is refused at these bytes, with this message and help.
macro_rules! refuses {
    ($($name:ident: $word:literal at $span:expr => $message:literal, $help:expr;)*) => {$(
        #[test]
        fn $name() {
            let error = parse_layout_with_partial($word, 100).expect_err($word);
            assert_eq!((error.message.as_str(), error.help.as_deref()), ($message, $help));
            assert_eq!(error.span, Span::new(100 + $span.start, 100 + $span.end));
        }
    )*};
}

refuses! {
    an_axis_needs_an_underscore: "BLEx" at 3..4
        => "`x` is no dim: dims are upper-case letters, and mesh axes stand behind `_`", Some("BLE_x");
    a_long_dim_needs_brackets: "Batch_x" at 1..5
        => "a dim with a name longer than one letter stands in brackets, `atch` does not", Some("[Batch_x]");
    a_dim_has_one_subscript: "B_x_y" at 3..4 => "dim `B` has a second `_`: all its axes stand \
        behind one, major first", None;
    an_upper_case_axis_is_refused: "B_X" at 2..3 => "`X` stands where a mesh axis is expected: \
        axes are lower-case", Some("x");
    an_underscore_needs_axes: "BL_" at 2..3 => "expected a mesh axis, found the end", None;
    an_axis_with_digits_needs_braces: "B_x1" at 2..4
        => "mesh axis `x1` has a name longer than one letter, so it stands in braces", Some("{x1}");
    empty_braces_are_refused: "B_{}" at 2..4 => "no mesh axis stands in these braces", None;
    a_partial_has_no_order: "B(partialsum-(xy))" at 13..14 => "the axes of a partial have no \
        order, so they need no parentheses", None;
    a_partial_needs_its_word: "B(sum-x)" at 2..5 => "expected `partialsum-` or `partialmax-` and \
        mesh axes, found `sum`", None;
    a_partial_has_a_dash: "B(partialsum_x)" at 12..13
        => "expected `-` and mesh axes behind `partialsum`, found `_`", Some("partialsum-x");
    what_stands_behind_is_refused: "B_x C" at 4..5 => "`C` stands behind the layout", None;
    a_label_starts_lower_case: "BL?Q" at 3..4 => "expected a layout label (a lower-case letter, \
        then letters and digits), found `Q`", None;
    other_characters_are_refused: "Bé" at 1..3 => "`é` stands behind the layout", None;
    an_open_bracket_is_refused: "[B" at 2..2 => "expected `,` or `]`, found the end", None;
    an_empty_text_is_refused: "" at 0..0 => "expected a dim (an upper-case letter) or `[`, found \
        the end", None;
}

#[test]
fn each_dim_and_each_axis_has_its_place() {
    let word = parse_layout_word("B_xyLE_{data,model}?l", 10).unwrap();
    let axes = word.dims[0].axes.as_ref().unwrap();
    assert_eq!((word.dims[0].span, word.dims[0].name.span), (Span::new(10, 14), Span::new(10, 11)));
    assert_eq!((axes.axes[0].span, axes.axes[1].span), (Span::new(12, 13), Span::new(13, 14)));
    assert_eq!(word.dims[1].span, Span::new(14, 15));
    assert_eq!(word.dims[2].axes.as_ref().unwrap().axes[1].span, Span::new(23, 28));
    assert_eq!(word.free.unwrap().label.unwrap().span, Span::new(30, 31));
    assert_eq!(word.span, Span::new(10, 31));
}

#[test]
fn a_subscript_that_spells_a_word_keeps_its_text() {
    let word = parse_layout_word("B_data", 0).unwrap();
    let axes = word.dims[0].axes.as_ref().unwrap();
    assert_eq!((axes.raw.as_str(), axes.axes.len()), ("data", 4));
    let (_, partial) = parse_layout_with_partial("B (partialsum-data)", 0).unwrap();
    assert_eq!((partial[0].axes.raw.as_str(), partial[0].op.value), ("data", PartialOp::Sum));
}

#[test]
fn dim_lists_come_in_three_forms() {
    for (text, form, count) in [
        ("BLF", DimsForm::Compact, 3),
        ("E2F", DimsForm::Compact, 2),
        ("[Batch, Seq]", DimsForm::Bracketed, 2),
        ("[]", DimsForm::Bracketed, 0),
        ("Seq", DimsForm::Single, 1),
        ("BATCH", DimsForm::Compact, 5),
    ] {
        let list = parse_dim_list(text, 0).unwrap();
        assert_eq!((list.form, list.dims.len(), list.raw.as_str()), (form, count, text));
        assert_eq!(print_dim_list(&list), text);
    }
}

#[test]
fn a_dim_list_has_no_axes() {
    for (text, help) in
        [("BLF_x", "BLF"), ("[Batch_{data}, Seq]", "[Batch, Seq]"), ("BL?", "BL"), ("B_xL", "BL")]
    {
        let error = parse_dim_list(text, 7).unwrap_err();
        assert_eq!(error.help.as_deref(), Some(help));
    }
}

#[test]
fn words_with_too_many_parts_are_refused() {
    assert!(parse_layout_word(&"B".repeat(64), 0).is_ok());
    assert!(parse_layout_word(&"B".repeat(65), 0).is_err());
    assert!(parse_layout_word(&format!("[{}]", "A".repeat(200)), 0).is_err());
}
