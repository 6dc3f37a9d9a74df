//! A step of training: forward and backward in one program, whose values have many readers.

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{Limits, LowerError, LowerOptions, Status, lower};

const MESH: &str = "mesh data=4, model=2";

/// The step on a mesh in place of that of its file.
fn step(mesh: &str) -> Program {
    let text = include_str!("files/step_of_training.shard");
    let text = text.replace(MESH, mesh);
    let file = SourceFile::new("step", text);
    check_source(&file, &CheckOptions::default()).programs.swap_remove(0)
}

fn chip() -> Hardware {
    Hardware::built_in("tpu-v5e").expect("a chip")
}

#[test]
fn a_step_of_training_with_everything_left_open_is_proven() {
    let found = lower(&step(MESH), &chip(), &LowerOptions::default()).expect("a plan").optimality;
    assert_eq!(found.status, Status::Proven, "{found:?}");
}

#[test]
#[ignore = "slow: eight seconds"]
fn on_three_axes_it_is_within_a_millionth_of_its_bound() {
    let program = step("mesh data=4, fsdp=4, model=4");
    let chip = Hardware::built_in("tpu-v5p").expect("a chip");
    let found = lower(&program, &chip, &LowerOptions::default()).expect("a plan").optimality;
    assert!(found.cost.0 - found.lower_bound.0 <= found.cost.0 / 1_000_000, "{found:?}");
}

#[test]
fn the_plan_of_a_search_that_ends_early_takes_what_it_says() {
    let (program, chip) = (step(MESH), chip());
    let mut bounded = 0;
    for expansions in [16, 256] {
        // Prices after a few sweeps leave much to the search.
        let limits = Limits { expansions, sweeps: 2, ..Limits::default() };
        let options = LowerOptions { limits, ..LowerOptions::default() };
        let found = match lower(&program, &chip, &options) {
            Ok(found) => found,
            Err(LowerError::Limit { .. }) => continue,
            Err(other) => panic!("{expansions}: {other}"),
        };
        let price = shard_cost::price(&found.plan, &chip).totals.serial_time;
        assert_eq!(found.optimality.cost, price, "{expansions}");
        bounded += usize::from(found.optimality.status == Status::Bounded);
    }
    assert!(bounded == 2, "{bounded}");
}
