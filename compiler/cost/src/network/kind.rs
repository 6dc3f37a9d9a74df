//! [`Kind`]: what every kind of network answers, and [`Fabric`], which is one of them.

use shard_ir::Picoseconds;

use super::{Flat, Slice, Switched, Torus, Wire};
use crate::collective::{ExchangeLoad, Fraction, How, PermuteLoad, Term};
use crate::hardware::{SliceProblem, Table};

/// A figure of a network, as a document states it.
#[derive(Clone, PartialEq, Debug)]
pub enum Figure {
    /// A number of devices, or of bytes per second.
    Count(u64),
    /// A time.
    Seconds(f64),
    /// One of some words.
    Word(String),
    /// Sizes of axes.
    Sizes(Vec<u64>),
    /// Whether it is so.
    Flag(bool),
}

/// A part of an all-gather: the devices of a part of the group give each other what they have.
pub(crate) struct Gathered {
    pub(crate) members: u64,
    /// Bytes per second that the part moves.
    pub(crate) rate: u64,
    /// Whether a device's own share counts as moved: on a two-way ring it does (book part 3),
    /// elsewhere not.
    pub(crate) counts_own: bool,
}

/// What moves terms on one network, and how.
pub(crate) struct Moved {
    pub(crate) terms: Vec<Term>,
    /// The terms go on at the same time.
    pub(crate) at_once: bool,
    /// How many steps or hops there are from end to end.
    pub(crate) steps: u64,
}

/// What a kind of network answers.
pub(crate) trait Kind {
    /// What it is called in a report.
    fn name(&self) -> &'static str;

    /// Reads the rest of the table of a hardware file.
    fn read(table: &mut Table<'_, '_>, efficiency: f64) -> Option<Self>
    where
        Self: Sized;

    /// Its figures as a document states them, in order.
    fn figures(&self) -> Vec<(&'static str, Figure)>;

    /// Its bandwidths, for those who make it faster or slower.
    fn rates(&mut self) -> Vec<&mut u64>;

    /// What a step or a hop takes at least.
    fn latency(&self) -> Picoseconds;

    /// The wires of each mesh axis, major to minor; `axes` has for each the torus axes that it
    /// stands for.
    fn wires(&self, axes: &[Vec<u64>]) -> Vec<Vec<Wire>>;

    /// Whether what a move takes depends on how many devices it connects, and not on which.
    fn is_uniform(&self) -> bool;

    /// Whether every axis has links of its own: transfers along different axes do not disturb each
    /// other, and what goes along one is followed link by link.
    fn has_links(&self) -> bool;

    /// What is wrong with a slice, if anything.
    fn slice_problem(&self, slice: &Slice) -> Option<SliceProblem>;

    /// The parts of an all-gather among so many devices over some wires.
    fn gather(&self, members: u64, wires: &[Wire]) -> Vec<Gathered>;

    /// The hops from end to end, or the steps, of an all-gather.
    fn gather_steps(&self, members: u64, wires: &[Wire]) -> u64;

    /// An all-to-all among so many devices, of which each holds `bits`.
    fn all_to_all(&self, members: u64, wires: &[Wire], bits: u128) -> Moved;

    /// Bytes per second at which the busiest link, or device, sends the blocks of a permute.
    fn permute_rate(&self, load: &PermuteLoad) -> u64;

    /// What an exchange moves where devices hold `bits`, all at once.
    fn exchange(&self, load: &ExchangeLoad, bits: u128) -> Vec<Term>;

    /// No block that leaves its device arrives at more bytes per second.
    fn fastest(&self) -> u64;

    /// The mesh of two or three axes, major to minor, that suits so many chips: its last axis has
    /// one of the sizes `last`, smallest first. `problem` says what is wrong with a slice of a
    /// shape; `None` if it is no mesh at all.
    fn mesh(&self, chips: u64, last: &[u64], problem: &SlicesOf<'_>) -> Option<Vec<u64>>;
}

/// What is wrong with the slice of a shape: `None` if there is no such mesh, `Some(None)` if
/// nothing is.
pub(crate) type SlicesOf<'a> = dyn Fn(&[u64]) -> Option<Option<SliceProblem>> + 'a;

/// The kinds, each with the word of the hardware file: the one list of them.
macro_rules! kinds {
    ($($name:ident = $word:literal),+ $(,)?) => {
        /// One kind of network with its figures. Bandwidths are bytes per second in one direction,
        /// efficiency included.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Fabric {
            $(#[doc = concat!("`kind = \"", $word, "\"`.")] $name($name),)+
        }

        /// The words of the kinds.
        pub(crate) const KINDS: &[&str] = &[$($word),+];

        impl Fabric {
            /// The word of the hardware file.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Fabric::$name(_) => $word,)+
                }
            }

            /// Reads the table of the kind that a word names; `None` if there is none, `Some(None)`
            /// if the table is wrong.
            pub(crate) fn read(
                word: &str,
                table: &mut Table<'_, '_>,
                efficiency: f64,
            ) -> Option<Option<Fabric>> {
                match word {
                    $($word => Some($name::read(table, efficiency).map(Fabric::$name)),)+
                    _ => None,
                }
            }

            /// What its kind answers.
            pub(crate) fn kind(&self) -> &dyn Kind {
                match self {
                    $(Fabric::$name(kind) => kind,)+
                }
            }

            fn kind_mut(&mut self) -> &mut dyn Kind {
                match self {
                    $(Fabric::$name(kind) => kind,)+
                }
            }
        }
    };
}

kinds! {
    Flat = "flat",
    Torus = "torus",
    Switched = "switched",
}

impl Fabric {
    /// Its figures as a document states them, in order.
    pub fn figures(&self) -> Vec<(&'static str, Figure)> {
        self.kind().figures()
    }

    /// The mesh, major to minor, that suits so many chips: its last axis has one of the sizes
    /// `last`, smallest first. `problem` says what is wrong with a slice of a shape; `None` if it
    /// is no mesh at all.
    pub fn mesh(
        &self,
        chips: u64,
        last: &[u64],
        problem: &dyn Fn(&[u64]) -> Option<Option<SliceProblem>>,
    ) -> Option<Vec<u64>> {
        self.kind().mesh(chips, last, problem)
    }

    pub(crate) fn rates(&mut self) -> Vec<&mut u64> {
        self.kind_mut().rates()
    }
}

/// How far the sizes of a mesh are from equal, and then from many devices for the last.
pub(super) fn unequal(sizes: &[u64]) -> (u64, u64) {
    let apart = sizes.iter().max().unwrap_or(&1) - sizes.iter().min().unwrap_or(&1);
    (apart, u64::MAX - sizes.last().unwrap_or(&1))
}

/// A part of what a device holds, at a rate.
pub(super) fn part(part: Fraction, bits: u128, rate: u64) -> Term {
    match part {
        Fraction { num: 1, den: 1 } => How::Blocks { blocks: 1 },
        Fraction { num, den } => How::Parts { parts: num, of: den },
    }
    .at(bits, rate)
}
