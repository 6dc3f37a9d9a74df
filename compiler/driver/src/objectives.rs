//! Objectives that are no sum over steps: no search minimises them directly, so they are met by several searches and a bound.

use shard_cost::{Bytes, Hardware, Memory, Objective, Streams, Weights};
use shard_ir::{Def, ParameterKind, Picoseconds, Plan, Program};
use shard_search::{
    Detail, LowerBound, LowerError, LowerOptions, Lowered, Optimality, Status, TIME_LIMIT, alternatives, least_kept,
};

use crate::pipeline::{CompileError, Compiled, compile_plan};

/// How finely computing and communicating are weighed against each other: in so many parts.
const PARTS: u32 = 8;

/// The plan that is done soonest if computing and communicating overlap, of these: the one of least serial time; for each of
/// its collectives the best that does without; and those that are best where the two count `PARTS - k` to `k`, for each `k`
/// on the way to where they balance.
///
/// No schedule is shorter than what it computes, nor than what it communicates on its busiest stream, so for all weights
///
/// ```text
/// makespan >= ((PARTS - k) * compute / sides + k * communication / streams) / PARTS
/// ```
///
/// `sides` is 1, or 2 where weights are fetched from the host: that goes on beside kernels, and counts as computing.
///
/// The least of the right side over all plans is what a search finds, and the largest such least is the bound.
pub fn least_overlap(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Compiled, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let of_plan = |plan: Plan| compile_plan(plan, hardware, None, Objective::Overlap);
    let fastest = lower(program, hardware, &serial)?;
    let others = match alternatives(&fastest, hardware, &serial, Some(Detail::Plans)) {
        // What is found by then is what there is to choose from.
        Err(LowerError::OutOfTime) => Vec::new(),
        others => others.map_err(CompileError::Lower)?,
    };
    let mut best = of_plan(fastest.plan)?;
    let rank = |compiled: &Compiled| (compiled.timeline.makespan, compiled.price.totals.serial_time);
    for plan in others.into_iter().filter_map(|other| other.plan) {
        let found = of_plan(plan)?;
        if rank(&found) < rank(&best) {
            best = found;
        }
    }
    let (sides, streams) = at_once(program, hardware);
    let mut bound = Picoseconds(0);
    let (mut low, mut high) = (0, PARTS);
    while high - low > 1 {
        let k = (low + high) / 2;
        let weights = Weights { ops: (PARTS - k) * streams, moves: k * sides };
        let lowered = match lower(program, &hardware.weighted(weights), &serial) {
            Err(CompileError::Lower(LowerError::OutOfTime)) => break,
            lowered => lowered?,
        };
        bound = bound.max(Picoseconds(lowered.optimality.lower_bound.0.div_ceil(u64::from(PARTS * sides * streams))));
        let found = of_plan(lowered.plan)?;
        let totals = &found.price.totals;
        let computing = Picoseconds(totals.serial_time.0.saturating_sub(totals.comm_time.0));
        // Where communication is what takes long, it is to count for more.
        let communicating = totals.comm_time.0.saturating_mul(u64::from(sides));
        if communicating > computing.0.saturating_mul(u64::from(streams)) {
            low = k
        } else {
            high = k
        }
        if rank(&found) < rank(&best) {
            best = found;
        }
    }
    Ok(within(best, options, |compiled| (compiled.timeline.makespan, bound)))
}

/// What no plan falls below, without a search for one. Of `overlap`, the largest of some of the bounds that [`least_overlap`]
/// would look at; of `memory`, whose plans are as fast as there is room for, that on time.
pub fn lower_bound(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<LowerBound, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let bound = |hardware: &Hardware, options| {
        shard_search::lower_bound(program, hardware, options).map_err(CompileError::Lower)
    };
    match options.objective {
        Objective::Serial | Objective::Comm => bound(hardware, options),
        Objective::Memory => bound(hardware, &serial),
        Objective::Overlap => {
            let (sides, streams) = at_once(program, hardware);
            let weighed = |k: u32| {
                let found =
                    bound(&hardware.weighted(Weights { ops: (PARTS - k) * streams, moves: k * sides }), &serial)?;
                Ok(LowerBound { time: Picoseconds(found.time.0.div_ceil(u64::from(PARTS * sides * streams))), ..found })
            };
            let mut best = weighed(PARTS / 2)?;
            for k in [PARTS / 4, 3 * PARTS / 4] {
                let found = weighed(k)?;
                best.time = best.time.max(found.time);
                best.stopped_by = best.stopped_by.or(found.stopped_by);
            }
            Ok(best)
        }
    }
}

/// How many ops can go on at the same time, and how many transfers.
fn at_once(program: &Program, hardware: &Hardware) -> (u32, u32) {
    let is_fetched = |def: &Def| matches!(def, Def::Parameter { kind: ParameterKind::HostWeight, .. });
    let sides = if program.values.iter().any(|value| is_fetched(&value.def)) { 2 } else { 1 };
    (sides, Streams::of(hardware, &program.mesh).transfers_at_once())
}

/// Searches for less and less memory; none for less than one part in `FINE` of what there is to save.
const STEPS: u32 = 6;
const FINE: u64 = 128;

/// The fastest plan in the least memory that a plan was found for. No plan takes less than the weights and caches do in
/// the smallest layouts that their types allow.
pub fn least_memory(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Compiled, CompileError> {
    let serial = LowerOptions { objective: Objective::Serial, ..options.clone() };
    let fastest = lower(program, hardware, &serial)?;
    let bound = fastest.optimality.lower_bound;
    let peak = |lowered: &Lowered| Memory::of(&lowered.plan).peak().0;
    let least = least_kept(program);
    let (mut low, mut best) = (least, fastest);
    for _ in 0..STEPS {
        let most = peak(&best);
        // A search that finds nothing is the slowest kind: the last hundredth is not worth several.
        if most.saturating_sub(low) <= most / FINE {
            break;
        }
        let room = low + (most - low) / 2;
        let mut smaller = hardware.clone();
        smaller.hbm_bytes = room;
        match shard_search::lower(program, &smaller, &LowerOptions { any_size: false, ..serial.clone() }) {
            Ok(found) => best = found,
            Err(LowerError::NoPlanFits { .. }) => low = room + 1,
            Err(LowerError::OutOfTime) => break,
            Err(other) => return Err(CompileError::Lower(other)),
        }
    }
    let best =
        Compiled { least_bytes: Some(Bytes(least)), ..compile_plan(best.plan, hardware, None, Objective::Memory)? };
    Ok(within(best, options, |compiled| (compiled.price.totals.serial_time, bound)))
}

fn lower(program: &Program, hardware: &Hardware, options: &LowerOptions) -> Result<Lowered, CompileError> {
    shard_search::lower(program, hardware, options).map_err(CompileError::Lower)
}

/// A plan with how far it is from a bound, both in time.
fn within(
    compiled: Compiled,
    options: &LowerOptions,
    figures: impl FnOnce(&Compiled) -> (Picoseconds, Picoseconds),
) -> Compiled {
    let stopped_by = options.limits.stop.is_time_up().then(|| TIME_LIMIT.to_string());
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
