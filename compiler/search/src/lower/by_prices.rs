//! The bound that prices alone show on the plans within memory. It is what a certificate can say:
//! prices know what weights and caches take, and nothing of what ops hold.

use std::sync::Arc;

use shard_certificate::{forms, least_time};
use shard_ir::Program;

use super::{Lowering, within_limits};
use crate::LowerError;
use crate::kernel::Kernels;
use crate::relax::factors::Factors;
use crate::relax::split::Goal;
use crate::relax::{Branch, Setting};

/// How many branches are priced at most.
const MOST_BRANCHES: usize = 64;

/// In all branches no more strategies are priced than the search has priced, or than this.
const MOST_PRICED: usize = 20_000;

/// What may still be priced.
struct PricingBudget {
    branches: usize,
    strategies: usize,
}

impl Lowering<'_> {
    /// A lower bound on the plans of a program that fit, by prices of times and of what is stored,
    /// in picoseconds and no higher than `target`. The forms bounded are those that a certificate
    /// lists, since prices of einsums with operands in another order may come to another bound.
    /// Where some plans alone are in question, or forms were ruled out unseen, they are those that
    /// were searched. The bound is 0 where a certificate does not list all forms.
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

    /// The same for the plans of one form, which are divided into branches by what is stored and by
    /// labels where that raises the bound.
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
