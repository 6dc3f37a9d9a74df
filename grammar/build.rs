//! Writes the grammar that pest reads: `shard.pest`, followed by rules for the ops of the
//! catalogue. Ops that are written alike share a rule.

use shard_ops::{Code, Flag, Form, Lead, Row, Takes};
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=shard.pest");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let grammar = out.join("shard.pest");
    std::fs::write(&grammar, std::fs::read_to_string("shard.pest")? + &rules())?;
    let parser = format!(
        "/// The pieces of a file, by the rules of `shard.pest`.\n\
         #[derive(pest_derive::Parser)]\n#[grammar = {grammar:?}]\npub(crate) struct \
         ShardGrammar;\n"
    );
    std::fs::write(out.join("grammar.rs"), parser)
}

fn rules() -> String {
    let mut shapes: Vec<(String, Vec<&str>)> = Vec::new();
    for code in Code::all().filter(|code| *code != Code::Form(Form::Einsum)) {
        let Some(word) = code.row().source else { continue };
        let shape = shape(code.row());
        match shapes.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, words)) => words.push(word),
            None => shapes.push((shape, vec![word])),
        }
    }
    let forms: Vec<String> = (0..shapes.len()).map(|at| format!("form_{at}")).collect();
    // Words of ops that were added later are not reserved.
    let is_first =
        |word: &&str| Code::of_source(word).is_some_and(|code| !code.row().is(Flag::Later));
    let mut reserved: Vec<&str> =
        shapes.iter().flat_map(|(_, words)| words).copied().filter(is_first).collect();
    let mut all: Vec<&str> = shapes.iter().flat_map(|(_, words)| words).copied().collect();
    // Most words of an expression are names: the first test tells at once that none is the word of
    // an op, without trying form by form.
    let mut out = format!(
        "\nop_form = _{{ &(({}) ~ !word_char) ~ ({}) }}\nop_name = _{{ ({}) ~ !word_char }}\n",
        alternatives(&mut all),
        forms.join(" | "),
        alternatives(&mut reserved)
    );
    for (at, (shape, words)) in shapes.iter_mut().enumerate() {
        out +=
            &format!("form_{at} = {{ word_{at} ~ open_paren ~ {shape} ~ comma? ~ close_paren }}\n");
        out += &format!("word_{at} = @{{ ({}) ~ !word_char }}\n", alternatives(words));
    }
    out
}

/// A rule that matches one of some words. pest takes the first match, so longer words come first:
/// `maximum` before `max`.
fn alternatives(words: &mut [&str]) -> String {
    words.sort_by_key(|word| std::cmp::Reverse(word.len()));
    words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" | ")
}

/// What stands between the parentheses of an op.
fn shape(row: &Row) -> String {
    let mut shape = vec!["expr"; row.operands.len()].join(" ~ comma ~ ");
    for slot in row.slots {
        let lead = match slot.lead {
            Lead::Comma => "comma",
            Lead::Arrow => "arrow",
            Lead::Over => "over_word",
            Lead::At => "at_word",
        };
        shape += &match slot.takes {
            Takes::Dim => format!(" ~ {lead} ~ dim_name"),
            Takes::DimOrNothing => format!(" ~ ({lead} ~ dim_name)?"),
            Takes::ListOfOne | Takes::Dims | Takes::SeveralDims => format!(" ~ {lead} ~ dim_list"),
            Takes::Position(_) | Takes::Count(_) => format!(" ~ {lead} ~ int_expr"),
            Takes::CountOrNothing(_) => format!(" ~ ({lead} ~ int_expr)?"),
            Takes::Dtype => format!(" ~ {lead} ~ dtype"),
        };
    }
    shape
}
