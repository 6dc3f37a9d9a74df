//! What prices alone show of a plan within memory, where nothing is known of what ops hold: that no
//! price says, and no certificate has it.

use std::sync::Arc;

use shard_certificate::{forms, least_time};
use shard_ir::Program;

use super::{Lowering, within_limits};
use crate::LowerError;
use crate::kernel::Kernels;
use crate::relax::factors::Factors;
use crate::relax::split::Goal;
use crate::relax::{Branch, Setting};

/// So many branches are priced at most.
const MOST_BRANCHES: usize = 64;

/// In branches there are no more strategies than the search priced, or than these.
const MOST_PRICED: usize = 20_000;

/// What may still be priced.
struct PricingBudget {
    branches: usize,
    strategies: usize,
}

impl Lowering<'_> {
    /// What prices of times and of what is stored show that any plan of a program takes that fits,
    /// in picoseconds, as far as `target`. They are of the forms that a certificate lists, since
    /// prices of einsums with their operands in another order may come to another bound; where
    /// there are more forms than it lists, or a question is of some plans, of those that were
    /// searched.
    pub(super) fn shown_by_prices<'k>(
        &self,
        program: &Program,
        searched: impl Iterator<Item = &'k Arc<Kernels>>,
        target: u64,
    ) -> Result<u64, LowerError> {
        let most = self.best.priced.saturating_add(self.best.priced_in_dives).max(MOST_PRICED);
        let mut left = PricingBudget { branches: MOST_BRANCHES, strategies: most };
        let mut shown = target;
        if self.best.apart || self.forced.is_some() {
            for kernels in searched {
                shown = shown.min(self.shown_of_form(kernels, target, &mut left)?);
            }
            return Ok(shown);
        }
        let listed = forms(program);
        if listed.cut.is_some() {
            return Ok(0);
        }
        for (number, form) in listed.all.into_iter().enumerate() {
            shown = if number >= self.limits.forms || within_limits(&form, self.limits).is_err() {
                shown.min(least_time(&form, self.hardware))
            } else {
                let strict = form.strict;
                let kernels = Kernels::of_program(form, strict, self.loops, self.hardware);
                shown.min(self.shown_of_form(&kernels, target, &mut left)?)
            };
        }
        Ok(shown)
    }

    /// The same of the plans of a form: of the form as it is, or of its branches, divided by what
    /// is stored and by labels.
    fn shown_of_form(
        &self,
        kernels: &Kernels,
        target: u64,
        left: &mut PricingBudget,
    ) -> Result<u64, LowerError> {
        let program = kernels.program.as_ref();
        let setting = Setting::of(program, self.hardware, self.strict, self.limits);
        let problem = Factors::new(kernels, setting)?.in_fine_ticks();
        let memory = self.memory(program);
        let goal = Goal { target, sweeps: self.limits.sweeps };
        let mut open = vec![(Branch::unpriced(kernels, problem, memory.as_ref(), target), true)];
        let mut shown = target;
        while let Some((mut branch, fresh)) = open.pop() {
            self.limits.stop.check()?;
            let may = left.branches > 0 && left.strategies > 0;
            left.branches = left.branches.saturating_sub(1);
            left.strategies = left.strategies.saturating_sub(branch.strategies());
            if may || fresh {
                branch.sweep(goal, fresh);
            }
            let Some(bound) = branch.bound().filter(|bound| *bound < target) else { continue };
            match branch.divided(target).filter(|_| may) {
                Some((_, those, others)) => open.extend([(others, false), (those, false)]),
                None => shown = shown.min(bound),
            }
        }
        Ok(shown)
    }
}
