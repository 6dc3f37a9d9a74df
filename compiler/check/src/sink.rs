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

    /// Takes in what the phases of a file gave, each thing once. What not all of them say bears the names of those that do;
    /// a warning that not all of them give is not worth one.
    pub(crate) fn take_phases(&mut self, phases: Vec<(String, Sink)>) {
        let count = phases.len();
        let mut found: Vec<(Diagnostic, Vec<String>)> = Vec::new();
        for (name, sink) in phases {
            self.left_out |= sink.left_out;
            self.errors_left_out += sink.errors_left_out;
            for diagnostic in sink.diagnostics {
                match found.iter_mut().find(|(known, _)| *known == diagnostic) {
                    Some((_, names)) if names.last() != Some(&name) => names.push(name.clone()),
                    Some(_) if count > 1 => {}
                    _ => found.push((diagnostic, vec![name.clone()])),
                }
            }
        }
        for (diagnostic, names) in found {
            if names.len() == count {
                self.report(diagnostic);
            } else if diagnostic.is_error() {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let word = if names.len() == 1 { "phase" } else { "phases" };
                self.report(diagnostic.note(format!("in {word} {}", names.join(", "))));
            }
        }
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
