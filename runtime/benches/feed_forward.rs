//! A feed-forward layer of 10 GFLOP on simulated devices, beside one unsharded evaluation with the
//! same kernel on the same cores: `cargo bench -p shard-runtime`, on 64 and on 512 devices;
//! `-- --devices 8` on so many alone. `benches/against_jax.py` holds it against JAX.
//!
//! The plan multiplies as much as the unsharded program does. Inputs are made beforehand. The two
//! take turns, and the least time of each counts: a ratio of two times on one machine says more
//! than either.
//!
//! Measured in November 2026 on two cores of a Xeon with AVX-512, while other work ran there (a
//! load of 10), in release. On 512 devices the activations take 64 times their own size (`x` is
//! gathered over two axes of three), so that memory and not arithmetic decides:
//!
//! | devices | sharded | unsharded | ratio | JAX, sharded | JAX, unsharded |
//! |---|---|---|---|---|---|
//! | 64 | 0.96 s | 1.04 s | 0.97 to 1.26 | 0.115 s | 0.060 s |
//! | 512 | 4.1 s | 0.99 s | 4.2 | | |
//!
//! JAX is 8 times as fast. The kernel for matrices is not why: a profile of 64 devices has a
//! quarter of the time in it; the rest are `tanh`, copies and sums of numbers that are kept as
//! `f64`, and pages that are touched for the first time. The kernel by itself, on one core and
//! 1024x1024x2560, does 36 % of what a loop of fused multiply-adds in registers does with AVX-512
//! (68 % of one with AVX2, which is what it uses); the crate `gemm` does 86 %, but its interface is
//! `unsafe`, and `faer`, whose is not, did 61 to 90 % beside other work and takes two minutes of a
//! core to compile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shard_ir::{InstrId, Plan};
use shard_runtime::reference::reference;
use shard_runtime::{Arithmetic, RunOptions, Tensor, execute, in_program_order};

/// Runs of each kind.
const ROUNDS: usize = 11;

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

/// What something takes: seconds by the clock, and of all processors together.
#[derive(Clone, Copy)]
struct Took {
    clock: Duration,
    processors: f64,
}

fn timed<T>(work: impl FnOnce() -> T) -> Took {
    let (since, before) = (Instant::now(), processors());
    std::hint::black_box(work());
    Took { clock: since.elapsed(), processors: processors() - before }
}

/// Seconds that this process has had of all processors, in steps of a hundredth; 0 where the system
/// does not say it in a file.
fn processors() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process, which may have spaces, ends with the last parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The least time by the clock, and the mean of the processors': what others do on a machine makes
/// the first longer, and hardly the second.
fn best(rounds: &[Took]) -> Took {
    let clock = rounds.iter().map(|took| took.clock).min().unwrap_or_default();
    let processors = rounds.iter().map(|took| took.processors).sum::<f64>();
    Took { clock, processors: processors / rounds.len() as f64 }
}

/// The devices that are asked for, where some are; cargo passes options of its own.
fn asked() -> Option<u64> {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == "--devices")?;
    args.get(at + 1)?.parse().ok()
}

fn main() {
    let asked = asked();
    for side in [2, 4, 8u64] {
        let devices = side * side * side;
        if asked.map_or(side == 2, |asked| asked != devices) {
            continue;
        }
        let plan = layer(&format!("x={side}, y={side}, z={side}"));
        let schedule = in_program_order(&plan);
        let once = execute(&schedule, &RunOptions { patient: true, ..RunOptions::default() });
        let given: BTreeMap<InstrId, Arc<Tensor>> = once.expect("it runs").parameters;
        let inputs = given.iter().map(|(id, tensor)| {
            (plan.instruction(*id).name.clone().unwrap_or_default(), tensor.clone())
        });
        let options =
            RunOptions { inputs: inputs.collect(), patient: true, ..RunOptions::default() };
        let (mut sharded, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            sharded.push(timed(|| execute(&schedule, &options)));
            whole.push(timed(|| reference(&plan, &given, Arithmetic::Single)));
        }
        let (sharded, whole) = (best(&sharded), best(&whole));
        let seconds = [sharded, whole].map(|took| took.clock.as_secs_f64());
        println!(
            "{devices} devices: sharded {:.3} s, unsharded {:.3} s, ratio {:.2}; of processors \
             {:.3} s and {:.3} s, ratio {:.2}",
            seconds[0],
            seconds[1],
            seconds[0] / seconds[1],
            sharded.processors,
            whole.processors,
            sharded.processors / whole.processors
        );
    }
}
