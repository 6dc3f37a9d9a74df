//! The stated limits of the language's text. Past one of them there is an error, never a panic, a
//! hang or a lack of memory.

pub use shard_words::{MAX_NAME_BYTES, MAX_WORD_PARTS};

/// Bytes of one file.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// How deep parentheses, brackets and braces may be nested.
pub const MAX_NESTING: usize = 64;

/// How many operations of an expression may stand one upon another, a chain `a + b + c` counting
/// one for each sign: whoever walks a tree may recurse.
pub const MAX_TREE_DEPTH: usize = 256;

/// Digits of a number in a float literal (the exponent's not counted).
pub const MAX_NUMBER_DIGITS: usize = 64;

/// Digits of a whole number in a dim, a mesh size, a repeat count or a slice start: every such
/// number fits in a `u64`.
pub const MAX_INTEGER_DIGITS: usize = 18;

/// Syntax errors that are reported of one file; the rest is left out.
pub const MAX_ERRORS: usize = 50;
