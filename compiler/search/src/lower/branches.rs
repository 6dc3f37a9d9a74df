//! Branch and bound: forms and branches of them, the most promising first, each priced, divided or
//! searched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use shard_ir::{Layout, Program};

use super::{Lowering, within_limits};
use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::Form;
use crate::memory::Room;
use crate::relax::{Branch, Fork, Wanted, Whole, all_plans};
use crate::space::maxima;
use crate::{LowerError, Stats};

/// A form that has prices.
struct Explored {
    kernels: Arc<Kernels>,
    /// All that its plans are made of.
    whole: Arc<Whole>,
    /// The ways of filling the memory that were tried.
    dived: BTreeSet<Vec<u32>>,
    /// Whether what seems best of it was searched.
    has_dived: bool,
}

/// Plans of a form that are still to be looked at.
struct Pending {
    branch: Branch,
    form: usize,
    /// Whether it has prices of its own, or those of the branch that it is of.
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
    /// Searches some forms, given what no plan of each takes less than, in picoseconds.
    pub(super) fn explore_forms(&mut self, forms: Vec<(u64, Form)>) -> Result<(), LowerError> {
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
        let mut branches: Vec<Option<Pending>> = Vec::new();
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
                    let (branch, whole) = self.all_plans_of(&kernels, false)?;
                    explored.insert(
                        form,
                        Explored { kernels, whole, dived: BTreeSet::new(), has_dived: false },
                    );
                    vec![Pending { branch, form, settled: true }]
                }
                Turn::Branch => {
                    if branches.len() > self.limits.branches
                        || self.best.priced > MAX_PRICED
                        || self.has_searched_long()
                    {
                        self.best.stopped_by = self.best.stopped_by.or(Some(BRANCHES));
                        self.best.open_bound =
                            Some(self.best.open_bound.map_or(bound, |b| b.min(bound)));
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
        Ok(())
    }

    /// Whether searches within memory have taken together what one without may take six times, or a
    /// quarter of its e-nodes.
    fn has_searched_long(&self) -> bool {
        let Stats { expansions, nodes, .. } = self.best.stats;
        self.capacity.is_some()
            && (expansions > 6 * self.limits.expansions || nodes > self.limits.nodes / 4)
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
            room: self.room(program),
            below: self.below.filter(|_| !apart),
            apart,
            like: self.like.filter(|_| !apart).and_then(|like| like.like(program)),
        };
        all_plans(kernels, self.hardware, maxima(program), (self.strict, self.limits), wanted)
    }

    /// Prices a branch, searches it, or divides it; returns what is still to be looked at.
    fn look_at(
        &mut self,
        pending: Pending,
        explored: &mut Explored,
        bound: u64,
    ) -> Result<Vec<Pending>, LowerError> {
        let Pending { mut branch, form, settled } = pending;
        let most = self.most_wanted();
        if !settled {
            self.best.branches += 1;
            self.best.priced += branch.strategies();
            self.settle(&mut branch, &explored.kernels, most);
            return Ok(vec![Pending { branch, form, settled: true }]);
        }
        // One plan of it tells what in all of it is too dear.
        let most_dives = FIRST_DIVES + self.best.branches / BRANCHES_A_DIVE;
        let fork = match branch.fork(most, &mut explored.dived, most_dives) {
            Fork::Branches(_) if self.known().is_none() && !explored.has_dived => Fork::Dive,
            fork => fork,
        };
        match fork {
            Fork::Search(labels) => {
                self.best.root_bound.get_or_insert(bound);
                self.search_branch(&branch, labels, explored)?;
                Ok(Vec::new())
            }
            Fork::Dive => {
                explored.has_dived = true;
                // What a dive left out is in the branch, which is still to be looked at.
                let known = (self.best.stopped_by, self.best.open_bound, self.best.missed);
                self.dive(branch.clone(), explored)?;
                (self.best.stopped_by, self.best.open_bound, self.best.missed) = known;
                Ok(vec![Pending { branch, form, settled: self.most_wanted() == most }])
            }
            Fork::Branches(branches) => Ok(branches
                .into_iter()
                .map(|branch| Pending { branch, form, settled: false })
                .collect()),
        }
    }

    /// Searches what seems best of a branch: one layout of each label, one way of filling the
    /// memory.
    fn dive(&mut self, mut branch: Branch, explored: &Explored) -> Result<(), LowerError> {
        let most = self.most_wanted();
        while let Some(likely) = branch.toward_the_best() {
            branch = likely;
            self.settle(&mut branch, &explored.kernels, most);
            if branch.bound().is_none_or(|least| most.is_some_and(|most| most < least)) {
                return Ok(());
            }
        }
        let labels = branch.labels();
        self.search_branch(&branch, labels, explored)
    }

    /// What plans may take at most to be wanted, in picoseconds.
    pub(super) fn most_wanted(&self) -> Option<u64> {
        self.known().map(|time| if self.capacity.is_some() { time.saturating_sub(1) } else { time })
    }

    fn search_branch(
        &mut self,
        branch: &Branch,
        labels: Vec<Layout>,
        explored: &Explored,
    ) -> Result<(), LowerError> {
        let Some(bound) = branch.bound() else { return Ok(()) };
        let program = &explored.kernels.program;
        // Of several phases each is looked at by itself, whether there is room for its activations.
        let room = self
            .room(program)
            .filter(|_| self.scopes.is_none())
            .map(|room| branch.room(program, &room));
        let priced = branch.priced();
        let mut better = self.widen(&explored.kernels, &labels, (&priced, bound), room.as_ref())?;
        // One plan after another left no room for all that is live at its peak: plans of smaller
        // steps are tried.
        for share in SHARES {
            let Some(room) = room.as_ref().filter(|_| self.best.gave_up) else { break };
            better |= self.widen(
                &explored.kernels,
                &labels,
                (&priced, bound),
                Some(&room.sparing(share)),
            )?;
        }
        if better {
            // Questions are asked of plans of any size, so prices under which all fit answer none
            // of them.
            self.best.whole = self.capacity.is_none().then(|| Arc::clone(&explored.whole));
        }
        Ok(())
    }

    /// What plans have to fit in, where they have to.
    pub(super) fn room<'p>(&self, program: &'p Program) -> Option<Room<'p>>
    where
        'a: 'p,
    {
        self.capacity.map(|capacity| Room::new(program, capacity).within(self.scopes))
    }

    /// Prices a branch, without what has no room in it.
    fn settle(&self, branch: &mut Branch, kernels: &Kernels, most: Option<u64>) {
        if let Some(room) = self.room(&kernels.program) {
            branch.fit(kernels, &room);
        }
        branch.settle(self.limits, most);
    }
}

/// The parts of what is free that an op may hold, where plans that may hold all of it leave no
/// room.
const SHARES: [u64; 3] = [2, 4, 8];

/// Where searches have had so many e-nodes, or the branches that were priced so many strategies,
/// those that can only tie with the best plan are left out.
const MAX_TIED_NODES: usize = 20_000;

const MAX_TIED_STRATEGIES: usize = 100_000;

/// So many strategies are priced in all branches together: a branch of a large program counts for
/// many of a small one.
const MAX_PRICED: usize = 10_000_000;

/// A dive takes as long as many branches: so many are made at first, and then one each so many
/// branches.
const FIRST_DIVES: usize = 8;
const BRANCHES_A_DIVE: usize = 16;

/// The name of the limit on branches.
const BRANCHES: &str = "branches";
