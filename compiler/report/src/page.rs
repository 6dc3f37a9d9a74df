//! Text under construction, of a width: words on the left, figures on the right edge.

/// The width where nobody asks for another.
pub const WIDTH: usize = 80;

/// The narrowest page that still reads.
pub const NARROWEST: usize = 40;

/// Text under construction; no line ends in blanks.
#[derive(Clone, Debug)]
pub struct Page {
    /// What is written so far.
    pub text: String,
    width: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page::of_width(WIDTH)
    }
}

impl Page {
    /// An empty one, no narrower than reads.
    pub fn of_width(width: usize) -> Page {
        Page { text: String::new(), width: width.max(NARROWEST) }
    }

    /// A line.
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Whether words fit on one line.
    pub(crate) fn fits(&self, indent: usize, words: &str) -> bool {
        indent + words.chars().count() <= self.width
    }

    /// A label, blanks and all, and words behind it, broken into lines that begin where the first
    /// of them does.
    pub(crate) fn labelled(&mut self, label: &str, words: &str) {
        let mut behind = Page { text: String::new(), width: self.width };
        let indent = label.chars().count();
        behind.wrapped(indent, words);
        self.text.push_str(label);
        self.text.push_str(behind.text.get(indent..).unwrap_or_default());
    }

    /// Words on the left, figures on the right edge; on two lines where one is too short.
    pub(crate) fn row(&mut self, left: &str, right: &str) {
        let (l, r) = (left.chars().count(), right.chars().count());
        if l + 2 + r <= self.width {
            self.line(&format!("{left}{right:>width$}", width = self.width - l));
        } else {
            let indent = left.chars().take_while(|c| *c == ' ').count();
            if l <= self.width {
                self.line(left)
            } else {
                self.wrapped_more(indent, 2, left)
            }
            if r <= self.width {
                self.line(&format!("{right:>width$}", width = self.width))
            } else {
                self.wrapped_more(indent + 4, 2, right)
            }
        }
    }

    /// Words broken into lines that fit.
    pub fn wrapped(&mut self, indent: usize, words: &str) {
        self.wrapped_more(indent, 0, words);
    }

    /// Words broken into lines that fit, the second and later ones further in.
    pub(crate) fn wrapped_more(&mut self, indent: usize, more: usize, words: &str) {
        let mut line = String::new();
        let mut at = indent;
        for word in words.split_whitespace() {
            if !line.is_empty() && at + line.chars().count() + 1 + word.chars().count() > self.width
            {
                self.line(&format!("{:at$}{line}", ""));
                line.clear();
                at = indent + more;
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&format!("{:at$}{line}", ""));
    }
}
