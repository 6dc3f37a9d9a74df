//! Attention as one kernel: where it is found, and what it costs.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, InstrPrice, kernels, price};
use shard_grammar::SourceFile;
use shard_ir::{Collective, InstrKind, Plan, Program};
use shard_search::{LowerOptions, lower};

const HEAD: &str = "mesh x=4\ndim B = 4\ndim L = 2048\ndim S = 2048\ndim H = 8\ndim K = 2\n\
    dim G = 4\ndim Q = 128\ndim R = 64\ndim C = 512\ndim O = 1\ndim T = 131072\n\
    layer f(";

fn program(text: &str) -> Program {
    let source = SourceFile::new("attention", format!("{HEAD}{text}"));
    let checked = check_source(&source, &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}");
    checked.programs.into_iter().next().expect("a layer")
}

fn chip(attention: bool) -> Hardware {
    let text = include_str!("../../cost/hardware/tpu-v5e.toml");
    let end = text.find("[kernels]").expect("the key");
    Hardware::parse(if attention { text } else { &text[..end] }).expect("a chip")
}

fn plan(text: &str, hardware: &Hardware) -> Plan {
    lower(&program(text), hardware, &LowerOptions::default()).expect("a plan").plan
}

/// The ops of the kernel that is an attention, if there is one.
fn members(plan: &Plan) -> Option<usize> {
    let softmax = plan.ids().find(|id| plan.instruction(*id).origin.attention)?;
    kernels(plan).into_iter().find(|kernel| kernel.contains(&softmax)).map(|kernel| kernel.len())
}

const MULTIHEAD: &str = "q: bf16 BLHQ_x, k: bf16 BSHQ, v: bf16 BSHQ) -> bf16 B_xLHQ {
 let s = einsum(q, k -> BHLS) / 11.0
 return einsum(softmax(causal(s over L, S) over S), v -> BLHQ)\n}";
const GROUPED: &str = "q: bf16 BLKGQ, k: bf16 BSKQ, v: bf16 BSKQ) -> bf16 B_xLKGQ {
 return einsum(softmax(einsum(q, k -> BKGLS) over S), v -> BLKGQ)\n}";
const MULTIQUERY: &str = "q: bf16 BLHQ, k: bf16 BSQ, v: bf16 BSQ) -> bf16 B_xLHQ {
 return gelu(einsum(softmax(einsum(q, k -> BHLS) over S), v -> BLHQ))\n}";
const LATENT: &str = "q: bf16 BLHC, p: bf16 BLHR, c: bf16 BSC, r: bf16 BSR) -> bf16 B_xLHC {
 let s = einsum(q, c -> BHLS) + einsum(p, r -> BHLS)
 return einsum(softmax(causal(s * 0.1 over L, S) over S), c -> BLHC)\n}";

#[test]
fn heads_groups_one_key_head_and_two_products_are_each_one_kernel() {
    for (text, count) in [(MULTIHEAD, 5), (GROUPED, 3), (MULTIQUERY, 4), (LATENT, 7)] {
        let plan = plan(text, &chip(true));
        assert_eq!(members(&plan), Some(count), "{}", shard_ir::text::print(&plan));
    }
}

#[test]
fn without_the_key_in_the_hardware_file_there_is_no_such_kernel() {
    for text in [MULTIHEAD, GROUPED, MULTIQUERY, LATENT] {
        assert_eq!(members(&plan(text, &chip(false))), None);
    }
}

#[test]
fn it_reads_queries_keys_and_values_once_and_multiplies_the_pairs_that_see_each_other() {
    let hardware = chip(true);
    let plan = plan(MULTIHEAD, &hardware);
    let price = price(&plan, &hardware);
    let kernel = price.instructions.iter().find_map(|price| match price {
        InstrPrice::Kernel { flops, hbm_bytes, .. } if flops.0 > 0 => Some((*flops, *hbm_bytes)),
        _ => None,
    });
    let (flops, bytes) = kernel.expect("a kernel");
    // One batch, 8 heads: of 2048 x 2048 pairs 2048 x 2047 / 2 are hidden.
    let pairs = 2048u128 * 2048 - 2048 * 2047 / 2;
    assert_eq!(flops.0, 2 * 2 * 8 * 128 * pairs);
    assert_eq!(bytes.0, 4 * 2 * 2048 * 8 * 128);
    assert_eq!(price.totals.flops, flops);
    // Scores are 64 MB, in bf16.
    assert!(price.memory.activations.0 < 64 << 20, "{:?}", price.memory);
}

#[test]
fn scores_that_another_reads_are_in_memory() {
    let text = "q: bf16 BLHQ, k: bf16 BSHQ, v: bf16 BSHQ) -> (y: bf16 B_xLHQ, s: bf16 B_xHLS) {
 let s = einsum(q, k -> BHLS)
 return (einsum(softmax(s over S), v -> BLHQ), s)\n}";
    assert_eq!(members(&plan(text, &chip(true))), None);
}

/// One query, keys split: the merge takes less than the gather of them.
const SPLIT: &str = "q: bf16 BOHQ, k: bf16 BT_xHQ, v: bf16 BT_xHQ) -> bf16 BOHQ {
 return einsum(softmax(einsum(q, k -> BHOT) over T), v -> BOHQ)\n}";

#[test]
fn keys_that_are_split_leave_a_partial_softmax_that_is_merged() {
    let plan = plan(SPLIT, &chip(true));
    assert_eq!(members(&plan), Some(3), "{}", shard_ir::text::print(&plan));
    let text = shard_ir::text::print(&plan);
    assert!(text.contains("BOHQ(partialsoftmax-x)"), "{text}");
    assert!(text.contains("softmax-merge") && text.contains(" by BOH"), "{text}");
    assert_eq!(shard_ir::text::print(&shard_ir::text::parse(&text).expect("a plan")[0]), text);
    let mut kinds = plan.instructions.iter().map(|instr| &instr.kind);
    let first = kinds.find(|kind| matches!(kind, InstrKind::Move(_))).map(InstrKind::name);
    assert_eq!(first, Some("softmax-merge"), "{text}");
}

#[test]
fn a_merge_that_speaks_of_other_statistics_is_refused() {
    let mut wrong = plan(SPLIT, &chip(true));
    for instr in &mut wrong.instructions {
        if let InstrKind::Move(Collective::SoftmaxMerge { statistics, .. }) = &mut instr.kind {
            *statistics = statistics.with(3);
        }
    }
    assert!(shard_ir::verify::verify(&wrong).is_err());
}

#[test]
fn a_width_that_is_split_leaves_no_such_kernel() {
    let text = "q: bf16 BLHQ_x, k: bf16 BSHQ_x, v: bf16 BSHQ) -> bf16 BLHQ {
 let s: bf16 BHLS(partialsum-x) = einsum(q, k -> BHLS)
 return einsum(softmax(s over S), v -> BLHQ)\n}";
    assert_eq!(members(&plan(text, &chip(true))), None);
}

#[test]
fn the_text_of_a_plan_says_so_and_the_word_is_held_to_the_ops() {
    let plan = plan(MULTIHEAD, &chip(true));
    let text = shard_ir::text::print(&plan);
    assert!(text.contains(" as attention ;"), "{text}");
    let read = shard_ir::text::parse(&text).expect("a plan");
    assert_eq!(shard_ir::text::print(&read[0]), text);
    let mut wrong = plan.clone();
    let marked = wrong.instructions.iter_mut().find(|i| i.origin.attention).expect("a softmax");
    marked.origin.attention = false;
    assert!(shard_ir::verify::verify(&wrong).is_ok());
    wrong.instructions[0].origin.attention = true;
    assert!(shard_ir::verify::verify(&wrong).is_err());
}
