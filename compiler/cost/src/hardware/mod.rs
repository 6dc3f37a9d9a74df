//! [`Hardware`]: a chip and its network.

mod builtin;
mod file;
mod network_file;
mod scaled;
mod slices;
mod toml_reader;

use std::ops::Range;

use shard_ir::{Dtype, Picoseconds, Plan, never};

pub use builtin::{BUILT_IN, BuiltIn};
pub(crate) use network_file::{CHIPS, MAX_TORUS_AXES, latency, rate, whole};
pub use slices::SliceProblem;
pub(crate) use toml_reader::Table;

pub use crate::network::{
    AxisNetwork, CUBE, Fabric, Figure, Flat, Network, Switched, Torus, Wraparound,
};
pub(crate) use crate::network::{Topology, Wire, WireKind};

/// A chip and its network. Made from a hardware file by [`Hardware::parse`], or one of the
/// [`BUILT_IN`] ones by [`Hardware::built_in`].
///
/// Every rate is a whole number per second, already times the file's efficiency: rounded once,
/// here, so that all times are exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hardware {
    /// Its name.
    pub name: String,
    /// Where its figures come from.
    pub source: Option<String>,
    /// Operations per second that are reached, by arithmetic type, in the order of the file; bf16
    /// is always there.
    flops: Vec<(Dtype, u64)>,
    /// Operations per second at peak.
    peaks: Vec<(Dtype, u64)>,
    /// Operations per second that an attention reaches as one kernel; `None` if the chip does not
    /// run it so.
    attention: Option<Vec<(Dtype, u64)>>,
    /// The side of the tiles in which matrices are multiplied: a tile that is not full takes as
    /// long as a full one.
    pub matmul_tile: Option<u64>,
    /// Bytes of memory that a plan may take on a device: those of the chip less those that the file
    /// reserves, or those of [`Hardware::with_memory_limit`].
    pub hbm_bytes: u64,
    /// Bytes of memory of the chip.
    pub chip_hbm_bytes: u64,
    /// Whether `hbm_bytes` is that of [`Hardware::with_memory_limit`], and not of the file.
    pub has_memory_limit: bool,
    /// Bytes per second from and to memory that are reached.
    pub hbm_rate: u64,
    /// The network between chips.
    pub network: Network,
    /// Bytes per second from host memory; `None` if the file has no `[host]`.
    pub host_rate: Option<u64>,
    /// How often the times of kernels and of moves count.
    weights: Weights,
    /// The time that each layer takes beside its kernels and moves.
    pub layer_overhead: Picoseconds,
}

/// How often the time of kernels, and that of moves, counts. On a chip as its file has it, each
/// counts once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// Of kernels.
    pub ops: u32,
    /// Of moves.
    pub moves: u32,
}

impl Weights {
    /// Everything counts once.
    pub const EVEN: Weights = Weights { ops: 1, moves: 1 };
    /// Communication alone counts.
    pub const MOVES: Weights = Weights { ops: 0, moves: 1 };
}

/// What is wrong with a hardware file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct HardwareError {
    /// The sentence.
    pub message: String,
    /// The key, as a path from the top: `chip.flops.bf16`; empty for an error of TOML itself.
    pub key: String,
    /// The place in the file, in bytes, on character boundaries.
    pub span: Range<usize>,
    /// How to mend it, in words that follow `help:`.
    pub help: Option<String>,
    /// The words that could stand at that place; empty if it is not one word of a few.
    pub known: Vec<String>,
}

impl Hardware {
    /// Reads a hardware file, or says the first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Hardware, HardwareError> {
        Hardware::read(text).map_err(|mut errors| errors.swap_remove(0))
    }

    /// Reads a hardware file, or says everything that is wrong with it, in file order: at least one
    /// error.
    pub fn read(text: &str) -> Result<Hardware, Vec<HardwareError>> {
        file::read(text)
    }

    /// The built-in chip of this name.
    pub fn built_in(name: &str) -> Option<Hardware> {
        let chip = BUILT_IN.iter().find(|b| b.name == name)?;
        // The files are ours and a test parses each.
        let parsed = Hardware::parse(chip.text);
        parsed.map_err(|_| never!("a file of a built-in chip that does not parse", ())).ok()
    }

    /// The same chip with other weights of computing and communicating: the time of every kernel
    /// and of every move is multiplied by its weight.
    #[must_use]
    pub fn weighted(&self, weights: Weights) -> Hardware {
        Hardware { weights, ..self.clone() }
    }

    /// The same chip, on which a plan may take so many bytes of memory, whatever its file says.
    #[must_use]
    pub fn with_memory_limit(&self, bytes: u64) -> Hardware {
        Hardware { hbm_bytes: bytes, has_memory_limit: true, ..self.clone() }
    }

    /// Whether ops take no time.
    pub fn has_free_ops(&self) -> bool {
        self.weights.ops == 0
    }

    /// The time that a kernel counts for.
    pub(crate) fn weighted_kernel(&self, time: Picoseconds) -> Picoseconds {
        Picoseconds(time.0.saturating_mul(u64::from(self.weights.ops)))
    }

    /// How often the time of a move counts.
    pub(crate) fn move_weight(&self) -> u64 {
        u64::from(self.weights.moves)
    }

    /// The time of the whole stack of a plan of which one layer takes `layer`, with the overhead of
    /// each layer. In a model the layers are the applications of its folded blocks, and `layer` is
    /// the time of all of them.
    pub fn stack_time(&self, layer: Picoseconds, plan: &Plan) -> Picoseconds {
        let layers = match plan.folds.as_slice() {
            [] => 1,
            folds => folds.iter().fold(0u64, |sum, fold| sum.saturating_add(fold.repeat)),
        };
        (layer + self.layer_overhead.times(layers)).times(plan.repeat)
    }

    /// Operations per second that are reached in an arithmetic type. A type that the file does not
    /// have counts as bf16; `f4` counts as f8 if the file has f8.
    pub fn flops_rate(&self, arithmetic: Dtype) -> u64 {
        of_arithmetic(&self.flops, arithmetic)
    }

    /// As [`Hardware::flops_rate`], at the chip's peak. Utilisation is a fraction of it.
    pub fn peak_flops_rate(&self, arithmetic: Dtype) -> u64 {
        of_arithmetic(&self.peaks, arithmetic)
    }

    /// Whether attention may run as one kernel.
    pub fn has_attention(&self) -> bool {
        self.attention.is_some()
    }

    /// As [`Hardware::flops_rate`], of an attention as one kernel; that of products if the file
    /// does not say.
    pub fn attention_rate(&self, arithmetic: Dtype) -> u64 {
        of_arithmetic(self.attention.as_ref().unwrap_or(&self.flops), arithmetic)
    }

    /// Whether the file has a figure that suits an arithmetic type: its own, bf16's for f16, or
    /// f8's for f4. Any other type without a figure counts as bf16 and deserves a warning.
    pub fn knows_arithmetic(&self, arithmetic: Dtype) -> bool {
        let has = |dtype| self.flops.iter().any(|(d, _)| *d == dtype);
        arithmetic == Dtype::F16 || has(arithmetic) || arithmetic == Dtype::F4 && has(Dtype::F8)
    }

    /// The arithmetic types that the file has a figure for.
    pub fn arithmetic_types(&self) -> impl Iterator<Item = (Dtype, u64)> + '_ {
        self.flops.iter().copied()
    }
}

fn of_arithmetic(rates: &[(Dtype, u64)], arithmetic: Dtype) -> u64 {
    let rate_of = |dtype: Dtype| rates.iter().find(|(d, _)| *d == dtype).map(|(_, rate)| *rate);
    // Every number of `f4` is a number of `f8`.
    let as_f8 = Some(Dtype::F8).filter(|_| arithmetic == Dtype::F4);
    rate_of(arithmetic)
        .or_else(|| as_f8.and_then(rate_of))
        .or_else(|| rate_of(Dtype::Bf16))
        .unwrap_or_else(|| never!("a chip without a rate of bf16", 1))
}

#[cfg(test)]
mod tests;
