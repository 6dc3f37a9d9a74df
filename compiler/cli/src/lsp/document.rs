//! An open file: its text, its tree, and what the checker says of it.

use lsp_types::Uri;
use percent_encoding::percent_decode_str;
use shard_check::{CheckOptions, Checked};
use shard_grammar::SourceFile;
use shard_grammar::ast::File;

use shard_driver::pipeline;

/// One version of an open file.
pub(crate) struct Document {
    pub(crate) version: i32,
    pub(crate) file: SourceFile,
    pub(crate) tree: File,
    pub(crate) checked: Checked,
}

impl Document {
    /// Parses and checks a text.
    pub(crate) fn new(uri: &Uri, version: i32, text: String) -> Document {
        let file = SourceFile::new(path_of(uri), text);
        let tree = shard_grammar::parse(&file).file;
        let checked = pipeline::check(&file, &CheckOptions::default());
        Document { version, file, tree, checked }
    }
}

/// The path of a `file:` URI; of any other its text, which then only names the file.
fn path_of(uri: &Uri) -> String {
    match uri.as_str().strip_prefix("file://") {
        Some(path) => percent_decode_str(path).decode_utf8_lossy().into_owned(),
        None => uri.as_str().to_string(),
    }
}
