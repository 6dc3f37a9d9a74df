//! Many weights that are alike, where memory has room to store only some of them so that less is
//! moved.

use std::fmt::Write;

use shard_cost::Hardware;
use shard_search::{Limits, LowerOptions, Status, lower};

use super::program;

/// Heads with weights of their own, all open.
fn heads(count: usize) -> String {
    let mut text = "mesh x=4, y=4\ndim B = 64\ndim L = 1024\ndim S = 1024\ndim E = 2048\ndim D = \
                    128\nlayer heads(x: bf16 BLE?"
        .to_string();
    let mut body = String::new();
    for k in 0..count {
        let _ = write!(
            text,
            ", q{k}: weight bf16 ED?, k{k}: weight bf16 ED?, v{k}: weight bf16 ED?, o{k}: weight \
             bf16 DE?"
        );
        let _ = write!(
            body,
            " let t{k} = rename(einsum(x, k{k} -> BLD), L -> S)
 let a{k} = softmax(einsum(einsum(x, q{k} -> BLD), t{k} -> BLS) over S)
 let u{k} = rename(einsum(x, v{k} -> BLD), L -> S)
 let h{k} = einsum(einsum(a{k}, u{k} -> BLD), o{k} -> BLE)
"
        );
    }
    let sum: Vec<String> = (0..count).map(|k| format!("h{k}")).collect();
    text + ") -> bf16 BLE? {\n" + &body + " return x + " + &sum.join(" + ") + "\n}\n"
}

#[test]
#[ignore = "slow: sixteen heads within three memory limits"]
fn of_many_weights_alike_as_many_are_whole_as_there_is_room_for() {
    let program = program(&heads(16));
    let limits = Limits { branches: 250, expansions: 12_500, nodes: 250_000, ..Limits::default() };
    let options = LowerOptions { limits, ..LowerOptions::default() };
    let within = |hbm_bytes: u64| {
        let chip = Hardware::built_in("tpu-v5p").expect("a chip").with_memory_limit(hbm_bytes);
        lower(&program, &chip, &options).expect("a plan").optimality.cost.0
    };
    // All weights whole take 32 MB more than none. Half of that is room for about half of them.
    let (least, half, all) = (within(290_000_000), within(304_000_000), within(320_000_000));
    assert!(half < least - (least - all) / 3, "{least}, {half}, {all}");
}

/// A Llama block with low-rank adapters, all weights open.
const LORA: &str = include_str!("lora.shard");

#[test]
#[ignore = "slow: a block whose plans are divided by the layouts of values"]
fn a_block_with_adapters_is_proven_where_memory_has_room_for_some_of_its_weights() {
    let chip = Hardware::built_in("tpu-v5p").expect("a chip").with_memory_limit(430_000_000);
    let found = lower(&program(LORA), &chip, &LowerOptions::default()).expect("a plan");
    assert_eq!(found.optimality.status, Status::Proven, "{:?}", found.optimality);
}

/// Feed-forward blocks one on another, each with weights of its own, all open.
fn stack(blocks: usize) -> String {
    let mut text =
        "mesh x=2, y=2, z=2\ndim B = 512\ndim E = 4096\ndim F = 16384\nlayer f(h0: bf16 \
                    BE?"
        .to_string();
    let mut body = String::new();
    for n in 0..blocks {
        let _ = write!(text, ", u{n}: weight bf16 EF?, d{n}: weight bf16 FE?");
        let _ = writeln!(
            body,
            " let h{} = h{n} + einsum(relu(einsum(h{n}, u{n} -> BF)), d{n} -> BE)",
            n + 1
        );
    }
    text + ") -> bf16 BE? {\n" + &body + &format!(" return h{blocks}\n}}\n")
}

#[test]
#[ignore = "slow: forty blocks in memory for hardly more than their weights"]
fn a_large_stack_has_a_plan_in_little_more_memory_than_its_weights_take() {
    // With few branches and no trials the plan is the one that the first search finds on its way.
    let few = Limits { branches: 1, trials: false, ..Limits::default().part(8) };
    let options = LowerOptions { limits: few, ..LowerOptions::default() };
    let chip = Hardware::built_in("h100").expect("a chip").with_memory_limit(1_500_000_000);
    let found = lower(&program(&stack(40)), &chip, &options).expect("a plan").optimality;
    let gap = found.cost.0 - found.lower_bound.0;
    assert!(gap < found.lower_bound.0 / 100, "{found:?}");
}
