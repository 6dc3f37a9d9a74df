//! A feed-forward layer of 10 GFLOP on simulated devices, beside one unsharded evaluation with the
//! same kernel on the same cores: `cargo bench -p shard-runtime`, on 64 and on 512 devices;
//! `-- --devices 8` on so many alone. `benches/against_jax.py` holds it against JAX.
//!
//! The plan multiplies as much as the unsharded program does. Inputs are made before the clock
//! starts, and put on the devices while it runs. Devices and unsharded program take turns; the
//! least time by the clock of each counts, and the mean of the processors' time. The ratio of the
//! two times depends less on the machine than either time. From the second turn on blocks lie in
//! memory that the turns before have left ([`RunOptions::spare`]), as JAX's do.
//!
//! Measured in November 2026 on two cores of an EPYC with AVX-512 (Zen 5), in release, while other
//! work ran there that was made to wait (a session of its own, with -19 in its
//! `/proc/self/autogroup`). Seconds by the clock, and in parentheses of both processors together:
//!
//! | | 64 devices | 512 devices |
//! |---|---|---|
//! | sharded | 0.056 to 0.092 (0.11 to 0.13) | 0.134 to 0.150 (0.24 to 0.26) |
//! | unsharded | 0.074 to 0.13 (0.13 to 0.17) | 0.083 to 0.097 (0.12 to 0.14) |
//! | ratio | 0.61 to 0.81 | 1.5 to 1.7 |
//! | JAX, sharded | 0.059 to 0.075 (0.12 to 0.14) | none: it stops, a rendezvous takes too long |
//! | JAX, unsharded | 0.032 to 0.042 (0.08 to 0.10) | |
//!
//! On 64 devices that is 0.87 to 0.97 times as long as JAX by the clock in seven runs of the script
//! out of ten, 1.21 to 1.30 in three, and 0.83 to 0.94 times its processors in all ten. Where
//! other work is not made to wait the clock is for JAX, which has 64 threads to two: 1.4 to 2.7
//! times as long was seen, for 0.91 to 1.08 of the processors.
//!
//! A run on one core takes 105 ms: 68 go into products, a quarter of it into packing operands; 16
//! into GELU; 11 into sums over devices, which wait for memory; 5 to put inputs on the devices, 2
//! to see that no rounding changes them.
//!
//! The kernel (`matrixmultiply`, f32, one core), in parts of a loop of 16 independent fused
//! multiply-adds of 512 bits in registers, which does 263 GFLOP/s there; beside it two others:
//!
//! | product | `matrixmultiply` | `faer` 0.24 | `rten-gemm` 0.27 |
//! |---|---|---|---|
//! | 1024x1024x2560 | 73 to 76 % | 68 to 77 % | 88 % |
//! | 1024x512x2560 | 76 to 83 % | 77 to 80 % | 86 to 94 % |
//! | 1024x256x160 (64 devices) | 75 to 77 % | 92 % | 98 % |
//! | 1024x160x256 (64 devices) | 81 % | 94 to 98 % | 97 to 100 % |
//! | 1024x128x40 (512 devices) | 46 % | 85 % | 61 % |
//! | 64x288x1152 | 74 to 76 % | 81 to 83 % | 82 to 85 % |
//!
//! `faer` takes 76 s of a core to compile and 43 crates, and in its place here the layer took 1.35
//! times the processors' time; `rten-gemm` has no products of `f64`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shard_ir::{InstrId, Plan};
use shard_runtime::reference::reference;
use shard_runtime::{Arithmetic, RunOptions, Tensor, execute, in_program_order};

/// How often each of the two is run.
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

/// The time of a run, in seconds: by the clock, and of all processors together.
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

/// Seconds of all processors that this process has used, in steps of a hundredth; 0 if the system
/// has no file that says it.
fn processors() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process, which may have spaces, ends with the last parenthesis.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The least time by the clock, and the mean of the processors' time. Other work on the machine
/// makes the first longer, and hardly the second.
fn best(rounds: &[Took]) -> Took {
    let clock = rounds.iter().map(|took| took.clock).min().unwrap_or_default();
    let processors = rounds.iter().map(|took| took.processors).sum::<f64>();
    Took { clock, processors: processors / rounds.len() as f64 }
}

/// The number of devices of `--devices`, if it is given. Cargo passes options of its own beside it.
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
