//! A search that is asked to stop.

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
