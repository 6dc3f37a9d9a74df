//! A feed-forward layer of 10 GFLOP on simulated devices, beside one unsharded evaluation with the
//! same kernel on the same cores: `cargo bench -p shard-runtime`.
//!
//! The plan multiplies as much as the unsharded program does. Inputs are made beforehand. The two
//! take turns, and the least time of each counts: a ratio of two times on one machine says more
//! than either.
//!
//! Measured in November 2026 on two cores of an EPYC with AVX-512, while other work ran there (a load
//! of 8), with `--profile dev`. On 512 devices the activations take 64 times their own size (`x` is
//! gathered over two axes of three), so that memory and not arithmetic decides:
//!
//! | devices | sharded | unsharded | ratio |
//! |---|---|---|---|
//! | 64 | 1.2 s | 0.92 s | 1.30 |
//! | 512 | 4.8 s | 0.79 s | 6.1 |

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shard_ir::{InstrId, Plan};
use shard_runtime::reference::reference;
use shard_runtime::{Arithmetic, RunOptions, Tensor, execute, in_program_order};

/// Runs of each kind.
const ROUNDS: usize = 7;

/// 2D weight-stationary: weights stay, activations move.
fn layer(mesh: &str) -> Plan {
    let text = format!(
        "shir 1\nlayer mlp\nmesh {mesh}\ndims B=1024, E=1024, F=2560\n\
         %0 = parameter x : f32 BE_xyz\n\
         %1 = parameter w_in : weight f32 E_xF_yz\n\
         %2 = parameter w_out : weight f32 F_yzE_x\n\
         %3 = all-gather %0 over yz along E : f32 BE_x\n\
         %4 = einsum BE,EF->BF %3, %1 : f32 BF_yz(partialsum-x)\n\
         %5 = reduce-scatter %4 sum over x along F : f32 BF_yzx\n\
         %6 = gelu %5 : f32 BF_yzx\n\
         %7 = all-gather %6 over x along F : f32 BF_yz\n\
         %8 = einsum BF,FE->BE %7, %2 : f32 BE_x(partialsum-yz)\n\
         %9 = reduce-scatter %8 sum over yz along E : f32 BE_xyz\n\
         return y = %9 : BE_xyz\n"
    );
    match shard_ir::text::parse(&text) {
        Ok(mut plans) => plans.remove(0),
        Err(error) => panic!("the plan of the benchmark: {error:?}"),
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let since = Instant::now();
    std::hint::black_box(work());
    since.elapsed()
}

fn main() {
    for mesh in ["x=4, y=4, z=4", "x=8, y=8, z=8"] {
        let plan = layer(mesh);
        let schedule = in_program_order(&plan);
        let once = execute(&schedule, &RunOptions { patient: true, ..RunOptions::default() });
        let given: BTreeMap<InstrId, Tensor> = once.expect("it runs").parameters;
        let inputs = given.iter().map(|(id, tensor)| {
            (plan.instruction(*id).name.clone().unwrap_or_default(), tensor.clone())
        });
        let options =
            RunOptions { inputs: inputs.collect(), patient: true, ..RunOptions::default() };
        let (mut sharded, mut whole) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            sharded = sharded.min(timed(|| execute(&schedule, &options)));
            whole = whole.min(timed(|| reference(&plan, &given, Arithmetic::Single)));
        }
        println!(
            "{} devices: sharded {sharded:.1?}, unsharded {whole:.1?}, ratio {:.2}",
            plan.mesh.devices(),
            sharded.as_secs_f64() / whole.as_secs_f64()
        );
    }
}
