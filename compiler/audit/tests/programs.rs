//! What is said of the other programs: those that have an optimum, and those that have none, with
//! the reason.

#![allow(missing_docs)]

mod common;

use common::{counts, folders, mesh, own};
use shard_audit::before::{optimum, read, translate};
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
        let found = match translate::translate(&before) {
            Err(why) => why,
            Ok(layer) => {
                let choice = optimum::Choice::of(&layer);
                let found = optimum::optimum(&layer, &mesh(&all), &choice, &hardware)
                    .unwrap_or_else(|why| panic!("{name}: {why}"));
                assert!(found.proven, "{name}");
                found.totals.wire_bytes.to_string()
            }
        };
        let by_hand = "it is a `shard_map`, whose collectives are written by hand";
        let wanted = match name.as_str() {
            // As many bytes as XLA for TPU sends.
            "gqa_decode" => "28672",
            "llama_block" => "1572864",
            "llama_scan" => "53477376",
            "mlp_megatron" => "3145728",
            // As many as XLA for CPU sends; of the large one half as many.
            "mlp_fsdp_scan" => "44040192",
            "mlp_fsdp_large" => "251658240",
            "train_fsdp_adam" => "`main` has 2 loops, and one is translated",
            _ => by_hand,
        };
        assert_eq!(found, wanted, "{name}");
    }
}
