//! `shardc.explain-code/1`.

use super::text;
use crate::object;
use crate::pages::{DiagnosticPage, path};

/// The document of `explain-code --format json`.
pub fn codes(pages: &[DiagnosticPage]) -> String {
    let code = |page: &DiagnosticPage| {
        object!(CodeJson {
            code: page.code,
            title: page.title(),
            // Where the page is in the specification.
            page: path(page.code),
            // The page itself, in Markdown.
            text: page.text,
        })
    };
    let codes = pages.iter().map(code).collect::<Vec<_>>();
    text(&object!(CodesJson { schema: "shardc.explain-code/1", codes }))
}
