//! Objectives that are no sum over steps. No search minimises them directly, so they are met by
//! several searches and a bound.

use shard_cost::{Bytes, Hardware, Objective, Streams, Totals, Weights};
use shard_ir::{Def, ParameterKind, Picoseconds, Plan, Program, never};
use shard_report::overlap_choice::OverlapChoice;
use shard_search::{
    Alternative, Detail, LowerBound, LowerError, LowerOptions, Lowered, Optimality, OverlapBound,
    Overlapped, Proof, SearchLimit, Smallest, Status, alternatives,
};

use crate::pipeline::{CompileError, Compiled, compile_plan};

/// The weights of computing and of communicating add up to this.
const PARTS: u32 = 64;
/// At most so many weights are tried.
const MOST_WEIGHTS: usize = 4;
/// A schedule less than one part in so many above the bound is not improved further.
const NEAR: u64 = 1000;

/// The plan that is done soonest, if computing and communicating overlap, of these: the plan of
/// least serial time; plans that may come near the bound; the best plans where computing counts
/// `PARTS - k` and communicating `k`, for some `k` on the way to where the two balance; the
/// alternatives to the collectives of all of these; and, where einsums may do a collective in their
/// loop, the soonest plan in which none does. In a stack the time of all layers counts.
///
/// The bound is [`shard_search::overlap_bound`]: no schedule of any plan of a layer is shorter, or
/// of a stack where one layer goes on beside the next. Where a program has too many forms for that
/// bound, it is the best of the bounds at the weights that were tried, since
///
/// ```text
/// makespan >= ((PARTS - k) * compute / sides + k * communication / streams) / PARTS
/// ```
///
/// `sides` is 1, or 2 where weights are fetched from the host: fetches go on beside kernels, and
/// count as computing.
pub fn least_overlap(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Compiled, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let fastest = lower(program, hardware, &serial)?;
    let others = plans_without(&fastest, hardware, &serial)?;
    let known = vec![fastest.plan.clone()];
    let mut soonest = Soonest::of(fastest.plan, program, hardware, &serial)?;
    let is_of_stack = soonest.is_of_stack();
    let bounded = soonest.bounded()?;
    let is_known = bounded.is_some();
    let Overlapped { bound, plans: near } = bounded.unwrap_or_default();
    soonest.bound = bound;
    for plan in near {
        soonest.consider(plan)?;
    }
    soonest.consider_all(others)?;
    if options.fuse {
        // A loop may keep steps waiting that would have gone on beside its collective.
        let unfused = LowerOptions { fuse: false, ..options.clone() };
        soonest.consider(least_overlap(program, hardware, &unfused)?.schedule.plan)?;
    }
    soonest.consider_weighted(known, is_known)?;
    if is_known && soonest.is_of_stack() != is_of_stack {
        let OverlapBound { layer, period } = soonest.bounded()?.unwrap_or_default().bound;
        soonest.raise_bound(layer, period);
    }
    let times = (soonest.time(), soonest.least());
    let mut best = within(soonest.best, options, |_| times);
    // A plan that is done at the bound is proven best.
    if let Some(o) = best.optimality.as_mut().filter(|o| o.cost <= o.lower_bound) {
        (o.status, o.proof, o.stopped_by) = (Status::Proven, Some(Proof::Search), None);
    }
    Ok(best)
}

/// The alternatives to the collectives of a plan, each with its plan; none where the time is up,
/// since what was found until then is enough to choose from.
fn plans_without(
    lowered: &Lowered,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Vec<Alternative>, CompileError> {
    match alternatives(lowered, hardware, options, Some(Detail::Plans)) {
        Err(LowerError::OutOfTime) => Ok(Vec::new()),
        others => others.map_err(CompileError::Lower),
    }
}

/// The plan that [`least_overlap`] chooses for a program, compared with a plan that was chosen
/// otherwise.
pub fn overlap_choice(
    program: &Program,
    own: &Compiled,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<OverlapChoice, CompileError> {
    let other = least_overlap(program, hardware, options)?;
    let (own_time, time) = (own.timeline.whole().makespan, other.timeline.whole().makespan);
    // Of two plans that are done at the same time, the known one is as good.
    let is_same = own.schedule.plan == other.schedule.plan || own_time <= time;
    Ok(OverlapChoice {
        is_same,
        own_time,
        time: if is_same { own_time } else { time },
        serial_time: if is_same { &own.price } else { &other.price }.totals.serial_time,
        lower_bound: other.optimality.map_or_else(
            || never!("a plan done soonest without a bound", Picoseconds(0)),
            |found| found.lower_bound,
        ),
    })
}

/// The plan that is done soonest of all that were considered.
struct Soonest<'h> {
    program: &'h Program,
    hardware: &'h Hardware,
    /// How other plans are searched for.
    serial: &'h LowerOptions,
    weighing: Weighing,
    best: Compiled,
    /// A lower bound on all schedules of all plans, as far as one is known.
    bound: OverlapBound,
}

impl<'h> Soonest<'h> {
    fn of(
        plan: Plan,
        program: &'h Program,
        hardware: &'h Hardware,
        serial: &'h LowerOptions,
    ) -> Result<Soonest<'h>, CompileError> {
        let weighing = Weighing::of(program, hardware);
        let best = compile_plan(plan, hardware, None, Objective::Overlap)?;
        let bound = OverlapBound::default();
        Ok(Soonest { program, hardware, serial, weighing, best, bound })
    }

    /// The bound on all plans, and plans that may come near it; `None` if the time is up.
    fn bounded(&self) -> Result<Option<Overlapped>, CompileError> {
        let Soonest { program, hardware, serial, .. } = *self;
        match shard_search::overlap_bound(program, hardware, serial, self.asked()) {
            Err(LowerError::OutOfTime) => Ok(None),
            found => found.map_err(CompileError::Lower),
        }
    }

    fn raise_bound(&mut self, layer: Picoseconds, period: Picoseconds) {
        let bound = &mut self.bound;
        (bound.layer, bound.period) = (bound.layer.max(layer), bound.period.max(period));
    }

    /// Considers the best plans at some weights, on the way to where computing and communicating
    /// balance, and the alternatives to their collectives. The alternatives of the `known` plans
    /// were considered already. Bounds at the weights raise the bound unless that `is_known`.
    fn consider_weighted(
        &mut self,
        mut known: Vec<Plan>,
        is_known: bool,
    ) -> Result<(), CompileError> {
        let Weighing { sides, streams } = self.weighing;
        // The weights below and above the balance that were tried last, each with the sums of
        // computing and of communicating in its plan.
        let (mut low, mut high) = ((0, None), (PARTS, None));
        for _ in 0..MOST_WEIGHTS {
            let least = self.least();
            if self.time() <= least + Picoseconds(least.0 / NEAR) {
                break;
            }
            let Some(k) = self.weighing.next(&low, &high) else { break };
            let weighted = self.weighing.weighted(self.hardware, k);
            let lowered = match lower(self.program, &weighted, self.serial) {
                Err(CompileError::Lower(LowerError::OutOfTime | LowerError::NoPlanFits { .. })) => {
                    break;
                }
                lowered => lowered?,
            };
            if !is_known {
                let found = self.weighing.time(lowered.optimality.lower_bound);
                self.raise_bound(found, found);
            }
            let others = if known.contains(&lowered.plan) {
                Vec::new()
            } else {
                plans_without(&lowered, &weighted, self.serial)?
            };
            known.push(lowered.plan.clone());
            let totals = self.consider(lowered.plan)?;
            self.consider_all(others)?;
            let sums = (
                u128::from(computing(&totals)) * u128::from(streams),
                u128::from(totals.comm_time.0) * u128::from(sides),
            );
            // Where communicating takes longer, it is to count for more.
            if sums.1 > sums.0 { low = (k, Some(sums)) } else { high = (k, Some(sums)) }
        }
        Ok(())
    }

    /// When the layer of the best plan is done, or its stack where one layer goes on beside the
    /// next.
    fn time(&self) -> Picoseconds {
        self.best.timeline.whole().makespan
    }

    /// Whether one layer goes on beside the next in the best plan, so that the time of the stack
    /// counts.
    fn is_of_stack(&self) -> bool {
        self.best.timeline.stack.is_some()
    }

    /// The time that a bound is compared with: of a layer or of a stack, and 0 for the other, of
    /// which no bound is asked.
    fn asked(&self) -> OverlapBound {
        let nothing = Picoseconds(0);
        if self.is_of_stack() {
            let period = Picoseconds(self.time().0 / self.program.repeat.max(1));
            OverlapBound { layer: nothing, period }
        } else {
            OverlapBound { layer: self.best.timeline.makespan, period: nothing }
        }
    }

    /// The bound on the same: a layer, or the stack.
    fn least(&self) -> Picoseconds {
        match self.best.timeline.stack {
            Some(_) => self.bound.period.times(self.best.schedule.plan.repeat),
            None => self.bound.layer,
        }
    }

    fn consider_all(&mut self, others: Vec<Alternative>) -> Result<(), CompileError> {
        others.into_iter().filter_map(|other| other.plan).try_for_each(|plan| {
            self.consider(plan)?;
            Ok(())
        })
    }

    /// Takes a plan if it is done sooner than the best one, and returns its totals. A plan that
    /// keeps the cores or the links busy for longer than the best one takes is not scheduled.
    fn consider(&mut self, plan: Plan) -> Result<Totals, CompileError> {
        let totals = shard_cost::price(&plan, self.hardware).totals;
        let Weighing { sides, streams } = self.weighing;
        let busy = (totals.comm_time.0 / u64::from(streams)).max(computing(&totals));
        let best = self.best.timeline.of_all_layers(&self.best.schedule.plan);
        // Fetches go on beside kernels, so that the sum of both is no bound.
        if sides == 1 && best <= Picoseconds(busy).times(plan.repeat) {
            return Ok(totals);
        }
        let found = compile_plan(plan, self.hardware, None, Objective::Overlap)?;
        let rank = |of: &Compiled| {
            let all = of.timeline.of_all_layers(&of.schedule.plan);
            (all, of.timeline.makespan, of.price.totals.serial_time)
        };
        if rank(&found) < rank(&self.best) {
            self.best = found;
        }
        Ok(totals)
    }
}

/// The serial time of a plan without its moves, in picoseconds.
fn computing(totals: &Totals) -> u64 {
    totals.serial_time.0.saturating_sub(totals.comm_time.0)
}

/// A lower bound on all plans, without a search for a plan. For `overlap` it is the largest of some
/// of the bounds at weights that [`least_overlap`] would try; for `memory`, whose plans are as fast
/// as there is room for, the bound on the serial time.
pub fn lower_bound(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<LowerBound, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let bound = |hardware: &Hardware, options| {
        shard_search::lower_bound(program, hardware, options).map_err(CompileError::Lower)
    };
    match options.objective {
        Objective::Serial | Objective::Comm => bound(hardware, options),
        Objective::Memory => bound(hardware, &serial),
        Objective::Overlap => {
            let weighing = Weighing::of(program, hardware);
            let weighed = |k: u32| {
                let found = bound(&weighing.weighted(hardware, k), &serial)?;
                Ok(LowerBound { time: weighing.time(found.time), ..found })
            };
            let mut best = weighed(PARTS / 2)?;
            for k in [0, PARTS / 4, 3 * PARTS / 4, PARTS] {
                let found = weighed(k)?;
                best.time = best.time.max(found.time);
                best.stopped_by = best.stopped_by.or(found.stopped_by);
            }
            Ok(best)
        }
    }
}

/// How computing and communicating are weighed against each other.
#[derive(Clone, Copy)]
struct Weighing {
    /// How many ops can go on at the same time.
    sides: u32,
    /// How many transfers can.
    streams: u32,
}

/// A weight, and the sums of computing and of communicating in the plan that was found there.
type Weighed = (u32, Option<(u128, u128)>);

impl Weighing {
    fn of(program: &Program, hardware: &Hardware) -> Weighing {
        let is_fetched =
            |def: &Def| matches!(def, Def::Parameter { kind: ParameterKind::HostWeight, .. });
        let sides = if program.values.iter().any(|value| is_fetched(&value.def)) { 2 } else { 1 };
        Weighing { sides, streams: Streams::of(hardware, &program.mesh).transfers_at_once() }
    }

    /// The chip on which the serial time of every plan is the right side of the bound, times what
    /// [`Weighing::time`] divides by.
    fn weighted(&self, hardware: &Hardware, k: u32) -> Hardware {
        hardware.weighted(Weights { ops: (PARTS - k) * self.streams, moves: k * self.sides })
    }

    fn time(&self, weighted: Picoseconds) -> Picoseconds {
        Picoseconds(weighted.0.div_ceil(u64::from(PARTS * self.sides * self.streams)))
    }

    /// The weight to try next: where the plans found on either side of the balance take equally
    /// long, or the middle where one of them is not known; `None` where no weight lies between.
    fn next(&self, low: &Weighed, high: &Weighed) -> Option<u32> {
        let ((from, early), (to, late)) = (low, high);
        if to - from <= 1 {
            return None;
        }
        let Some((early, late)) = early.zip(*late) else { return Some((from + to) / 2) };
        let (computing, communicating) =
            (late.0.saturating_sub(early.0), early.1.saturating_sub(late.1));
        let at = (u128::from(PARTS) * computing)
            .checked_div(computing + communicating)
            .unwrap_or(u128::from(PARTS / 2));
        Some(u32::try_from(at).unwrap_or(PARTS).clamp(from + 1, to - 1))
    }
}

/// The fastest plan in the least memory for which a plan was found, and a lower bound on the memory
/// of all plans. It is proven where it needs no more than the bound. Where searches prove nothing,
/// the bound is what weights and caches take in the smallest layouts that their types allow.
pub fn least_memory(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Compiled, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let fastest = lower(program, hardware, &serial)?;
    let bound = fastest.optimality.lower_bound;
    let Smallest { lowered, least } = shard_search::smallest(program, hardware, &serial, &fastest)
        .map_err(CompileError::Lower)?;
    let best = lowered.unwrap_or(fastest);
    let is_fastest = best.optimality.status == Status::Proven;
    let compiled = compile_plan(best.plan, hardware, None, Objective::Memory)?;
    let is_least = is_fastest && compiled.price.memory.peak().0 <= least;
    let compiled = Compiled { least_bytes: Some(Bytes(least)), ..compiled };
    let mut compiled =
        within(compiled, options, |compiled| (compiled.price.totals.serial_time, bound));
    if let Some(o) = compiled.optimality.as_mut().filter(|_| is_least) {
        (o.status, o.proof, o.stopped_by) = (Status::Proven, Some(Proof::Search), None);
        (o.price_bound, o.lower_bound) = (Some(bound), o.cost);
    }
    Ok(compiled)
}

fn lower(
    program: &Program,
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Lowered, CompileError> {
    shard_search::lower(program, hardware, options).map_err(CompileError::Lower)
}

/// A plan with its optimality: its time, and the bound on it.
fn within(
    compiled: Compiled,
    options: &LowerOptions,
    figures: impl FnOnce(&Compiled) -> (Picoseconds, Picoseconds),
) -> Compiled {
    let stopped_by = options.limits.stop.is_time_up().then_some(SearchLimit::Time);
    let (cost, lower_bound) = figures(&compiled);
    let optimality = Optimality {
        status: Status::Bounded,
        proof: None,
        cost,
        lower_bound,
        price_bound: None,
        stopped_by,
        ties_cut: false,
    };
    Compiled { optimality: Some(optimality), ..compiled }
}
