//! Many weights that are alike, where memory has room to store some of them so that less is moved.

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
