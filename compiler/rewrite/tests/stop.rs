//! A search that is asked to stop, and one that cannot count so far.

#![allow(missing_docs)]

use shard_check::{CheckOptions, check_source};
use shard_cost::Hardware;
use shard_grammar::SourceFile;
use shard_rewrite::{Limits, LowerError, LowerOptions, Stop, lower};

const SOURCE: &str = "mesh x=4, y=2\ndim B = 64\ndim E = 128\ndim F = 256\nlayer f(a: bf16 BE_x, w: weight bf16 E_xF_y) \
                      -> bf16 BF? {\n  return gelu(einsum(a, w -> BF))\n}\n";

#[test]
fn a_search_that_is_stopped_says_so_and_one_that_is_not_is_what_it_is_without_the_flag() {
    let checked = check_source(&SourceFile::new("f", SOURCE), &CheckOptions::default());
    let chip = Hardware::built_in("tpu-v4-flat").expect("a chip");
    let stop = Stop::default();
    let limits = Limits { stop: stop.clone(), ..Limits::default() };
    let options = LowerOptions { limits, ..LowerOptions::default() };
    let free = lower(&checked.programs[0], &chip, &LowerOptions::default()).expect("a plan");
    let watched = lower(&checked.programs[0], &chip, &options).expect("a plan");
    assert_eq!((free.plan, free.optimality), (watched.plan, watched.optimality));
    stop.ask();
    assert_eq!(lower(&checked.programs[0], &chip, &options).err(), Some(LowerError::Stopped));
}

#[test]
fn what_takes_longer_than_times_are_counted_is_not_called_unreachable() {
    let text = "name = \"c\"\n[chip]\nflops = { bf16 = 1 }\nhbm_bytes = 1e11\nhbm_bandwidth = 1e12\n[network]\n\
                kind = \"flat\"\nbandwidth = 1e9\nlatency = 0\n";
    let chip = Hardware::parse(text).expect("a chip");
    let lowered = |b: &str| {
        let options = CheckOptions { dim_overrides: vec![("B".into(), b.into())], ..CheckOptions::default() };
        lower(&check_source(&SourceFile::new("f", SOURCE), &options).programs[0], &chip, &LowerOptions::default())
    };
    // 64 * 128 * 256 multiplications and additions on 8 devices, one a second: six days.
    let days = lowered("64").expect("a plan");
    assert!(days.optimality.cost.seconds() > 5e5, "{:?}", days.optimality);
    assert!(matches!(lowered("128"), Err(LowerError::TooLong(_))));
}
