//! What can be wrong with a plan.

use crate::collective::CollectiveError;
use crate::fold::FoldError;
use crate::layout::LayoutError;
use crate::layout_rule::RuleError;
use crate::plan::InstrId;
use crate::tensor::{DimId, Dtype, MAX_DIMS, MAX_ELEMENTS, MAX_RANK};
use crate::typing::TypeError;

/// What is wrong with a plan, and where.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{}{kind}", .id.map_or(String::new(), |id| format!("%{} {}: ", id.0, .what)))]
pub struct VerifyError {
    /// The instruction; `None` where the dims, the mesh or a result are wrong.
    pub id: Option<InstrId>,
    /// What the instruction does (`einsum`), for the message.
    pub what: &'static str,
    /// What is wrong.
    pub kind: VerifyErrorKind,
}

/// The ways in which a plan can be wrong.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum VerifyErrorKind {
    /// An operand that is not an earlier instruction.
    #[error("operand %{} is not an earlier instruction", .0.0)]
    OperandNotEarlier(InstrId),
    /// Wrong number of operands of a parameter, constant or move.
    #[error("takes {expected} operands, has {found}")]
    Arity {
        /// How many it takes.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A dim that the plan does not declare.
    #[error("dim number {} is not declared", .0.0)]
    UnknownDim(DimId),
    /// A dim twice in one tensor.
    #[error("dim {0} stands twice in the tensor")]
    RepeatedDim(String),
    /// A declared dim whose size or useful size makes no sense.
    #[error("dim {name} has size {size} and useful size {useful}")]
    BadDim {
        /// Its name.
        name: String,
        /// Its size.
        size: u64,
        /// Its useful size.
        useful: u64,
    },
    /// Two dims of one name.
    #[error("dim {0} is declared twice")]
    DuplicateDim(String),
    /// More than [`MAX_DIMS`] dims.
    #[error("{0} dims are declared; the limit is {MAX_DIMS}")]
    TooManyDims(usize),
    /// More than [`MAX_ELEMENTS`] elements, or more than [`MAX_RANK`] dims.
    #[error("the tensor is too large: at most {MAX_RANK} dims and {MAX_ELEMENTS} elements")]
    TooLarge,
    /// A layout or move that names an axis which the mesh does not have.
    #[error("mesh axis number {0} does not exist")]
    UnknownAxis(u8),
    /// The op does not type.
    #[error("{0}")]
    Type(#[from] TypeError),
    /// The written dtype is not the one that the instruction gives.
    #[error("the result is {expected}, written {written}")]
    Dtype {
        /// What it gives.
        expected: Dtype,
        /// What is written.
        written: Dtype,
    },
    /// The written dims are not the ones that the instruction gives.
    #[error("the result has dims {expected}, written {written}")]
    Dims {
        /// What it gives.
        expected: String,
        /// What is written.
        written: String,
    },
    /// The op must not act on operands in these layouts.
    #[error("{text}")]
    Rule {
        /// Why.
        error: RuleError,
        /// The same with the plan's names.
        text: String,
    },
    /// The move does not apply to its operand's layout.
    #[error("{text}")]
    Collective {
        /// Why.
        error: CollectiveError,
        /// The same with the plan's names.
        text: String,
    },
    /// The written layout is not the one that the instruction gives.
    #[error("the result's layout is {expected}, written {written}")]
    Layout {
        /// What it gives.
        expected: String,
        /// What is written.
        written: String,
    },
    /// The written layout is illegal for the tensor.
    #[error("the written layout is not legal: {text}")]
    IllegalLayout {
        /// Why.
        error: LayoutError,
        /// The same with the plan's names.
        text: String,
    },
    /// A collective einsum gathers an operand that it does not have.
    #[error("the einsum has no operand {0} to gather")]
    NoSuchOperand(usize),
    /// A value in host memory is read by something other than a slice or a fetch.
    #[error("operand %{} is in host memory: a slice of it, or a fetch", .0.0)]
    InHostMemory(InstrId),
    /// An instruction is marked as a piece of a softmax or a norm, and is none.
    #[error("it is `of {0}`, and no part of a softmax or norm of that name in pieces")]
    NoPiece(String),
    /// An instruction is among the pieces of a softmax or a norm, and is not marked as one of them.
    #[error("it is among the pieces of a softmax or norm, and not marked `of` it as these are")]
    UnmarkedPiece,
    /// An instruction is marked `as attention`, and is part of no attention.
    #[error("it is `as attention`, and the ops around it are none that run as one kernel")]
    NoAttention,
    /// A value is `partialsoftmax` where no attention makes it, or is a result and not merged.
    #[error("it is partialsoftmax, which an attention alone makes and a softmax-merge completes")]
    NoPartialSoftmax,
    /// A merge names other statistics than its operand has.
    #[error("the operand has statistics by {expected}, written {written}")]
    Statistics {
        /// The dims that they have.
        expected: String,
        /// The dims that are written.
        written: String,
    },
    /// A constant is not a replicated scalar, or not finite.
    #[error("a constant is a finite, replicated scalar")]
    BadConstant,
    /// The layer is repeated zero times.
    #[error("the layer is repeated 0 times")]
    NoRepeat,
    /// A folded block is not legal.
    #[error("{0}")]
    Fold(#[from] FoldError),
    /// A result names no instruction, or its dims are not a permutation of the instruction's.
    #[error("result {0} is not a permutation of the dims of an instruction")]
    BadOutput(String),
}
