//! Source text, grammar, AST, parser and printer of `.shard` files.
//!
//! [`parse`] turns a [`SourceFile`] into an [`ast::File`], with every syntax error and warning that
//! it finds; [`format()`] prints a file in the one canonical style. Layout words (`BLE_xyz`,
//! `BLF_yz(partialsum-x)`) and spans are those of [`shard_words`], which IR text uses, too.
//!
//! How a text is read: `scan` finds tokens and comments; `outline` cuts them into lines, headers
//! and statements; pest parses each of these by `shard.pest`; `build` makes the tree; and
//! [`shard_words`] reads the layout words and dim lists, which pest hands over whole.

pub mod ast;
mod build;
mod build_expr;
mod elsewhere;
pub mod error;
mod expected;
mod foreign;
mod format;
mod grammar;
pub mod limits;
mod mend;
mod names;
mod outline;
mod parser;
mod print;
mod scan;
mod spelling;

pub use elsewhere::{OPERATIONS, written_here};
pub use error::{Fix, Note, SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind};
pub use foreign::ANY_DIM;
pub use format::{MAX_COLUMNS, format};
pub use names::{KEPT_FOR_LATER, WORDS_ELSEWHERE, is_reserved};
pub use parser::{Parsed, parse, parse_dim_override, parse_mesh_axes};
pub use print::{
    print_claim, print_dim_list, print_expr, print_int_expr, print_layout_word, print_partial,
    print_type,
};
pub use shard_words::{
    LineColumn, SourceFile, Span, Spanned, WordError, parse_dim_list, parse_layout_with_partial,
    parse_layout_word, parse_partial,
};
