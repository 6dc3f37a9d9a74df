//! Gathers diagnostics.

use std::collections::{BTreeMap, BTreeSet};

use shard_grammar::Span;
use shard_ir::gcd;
use shard_ir::tensor::MAX_DIM_SIZE;

use crate::diagnostic::{Diagnostic, Edit, Label};
use crate::diagnostics::limits::{MAX_DIAGNOSTICS, MAX_EDITS, MAX_PLACES};
use crate::diagnostics::{LimitProblem, NotDivisible};

/// The diagnostics of a file or of a phase: errors up to a limit, and as many others.
#[derive(Default)]
pub(crate) struct Sink {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    left_out: bool,
    errors_left_out: usize,
    /// Names that are wrong wherever they stand, by code and name. Each is reported once, with all
    /// its places.
    wrong_names: BTreeMap<(&'static str, String), WrongName>,
    /// For each dim the numbers of devices over which types split it.
    divided: BTreeMap<String, BTreeSet<u64>>,
    /// The errors about dims that do not divide, with the indices of their diagnostics.
    undivided: Vec<(usize, NotDivisible)>,
}

/// One wrong name.
struct WrongName {
    /// The index of its diagnostic; `None` if there was no room for one.
    diagnostic: Option<usize>,
    /// The other places of the name, each with the text that mends it there.
    others: Vec<(Span, Option<String>)>,
}

impl Sink {
    /// Adds a diagnostic, unless there are too many already.
    pub(crate) fn report(&mut self, problem: impl Into<Diagnostic>) {
        let diagnostic = problem.into();
        let same_kind =
            if diagnostic.is_error() { self.errors } else { self.diagnostics.len() - self.errors };
        if same_kind >= MAX_DIAGNOSTICS {
            self.left_out = true;
            self.errors_left_out += usize::from(diagnostic.is_error());
            return;
        }
        self.errors += usize::from(diagnostic.is_error());
        self.diagnostics.push(diagnostic);
    }

    /// Adds a problem with a name that may stand in many places. Further places are added by
    /// [`Sink::is_told`].
    pub(crate) fn report_name(&mut self, name: &str, problem: impl Into<Diagnostic>) {
        let diagnostic = problem.into();
        let key = (diagnostic.code, name.to_string());
        let before = self.diagnostics.len();
        self.report(diagnostic);
        let diagnostic = (self.diagnostics.len() > before).then_some(before);
        self.wrong_names.insert(key, WrongName { diagnostic, others: Vec::new() });
    }

    /// Notes that a type splits a dim over so many devices.
    pub(crate) fn divides(&mut self, dim: &str, devices: u64) {
        match self.divided.get_mut(dim) {
            Some(all) => {
                all.insert(devices);
            }
            None => {
                self.divided.insert(dim.to_string(), BTreeSet::from([devices]));
            }
        }
    }

    /// Adds an error about a dim that does not divide. The pad that its help offers is known only
    /// when all types are checked.
    pub(crate) fn report_undivided(&mut self, problem: NotDivisible) {
        let before = self.diagnostics.len();
        self.report(problem.clone());
        if self.diagnostics.len() > before {
            self.undivided.push((before, problem));
        }
    }

    /// Makes the helps about dims that do not divide offer a pad with which every split of the dim
    /// divides.
    fn common_pads(&mut self) {
        for (at, mut problem) in std::mem::take(&mut self.undivided) {
            let all = self.divided.get(&problem.dim).into_iter().flatten();
            let common = all.copied().try_fold(1u64, |a, b| (a / gcd(a, b)).checked_mul(b));
            let padded = common
                .and_then(|common| (problem.size / common + 1).checked_mul(common))
                .filter(|pad| *pad <= MAX_DIM_SIZE);
            let (Some(pad), Some(place)) = (padded, self.diagnostics.get_mut(at)) else { continue };
            problem.pad_to(pad);
            *place = problem.into();
        }
    }

    /// Notes another place of a wrong name. `true` if the name is reported already, so that nothing
    /// more is to be said.
    pub(crate) fn is_told(
        &mut self,
        code: &'static str,
        name: &str,
        span: Span,
        mended: Option<String>,
    ) -> bool {
        let Some(known) = self.wrong_names.get_mut(&(code, name.to_string())) else { return false };
        known.others.push((span, mended));
        true
    }

    /// Gives the diagnostic of each wrong name a label at its first places, and edits that mend all
    /// places.
    fn label_wrong_names(&mut self) {
        for WrongName { diagnostic, others } in std::mem::take(&mut self.wrong_names).into_values()
        {
            let Some(diagnostic) = diagnostic.and_then(|at| self.diagnostics.get_mut(at)) else {
                continue;
            };
            let Some(primary) = diagnostic.labels.iter().position(|label| label.primary) else {
                continue;
            };
            let told = diagnostic.labels.remove(primary);
            let mut places: Vec<Span> =
                others.iter().map(|(span, _)| *span).chain([told.span]).collect();
            places.sort_by_key(|span| (span.start, span.end));
            places.dedup();
            let labels = places.iter().take(MAX_PLACES).enumerate().map(|(i, span)| match i {
                0 => Label { span: *span, ..told.clone() },
                _ => Label { span: *span, text: "and here".to_string(), primary: false },
            });
            diagnostic.labels.splice(primary..primary, labels);
            if let Some(more) = places.len().checked_sub(MAX_PLACES).filter(|more| *more > 0) {
                let word = if more == 1 { "place" } else { "places" };
                diagnostic.notes.push(format!("and in {more} more {word}"));
            }
            if let Some(help) = diagnostic.helps.first_mut()
                && help.edits.iter().any(|edit| edit.span == told.span)
            {
                let edits = others
                    .into_iter()
                    .filter_map(|(span, with)| Some(Edit { span, replacement: with? }));
                help.edits.extend(edits);
                help.edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
                help.edits.dedup_by_key(|edit| edit.span);
                help.edits.truncate(MAX_EDITS);
            }
        }
    }

    /// Whether another error would be shown; if not, looking for near names is not worth its time.
    pub(crate) fn has_room(&self) -> bool {
        self.errors < MAX_DIAGNOSTICS
    }

    /// The number of errors so far, those that are left out included.
    pub(crate) fn errors(&self) -> usize {
        self.errors + self.errors_left_out
    }

    /// Adds the diagnostics of all phases of a file, each once. An error of some phases only has a
    /// note with their names; a warning of some phases only is dropped.
    pub(crate) fn take_phases(&mut self, phases: Vec<(String, Sink)>) {
        let count = phases.len();
        let mut found: Vec<(Diagnostic, Vec<String>)> = Vec::new();
        for (name, mut sink) in phases {
            sink.common_pads();
            sink.label_wrong_names();
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

    /// All diagnostics in file order; those without a place come first.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.label_wrong_names();
        self.diagnostics.sort_by_key(|d| d.primary_span().map(|s| (s.start, s.end)));
        if self.left_out {
            self.diagnostics.push(LimitProblem::Diagnostics { limit: MAX_DIAGNOSTICS }.into());
        }
        self.diagnostics
    }
}
