//! Attention as one kernel: where it is found, and what it costs.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, InstrPrice, kernels, price};
use shard_grammar::SourceFile;
use shard_ir::{Collective, InstrKind, Plan, Program};
use shard_search::{LowerOptions, lower};

const HEAD: &str = "mesh x=4\ndim B = 4\ndim L = 2048\ndim S = 2048\ndim H = 8\ndim K = 2\n\
    dim G = 4\ndim Q = 128\ndim R = 64\ndim C = 512\ndim O = 1\ndim N = 64\ndim T = 131072\n\
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

/// What the kernel of an attention does: its flops, and the bytes that it reads and writes.
fn of_attention(plan: &Plan, hardware: &Hardware) -> (u128, u64) {
    let softmax = plan.ids().find(|id| plan.instruction(*id).origin.attention).expect("a softmax");
    let kernel = kernels(plan).into_iter().find(|kernel| kernel.contains(&softmax));
    let first = kernel.expect("a kernel")[0];
    match &price(plan, hardware).instructions[first.index()] {
        InstrPrice::Kernel { flops, hbm_bytes, .. } => (flops.0, hbm_bytes.0),
        other => panic!("{other:?} is no kernel"),
    }
}

/// The pairs of the busiest device, and the most keys that a device reads, counted one by one.
/// Queries and keys are each given as positions and blocks, and the window as positions.
fn counted(queries: [u64; 2], keys: [u64; 2], window: u64) -> (u128, u64) {
    let (tall, wide) = (queries[0] / queries[1], keys[0] / keys[1]);
    let mut most = (0u128, 0u64);
    for (a, b) in (0..queries[1]).flat_map(|a| (0..keys[1]).map(move |b| (a, b))) {
        let mut read = vec![false; wide as usize];
        let mut pairs = 0u128;
        for own in (a * tall..(a + 1) * tall).map(|query| keys[0] - queries[0] + query) {
            for key in b * wide..(b + 1) * wide {
                if key <= own && own - key < window {
                    read[(key - b * wide) as usize] = true;
                    pairs += 1;
                }
            }
        }
        most.0 = most.0.max(pairs);
        most.1 = most.1.max(read.iter().filter(|read| **read).count() as u64);
    }
    most
}

#[test]
fn keys_that_are_split_count_the_pairs_of_the_busiest_device_and_are_read_as_far_as_a_window_shows()
{
    // Queries, of which few make a merge cheaper than a gather, and the window. Where it is
    // narrower than a block, one reads the others' keys for nothing.
    for (dim, queries, window) in [
        ("N", 64u64, 20_000u64),
        ("N", 64, 300),
        ("N", 64, 40_000),
        ("O", 1, 1000),
        ("N", 64, 131_072),
    ] {
        let text = format!(
            "q: bf16 B{dim}HQ, k: bf16 BT_xHQ, v: bf16 BT_xHQ) -> bf16 B{dim}HQ {{
 let s = causal(einsum(q, k -> BH{dim}T) over {dim}, T, {window})
 return einsum(softmax(s over T), v -> B{dim}HQ)\n}}"
        );
        let hardware = chip(true);
        let plan = plan(&text, &hardware);
        let layouts = shard_ir::text::print(&plan);
        assert!(layouts.contains("(partialsoftmax-x)"), "{layouts}");
        let (pairs, keys) = counted([queries, 1], [131_072, 4], window);
        let (flops, bytes) = of_attention(&plan, &hardware);
        assert_eq!(flops, 2 * 2 * 4 * 8 * 128 * pairs, "{text}");
        let rows = 4 * 8 * 2 * 128;
        // Queries, keys and values read, the result written with its two bytes, statistics in four.
        assert_eq!(bytes, 2 * rows * keys + 2 * rows * queries + 4 * 4 * 8 * queries, "{text}");
    }
}

/// How many pairs of a query and a key count for each head in an attention with such scores.
fn pairs(scores: &str) -> u128 {
    let hardware = chip(true);
    let text = format!(
        "q: bf16 BLHQ, k: bf16 BSHQ, v: bf16 BSHQ) -> bf16 B_xLHQ {{
 let s = einsum(q, k -> BHLS)\n return einsum(softmax({scores} over S), v -> BLHQ)\n}}"
    );
    let (flops, _) = of_attention(&plan(&text, &hardware), &hardware);
    flops / (2 * 2 * 8 * 128)
}

#[test]
fn a_map_behind_a_mask_shows_again_what_the_mask_hides() {
    let (all, half) = (2048 * 2048, 2048 * 2049 / 2);
    assert_eq!(pairs("tanh(causal(s over L, S))"), all);
    assert_eq!(pairs("maximum(causal(s over L, S), -9.0)"), all);
    assert_eq!(pairs("causal(tanh(s) over L, S)"), half);
    assert_eq!(pairs("causal(s over L, S) / 3.0 - 1.0"), half);
    assert_eq!(pairs("causal(s over L, S) * 0.5"), half);
    assert_eq!(pairs("cast(cast(causal(s over L, S), f32) + 1.0, bf16)"), half);
}

#[test]
fn a_factor_behind_a_mask_that_is_not_positive_shows_again_what_the_mask_hides() {
    let all = 2048 * 2048;
    for factor in ["* -0.5", "/ -3.0", "* 0.0", "* 0.5 * -1.0"] {
        assert_eq!(pairs(&format!("causal(s over L, S) {factor}")), all, "{factor}");
    }
    assert_eq!(pairs("causal(s * -0.5 over L, S)"), 2048 * 2049 / 2);
}

#[test]
fn queries_that_are_split_read_the_keys_that_their_windows_show() {
    for window in [1u64, 100, 256, 2000, 2048] {
        let text = format!(
            "q: bf16 BL_xHQ, k: bf16 BSHQ, v: bf16 BSHQ) -> bf16 BL_xHQ {{
 let s = causal(einsum(q, k -> BHLS) over L, S, {window})
 return einsum(softmax(s over S), v -> BLHQ)\n}}"
        );
        let hardware = chip(true);
        let plan = plan(&text, &hardware);
        let (pairs, keys) = counted([2048, 4], [2048, 1], window);
        assert_eq!(keys, 2048.min(512 + window - 1));
        let (flops, bytes) = of_attention(&plan, &hardware);
        let rows = 4 * 8 * 2 * 128;
        assert_eq!(
            (flops, bytes),
            (2 * 2 * 4 * 8 * 128 * pairs, 2 * rows * (keys + 512)),
            "{text}"
        );
    }
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
