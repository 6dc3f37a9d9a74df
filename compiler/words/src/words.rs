//! Words as they were written; whether the dims and axes in them exist is not known yet.

use std::fmt;

use crate::source::{Span, Spanned};

/// A name as it was written, with its place.
pub type Name = Spanned<String>;

/// The most bytes of a name.
pub const MAX_NAME_BYTES: usize = 128;

/// The most names in one layout word or dim list.
pub const MAX_WORD_PARTS: usize = 64;

/// The form in which dims were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimsForm {
    /// `BLE`: single letters, each perhaps with digits.
    Compact,
    /// `[Batch, Seq]`
    Bracketed,
    /// One longer name alone, `Seq` (in `over Seq` and the like; never in a layout word).
    Single,
}

/// A layout as it was written: `BLE_xyz`, `[Batch_{data}, Seq]`, `BLE?l`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutWord {
    /// All of it, a trailing `?label` included, partials not.
    pub span: Span,
    /// Compact or bracketed.
    pub form: DimsForm,
    /// The dims in memory order; empty for a scalar, `[]`.
    pub dims: Vec<DimWord>,
    /// The trailing `?` or `?label`.
    pub free: Option<FreeMark>,
}

/// One dim of a layout word with the axes that split it.
#[derive(Clone, Debug, PartialEq)]
pub struct DimWord {
    /// The dim and its subscript.
    pub span: Span,
    /// The dim.
    pub name: Name,
    /// The axes behind `_`; `None` where the dim is not split.
    pub axes: Option<AxesWord>,
}

/// A list of mesh axes as it was written behind `_` or behind `partialsum-`.
#[derive(Clone, Debug, PartialEq)]
pub struct AxesWord {
    /// All of it, parentheses included, without the `_` or `-` before it.
    pub span: Span,
    /// Its text, without the parentheses of `E_(xy)`. `B_data` is read as the axes d, a, t, a, and
    /// has `data` here, so that a message can propose `B_{data}`.
    pub raw: String,
    /// Whether it stands in parentheses, `E_(xy)`, so that the compiler chooses the order. Never in
    /// a partial.
    pub any_order: bool,
    /// The axes in order, each with its own place; at least one.
    pub axes: Vec<Name>,
}

/// The `?` at the end of a layout word: the compiler decides on the axes that are not named.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeMark {
    /// `?` and the label.
    pub span: Span,
    /// The label: all layouts with the same label are the same.
    pub label: Option<Name>,
}

/// How a value is partial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartialOp {
    /// `partialsum`
    Sum,
    /// `partialmax`
    Max,
    /// `partialsoftmax`
    Softmax,
}

impl PartialOp {
    /// The word of the language.
    pub fn word(self) -> &'static str {
        match self {
            PartialOp::Sum => "partialsum",
            PartialOp::Max => "partialmax",
            PartialOp::Softmax => "partialsoftmax",
        }
    }
}

/// One `partialsum-xy` of a type.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialGroup {
    /// Word, `-` and axes.
    pub span: Span,
    /// Sum, maximum or softmax, and where the word stands.
    pub op: Spanned<PartialOp>,
    /// The axes over which the value is partial.
    pub axes: AxesWord,
}

/// A list of dims without axes: an einsum's output, `over BL`, `-> [Kv, Group]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DimList {
    /// All of it, brackets included.
    pub span: Span,
    /// Its text: `over BATCH` is read as five dims, and a message can propose `[BATCH]`.
    pub raw: String,
    /// The form in which it was written.
    pub form: DimsForm,
    /// The dims in order, each with its own place. Empty only as `[]`.
    pub dims: Vec<Name>,
}

/// What is wrong in a layout word, a partial or a dim list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordError {
    /// Where.
    pub span: Span,
    /// The sentence.
    pub message: String,
    /// The text that would be right in its place.
    pub help: Option<String>,
}

impl fmt::Display for WordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WordError {}
