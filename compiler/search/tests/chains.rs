//! Long chains of elementwise ops. The length of a kernel is limited, so that the work of the
//! search grows no faster than the number of ops.

use crate::common::{Builder, lines};
use shard_cost::{Hardware, LONGEST_KERNEL, kernels, price};
use shard_ir::{Binary, InstrKind, Map, Op, ParameterKind, ValueId};
use shard_search::demand::with_demand;
use shard_search::{LowerOptions, Lowered, Status, lower};

/// An einsum and so many gelus, each of the one before.
fn gelus(count: usize) -> Builder {
    let mut b = Builder::new(&[("x", 4), ("y", 2)], &[("B", 64), ("E", 1024), ("F", 2048)]);
    let a = b.parameter("a", ParameterKind::Activation, "B_xE");
    let w = b.parameter("w", ParameterKind::Weight, "EF_y");
    let mut last = b.einsum("a", &[a, w], "BF");
    for _ in 1..count {
        last = b.op("a", Op::Map(Map::Gelu), &[last], "BF");
    }
    b.output(last, "B_xF");
    b
}

/// A value, and one parameter added to it so many times.
fn sums(count: usize) -> Builder {
    let mut b = Builder::new(&[("x", 4), ("y", 2)], &[("B", 64), ("E", 1024)]);
    let a = b.parameter("a", ParameterKind::Activation, "B_xE");
    let w = b.parameter("w", ParameterKind::Weight, "E_y");
    let mut last = a;
    for i in 0..count {
        let other = if i % 3 == 0 { w } else { a };
        last = b.op("a", Op::Binary(Binary::Add), &[last, other], "BE");
    }
    b.output(last, "B_xE");
    b
}

fn lowered(b: &Builder) -> Lowered {
    lower(&b.program, &Hardware::built_in("tpu-v4-flat").unwrap(), &LowerOptions::default())
        .unwrap()
}

#[test]
fn a_plan_costs_what_the_search_says_however_long_a_chain_is() {
    let hardware = Hardware::built_in("tpu-v4-flat").unwrap();
    for count in [1, LONGEST_KERNEL - 1, LONGEST_KERNEL, LONGEST_KERNEL + 1, 100] {
        for program in [gelus(count), sums(count)] {
            let lowered = lowered(&program);
            assert_eq!(lowered.optimality.status, Status::Proven, "{count}");
            assert_eq!(
                price(&lowered.plan, &hardware).totals.serial_time,
                lowered.optimality.cost,
                "{count}"
            );
        }
    }
}

#[test]
fn the_whole_space_has_no_better_plan_for_a_long_chain() {
    let hardware = Hardware::built_in("tpu-v4-flat").unwrap();
    for program in [gelus(2 * LONGEST_KERNEL + 3), sums(LONGEST_KERNEL + 3)] {
        let whole_space = LowerOptions { whole_space: true, ..LowerOptions::default() };
        let whole = lower(&program.program, &hardware, &whole_space).unwrap();
        assert_eq!(lowered(&program).optimality.cost, whole.optimality.cost);
    }
}

#[test]
fn a_kernel_begins_at_every_sixteenth_op_of_a_chain() {
    let plan = lowered(&gelus(100)).plan;
    let lengths: Vec<usize> = kernels(&plan).iter().map(Vec::len).collect();
    assert_eq!(lengths, [16, 16, 16, 16, 16, 16, 4], "{:#?}", lines(&plan));
}

#[test]
fn a_move_within_a_chain_ends_a_kernel_and_does_not_shift_where_the_next_begins() {
    let mut b = gelus(20);
    let (_, pattern) = b.pattern("BF_x", false);
    b.program = with_demand(&b.program, ValueId(7), std::slice::from_ref(&pattern), None);
    b.program.outputs[0].pattern = pattern;
    let lowered = lowered(&b);
    let moves =
        lowered.plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Move(_))).count();
    assert!(moves > 0);
    let lengths: Vec<usize> = kernels(&lowered.plan).iter().map(Vec::len).collect();
    assert_eq!(lengths.iter().sum::<usize>(), 20);
    assert_eq!(lengths.last(), Some(&4), "{lengths:?}");
}

#[test]
fn what_the_search_looks_at_grows_with_the_length_of_a_chain_and_no_faster() {
    let nodes = |count: usize| lowered(&gelus(count)).stats.nodes;
    let (short, long) = (nodes(200), nodes(400));
    assert!(4 * long <= 9 * short, "{short} e-nodes for 200 ops, {long} for 400");
}
