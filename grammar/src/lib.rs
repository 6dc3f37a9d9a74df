//! Source text, grammar, AST, parser and printer of `.shard` files.
//!
//! [`parse`] turns a [`SourceFile`] into an [`ast::File`] with every syntax error and warning that it found;
//! [`format`] prints a file in the one canonical style. Layout words (`BLE_xyz`, `BLF_yz(partialsum-x)`) have entry
//! points of their own, [`parse_layout_word`] and [`parse_layout_with_partial`], since IR text uses them too.

pub mod ast;
pub mod error;
pub mod limits;
pub mod source;

pub use error::{Fix, Note, SyntaxError, SyntaxErrorKind, SyntaxWarning, SyntaxWarningKind, WordError};
pub use source::{LineColumn, SourceFile, Span, Spanned};

// The rest of the public surface, as it will stand:
//
// pub struct Parsed { pub file: ast::File, pub errors: Vec<SyntaxError>, pub warnings: Vec<SyntaxWarning> }
// pub fn parse(source: &SourceFile) -> Parsed
// pub fn parse_dim_override(text: &str) -> Result<ast::Dim, SyntaxError>        // `B=64`, `H = 32 pad 64` (for -D)
// pub fn parse_mesh_axes(text: &str) -> Result<Vec<ast::MeshAxis>, SyntaxError> // `x=8, y=8` (for --mesh)
// pub fn parse_layout_word(text: &str, offset: usize) -> Result<ast::LayoutWord, WordError>
// pub fn parse_layout_with_partial(text: &str, offset: usize) -> Result<(ast::LayoutWord, Vec<ast::PartialGroup>), WordError>
// pub fn parse_dim_list(text: &str, offset: usize) -> Result<ast::DimList, WordError>
// pub fn format(source: &SourceFile) -> Result<String, Vec<SyntaxError>>
// pub fn print_expr(&ast::Expr) -> String, print_type(&ast::Type) -> String, print_layout_word(&ast::LayoutWord) -> String,
// pub fn print_partial(&[ast::PartialGroup]) -> String, print_dim_list(&ast::DimList) -> String, print_int_expr(&ast::IntExpr) -> String
