//! Branch and bound: forms, and branches of forms, are priced, divided or searched, the most
//! promising first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use shard_ir::{Layout, Program, never};

use super::dives::{A_DIVE_GOES_UP_BY, Dives};
use super::progress::Progress;
use super::region::{Effort, LabelledForm, LazyGuide};
use super::{Lowering, within_limits};
use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::Form;
use crate::memory::DeviceMemory;
use crate::relax::{Branch, Fork, Setting, Wanted, Whole, all_plans};
use crate::{Limits, LowerError, SearchLimit, Stats};

/// A form that has prices.
pub(super) struct Explored {
    pub(super) kernels: Arc<Kernels>,
    /// All that the plans of the form are made of.
    pub(super) whole: Arc<Whole>,
    /// The ways of filling the memory that a dive was made for, as [`Branch::fork`] notes them.
    pub(super) dived: BTreeSet<Vec<u32>>,
    pub(super) dives: Dives,
}

impl Explored {
    /// Nothing of the form is searched yet.
    pub(super) fn new(kernels: Arc<Kernels>, whole: Arc<Whole>) -> Explored {
        Explored { kernels, whole, dived: BTreeSet::new(), dives: Dives::default() }
    }
}

/// A branch that is still to be looked at.
struct PendingBranch {
    branch: Branch,
    /// The form, by number.
    form: usize,
    /// Whether sweeps have made prices for it; before that it has the prices of its parent.
    settled: bool,
}

/// What is done next. Where bounds are equal, branches come before forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    /// A branch is searched or divided.
    Branch,
    /// A form gets prices; its bound so far is from flops alone.
    Form,
}

impl<'a> Lowering<'a> {
    /// Searches some forms of a program, each given with a lower bound on its plans in picoseconds.
    pub(super) fn explore_forms(
        &mut self,
        program: &Program,
        forms: Vec<(u64, Form)>,
    ) -> Result<(), LowerError> {
        let rewritten: Vec<bool> = forms.iter().map(|(_, form)| form.rewritten).collect();
        let first_bounds: Vec<u64> = forms.iter().map(|(bound, _)| *bound).collect();
        let mut forms: Vec<Option<Form>> = forms.into_iter().map(|(_, form)| Some(form)).collect();
        let (all_written, loops, hardware) = (self.all_written, self.loops, self.hardware);
        let of_form = |form| Arc::new(Kernels::of_form(form, all_written, loops, hardware));
        let mut take = |form: usize| forms.get_mut(form).and_then(Option::take).map(of_form);
        // The least bound comes first; where bounds are equal what is nearest to a plan, then what
        // came first.
        let mut open: BinaryHeap<Reverse<(u64, Turn, usize)>> = first_bounds
            .into_iter()
            .enumerate()
            .map(|(form, bound)| Reverse((bound, Turn::Form, form)))
            .collect();
        let mut explored: BTreeMap<usize, Explored> = BTreeMap::new();
        let mut branches: Vec<Option<PendingBranch>> = Vec::new();
        let mut progress = Progress::default();
        while let Some(Reverse((bound, turn, at))) = open.pop() {
            self.limits.stop.check_asked()?;
            let form = match turn {
                Turn::Form => at,
                Turn::Branch => match &branches[at] {
                    Some(pending) => pending.form,
                    None => never!("a branch is looked at twice", continue),
                },
            };
            if self.is_beaten(bound, rewritten[form]) {
                self.best.ties_cut |= !rewritten[form] && self.known() == Some(bound);
                continue;
            }
            self.best.frontier = Some(bound);
            self.limits.stop.saw(bound, self.known());
            self.limits.stop.check()?;
            let next = match turn {
                Turn::Form => {
                    let Some(kernels) = take(form) else {
                        never!("a form gets prices twice", continue)
                    };
                    if self.like.rules_out(&kernels.program) {
                        continue;
                    }
                    let (branch, whole) = self.all_plans_of(&kernels, false)?;
                    explored.insert(form, Explored::new(kernels, whole));
                    vec![PendingBranch { branch, form, settled: true }]
                }
                Turn::Branch => {
                    let in_vain = progress.branches_since(bound, self.known(), self.best.branches);
                    if self.has_branched_long(bound, branches.len(), in_vain) {
                        self.best.leave(bound, SearchLimit::Branches);
                        break;
                    }
                    let (Some(pending), Some(explored)) =
                        (branches[at].take(), explored.get_mut(&form))
                    else {
                        never!("a branch of a form without prices", continue)
                    };
                    self.best.rewritten = rewritten[form];
                    self.look_at(pending, explored, bound)?
                }
            };
            for pending in next {
                if let Some(own) = pending.branch.bound() {
                    open.push(Reverse((own.max(bound), Turn::Branch, branches.len())));
                    branches.push(Some(pending));
                }
            }
        }
        // Where plans were searched in dives alone, prices rule out all other plans.
        if let (None, Some(cost)) = (self.best.root_bound, self.known()) {
            self.best.root_bound = Some(cost.min(self.best.open_bound.unwrap_or(cost)));
        }
        let searched = explored.values().map(|explored| &explored.kernels);
        self.bound_by_prices(program, searched)
    }

    /// Whether the branches are at a limit: there are too many, too many since the bound rose or a
    /// better plan was found (`in_vain`), or their prices or searches took too long.
    fn has_branched_long(&self, bound: u64, branches: usize, in_vain: usize) -> bool {
        branches > self.limits.branches
            || in_vain > self.limits.branches_in_vain
            || self.has_priced_long(bound)
            || self.has_searched_long(bound)
    }

    /// Sets the bound that prices alone show on the plans within memory. Prices know nothing of
    /// what ops hold, so that their bound may be below the cost of the best plan. Dividing the
    /// plans into branches may show by prices what the search needed its states for.
    fn bound_by_prices<'k>(
        &mut self,
        program: &Program,
        searched: impl Iterator<Item = &'k Arc<Kernels>>,
    ) -> Result<(), LowerError> {
        if let (Some(_), Some(cost)) = (self.capacity, self.known())
            && (self.best.root_bound == Some(cost) || self.has_searched_all())
        {
            let shown = if self.limits.time_alone {
                0
            } else {
                self.shown_by_prices(program, searched, cost)?
            };
            let known = self.best.root_bound.filter(|known| *known < cost).unwrap_or(0);
            self.best.root_bound = Some(shown.max(known));
        }
        Ok(())
    }

    /// Whether all forms were searched and no plan was left out that may be better than the best
    /// one known. It is false where prices ruled out forms that were not looked at: what is shown
    /// of the others does not bound their plans.
    fn has_searched_all(&self) -> bool {
        let best = &self.best;
        !best.apart && best.stopped_by.is_none() && best.missed.is_none() && best.cut.is_none()
    }

    /// Whether all searches within memory together have expanded the states that they may
    /// ([`SEARCHES_WITHIN_MEMORY`]), or made a quarter of the e-nodes that one search without
    /// memory may make. Where the best plan is near its bound, a third of these e-nodes is enough.
    /// For phases side by side a sixth of the states and of the e-nodes is then enough, since the
    /// layouts that are best for all phases may leave no room for their activations.
    pub(super) fn has_searched_long(&self, bound: u64) -> bool {
        let Stats { expansions, nodes, .. } = self.best.stats;
        let most_expansions = SEARCHES_WITHIN_MEMORY * self.limits.expansions;
        let most_nodes = self.limits.nodes / 4;
        let (most_expansions, most_nodes) = match (self.is_near(bound), self.scopes) {
            (false, _) => (most_expansions, most_nodes),
            (true, None) => (most_expansions, most_nodes / 3),
            (true, Some(_)) => (most_expansions / 6, most_nodes / 6),
        };
        self.capacity.is_some() && (expansions > most_expansions || nodes > most_nodes)
    }

    /// How many states the next search may expand, of those that all searches within memory may
    /// expand together; a few in any case.
    pub(super) fn expansions_left(&self) -> usize {
        if !self.searches_memory() {
            return usize::MAX;
        }
        let most = SEARCHES_WITHIN_MEMORY * self.limits.expansions;
        let left = most.saturating_sub(self.best.stats.expansions);
        left.max(self.limits.expansions / A_FEW_OF_EXPANSIONS)
    }

    /// Whether so many strategies were priced that the search ends.
    fn has_priced_long(&self, bound: u64) -> bool {
        let all = self.limits.branches.saturating_mul(STRATEGIES_OF_A_BRANCH);
        let most = if self.is_near(bound) { all / 4 } else { all };
        // A dive prices nearly the same problem again and again, so its strategies count half.
        self.best.priced.saturating_add(self.best.priced_in_dives / 2) > most
    }

    /// Whether the best plan so far is hardly above `bound`, a lower bound on the plans that are
    /// still to be looked at.
    fn is_near(&self, bound: u64) -> bool {
        self.known().is_some_and(|known| known.saturating_sub(bound) <= bound / NEAR_ENOUGH)
    }

    /// The time of the best plan so far, in picoseconds.
    pub(super) fn known(&self) -> Option<u64> {
        self.best.plan.as_ref().map(|(rank, _)| rank.time)
    }

    /// Whether plans that take `bound` or more are not wanted any more.
    fn is_beaten(&self, bound: u64, rewritten: bool) -> bool {
        // Another form than the one written is taken only if it takes less time. Where memory
        // binds, ties are not compared: there may be as many as there are ways of filling the
        // memory.
        let few = self.best.stats.nodes < MAX_TIED_NODES && self.best.priced < MAX_TIED_STRATEGIES;
        let ties = !rewritten && self.capacity.is_none() && few;
        self.known().is_some_and(|time| time < bound || (time == bound && !ties))
            || self.below.is_some_and(|below| below <= bound)
    }

    /// Bounds all plans of a form. With `apart` none is left out for its time, and those far from
    /// the best plan get prices, too.
    pub(super) fn all_plans_of(
        &self,
        kernels: &Kernels,
        apart: bool,
    ) -> Result<(Branch, Arc<Whole>), LowerError> {
        let program = kernels.program.as_ref();
        within_limits(program, self.limits)?;
        check_labels(program)?;
        let wanted = Wanted {
            forced: self.forced,
            memory: self.memory(program),
            below: self.below.filter(|_| !apart),
            apart,
            like: self.like.of_form(program).filter(|_| !apart),
        };
        all_plans(kernels, Setting::of(program, self.hardware, self.strict, self.limits), wanted)
    }

    /// Prices a branch, searches it, or divides it. Returns the branches that are still to be
    /// looked at.
    fn look_at(
        &mut self,
        pending: PendingBranch,
        explored: &mut Explored,
        bound: u64,
    ) -> Result<Vec<PendingBranch>, LowerError> {
        let PendingBranch { mut branch, form, settled } = pending;
        let most = self.most_wanted();
        if !settled {
            self.best.branches += 1;
            self.best.priced += branch.strategies();
            self.settle(&mut branch, &explored.kernels, most);
            return Ok(vec![PendingBranch { branch, form, settled: true }]);
        }
        // A dive finds one plan of the branch. All that is dearer is then dropped from the branch.
        let most_dives = FIRST_DIVES + self.best.branches / BRANCHES_A_DIVE;
        let fork = match branch.fork(most, &mut explored.dived, most_dives) {
            Fork::Branches(_) if self.known().is_none() && !explored.dives.has_dived => Fork::Dive,
            fork => fork,
        };
        match fork {
            Fork::Search(labels) => {
                self.best.root_bound.get_or_insert(bound);
                let branch = branch.within_memory(most);
                if self.may_fit(branch.clone(), &explored.kernels, most) {
                    self.search_branch(&branch, &labels, false, explored)?;
                }
                Ok(Vec::new())
            }
            Fork::Dive => {
                explored.dives.has_dived = true;
                // Plans that a dive left out are in the branch, which is still to be looked at.
                let known = (self.best.stopped_by, self.best.open_bound, self.best.missed);
                let branch = self.dive_within_memory(branch, explored, bound)?;
                (self.best.stopped_by, self.best.open_bound, self.best.missed) = known;
                let settled = self.most_wanted() == most && branch.bound() == Some(bound);
                Ok(vec![PendingBranch { branch, form, settled }])
            }
            Fork::Branches(branches) => Ok(branches
                .into_iter()
                .map(|branch| PendingBranch { branch, form, settled: false })
                .collect()),
        }
    }

    /// Whether a branch may have a plan that fits and takes at most `most` picoseconds. The weights
    /// and caches of all its plans fit together, but beside them there may be no room for any way
    /// of making some value. A few sweeps show that at once; searches would show it region by
    /// region.
    pub(super) fn may_fit(&self, mut branch: Branch, kernels: &Kernels, most: Option<u64>) -> bool {
        if !self.searches_memory() {
            return true;
        }
        let few = Limits { sweeps: SWEEPS_OF_WHAT_FITS, ..self.limits.clone() };
        self.settle_in(&mut branch, kernels, most, &few);
        branch.bound().is_some_and(|least| most.is_none_or(|most| least <= most))
    }

    /// The most that a plan may take to be wanted, in picoseconds; `None` where no plan is known.
    pub(super) fn most_wanted(&self) -> Option<u64> {
        self.known().map(|time| if self.capacity.is_some() { time.saturating_sub(1) } else { time })
    }

    /// Searches the plans of a branch; with `in_dive` only those that exceed its bound by at most
    /// [`A_DIVE_GOES_UP_BY`]. Returns whether one is better than those before.
    pub(super) fn search_branch(
        &mut self,
        branch: &Branch,
        labels: &[Layout],
        in_dive: bool,
        explored: &Explored,
    ) -> Result<bool, LowerError> {
        let Some(bound) = branch.bound() else { return Ok(false) };
        let most = if in_dive { bound.saturating_add(bound / A_DIVE_GOES_UP_BY) } else { u64::MAX };
        let program = &explored.kernels.program;
        let memory = self
            .memory(program)
            .filter(|_| self.searches_memory())
            .map(|memory| branch.memory(program, &memory));
        let form = LabelledForm { kernels: &explored.kernels, labels: Some(labels) };
        let rank = |lowering: &Self| lowering.best.plan.as_ref().map(|(rank, _)| rank.clone());
        let before = rank(self);
        let priced = branch.priced();
        // Without memory the first region mostly has the best plan, and a guide is not worth its
        // time. A question is searched where prices leave it open, and prices guide its search.
        let effort = match (self.searches_memory(), self.like.is_empty()) {
            (true, _) => Effort::Full,
            (false, false) => Effort::Short,
            (false, true) => Effort::First,
        };
        let guide = LazyGuide::of(branch, effort);
        match self.widen(form, &priced, bound, most, memory.as_ref(), Some(&guide)) {
            Err(LowerError::Limit { .. }) if effort != Effort::Full => {
                self.search_again(branch, form, most)?;
            }
            found => found?,
        }
        // One plan after another did not fit at its peak. Plans whose ops hold less are tried; in a
        // dive only where no plan is known.
        let may_help = !in_dive || self.known().is_none();
        for share in SHARES {
            let helps = may_help && self.best.gave_up && !self.best.is_too_large;
            let Some(memory) = memory.as_ref().filter(|_| helps) else { break };
            let memory = memory.sparing(share);
            self.widen(form, &priced, bound, most, Some(&memory), Some(&guide))?;
        }
        let better = rank(self) != before;
        if better {
            // Questions are about plans of any size. Prices that hold only for plans that fit do
            // not answer them.
            let is_of_any_size = self.capacity.is_none();
            self.best.whole = is_of_any_size.then(|| Arc::clone(&explored.whole));
            self.best.settled = is_of_any_size.then(|| branch.whole());
        }
        Ok(better)
    }

    /// Searches a branch again whose first search ended at its limit; memory is no constraint on
    /// it. First, prices are rounded to a plan ([`Branch::rounded`]), and the branch is priced
    /// again without what is dearer than the best plan known, as long as that gives a better one.
    /// Then the branch is searched with a guide. Where a limit ends that search, the best plan
    /// known stays.
    fn search_again(
        &mut self,
        branch: &Branch,
        form: LabelledForm<'_>,
        most: u64,
    ) -> Result<(), LowerError> {
        let mut branch = branch.clone();
        let search = |lowering: &mut Self, branch: &Branch, effort: Effort| {
            let Some(bound) = branch.bound() else { return Ok(()) };
            let (priced, guide) = (branch.priced(), LazyGuide::of(branch, effort));
            lowering.widen(form, &priced, bound, most, None, Some(&guide))
        };
        loop {
            let known = self.known();
            branch.settle(self.limits, known);
            self.limits.stop.check()?;
            if let Some(plan) = branch.rounded(self.limits) {
                match search(self, &plan, Effort::Short) {
                    Err(LowerError::Limit { .. }) => {}
                    found => found?,
                }
            }
            if self.known() == known {
                break;
            }
        }
        let Some(bound) = branch.bound() else { return Ok(()) };
        // Phases side by side within memory are searched in full: a shorter search may leave the
        // best request unproven for a picosecond.
        let is_near = self.capacity.is_none()
            && self.known().is_some_and(|known| known.saturating_sub(bound) <= bound / NEAR);
        match search(self, &branch, if is_near { Effort::Near } else { Effort::Full }) {
            Err(LowerError::Limit { limit, .. }) if self.known().is_some() => {
                self.best.leave(bound, limit);
                Ok(())
            }
            found => found,
        }
    }

    /// Whether searches look at the memory that plans take. For phases side by side only what is
    /// stored has to fit, which branches see to; each phase is looked at by itself later.
    pub(super) fn searches_memory(&self) -> bool {
        self.capacity.is_some() && self.scopes.is_none()
    }

    /// The memory that plans have to fit in; `None` where they may have any size.
    pub(super) fn memory<'p>(&self, program: &'p Program) -> Option<DeviceMemory<'p>>
    where
        'a: 'p,
    {
        self.capacity.map(|capacity| DeviceMemory::new(program, capacity).within(self.scopes))
    }

    /// Prices a branch, without what does not fit.
    pub(super) fn settle(&self, branch: &mut Branch, kernels: &Kernels, most: Option<u64>) {
        self.settle_in(branch, kernels, most, self.limits);
    }

    pub(super) fn settle_in(
        &self,
        branch: &mut Branch,
        kernels: &Kernels,
        most: Option<u64>,
        limits: &Limits,
    ) {
        if let Some(memory) = self.memory(&kernels.program) {
            branch.fit(kernels, &memory);
        }
        branch.settle(limits, most);
    }
}

/// How many sweeps tell whether a branch that is to be searched has anything that fits.
const SWEEPS_OF_WHAT_FITS: usize = 4;

/// A plan that exceeds its bound by no more than this part of the bound is not worth a long search.
const NEAR: u64 = 1_000_000;

/// All searches within memory together may expand the states of so many searches without memory.
const SEARCHES_WITHIN_MEMORY: usize = 8;

/// Each of them may expand this part of the states of one search in any case.
const A_FEW_OF_EXPANSIONS: usize = 64;

/// Where plans whose ops may hold all that is free do not fit, plans are tried whose ops may hold
/// what is free divided by each of these.
const SHARES: [u64; 3] = [2, 4, 8];

/// Once searches have made so many e-nodes, branches that can only tie with the best plan are left
/// out.
const MAX_TIED_NODES: usize = 20_000;

/// The same once so many strategies were priced.
const MAX_TIED_STRATEGIES: usize = 100_000;

/// So many priced strategies count as one branch, so that a branch of a large program counts as
/// many of a small one. The limit on branches ends the search; a quarter of it does where the best
/// plan is [near](NEAR_ENOUGH) its bound.
const STRATEGIES_OF_A_BRANCH: usize = 500;

/// A plan is near its bound if it exceeds the bound by no more than this part of the bound.
const NEAR_ENOUGH: u64 = 256;

/// How many dives are made at first. A dive takes as long as many branches.
const FIRST_DIVES: usize = 8;

/// After those, one dive is made for so many branches.
const BRANCHES_A_DIVE: usize = 16;
