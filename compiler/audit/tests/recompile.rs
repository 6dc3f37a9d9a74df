//! Edits that are tried by compiling: what is handed to XLA, and what becomes of what it gives. XLA
//! is a dump here.

#![allow(missing_docs)]

mod common;

use common::{counts, mesh, own};
use shard_audit::before::recompile::{Compiled, Subject, recompile};
use shard_audit::before::{advise, read, translate};
use shard_audit::compare::{AdviceKind, Comparison};
use shard_cost::Hardware;

/// Compares a program, with a compiler that gives dumps: which, by the text that it is handed.
/// Gives what was found and every text.
fn tried(
    program: &str,
    dump: impl Fn(&str, &str) -> Result<&'static str, String>,
) -> (Comparison, Vec<String>) {
    let folder = own().join(program);
    let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
    let mesh = mesh(&counts(&folder));
    let before = read::read(&text, None).expect("it is right");
    let layer = translate::translate(&before).expect("it is translated");
    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
    let mut files = |_: &str| None;
    let (mut found, steps) = advise::compare(&layer, &mesh, &hardware, 0, &mut files);
    let mut texts = Vec::new();
    let subject =
        Subject { text: &text, stable: &before, layer: &layer, mesh: &mesh, hardware: &hardware };
    recompile(subject, &steps, &mut found, &mut |edited| {
        texts.push(edited.to_string());
        let file = dump(&text, edited)?;
        let text = std::fs::read_to_string(folder.join(file)).expect("a dump");
        Ok(Compiled { text, platform: "cpu".to_string() })
    });
    (found, texts)
}

/// The lines that differ.
fn changed(before: &str, after: &str) -> Vec<String> {
    let known: Vec<&str> = before.lines().collect();
    after.lines().filter(|line| !known.contains(line)).map(ToString::to_string).collect()
}

#[test]
fn an_edit_of_a_spec_is_handed_over_and_what_it_saves_is_what_xla_saves() {
    let (found, texts) = tried("bad_wout_columns", |before, edited| {
        Ok(if before == edited { "cpu.hlo" } else { "cpu.fixed.hlo" })
    });
    let compiled = found.compiled.expect("it was compiled");
    assert_eq!((compiled.as_is, compiled.edited, compiled.optimum), (14155776, 3145728, 3145728));
    assert_eq!((compiled.constraints, compiled.compilations, texts.len()), (0, 2, 2));
    let [advice] = &found.advice[..] else { panic!("{:?}", found.advice) };
    assert_eq!((advice.value.as_str(), advice.tried), ("w_out", "compiled"));
    assert_eq!(advice.saves_bytes, 14155776 - 3145728);
    let [line] = &changed(&texts[0], &texts[1])[..] else { panic!("one line is edited") };
    assert!(line.contains(r#"<@mesh, [{"model"}, {}]>} loc("w_out")"#), "{line}");
}

#[test]
fn where_xla_sends_no_less_the_advice_is_taken_back_and_what_is_left_is_said() {
    let (found, texts) = tried("bad_wout_columns", |_, _| Ok("cpu.hlo"));
    let compiled = found.compiled.expect("it was compiled");
    assert_eq!((found.advice.len(), compiled.edited), (0, compiled.as_is));
    assert_eq!(compiled.left.iter().map(|left| left.wire_bytes).sum::<u64>(), 14155776);
    // It has asked for constraints as well, each a line of its own behind what makes the value or
    // before what takes it.
    let new: Vec<String> = texts.iter().flat_map(|text| changed(&texts[0], text)).collect();
    assert!(new.iter().any(|line| line.contains("sdy.sharding_constraint %shardc_0 <@mesh, [")));
    for text in &texts {
        read::read(text, None).expect("an edited text is one that can be read");
    }
}

#[test]
fn constraints_that_make_it_near_are_advice_with_their_lines_and_no_more_than_are_needed() {
    let (found, _) = tried("bad_wout_columns", |_, edited| {
        let constrained = edited.contains("%shardc_0");
        Ok(if constrained { "cpu.fixed.hlo" } else { "cpu.hlo" })
    });
    let compiled = found.compiled.expect("it was compiled");
    assert_eq!((compiled.edited, compiled.constraints, compiled.left.len()), (3145728, 1, 0));
    let [advice] = &found.advice[..] else { panic!("{:?}", found.advice) };
    assert_eq!((advice.kind, advice.tried), (AdviceKind::Constraint, "compiled"));
    assert_eq!(advice.saves_bytes, 14155776 - 3145728);
    assert!(advice.source.is_some() && advice.to.starts_with("P("), "{advice:?}");
}

#[test]
fn where_nothing_is_compiled_the_advice_stays_lowered_and_the_reason_is_said() {
    let (found, _) = tried("bad_wout_columns", |_, _| Err("no XLA here".to_string()));
    assert_eq!((found.compiled, found.not_compiled.as_deref()), (None, Some("no XLA here")));
    assert!(found.advice.iter().all(|advice| advice.tried == "lowered"));
    assert!(!found.advice.is_empty());
}

#[test]
fn results_stacks_and_constraints_are_edited_where_they_stand() {
    for name in ["bad_params_out_whole", "bad_stack_axis", "bad_lost_batch_axis"] {
        let (found, texts) = tried(name, |before, edited| {
            Ok(if before == edited { "cpu.hlo" } else { "cpu.fixed.hlo" })
        });
        let compiled = found.compiled.expect("it was compiled");
        assert!(compiled.edited < compiled.as_is && texts.len() > 1, "{name}: {compiled:?}");
        assert!(found.advice.iter().any(|advice| advice.tried == "compiled"), "{name}");
    }
}
