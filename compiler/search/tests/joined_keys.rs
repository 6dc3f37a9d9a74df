//! Attention over keys and values that a `concat` joins: its plans, what they read, and what they
//! compute.

use shard_cost::{Hardware, InstrPrice, kernels, price};
use shard_ir::{InstrKind, Op, Plan, Program};
use shard_runtime::{RunOptions, in_program_order, run};
use shard_search::{LowerOptions, Status, lower};

/// Latent keys that are values, of a prefix that all prompts share.
const LATENT: &str = "q: f32 B_xHC, p: f32 PC, c: f32 B_xTC) -> f32 B_xHC {
 let keys = concat(p, c, P, T -> S)\n return einsum(softmax(einsum(q, keys -> BHS) over S), keys -> BHC)\n}";

const BODIES: &[&str] = &[
    LATENT,
    // Keys and values apart, heads in groups, a map and a cast on the way.
    "q: f32 BHGC, pk: f32 PHC, pv: f32 PHD, k: f32 BTHC, v: f32 BTHD) -> f32 BHGD {
 let s = tanh(einsum(q, concat(pk, k, P, T -> S) -> BHGS) * 0.5)
 return einsum(cast(softmax(s over S), f32), concat(pv, v, P, T -> S) -> BHGD)\n}",
    // What is there already, and a chunk of prompts under a mask; open layouts.
    "q: f32 BTHC?, pk: f32 PHC?, pv: f32 PHD?, k: f32 BTHC?, v: f32 BTHD?) -> f32 BTHD? {
 let s = causal(einsum(q, concat(pk, k, P, T -> S) -> BHTS) over T, S)
 return einsum(softmax(s over S), concat(pv, v, P, T -> S) -> BTHD)\n}",
    // A prefix, what came before, and what is new.
    "q: f32 BTHC?, p: f32 PC?, o: f32 BZC?, c: f32 BTC?) -> f32 BTHC? {
 let keys = concat(p, concat(o, c, Z, T -> A), P, A -> W)
 return einsum(softmax(causal(einsum(q, keys -> BHTW) over T, W) over W), keys -> BTHC)\n}",
    IN_BLOCKS,
    // Keys in one order, values in the other half of them; a scale for each head.
    "q: f32 BHC, pk: f32 P_xC, k: f32 BT_xC, pv: f32 P_xD, v: f32 BT_xD, g: f32 H) -> f32 BHD_x {
 let s = einsum(q, concat(pk, k, P, T -> S) -> BHS)
 return einsum(softmax(s over S), concat(pv, v, P, T -> S) -> BHD) * g\n}",
    // The prefix behind; a pin on what is joined.
    "q: f32 BHC, p: f32 PC, c: f32 BTC) -> f32 B_xHC {
 let keys: f32 B_xSC = concat(c, p, T, P -> S)
 return einsum(softmax(einsum(q, keys -> BHS) over S), keys -> BHC)\n}",
];

/// One prompt, a prefix and what is new, all in blocks: each device takes its block of both.
const IN_BLOCKS: &str = "q: f32 HC, p: f32 P_xyC, c: f32 T_xyC) -> f32 HC {
 let keys = concat(p, c, P, T -> S)\n return einsum(softmax(einsum(q, keys -> HS) over S), keys -> HC)\n}";

fn program(body: &str, prefix: u64) -> Program {
    let text = format!(
        "mesh x=2, y=2\ndim B = 8\ndim P = {prefix}\ndim T = 16\ndim S = P + T\ndim Z = 32\n\
         dim A = Z + T\ndim W = P + A\ndim H = 4\ndim G = 2\ndim C = 8\ndim D = 4\nlayer f({body}"
    );
    crate::common::kernels::program(&text)
}

fn plan(body: &str, prefix: u64, hardware: &Hardware) -> Plan {
    let program = program(body, prefix);
    let lowered = lower(&program, hardware, &LowerOptions::default()).expect("a plan");
    assert_eq!(lowered.optimality.status, Status::Proven, "{body}");
    lowered.plan
}

fn concats(plan: &Plan) -> Vec<bool> {
    let concats =
        plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Op(Op::Concat { .. })));
    concats.map(|instr| instr.origin.attention).collect()
}

#[test]
fn keys_that_are_joined_are_part_of_the_kernel_and_compute_what_the_source_says() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    for (seed, body) in BODIES.iter().enumerate() {
        let plan = plan(body, 64, &hardware);
        let text = shard_ir::text::print(&plan);
        assert!(concats(&plan).iter().all(|within| *within), "{text}");
        assert_eq!(kernels(&plan).len(), 1, "{text}");
        assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
        let read = shard_ir::text::parse(&text).expect("a plan");
        assert_eq!(shard_ir::text::print(&read[0]), text);
        let options = RunOptions { seed: seed as u64, ..RunOptions::default() };
        let report = run(&in_program_order(&plan), &options).expect("a run");
        assert!(report.equal, "off by {}\n{text}", report.max_abs_err);
    }
}

#[test]
fn a_shared_prefix_is_read_once_for_all_prompts_and_joined_in_no_memory() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    // A prefix of an odd length, so that no axis splits the keys.
    let plan = plan(LATENT, 63, &hardware);
    let kernel = kernels(&plan).remove(0);
    let InstrPrice::Kernel { flops, hbm_bytes, .. } = *price(&plan, &hardware).of(kernel[0]) else {
        panic!("a kernel")
    };
    // Two prompts a device, since y splits them, too: queries and results, the prefix once, what
    // each has for itself.
    assert_eq!(hbm_bytes.0, 4 * (2 * 2 * 4 * 8 + 63 * 8 + 2 * 16 * 8));
    // Two products, over all keys of all prompts.
    assert_eq!(flops.0, 2 * 2 * (2 * 4 * 79 * 8));
}

#[test]
fn parts_that_are_split_stay_where_they_lie_and_their_attentions_are_merged() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    let plan = plan(IN_BLOCKS, 64, &hardware);
    let text = shard_ir::text::print(&plan);
    let moves = plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Move(_)));
    // Queries and results alone are moved, neither of which has keys.
    assert!(moves.into_iter().all(|instr| plan.dims[instr.dims[0].index()].name == "H"), "{text}");
    assert!(text.contains("softmax-merge"), "{text}");
}

#[test]
fn a_mask_asks_where_keys_lie_so_that_parts_are_not_split() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    let body = "q: f32 THC, p: f32 P_xyC, c: f32 T_xyC) -> f32 THC {
 let keys = concat(p, c, P, T -> S)
 let s = causal(einsum(q, keys -> HTS) over T, S)
 return einsum(softmax(s over S), keys -> THC)\n}";
    let plan = plan(body, 64, &hardware);
    let text = shard_ir::text::print(&plan);
    for instr in plan.instructions.iter().filter(|instr| instr.origin.attention) {
        if let InstrKind::Op(Op::Concat { .. }) = instr.kind {
            assert!(instr.layout.split_axes().is_empty(), "{text}");
        }
    }
    let options = RunOptions::default();
    assert!(run(&in_program_order(&plan), &options).expect("a run").equal, "{text}");
}

#[test]
fn keys_that_something_else_reads_are_joined_in_memory() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    let body = "q: f32 BHC, p: f32 PC, c: f32 BTC) -> (o: f32 BHC, keys: f32 BSC) {
 let keys = concat(p, c, P, T -> S)
 return (einsum(softmax(einsum(q, keys -> BHS) over S), keys -> BHC), keys)\n}";
    assert_eq!(concats(&plan(body, 64, &hardware)), [false]);
}

#[test]
fn a_concat_that_says_that_it_is_of_an_attention_is_held_to_it() {
    let hardware = crate::common::kernels::chip("1e12", "1e8");
    let body = "a: f32 PC, c: f32 TC) -> f32 SC {\n return concat(a, c, P, T -> S)\n}";
    let mut plan = plan(body, 64, &hardware);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let is_concat = |kind: &InstrKind| matches!(kind, InstrKind::Op(Op::Concat { .. }));
    let concat = plan.instructions.iter_mut().find(|i| is_concat(&i.kind)).expect("a concat");
    concat.origin.attention = true;
    assert!(shard_ir::verify::verify(&plan).is_err());
}
