//! What is said of the other programs: those that have an optimum, and those that have none, with
//! the reason.

#![allow(missing_docs)]

mod common;

use common::{counts, folders, mesh, own};
use shard_audit::before::{advise, optimum, read, translate};
use shard_cost::Hardware;

#[test]
fn every_program_before_is_read_and_has_an_optimum_or_a_reason() {
    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
    for folder in folders(&own()) {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("bad_") {
            continue;
        }
        let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
        let all = counts(&folder);
        let before = read::read(&text, None).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        match translate::translate(&before) {
            Err(why) => eprintln!("{name}: {why}"),
            Ok(layer) => {
                let choice = optimum::Choice::of(&layer);
                let found = optimum::optimum(&layer, &mesh(&all), &choice, &hardware);
                eprintln!("{name}: {found:?} {:?}", layer.barriers);
                let _ = advise::compare;
            }
        }
    }
}
