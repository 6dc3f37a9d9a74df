//! Why an instruction is there, as data: which reader asks for which layout, and what the axes do
//! there. Reports turn it into text.

use crate::layout::Layout;
use crate::mesh::{AxisList, AxisSet};
use crate::op::Op;
use crate::tensor::DimId;
use crate::told::Told;

/// Why an instruction is there.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// A move of a value.
    Moved {
        /// The value.
        value: Told,
        /// The axes of the move, in its order.
        axes: AxisList,
        /// What it does for the value.
        why: MoveWhy,
        /// The first reader that asks for the new layout; `None` where the move follows the op that
        /// makes the value.
        wants: Option<Demand>,
    },
    /// An all-reduce between the pieces of a composite.
    Statistic {
        /// The composite.
        composite: Told,
        /// The operand of the composite, where the composite has no name.
        of: Option<Told>,
        /// Its dim, which these axes split.
        dim: DimId,
        /// Major to minor.
        axes: AxisList,
        /// What each device computes from its block.
        statistic: Statistic,
    },
    /// An op that differs from what the source says.
    Rewritten(Rewriting),
    /// An einsum with a collective in its loop.
    Looped {
        /// How the einsum differs from the source, if it does.
        rewritten: Option<Rewriting>,
        /// What the loop is for.
        why: LoopWhy,
    },
}

/// What a move does for its value.
#[derive(Clone, PartialEq, Debug)]
pub enum MoveWhy {
    /// A partial value is combined, and each device keeps its block of a dim.
    Scattered {
        /// Why it is partial.
        cause: Cause,
        /// The dim.
        dim: DimId,
    },
    /// A partial value is combined, and each device keeps its block along several dims.
    ScatteredAlong {
        /// Why it is partial.
        cause: Cause,
        /// The dims.
        dims: Vec<DimId>,
    },
    /// A partial value is combined on every device.
    Reduced {
        /// Why it is partial.
        cause: Cause,
    },
    /// Attentions over parts of the keys are merged.
    Merged {
        /// The keys.
        keys: Option<DimId>,
        /// The dim of which each device keeps a block.
        dim: Option<DimId>,
    },
    /// The axes that split this dim are gathered.
    Gathered {
        /// The dim.
        dim: DimId,
    },
    /// The axes that split these dims are gathered.
    GatheredAlong {
        /// The dims, each with the axes that split it.
        parts: Vec<(DimId, AxisList)>,
    },
    /// The axes split one dim and are wanted on another.
    Exchanged {
        /// The dim that they split.
        from: DimId,
        /// The dim on which they are wanted.
        to: DimId,
    },
    /// The blocks are wanted in another order or place.
    Permuted {
        /// How they lie.
        from: Layout,
        /// How they are wanted.
        to: Layout,
    },
    /// The same axes are wanted to split the value in another way.
    Regrouped {
        /// How it is split.
        from: Layout,
        /// How it is wanted.
        to: Layout,
    },
    /// The value is on every device, so that blocks of it cost nothing.
    Sliced {
        /// The dim that is cut.
        dim: DimId,
    },
    /// A whole value becomes terms of a sum: its blocks of a dim, or one device's copy and zeros.
    MadePartial {
        /// The dim.
        dim: Option<DimId>,
    },
}

/// What the loop of a collective einsum is for.
#[derive(Clone, PartialEq, Debug)]
pub enum LoopWhy {
    /// Blocks of an operand are gathered as they are multiplied.
    Gathered {
        /// The operand.
        value: Told,
        /// The axes that split it.
        axes: AxisList,
        /// The dim that they split.
        dim: DimId,
        /// The einsum.
        reader: Told,
        /// What the axes do in the einsum.
        roles: Vec<Role>,
    },
    /// Blocks of the partial result are sent round as they are made.
    Scattered {
        /// Why it is partial.
        cause: Cause,
        /// The dim that is cut into blocks.
        dim: DimId,
    },
}

/// Why a value is partial.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// The value is partial, and nothing more is known.
    Given {
        /// The value.
        value: Told,
        /// The axes.
        axes: AxisSet,
    },
    /// A move made terms of a whole value: its blocks of these dims, or, without dims, the copy of
    /// one device of each group.
    Terms {
        /// The value.
        value: Told,
        /// The axes.
        axes: AxisSet,
        /// The dims.
        dims: Vec<DimId>,
    },
    /// An op combines elements along dims that are split.
    Combined {
        /// The value that is partial.
        value: Told,
        /// Over these axes.
        axes: AxisSet,
        /// How they are combined.
        how: Combining,
        /// The dims, each with the axes that split it.
        over: Vec<(DimId, AxisList)>,
    },
    /// All of these.
    All(Vec<Cause>),
    /// Other values are partial, for these causes, and so this value is, too.
    Follows {
        /// Why the other values are partial.
        causes: Vec<Cause>,
        /// The value.
        value: Told,
    },
}

/// How an op combines elements along a dim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Combining {
    /// An einsum contracts the dim.
    Contraction,
    /// A sum over it.
    Sum,
    /// A maximum over it.
    Maximum,
    /// A lookup in a table that it splits.
    Lookup,
    /// The search for a first position along it.
    Search,
}

/// What each device computes from its block of a composite's dim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statistic {
    /// The largest element.
    Largest,
    /// Its part of the mean.
    PartOfMean,
    /// The sum of the squares.
    SumOfSquares,
    /// The sum.
    Sum,
}

/// Who asks for a value in a layout, and how.
#[derive(Clone, PartialEq, Debug)]
pub enum Demand {
    /// A result of the layer.
    Result {
        /// Its name.
        name: String,
        /// Whether its type leaves the layout to the compiler.
        open: bool,
        /// The layout.
        layout: Layout,
    },
    /// A pin.
    Asks {
        /// The pin.
        reader: Told,
        /// The layout that it allows.
        layout: Layout,
    },
    /// An op that cannot read the value in the layout before the move.
    CannotTake {
        /// The op.
        reader: Told,
        /// Why.
        why: CannotTake,
    },
    /// An op that reads the value in another layout.
    Reads {
        /// The op.
        reader: Told,
        /// The layout that it reads.
        layout: Layout,
        /// What the axes of the move do in it.
        roles: Vec<Role>,
    },
}

/// Why an op cannot take a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CannotTake {
    /// The value is partial, and the op is not linear.
    NotLinear,
    /// The op needs this dim whole.
    Whole(DimId),
}

/// What some axes do in the op that reads a moved value.
#[derive(Clone, PartialEq, Debug)]
pub enum Role {
    /// They split a dim of the value.
    Splits {
        /// The dim.
        dim: DimId,
        /// The axes.
        axes: AxisList,
    },
    /// The value is whole over them.
    Whole {
        /// The axes.
        axes: AxisSet,
        /// What they split in other operands: the operand's name, and each dim with its axes.
        beside: Vec<(String, Vec<(DimId, AxisList)>)>,
    },
}

/// How an op differs from what the source says.
#[derive(Clone, PartialEq, Debug)]
pub enum Rewriting {
    /// Several values of the source are computed once.
    Merged {
        /// How many.
        times: usize,
        /// The names of those that have one.
        names: Vec<String>,
    },
    /// Another formula for the same value.
    Computed {
        /// The formula.
        formula: Formula,
        /// Flops on all devices together, and those of the formula as written, where they differ.
        flops: Option<(f64, f64)>,
    },
    /// An op that runs along a dim is done on each part of the dim by itself.
    InParts {
        /// The op as the source has it.
        op: Op,
        /// The dim.
        over: DimId,
        /// How many parts.
        parts: u64,
    },
}

/// A formula over values that have names.
#[derive(Clone, PartialEq, Debug)]
pub enum Formula {
    /// A value with a name.
    Named(String),
    /// An op.
    Op {
        /// The op.
        op: Op,
        /// Its operands.
        operands: Vec<Formula>,
    },
    /// A value without a name or a formula, by number.
    Other(usize),
    /// Nothing is known of it.
    Unknown,
}
