//! Program in, plan out: every form of the program and every layout of the labels bounded, the promising ones searched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{Def, InstrId, InstrKind, Layout, Liveness, MeshShape, Picoseconds, Plan, Program};

use crate::demand::Forced;
use crate::emit::{Emitted, MoveSite, emit};
use crate::kernel::Kernels;
use crate::labels::check_labels;
use crate::logical::{Choices, Cut, Form, Saturated};
use crate::many_forms::narrowed;
use crate::memory::{Room, Scopes, needed};
use crate::relax::apart::Ground;
use crate::relax::{Branch, Fork, Priced, Question, Region, Wanted, Whole, all_plans};
use crate::search::{Found, Search, Solution, TOO_LARGE};
use crate::space::{Space, maxima};
use crate::table::Tables;
use crate::{Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, Stats, Status, TIME_LIMIT};

/// What a lowered program remembers, for questions about it: the program whose plan it is (one form of it),
/// the layouts of its labels, and what its moves are moves of.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) kernels: Arc<Kernels>,
    pub(crate) labels: Vec<Layout>,
    pub(crate) moves: Vec<MoveSite>,
    /// All that its plans are made of, where the search priced it.
    pub(crate) whole: Option<Arc<Whole>>,
    /// Nothing is left out of that: not what does not fit, nor what was forbidden.
    complete: bool,
}

impl Memory {
    /// What the plans of a program are made of that differs from the one lowered in layout patterns alone.
    fn like(&self, program: &Program) -> Option<&Whole> {
        let same = |a: &Def, b: &Def| match (a, b) {
            (Def::Parameter { kind: a, .. }, Def::Parameter { kind: b, .. }) => a == b,
            (Def::Pin { operand: a, .. }, Def::Pin { operand: b, .. }) => a == b,
            (a, b) => a == b,
        };
        let known = self.kernels.program.as_ref();
        let values = known.values.iter().zip(&program.values);
        let alike = known.values.len() == program.values.len()
            && values
                .into_iter()
                .all(|(a, b)| a.dims == b.dims && a.dtype == b.dtype && a.times == b.times && same(&a.def, &b.def))
            && known.outputs.iter().map(|o| o.value).eq(program.outputs.iter().map(|o| o.value))
            && maxima(known) == maxima(program);
        self.whole.as_deref().filter(|_| self.complete && alike)
    }
}

pub(crate) fn lower(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Lowered, LowerError> {
    let strict = options.strict || program.strict;
    let lowering = |at_once, capacity: Option<u64>| Lowering {
        strict: at_once,
        all_written: strict,
        whole_space: options.whole_space,
        forced: options.forced.as_ref(),
        loops: options.fuse && !(options.strict || program.strict),
        capacity,
        ..Lowering::new(hardware, &options.limits)
    };
    if options.forced.is_some() {
        return lowering(strict, None).run(program, true);
    }
    // What a strict layer lacks is said of the program as it is written, whether or not moves are free.
    let fastest = match lowering(strict, None).run(program, strict) {
        Err(LowerError::Unreachable { .. }) if strict => {
            let plan = lowering(false, None).run(program, true)?.plan;
            return Err(LowerError::Strict { inserted: inserted_moves(&plan), plan: Box::new(plan) });
        }
        other => other?,
    };
    let capacity = hardware.hbm_bytes;
    if options.any_size || needed(&fastest.plan) <= capacity {
        // The fastest of all plans is the fastest of those that fit, if it does.
        return Ok(fastest);
    }
    let least = Room::new(program, capacity).least();
    let none = |proven| LowerError::NoPlanFits { plan: Box::new(fastest.plan.clone()), least, proven };
    if least > capacity {
        return Err(none(true));
    }
    let like = Some(&fastest.memory);
    match (Lowering { like, ..lowering(strict, Some(capacity)) }).run(program, strict) {
        // Nothing was passed over: what was left out of the space has no room in any plan.
        Err(LowerError::Unreachable { .. }) => Err(none(true)),
        Err(LowerError::Limit { .. }) => Err(none(false)),
        other => other,
    }
}

/// The best plan of phases side by side whose weights and caches there is room for in each of them; whether there is for
/// activations too is not asked.
pub(crate) fn lower_phases(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    scopes: &Scopes,
) -> Result<Lowered, LowerError> {
    let capacity = Some(hardware.hbm_bytes);
    let lowering =
        Lowering { loops: options.fuse, capacity, scopes: Some(scopes), ..Lowering::new(hardware, &options.limits) };
    lowering.run(program, false)
}

/// The best plan of a program if it takes less time than `below`, in picoseconds; `like` is what is known of a program that
/// may differ in layout patterns alone.
pub(crate) fn lower_below(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
    below: u64,
    like: &Memory,
) -> Result<Option<Lowered>, LowerError> {
    let found = if options.strict || program.strict || options.forced.is_some() || options.whole_space {
        lower(program, hardware, options)?
    } else {
        let lowering = Lowering {
            loops: options.fuse,
            below: Some(below),
            like: Some(like),
            ..Lowering::new(hardware, &options.limits)
        };
        match lowering.run(program, false) {
            Err(LowerError::Unreachable { .. }) => return Ok(None),
            Err(other) => return Err(other),
            Ok(found) if options.any_size || needed(&found.plan) <= hardware.hbm_bytes => found,
            Ok(_) => lower(program, hardware, options)?,
        }
    };
    Ok((found.optimality.cost.0 < below).then_some(found))
}

/// Whether the values of a program have few enough layouts for a search.
pub(crate) fn within_limits(program: &Program, limits: &Limits) -> Result<(), LowerError> {
    let (sums, maxima) = (program.mesh.all_axes(), maxima(program));
    let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
    let mut all = 0usize;
    for value in &program.values {
        let sizes = program.sizes(&value.dims);
        let shape = MeshShape { mesh: &program.mesh, sizes: &sizes };
        let count = match known.get(&sizes) {
            Some(count) => *count,
            None => shape.layouts_within(sums, maxima, limits.layouts).map_or(usize::MAX, |l| l.len()),
        };
        known.insert(sizes, count);
        all = all.saturating_add(count);
        if all > limits.layouts {
            return Err(LowerError::Limit { limit: "layouts", count: limits.layouts });
        }
    }
    Ok(())
}

/// The moves of a plan that no `reshard` asks for.
fn inserted_moves(plan: &Plan) -> Vec<InstrId> {
    let inserted = |id: &InstrId| {
        let instr = plan.instruction(*id);
        matches!(instr.kind, InstrKind::Move(_)) && !instr.origin.written
    };
    plan.ids().filter(inserted).collect()
}

/// What plans are compared by: time, whether the program was rewritten, elements touched, bytes live at the peak, steps,
/// the bytes of each move from the largest down, and the order in the text.
type Rank = (u64, bool, u64, u64, u64, Vec<u64>, u64);

pub(crate) struct Lowering<'a> {
    hardware: &'a Hardware,
    limits: &'a Limits,
    /// Whether no move may stand where none is written.
    strict: bool,
    /// Whether each collective has to be written in the end, though moves may be free in this search.
    all_written: bool,
    whole_space: bool,
    forced: Option<&'a Forced>,
    /// Whether einsums may do a collective in their loops.
    loops: bool,
    /// The bytes of a device, in which every plan must fit; `None` where plans of any size will do.
    capacity: Option<u64>,
    /// The phases that the program is of, where it is several, and what each has room for.
    scopes: Option<&'a Scopes>,
    /// Only plans that take less time are wanted, in picoseconds.
    below: Option<u64>,
    /// What is known of a program that is nearly this one.
    like: Option<&'a Memory>,
    best: Best,
}

/// The best plan so far, and what is known of it.
#[derive(Default)]
struct Best {
    plan: Option<(Rank, Emitted)>,
    /// The program and the labels of that plan.
    of: Option<(Arc<Kernels>, Vec<Layout>)>,
    /// What the prices of that program are on.
    whole: Option<Arc<Whole>>,
    /// Why a case had no plan, and the program that it is of.
    failure: Option<(LowerError, Arc<Kernels>)>,
    /// The last search had no plan that fits, but passed over some that do not: they may have kept others, as fast or slower,
    /// from being looked at.
    passed_over: bool,
    /// The last search passed over so many that it ended.
    gave_up: bool,
    /// A bound on the plans that may have been missed so.
    missed: Option<u64>,
    /// What the prices alone say that any plan takes.
    root_bound: Option<u64>,
    /// What no plan takes less than that is still to be looked at.
    frontier: Option<u64>,
    /// What an unfinished search says that any plan takes.
    open_bound: Option<u64>,
    stopped_by: Option<&'static str>,
    /// The limit that left forms out, and a bound on what they could take.
    cut: Option<(&'static str, u64)>,
    /// Whether prices rule forms out that were not looked at one by one.
    apart: bool,
    /// Whether the form that is searched now is another than the one written.
    rewritten: bool,
    ties_cut: bool,
    /// Branches that got prices of their own, and the strategies in them.
    branches: usize,
    priced: usize,
    stats: Stats,
}

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
    /// Of a program in which anything may be done.
    fn new(hardware: &'a Hardware, limits: &'a Limits) -> Lowering<'a> {
        Lowering {
            hardware,
            limits,
            strict: false,
            all_written: false,
            whole_space: false,
            forced: None,
            loops: false,
            capacity: None,
            scopes: None,
            below: None,
            like: None,
            best: Best::default(),
        }
    }

    /// The best of the plans that are asked for; `None` where there is none. `cost` is what the best plan of all takes.
    pub(crate) fn of_question(
        hardware: &'a Hardware,
        limits: &'a Limits,
        (kernels, labels): (&Arc<Kernels>, &[Layout]),
        question: &Question<'_>,
        cost: u64,
    ) -> Result<Option<Lowered>, LowerError> {
        let Some(least) = question.least() else { return Ok(None) };
        let mut slack = (cost >> 6).max(1);
        let mut most = least.saturating_add(slack);
        loop {
            let priced = question.within(most, limits);
            limits.stop.check()?;
            // A bound above what is in question says only that nothing in question is a plan.
            if let Some(bound) = priced.bound.filter(|bound| *bound <= most) {
                let best = Best { root_bound: Some(bound), ..Best::default() };
                // What is asked about has its loops already.
                let mut lowering = Lowering { loops: kernels.loops, best, ..Lowering::new(hardware, limits) };
                lowering.widen(kernels, labels, (&priced, bound), None)?;
                match lowering.lowered(None) {
                    Err(LowerError::Unreachable { .. }) => {}
                    Err(other) => return Err(other),
                    // Every plan that takes no longer was in question: this one is the best.
                    Ok(found) if found.optimality.cost.0 <= most => return Ok(Some(found)),
                    Ok(found) => {
                        most = found.optimality.cost.0;
                        continue;
                    }
                }
            }
            if most == u64::MAX {
                return Ok(None);
            }
            // Far above the best plan nearly all is in question: then it may as well be all.
            slack = slack.saturating_mul(8);
            most = if slack > cost { u64::MAX } else { most.saturating_add(slack) };
        }
    }

    fn run(mut self, program: &Program, as_written: bool) -> Result<Lowered, LowerError> {
        match (self.explore(program, as_written), self.best.frontier) {
            (Ok(()), _) => {}
            // What is left takes no less than what came next.
            (Err(LowerError::OutOfTime), Some(next)) if self.best.plan.is_some() => {
                self.best.stopped_by = Some(TIME_LIMIT);
                self.best.open_bound = Some(self.best.open_bound.map_or(next, |open| open.min(next)));
            }
            (Err(other), _) => return Err(other),
        }
        self.lowered(Some(program))
    }

    /// Searches what may hold the best plan, most promising first, until nothing is left that can.
    fn explore(&mut self, program: &Program, as_written: bool) -> Result<(), LowerError> {
        let saturated = Saturated::new(program, as_written, self.limits);
        let as_asked = self.whole_space || self.forced.is_some();
        if let Some(choices) = saturated.choices(self.limits).filter(|_| !as_asked)
            && self.explore_choices(&saturated, &choices)?
        {
            return Ok(());
        }
        let forms = saturated.forms(self.limits);
        self.best.cut = forms.cut.map(|cut: Cut| (cut.limit, cut.first_bound(program, self.hardware)));
        if self.whole_space {
            return self.explore_without_bounds(forms.all);
        }
        let first_bound = |form: Form| (form.first_bound(self.hardware), form);
        self.explore_forms(forms.all.into_iter().map(first_bound).collect())
    }

    /// Searches the whole space of each form.
    fn explore_without_bounds(&mut self, forms: Vec<Form>) -> Result<(), LowerError> {
        for form in forms {
            self.best.rewritten = form.rewritten;
            let kernels = Arc::new(Kernels::of_form(form, self.all_written, self.loops));
            within_limits(&kernels.program, self.limits)?;
            let room = self.capacity.map(|capacity| Room::new(&kernels.program, capacity));
            self.search(&kernels, None, None, room.as_ref(), 0)?;
            self.note_missed(0);
        }
        Ok(())
    }

    /// Searches more forms than can be listed: the one that prices favour, and then those that they do not rule out. `false`
    /// where prices say nothing of all forms at once.
    fn explore_choices(&mut self, saturated: &Saturated<'_>, choices: &Choices<'_>) -> Result<bool, LowerError> {
        let maxima = maxima(choices.program());
        let ground = Ground { hardware: self.hardware, maxima, strict: self.strict, limits: self.limits };
        let kernels_of = |form| Kernels::of_form(form, self.all_written, self.loops);
        let of_part = |part| Kernels::of_program(part, self.all_written, self.loops);
        let solve = |kernels: &Kernels| {
            let program = kernels.program.as_ref();
            if within_limits(program, self.limits).is_err() {
                return Ok(None);
            }
            check_labels(program)?;
            let wanted = Wanted { room: self.room(program), apart: true, ..Wanted::default() };
            Ok(Some(all_plans(kernels, self.hardware, maxima, (self.strict, self.limits), wanted)?.0))
        };
        let Some(narrowed) = narrowed(choices, ground, (&kernels_of, &of_part), &solve)? else { return Ok(false) };
        let written = choices.written();
        let form = |picks: &[usize]| match written.as_deref() == Some(picks) {
            true => Some(saturated.written()),
            false => choices.form(picks).map(|(form, _)| form),
        };
        let limits = self.limits;
        self.best.apart = true;
        self.best.root_bound = Some(narrowed.bound);
        self.best.cut = saturated.cut().map(|limit| (limit, 0));
        let first = form(&narrowed.picks).into_iter().map(|form| (narrowed.bound, form)).collect();
        self.explore_forms(first)?;
        let (picked, left_out) = narrowed.forms(self.known().unwrap_or(u64::MAX), limits.forms);
        let others = picked.iter().filter(|(picks, _)| *picks != narrowed.picks);
        let others = others.filter_map(|(picks, bound)| Some((*bound, form(picks)?)));
        // Where the source computes something twice, the form written is none of these.
        let written = choices.merged.then(|| (narrowed.bound, saturated.written()));
        let (others, too_large): (Vec<_>, Vec<_>) =
            others.chain(written).partition(|(_, form)| within_limits(&form.program, limits).is_ok());
        if let Some(bound) = too_large.iter().map(|(bound, _)| *bound).chain(left_out).min() {
            self.best.cut = self.best.cut.or(Some(("forms of the program", bound)));
        }
        self.explore_forms(others)?;
        Ok(true)
    }

    /// Searches some forms, given what no plan of each takes less than, in picoseconds.
    fn explore_forms(&mut self, forms: Vec<(u64, Form)>) -> Result<(), LowerError> {
        let rewritten: Vec<bool> = forms.iter().map(|(_, form)| form.rewritten).collect();
        let first_bounds: Vec<u64> = forms.iter().map(|(bound, _)| *bound).collect();
        let mut forms: Vec<Option<Form>> = forms.into_iter().map(|(_, form)| Some(form)).collect();
        let (all_written, loops) = (self.all_written, self.loops);
        let of_form = |form| Arc::new(Kernels::of_form(form, all_written, loops));
        let mut take = |form: usize| forms.get_mut(form).and_then(Option::take).map(of_form);
        // The most promising first; of those that promise alike what is nearest to a plan, then what came first.
        let mut open: BinaryHeap<Reverse<(u64, Turn, usize, usize)>> =
            first_bounds.into_iter().enumerate().map(|(form, bound)| Reverse((bound, Turn::Form, form, 0))).collect();
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
                    within_limits(&kernels.program, self.limits)?;
                    check_labels(&kernels.program)?;
                    let (branch, whole) = self.all_plans_of(&kernels)?;
                    explored.insert(form, Explored { kernels, whole, dived: BTreeSet::new(), has_dived: false });
                    vec![Pending { branch, form, settled: true }]
                }
                Turn::Branch => {
                    if branches.len() > self.limits.branches || self.best.priced > MAX_PRICED {
                        self.best.stopped_by = self.best.stopped_by.or(Some(BRANCHES));
                        self.best.open_bound = Some(self.best.open_bound.map_or(bound, |b| b.min(bound)));
                        break;
                    }
                    let (Some(pending), Some(explored)) = (branches[at].take(), explored.get_mut(&form)) else {
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

    /// What the best plan so far takes, in picoseconds.
    fn known(&self) -> Option<u64> {
        self.best.plan.as_ref().map(|(rank, _)| rank.0)
    }

    /// Whether plans that take `bound` or more are not wanted any more.
    fn is_beaten(&self, bound: u64, rewritten: bool) -> bool {
        // Another form than the one written is taken only where it takes less time. Where memory binds, plans that tie may
        // be as many as there are ways of filling it.
        let few = self.best.stats.nodes < MAX_TIED_NODES && self.best.priced < MAX_TIED_STRATEGIES;
        let ties = !rewritten && self.capacity.is_none() && few;
        self.known().is_some_and(|time| time < bound || (time == bound && !ties))
            || self.below.is_some_and(|below| below <= bound)
    }

    /// All plans of a form, bounded.
    fn all_plans_of(&self, kernels: &Kernels) -> Result<(Branch, Arc<Whole>), LowerError> {
        let program = kernels.program.as_ref();
        let wanted = Wanted {
            forced: self.forced,
            room: self.room(program),
            below: self.below,
            apart: false,
            like: self.like.and_then(|like| like.like(program)),
        };
        all_plans(kernels, self.hardware, maxima(program), (self.strict, self.limits), wanted)
    }

    /// Prices a branch, searches it, or divides it; returns what is still to be looked at.
    fn look_at(&mut self, pending: Pending, explored: &mut Explored, bound: u64) -> Result<Vec<Pending>, LowerError> {
        let Pending { mut branch, form, settled } = pending;
        let most = self.most_wanted();
        if !settled {
            self.best.branches += 1;
            self.best.priced += branch.strategies();
            self.settle(&mut branch, &explored.kernels, most);
            return Ok(vec![Pending { branch, form, settled: true }]);
        }
        // One plan of it tells what in all of it is too dear.
        let fork = match branch.fork(most, &mut explored.dived) {
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
            Fork::Branches(branches) => {
                Ok(branches.into_iter().map(|branch| Pending { branch, form, settled: false }).collect())
            }
        }
    }

    /// Searches what seems best of a branch: one layout of each label, one way of filling the memory.
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
    fn most_wanted(&self) -> Option<u64> {
        self.known().map(|time| if self.capacity.is_some() { time.saturating_sub(1) } else { time })
    }

    fn search_branch(&mut self, branch: &Branch, labels: Vec<Layout>, explored: &Explored) -> Result<(), LowerError> {
        let Some(bound) = branch.bound() else { return Ok(()) };
        let program = &explored.kernels.program;
        // Of several phases each is looked at by itself, whether there is room for its activations.
        let room = self.room(program).filter(|_| self.scopes.is_none()).map(|room| branch.room(program, &room));
        let priced = branch.priced();
        let mut better = self.widen(&explored.kernels, &labels, (&priced, bound), room.as_ref())?;
        // One plan after another left no room for all that is live at its peak: plans of smaller steps are tried.
        for share in SHARES {
            let Some(room) = room.as_ref().filter(|_| self.best.gave_up) else { break };
            better |= self.widen(&explored.kernels, &labels, (&priced, bound), Some(&room.sparing(share)))?;
        }
        if better {
            // Questions are asked of plans of any size, so prices under which all fit answer none of them.
            self.best.whole = self.capacity.is_none().then(|| Arc::clone(&explored.whole));
        }
        Ok(())
    }

    /// What plans have to fit in, where they have to.
    fn room<'p>(&self, program: &'p Program) -> Option<Room<'p>>
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

    /// Notes what the last search may have missed, of plans that take `bound` or more.
    fn note_missed(&mut self, bound: u64) {
        if std::mem::take(&mut self.best.passed_over) {
            self.best.missed = Some(self.best.missed.map_or(bound, |known| known.min(bound)));
        }
    }

    /// Searches the region that can hold a plan as cheap as the bound, and wider ones until the best plan is surely inside.
    /// Returns whether that plan is the best so far.
    fn widen(
        &mut self,
        kernels: &Arc<Kernels>,
        labels: &[Layout],
        (priced, bound): (&Priced, u64),
        room: Option<&Room<'_>>,
    ) -> Result<bool, LowerError> {
        let mut better = false;
        let mut most = bound;
        let mut slack = (bound >> 12).max(1);
        // Beyond this nothing is wanted.
        let wanted = self.below.map(|below| below - 1).into_iter().chain(self.most_wanted().filter(|_| room.is_some()));
        let end = wanted.fold(priced.dearest(), u64::min);
        loop {
            self.limits.stop.check()?;
            let found = self.search(kernels, Some(priced.region(most)), Some(labels), room, bound)?;
            better |= found.is_some_and(|(_, better)| better);
            let wider = most.saturating_add(slack);
            most = match found {
                // Every plan that takes no longer was in the region: this one is the best.
                Some((time, _)) if time <= most => return Ok(better),
                _ if most >= end => {
                    self.note_missed(bound);
                    return Ok(better);
                }
                // A plan far from the bound is not to widen the region to all that is as far.
                Some((time, _)) => time.min(wider).min(end),
                // One plan after another does not fit: the case is given up, and its bound stays open.
                None if self.best.gave_up => {
                    self.note_missed(bound);
                    return Ok(better);
                }
                None => wider.min(end),
            };
            slack = slack.saturating_mul(if room.is_some() { 64 } else { 8 });
        }
    }

    /// Searches a region, or the whole space. Returns the time of the best plan in it, and whether none before was better.
    fn search(
        &mut self,
        kernels: &Arc<Kernels>,
        region: Option<Region>,
        labels: Option<&[Layout]>,
        room: Option<&Room<'_>>,
        least: u64,
    ) -> Result<Option<(u64, bool)>, LowerError> {
        let space = Space::saturate(Arc::clone(kernels), region, self.limits)?;
        let mut tables = Tables::new(&space, self.hardware)?;
        if let Some(room) = room {
            room.prune(kernels, &mut tables);
        }
        let best = &mut self.best;
        best.stats.classes += space.graph.number_of_classes();
        best.stats.nodes += space.graph.total_number_of_nodes();
        let mut search = Search::new(&space, &tables, &kernels.program, labels, self.strict, room, least);
        (best.passed_over, best.gave_up) = (false, false);
        let found = match search.run(self.limits) {
            Ok(found) => found,
            Err(unreachable @ LowerError::Unreachable { .. }) => {
                best.passed_over = search.passed_over;
                best.failure = Some((unreachable, Arc::clone(kernels)));
                return Ok(None);
            }
            Err(LowerError::Limit { limit: TOO_LARGE, .. }) => {
                (best.passed_over, best.gave_up) = (true, true);
                return Ok(None);
            }
            Err(other) => return Err(other),
        };
        best.stats.expansions += found.stats.expansions;
        if labels.is_none() {
            best.root_bound = Some(best.root_bound.map_or(found.root_bound.0, |b| b.min(found.root_bound.0)));
        }
        if found.stopped_by.is_some() {
            best.stopped_by = best.stopped_by.or(found.stopped_by);
            best.open_bound = Some(best.open_bound.map_or(found.lower_bound.0, |b| b.min(found.lower_bound.0)));
        }
        best.ties_cut |= found.ties_cut;
        let (rank, plan) = best_tie(kernels, &tables, &found, best.rewritten, self.hardware)?;
        let time = rank.0;
        let better = best.plan.as_ref().is_none_or(|(known, _)| rank < *known);
        if better {
            best.plan = Some((rank, plan));
            best.of = Some((Arc::clone(kernels), labels.map(<[Layout]>::to_vec).unwrap_or_default()));
        }
        Ok(Some((time, better)))
    }

    /// What came of it. `written` is the program that was asked about, of which errors speak.
    fn lowered(self, written: Option<&Program>) -> Result<Lowered, LowerError> {
        let mut best = self.best;
        if let Some(missed) = best.missed {
            best.stopped_by = best.stopped_by.or(Some(TOO_LARGE));
            best.open_bound = Some(best.open_bound.map_or(missed, |open| open.min(missed)));
        }
        let (Some((rank, emitted)), Some((kernels, labels))) = (best.plan, best.of) else {
            // That there is none with room is said only where nothing was left out.
            let of_memory = best.cut.map(|(limit, _)| limit).filter(|_| self.capacity.is_some());
            let left_out = best.stopped_by.or(of_memory);
            return Err(match left_out {
                Some(limit) => LowerError::Limit { limit, count: self.limits.branches },
                None => unreachable_in(written, best.failure),
            });
        };
        let cost = rank.0;
        let price_bound = best.root_bound;
        let root = price_bound.unwrap_or(0);
        if root > cost {
            return Err(LowerError::Internal(format!("a plan of {cost} ps is below the bound of {root} ps")));
        }
        // Forms that were left out do not matter where they cannot be better.
        let (left_out, floor) = match best.cut.filter(|(_, bound)| *bound < cost) {
            Some((limit, bound)) => (Some(limit), bound.min(root)),
            None => (None, root),
        };
        let stopped_by = best.stopped_by.filter(|_| root < cost).or(left_out);
        let proof = match stopped_by {
            Some(_) => None,
            None if root == cost && !best.apart => Some(Proof::Certificate),
            None => Some(Proof::Search),
        };
        let open_bound = best.open_bound.map_or(root, |open| open.min(cost).max(root));
        let optimality = Optimality {
            status: if proof.is_some() { Status::Proven } else { Status::Bounded },
            lower_bound: Picoseconds(match left_out {
                Some(_) => floor,
                None if proof.is_some() => cost,
                None => open_bound,
            }),
            price_bound: price_bound.map(|root| Picoseconds(root.min(floor))),
            stopped_by: stopped_by.map(str::to_owned),
            proof,
            cost: Picoseconds(cost),
            ties_cut: best.ties_cut,
        };
        let complete = !self.strict && self.forced.is_none() && self.capacity.is_none();
        let memory = Memory { kernels, labels, moves: emitted.moves, whole: best.whole, complete };
        Ok(Lowered { plan: emitted.plan, optimality, stats: best.stats, memory })
    }
}

/// Why a program has no plan, as it is written: what a search says is of the form that it searched, whose values may be others.
fn unreachable_in(written: Option<&Program>, failure: Option<(LowerError, Arc<Kernels>)>) -> LowerError {
    let Some((LowerError::Unreachable { value, output }, kernels)) = failure else {
        return LowerError::Unreachable { value: None, output: None };
    };
    let form = kernels.program.as_ref();
    let same = |program: &&Program| program.values == form.values;
    LowerError::Unreachable { value: value.filter(|_| written.as_ref().is_some_and(same)), output }
}

/// The parts of what is free that an op may hold, where plans that may hold all of it leave no room.
const SHARES: [u64; 3] = [2, 4, 8];

/// Where searches have had so many e-nodes, or the branches that were priced so many strategies, those that can only tie with
/// the best plan are left out.
const MAX_TIED_NODES: usize = 20_000;
const MAX_TIED_STRATEGIES: usize = 100_000;

/// So many strategies are priced in all branches together: a branch of a large program counts for many of a small one.
const MAX_PRICED: usize = 10_000_000;

/// The name of the limit on branches.
const BRANCHES: &str = "branches";

/// Of the plans that tie in time and elements touched, the one that the tie rule prefers; one that fits in memory before
/// one that does not.
fn best_tie(
    kernels: &Kernels,
    tables: &Tables,
    found: &Found,
    rewritten: bool,
    hardware: &Hardware,
) -> Result<(Rank, Emitted), LowerError> {
    let mut best: Option<(bool, Rank, Emitted)> = None;
    for solution in &found.solutions {
        let plan = emit(kernels, tables, solution)?;
        let rank = rank(solution, &plan.plan, rewritten, hardware);
        let too_large = needed(&plan.plan) > hardware.hbm_bytes;
        if best.as_ref().is_none_or(|(large, known, _)| (too_large, &rank) < (*large, known)) {
            best = Some((too_large, rank, plan));
        }
    }
    best.map(|(_, rank, plan)| (rank, plan))
        .ok_or_else(|| LowerError::Internal("the search found nothing and said nothing".into()))
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
                _ => plan.fused_collective(id)?,
            };
            let moved = plan.instruction(moved);
            let sizes = plan.sizes(&moved.dims);
            Some(collective_cost(hardware, &plan.mesh, &collective, from, &sizes, moved.dtype).wire_bytes.0)
        })
        .collect();
    moves.sort_unstable_by(|a, b| b.cmp(a));
    (cost.time, rewritten, cost.elements, Liveness::of(plan).peak_bytes(), cost.steps, moves, cost.order)
}

#[cfg(test)]
mod tests {
    use shard_check::{CheckOptions, check_source};
    use shard_grammar::SourceFile;

    use super::*;

    /// A long einsum is written as a chain, which has more values than the source.
    const LONG: &str = "mesh x=2
dim A = 4
layer f(a: bf16 AB, b: bf16 BC, c: bf16 CD, d: bf16 DE) -> bf16 AE {
  return gelu(einsum(a, b, c, d -> AE))
}
dim B = 4
dim C = 4
dim D = 4
dim E = 4
";

    #[test]
    fn what_cannot_be_reached_in_some_form_is_told_of_the_program_as_it_is_written() {
        let checked = check_source(&SourceFile::new("test.shard", LONG), &CheckOptions::default());
        let program = &checked.programs[0];
        let hardware = Hardware::built_in("tpu-v4-flat").expect("a built-in chip");
        let limits = Limits::default();
        // Nothing fits, so that every form has something that cannot be made.
        let lowering = Lowering { capacity: Some(0), whole_space: true, ..Lowering::new(&hardware, &limits) };
        match lowering.run(program, false) {
            Err(LowerError::Unreachable { value, .. }) => {
                assert!(value.is_none_or(|v| v.index() < program.values.len()), "{value:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}
