//! Places in a text, and the words that `.shard` and `.shir` share: layouts, partials, lists of
//! dims.
//!
//! [`parse_layout_word`], [`parse_layout_with_partial`] and [`parse_dim_list`] each read one word;
//! the spans in their results are those of the file. A word has names of dims and axes; whether
//! these exist is checked elsewhere.

mod dim_list;
mod layout_word;
mod lexer;
mod source;
mod words;

pub use dim_list::parse_dim_list;
pub use layout_word::{parse_layout_with_partial, parse_layout_word, parse_partial};
pub use source::{LineColumn, SourceFile, Span, Spanned};
pub use words::{
    AxesWord, DimList, DimWord, DimsForm, FreeMark, LayoutWord, MAX_NAME_BYTES, MAX_WORD_PARTS,
    Name, PartialGroup, PartialOp, WordError,
};
