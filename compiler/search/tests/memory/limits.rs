//! Plans that are found although a limit ends the first search.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_search::{
    Limits, LowerError, LowerOptions, SearchLimit, Status, least_kept, lower, smallest,
    stored_as_in,
};

use super::{OPEN, chip, chip_of, h100, needed, program};

/// Llama 3 70B reading prompts on 32 chips, its weights free: the fastest plan keeps a copy of most
/// of them on each chip.
const LLAMA: &str = include_str!("llama_70b.shard");

#[test]
fn where_one_plan_after_another_is_too_large_one_that_fits_is_found_beside_smaller_weights() {
    let program = program(LLAMA);
    let v5p = |hbm_bytes| chip_of(hbm_bytes, [459e12, 2.8e12, 180e9]);
    let options = LowerOptions::default();
    let fastest = lower(&program, &v5p(1 << 40), &options).expect("a plan");
    let most = needed(&fastest);
    assert!(most > 100 << 30, "{most}");
    for capacity in [96_000_000_000, 16_000_000_000] {
        let lowered = lower(&program, &v5p(capacity), &options).expect("a plan that fits");
        assert!(needed(&lowered) <= capacity, "{} in {capacity}", needed(&lowered));
        assert_eq!(lowered.optimality.status, Status::Proven, "{capacity}");
        let (cost, bound) = (lowered.optimality.cost.0, fastest.optimality.cost.0);
        assert!(
            lowered.optimality.lower_bound.0 >= bound && cost < 2 * bound,
            "{cost} in {capacity}, {bound} in all"
        );
    }
}

/// After a limit has ended a search, trials hold parameters in the layouts of its plan and find a
/// faster one. Without them the plan took 110.6 us.
#[test]
fn what_the_help_of_a_bounded_plan_says_to_store_gives_that_plan_with_a_proof() {
    let program = program(OPEN);
    let v5p = Hardware::built_in("tpu-v5p").expect("built in").with_memory_limit(21_520_000);
    let options = LowerOptions::default();
    let found = lower(&program, &v5p, &options).expect("a plan");
    assert_eq!(found.optimality.status, Status::Bounded);
    assert!(found.optimality.cost.seconds() < 96e-6, "{:?}", found.optimality);
    let stored = found.proven_with.as_ref().filter(|stored| !stored.is_empty()).expect("a help");
    let pinned = stored_as_in(&program, &found.plan, stored);
    let proven = lower(&pinned, &v5p, &options).expect("a plan");
    assert_eq!(proven.optimality.status, Status::Proven);
    assert_eq!(proven.optimality.cost, found.optimality.cost);
}

#[test]
fn sizes_that_fit_only_when_they_are_rounded_end_the_search() {
    // Sixteen weights whose sizes have no common measure, and room for all but one byte of some
    // choice of them.
    let inner = |i: usize| ["C", "D"][i % 2];
    let weights: String = (0..16).map(|i| format!(", w{i}: weight bf16 B{}?", inner(i))).collect();
    let body: String = (0..16)
        .map(|i| {
            let dim = inner(i);
            format!("  let y{i} = einsum(x, w{i} -> A{dim})\n  let s{i} = sum(y{i} over {dim})\n")
        })
        .collect();
    let sum = (0..16).map(|i| format!("s{i}")).collect::<Vec<_>>().join(" + ");
    let source = format!(
        "mesh x=2\ndim A = 62\ndim B = 2\ndim C = 1022\ndim D = 1018\n\
         layer f(x: bf16 AB{weights}) -> bf16 A {{\n{body}  return {sum}\n}}\n"
    );
    let checked =
        check_source(&SourceFile::new("test.shard", source.as_str()), &CheckOptions::default());
    if checked.has_errors() {
        panic!("{:?}", checked.diagnostics);
    }
    let program = &checked.programs[0];
    // There are more ways of filling the memory than branches.
    let limits = Limits { branches: 200, ..Limits::default() };
    let options = LowerOptions { limits, ..LowerOptions::default() };
    let fastest = lower(program, &chip(1 << 40), &options).expect("a plan");
    let (least, most) = (least_kept(program), needed(&fastest));
    for capacity in [least, least + 1, (least + most) / 2, most - 1] {
        match lower(program, &chip(capacity), &options) {
            Ok(found) => assert!(needed(&found) <= capacity),
            Err(LowerError::NoPlanFits { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A block of PaLM 540B that reads prompts, its weights free, on 64 chips.
const PALM: &str = "mesh x=4, y=4, z=4
dim B = 64
dim L = 512
dim S = 2048
dim E = 18432
dim F = 4 * E
dim H = 64
dim Q = 256
layer block(
  x: bf16 BLE_xyz, kc: cache bf16 B_xyzSQ, vc: cache bf16 B_xyzSQ,
  wq: weight bf16 EHQ?, wk: weight bf16 EQ?, wv: weight bf16 EQ?, wo: weight bf16 HQE?,
  w_in: weight bf16 EF?, w_out: weight bf16 FE?,
) -> (y: bf16 BLE_xyz, k2: bf16 B_xyzSQ, v2: bf16 B_xyzSQ) {
  let h = rmsnorm(x over E)
  let k2 = append(kc, einsum(h, wk -> BLQ), L -> S)
  let v2 = append(vc, einsum(h, wv -> BLQ), L -> S)
  let s = einsum(einsum(h, wq -> BLHQ), k2 -> BLHS)
  let o = einsum(softmax(s over S), v2 -> BLHQ)
  let y = einsum(o, wo -> BLE) + einsum(gelu(einsum(h, w_in -> BLF)), w_out -> BLE) + x
  return (y, k2, v2)
}
";

#[test]
fn a_block_whose_activations_fill_the_memory_is_proven() {
    let program = program(PALM);
    let hardware = h100(5_000_000_000);
    let found = lower(&program, &hardware, &LowerOptions::default()).expect("a plan that fits");
    assert!(needed(&found) <= hardware.hbm_bytes);
    assert_eq!(found.optimality.status, Status::Proven, "{:?}", found.optimality);
}

#[test]
fn a_search_within_memory_that_ends_at_its_states_keeps_the_plan_of_one_before() {
    let program = program(OPEN);
    let hardware = Hardware::built_in("tpu-v5p").expect("built in").with_memory_limit(25_000_000);
    let best = lower(&program, &hardware, &LowerOptions::default()).expect("a plan").optimality;
    let mut stopped_by = Vec::new();
    for expansions in [1, 3, 10, 300] {
        let limits = Limits { expansions, ..Limits::default() };
        let options = LowerOptions { limits, ..LowerOptions::default() };
        let found = lower(&program, &hardware, &options).expect("a plan, if not the best");
        let of = &found.optimality;
        assert!(needed(&found) <= hardware.hbm_bytes);
        assert!(of.lower_bound <= best.cost && best.cost <= of.cost, "{expansions}: {of:?}");
        stopped_by.extend(of.stopped_by);
    }
    // A search that passed plans over before its states were spent says so.
    let limits = [SearchLimit::Expansions, SearchLimit::Memory];
    assert!(stopped_by.iter().all(|limit| limits.contains(limit)), "{stopped_by:?}");
    assert_eq!(stopped_by.len(), 4);
}

/// The convolutions in front of Whisper's encoder: many large activations, and few weights.
const CONVOLUTIONS: &str = include_str!("whisper_front.shard");

#[test]
fn a_plan_is_found_wherever_the_smallest_one_that_is_known_fits() {
    let program = program(CONVOLUTIONS);
    let chip = |hbm_bytes| chip_of(hbm_bytes, [197e12, 8.2e11, 4.5e10]);
    let options = LowerOptions::default();
    let fastest = lower(&program, &chip(1 << 40), &options).expect("a plan");
    let small = smallest(&program, &chip(1 << 40), &options, &fastest).expect("an answer");
    let least = small.lowered.as_ref().map(needed).expect("a plan of less memory");
    for percent in [0, 10, 20, 40] {
        let capacity = least + (needed(&fastest) - least) * percent / 100;
        let found = lower(&program, &chip(capacity), &options).expect("a plan that fits");
        assert!(needed(&found) <= capacity, "{} in {capacity}", needed(&found));
    }
}

/// A step of training whose weights and activations are open: what it holds is activations, mostly,
/// and copies of weights.
const TRAINING: &str = "mesh d=4, m=4
dim B = 4096
dim E = 4096
dim F = 14336
layer step(x: bf16 BE?r, w1: weight bf16 EF?a, w2: weight bf16 FE?b, dy: bf16 BE?r) -> (
  dx: bf16 BE?r, d1: bf16 EF?a, d2: bf16 FE?b,
) {
  let h = einsum(x, w1 -> BF)
  let a = relu(h)
  let d2 = einsum(a, dy -> FE)
  let da = einsum(dy, w2 -> BF)
  let dh = where(less(0.0, h), da, 0.0)
  let d1 = einsum(x, dh -> EF)
  let dx = einsum(dh, w1 -> BE)
  return (dx + dy, d1, d2)
}
";

#[test]
fn a_plan_within_some_memory_is_found_in_as_much_as_it_takes() {
    let program = program(TRAINING);
    let within = |bytes| {
        let hardware =
            Hardware::built_in("tpu-v6e").expect("it is built in").with_memory_limit(bytes);
        lower(&program, &hardware, &LowerOptions::default()).expect("a plan that fits")
    };
    let found = within(95_000_000);
    assert!(needed(&found) < 88_000_000, "{}", needed(&found));
    for bytes in [92_000_000, needed(&found)] {
        let again = within(bytes);
        assert!(needed(&again) <= bytes);
        assert_eq!(again.optimality.cost, found.optimality.cost, "in {bytes}");
        assert_eq!(again.optimality.status, Status::Proven, "in {bytes}");
    }
}

/// A model of which the plans of least memory are found where there is more.
const TOWER: &str = "mesh x=2, y=2, z=2
dim B = 256
dim E = 192
dim D = 8
dim K = 2
dim V = 512
layer tower(
  x: bf16 BV_x, tied: weight bf16 VE?, w0: weight bf16 ED?, w1: weight bf16 DK?,
  w2: weight bf16 K_yE?,
) -> bf16 BE? {
  let a0 = einsum(x, tied -> BE)
  let v1 = einsum(a0, w0 -> BD)
  let v3 = einsum(v1, w1 -> BK)
  let v4 = einsum(v3, w2 -> BE)
  return a0 + v4
}
";

#[test]
fn a_small_plan_that_is_passed_over_in_little_memory_is_found_as_if_there_were_more() {
    let program = program(TOWER);
    let chip = Hardware::built_in("tpu-v4-flat").expect("it is built in");
    let limits = Limits { expansions: 2000, ..Limits::default() };
    let options = LowerOptions { limits, ..LowerOptions::default() };
    let fastest = lower(&program, &chip, &options).expect("a plan");
    let small = smallest(&program, &chip, &options, &fastest).expect("an answer");
    let least = small.lowered.as_ref().map(needed).expect("a plan of less memory");
    assert!(least < 182_000, "{least}");
}

/// The forward and backward pass of a block, where activations and the weights of the feed-forward
/// are open and each gradient is stored as what it is of.
const STEP_WITH_LABELS: &str = include_str!("training_step.shard");

#[test]
#[ignore = "slow: a training step with labels in less and less memory"]
fn with_labels_open_a_small_plan_is_found_with_most_parameters_held() {
    let program = program(STEP_WITH_LABELS);
    let options = LowerOptions::default();
    let fastest = lower(&program, &h100(80_000_000_000), &options).expect("a plan");
    let small = smallest(&program, &h100(80_000_000_000), &options, &fastest).expect("an answer");
    let least = small.lowered.as_ref().map(needed).expect("a plan of less memory");
    assert!(least < 180_000_000, "{least}");
}
