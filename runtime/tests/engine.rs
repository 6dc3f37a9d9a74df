//! The results of an engine are judged as those of the simulated devices are.

use std::sync::Arc;

use shard_ir::{InstrId, Plan};
use shard_runtime::{Engine, RunError, RunOptions, Tensor, run_plan};

/// A sum over `x` that every device is to hold.
const PLAN: &str = "shir 1\nlayer l\nhardware tpu-v4-flat\nmesh x=2, y=2\ndims B=4, E=6\n\n\
    %0 = parameter a : f32 B_yE(partialsum-x)\n\
    %1 = all-reduce %0 sum over x : f32 B_yE\nreturn r = %1 : B_yE\n";

/// An engine that adds the blocks of devices that differ in `x`, and a number to the block of one
/// device.
#[derive(Debug)]
struct Adds {
    off: f64,
    lost: bool,
}

impl Engine for Adds {
    fn execute(
        &self,
        _: &Plan,
        parameters: &[(InstrId, Vec<Tensor>)],
    ) -> Result<Vec<Vec<Tensor>>, String> {
        let [(_, blocks)] = parameters else { return Err("one parameter".to_string()) };
        let added = |device: usize| {
            let mut block = blocks[device].clone();
            let other = &blocks[(device + 2) % 4];
            block.data.iter_mut().zip(&other.data).for_each(|(a, b)| *a += b);
            if device == 3 {
                block.data[0] += self.off;
            }
            block
        };
        Ok(vec![(0..if self.lost { 3 } else { 4 }).map(added).collect()])
    }
}

fn judged(off: f64, lost: bool) -> Result<shard_runtime::Report, RunError> {
    let plan = shard_ir::text::parse(PLAN).expect("IR text").remove(0);
    let engine: Arc<dyn Engine> = Arc::new(Adds { off, lost });
    run_plan(&plan, &RunOptions { engine: Some(engine), ..RunOptions::default() })
}

#[test]
fn results_of_an_engine_are_compared_with_the_unsharded_program() {
    let report = judged(0.0, false).expect("executed");
    assert!(report.equal && report.exact);
    assert_eq!((report.devices, report.collectives.len()), (4, 0));
}

#[test]
fn copies_that_differ_are_seen() {
    assert!(matches!(judged(1.0, false), Err(RunError::ReplicasDiffer { .. })));
}

#[test]
fn a_block_that_is_missing_is_seen() {
    let error = judged(0.0, true).expect_err("a block is missing").to_string();
    assert_eq!(error, "its blocks of `r` are of other shapes");
}
