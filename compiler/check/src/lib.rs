//! The type checker: AST to [`Program`], and every diagnostic.
//!
//! [`check_source`] parses and checks a file; [`check`] checks a tree that is parsed already.

pub mod diagnostic;
pub mod diagnostics;
pub mod names;

pub use diagnostic::{Diagnostic, Edit, Help, Label, Severity};

use shard_grammar::{SourceFile, ast};
use shard_ir::Program;

/// What the command line changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckOptions {
    /// `-D NAME=RIGHT SIDE`: the dim and the text of its new right side, such as `32 pad 64`.
    pub dim_overrides: Vec<(String, String)>,
    /// `--mesh x=8,y=8`: replaces the mesh line, if there is one.
    pub mesh_override: Option<Vec<(String, u64)>>,
    /// `--strict`: every layer is strict.
    pub strict: bool,
}

/// What a check gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// One program for every layer without an error, in file order, its calls inlined.
    pub programs: Vec<Program>,
    /// The indices in `programs` of the layers that no other layer calls, in file order.
    pub roots: Vec<usize>,
    /// Everything that is wrong or doubtful, in file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Whether any diagnostic is an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Parses and checks a file; the syntax errors are among the diagnostics.
pub fn check_source(file: &SourceFile, options: &CheckOptions) -> Checked {
    check(file, &ast::File::default(), options)
}

/// Checks a parsed file.
pub fn check(_file: &SourceFile, _file_tree: &ast::File, _options: &CheckOptions) -> Checked {
    Checked::default()
}
