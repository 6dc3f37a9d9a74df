//! The pages of the diagnostics, `spec/diagnostics/CODE.md`, as they are in the binary.

/// The page of one diagnostic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiagnosticPage {
    /// The code.
    pub code: &'static str,
    /// The page, in Markdown.
    pub text: &'static str,
}

/// All pages, by code.
pub const PAGES: &[DiagnosticPage] = include!(concat!(env!("OUT_DIR"), "/pages.rs"));

impl DiagnosticPage {
    /// The page of a code.
    pub fn of(code: &str) -> Option<DiagnosticPage> {
        PAGES.iter().find(|page| page.code == code).copied()
    }

    /// What the diagnostic is about, in a clause.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, title)| title)
    }
}

/// Where the page of a code is in the specification: `spec/diagnostics/E0806.md`.
pub fn path(code: &str) -> String {
    format!("spec/diagnostics/{code}.md")
}

/// The page of a code as an absolute address, for formats that want one. `shardc explain-code CODE`
/// prints what is there, and the extension for VS Code opens it.
pub fn uri(code: &str) -> String {
    format!("shardc:/{}", path(code))
}

#[cfg(test)]
mod tests {
    use shard_check::diagnostics::ALL;

    use super::*;

    #[test]
    fn every_code_has_its_page_in_the_binary() {
        for (code, title, _) in ALL {
            assert_eq!(DiagnosticPage::of(code).map(|page| page.title()), Some(*title), "{code}");
        }
        assert_eq!(PAGES.len(), ALL.len());
    }
}
