//! Which forms of a program are searched.

use std::sync::Arc;

use shard_ir::Program;

use super::region::{Aim, LabelledForm};
use super::{Lowering, lower_of, within_limits};
use crate::kernel::Kernels;
use crate::logical::{Choices, Cut, Form, Saturated};
use crate::many_forms::narrowed;
use crate::memory::DeviceMemory;
use crate::relax::Setting;
use crate::search::Sought;
use crate::{LowerError, SearchLimit};

impl Lowering<'_> {
    /// Searches the forms of a program, the most promising first, until no other can have a better
    /// plan.
    pub(super) fn explore(
        &mut self,
        program: &Program,
        as_written: bool,
    ) -> Result<(), LowerError> {
        let saturated = Saturated::new(program, as_written, self.limits);
        let as_asked = self.whole_space || self.forced.is_some();
        if let Some(choices) = saturated.choices(self.limits).filter(|_| !as_asked)
            && self.explore_choices(program, &saturated, &choices)?
        {
            return Ok(());
        }
        let forms = saturated.forms(self.limits);
        self.best.cut =
            forms.cut.map(|cut: Cut| (cut.limit, cut.first_bound(program, self.hardware)));
        if self.whole_space {
            return self.explore_without_bounds(forms.all);
        }
        let first_bound = |form: Form| (form.first_bound(self.hardware), form);
        self.explore_forms(program, forms.all.into_iter().map(first_bound).collect())
    }

    /// Searches the whole space of each form.
    fn explore_without_bounds(&mut self, forms: Vec<Form>) -> Result<(), LowerError> {
        for form in forms {
            self.best.rewritten = form.rewritten;
            let kernels =
                Arc::new(Kernels::of_form(form, self.all_written, self.loops, self.hardware));
            within_limits(&kernels.program, self.limits)?;
            let memory =
                self.capacity.map(|capacity| DeviceMemory::new(&kernels.program, capacity));
            let (expansions, nodes) = (self.limits.expansions, self.limits.nodes);
            let mut aim = Aim {
                sought: Sought { least: 0, upto: None, guide: None },
                within: None,
                is_last: true,
                expansions,
                nodes,
                is_short: false,
                all_trees: true,
            };
            let form = LabelledForm { kernels: &kernels, labels: None };
            self.search(form, None, memory.as_ref(), &mut aim)?;
            self.note_missed(0);
        }
        Ok(())
    }

    /// Searches a program with more forms than can be listed: first the form that prices favour,
    /// then those that they do not rule out. `false` where prices do not bound all forms at once.
    fn explore_choices(
        &mut self,
        program: &Program,
        saturated: &Saturated<'_>,
        choices: &Choices<'_>,
    ) -> Result<bool, LowerError> {
        let setting = Setting::of(choices.program(), self.hardware, self.strict, self.limits);
        let kernels_of = |form| Kernels::of_form(form, self.all_written, self.loops, self.hardware);
        let of_part = |part| Kernels::of_program(part, self.all_written, self.loops, self.hardware);
        let solve = |kernels: &Kernels| match self.all_plans_of(kernels, true) {
            Ok((branch, _)) => Ok(Some(branch)),
            Err(LowerError::Limit { .. }) => Ok(None),
            Err(other) => Err(other),
        };
        let Some(narrowed) = narrowed(choices, setting, &kernels_of, &of_part, &solve)? else {
            return Ok(false);
        };
        let written = choices.written();
        let form = |picks: &[usize]| {
            if written.as_deref() == Some(picks) {
                Some(saturated.written())
            } else {
                choices.form(picks).map(|(form, _)| form)
            }
        };
        let limits = self.limits;
        self.best.apart = true;
        self.best.cut = saturated.cut().map(|limit| (limit, 0));
        // Where the source computes something twice, the form written is none of the choices, and
        // may be faster than all of them.
        let written_apart = choices.merged.then(|| (0, saturated.written()));
        let favoured = form(&narrowed.picks).map(|form| (narrowed.bound, form));
        self.explore_forms(program, favoured.into_iter().chain(written_apart).collect())?;
        self.best.root_bound = lower_of(self.best.root_bound, narrowed.bound);
        let (picked, left_out) = narrowed.forms(self.known().unwrap_or(u64::MAX), limits.forms);
        let others = picked.iter().filter(|(picks, _)| *picks != narrowed.picks);
        let others = others.filter_map(|(picks, bound)| Some((*bound, form(picks)?)));
        let (others, too_large): (Vec<_>, Vec<_>) =
            others.partition(|(_, form)| within_limits(&form.program, limits).is_ok());
        if let Some(bound) = too_large.iter().map(|(bound, _)| *bound).chain(left_out).min() {
            self.best.cut = self.best.cut.or(Some((SearchLimit::Forms, bound)));
        }
        self.explore_forms(program, others)?;
        Ok(true)
    }
}
