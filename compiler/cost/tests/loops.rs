//! The time of a collective einsum, compared with that of its loop step by step.

use shard_cost::{Hardware, InstrPrice, looped_time, price};
use shard_ir::{Picoseconds, text};

/// When an all-gather loop is done. Chunk 0 is there from the start, each other chunk arrives one
/// transfer after the chunk before it, and the chunks are multiplied one after the other.
fn gathering(transfer: u64, chunk: u64, chunks: u64) -> u64 {
    (0..chunks).fold(0, |done, at| done.max(at * transfer) + chunk)
}

/// When a reduce-scatter loop is done. A chunk leaves when it is made and the chunk before it has
/// left; the last one, which stays, is made and added to what has arrived.
fn scattering(transfer: u64, chunk: u64, chunks: u64) -> u64 {
    let left = (1..chunks).fold(0, |left, made| left.max(made * chunk) + transfer);
    left.max(chunks * chunk)
}

#[test]
fn the_time_of_a_loop_is_that_of_its_ring() {
    for chunks in [2, 3, 4, 8, 16, 64] {
        for transfer in [0, 1, 3, 10, 1000] {
            for chunk in [0, 1, 2, 10, 11, 999] {
                let collective = Picoseconds(transfer * (chunks - 1));
                let time = looped_time(collective, Picoseconds(chunk * chunks), chunks).0;
                assert_eq!(time, gathering(transfer, chunk, chunks), "{chunks} {transfer} {chunk}");
                assert_eq!(
                    time,
                    scattering(transfer, chunk, chunks),
                    "{chunks} {transfer} {chunk}"
                );
            }
        }
    }
}

#[test]
fn a_loop_takes_no_less_than_either_and_no_more_than_both() {
    for collective in 0..60 {
        for einsum in 0..60 {
            for chunks in 1..9 {
                let (c, e) = (Picoseconds(collective), Picoseconds(einsum));
                let time = looped_time(c, e, chunks);
                assert!(c.max(e) <= time && time <= c + e);
            }
        }
    }
}

/// The feed-forward layer of PaLM 540B on 64 chips, as `spec/cost.md` has it.
#[test]
fn the_worked_number_of_the_cost_model() {
    let plan = "shir 1
layer mlp
mesh x=4, y=4, z=4
dims B=512, L=1, E=18432, F=73728

%0 = parameter x : bf16 BLE_xyz
%1 = parameter w_in : weight bf16 E_xF_yz
%2 = collective-einsum BLE,EF->BLF %0, %1 all-gather 0 over yz along E : bf16 BLF_yz(partialsum-x) @h
return h = %2 : BLF_yz(partialsum-x)
";
    let plan = text::parse(plan).expect("well formed").remove(0);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let price = price(&plan, &Hardware::built_in("tpu-v4-flat").expect("built in"));
    let InstrPrice::Kernel { looped: Some(looped), time, .. } = price.instructions[2] else {
        panic!("a loop")
    };
    assert_eq!((looped.chunks, looped.collective.wire_bytes.0), (16, 4_423_680));
    assert_eq!(
        (looped.collective.time, looped.einsum),
        (Picoseconds(16_384_000), Picoseconds(79_066_444))
    );
    assert_eq!((time, looped.exposed()), (looped.einsum, Picoseconds(0)));
    assert_eq!(price.totals.serial_time, time);
    // The chunks that are under way, beside the operands and the result: two of the 16 that `x` is
    // gathered from.
    let held = (512 * 288 + 4608 * 4608 + 512 * 4608) * 2;
    assert_eq!(price.totals.peak_hbm_bytes.0, held + 2 * 512 * 288 * 2);
}

#[test]
fn a_loop_that_waits_for_the_network_leaves_one_chunk() {
    let us = |us: u64| Picoseconds(us * 1_000_000);
    assert_eq!(looped_time(Picoseconds(16_384_000), us(8), 16), Picoseconds(16_884_000));
}
