//! Attention over keys that axes split: its plans executed, device by device, against a plain
//! softmax of written-out scores.

use std::collections::BTreeSet;

use shard_cost::{Hardware, price};
use shard_ir::attention::carried_operand;
use shard_ir::{Collective, InstrId, InstrKind, Plan, Program};
use shard_runtime::{RunOptions, in_program_order, run};
use shard_search::{LowerOptions, Status, lower};

/// What stands around the body: sizes, and what is given. Keys are many and queries few, so that to
/// gather keys or scores takes longer than to merge.
const BODIES: &[&str] = &[
    // One head; a device without a visible key has nothing.
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD) -> f32 LD {
 let s = einsum(q, k -> LS) * 0.25\n return einsum(softmax(causal(s over L, S) over S), v -> LD)\n}",
    // As many queries as keys.
    "q: f32 TD, k: f32 S_xD, v: f32 S_xD) -> f32 TD {
 return einsum(softmax(causal(einsum(q, k -> TS) over T, S) over S), v -> TD)\n}",
    // Windows: some hide whole devices' keys, as many queries as keys or few.
    "q: f32 TD, k: f32 S_xD, v: f32 S_xD) -> f32 TD {
 return einsum(softmax(causal(einsum(q, k -> TS) over T, S, 40) over S), v -> TD)\n}",
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD) -> f32 HLD {
 return einsum(softmax(causal(einsum(q, k -> HLS) over L, S, 9) over S), v -> HLD)\n}",
    // Two axes on the keys, in either order; heads.
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD) -> f32 HLD {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    "q: f32 HLD, k: f32 HS_yxD, v: f32 HS_yxD) -> f32 HLD {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    // One axis on the keys, one on the heads; scattered along the values, or along the queries.
    "q: f32 H_yLD, k: f32 H_yS_xD, v: f32 H_yS_xD) -> f32 H_yLD_x {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    "q: f32 H_yLD, k: f32 H_yS_xD, v: f32 H_yS_xD) -> f32 H_yL_xD {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD) -> f32 H_xLD_y {
 return einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n}",
    // Groups of heads, dims in another order, a bias that is split, a map behind.
    "q: f32 LHGD, k: f32 SHD, v: f32 S_xHD, b: f32 LS_x) -> f32 HLGD {
 let s = einsum(q, k -> HGLS) + b\n return tanh(einsum(softmax(s over S), v -> HLGD))\n}",
    // Scores of two products; values are keys.
    "q: f32 LD, k: f32 S_xD, p: f32 LR, r: f32 S_xR) -> f32 LD {
 return einsum(softmax(einsum(q, k -> LS) + einsum(p, r -> LS) over S), k -> LD)\n}",
    // Linear ops behind the product: it is merged after them.
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD, w: f32 HDN) -> f32 HLN {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n return -einsum(o, w -> HLN)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD, c: f32 L) -> f32 LN {
 let o = einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)
 return slice(o * c, D -> N, 2)\n}",
    "q: f32 LHD, k: f32 S_xHD, v: f32 S_xHD) -> f32 HM {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> LHD)\n return sum(rename(o, L -> M) over D)\n}",
    // What runs along the values, or looks among them.
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD) -> f32 LN {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(shift(cumsum(o over D) over D, 1), D -> N, 5)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD) -> f32 LN {
 let o = einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)
 return slice(rope(o over D at L), D -> N, 5)\n}",
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD, w: f32 RH) -> f32 HLN {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)
 return slice(conv(o, w over D, R), D -> N, 6)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD, f: f32 LD) -> f32 LN {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)
 return slice(scan(o, f over D), D -> N, 7)\n}",
    "q: f32 HLD, k: f32 HS_xyD, v: f32 HS_xyD, i: int32 HN) -> f32 HNL {
 let o = einsum(softmax(einsum(q, k -> HLS) over S), v -> HLD)\n return take(o, i over D)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD, i: int32 D) -> f32 LN {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return scatter_add(o, i over D -> N)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD, w: f32 PN) -> f32 LN {
 let o = einsum(softmax(einsum(q, k -> LS) over S), v -> LD)\n return einsum(pad(o, D -> P, 2), w -> LN)\n}",
    // Along queries nothing is linear in the parts, whose statistics differ from query to query.
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD) -> f32 LN {
 let o = einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)
 return slice(shift(cumsum(o over L) over L, 1), D -> N, 5)\n}",
    "q: f32 LD, k: f32 S_xD, v: f32 S_xD, f: f32 LD) -> f32 LN {
 let o = einsum(softmax(causal(einsum(q, k -> LS) over L, S) over S), v -> LD)
 return slice(scan(o, f over L), D -> N, 7)\n}",
    // A cast between the softmax and the product.
    "q: bf16 LD, k: bf16 S_xD, v: bf16 S_xD) -> bf16 LD {
 let s = cast(einsum(q, k -> LS), f32)\n return einsum(cast(softmax(s over S), bf16), v -> LD)\n}",
];

fn program(body: &str, mesh: &str, keys: u64) -> Program {
    let text = format!(
        "mesh {mesh}\ndim L = 4\ndim S = {keys}\ndim T = S\ndim D = 8\ndim H = 4\ndim G = 2\n\
         dim R = 4\ndim N = 1\ndim M = L\ndim P = 12\nlayer f({body}"
    );
    crate::common::kernels::program(&text)
}

fn merges(plan: &Plan) -> usize {
    let is_merge =
        |kind: &InstrKind| matches!(kind, InstrKind::Move(Collective::SoftmaxMerge { .. }));
    plan.instructions.iter().filter(|instr| is_merge(&instr.kind)).count()
}

/// The ops of a plan that act on the attention over a part of the keys, by their words.
fn on_parts(plan: &Plan) -> Vec<&'static str> {
    let acts = |id: &InstrId| carried_operand(plan, *id).is_some();
    plan.ids().filter(acts).filter_map(|id| Some(plan.instruction(id).kind.op()?.word())).collect()
}

/// Runs a plan, and compares its results with the unsharded program and its bytes with the price.
fn hold(plan: &Plan, hardware: &Hardware, seed: u64) {
    let text = shard_ir::text::print(plan);
    let report = run(&in_program_order(plan), &RunOptions { seed, ..RunOptions::default() })
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(report.equal, "off by {}\n{text}", report.max_abs_err);
    let finite = |data: &Vec<f64>| data.iter().all(|value| value.is_finite());
    assert!(report.outputs.iter().all(|output| finite(&output.tensor.data)), "{text}");
    let price = price(plan, hardware);
    for sent in &report.collectives {
        let predicted = price.of(sent.id).collective().map_or(0, |cost| cost.wire_bytes.0);
        assert_eq!(sent.wire_bytes, predicted, "%{} {}\n{text}", sent.id.0, sent.name);
    }
}

#[test]
fn plans_that_merge_compute_what_the_source_says_and_send_what_was_predicted() {
    // Where memory is fast, an op is done on each part rather than behind a merge that scatters.
    let chips =
        [crate::common::kernels::chip("1e10", "1e8"), crate::common::kernels::chip("3e11", "3e9")];
    let (mut merged, mut act) = (0, BTreeSet::new());
    for (at, body) in BODIES.iter().enumerate() {
        for (mesh, keys) in [("x=2, y=2", 512), ("x=4, y=2", 1024), ("x=2, y=3", 384)] {
            // A dim of four queries does not divide by three.
            if mesh.contains("y=3") && body.contains("_y") {
                continue;
            }
            let program = program(body, mesh, keys);
            for hardware in &chips {
                let lowered = lower(&program, hardware, &LowerOptions::default()).expect("a plan");
                assert_eq!(lowered.optimality.status, Status::Proven, "{body}");
                let plan = lowered.plan;
                assert!(shard_ir::verify::verify(&plan).is_ok());
                let text = shard_ir::text::print(&plan);
                let read = shard_ir::text::parse(&text).expect("a plan");
                assert_eq!(shard_ir::text::print(&read[0]), text);
                merged += usize::from(merges(&plan) > 0);
                act.extend(on_parts(&plan));
                hold(&plan, hardware, at as u64);
            }
        }
    }
    assert!(merged >= 15, "{merged} plans have a merge");
    let all = [
        "conv",
        "cumsum",
        "einsum",
        "mul",
        "neg",
        "pad",
        "rename",
        "rope",
        "scan",
        "scatter-add",
        "shift",
        "slice-dim",
        "sum",
        "take",
    ];
    assert!(all.iter().all(|word| act.contains(word)), "{act:?}");
}

#[test]
fn a_merge_over_two_axes_may_be_one_after_the_other() {
    let hardware = crate::common::kernels::chip("1e10", "1e8");
    let lowered = lower(&program(BODIES[4], "x=2, y=2", 4096), &hardware, &LowerOptions::default());
    let mut plan = lowered.expect("a plan").plan;
    let at = plan
        .ids()
        .find(|id| {
            let kind = &plan.instruction(*id).kind;
            matches!(kind, InstrKind::Move(Collective::SoftmaxMerge { .. }))
        })
        .expect("a merge");
    let InstrKind::Move(Collective::SoftmaxMerge { statistics, .. }) = plan.instruction(at).kind
    else {
        panic!("a merge")
    };
    // What follows the merge is left out, and the merge is two of one axis each.
    let end = at.index();
    plan.instructions.truncate(end);
    let part = plan.instructions[end - 1].clone();
    assert_eq!(part.layout.softmax_axes(), plan.mesh.all_axes());
    let (mut layout, mut last) = (part.layout, shard_ir::InstrId(end as u32 - 1));
    for axis in plan.mesh.axis_ids() {
        layout = layout.with_replicated(axis);
        let axes = [axis].into_iter().collect();
        let mut merge = part.clone();
        merge.kind = InstrKind::Move(Collective::SoftmaxMerge { dim: None, axes, statistics });
        (merge.operands, merge.layout) = (vec![last], layout);
        last = shard_ir::InstrId(plan.instructions.len() as u32);
        plan.instructions.push(merge);
    }
    plan.outputs[0].id = last;
    assert_eq!(merges(&plan), 2);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    hold(&plan, &hardware, 7);
}
