//! The limits on the text of a file. A text past one of them is an error, and never causes a panic,
//! a hang or a lack of memory.

pub use shard_words::{MAX_NAME_BYTES, MAX_WORD_PARTS};

/// The most bytes of one file.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// How deep parentheses, brackets and braces may be nested.
pub const MAX_NESTING: usize = 64;

/// How many operations of an expression may be nested, where each sign of a chain `a + b + c`
/// counts. Code that walks a tree may recurse this deep.
pub const MAX_TREE_DEPTH: usize = 256;

/// The most digits of a number, those of its exponent with them.
pub const MAX_NUMBER_DIGITS: usize = 64;

/// The most digits of a whole number in a dim, a mesh size, a repeat count or a slice start: every
/// such number fits in a `u64`.
pub const MAX_INTEGER_DIGITS: usize = 18;

/// The most syntax errors that are reported for one file.
pub const MAX_ERRORS: usize = 50;
