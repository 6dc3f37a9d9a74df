//! Program in, plan out: every form of the program and every layout of the labels bounded, the promising ones searched.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use shard_cost::{Hardware, collective_cost};
use shard_ir::{Def, InstrId, InstrKind, Layout, Liveness, MeshShape, Picoseconds, Plan, Program};

use crate::demand::Forced;
use crate::emit::{Emitted, MoveSite, emit};
use crate::kernel::Kernels;
use crate::labels::assignments;
use crate::logical::{Cut, forms};
use crate::memory::{Room, Within, needed};
use crate::relax::{Priced, Question, Region, Relaxation, Wanted, Whole};
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
    // The bound counts no memory, so that looking at more plans proves little: they only take their time.
    let within_memory = Limits { expansions: options.limits.expansions / 8, ..options.limits.clone() };
    let lowering = |at_once, within: Option<Within>| Lowering {
        strict: at_once,
        all_written: strict,
        whole_space: options.whole_space,
        forced: options.forced.as_ref(),
        loops: options.fuse && !(options.strict || program.strict),
        within,
        ..Lowering::new(hardware, if within.is_some() { &within_memory } else { &options.limits })
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
    let device = Within::device(capacity);
    let least = Room::new(program, device).least();
    if least > capacity {
        return Err(LowerError::NoPlanFits { plan: Box::new(fastest.plan), least, proven: true });
    }
    let mut best = match lowering(strict, Some(device)).run(program, strict) {
        // Nothing was passed over: what was left out of the space has no room in any plan.
        Err(LowerError::Unreachable { .. }) => {
            return Err(LowerError::NoPlanFits { plan: Box::new(fastest.plan), least, proven: true });
        }
        Err(LowerError::Limit { .. }) => None,
        Ok(found) if found.optimality.status == Status::Bounded => Some(found),
        other => return other,
    };
    // Some plan after another leaves no room for activations, or there are more than can be looked at. What weights and
    // caches leave free is settled beforehand, then: of what comes out, nothing is proven but what is of all plans.
    let known = best.as_ref().map_or_else(|| fastest.optimality.clone(), |found| found.optimality.clone());
    for kept in kept_at_most(&fastest.plan, least, capacity) {
        let found = match lowering(strict, Some(Within { capacity, kept })).run(program, strict) {
            Err(LowerError::Unreachable { .. } | LowerError::Limit { .. }) => continue,
            Err(LowerError::OutOfTime) if best.is_some() => break,
            other => other?,
        };
        if best.as_ref().is_none_or(|known| found.optimality.cost < known.optimality.cost) {
            best = Some(Lowered { optimality: bounded(&found.optimality, &known), ..found });
        }
    }
    best.ok_or_else(|| LowerError::NoPlanFits { plan: Box::new(fastest.plan), least, proven: false })
}

/// Bytes for weights and caches that leave room for activations: first as much as the fastest plan has, in the end all that
/// there is beside the smallest weights and caches.
fn kept_at_most(fastest: &Plan, least: u64, capacity: u64) -> Vec<u64> {
    let activations = shard_cost::Memory::of(fastest).activations.0;
    let most = capacity.saturating_sub(activations).max(least);
    let mut all = vec![most, least + (most - least) / 4, least];
    all.dedup();
    all
}

/// What is known of a plan that was found among some, by what is known of all.
fn bounded(found: &Optimality, known: &Optimality) -> Optimality {
    let lower_bound = known.lower_bound.min(found.cost);
    let price_bound = known.price_bound.map(|bound| bound.min(found.cost));
    let proven = lower_bound == found.cost;
    let proof = if price_bound == Some(found.cost) { Proof::Certificate } else { Proof::Search };
    Optimality {
        status: if proven { Status::Proven } else { Status::Bounded },
        proof: proven.then_some(proof),
        cost: found.cost,
        lower_bound,
        price_bound,
        stopped_by: (!proven).then(|| TOO_LARGE.to_owned()),
        ties_cut: found.ties_cut,
    }
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
    /// The bytes that every plan must fit in; `None` where plans of any size will do.
    within: Option<Within>,
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
    /// Whether the form that is searched now is another than the one written.
    rewritten: bool,
    ties_cut: bool,
    stats: Stats,
}

/// A form that is ready to be searched, and the layouts to try for its labels.
type Prepared = (Arc<Kernels>, Vec<Vec<Layout>>);

/// What comes next for a form, under an assignment of layouts to its labels: the last first, of those that promise alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Turn {
    /// The assignment is searched; its bound is its own.
    Search,
    /// The assignment gets prices of its own.
    Labels,
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
            within: None,
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
                lowering.widen(kernels, labels, &priced, bound)?;
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
        let forms = forms(program, as_written, self.limits);
        let first_bounds: Vec<u64> = forms.all.iter().map(|form| form.first_bound(self.hardware)).collect();
        let rewritten: Vec<bool> = forms.all.iter().map(|form| form.rewritten).collect();
        self.best.cut = forms.cut.map(|cut: Cut| (cut.limit, cut.first_bound(program, self.hardware)));
        let mut forms: Vec<Option<_>> = forms.all.into_iter().map(Some).collect();
        let (all_written, loops) = (self.all_written, self.loops);
        let of_form = |form| Arc::new(Kernels::of_form(form, all_written, loops));
        let mut take = |form: usize| forms.get_mut(form).and_then(Option::take).map(of_form);
        if self.whole_space {
            for (form, rewritten) in rewritten.into_iter().enumerate() {
                let Some(kernels) = take(form) else { continue };
                within_limits(&kernels.program, self.limits)?;
                self.best.rewritten = rewritten;
                self.search(&kernels, None, None)?;
                self.note_missed(0);
            }
            return Ok(());
        }
        let kernels: Vec<OnceCell<Prepared>> = vec![OnceCell::new(); rewritten.len()];
        let relaxed: Vec<OnceCell<Relaxation<'_>>> = rewritten.iter().map(|_| OnceCell::new()).collect();
        // The most promising first; its bound is worked out better each time that its turn has come.
        let mut open: BinaryHeap<Reverse<(u64, Turn, usize, usize)>> =
            first_bounds.into_iter().enumerate().map(|(form, bound)| Reverse((bound, Turn::Form, form, 0))).collect();
        let mut priced: BTreeMap<(usize, usize), Priced> = BTreeMap::new();
        let mut left = if self.within.is_some() { MAX_CASES_WITHIN_MEMORY } else { usize::MAX };
        while let Some(Reverse((bound, turn, form, i))) = open.pop() {
            self.limits.stop.check_asked()?;
            // Another form than the one written is taken only where it takes less time.
            let known = self.best.plan.as_ref().map(|(rank, _)| rank.0);
            if known.is_some_and(|time| time < bound || (time == bound && rewritten[form]))
                || self.below.is_some_and(|below| below <= bound)
            {
                continue;
            }
            self.best.frontier = Some(bound);
            self.limits.stop.saw(bound, known);
            self.limits.stop.check()?;
            if let (Turn::Form, Some(new)) = (turn, take(form)) {
                within_limits(&new.program, self.limits)?;
                let labels = assignments(&new.program, self.limits.label_layouts)?;
                let _ = kernels[form].set((new, labels));
            }
            let Some((kernels, labels)) = kernels[form].get() else { continue };
            match (turn, relaxed[form].get()) {
                (Turn::Search, _) if left == 0 => {
                    // So many are tried; what the others take at least is known.
                    self.best.stopped_by = self.best.stopped_by.or(Some(TOO_LARGE));
                    self.best.open_bound = Some(self.best.open_bound.map_or(bound, |b| b.min(bound)));
                    break;
                }
                (Turn::Search, _) => {
                    left -= 1;
                    let Some(case) = priced.remove(&(form, i)) else { continue };
                    self.best.root_bound.get_or_insert(bound);
                    self.best.rewritten = rewritten[form];
                    if self.widen(kernels, &labels[i], &case, bound)? {
                        self.best.whole = relaxed[form].get().map(Relaxation::whole);
                    }
                    // What is most promising leaves no room: what is less so is hardly ever smaller.
                    if self.best.plan.is_none() && self.best.stopped_by == Some(TOO_LARGE) {
                        break;
                    }
                }
                (Turn::Labels, Some(relaxation)) => {
                    let case = relaxation.under(&labels[i], known.into_iter().chain(self.below).min());
                    if let Some(own) = case.bound {
                        open.push(Reverse((own.max(bound), Turn::Search, form, i)));
                        priced.insert((form, i), case);
                    }
                }
                _ => {
                    let maxima = maxima(&kernels.program);
                    let room = self.within.map(|within| Room::new(&kernels.program, within));
                    let options = (self.strict, self.limits);
                    let wanted = Wanted {
                        forced: self.forced,
                        room: room.as_ref(),
                        below: self.below,
                        like: self.like.and_then(|like| like.like(&kernels.program)),
                    };
                    let new = Relaxation::new(kernels, self.hardware, maxima, labels, options, wanted)?;
                    let cases = (0..labels.len()).filter_map(|i| Some((new.first_bound(i)?, i)));
                    open.extend(cases.map(|(own, i)| Reverse((own.max(bound), Turn::Labels, form, i))));
                    let _ = relaxed[form].set(new);
                }
            }
        }
        Ok(())
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
        relaxed: &Priced,
        bound: u64,
    ) -> Result<bool, LowerError> {
        let mut better = false;
        let mut most = bound;
        let mut slack = (bound >> 12).max(1);
        // Beyond this nothing is wanted.
        let end = relaxed.dearest().min(self.below.map_or(u64::MAX, |below| below - 1));
        loop {
            self.limits.stop.check()?;
            let found = self.search(kernels, Some(relaxed.region(most)), Some(labels))?;
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
                None if self.best.stopped_by == Some(TOO_LARGE) => {
                    self.best.open_bound = Some(self.best.open_bound.map_or(bound, |b| b.min(bound)));
                    return Ok(better);
                }
                None => wider.min(end),
            };
            slack = slack.saturating_mul(if self.within.is_some() { 64 } else { 8 });
        }
    }

    /// Searches a region, or the whole space. Returns the time of the best plan in it, and whether none before was better.
    fn search(
        &mut self,
        kernels: &Arc<Kernels>,
        region: Option<Region>,
        labels: Option<&[Layout]>,
    ) -> Result<Option<(u64, bool)>, LowerError> {
        let space = Space::saturate(Arc::clone(kernels), region, self.limits)?;
        let mut tables = Tables::new(&space, self.hardware)?;
        let room = self.within.map(|within| Room::new(&kernels.program, within));
        if let Some(room) = &room {
            room.prune(kernels, &mut tables);
        }
        let best = &mut self.best;
        best.stats.classes += space.graph.number_of_classes();
        best.stats.nodes += space.graph.total_number_of_nodes();
        let mut search = Search::new(&space, &tables, &kernels.program, labels, self.strict, room.as_ref());
        best.passed_over = false;
        let found = match search.run(self.limits) {
            Ok(found) => found,
            Err(unreachable @ LowerError::Unreachable { .. }) => {
                best.passed_over = search.passed_over;
                best.failure = Some((unreachable, Arc::clone(kernels)));
                return Ok(None);
            }
            Err(LowerError::Limit { limit: TOO_LARGE, .. }) => {
                best.stopped_by = Some(TOO_LARGE);
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
            let left_out = best.stopped_by.or(best.cut.map(|(limit, _)| limit)).filter(|_| self.within.is_some());
            return Err(match left_out {
                Some(limit) => LowerError::Limit { limit, count: 0 },
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
            None if root == cost => Some(Proof::Certificate),
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
        let complete = !self.strict && self.forced.is_none() && self.within.is_none();
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

/// Layouts of labels that are searched for a plan that fits in memory.
const MAX_CASES_WITHIN_MEMORY: usize = 8;

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
        let within = Some(Within { capacity: 0, kept: 0 });
        let lowering = Lowering { within, whole_space: true, ..Lowering::new(&hardware, &limits) };
        match lowering.run(program, false) {
            Err(LowerError::Unreachable { value, .. }) => {
                assert!(value.is_none_or(|v| v.index() < program.values.len()), "{value:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}
