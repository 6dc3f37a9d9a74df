//! A step of training: forward and backward in one program, whose values have many readers.

#![allow(missing_docs)]

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::{Limits, LowerError, LowerOptions, Status, lower};

fn step() -> Program {
    let file = SourceFile::new("step", include_str!("files/step_of_training.shard"));
    check_source(&file, &CheckOptions::default()).programs.swap_remove(0)
}

fn chip() -> Hardware {
    Hardware::built_in("tpu-v5e").expect("a chip")
}

#[test]
fn a_step_of_training_is_within_a_hundred_thousandth_of_its_bound() {
    let found = lower(&step(), &chip(), &LowerOptions::default()).expect("a plan").optimality;
    let gap = found.cost.0 - found.lower_bound.0;
    assert!(gap <= found.cost.0 / 100_000, "{found:?}");
}

#[test]
fn the_plan_of_a_search_that_ends_early_takes_what_it_says() {
    let (program, chip) = (step(), chip());
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
