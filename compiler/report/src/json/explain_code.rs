//! `shardc.explain-code/1`.

use serde::Serialize;

use super::text;
use crate::pages::{Page, path};

#[derive(Debug, Serialize)]
struct CodesJson {
    schema: &'static str,
    codes: Vec<CodeJson>,
}

#[derive(Debug, Serialize)]
struct CodeJson {
    code: &'static str,
    title: &'static str,
    /// Where the page is in the specification.
    page: String,
    /// The page itself, in Markdown.
    text: &'static str,
}

/// The document of `explain-code --format json`.
pub fn codes(pages: &[Page]) -> String {
    let code = |page: &Page| CodeJson {
        code: page.code,
        title: page.title(),
        page: path(page.code),
        text: page.text,
    };
    text(&CodesJson { schema: "shardc.explain-code/1", codes: pages.iter().map(code).collect() })
}
