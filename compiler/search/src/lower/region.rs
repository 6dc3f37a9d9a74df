//! Searches of regions of the plan space. Each builds the e-graph of a region and finds its best
//! plan; wider regions are searched until none can have a better plan.

use std::cell::OnceCell;
use std::sync::Arc;

use shard_cost::{Hardware, collective_cost, price};
use shard_ir::{InstrKind, Layout, Liveness, Plan, Program, Value};

use super::{Lowering, lower_of};
use crate::emit::{Emitted, emit};
use crate::kernel::Kernels;
use crate::memory::{DeviceMemory, needed};
use crate::relax::{Branch, Guide, Priced, Region};
use crate::search::{FoundPlans, MANY_ARRIVALS, Search, Solution, Sought};
use crate::space::Space;
use crate::table::Tables;
use crate::{Limits, LowerError, SearchLimit};

/// What plans are compared by, from the first field to the last.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    /// In picoseconds.
    pub(super) time: u64,
    /// Whether the plan is of another form than the one written.
    rewritten: bool,
    /// Elements touched by local ops.
    elements: u64,
    /// Bytes live at the peak.
    peak: u64,
    /// Moves, an all-reduce counting as two.
    steps: u64,
    /// The bytes of each move, from the largest down.
    moves: Vec<u64>,
    /// The order in the text.
    order: u64,
}

/// By how much the slack of a region grows where memory binds. The best plan that fits may be far
/// from the bound there, and where none fits all regions up to the whole space are searched.
const WIDER_WITHIN_MEMORY: u64 = 64;

/// A short search may expand this part of the states of a full one.
const SHORT: usize = 64;

/// A search for plans that are hardly better than the best one known may expand this part.
const NOT_LONG: usize = 16;

/// A dive may expand this part of the states of a full search.
const A_DIVE: usize = 8;

/// A dive may expand this part where a plan is known.
const ANOTHER_DIVE: usize = 64;

/// A dive of a search that is steered may expand this part: there are many such dives, and little
/// is open in each.
const A_STEERED_DIVE: usize = 512;

/// A first search may expand so many states for each value of the program, where that is more than
/// its part: a large program takes a few states a value even where nothing is in doubt.
const STATES_A_VALUE: usize = 8;

/// How often a dive tries a region between one that has no plan and one that has too many e-nodes.
const NARROWER: usize = 3;

/// Such a region is this part of the way from the one to the other.
const NARROWER_BY: u64 = 8;

/// A dive may have this part of the e-nodes of a full search. Where the region just above its bound
/// has more, another dive, which leaves more memory free, finds a plan sooner.
const NODES_OF_A_DIVE: usize = 32;

/// A dive may have so many e-nodes for each value of the program, where that is more.
const NODES_A_VALUE: usize = 200;

/// A dive ends with a plan that exceeds its bound by no more than this part of the bound. To show
/// that the branch has no better plan would take a much larger region.
const NEAR_OF_A_DIVE: u64 = 512;

/// What is looked for in a region, and with which limits.
pub(super) struct Aim<'g> {
    /// The plans that are looked for. Those that take longer are in a wider region, unless this is
    /// the last.
    pub(super) sought: Sought<'g>,
    /// The region has every plan that takes no longer; `None` where it is the whole space.
    pub(super) within: Option<u64>,
    /// No wider region is searched.
    pub(super) is_last: bool,
    /// States that may be expanded.
    pub(super) expansions: usize,
    /// E-nodes that the region may have.
    pub(super) nodes: usize,
    /// Whether it is an error to expand all these states; the plan that the search ends with is
    /// kept.
    pub(super) is_short: bool,
    /// Whether, within memory, values are moved by other trees of moves than the cheapest, too.
    /// With the cheapest alone plans are found sooner, and none of them is proven the best.
    pub(super) all_trees: bool,
}

impl Aim<'_> {
    /// A lower bound on all plans, given one on those of the region. Of plans outside of the region
    /// it is known only that they take longer than `within`.
    fn surely(&self, least: u64) -> u64 {
        self.within.map_or(least, |most| least.min(most.saturating_add(1)))
    }
}

/// A form of a program, with the layouts of its labels.
#[derive(Clone, Copy)]
pub(crate) struct LabelledForm<'f> {
    pub(crate) kernels: &'f Arc<Kernels>,
    /// The layout of each label; `None` where the search chooses them.
    pub(crate) labels: Option<&'f [Layout]>,
}

/// How long a branch is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effort {
    /// Shortly and without a guide. If this search ends at its limit, another one is made.
    First,
    /// Shortly. If this search ends at its limit, another one is made.
    Short,
    /// Not for long, since the best plan known is hardly above the bound.
    Near,
    /// As far as the limits go.
    Full,
}

/// What the prices of a branch say of plans that are decided in part, worked out when it is first
/// asked for.
pub(super) struct LazyGuide<'b> {
    branch: &'b Branch,
    effort: Effort,
    guide: OnceCell<Guide>,
}

impl<'b> LazyGuide<'b> {
    pub(super) fn of(branch: &'b Branch, effort: Effort) -> LazyGuide<'b> {
        LazyGuide { branch, effort, guide: OnceCell::new() }
    }

    fn get(&self) -> &Guide {
        self.guide.get_or_init(|| self.branch.guide())
    }
}

impl Lowering<'_> {
    /// Notes that the last search may have missed plans, where all plans in question take `bound`
    /// or more.
    pub(super) fn note_missed(&mut self, bound: u64) {
        if let Some(missed) = self.best.passed_over.take() {
            self.best.missed = lower_of(self.best.missed, missed.max(bound));
        }
    }

    /// Searches the region that can have a plan as cheap as `bound`, and wider ones, until the best
    /// plan is surely inside, or all plans are that take up to `farthest` picoseconds.
    pub(super) fn widen(
        &mut self,
        form: LabelledForm<'_>,
        priced: &Priced,
        bound: u64,
        farthest: u64,
        memory: Option<&DeviceMemory<'_>>,
        lazy: Option<&LazyGuide<'_>>,
    ) -> Result<(), LowerError> {
        let values = form.kernels.program.values.len();
        let (mut most, mut searched, mut narrower) = (bound, bound, NARROWER);
        let mut slack = (bound >> 18).max(1);
        let is_dive = farthest < u64::MAX;
        let near = bound.saturating_add(slack.max(bound / NEAR_OF_A_DIVE));
        // Plans that take longer than this are not wanted.
        let wanted = self.below.map(|below| below - 1).into_iter().chain(self.most_wanted());
        let wanted = wanted.fold(farthest, u64::min);
        // The region up to this time has all that prices allow. A plan of it may still take longer,
        // if it has several things of which each is dear.
        let all = priced.dearest();
        let end = all.min(wanted);
        // The plan of a dive need not be proven the best.
        let mut all_trees = !is_dive;
        let mut guide = lazy.filter(|lazy| lazy.effort != Effort::First).map(LazyGuide::get);
        loop {
            self.limits.stop.check()?;
            let region = Some(priced.region(most));
            let wider = most.saturating_add(slack);
            // Plans that take longer are looked for in a wider region, which may have better ones.
            // Without a guide the search cannot tell before its end that only such plans are left.
            let farthest = if most >= all { wanted } else { wider.min(end) };
            let upto = guide.is_some().then_some(farthest);
            let effort = lazy.map_or(Effort::Full, |lazy| lazy.effort);
            let is_short = matches!(effort, Effort::First | Effort::Short);
            let expansions = self.expansions_of(effort, is_dive, values);
            let nodes = self.nodes_of(is_dive, values);
            let within = Some(most);
            let is_last = wider >= end;
            let sought = Sought { least: bound, upto, guide };
            let mut aim = Aim { sought, within, is_last, expansions, nodes, is_short, all_trees };
            let found = self.search(form, region, memory, &mut aim)?;
            if !self.best.is_too_large {
                searched = most;
            }
            all_trees = aim.all_trees;
            guide = lazy.map(LazyGuide::get);
            most = match found {
                // Every plan that takes no longer was in the region, so this one is the best.
                Some((time, _)) if time <= most || (is_dive && time <= near) => return Ok(()),
                // A search of a wider region would end at the same limit.
                Some((_, Some(SearchLimit::Expansions)))
                    if is_dive || (lazy.is_some() && !self.searches_memory()) =>
                {
                    return Ok(());
                }
                _ if most >= end => {
                    self.note_missed(bound);
                    return Ok(());
                }
                // The region is not widened at once to the time of a plan far from the bound.
                Some((time, _)) => time.min(wider).min(end),
                // A region between one without a plan that fits and one that is too large may have
                // a plan that fits.
                None if is_dive && self.best.is_too_large && most > searched && narrower > 0 => {
                    narrower -= 1;
                    slack = ((most - searched) / NARROWER_BY).max(1);
                    most = searched.saturating_add(slack);
                    continue;
                }
                // One plan after another does not fit: the search is given up, and its bound stays
                // open.
                None if self.best.gave_up => {
                    self.note_missed(bound);
                    return Ok(());
                }
                None => wider.min(end),
            };
            slack = slack.saturating_mul(if memory.is_some() { WIDER_WITHIN_MEMORY } else { 8 });
        }
    }

    /// How many e-nodes a search of a program with this number of values may have.
    fn nodes_of(&self, is_dive: bool, values: usize) -> usize {
        let few = (self.limits.nodes / NODES_OF_A_DIVE).max(NODES_A_VALUE * values);
        if is_dive { few.min(self.limits.nodes) } else { self.limits.nodes }
    }

    /// How many states a search of a program with this number of values may expand. The plan of a
    /// dive is for comparison, and not worth many.
    fn expansions_of(&self, effort: Effort, is_dive: bool, values: usize) -> usize {
        let part = match effort {
            Effort::First | Effort::Short => SHORT,
            Effort::Near => NOT_LONG,
            Effort::Full if is_dive && self.steers => A_STEERED_DIVE,
            Effort::Full if is_dive && self.known().is_some() => ANOTHER_DIVE,
            Effort::Full if is_dive => A_DIVE,
            Effort::Full => 1,
        };
        let for_all = match effort {
            Effort::First => STATES_A_VALUE * values,
            Effort::Short | Effort::Near | Effort::Full => 0,
        };
        (self.limits.expansions / part).max(for_all).min(self.limits.expansions)
    }

    /// Searches a region, or the whole space. Returns the time of the best plan that was found in
    /// it, and the limit that ended the search, if one did. Where a limit ended a search over all
    /// trees of moves, its bound stays open, and a search over the cheapest trees follows: there
    /// are fewer such plans, so that one of them may be found. `aim` then says so for wider
    /// regions.
    pub(super) fn search(
        &mut self,
        form: LabelledForm<'_>,
        region: Option<Region>,
        memory: Option<&DeviceMemory<'_>>,
        aim: &mut Aim<'_>,
    ) -> Result<Option<(u64, Option<SearchLimit>)>, LowerError> {
        let limits = Limits { nodes: aim.nodes, ..self.limits.clone() };
        let space = match Space::saturate(Arc::clone(form.kernels), self.hardware, region, &limits)
        {
            // Other branches may be smaller, and plans that fit may be known.
            Err(LowerError::Limit { .. }) if self.capacity.is_some() => {
                (self.best.passed_over, self.best.gave_up) = (Some(aim.sought.least), true);
                self.best.is_too_large = true;
                return Ok(None);
            }
            space => space?,
        };
        self.best.is_too_large = false;
        let mut tables = Tables::new(&space, self.hardware)?;
        let memory = memory.map(|memory| memory.prune(form.kernels, &mut tables));
        let memory = memory.as_ref();
        let best = &mut self.best;
        best.stats.classes += space.graph.number_of_classes();
        best.stats.nodes += space.graph.total_number_of_nodes();
        let mut search = Search::new(&space, &tables, form.labels, self.strict, memory, aim.sought);
        let found = self.search_in(&mut search, form, &limits, aim)?;
        let is_limited =
            self.best.gave_up || matches!(found, Some((_, Some(SearchLimit::Expansions))));
        if !(is_limited && aim.all_trees && memory.is_some()) {
            return Ok(found);
        }
        self.note_missed(aim.sought.least);
        aim.all_trees = false;
        self.search_in(&mut search, form, &limits, aim)
    }

    /// Runs a search that has been made for a region.
    fn search_in(
        &mut self,
        search: &mut Search<'_>,
        form: LabelledForm<'_>,
        limits: &Limits,
        aim: &Aim<'_>,
    ) -> Result<Option<(u64, Option<SearchLimit>)>, LowerError> {
        let tables = search.tables();
        search.all_trees = aim.all_trees;
        let expansions = aim.expansions.min(self.expansions_left());
        let limits = Limits { expansions, ..limits.clone() };
        let found = search.run(&limits, 1);
        let best = &mut self.best;
        best.stats.expansions += search.expansions;
        // All plans that are left take longer than is wanted here: a wider region has them, if one
        // is to follow. In the last region this ends the search, unless plans may have been missed.
        let is_done =
            |search: &Search<'_>| search.beyond && (search.missed.is_none() || !aim.is_last);
        if is_done(search) {
            (best.passed_over, best.gave_up) = (None, false);
            return Ok(None);
        }
        if let Ok(found) = &found
            && aim.is_short
            && found.stopped_by == Some(SearchLimit::Expansions)
        {
            self.take(form, tables, found)?;
            return Err(LowerError::Limit {
                limit: SearchLimit::Expansions,
                count: aim.expansions,
            });
        }
        let first = search.is_within_memory().then(|| found.as_ref().ok().cloned()).flatten();
        let found = self.with_many_arrivals(search, found, &limits);
        if let (Some(first), Err(LowerError::Limit { .. })) = (&first, &found) {
            // The bound stays open, and the plan of the first run is kept.
            self.take(form, tables, first)?;
        }
        if is_done(search) {
            (self.best.passed_over, self.best.gave_up) = (None, false);
            return Ok(None);
        }
        let missed = search.missed;
        self.note_passed_over(aim, missed, &found);
        let found = match found {
            Ok(found) => found,
            Err(unreachable @ LowerError::Unreachable { .. }) => {
                self.best.failure = Some((unreachable, Arc::clone(form.kernels)));
                return Ok(None);
            }
            Err(_) if self.best.gave_up => return Ok(None),
            Err(other) => return Err(other),
        };
        self.note_bounds(aim, &found, form.labels.is_none());
        let time = self.take(form, tables, &found)?;
        Ok(Some((time, found.stopped_by)))
    }

    /// What a run has found. The run is made again, with more arrivals at each state, where
    /// arrivals that lead to plans that fit may have been left out for one that does not.
    fn with_many_arrivals(
        &mut self,
        search: &mut Search<'_>,
        found: Result<FoundPlans, LowerError>,
        limits: &Limits,
    ) -> Result<FoundPlans, LowerError> {
        let passed_over = match &found {
            Ok(found) => found.stopped_by == Some(SearchLimit::Memory),
            Err(
                LowerError::Unreachable { .. }
                | LowerError::Limit { limit: SearchLimit::Memory, .. },
            ) => search.missed.is_some(),
            Err(_) => false,
        };
        if !passed_over || !search.passed_over {
            return found;
        }
        let known = search.missed;
        let again = search.run(limits, MANY_ARRIVALS);
        self.best.stats.expansions += search.expansions;
        match again {
            Err(LowerError::Limit { limit, .. }) if limit != SearchLimit::Memory => {
                search.missed = known;
                found
            }
            again => again,
        }
    }

    /// Notes whether a search may have missed plans, and whether it gave up.
    fn note_passed_over(
        &mut self,
        aim: &Aim<'_>,
        missed: Option<u64>,
        found: &Result<FoundPlans, LowerError>,
    ) {
        let is_limited = matches!(found, Err(LowerError::Limit { .. }));
        // Where memory is a constraint the bound stays open, and other plans may still be found.
        let stays_open = !aim.is_short && self.capacity.is_some() && is_limited;
        self.best.passed_over =
            missed.map(|least| aim.surely(least)).or(stays_open.then_some(aim.sought.least));
        self.best.gave_up = self.best.passed_over.is_some() && is_limited;
    }

    /// Notes what a search has shown that any plan takes: where it searched all layouts of the
    /// labels, and where it ended early.
    fn note_bounds(&mut self, aim: &Aim<'_>, found: &FoundPlans, all_labels: bool) {
        let best = &mut self.best;
        if all_labels {
            best.root_bound = lower_of(best.root_bound, found.root_bound.0);
        }
        if let Some(limit) = found.stopped_by {
            best.leave(aim.surely(found.lower_bound.0), limit);
        }
        best.ties_cut |= found.ties_cut;
    }

    /// Keeps the best of the plans that were found, if none before is better. Returns its time.
    fn take(
        &mut self,
        LabelledForm { kernels, labels }: LabelledForm<'_>,
        tables: &Tables,
        found: &FoundPlans,
    ) -> Result<u64, LowerError> {
        let best = &mut self.best;
        let (rank, plan) = best_tie(kernels, tables, found, best.rewritten, self.hardware)?;
        let time = rank.time;
        if best.plan.as_ref().is_none_or(|(known, _)| rank < *known) {
            best.plan = Some((rank, plan));
            best.of =
                Some((Arc::clone(kernels), labels.map(<[Layout]>::to_vec).unwrap_or_default()));
        }
        Ok(time)
    }
}

/// Of the plans that tie in time and elements touched, the one that the tie rule prefers. A plan
/// that fits in memory comes before one that does not.
fn best_tie(
    kernels: &Kernels,
    tables: &Tables,
    found: &FoundPlans,
    rewritten: bool,
    hardware: &Hardware,
) -> Result<(Rank, Emitted), LowerError> {
    let mut best: Option<(bool, Rank, Emitted)> = None;
    for solution in &found.solutions {
        let plan = emit(kernels, tables, solution)?;
        let mut rank = rank(solution, &plan.plan, rewritten, hardware);
        // A plan that is not the best may take less than the search counted, since ops that the
        // search took for two kernels may be one.
        if found.stopped_by.is_some() && is_priced_alone(&kernels.program) {
            rank.time = rank.time.min(price(&plan.plan, hardware).totals.serial_time.0);
        }
        let too_large = needed(&plan.plan) > hardware.hbm_bytes;
        if best.as_ref().is_none_or(|(large, known, _)| (too_large, &rank) < (*large, known)) {
            best = Some((too_large, rank, plan));
        }
    }
    best.map(|(_, rank, plan)| (rank, plan))
        .ok_or_else(|| LowerError::Internal("the search found nothing and said nothing".into()))
}

/// Whether the time of a plan is that of its steps, each as often as its block is applied. It is
/// not where the steps of several phases stand side by side.
fn is_priced_alone(program: &Program) -> bool {
    let repeat = |value: &Value| value.fold.map_or(1, |fold| program.folds[fold.index()].repeat);
    program.values.iter().all(|value| value.times == repeat(value))
}

fn rank(solution: &Solution, plan: &Plan, rewritten: bool, hardware: &Hardware) -> Rank {
    let cost = solution.cost;
    let mut moves: Vec<u64> = plan
        .ids()
        .filter_map(|id| {
            let instr = plan.instruction(id);
            let (collective, moved, from) = match &instr.kind {
                InstrKind::Move(collective) => {
                    let moved = *instr.operands.first()?;
                    (*collective, moved, plan.instruction(moved).layout)
                }
                InstrKind::CollectiveEinsum(_) => plan.fused_collective(id)?,
                InstrKind::Parameter(_) | InstrKind::Constant(_) | InstrKind::Op(_) => return None,
            };
            let moved = plan.instruction(moved);
            let sizes = plan.sizes(&moved.dims);
            Some(
                collective_cost(hardware, &plan.mesh, &collective, from, &sizes, moved.dtype)
                    .wire_bytes
                    .0,
            )
        })
        .collect();
    moves.sort_unstable_by(|a, b| b.cmp(a));
    Rank {
        time: cost.time,
        rewritten,
        elements: cost.elements,
        peak: Liveness::of(plan).peak_bytes(),
        steps: cost.steps,
        moves,
        order: cost.order,
    }
}
