//! Strict layers: only plans whose moves are all written are searched, however much faster a plan
//! with other moves would be.

use crate::common::{Builder, lines};
use shard_cost::Hardware;
use shard_ir::{InstrKind, Map, Op, ParameterKind};
use shard_search::{LowerError, LowerOptions, Lowered, Status, lower};

/// Activations split over `x` and weights that are whole: it can be done as it lies, and faster on
/// parts over `y`.
fn feed_forward(result: &str) -> Builder {
    let mut b = Builder::new(&[("x", 4), ("y", 2)], &[("B", 512), ("E", 1024), ("F", 4096)]);
    let x = b.parameter("x", ParameterKind::Activation, "B_xE");
    let w_in = b.parameter("w_in", ParameterKind::Weight, "EF");
    let w_out = b.parameter("w_out", ParameterKind::Weight, "FE");
    let h = b.einsum("h", &[x, w_in], "BF");
    let a = b.op("a", Op::Map(Map::Gelu), &[h], "BF");
    let y = b.einsum("y", &[a, w_out], "BE");
    b.output(y, result);
    b
}

fn lowered(b: &Builder, strict: bool) -> Result<Lowered, LowerError> {
    let options = LowerOptions { strict, ..LowerOptions::default() };
    lower(&b.program, &Hardware::built_in("tpu-v4-flat").unwrap(), &options)
}

fn moves(lowered: &Lowered) -> usize {
    lowered.plan.instructions.iter().filter(|i| matches!(i.kind, InstrKind::Move(_))).count()
}

#[test]
fn a_strict_layer_has_its_plan_without_moves_where_one_with_moves_is_faster() {
    let b = feed_forward("B_xE");
    let (free, strict) = (lowered(&b, false).unwrap(), lowered(&b, true).unwrap());
    assert!(moves(&free) > 0, "{:#?}", lines(&free.plan));
    assert_eq!(moves(&strict), 0, "{:#?}", lines(&strict.plan));
    assert!(free.optimality.cost < strict.optimality.cost);
    assert_eq!(strict.optimality.status, Status::Proven);
}

#[test]
fn a_strict_layer_without_such_a_plan_is_told_what_to_write() {
    let error =
        lowered(&feed_forward("B_yE"), true).expect_err("the result lies over another axis");
    let LowerError::Strict { inserted, .. } = error else { panic!("{error}") };
    assert!(!inserted.is_empty());
}
