//! What is said of the other programs: those that have an optimum, and those that have none, with
//! the reason.

use crate::common::{counts, folders, mesh, own};
use shard_audit::before::{optimum, read, translate};
use shard_audit::collectives::collectives;
use shard_audit::hlo::Module;
use shard_audit::report::Report;
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
        let wanted = match name.as_str() {
            // As many bytes as XLA for TPU sends.
            "gqa_decode" => "28672",
            "llama_block" => "1572864",
            "llama_scan" => "53477376",
            "mlp_megatron" => "3145728",
            // As many as XLA for CPU sends; of the large one half as many.
            "mlp_fsdp_scan" => "44040192",
            "mlp_fsdp_large" => "251658240",
            // Two loops: a training step through a scan, its turns written out.
            "train_fsdp_adam" => "10207232",
            // One `shard_map` and nothing else: what is sent is written by hand.
            "calibration" | "moe_alltoall" | "pipeline_ppermute" => "0",
            other => panic!("what does {other} send?"),
        };
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn what_a_shard_map_sends_is_by_hand() {
    for (name, all) in [("moe_alltoall", 393_216), ("pipeline_ppermute", 188_416)] {
        let folder = own().join(name);
        let text = std::fs::read_to_string(folder.join("cpu.hlo")).expect("a dump");
        let module = Module::read(&text).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let mesh = mesh(&counts(&folder));
        let found = collectives(&module, Some(&mesh)).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let chip = Hardware::built_in("tpu-v5e").expect("a built-in chip");
        let report = Report::new(name, found, Some(&mesh), Some(&chip), &mut |_| None);
        let by_hand = report.by_hand();
        assert_eq!(by_hand.wire_bytes, all, "{name}");
        // The program sends nothing else, so that this is its total.
        assert_eq!(by_hand, report.totals, "{name}");
        assert!(by_hand.time.is_some_and(|time| time.0 > 0), "{name}");
        let text = std::fs::read_to_string(folder.join("stablehlo.loc.mlir")).expect("StableHLO");
        let layer = translate::translate(&read::read(&text, None).expect("it is read"));
        assert_eq!(layer.expect("it is translated").manual, 1, "{name}");
    }
}

#[test]
fn a_shard_map_takes_and_gives_what_it_says() {
    let text = MANUAL;
    let layer = translate::translate(&read::read(text, None).expect("it is read"));
    let layer = layer.expect("it is translated");
    let spec = |axes: [&str; 2]| {
        Some(
            axes.map(|axis| match axis {
                "" => Vec::new(),
                axis => vec![axis.to_string()],
            })
            .to_vec(),
        )
    };
    // The operands of a `shard_map` are results of the layer, and its result is a parameter.
    let inside: Vec<_> = layer.outputs.iter().filter(|output| output.result.is_none()).collect();
    assert_eq!(inside.len(), 2);
    assert_eq!(inside[0].spec, spec(["x", "y"]));
    assert_eq!(inside[1].spec, spec(["y", ""]));
    let given = layer.parameters.iter().find(|parameter| parameter.argument.is_none());
    assert_eq!(given.expect("its result").spec, spec(["x", ""]));
    let hardware = Hardware::built_in("tpu-v5e").expect("a built-in chip");
    let mesh = vec![("x".to_string(), 2), ("y".to_string(), 4)];
    let found = optimum::optimum(&layer, &mesh, &optimum::Choice::of(&layer), &hardware);
    // `w` comes split over its columns, and is taken split over its rows: 3/4 of a quarter moves.
    assert_eq!(found.expect("a plan").totals.wire_bytes, 256 * 512 * 4 / 4 * 3 / 4);
}

/// A product, a `shard_map` of it, and a function of what that gives.
const MANUAL: &str = r#"module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func public @main(%arg0: tensor<128x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>}, %arg1: tensor<256x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) -> (tensor<128x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"x"}, {"y"}]>, <@mesh, [{"y"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x", "y"} (%arg2: tensor<64x64xf32>, %arg3: tensor<64x512xf32>) {
      %2 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x512xf32>) -> tensor<64x512xf32>
      %3 = "stablehlo.all_reduce"(%2) <{replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %4 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %4 : tensor<f32>
      }) : (tensor<64x512xf32>) -> tensor<64x512xf32>
      sdy.return %3 : tensor<64x512xf32>
    } : (tensor<128x256xf32>, tensor<256x512xf32>) -> tensor<128x512xf32>
    %1 = stablehlo.tanh %0 : tensor<128x512xf32>
    return %1 : tensor<128x512xf32>
  }
}
"#;

/// A program that is one loop over stacks of weights, which returns these values.
fn scan_that_returns(values: &str) -> Result<translate::Layer, String> {
    let path = own().join("mlp_fsdp_scan/stablehlo.loc.mlir");
    let text = std::fs::read_to_string(path).expect("StableHLO");
    let (head, result) =
        ("-> (tensor<256x512xf32> {jax.result_info", "return %0#3 : tensor<256x512xf32>");
    assert!(text.contains(head) && text.contains(result));
    let text = text.replace(result, values);
    let types = values.split_once(" : ").expect("types").1;
    let others = types.rsplit_once("tensor<").map_or("", |(others, _)| others);
    let text = text.replace(head, &format!("-> ({others}tensor<256x512xf32> {{jax.result_info"));
    translate::translate(&read::read(&text, None).expect("it is right"))
}

#[test]
fn the_result_of_a_repeated_layer_is_the_one_that_the_loop_carries() {
    let layer = scan_that_returns("return %0#2, %0#3 : tensor<i32>, tensor<256x512xf32>");
    let outputs: Vec<_> = layer.expect("a layer").outputs.iter().map(|o| o.result).collect();
    assert_eq!(outputs, [Some(1)]);
    // A program that drops what its loop carries has no such result.
    let layer = scan_that_returns("return %0#2 : tensor<i32>");
    assert_eq!(layer.expect_err("no layer"), "it returns no tensor");
}
