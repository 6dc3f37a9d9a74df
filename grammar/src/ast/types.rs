//! Types as they were written: kinds, dtypes and layout words.

use shard_ops::Dtype;
pub use shard_words::{
    AxesWord, DimList, DimWord, DimsForm, FreeMark, LayoutWord, Name, PartialGroup, PartialOp,
};
use shard_words::{Span, Spanned};

/// `[kind] [dtype] LAYOUT [partial]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// All of it.
    pub span: Span,
    /// `weight`, `weight host` or `cache`; `None` for an activation.
    pub kind: Option<Spanned<Kind>>,
    /// The dtype; only a `let` annotation may leave it out.
    pub dtype: Option<Spanned<Dtype>>,
    /// The layout word.
    pub layout: LayoutWord,
    /// `(partialsum-x, partialmax-y)`; empty where nothing is partial.
    pub partial: Vec<PartialGroup>,
}

shard_ops::worded! {
    /// What a parameter or result is kept for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Kind {
        /// A parameter that stays in memory from step to step.
        Weight = "weight",
        /// A weight that stays in the memory of the host.
        HostWeight = "weight host",
        /// Per-sequence state that stays.
        Cache = "cache",
    }
    /// The word of the language.
    fn word;
}
