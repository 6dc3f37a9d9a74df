//! Plans within memory.

mod alike;
mod held;
mod limits;
mod proven;

use shard_check::{CheckOptions, check_source};
use shard_cost::{Hardware, Memory};
use shard_grammar::SourceFile;
use shard_ir::Program;
use shard_search::Lowered;

fn program(source: &str) -> Program {
    let checked = check_source(&SourceFile::new("test.shard", source), &CheckOptions::default());
    assert!(checked.diagnostics.iter().all(|d| !d.is_error()), "{:?}", checked.diagnostics);
    checked.programs.into_iter().next().expect("a layer")
}

/// A chip with so much memory, where bytes cost little beside flops.
fn chip(hbm_bytes: u64) -> Hardware {
    chip_of(hbm_bytes, [1e12, 1e12, 1e11])
}

/// A chip of so much memory, flops, memory bandwidth and network bandwidth.
fn chip_of(hbm_bytes: u64, [flops, hbm, network]: [f64; 3]) -> Hardware {
    Hardware::parse(&format!(
        "name = \"small\"\nsource = \"a test\"\n[chip]\nflops = {{ bf16 = {flops:e} }}\nhbm_bytes \
            = {hbm_bytes}\n\
         hbm_bandwidth = {hbm:e}\n[network]\nkind = \"flat\"\nbandwidth = {network:e}\nlatency = \
         0\n"
    ))
    .expect("a hardware file")
}

/// An H100 with so much memory.
fn h100(hbm_bytes: u64) -> Hardware {
    Hardware::built_in("h100").expect("it is built in").with_memory_limit(hbm_bytes)
}

fn needed(lowered: &Lowered) -> u64 {
    Memory::of(&lowered.plan).peak().0
}

/// Two values that come together and part again, with everything left open.
const OPEN: &str = "mesh x=4, y=2
dim B = 512
dim E = 4096
dim F = 4096
dim H = 4096
layer f(
  x: bf16 BE?, z: bf16 BH?, w1: weight bf16 EF?, w2: weight bf16 HF?, w3: weight bf16 FE?,
  w4: weight bf16 FH?, b: weight f32 F?,
) -> (y: bf16 BE?, u: bf16 BH?) {
  let s = einsum(x, w1 -> BF) + einsum(z, w2 -> BF) + cast(b, bf16)
  let t = tanh(s)
  return (x + einsum(t, w3 -> BE), z * einsum(t, w4 -> BH))
}
";
