//! Branch and bound: forms and branches of them, the most promising first, each priced, divided or
//! searched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use shard_ir::{Layout, Program};

use super::progress::Progress;
use super::region::{Effort, LabelledForm, LazyGuide};
use super::{Lowering, within_limits};
use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::Form;
use crate::memory::DeviceMemory;
use crate::relax::{Branch, Fork, Setting, Wanted, Whole, all_plans};
use crate::space::Space;
use crate::table::Tables;
use crate::{Limits, LowerError, Stats};

/// A form that has prices.
pub(super) struct Explored {
    pub(super) kernels: Arc<Kernels>,
    /// All that its plans are made of.
    whole: Arc<Whole>,
    /// The ways of filling the memory that were tried.
    pub(super) dived: BTreeSet<Vec<u32>>,
    /// Whether what seems best of it was searched.
    has_dived: bool,
    /// Where dives ended that found nothing: the layouts in which parameters may be stored there,
    /// the bound in picoseconds and the number of strategies. Another one that ends so is taken for
    /// the same.
    in_vain: BTreeSet<(Vec<Vec<Layout>>, u64, usize)>,
    /// What the weights and caches take at most, in bytes, of the plans where the last of these
    /// dives ended: one of plans that may take as much ends there, too.
    kept_in_vain: Option<u64>,
    /// Whether plans were searched that leave room for the activations that any plan has.
    leaves_room: bool,
}

impl Explored {
    /// Nothing of it was searched yet.
    pub(super) fn new(kernels: Arc<Kernels>, whole: Arc<Whole>) -> Explored {
        Explored {
            kernels,
            whole,
            dived: BTreeSet::new(),
            has_dived: false,
            in_vain: BTreeSet::new(),
            kept_in_vain: None,
            leaves_room: false,
        }
    }
}

/// Plans of a form that are still to be looked at.
struct PendingBranch {
    branch: Branch,
    form: usize,
    /// Whether sweeps made its prices its own; before that they are those of its parent.
    settled: bool,
}

/// What comes next: the last first, of those that promise alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    /// A branch is searched or divided.
    Branch,
    /// The form gets prices; its bound is from flops alone.
    Form,
}

impl<'a> Lowering<'a> {
    /// Searches some forms of a program, given what no plan of each takes less than, in
    /// picoseconds.
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
        // The most promising first; of those that promise alike what is nearest to a plan, then
        // what came first.
        let mut open: BinaryHeap<Reverse<(u64, Turn, usize, usize)>> = first_bounds
            .into_iter()
            .enumerate()
            .map(|(form, bound)| Reverse((bound, Turn::Form, form, 0)))
            .collect();
        let mut explored: BTreeMap<usize, Explored> = BTreeMap::new();
        let mut branches: Vec<Option<PendingBranch>> = Vec::new();
        let mut progress = Progress::default();
        while let Some(Reverse((bound, turn, at, _))) = open.pop() {
            self.limits.stop.check_asked()?;
            let form = match turn {
                Turn::Form => at,
                Turn::Branch => branches[at].as_ref().map_or(0, |pending| pending.form),
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
                    let Some(kernels) = take(form) else { continue };
                    if self.like.rules_out(&kernels.program) {
                        continue;
                    }
                    let (branch, whole) = self.all_plans_of(&kernels, false)?;
                    explored.insert(form, Explored::new(kernels, whole));
                    vec![PendingBranch { branch, form, settled: true }]
                }
                Turn::Branch => {
                    let in_vain = progress.branches_since(bound, self.known(), self.best.branches);
                    if branches.len() > self.limits.branches
                        || in_vain > self.limits.branches_in_vain
                        || self.has_priced_long(bound)
                        || self.has_searched_long(bound)
                    {
                        self.best.leave(bound, BRANCHES);
                        break;
                    }
                    let (Some(pending), Some(explored)) =
                        (branches[at].take(), explored.get_mut(&form))
                    else {
                        continue;
                    };
                    self.best.rewritten = rewritten[form];
                    self.look_at(pending, explored, bound)?
                }
            };
            for pending in next {
                if let Some(own) = pending.branch.bound() {
                    open.push(Reverse((own.max(bound), Turn::Branch, branches.len(), 0)));
                    branches.push(Some(pending));
                }
            }
        }
        // Where nothing was searched beside, all that is left is ruled out by prices.
        if let (None, Some(cost)) = (self.best.root_bound, self.known()) {
            self.best.root_bound = Some(cost.min(self.best.open_bound.unwrap_or(cost)));
        }
        let searched = explored.values().map(|explored| &explored.kernels);
        self.bound_by_prices(program, searched)
    }

    /// Sets what prices alone show of all plans within memory. What ops hold no price says: a bound
    /// by prices is what they show without that. Branches of them may also show what the search
    /// needed its states for.
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

    /// Whether all forms were searched, and no plan was left out that may take less than the best
    /// known. Where prices rule forms out that were not looked at, what is shown of the others
    /// bounds no plan of those.
    fn has_searched_all(&self) -> bool {
        let best = &self.best;
        !best.apart && best.stopped_by.is_none() && best.missed.is_none() && best.cut.is_none()
    }

    /// Whether searches within memory have taken together the states that they may
    /// ([`SEARCHES_WITHIN_MEMORY`]), or a quarter of the e-nodes of one without. Where the best
    /// plan is near its bound, a third of these e-nodes ends the search; of phases side by side a
    /// sixth of both does, since the best layouts for all phases may leave no room for their
    /// activations.
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

    /// How many states the next search may expand of those that searches within memory may
    /// together; a few in any case.
    pub(super) fn expansions_left(&self) -> usize {
        if !self.searches_memory() {
            return usize::MAX;
        }
        let most = SEARCHES_WITHIN_MEMORY * self.limits.expansions;
        let left = most.saturating_sub(self.best.stats.expansions);
        left.max(self.limits.expansions / A_FEW_OF_EXPANSIONS)
    }

    /// Whether so much was priced that what is left is not worth as much again.
    fn has_priced_long(&self, bound: u64) -> bool {
        let all = self.limits.branches.saturating_mul(STRATEGIES_OF_A_BRANCH);
        let most = if self.is_near(bound) { all / 4 } else { all };
        // A dive prices nearly the same problem again and again, so its strategies count half.
        self.best.priced.saturating_add(self.best.priced_in_dives / 2) > most
    }

    /// Whether the best plan so far is hardly above `bound`, which no plan takes less than that is
    /// still to be looked at.
    fn is_near(&self, bound: u64) -> bool {
        self.known().is_some_and(|known| known.saturating_sub(bound) <= bound / NEAR_ENOUGH)
    }

    /// What the best plan so far takes, in picoseconds.
    pub(super) fn known(&self) -> Option<u64> {
        self.best.plan.as_ref().map(|(rank, _)| rank.time)
    }

    /// Whether plans that take `bound` or more are not wanted any more.
    fn is_beaten(&self, bound: u64, rewritten: bool) -> bool {
        // Another form than the one written is taken only where it takes less time. Where memory
        // binds, plans that tie may be as many as there are ways of filling it.
        let few = self.best.stats.nodes < MAX_TIED_NODES && self.best.priced < MAX_TIED_STRATEGIES;
        let ties = !rewritten && self.capacity.is_none() && few;
        self.known().is_some_and(|time| time < bound || (time == bound && !ties))
            || self.below.is_some_and(|below| below <= bound)
    }

    /// All plans of a form, bounded: with `apart`, those far from the best ones too, and whatever
    /// they take.
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

    /// Prices a branch, searches it, or divides it; returns what is still to be looked at.
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
        // A dive finds one plan of the branch; whatever is dearer is then dropped from all of it.
        let most_dives = FIRST_DIVES + self.best.branches / BRANCHES_A_DIVE;
        let fork = match branch.fork(most, &mut explored.dived, most_dives) {
            Fork::Branches(_) if self.known().is_none() && !explored.has_dived => Fork::Dive,
            fork => fork,
        };
        match fork {
            Fork::Search(labels) => {
                self.best.root_bound.get_or_insert(bound);
                let branch = branch.within_memory(most);
                if self.may_fit(branch.clone(), &explored.kernels, most) {
                    self.search_branch(&branch, &labels, None, explored)?;
                }
                Ok(Vec::new())
            }
            Fork::Dive => {
                explored.has_dived = true;
                // What a dive left out is in the branch, which is still to be looked at.
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

    /// Whether a branch whose plans store what fits together may have a plan that fits and takes at
    /// most `most`, in picoseconds: beside what they store there may be no room for any way of
    /// making some value. A few sweeps show that; a search would show it of each region.
    pub(super) fn may_fit(&self, mut branch: Branch, kernels: &Kernels, most: Option<u64>) -> bool {
        if !self.searches_memory() {
            return true;
        }
        let few = Limits { sweeps: SWEEPS_OF_WHAT_FITS, ..self.limits.clone() };
        self.settle_in(&mut branch, kernels, most, &few);
        branch.bound().is_some_and(|least| most.is_none_or(|most| least <= most))
    }

    /// Searches what seems best of a branch. Where that fills the memory so far that there is no
    /// room for what ops hold, what seems best of those of its plans is searched that leave more
    /// free. Returns the branch, less what is known then to have no room. `bound` is what no plan
    /// takes less than that is still to be looked at.
    fn dive_within_memory(
        &mut self,
        branch: Branch,
        explored: &mut Explored,
        bound: u64,
    ) -> Result<Branch, LowerError> {
        if self.dive(branch.clone(), explored)? || self.scopes.is_some() {
            return Ok(branch);
        }
        // Once is enough: branches of a branch have the memory that it has.
        let Some(capacity) = self.capacity.filter(|_| !explored.leaves_room) else {
            return Ok(branch);
        };
        explored.leaves_room = true;
        let least = self.least_activations(explored, capacity)?;
        // What activations take at least no price says.
        self.best.root_bound.get_or_insert(bound);
        let branch = branch.keeping_at_most(capacity.saturating_sub(least));
        for times in LEFT_FREE {
            let free = self.activations.max(least).saturating_mul(times);
            let most = capacity.saturating_sub(free);
            // What leaves more free than a plan that was found, or than plans of which none is fast
            // enough, is hardly faster.
            let may_help = explored.kept_in_vain.is_none_or(|kept| most < kept);
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
        let found = !explored.in_vain.contains(&end) && self.search_near(&branch, explored)?;
        explored.kept_in_vain = kept.filter(|_| !found);
        if !found {
            explored.in_vain.insert(end);
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

    /// What plans may take at most to be wanted, in picoseconds.
    pub(super) fn most_wanted(&self) -> Option<u64> {
        self.known().map(|time| if self.capacity.is_some() { time.saturating_sub(1) } else { time })
    }

    /// Searches the plans of a branch that take no longer than its bound and so many parts of it of
    /// [`PARTS`], or all of them. Returns whether one is better than those before.
    pub(super) fn search_branch(
        &mut self,
        branch: &Branch,
        labels: &[Layout],
        parts: Option<u64>,
        explored: &Explored,
    ) -> Result<bool, LowerError> {
        let Some(bound) = branch.bound() else { return Ok(false) };
        let most =
            parts.map_or(u64::MAX, |n| bound.saturating_add((bound / PARTS).saturating_mul(n)));
        let program = &explored.kernels.program;
        let memory = self
            .memory(program)
            .filter(|_| self.searches_memory())
            .map(|memory| branch.memory(program, &memory));
        let form = LabelledForm { kernels: &explored.kernels, labels: Some(labels) };
        let rank = |lowering: &Self| lowering.best.plan.as_ref().map(|(rank, _)| rank.clone());
        let before = rank(self);
        let priced = branch.priced();
        // Without memory the first region has the best plan, as a rule, and no guide is worth it. A
        // question is searched where prices leave it open, and these guide the search.
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
        // One plan after another left no room for all that is live at its peak: plans of smaller
        // steps are tried; in a dive only where no plan is known.
        let may_help = parts.is_none() || self.known().is_none();
        for share in SHARES {
            let helps = may_help && self.best.gave_up && !self.best.is_too_large;
            let Some(memory) = memory.as_ref().filter(|_| helps) else { break };
            let memory = memory.sparing(share);
            self.widen(form, &priced, bound, most, Some(&memory), Some(&guide))?;
        }
        let better = rank(self) != before;
        if better {
            // Questions are asked of plans of any size, so prices under which all fit answer none
            // of them.
            let is_of_any_size = self.capacity.is_none();
            self.best.whole = is_of_any_size.then(|| Arc::clone(&explored.whole));
            self.best.settled = is_of_any_size.then(|| branch.whole());
        }
        Ok(better)
    }

    /// Searches a branch whose first search ended early; memory is no constraint on it. Prices make
    /// a plan ([`Branch::rounded`]), and the branch is priced again without what is dearer than the
    /// best plan known, as long as that makes a better one. Then it is searched with a guide. Where
    /// a limit ends that search, the best plan known stays.
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
        // Several phases within memory are searched in full: a short search would leave the best
        // request unproven for the last picosecond.
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

    /// Whether searches of a branch look at the memory that plans take. Of several phases side by
    /// side what a branch stores fits together, and each is looked at by itself later.
    pub(super) fn searches_memory(&self) -> bool {
        self.capacity.is_some() && self.scopes.is_none()
    }

    /// What plans have to fit in, where they have to.
    pub(super) fn memory<'p>(&self, program: &'p Program) -> Option<DeviceMemory<'p>>
    where
        'a: 'p,
    {
        self.capacity.map(|capacity| DeviceMemory::new(program, capacity).within(self.scopes))
    }

    /// Prices a branch, without what has no room in it.
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

/// Within memory a dive looks at plans that take this part of its bound longer, and at no longer
/// ones: where what is stored leaves no room for ops, none of all that there are would fit.
const A_DIVE_GOES_UP_BY: u64 = 1;
const PARTS: u64 = 64;

/// Sweeps after each step of a dive: enough to tell what seems best next.
const SWEEPS_OF_A_DIVE: usize = 8;

/// Where deciding some places at once lifts the bound by more than this part of it, fewer are
/// decided.
const LIFTED_AT_ONCE: u64 = 1 << 12;

/// Sweeps before a branch is searched that show whether it has anything that fits.
const SWEEPS_OF_WHAT_FITS: usize = 4;

/// A dive prices what takes this part of its bound longer at most, as long as that has a plan.
const A_DIVE_RISES_BY: u64 = 32;

/// A plan that is above its bound by no more than this part of it is not worth a long search.
const NEAR: u64 = 1_000_000;

/// Searches within memory may expand together what so many may without.
const SEARCHES_WITHIN_MEMORY: usize = 8;

/// In any case each of them may expand this part of what one may.
const A_FEW_OF_EXPANSIONS: usize = 64;

/// So many times what the activations of the fastest plan take is left free, one after another,
/// where plans that fill the memory leave no room for their own.
const LEFT_FREE: [u64; 6] = [1, 2, 3, 4, 6, 8];

/// The parts of what is free that an op may hold, where plans that may hold all of it leave no
/// room.
const SHARES: [u64; 3] = [2, 4, 8];

/// Where searches have had so many e-nodes, or the branches that were priced so many strategies,
/// those that can only tie with the best plan are left out.
const MAX_TIED_NODES: usize = 20_000;

const MAX_TIED_STRATEGIES: usize = 100_000;

/// So many priced strategies, of branches and dives together, count as one of the branches that
/// there may be: a branch of a large program counts for many of a small one. A quarter of them ends
/// the search where the best plan is [near](NEAR_ENOUGH).
const STRATEGIES_OF_A_BRANCH: usize = 500;

/// A plan is near its bound where it is above it by no more than this part of it.
const NEAR_ENOUGH: u64 = 256;

/// A dive takes as long as many branches: so many are made at first, and then one each so many
/// branches.
const FIRST_DIVES: usize = 8;
const BRANCHES_A_DIVE: usize = 16;

/// The name of the limit on branches.
pub(super) const BRANCHES: &str = "branches";
