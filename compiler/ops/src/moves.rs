//! The rows of the moves, which turn one layout of a value into another.

use crate::table::table;

/// One move.
#[derive(Debug)]
pub struct MoveRow {
    /// What it does, in one line.
    pub says: &'static str,
    /// The name in IR text, reports and JSON. A move along several dims has the name of the move
    /// along one dim.
    pub name: &'static str,
    /// What its group sends.
    pub sends: Sends,
    /// Whether each device holds as many times more after it as the group has devices.
    pub gathers: bool,
    /// Whether it combines terms or candidates.
    pub combines: bool,
    /// Whether it may be along several dims at once, each with axes of its own.
    pub several: bool,
}

/// What each device of a group of K devices sends, where D is the bytes of the larger of the two
/// buffers, before and after the move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sends {
    /// Nothing.
    Nothing,
    /// Each part to its device, along the links of the group in turn: D (K-1)/K.
    Around,
    /// The same twice: first terms, then sums.
    AroundTwice,
    /// Each part directly to its device: D (K-1)/K.
    Across,
    /// A whole block to one other device: D.
    Blocks,
    /// What the other devices lack of their new blocks.
    Lacking,
    /// Statistics, around twice, and then terms weighed by them.
    Weighted,
}

const MOVE: MoveRow = MoveRow {
    says: "",
    name: "",
    sends: Sends::Nothing,
    gathers: false,
    combines: false,
    several: false,
};

table! {
    /// Which move.
    Move: MoveRow {
        /// Each device receives the blocks of its group, which no longer split the dim.
        AllGather { name: "all-gather", sends: Sends::Around, gathers: true, ..MOVE },
        /// An all-gather along several dims at once.
        AllGatherDims { name: "all-gather", sends: Sends::Around, gathers: true, several: true, ..MOVE },
        /// The terms are combined, each device receiving one block.
        ReduceScatter { name: "reduce-scatter", sends: Sends::Around, combines: true, ..MOVE },
        /// A reduce-scatter along several dims at once.
        ReduceScatterDims { name: "reduce-scatter", sends: Sends::Around, combines: true, several: true, ..MOVE },
        /// The terms are combined on every device of the group.
        AllReduce { name: "all-reduce", sends: Sends::AroundTwice, combines: true, ..MOVE },
        /// Axes of one dim become axes of another.
        AllToAll { name: "all-to-all", sends: Sends::Across, ..MOVE },
        /// Whole blocks change places.
        Permute { name: "collective-permute", sends: Sends::Blocks, ..MOVE },
        /// Each device gets its new block from those that hold parts of it.
        Exchange { name: "exchange", sends: Sends::Lacking, ..MOVE },
        /// Each device keeps its own block of what it has.
        Slice { name: "slice", ..MOVE },
        /// The value becomes partial: each device keeps its term, or the neutral element.
        ToPartial { name: "to-partial", ..MOVE },
        /// Attentions over parts of the keys become one over all keys.
        SoftmaxMerge { name: "softmax-merge", sends: Sends::Weighted, combines: true, ..MOVE },
    }
}

impl Move {
    /// The move with a name; along one dim where there is one along several dims, too.
    pub fn of_name(name: &str) -> Option<Move> {
        Move::ALL.iter().copied().find(|of| of.row().name == name)
    }

    /// The names of the moves, each once.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = Move::ALL.iter().map(|of| of.row().name).collect();
        names.dedup();
        names
    }
}
