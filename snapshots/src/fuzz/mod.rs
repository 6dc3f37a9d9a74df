//! Fuzzing: odd and wrong inputs, made from right ones by a seed, and what is claimed of the
//! compiler on all of them.
//!
//! A [`Surface`] is one kind of input: it has right inputs to start from, a way to spoil them, and
//! a judge, which holds the compiler to its claims on one input. A [`Campaign`] makes and judges so
//! many cases of one seed; the same seed gives the same cases on every machine. What once failed is
//! kept under `snapshots/fuzzed` and judged by every test run.
//!
//! `spec/fuzzing.md` says how to run it by hand.

mod campaign;
mod certificate;
mod command_line;
mod config;
mod editor;
mod hardware;
mod mutate;
mod npy;
mod plan;
mod process;
mod program;
mod smaller;
mod snapshot;
mod strange;
mod tokens;
mod well_formed;
mod words;

pub use campaign::{Campaign, Failure, Tally, caught, kept};
pub use mutate::Mutator;
pub use process::Shardc;
pub use smaller::smaller;

use shard_runtime::Random;

/// One kind of input.
#[derive(Clone, Copy)]
pub struct Surface {
    /// What it is called on the command line, and its folder under `snapshots/fuzzed`.
    pub name: &'static str,
    /// How the name of a file with such an input ends.
    pub extension: &'static str,
    /// Right inputs, in the same order on every machine.
    pub corpus: fn(&Shardc) -> Vec<Vec<u8>>,
    /// An input made from right ones.
    pub make: fn(&[Vec<u8>], &mut Random) -> Vec<u8>,
    /// Holds the compiler to its claims on one input, or says which is broken.
    pub judge: fn(&Shardc, &[u8]) -> Verdict,
}

/// What became of an input on which every claim holds.
pub type Verdict = Result<Depth, String>;

/// How far an input came: a campaign whose inputs are all refused at the door finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// It was refused with a diagnostic.
    Refused,
    /// It was accepted.
    Accepted,
    /// What it says was executed, or computed.
    Executed,
}

/// Every surface.
pub const SURFACES: &[Surface] = &[
    program::SURFACE,
    plan::SURFACE,
    hardware::SURFACE,
    certificate::SURFACE,
    config::SURFACE,
    npy::SURFACE,
    command_line::SURFACE,
    snapshot::SURFACE,
    editor::SURFACE,
];

/// The surface of a name.
pub fn surface(name: &str) -> Option<&'static Surface> {
    SURFACES.iter().find(|surface| surface.name == name)
}

/// A text of an input whose bytes need not be one.
fn text_of(case: &[u8]) -> String {
    String::from_utf8_lossy(case).into_owned()
}

/// A number that follows from an input: for what a judge may do in one way or another.
fn hash(case: &[u8]) -> u64 {
    case.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
