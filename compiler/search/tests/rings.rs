//! Rings: attentions whose blocks of keys and of values travel round. Tests where they are found,
//! what they compute, what they cost and what they hold.

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, InstrPrice, kernels, price, ring_time};
use shard_grammar::SourceFile;
use shard_ir::attention::{Ring, rings};
use shard_ir::{InstrKind, Picoseconds, Plan, Program};
use shard_runtime::{RunOptions, in_program_order, run};
use shard_search::{LowerOptions, lower};

fn program(head: &str, text: &str) -> Program {
    let source = SourceFile::new("ring", format!("{head}\nlayer f({text}"));
    let checked = check_source(&source, &CheckOptions::default());
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}");
    checked.programs.into_iter().next().expect("a layer")
}

fn chip() -> Hardware {
    Hardware::built_in("tpu-v5p-face").expect("built in")
}

fn fused(program: &Program) -> Plan {
    let options = LowerOptions { fuse: true, ..LowerOptions::default() };
    lower(program, &chip(), &options).expect("a plan").plan
}

/// The one ring of a plan.
fn ring(plan: &Plan) -> Ring {
    let mut all = rings(plan);
    assert_eq!(all.len(), 1, "{}", shard_ir::text::print(plan));
    all.remove(0)
}

const LARGE: &str = "mesh z=8\ndim L = 131072\ndim S = L\ndim H = 3\ndim D = 128\ndim V = 64\n\
    dim G = 5\ndim C = 512\ndim R = 64\ndim O = 1";
const SMALL: &str = "mesh z=4\ndim L = 8\ndim S = L\ndim H = 3\ndim D = 2\ndim V = 5\ndim G = 2\n\
    dim C = 4\ndim R = 2\ndim O = 1";

const MULTIHEAD: &str = "q: bf16 L_zHD, k: bf16 S_zHD, v: bf16 S_zHD) -> bf16 L_zHD {
 return einsum(softmax(einsum(q, k -> HLS) / 11 over S), v -> LHD)\n}";
const CAUSAL: &str = "q: bf16 L_zHD, k: bf16 S_zHD, v: bf16 S_zHD) -> bf16 L_zHD {
 return einsum(softmax(causal(einsum(q, k -> HLS) over L, S) over S), v -> LHD)\n}";
const GROUPED: &str = "q: bf16 L_zHGD, k: bf16 S_zHD, v: bf16 S_zHV) -> bf16 L_zHGV {
 return gelu(einsum(softmax(causal(einsum(q, k -> HGLS) over L, S) over S), v -> LHGV))\n}";
const LATENT: &str = "q: bf16 L_zHC, p: bf16 L_zHR, c: bf16 S_zC, r: bf16 S_zR) -> bf16 L_zHC {
 let s = einsum(q, c -> HLS) + einsum(p, r -> HLS)
 return einsum(softmax(causal(s * 0.1 over L, S) over S), c -> LHC)\n}";
const BIASED: &str = "q: f32 L_zHD, k: f32 S_zHD, v: f32 S_zHD, b: f32 L_zS) -> f32 L_zHD {
 return einsum(softmax(einsum(q, k -> HLS) + b over S), v -> LHD)\n}";

/// Asserts that a plan computes what the unsharded program does, and sends what the cost model
/// says.
fn runs(plan: &Plan) {
    let report = run(&in_program_order(plan), &RunOptions::default()).expect("it runs");
    assert!(report.equal, "{report:?}\n{}", shard_ir::text::print(plan));
    let price = price(plan, &chip());
    for sent in &report.collectives {
        let modelled = price.of(sent.id).collective().expect("it sends").wire_bytes.0;
        assert_eq!(sent.wire_bytes, modelled, "%{}", sent.id.0);
    }
    assert_eq!(report.peak_bytes, shard_ir::Liveness::of(plan).peak_bytes());
}

/// The plan of a large program, its dims those of a small one.
fn made_small(text: &str) -> Plan {
    let mut plan = fused(&program(&LARGE.replace("z=8", "z=4"), text));
    let small = program(SMALL, text);
    plan.dims = small.dims;
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    plan
}

#[test]
fn blocks_of_keys_and_values_travel_while_the_queries_stay() {
    for (text, travels) in [(MULTIHEAD, 2), (CAUSAL, 2), (GROUPED, 2), (LATENT, 2)] {
        let plan = fused(&program(LARGE, text));
        let ring = ring(&plan);
        assert_eq!((ring.steps(&plan), ring.travels.len()), (8, travels));
        let moves = plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Move(_)));
        assert_eq!(moves.count(), 0, "{}", shard_ir::text::print(&plan));
        // The ring is one kernel.
        let of = |kernel: &Vec<_>| ring.members.iter().all(|id| kernel.contains(id));
        assert!(kernels(&plan).iter().any(of));
        let parsed = shard_ir::text::parse(&shard_ir::text::print(&plan)).expect("well formed");
        assert_eq!(rings(&parsed[0]), rings(&plan));
    }
}

#[test]
fn what_a_ring_computes_is_the_attention() {
    for text in [MULTIHEAD, CAUSAL, GROUPED, LATENT, BIASED] {
        let plan = made_small(text);
        ring(&plan);
        runs(&plan);
        let unfused = plan.unfused();
        assert_eq!(shard_ir::verify::verify(&unfused), Ok(()));
        runs(&unfused);
    }
}

/// Two blocks of keys and of values, and never all of them.
#[test]
fn it_holds_two_blocks_of_what_travels() {
    let plan = fused(&program(LARGE, CAUSAL));
    let block = 131_072 / 8 * 3 * 128 * 2;
    assert_eq!(ring(&plan).bytes(&plan), 2 * 2 * block);
    let price = price(&plan, &chip());
    assert_eq!(price.totals.peak_hbm_bytes.0, (3 + 1 + 4) * block);
}

/// Of the first step the half of a block that the diagonal leaves, of every other a whole block:
/// all that the busiest device, the last one, multiplies, and no more.
#[test]
fn each_step_takes_as_long_as_its_busiest_device() {
    let plan = fused(&program(LARGE, CAUSAL));
    let price = price(&plan, &chip());
    let InstrPrice::Kernel { flops, looped: Some(looped), time, .. } =
        price.of(ring(&plan).first())
    else {
        panic!("a loop")
    };
    let side = 131_072u128 / 8;
    let (first, full) = (side * (side + 1) / 2, side * side);
    assert_eq!(flops.0, 2 * 2 * 3 * 128 * (first + 7 * full));
    let of_full = looped.full.expect("a ring").0;
    assert_eq!(u128::from(of_full), u128::from(looped.einsum.0) * full / (first + 7 * full));
    assert_eq!(*time, looped.time());
    assert_eq!(looped.collective.wire_bytes.0, 2 * 7 * (131_072 / 8) * 3 * 128 * 2);
    // Nothing of it is exposed: even the first step is longer than a transfer.
    assert_eq!(*time, looped.einsum);
}

/// A transfer and a step at a time: what the time of a ring is said to be.
#[test]
fn the_time_of_a_ring_is_that_of_its_steps() {
    for steps in [2u64, 3, 4, 8, 31] {
        for sent in [0u64, 1, 5, 7, 30, 100, 1001] {
            for full in [0u64, 1, 3, 10, 50] {
                for first in [0, full / 2, full, full + 3] {
                    let beside = steps - 1;
                    let transfer = |at| sent * (at + 1) / beside - sent * at / beside;
                    let step = |at| if at == 0 { first } else { full };
                    let all: u64 = (0..beside).map(|at| step(at).max(transfer(at))).sum();
                    let attention = Picoseconds(first + beside * full);
                    let time = ring_time(Picoseconds(sent), attention, Picoseconds(full), steps);
                    assert_eq!(time.0, all + full, "{steps} {sent} {full} {first}");
                }
            }
        }
    }
}

#[test]
fn one_query_is_left_where_it_is_and_its_parts_are_merged() {
    let text = "q: bf16 OHD, k: bf16 S_zHD, v: bf16 S_zHD) -> bf16 OHD {
 return einsum(softmax(einsum(q, k -> HOS) over S), v -> OHD)\n}";
    let plan = fused(&program(LARGE, text));
    assert!(rings(&plan).is_empty(), "{}", shard_ir::text::print(&plan));
}

/// A sink would count once for each block.
#[test]
fn with_sinks_there_is_no_ring() {
    let text = "q: bf16 L_zHD, k: bf16 S_zHD, v: bf16 S_zHD, s: bf16 H) -> bf16 L_zHD {
 return einsum(sink_softmax(einsum(q, k -> HLS), s over S), v -> LHD)\n}";
    assert!(rings(&fused(&program(LARGE, text))).is_empty());
}

#[test]
fn without_loops_or_in_a_strict_layer_there_is_no_ring() {
    let program = program(LARGE, CAUSAL);
    let plan = lower(&program, &chip(), &LowerOptions::default()).expect("a plan").plan;
    assert!(rings(&plan).is_empty());
    let options = LowerOptions { fuse: true, strict: true, ..LowerOptions::default() };
    if let Ok(strict) = lower(&program, &chip(), &options) {
        assert!(rings(&strict.plan).is_empty());
    }
}

/// A plan that says of its softmax that it is part of such a kernel is held to it.
#[test]
fn einsums_that_gather_over_different_axes_are_no_ring() {
    let plan = fused(&program(LARGE, CAUSAL));
    let text = shard_ir::text::print(&plan);
    let changed =
        text.replacen("all-gather 1 over z along S : ", "all-gather 0 over z along L : ", 1);
    assert_ne!(text, changed);
    let refused = match shard_ir::text::parse(&changed) {
        Ok(plans) => shard_ir::verify::verify(&plans[0]).is_err(),
        Err(_) => true,
    };
    assert!(refused, "{changed}");
}

/// What one product gathers and the other has whole is no ring: nothing would travel beside the
/// second.
#[test]
fn an_attention_of_which_one_product_gathers_is_no_kernel() {
    let text = |second: &str, word: &str| {
        let text = format!(
            "shir 1\n\nlayer f\nmesh z=2\ndims L=4, S=4, D=2\n\n\
             %0 = parameter q : f32 L_zD\n%1 = parameter k : f32 S_zD\n\
             %2 = parameter v : f32 {second}\n\
             %3 = collective-einsum LD,SD->LS %0, %1 all-gather 1 over z along S : f32 L_zS\n\
             %4 = softmax %3 over S : f32 L_zS{word}\n\
             %5 = {} : f32 L_zD\nreturn r = %5 : L_zD\n",
            match second {
                "SD" => "einsum LS,SD->LD %4, %2".to_string(),
                _ => "collective-einsum LS,SD->LD %4, %2 all-gather 1 over z along S".to_string(),
            }
        );
        shard_ir::text::parse(&text).expect("well formed").remove(0)
    };
    let verified = |plan: &Plan| shard_ir::verify::verify(plan).is_ok();
    assert!(verified(&text("S_zD", " as attention")));
    assert_eq!(rings(&text("S_zD", " as attention")).len(), 1);
    assert!(!verified(&text("SD", " as attention")));
    // By themselves the ops are what they are.
    for second in ["SD", "S_zD"] {
        let plan = text(second, "");
        assert!(verified(&plan) && rings(&plan).is_empty());
    }
}
