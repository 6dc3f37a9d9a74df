//! Loops in the overlap schedule.

use shard_cost::{Hardware, price};
use shard_ir::{Picoseconds, Plan};
use shard_schedule::{Timeline, overlap};

fn timeline(body: &str) -> (Plan, Timeline) {
    let text = format!("shir 1\nlayer l\nmesh x=4, y=4\ndims B=4096, E=4096, F=65536\n{body}");
    let plan = shard_ir::text::parse(&text).expect("well formed").remove(0);
    assert_eq!(shard_ir::verify::verify(&plan), Ok(()));
    let hardware = Hardware::built_in("tpu-v4-face").expect("built in");
    let timeline = overlap(&plan, &price(&plan, &hardware), &hardware);
    (plan, timeline)
}

const GIVEN: &str = "%0 = parameter x : bf16 B_xE_y\n%1 = parameter w : weight bf16 EF_y\n%2 = \
    parameter v : bf16 B_xE_y\n";
const LOOP: &str =
    "%3 = collective-einsum BE,EF->BF %0, %1 all-gather 0 over y along E : bf16 B_xF_y @h\n";
const RETURN: &str = "return h = %3 : B_xF_y\n";

#[test]
fn a_loop_alone_takes_its_own_time() {
    let (plan, timeline) = timeline(&format!("{GIVEN}{LOOP}{RETURN}"));
    let price = price(&plan, &Hardware::built_in("tpu-v4-face").expect("built in"));
    assert_eq!(timeline.makespan, price.totals.serial_time);
    assert_eq!(timeline.critical_path, [shard_ir::InstrId(3)]);
}

#[test]
fn another_collective_uses_the_network_that_a_loop_has_left() {
    let time = |more: &str| timeline(&format!("{GIVEN}{LOOP}{more}{RETURN}")).1.makespan;
    let alone = time("");
    // The einsum takes 500 us, and its all-gather 93 us: a second all-gather over y fits beside the
    // einsum as well.
    assert_eq!(time("%4 = all-gather %2 over y along E : bf16 B_xE\n"), alone);
    assert!(alone > Picoseconds(2 * 93_000_000));
}
