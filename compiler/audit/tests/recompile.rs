//! Edits that are tried by compiling: which texts XLA gets, and what becomes of the HLO that it
//! gives. A dump stands in for XLA here.

use crate::common::{counts, mesh, own};
use shard_audit::before::recompile::{Compiled, Subject, recompile};
use shard_audit::before::{advise, read, translate};
use shard_audit::compare::{AdviceKind, Comparison, Tried};
use shard_cost::Hardware;

/// Compares a program, with a compiler that gives the dump that `dump` names for the program's text
/// and the text that is compiled. Gives the comparison and every text that was compiled.
fn tried(
    program: &str,
    dump: impl Fn(&str, &str) -> Result<&'static str, String>,
) -> (Comparison, Vec<String>) {
    let folder = own().join(program);
    let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
    compiled(&text, &mesh(&counts(&folder)), |edited| {
        let file = dump(&text, edited)?;
        Ok(std::fs::read_to_string(folder.join(file)).expect("a dump"))
    })
}

/// Compares a program, with a compiler that gives HLO for a text.
fn compiled(
    text: &str,
    mesh: &[(String, u64)],
    hlo: impl Fn(&str) -> Result<String, String>,
) -> (Comparison, Vec<String>) {
    let before = read::read(text, None).expect("it is right");
    let layer = translate::translate(&before).expect("it is translated");
    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
    let mut files = |_: &str| None;
    let (mut found, steps) = advise::compare(&layer, mesh, &hardware, 0, &mut files);
    let mut texts = Vec::new();
    let subject = Subject { text, stable: &before, layer: &layer, mesh, hardware: &hardware };
    recompile(subject, &steps, &mut found, &mut |edited| {
        texts.push(edited.to_string());
        Ok(Compiled { text: hlo(edited)?, platform: "cpu".to_string() })
    });
    (found, texts)
}

/// HLO that adds up 512 x 512 floats over `model` so many times, one after another.
fn sums(count: usize) -> String {
    let sum = |at: usize| {
        let root = if at == count { "ROOT " } else { "" };
        let before = at - 1;
        format!(
            "  {root}%s{at} = f32[512,512]{{1,0}} all-reduce(%s{before}), \
                replica_groups=[2,4]<=[8], to_apply=%add\n"
        )
    };
    let sums: String = (1..=count).map(sum).collect();
    format!(
        "HloModule two, num_partitions=8\n\n\
            %add (x: f32[], y: f32[]) -> f32[] {{\n  %x = f32[] parameter(0)\n  \
            %y = f32[] parameter(1)\n  ROOT %z = f32[] add(%x, %y)\n}}\n\n\
            ENTRY %main (s0: f32[512,512]) -> f32[512,512] {{\n  \
            %s0 = f32[512,512]{{1,0}} parameter(0)\n{sums}}}\n"
    )
}

fn axes() -> Vec<(String, u64)> {
    vec![("data".to_string(), 2), ("model".to_string(), 4)]
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
    assert_eq!((advice.value.as_str(), advice.tried), ("w_out", Tried::Compiled));
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
    // It has tried constraints as well, each on a line of its own, behind the op that makes the
    // value or before the op that takes it.
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
    assert_eq!((advice.kind, advice.tried), (AdviceKind::Constraint, Tried::Compiled));
    assert_eq!(advice.saves_bytes, 14155776 - 3145728);
    assert!(advice.source.is_some() && advice.to.starts_with("P("), "{advice:?}");
}

#[test]
fn where_nothing_is_compiled_the_advice_stays_lowered_and_the_reason_is_said() {
    let (found, _) = tried("bad_wout_columns", |_, _| Err("no XLA here".to_string()));
    assert_eq!((found.compiled, found.not_compiled.as_deref()), (None, Some("no XLA here")));
    assert!(found.advice.iter().all(|advice| advice.tried == Tried::Lowered));
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
        assert!(found.advice.iter().any(|advice| advice.tried == Tried::Compiled), "{name}");
    }
}

/// `tanh(a @ w + b @ v)`, both products split over what they sum.
const TWO: &str = r#"
module @jit_two {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func public @main(%arg0: tensor<512x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, %arg1: tensor<512x4096xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, %arg2: tensor<4096x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, %arg3: tensor<4096x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}) -> (tensor<512x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
    %0 = stablehlo.dot_general %arg0, %arg2, contracting_dims = [1] x [0] : (tensor<512x4096xf32>, tensor<4096x512xf32>) -> tensor<512x512xf32> loc(#loc19)
    %1 = stablehlo.dot_general %arg1, %arg3, contracting_dims = [1] x [0] : (tensor<512x4096xf32>, tensor<4096x512xf32>) -> tensor<512x512xf32> loc(#loc19)
    %2 = stablehlo.add %0, %1 : tensor<512x512xf32> loc(#loc20)
    %3 = stablehlo.tanh %2 : tensor<512x512xf32>
    return %3 : tensor<512x512xf32>
  }
}
#loc5 = loc("two.py":10:34 to :37)
#loc19 = loc("jit(two)/transpose(jvp())/dot_general"(#loc5))
#loc20 = loc("jit(two)/add"(#loc5))
"#;

#[test]
fn terms_are_asked_for_where_the_plan_adds_them_up_before_it_completes_them() {
    let (found, texts) = compiled(TWO, &axes(), |edited| {
        let terms = edited.matches(", unreduced={\"model\"}>").count();
        Ok(sums(if terms == 3 { 1 } else { 2 }))
    });
    let compiled = found.compiled.expect("it was compiled");
    assert_eq!((compiled.edited, compiled.as_is), (1_572_864, 3_145_728));
    let terms: Vec<_> = found.advice.iter().filter(|one| one.to.contains("unreduced")).collect();
    assert_eq!(terms.len(), 3, "{:?}", found.advice);
    assert!(terms.iter().all(|one| one.to.ends_with(", unreduced={\"model\"})")), "{terms:?}");
    // No line of the program states an op that differentiation makes.
    let of_gradient = terms.iter().filter(|one| one.value.ends_with(", in the gradient"));
    assert_eq!(of_gradient.count(), 2, "{:?}", found.advice);
    // Behind the terms of the sum the sum is complete.
    let complete = |text: &&String| {
        text.contains("%2 = sdy.sharding_constraint %shardc_")
            && text.contains("stablehlo.add %0, %1")
            && text.matches("unreduced").count() == 3
    };
    let text = texts.iter().find(complete).expect("a text with the terms and the sum");
    read::read(text, None).expect("an edited text is one that can be read");
}

/// Rows that are added to a table by their ids: the gradient of a look-up.
const ROWS: &str = r#"
module @jit_step {
  sdy.mesh @mesh = <["data"=2, "model"=4]>
  func.func public @main(%arg0: tensor<4096x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}, %arg1: tensor<64x1xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, %arg2: tensor<64x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) -> (tensor<4096x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>}) {
    %6 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %7 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %7 : tensor<f32>
    }) : (tensor<4096x512xf32>, tensor<64x1xi32>, tensor<64x512xf32>) -> tensor<4096x512xf32> loc(#loc14)
    return %6 : tensor<4096x512xf32>
  }
}
#loc4 = loc("rows.py":8:11 to :34)
#loc14 = loc("jit(step)/scatter-add"(#loc4))
"#;

#[test]
fn rows_that_are_added_up_are_asked_for_with_their_ids() {
    let (found, texts) = compiled(ROWS, &axes(), |edited| {
        let constraints = edited.matches("sdy.sharding_constraint").count();
        let whole = ["%arg1 <@mesh, [{}, {?}]>", "%arg2 <@mesh, [{}, {}]>"];
        let are_there = whole.iter().all(|word| edited.contains(word));
        // With a constraint on the rows alone this XLA sends as before, and so it does with more
        // constraints than these two.
        Ok(sums(if are_there && constraints == 2 { 0 } else { 1 }))
    });
    let found = found.advice.iter().filter(|one| one.kind == AdviceKind::Constraint);
    let found: Vec<_> = found.map(|one| (one.to.as_str(), one.source.is_some())).collect();
    assert_eq!(found, [("P(None, None)", true), ("P(None, None)", true)], "{}", texts.len());
}

#[test]
fn a_program_that_keeps_terms_has_the_optimum_of_one_that_leaves_it_open() {
    let (open, _) = compiled(TWO, &axes(), |_| Ok(sums(1)));
    let kept = r#"stablehlo.dot_general %arg1, %arg3, contracting_dims = [1] x [0] : (tensor<512x4096xf32>, tensor<4096x512xf32>) -> tensor<512x512xf32> loc(#loc19)
    %1 = sdy.sharding_constraint %9 <@mesh, [{}, {}], unreduced={"model"}> : tensor<512x512xf32>"#;
    let begin = kept.split_once('\n').expect("two lines").0;
    let text = TWO.replace(&format!("%1 = {begin}"), &format!("%9 = {kept}"));
    assert_ne!(text, TWO);
    let (found, _) = compiled(&text, &axes(), |_| Ok(sums(1)));
    assert_eq!(found.same_specs, open.same_specs);
    assert!(found.barriers.is_empty(), "{:?}", found.barriers);
}

#[test]
fn a_stack_that_is_laid_out_anew_sends_the_bytes_of_its_dtype() {
    let folder = own().join("bad_stack_axis");
    let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
    let sent = |dtype: &str| {
        let mesh = mesh(&counts(&folder));
        let (found, _) = compiled(&text.replace("f32", dtype), &mesh, |_| Ok(sums(1)));
        found.same_specs.expect("an optimum").wire_bytes
    };
    let floats = sent("f32");
    for (dtype, times) in [("bf16", 2), ("f8E4M3FN", 4), ("f4E2M1FN", 8)] {
        assert_eq!(sent(dtype) * times, floats, "{dtype}");
    }
}
