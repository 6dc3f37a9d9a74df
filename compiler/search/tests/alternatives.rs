//! The best plan without each collective of the chosen one.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::InstrId;
use shard_search::{Avoided, Detail, LowerOptions, alternatives, lower};

const CHIP: &str = include_str!("../../cost/hardware/tpu-v4-flat.toml");

/// For each collective the time of the best plan without it, in picoseconds, with the kind of the
/// collective and how it is avoided.
fn of(body: &str) -> Vec<(InstrId, String, u64)> {
    let text = format!(
        "mesh x=4, y=4
dim B = 64
dim E = 8192
dim F = 8192
dim G = 65536
layer f(v: bf16 BE_xy, w: weight bf16 E_xF_y, u: weight bf16 E_yG_x) -> (a: bf16 BF_y, b: bf16 BG_x) {{
{body}
}}"
    );
    let checked =
        check_source(&SourceFile::new("test.shard", text.as_str()), &CheckOptions::default());
    let (chip, options) = (Hardware::parse(CHIP).expect("a chip"), LowerOptions::default());
    let lowered = lower(&checked.programs[0], &chip, &options).expect("it lowers");
    let found =
        alternatives(&lowered, &chip, &options, Some(Detail::Plans)).expect("they are found");
    let kind = |avoided: &Avoided| match avoided {
        Avoided::Unmoved { .. } => "unmoved",
        Avoided::Complete { .. } => "complete",
        Avoided::Whole { .. } => "whole",
        Avoided::MadeElsewhere { .. } => "made elsewhere",
    };
    found.iter().map(|a| (a.id, kind(&a.avoided).to_string(), a.time.0)).collect()
}

/// Two einsums that have no name and read one value are worded alike, and each has an answer of its
/// own.
#[test]
fn values_without_a_name_have_answers_of_their_own() {
    let named = of(
        "  let p = einsum(v, w -> BF)\n  let q = einsum(v, u -> BG)\n  return (gelu(p), gelu(q))",
    );
    let unnamed = of("  return (gelu(einsum(v, w -> BF)), gelu(einsum(v, u -> BG)))");
    // A name changes the order of the instructions and nothing that they cost.
    let answers = |all: &[(InstrId, String, u64)]| {
        let mut answers: Vec<(String, u64)> =
            all.iter().map(|(_, kind, time)| (kind.clone(), *time)).collect();
        answers.sort();
        answers
    };
    assert_eq!(answers(&unnamed), answers(&named));
    let unmoved: Vec<u64> =
        unnamed.iter().filter(|(_, kind, _)| kind == "unmoved").map(|(.., time)| *time).collect();
    assert_eq!(unmoved.len(), 2);
    assert_ne!(unmoved[0], unmoved[1]);
}
