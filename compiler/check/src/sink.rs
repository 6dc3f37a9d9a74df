//! Where diagnostics are gathered.

use std::collections::{BTreeMap, BTreeSet};

use shard_grammar::Span;
use shard_ir::gcd;
use shard_ir::tensor::MAX_DIM_SIZE;

use crate::diagnostic::{Diagnostic, Edit, Label};
use crate::diagnostics::limits::{MAX_DIAGNOSTICS, MAX_EDITS, MAX_PLACES};
use crate::diagnostics::{LimitProblem, NotDivisible};

/// Gathers diagnostics: up to a limit of errors, and as many others.
#[derive(Default)]
pub(crate) struct Sink {
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    left_out: bool,
    errors_left_out: usize,
    /// Names that are wrong wherever they stand, by code and name: told once.
    wrong_names: BTreeMap<(&'static str, String), WrongName>,
    /// Over how many devices each dim is divided somewhere.
    divided: BTreeMap<String, BTreeSet<u64>>,
    /// The errors of dims that do not divide, by their indices.
    undivided: Vec<(usize, NotDivisible)>,
}

/// One wrong name.
struct WrongName {
    /// Its error, as an index; `None` where there was no room for it.
    diagnostic: Option<usize>,
    /// Where else it stands, and what mends it there.
    others: Vec<(Span, Option<String>)>,
}

impl Sink {
    /// Takes one in, unless there are too many already.
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

    /// Takes in a problem with a name that may stand in many places, told at the first of them that
    /// is looked at.
    pub(crate) fn report_name(&mut self, name: &str, problem: impl Into<Diagnostic>) {
        let diagnostic = problem.into();
        let key = (diagnostic.code, name.to_string());
        let before = self.diagnostics.len();
        self.report(diagnostic);
        let diagnostic = (self.diagnostics.len() > before).then_some(before);
        self.wrong_names.insert(key, WrongName { diagnostic, others: Vec::new() });
    }

    /// Notes that a dim is divided over so many devices somewhere.
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

    /// Takes in a dim that does not divide. What it is padded to is said when all that it is
    /// divided over is known.
    pub(crate) fn report_undivided(&mut self, problem: NotDivisible) {
        let before = self.diagnostics.len();
        self.report(problem.clone());
        if self.diagnostics.len() > before {
            self.undivided.push((before, problem));
        }
    }

    /// Offers the pad of each dim that all its divisions have in common.
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

    /// Another place of a name that was told: `true` where there is nothing more to say.
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

    /// Gives each wrong name a label at every place, so many, and edits that mend all.
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

    /// Whether another error would be shown: if not, there is no need to look for near names.
    pub(crate) fn has_room(&self) -> bool {
        self.errors < MAX_DIAGNOSTICS
    }

    /// How many errors there are so far, those left out too.
    pub(crate) fn errors(&self) -> usize {
        self.errors + self.errors_left_out
    }

    /// Takes in what the phases of a file gave, each thing once. What not all of them say bears the
    /// names of those that do; a warning that not all of them give is not worth one.
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

    /// Everything, in file order; what has no place comes first.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.label_wrong_names();
        self.diagnostics.sort_by_key(|d| d.primary_span().map(|s| (s.start, s.end)));
        if self.left_out {
            self.diagnostics.push(LimitProblem::Diagnostics { limit: MAX_DIAGNOSTICS }.into());
        }
        self.diagnostics
    }
}
