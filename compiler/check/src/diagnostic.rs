//! [`Diagnostic`]: one thing that is wrong, or probably not meant, as a value. Module
//! [`diagnostics`](crate::diagnostics) has the wording; the report crate draws.

use shard_grammar::Span;

shard_ir::worded! {
    /// How bad it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Severity {
        /// The program is wrong: exit status 1.
        Error = "error",
        /// The program is right, and probably not what was meant.
        Warning = "warning",
        /// Something worth knowing about a program that is right.
        Note = "note",
    }
    /// The word in text and JSON.
    fn word;
}

/// A place in the source, and what it has to do with the diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The place.
    pub span: Span,
    /// What is said about it.
    pub text: String,
    /// Whether it is the place at which the diagnostic is reported; at most one label is.
    pub primary: bool,
}

/// A replacement of a stretch of source text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What to replace; empty to insert.
    pub span: Span,
    /// What to put there.
    pub replacement: String,
}

/// A way to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Help {
    /// The words that follow `help:`; wherever possible text that can be typed.
    pub text: String,
    /// The edits that do it, where they are known; they do not overlap.
    pub edits: Vec<Edit>,
}

/// One thing that is wrong, or probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its stable code: `E0203`, `W0601`.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence: lower case, no full stop.
    pub message: String,
    /// The places that matter; empty where the command line is wrong.
    pub labels: Vec<Label>,
    /// Further sentences: the reason, what is known.
    pub notes: Vec<String>,
    /// Ways to mend it, the likeliest first.
    pub helps: Vec<Help>,
}

impl Diagnostic {
    fn new(code: &'static str, severity: Severity, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity,
            message: message.into(),
            labels: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
        }
    }

    /// An error without a place as yet.
    pub(crate) fn error(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, Severity::Error, message)
    }

    /// A warning without a place as yet.
    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, Severity::Warning, message)
    }

    /// A remark without a place as yet.
    pub(crate) fn remark(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, Severity::Note, message)
    }

    /// The same, reported at this place.
    pub(crate) fn at(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into(), primary: true });
        self
    }

    /// The same, reported at this place if there is one.
    pub(crate) fn at_if(self, span: Option<Span>, text: impl Into<String>) -> Diagnostic {
        match span {
            Some(span) => self.at(span, text),
            None => self,
        }
    }

    /// The same with another place that matters.
    pub(crate) fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { span, text: text.into(), primary: false });
        self
    }

    /// The same with another place that matters, if there is one.
    pub(crate) fn also_if(self, span: Option<Span>, text: impl Into<String>) -> Diagnostic {
        match span {
            Some(span) => self.also(span, text),
            None => self,
        }
    }

    /// The same with one more sentence.
    pub(crate) fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// The same with a way to mend it in words.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.helps.push(Help { text: text.into(), edits: Vec::new() });
        self
    }

    /// The same with a way to mend it in words, if there is one.
    pub(crate) fn help_if(self, text: Option<String>) -> Diagnostic {
        match text {
            Some(text) => self.help(text),
            None => self,
        }
    }

    /// The same with a way to mend it by one edit.
    pub(crate) fn mend(
        mut self,
        text: impl Into<String>,
        span: Span,
        replacement: impl Into<String>,
    ) -> Diagnostic {
        let edits = vec![Edit { span, replacement: replacement.into() }];
        self.helps.push(Help { text: text.into(), edits });
        self
    }

    /// The same with a way to mend it by one edit, or in words where its place is not in the file.
    pub(crate) fn mend_if(
        self,
        text: impl Into<String>,
        span: Option<Span>,
        with: impl Into<String>,
    ) -> Diagnostic {
        match span {
            Some(span) => self.mend(text, span, with),
            None => self.help(text),
        }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The place at which it is reported.
    pub fn primary_span(&self) -> Option<Span> {
        self.labels
            .iter()
            .find(|label| label.primary)
            .or(self.labels.first())
            .map(|label| label.span)
    }

    /// Every suggested edit, of all helps in order.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.helps.iter().flat_map(|help| &help.edits)
    }
}
