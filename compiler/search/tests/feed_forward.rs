//! The feed-forward layer of PaLM 540B on 64 chips, as ESTI section 3.2 lays it out.

use crate::common::{Builder, lines};
use shard_cost::Hardware;
use shard_ir::{Map, Op, ParameterKind};
use shard_search::{LowerOptions, Status, lower};

fn feed_forward(batch: u64, length: u64, boundary: &str) -> Builder {
    let mut b = Builder::new(
        &[("x", 4), ("y", 4), ("z", 4)],
        &[("B", batch), ("L", length), ("E", 18432), ("F", 73728)],
    );
    let x = b.parameter("x", ParameterKind::Activation, boundary);
    let w_in = b.parameter("w_in", ParameterKind::Weight, "E_xF_yz");
    let w_out = b.parameter("w_out", ParameterKind::Weight, "F_yzE_x");
    let h = b.einsum("h", &[x, w_in], "BLF");
    let a = b.op("a", Op::Map(Map::Gelu), &[h], "BLF");
    let y = b.einsum("y", &[a, w_out], "BLE");
    b.output(y, boundary);
    b
}

#[test]
fn decode_is_two_dimensional_weight_stationary() {
    let b = feed_forward(512, 1, "BLE_xyz");
    let hardware = Hardware::built_in("tpu-v4-flat").unwrap();
    let start = std::time::Instant::now();
    let lowered = lower(&b.program, &hardware, &LowerOptions::default()).unwrap();
    eprintln!("{:?} {:?} {:?}", start.elapsed(), lowered.optimality, lowered.stats);
    for line in lines(&lowered.plan) {
        eprintln!("{line}");
    }
    for i in &lowered.plan.instructions {
        eprintln!("{:?}", i.origin.reason);
    }
    assert_eq!(lowered.optimality.status, Status::Proven);
    assert_eq!(
        lines(&lowered.plan)[3..],
        [
            "all-gather x BLE_x",
            "einsum h BLF_yz(partialsum-x)",
            "reduce-scatter h BLF_yzx",
            "gelu a BLF_yzx",
            "all-gather a BLF_yz",
            "einsum y BLE_x(partialsum-yz)",
            "reduce-scatter y BLE_xyz",
        ]
    );
}
