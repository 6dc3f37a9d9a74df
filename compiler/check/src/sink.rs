//! Where diagnostics are gathered.

use crate::diagnostic::Diagnostic;
use crate::diagnostics::LimitProblem;
use crate::diagnostics::limits::MAX_DIAGNOSTICS;

/// Gathers diagnostics: up to a limit of errors, and as many others.
#[derive(Default)]
pub(crate) struct Sink {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    left_out: bool,
    errors_left_out: usize,
}

impl Sink {
    /// Takes one in, unless there are too many already.
    pub(crate) fn report(&mut self, problem: impl Into<Diagnostic>) {
        let diagnostic = problem.into();
        let same_kind = if diagnostic.is_error() { self.errors } else { self.diagnostics.len() - self.errors };
        if same_kind >= MAX_DIAGNOSTICS {
            self.left_out = true;
            self.errors_left_out += usize::from(diagnostic.is_error());
            return;
        }
        self.errors += usize::from(diagnostic.is_error());
        self.diagnostics.push(diagnostic);
    }

    /// Whether another error would be shown: if not, there is no need to look for near names.
    pub(crate) fn has_room(&self) -> bool {
        self.errors < MAX_DIAGNOSTICS
    }

    /// How many errors there are so far, those left out too.
    pub(crate) fn errors(&self) -> usize {
        self.errors + self.errors_left_out
    }

    /// Everything, in file order; what has no place comes first.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|d| d.primary_span().map(|s| (s.start, s.end)));
        if self.left_out {
            self.diagnostics.push(LimitProblem::Diagnostics { limit: MAX_DIAGNOSTICS }.into());
        }
        self.diagnostics
    }
}
