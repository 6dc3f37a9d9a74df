//! What prices alone show of a plan within memory, where nothing is known of what ops hold: that no
//! price says, and no certificate has it.

use super::Lowering;
use crate::LowerError;
use crate::kernel::Kernels;
use crate::relax::Branch;
use crate::relax::factors::Factors;
use crate::relax::split::Goal;
use crate::space::maxima;

/// So many branches are priced at most.
const MOST_BRANCHES: usize = 256;

/// In branches there are no more strategies than the search priced, or than these.
const MOST_PRICED: usize = 200_000;

impl Lowering<'_> {
    /// What prices of times and of what is stored show that any plan of a form takes that fits, in
    /// picoseconds, as far as `target`: of the form as it is, or of its branches, divided by what is
    /// stored and by labels.
    pub(super) fn shown_by_prices(
        &self,
        kernels: &Kernels,
        target: u64,
    ) -> Result<u64, LowerError> {
        let program = kernels.program.as_ref();
        let problem =
            Factors::new(kernels, self.hardware, maxima(program), self.strict, self.limits)?
                .in_fine_ticks();
        let memory = self.memory(program);
        let goal = Goal { target, sweeps: self.limits.sweeps };
        let mut open = vec![(Branch::unpriced(kernels, problem, memory.as_ref()), true)];
        let (mut shown, mut branches, mut priced) = (target, 0, 0);
        let most = self.best.priced.saturating_add(self.best.priced_in_dives).max(MOST_PRICED);
        while let Some((mut branch, fresh)) = open.pop() {
            self.limits.stop.check()?;
            branches += 1;
            priced += branch.strategies();
            if branches <= MOST_BRANCHES && (priced <= most || fresh) {
                branch.sweep(goal, fresh);
            }
            let Some(bound) = branch.bound().filter(|bound| *bound < target) else { continue };
            let few = branches < MOST_BRANCHES && priced <= most;
            match branch.divided(target).filter(|_| few) {
                Some((_, those, others)) => open.extend([(others, false), (those, false)]),
                None => shown = shown.min(bound),
            }
        }
        Ok(shown)
    }
}
