//! [`Kind`]: what is asked of every kind of network, and [`Fabric`], which is of one kind.

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
    /// Whether something holds.
    Flag(bool),
}

/// A part of an all-gather, in which some devices of the group gather what they have.
pub(crate) struct Gathered {
    /// How many devices these are.
    pub(crate) members: u64,
    /// Bytes per second at which data arrives at a device.
    pub(crate) rate: u64,
    /// Whether the data that a device has itself counts as moved, as it does on a two-way ring
    /// (book part 3).
    pub(crate) counts_own: bool,
}

/// What an all-to-all moves over one network, and in how many steps.
pub(crate) struct Moved {
    pub(crate) terms: Vec<Term>,
    /// Whether the terms are moved at the same time.
    pub(crate) at_once: bool,
    /// How many steps or hops there are from end to end.
    pub(crate) steps: u64,
}

/// What is asked of a kind of network.
pub(crate) trait Kind {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Reads the rest of the table of a hardware file.
    fn read(table: &mut Table<'_, '_>, efficiency: f64) -> Option<Self>
    where
        Self: Sized;

    /// Its figures as a document states them, in order.
    fn figures(&self) -> Vec<(&'static str, Figure)>;

    /// Its bandwidths in bytes per second, to be changed.
    fn rates(&mut self) -> Vec<&mut u64>;

    /// The time that a step or a hop takes at least.
    fn latency(&self) -> Picoseconds;

    /// The wires of each mesh axis, major to minor; `axes` has for each the torus axes that it
    /// stands for.
    fn wires(&self, axes: &[Vec<u64>]) -> Vec<Vec<Wire>>;

    /// Whether the time of a move depends on how many devices it connects, and not on which.
    fn is_uniform(&self) -> bool;

    /// Whether every axis has links of its own. Transfers along different axes then do not slow
    /// each other down, and those along one axis are followed link by link.
    fn has_links(&self) -> bool;

    /// Why there is no such slice, if there is none.
    fn slice_problem(&self, slice: &Slice) -> Option<SliceProblem>;

    /// The parts of an all-gather among so many devices over some wires.
    fn gather(&self, members: u64, wires: &[Wire]) -> Vec<Gathered>;

    /// How many hops, or steps, an all-gather takes one after the other.
    fn gather_steps(&self, members: u64, wires: &[Wire]) -> u64;

    /// An all-to-all among so many devices, of which each holds `bits`.
    fn all_to_all(&self, members: u64, wires: &[Wire], bits: u128) -> Moved;

    /// Bytes per second at which the busiest link, or device, sends the blocks of a permute.
    fn permute_rate(&self, load: &PermuteLoad) -> u64;

    /// What an exchange moves where devices hold `bits`, all at once.
    fn exchange(&self, load: &ExchangeLoad, bits: u128) -> Vec<Term>;

    /// The most bytes per second at which a block can leave its device.
    fn fastest(&self) -> u64;

    /// The shape of the mesh that suits so many chips, of two or three axes, major to minor. Its
    /// last axis has one of the sizes `last`, which are in rising order.
    fn mesh(&self, chips: u64, last: &[u64], problem: &SlicesOf<'_>) -> Option<Vec<u64>>;
}

/// Why there is no slice of a shape: `None` if the shape is no mesh at all, `Some(None)` if there
/// is such a slice.
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

            /// The network, to ask it what is asked of every kind.
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

    /// The shape of the mesh that suits so many chips, major to minor. Its last axis has one of the
    /// sizes `last`, which are in rising order. `problem` says why there is no slice of a shape:
    /// `None` if the shape is no mesh at all, `Some(None)` if there is such a slice.
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

/// A key that is least for the mesh whose sizes are most nearly equal; of several, for the one with
/// the largest last size.
pub(super) fn unequal(sizes: &[u64]) -> (u64, u64) {
    let apart = sizes.iter().max().unwrap_or(&1) - sizes.iter().min().unwrap_or(&1);
    (apart, u64::MAX - sizes.last().unwrap_or(&1))
}

/// The term of a fraction of what a device holds, at a rate.
pub(super) fn part(part: Fraction, bits: u128, rate: u64) -> Term {
    match part {
        Fraction { num: 1, den: 1 } => How::Blocks { blocks: 1 },
        Fraction { num, den } => How::Parts { parts: num, of: den },
    }
    .at(bits, rate)
}
