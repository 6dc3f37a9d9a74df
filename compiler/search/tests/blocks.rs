//! Whole transformer blocks: that they are solved to a proof, and what the plans are like.

use crate::common::{Builder, lines};
use shard_cost::Hardware;
use shard_ir::{Binary, Dtype, Map, Norm, Op, ParameterKind};
use shard_search::{LowerOptions, Status, lower};

fn palm(batch: u64, length: u64) -> Builder {
    use ParameterKind::{Activation, Cache, Weight};
    let mut b = Builder::new(
        &[("x", 4), ("y", 4), ("z", 4)],
        &[
            ("B", batch),
            ("L", length),
            ("S", 2048),
            ("E", 18432),
            ("F", 73728),
            ("H", 64),
            ("Q", 256),
        ],
    );
    let x = b.parameter("x", Activation, "BLE_xyz");
    let kc = b.parameter("kc", Cache, "B_xyzSQ");
    let vc = b.parameter("vc", Cache, "B_xyzSQ");
    let wq = b.parameter("wq", Weight, "E_xH_yzQ");
    let wk = b.parameter("wk", Weight, "E_xyzQ");
    let wv = b.parameter("wv", Weight, "E_xyzQ");
    let wo = b.parameter("wo", Weight, "H_yzQE_x");
    let w_in = b.parameter("w_in", Weight, "E_xF_yz");
    let w_out = b.parameter("w_out", Weight, "F_yzE_x");
    let e = |b: &Builder, n: &str| {
        shard_ir::DimId(b.program.dims.iter().position(|d| d.name == n).unwrap() as u16)
    };
    let (ed, ld, sd) = (e(&b, "E"), e(&b, "L"), e(&b, "S"));
    let h = b.op("h", Op::Norm { kind: Norm::Rms, over: ed }, &[x], "BLE");
    let q = b.einsum("q", &[h, wq], "BLHQ");
    let k = b.einsum("k", &[h, wk], "BLQ");
    let v = b.einsum("v", &[h, wv], "BLQ");
    let k2 = b.op("k2", Op::Append { from: ld, to: sd }, &[kc, k], "BSQ");
    let v2 = b.op("v2", Op::Append { from: ld, to: sd }, &[vc, v], "BSQ");
    let s = b.einsum("s", &[q, k2], "BLHS");
    let p = b.op("p", Op::Softmax { over: sd }, &[s], "BLHS");
    let o = b.einsum("o", &[p, v2], "BLHQ");
    let attn = b.einsum("attn", &[o, wo], "BLE");
    let f = b.einsum("f", &[h, w_in], "BLF");
    let g = b.op("g", Op::Map(Map::Gelu), &[f], "BLF");
    let ff = b.einsum("ff", &[g, w_out], "BLE");
    let sum = b.op("sum", Op::Binary(Binary::Add), &[attn, ff], "BLE");
    let y = b.op("y", Op::Binary(Binary::Add), &[sum, x], "BLE");
    b.output(y, "BLE_xyz");
    b.output(k2, "B_xyzSQ");
    b.output(v2, "B_xyzSQ");
    b
}

fn report(name: &str, b: &Builder) {
    let hardware = Hardware::built_in("tpu-v4-flat").unwrap();
    let start = std::time::Instant::now();
    let lowered = lower(&b.program, &hardware, &LowerOptions::default()).unwrap();
    eprintln!("{name}: {:?} {:?} {:?}", start.elapsed(), lowered.optimality, lowered.stats);
    for line in lines(&lowered.plan) {
        eprintln!("    {line}");
    }
    assert_eq!(lowered.optimality.status, Status::Proven);
}

#[test]
fn palm_decode_is_proven() {
    report("palm decode", &palm(64, 1));
}

#[test]
fn palm_prefill_is_proven() {
    report("palm prefill", &palm(64, 2048));
}

#[test]
fn a_chain_of_einsums_is_proven() {
    for n in [4, 16, 64] {
        let mut b =
            Builder::new(&[("x", 4), ("y", 4), ("z", 4)], &[("B", 512), ("E", 8192), ("F", 16384)]);
        let mut v = b.parameter("x", ParameterKind::Activation, "BE_xyz");
        for i in 0..n {
            let (w, to) = if i % 2 == 0 { ("E_xF_yz", "BF") } else { ("F_yzE_x", "BE") };
            let w = b.parameter(&format!("w{i}"), ParameterKind::Weight, w);
            v = b.einsum(&format!("h{i}"), &[v, w], to);
        }
        b.output(v, "BE_xyz");
        assert_eq!(b.program.values[0].dtype, Dtype::Bf16);
        report(&format!("chain{n}"), &b);
    }
}

#[test]
fn feed_forward_picks_its_form_by_the_number_of_tokens() {
    for tokens in [
        4096, 9216, 16384, 18432, 20480, 32768, 65536, 73728, 81920, 262144, 1048576, 1179648,
        1310720, 2097152,
    ] {
        let mut b = Builder::new(
            &[("x", 4), ("y", 4), ("z", 4)],
            &[("B", tokens / 1024), ("L", 1024), ("E", 18432), ("F", 73728)],
        );
        b.program.labels.push("l".into());
        let x = b.parameter("x", ParameterKind::Activation, "BLE?l");
        let w_in = b.parameter("w_in", ParameterKind::Weight, "E_xF_yz");
        let w_out = b.parameter("w_out", ParameterKind::Weight, "F_yzE_x");
        let h = b.einsum("h", &[x, w_in], "BLF");
        let a = b.op("a", Op::Map(Map::Gelu), &[h], "BLF");
        let y = b.einsum("y", &[a, w_out], "BLE");
        b.output(y, "BLE?l");
        report(&format!("feed_forward {tokens}"), &b);
    }
}
