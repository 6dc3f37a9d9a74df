//! Dives: in a branch, what seems best is decided place by place, and the plans that are left are
//! searched. A dive finds a plan early, with which others are compared.

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

/// Within memory a dive searches plans that exceed its bound by at most this part of the bound.
/// Where what is stored leaves no room for ops, a search of all its plans would find none either.
pub(super) const A_DIVE_GOES_UP_BY: u64 = 64;

/// How many sweeps follow each step of a dive: enough to tell what seems best next.
const SWEEPS_OF_A_DIVE: usize = 8;

/// Where deciding several places at once lifts the bound by more than this part of it, fewer places
/// are decided at once.
const LIFTED_AT_ONCE: u64 = 1 << 12;

/// A dive first prices only what exceeds the bound of its branch by at most this part of the bound.
const A_DIVE_RISES_BY: u64 = 32;

/// Where plans that fill the memory leave no room for their activations, dives leave so many times
/// the activations of the fastest plan free, one after another.
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
    /// Dives in a branch. Where the plans that seem best fill the memory so far that ops have no
    /// room, dives among plans that leave more free follow. Returns the branch, without what is
    /// known then not to fit. `bound` is a lower bound on the plans that are still to be looked at.
    pub(super) fn dive_within_memory(
        &mut self,
        branch: Branch,
        explored: &mut Explored,
        bound: u64,
    ) -> Result<Branch, LowerError> {
        if self.dive(branch.clone(), explored)? || self.scopes.is_some() {
            return Ok(branch);
        }
        // Once is enough for a form: all its branches have the same memory.
        let Some(capacity) = self.capacity.filter(|_| !explored.dives.leaves_room) else {
            return Ok(branch);
        };
        explored.dives.leaves_room = true;
        let least = self.least_activations(explored, capacity)?;
        // Prices do not know what activations take, so the bound by prices alone is noted first.
        self.best.root_bound.get_or_insert(bound);
        let branch = branch.keeping_at_most(capacity.saturating_sub(least));
        for times in LEFT_FREE {
            let free = self.activations.max(least).saturating_mul(times);
            let most = capacity.saturating_sub(free);
            // A dive among plans that may store what the last dive in vain stored would end there
            // again.
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

    /// What the activations of any plan of a form take at least, in bytes; 0 where a limit keeps
    /// that from being known.
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
            Err(LowerError::Limit { .. }) => Ok(0),
            Err(other) => Err(other),
        }
    }

    /// Decides one layout of each label and one way of filling the memory, and searches the plans
    /// with these. Returns whether a better plan was found, or none that is wanted can be there.
    fn dive(&mut self, branch: Branch, explored: &mut Explored) -> Result<bool, LowerError> {
        if let (None, Some(bound)) = (self.most_wanted(), branch.bound()) {
            // A dive prices at each step what is left, and seldom ends far above the first bound.
            let near = branch.taking_at_most(bound.saturating_add(bound / A_DIVE_RISES_BY));
            if let Some(found) = self.dive_in(near, explored)? {
                return Ok(found);
            }
        }
        Ok(self.dive_in(branch, explored)?.unwrap_or(false))
    }

    /// The same without a limit on time; `None` where what was decided has no plan.
    fn dive_in(
        &mut self,
        mut branch: Branch,
        explored: &mut Explored,
    ) -> Result<Option<bool>, LowerError> {
        let most = self.most_wanted();
        let few = Limits { sweeps: SWEEPS_OF_A_DIVE, ..self.limits.clone() };
        let is_wanted = |bound: u64| most.is_none_or(|most| bound <= most);
        // Many places are decided at once, as long as that lifts the bound by little.
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

    /// Searches the plans of a branch, within memory those that take hardly longer than its bound.
    /// Returns whether one is better than those before.
    pub(super) fn search_near(
        &mut self,
        branch: &Branch,
        explored: &Explored,
    ) -> Result<bool, LowerError> {
        self.search_branch(branch, &branch.labels(), self.capacity.is_some(), explored)
    }
}
