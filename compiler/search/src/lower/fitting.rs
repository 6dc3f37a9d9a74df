//! The fastest plan that fits in the memory of a device, where the fastest of all plans does not;
//! and the smallest plan.

use shard_cost::{Hardware, Memory};
use shard_ir::{Picoseconds, Program, ValueId};

use super::{KnownForms, Lowering};
use crate::bound_only::lower_bound;
use crate::memory::{DeviceMemory, needed};
use crate::search::MEMORY_LIMIT;
use crate::stored::{open_parameters, stored_as_in};
use crate::{
    Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, Smallest, Status, TIME_LIMIT,
};

/// Where no plan was found in the memory of a device, it is searched as if of what is free beside
/// the smallest weights and caches there were so many sixteenths: what fits in less fits, and plans
/// are found in some memory that are passed over in a little more.
const SPARE_SIXTEENTHS: [u64; 6] = [15, 13, 11, 8, 4, 2];

/// In so many of them, the first, plans that leave room for their activations are looked for step
/// by step; less helps where memory is left.
const STEERED: usize = 2;

/// Each of these searches may take this part of the limits of the first.
const PART_OF_A_SHARE: usize = 4;

/// Where nothing is found that way, as if it were so many eighths more than it is: of plans that
/// are found in more, some need no more.
const MORE_EIGHTHS: [u64; 2] = [1, 2];

/// Searches for less and less memory. By halves first, until one part in `FINE` is left to save;
/// then it is asked whether there is a plan in one byte less.
const SEARCHES: usize = 12;
const FINE: u64 = 128;

/// Each of these searches may take this part of the limits of one for the fastest plan: one that
/// finds nothing is the slowest.
const PART_OF_LIMITS: usize = 20;

/// A plan that is above its bound by more than this part of it is tried to better: with one of its
/// parameters stored as it does, of the largest so many; then with the largest, and with all where
/// they are few enough to be written. Each trial may take this part of the limits.
const FAR_FROM_BOUND: u64 = 1000;
const FEW_PARAMETERS: usize = 8;
const SEVERAL_PARAMETERS: usize = 4;
const PART_OF_A_TRIAL: usize = 16;

/// A plan that is above its bound is bettered in at most so many parts at a time, in so many
/// rounds, and until two of them in turn save no more than this part of it.
const MOST_PARTS: usize = 16;
const ROUNDS_OF_PARTS: usize = 3;
const WORTH_A_ROUND: u64 = 256;

/// The first search may take this part of the limits, and so many branches in vain. Where it is not
/// enough, plans are divided by the layouts in which values are made, in so many strategies that
/// may be priced; and again when what is found then was bettered.
const PART_OF_A_QUICK_SEARCH: usize = 8;
const IN_VAIN_OF_A_QUICK_SEARCH: usize = 32;
const PRICED_AT_FIRST: usize = 500_000;
const PRICED_IN_THE_END: usize = 2_000_000;

/// What is asked of a search within memory.
#[derive(Clone, Copy)]
struct WithinMemory {
    /// Whether plans that leave room for their activations are looked for step by step.
    may_steer: bool,
    /// Only plans that take less are wanted, in picoseconds.
    below: Option<u64>,
}

fn is_proven(found: &Lowered) -> bool {
    found.optimality.status == Status::Proven
}

/// Whether it is worth while to look for a better plan, or for a better bound.
fn is_open(found: &Lowered) -> bool {
    !is_proven(found) && is_far(found)
}

/// Whether a plan is so far above its bound that a better one is worth looking for.
fn is_far(found: &Lowered) -> bool {
    let Optimality { cost, lower_bound, .. } = found.optimality;
    cost.0.saturating_sub(lower_bound.0) > lower_bound.0 / FAR_FROM_BOUND
}

/// The faster of two plans, with what is known of all plans.
pub(super) fn faster(best: Lowered, found: Lowered) -> Lowered {
    if found.optimality.cost >= best.optimality.cost {
        return best;
    }
    with_what_is_known(found, &best)
}

/// A plan with what is known of all plans, as another has it.
fn with_what_is_known(found: Lowered, other: &Lowered) -> Lowered {
    let cost = found.optimality.cost;
    Lowered { optimality: Optimality { cost, ..other.optimality.clone() }, ..found }
}

/// The faster of two plans, with the better bound, and with all else that the second search says.
fn with_longer_search(best: Lowered, found: Lowered) -> Lowered {
    if is_proven(&found) {
        return found;
    }
    let bound = best.optimality.lower_bound.max(found.optimality.lower_bound);
    let faster = if best.optimality.cost <= found.optimality.cost {
        with_what_is_known(best, &found)
    } else {
        found
    };
    bounded_by(faster, bound)
}

/// A plan than which none takes less than `bound`; it is proven where it takes no more.
pub(super) fn bounded_by(mut found: Lowered, bound: Picoseconds) -> Lowered {
    let Optimality { cost, lower_bound, status, proof, stopped_by, .. } = &mut found.optimality;
    *lower_bound = bound.min(*cost);
    if bound >= *cost {
        (*status, *proof, *stopped_by) = (Status::Proven, Some(Proof::Search), None);
    }
    found
}

/// A plan that was found in so much may take no more than this; one found in more hardly ever does.
fn far_above(enough: u64) -> u64 {
    enough.saturating_add(enough / 8)
}

/// Which of these parameters, the largest first, are held as they are stored: one, then more.
fn trials(open: &[ValueId]) -> impl Iterator<Item = &[ValueId]> {
    let few = open.len().min(FEW_PARAMETERS);
    let more = [SEVERAL_PARAMETERS, few].into_iter().filter(|count| *count > 1);
    let more = more.filter(|count| *count <= SEVERAL_PARAMETERS || *count == open.len());
    let mut more: Vec<&[ValueId]> = more.filter_map(|count| open.get(..count)).collect();
    more.dedup();
    open[..few].chunks(1).chain(more)
}

/// What is known of the plans of a program when it is asked which of them fit.
pub(crate) struct Fitting<'a> {
    pub(crate) program: &'a Program,
    pub(crate) hardware: &'a Hardware,
    pub(crate) options: &'a LowerOptions,
    /// The fastest of all plans.
    pub(crate) fastest: &'a Lowered,
}

impl Fitting<'_> {
    /// The best plan that was found in the memory of the chip, in which the fastest has no room.
    pub(super) fn best(&self) -> Result<Lowered, LowerError> {
        if !self.options.limits.trials {
            return self.found();
        }
        let part = self.options.limits.part(PART_OF_A_QUICK_SEARCH);
        let quick = Limits { branches_in_vain: IN_VAIN_OF_A_QUICK_SEARCH, ..part };
        let (mut best, was_short) = match self.searched(self.hardware, &quick) {
            Ok((found, None)) => (found, true),
            Ok((found, Some(limit))) => (self.of_many(found, limit)?, true),
            Err(LowerError::NoPlanFits { proven: false, .. }) => (self.found()?, false),
            Err(other) => return Err(other),
        };
        if !is_proven(&best) {
            best = self.divided(best, PRICED_AT_FIRST)?;
        }
        if is_open(&best) && was_short {
            best = match self.searched(self.hardware, &self.options.limits) {
                Ok((found, None)) => with_longer_search(best, found),
                Ok((found, Some(limit))) => with_longer_search(best, self.of_many(found, limit)?),
                Err(LowerError::NoPlanFits { .. } | LowerError::OutOfTime) => best,
                Err(other) => return Err(other),
            };
        }
        if is_open(&best) {
            best = self.bettered(best)?;
            // Of plans that take less than a better one there are fewer.
            best = self.divided(best, PRICED_IN_THE_END)?;
        }
        if self.options.limits.stop.is_time_up() && !is_proven(&best) {
            best.optimality.stopped_by = Some(TIME_LIMIT.to_owned());
        }
        Ok(best)
    }

    /// The best plan that fits and takes less time than `below`, in picoseconds: of these there are
    /// fewer.
    pub(super) fn less_than(&self, below: u64) -> Result<Lowered, LowerError> {
        let asked = WithinMemory { may_steer: true, below: Some(below) };
        self.within(self.hardware, self.hardware.hbm_bytes, &self.options.limits, asked)
    }

    /// A plan that a limit ended with, or a faster one that fits in less or stores some parameters
    /// as it does: of these there are fewer, and their search may come to an end.
    fn bettered(&self, found: Lowered) -> Result<Lowered, LowerError> {
        let mut best = self.bettered_in_parts(found)?;
        // The first plan found in less memory fits, too. It is bettered with all memory that there
        // is: plans are found in less that are passed over in more.
        for (n, sixteenths) in SPARE_SIXTEENTHS.into_iter().enumerate() {
            if !is_far(&best) {
                break;
            }
            let bytes = self.spare_sixteenths(self.hardware.hbm_bytes, sixteenths);
            let asked = WithinMemory { may_steer: n < STEERED, below: None };
            let limits = self.options.limits.part(PART_OF_A_TRIAL);
            match self.within(self.hardware, bytes, &limits, asked) {
                Ok(start) => {
                    let start = with_what_is_known(start, &best);
                    best = faster(best, self.bettered_in_parts(start)?);
                    break;
                }
                Err(LowerError::Unreachable { .. } | LowerError::Limit { .. }) => {}
                Err(LowerError::OutOfTime) => break,
                Err(other) => return Err(other),
            }
        }
        let open = open_parameters(self.program, &best.plan);
        let (mut proven_with, of_parts) = (Vec::new(), best.optimality.cost);
        for stored in trials(&open) {
            // With more of them stored so there are fewer plans.
            if stored.len() > 1 && !proven_with.is_empty() {
                break;
            }
            let before = best.optimality.cost;
            let ended;
            (best, ended) = self.tried(best, stored)?;
            if best.optimality.cost < before {
                proven_with.clear();
            }
            if ended && proven_with.is_empty() {
                proven_with = stored.to_vec();
            }
        }
        if best.optimality.cost < of_parts {
            best = self.bettered_in_parts(best)?;
            proven_with.clear();
        }
        Ok(Lowered { proven_with: Some(proven_with), ..best })
    }

    /// The best plan so far, or a faster one that stores most parameters as it does: a half of them
    /// is left open, then the other half, then quarters and less. Where many are alike, prices say
    /// the same of all of them, while memory has room for some. Such searches are short.
    fn bettered_in_parts(&self, mut best: Lowered) -> Result<Lowered, LowerError> {
        let mut open = open_parameters(self.program, &best.plan);
        open.sort_unstable();
        // What stands together, then what is alike.
        let mut in_vain = 0;
        for round in 0..ROUNDS_OF_PARTS {
            let before = best.optimality.cost;
            let mut count = 2;
            while count <= MOST_PARTS.min(open.len()) {
                for part in 0..count {
                    let is_kept = |at: usize| match round % 2 {
                        0 => at * count / open.len() != part,
                        _ => at % count != part,
                    };
                    let kept = open.iter().enumerate().filter(|(at, _)| is_kept(*at));
                    let kept: Vec<ValueId> = kept.map(|(_, id)| *id).collect();
                    best = self.tried(best, &kept)?.0;
                }
                count *= 2;
            }
            let saved = before.0.saturating_sub(best.optimality.cost.0);
            in_vain = if saved > before.0 / WORTH_A_ROUND { 0 } else { in_vain + 1 };
            if in_vain == 2 {
                break;
            }
        }
        Ok(best)
    }

    /// The best plan so far, or a faster one that a short search finds among those that store some
    /// parameters as it does, and whether that search left nothing out; what is known of all plans
    /// stays.
    fn tried(&self, best: Lowered, stored: &[ValueId]) -> Result<(Lowered, bool), LowerError> {
        let program = stored_as_in(self.program, &best.plan, stored);
        let part = self.options.limits.part(PART_OF_A_TRIAL);
        let limits = Limits { time_alone: true, ..part };
        let asked = WithinMemory { may_steer: false, below: Some(best.optimality.cost.0) };
        let fitting = Fitting { program: &program, ..*self };
        match fitting.within(self.hardware, self.hardware.hbm_bytes, &limits, asked) {
            Ok(found) => {
                let ended = found.optimality.status == Status::Proven;
                Ok((faster(best, found), ended))
            }
            Err(LowerError::Unreachable { .. }) => Ok((best, true)),
            Err(LowerError::Limit { .. } | LowerError::OutOfTime) => Ok((best, false)),
            Err(other) => Err(other),
        }
    }

    /// The memory in which so many sixteenths are free of what is free beside the smallest weights
    /// and caches.
    fn spare_sixteenths(&self, capacity: u64, sixteenths: u64) -> u64 {
        let least = DeviceMemory::new(self.program, capacity).least();
        least + capacity.saturating_sub(least) / 16 * sixteenths
    }

    fn found(&self) -> Result<Lowered, LowerError> {
        let missed = match self.searched(self.hardware, &self.options.limits) {
            Ok((found, None)) => return Ok(found),
            Ok((found, Some(limit))) => return self.of_many(found, limit),
            Err(missed @ LowerError::NoPlanFits { proven: false, .. }) => missed,
            Err(other) => return Err(other),
        };
        // What fits in less fits: where the smallest plan known has room, there is one.
        let capacity = self.hardware.hbm_bytes;
        let small = self.descended(Some(capacity), self.options.limits.descents)?.lowered;
        let small = small.filter(|found| needed(&found.plan) <= capacity);
        let found = match small {
            None => self.found_in_more(capacity, &self.options.limits)?,
            found => found,
        };
        self.of_many(found.ok_or(missed)?, MEMORY_LIMIT)
    }

    /// A plan that fits in so much memory, found as if there were more.
    fn found_in_more(&self, bytes: u64, limits: &Limits) -> Result<Option<Lowered>, LowerError> {
        for eighths in MORE_EIGHTHS {
            let mut larger = self.hardware.clone();
            larger.hbm_bytes = bytes.saturating_add(bytes / 8 * eighths);
            match self.searched(&larger, &limits.part(PART_OF_A_SHARE)) {
                Ok((found, _)) if needed(&found.plan) <= bytes => return Ok(Some(found)),
                Ok(_) | Err(LowerError::NoPlanFits { .. } | LowerError::Limit { .. }) => {}
                Err(LowerError::OutOfTime) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    /// The plan of least memory that was found.
    pub(crate) fn smallest(&self) -> Result<Smallest, LowerError> {
        self.descended(None, SEARCHES)
    }

    /// Plans of less and less memory; where so much is `enough`, down to the first that takes no
    /// more, or until none is found in far more.
    fn descended(&self, enough: Option<u64>, searches: usize) -> Result<Smallest, LowerError> {
        let peak = |lowered: &Option<Lowered>| {
            needed(lowered.as_ref().map_or(&self.fastest.plan, |lowered| &lowered.plan))
        };
        // No plan needs less than `least`; none was found in less than `low`.
        let mut least = DeviceMemory::new(self.program, 0).needed();
        let (mut low, mut best) = (least, None);
        let limits = self.options.limits.part(PART_OF_LIMITS);
        for _ in 0..searches {
            let most = peak(&best);
            let left = most.saturating_sub(low);
            let bytes = match left {
                0 => break,
                _ if enough.is_some_and(|enough| most <= enough || low > far_above(enough)) => {
                    break;
                }
                _ if left > most / FINE => low + left / 2,
                _ => most - 1,
            };
            let mut smaller = self.hardware.clone();
            smaller.hbm_bytes = bytes;
            match self.searched(&smaller, &limits) {
                Ok((found, None)) => best = Some(found),
                Ok((mut found, Some(_))) => {
                    found.optimality.status = Status::Bounded;
                    best = Some(found);
                }
                Err(LowerError::NoPlanFits { proven: false, .. }) => {
                    // Of the last question all is to be tried.
                    let last = bytes + 1 == most;
                    match last.then(|| self.found_in_more(bytes, &limits)).transpose()?.flatten() {
                        Some(mut found) => {
                            found.optimality.status = Status::Bounded;
                            best = Some(found);
                        }
                        None => low = bytes + 1,
                    }
                }
                Err(LowerError::NoPlanFits { .. }) => {
                    low = bytes + 1;
                    least = low;
                }
                // The plan that is known stands, and so does what was proven.
                Err(LowerError::OutOfTime | LowerError::Limit { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        Ok(Smallest { lowered: best, least })
    }

    /// The fastest plan in the memory of a chip; with a limit where that ended the search of all
    /// and the plan is the best of those that leave a share of what is free.
    fn searched(
        &self,
        hardware: &Hardware,
        limits: &Limits,
    ) -> Result<(Lowered, Option<&'static str>), LowerError> {
        let (program, fastest, capacity) = (self.program, self.fastest, hardware.hbm_bytes);
        let least = DeviceMemory::new(program, capacity).least();
        let none =
            |proven| LowerError::NoPlanFits { plan: Box::new(fastest.plan.clone()), least, proven };
        if least > capacity {
            return Err(none(true));
        }
        let within = |bytes, limits, may_steer| {
            self.within(hardware, bytes, limits, WithinMemory { may_steer, below: None })
        };
        match within(capacity, limits, true) {
            // Nothing was passed over: what was left out of the space has no room in any plan.
            Err(LowerError::Unreachable { .. }) => Err(none(true)),
            Err(LowerError::Limit { limit, .. }) => {
                // With less memory there are fewer plans to pass over, and what fits in less fits.
                let fewer = limits.part(PART_OF_A_SHARE);
                for (n, sixteenths) in SPARE_SIXTEENTHS.into_iter().enumerate() {
                    let bytes = self.spare_sixteenths(capacity, sixteenths);
                    match within(bytes, &fewer, n < STEERED) {
                        Ok(found) => return Ok((found, Some(limit))),
                        Err(LowerError::Limit { .. } | LowerError::Unreachable { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
                Err(none(false))
            }
            Err(other) => Err(other),
            Ok(mut found) => {
                // There may be as many that tie as there are ways of filling the memory.
                found.optimality.ties_cut = true;
                Ok((found, None))
            }
        }
    }

    /// The fastest plan that fits in so many bytes of a chip.
    fn within(
        &self,
        hardware: &Hardware,
        bytes: u64,
        limits: &Limits,
        WithinMemory { may_steer, below }: WithinMemory,
    ) -> Result<Lowered, LowerError> {
        let lowering = Lowering::asked(self.program, hardware, self.options);
        let strict = lowering.strict;
        let lowering = Lowering {
            capacity: Some(bytes),
            like: &KnownForms::of(&self.fastest.remembered),
            activations: Memory::of(&self.fastest.plan).activations.0,
            limits,
            may_steer,
            below: below.or(lowering.below),
            ..lowering
        };
        lowering.run(self.program, strict)
    }

    /// A plan that was found among some of those that fit: a limit ended the search of all.
    fn of_many(&self, mut found: Lowered, limit: &str) -> Result<Lowered, LowerError> {
        let bound = self.bound_within()?.max(self.fastest.optimality.lower_bound);
        let known = &mut found.optimality;
        known.status = Status::Bounded;
        known.proof = None;
        known.lower_bound = bound.min(known.cost);
        known.price_bound = Some(known.lower_bound);
        known.stopped_by = Some(limit.to_owned());
        Ok(found)
    }

    /// What prices say that any plan takes that fits, one of which is known; nothing where a limit
    /// ends them.
    fn bound_within(&self) -> Result<Picoseconds, LowerError> {
        match lower_bound(self.program, self.hardware, self.options) {
            Ok(found) if found.none_fits => {
                Err(LowerError::Internal("a plan fits of which prices say that none does".into()))
            }
            Ok(found) => Ok(found.time),
            Err(LowerError::Limit { .. } | LowerError::OutOfTime) => Ok(Picoseconds(0)),
            Err(other) => Err(other),
        }
    }
}
