//! Dives: what seems best of a branch, decided place by place and searched, so that there is a plan
//! which others are compared with.

use std::collections::BTreeSet;
use std::sync::Arc;

use shard_ir::Layout;

use super::Lowering;
use super::branches::Explored;
use crate::memory::DeviceMemory;
use crate::relax::Branch;
use crate::space::Space;
use crate::table::Tables;
use crate::{Limits, LowerError};

/// Within memory a dive looks at plans that take this part of its bound longer, and at no longer
/// ones: where what is stored leaves no room for ops, none of all that there are would fit.
const A_DIVE_GOES_UP_BY: u64 = 1;

/// Sweeps after each step of a dive: enough to tell what seems best next.
const SWEEPS_OF_A_DIVE: usize = 8;

/// Where deciding some places at once lifts the bound by more than this part of it, fewer are
/// decided.
const LIFTED_AT_ONCE: u64 = 1 << 12;

/// A dive prices what takes this part of its bound longer at most, as long as that has a plan.
const A_DIVE_RISES_BY: u64 = 32;

/// So many times what the activations of the fastest plan take is left free, one after another,
/// where plans that fill the memory leave no room for their own.
const LEFT_FREE: [u64; 6] = [1, 2, 3, 4, 6, 8];

/// The dives that were made in one form.
#[derive(Default)]
pub(super) struct Dives {
    /// Whether any was made.
    pub(super) has_dived: bool,
    /// Where dives ended that found nothing: the layouts in which parameters may be stored there,
    /// the bound in picoseconds and the number of strategies. A dive that ends at the same three is
    /// taken to end at the same plans, and is not searched again.
    in_vain: BTreeSet<(Vec<Vec<Layout>>, u64, usize)>,
    /// The most bytes that weights and caches take in the plans where the last of these dives
    /// ended. A dive among plans that may take as much would end there, too.
    kept_in_vain: Option<u64>,
    /// Whether plans were searched that leave room for the activations that any plan has.
    leaves_room: bool,
}

impl Lowering<'_> {
    /// Searches what seems best of a branch. Where that fills the memory so far that there is no
    /// room for what ops hold, what seems best of those of its plans is searched that leave more
    /// free. Returns the branch, less what is known then to have no room. `bound` is what no plan
    /// takes less than that is still to be looked at.
    pub(super) fn dive_within_memory(
        &mut self,
        branch: Branch,
        explored: &mut Explored,
        bound: u64,
    ) -> Result<Branch, LowerError> {
        if self.dive(branch.clone(), explored)? || self.scopes.is_some() {
            return Ok(branch);
        }
        // Once is enough: branches of a branch have the memory that it has.
        let Some(capacity) = self.capacity.filter(|_| !explored.dives.leaves_room) else {
            return Ok(branch);
        };
        explored.dives.leaves_room = true;
        let least = self.least_activations(explored, capacity)?;
        // What activations take at least no price says.
        self.best.root_bound.get_or_insert(bound);
        let branch = branch.keeping_at_most(capacity.saturating_sub(least));
        for times in LEFT_FREE {
            let free = self.activations.max(least).saturating_mul(times);
            let most = capacity.saturating_sub(free);
            // What leaves more free than a plan that was found, or than plans of which none is fast
            // enough, is hardly faster.
            let may_help = explored.dives.kept_in_vain.is_none_or(|kept| most < kept);
            if may_help && self.dive(branch.keeping_at_most(most), explored)? {
                break;
            }
        }
        if self.known().is_none() {
            self.steer(&branch, explored, capacity)?;
        }
        Ok(branch)
    }

    /// What the activations of any plan of a form take at least.
    pub(super) fn least_activations(
        &self,
        explored: &Explored,
        capacity: u64,
    ) -> Result<u64, LowerError> {
        let kernels = &explored.kernels;
        let priced = explored.whole.priced();
        let region = priced.region(priced.dearest());
        let tables = Space::without_moves(Arc::clone(kernels), region, self.limits)
            .and_then(|space| Tables::new(&space, self.hardware));
        match tables {
            Ok(tables) => {
                let memory = DeviceMemory::new(&kernels.program, capacity);
                Ok(memory.least_activations(kernels, &tables))
            }
            // Nothing is known of them then.
            Err(LowerError::Limit { .. }) => Ok(0),
            Err(other) => Err(other),
        }
    }

    /// Searches what seems best of a branch: one layout of each label, one way of filling the
    /// memory. Returns whether there is a plan, or none that is wanted.
    fn dive(&mut self, branch: Branch, explored: &mut Explored) -> Result<bool, LowerError> {
        if let (None, Some(bound)) = (self.most_wanted(), branch.bound()) {
            // A dive seldom ends far above where it began, and prices what it has left at each
            // step.
            let near = branch.taking_at_most(bound.saturating_add(bound / A_DIVE_RISES_BY));
            if let Some(found) = self.dive_in(near, explored)? {
                return Ok(found);
            }
        }
        Ok(self.dive_in(branch, explored)?.unwrap_or(false))
    }

    /// The same of all of a branch; `None` where what seems best of it has no plan.
    fn dive_in(
        &mut self,
        mut branch: Branch,
        explored: &mut Explored,
    ) -> Result<Option<bool>, LowerError> {
        let most = self.most_wanted();
        let few = Limits { sweeps: SWEEPS_OF_A_DIVE, ..self.limits.clone() };
        let is_wanted = |bound: u64| most.is_none_or(|most| bound <= most);
        // Several places at once where they are many, as long as that lifts the bound by little.
        let mut at_once = usize::MAX;
        while let Some((mut likely, count)) = branch.toward_the_best(at_once) {
            self.best.priced_in_dives += likely.strategies();
            self.settle_in(&mut likely, &explored.kernels, most, &few);
            let (before, now) = (branch.bound().unwrap_or(0), likely.bound());
            if count > 1
                && now.is_none_or(|now| now.saturating_sub(before) > before / LIFTED_AT_ONCE)
            {
                at_once = count / 2;
                continue;
            }
            (branch, at_once) = (likely, count.saturating_mul(2));
            let Some(bound) = now else { return Ok(None) };
            if !is_wanted(bound) {
                return Ok(Some(true));
            }
        }
        self.settle(&mut branch, &explored.kernels, most);
        let Some(bound) = branch.bound() else { return Ok(None) };
        if !is_wanted(bound) {
            return Ok(Some(true));
        }
        let kernels = Arc::clone(&explored.kernels);
        let program = kernels.program.as_ref();
        let end = (branch.stored(program), bound, branch.strategies());
        let kept = self.memory(program).map(|memory| branch.keeps_at_most(program, &memory));
        let found =
            !explored.dives.in_vain.contains(&end) && self.search_near(&branch, explored)?;
        explored.dives.kept_in_vain = kept.filter(|_| !found);
        if !found {
            explored.dives.in_vain.insert(end);
        }
        Ok(Some(found))
    }

    /// Searches the plans of a branch that take hardly longer than its bound. Returns whether one
    /// is better than those before.
    pub(super) fn search_near(
        &mut self,
        branch: &Branch,
        explored: &Explored,
    ) -> Result<bool, LowerError> {
        let parts = self.capacity.map(|_| A_DIVE_GOES_UP_BY);
        self.search_branch(branch, &branch.labels(), parts, explored)
    }
}
