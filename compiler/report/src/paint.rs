//! Colour in results, by the escape sequences that every terminal knows.

/// Whether text is coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paint(pub bool);

/// What a piece of text stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// A heading.
    Heading,
    /// Of less weight: an op that has no figures of its own.
    Faint,
    /// Something bounded by arithmetic.
    Compute,
    /// Something bounded by memory traffic.
    Memory,
    /// Something bounded by the network.
    Network,
    /// All is well.
    Good,
    /// It is not.
    Bad,
}

impl Paint {
    /// The text in its style. Widths are counted before, since an escape has none.
    pub fn style(self, text: &str, style: Style) -> String {
        if !self.0 || text.trim().is_empty() {
            return text.to_string();
        }
        let code = match style {
            Style::Heading => "1",
            Style::Faint => "2",
            Style::Compute => "32",
            Style::Memory => "33",
            Style::Network => "35",
            Style::Good => "32",
            Style::Bad => "1;31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}
