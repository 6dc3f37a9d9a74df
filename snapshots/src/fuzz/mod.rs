//! Fuzzing: odd and wrong inputs, made from correct ones by a seed, and the claims about the
//! compiler that hold for all of them.
//!
//! A [`Surface`] is one kind of input: it has correct inputs to start from, a way to spoil them,
//! and a judge, which tests the claims on one input. A [`Campaign`] makes and judges a number of
//! cases of one seed; the same seed gives the same cases on every machine. Cases that once failed
//! are kept under `snapshots/fuzzed`, and every test run judges them.
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
    /// Its name on the command line, and its folder under `snapshots/fuzzed`.
    pub name: &'static str,
    /// The extension of a file with such an input.
    pub extension: &'static str,
    /// Correct inputs, in the same order on every machine.
    pub corpus: fn(&Shardc) -> Vec<Vec<u8>>,
    /// An input made from correct ones.
    pub make: fn(&[Vec<u8>], &mut Random) -> Vec<u8>,
    /// Tests the claims about the compiler on one input; an error names the broken claim.
    pub judge: fn(&Shardc, &[u8]) -> Verdict,
}

/// The result for an input on which every claim holds.
pub type Verdict = Result<Depth, String>;

/// How far an input came: a campaign whose inputs are all refused at once finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Depth {
    /// It was refused with a diagnostic.
    Refused,
    /// It was accepted.
    Accepted,
    /// Its program was executed, or its result computed.
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

/// An input as text, although its bytes may not be UTF-8.
fn text_of(case: &[u8]) -> String {
    String::from_utf8_lossy(case).into_owned()
}

/// A number computed from an input: with it a judge chooses between several ways.
fn hash(case: &[u8]) -> u64 {
    case.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
