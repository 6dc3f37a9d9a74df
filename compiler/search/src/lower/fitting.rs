//! The fastest plan that fits in the memory of a device, where the fastest of all plans does not
//! fit; and the plan of least memory.

use shard_cost::{Hardware, Memory};
use shard_ir::{Picoseconds, Program, ValueId};

use super::{KnownForms, Lowering};
use crate::bound_only::lower_bound;
use crate::memory::{DeviceMemory, needed};
use crate::stored::{open_parameters, stored_as_in};
use crate::{
    Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, SearchLimit, Smallest, Status,
};

/// Where no plan was found in the memory of a device, smaller memories are searched: of what is
/// free beside the smallest weights and caches, they have so many sixteenths. What fits in less
/// fits, and a plan may be found in less memory that is passed over in more.
const SPARE_SIXTEENTHS: [u64; 6] = [15, 13, 11, 8, 4, 2];

/// In how many of these memories, the largest, the search may be steered.
const STEERED: usize = 2;

/// Each search of a smaller or larger memory may take this part of the limits.
const PART_OF_A_SHARE: usize = 4;

/// Where nothing is found in smaller memories, memories that are so many eighths larger are
/// searched: a plan that is found there may need no more than there is.
const MORE_EIGHTHS: [u64; 2] = [1, 2];

/// How many searches look for the plan of least memory. They halve what is left to save.
const SEARCHES: usize = 12;

/// Once no more than this part of the memory is left to save, one byte less than the smallest plan
/// takes is searched instead.
const FINE: u64 = 128;

/// Each of these searches may take this part of the limits. Those that find nothing take longest.
const PART_OF_LIMITS: usize = 20;

/// A plan is bettered if it exceeds its bound by more than this part of the bound.
const FAR_FROM_BOUND: u64 = 1000;

/// How many parameters, the largest, are held as the plan stores them, one in each trial.
const FEW_PARAMETERS: usize = 8;

/// How many parameters, the largest, are then held together.
const SEVERAL_PARAMETERS: usize = 4;

/// Each trial may take this part of the limits.
const PART_OF_A_TRIAL: usize = 16;

/// Into how many parts at most the parameters are divided, each of which is left open in turn.
pub(super) const MOST_PARTS: usize = 16;

/// How many rounds of such parts there are at most.
const ROUNDS_OF_PARTS: usize = 3;

/// The rounds end once two in turn have saved no more than this part of the time.
const WORTH_A_ROUND: u64 = 256;

/// The first search may take this part of the limits.
const PART_OF_A_QUICK_SEARCH: usize = 8;

/// The first search may look at so many branches without progress.
const IN_VAIN_OF_A_QUICK_SEARCH: usize = 32;

/// How many strategies may be priced where plans are divided by layouts after the first search.
const PRICED_AT_FIRST: usize = 500_000;

/// How many strategies may be priced where they are divided again after the plan was bettered.
const PRICED_IN_THE_END: usize = 2_000_000;

/// What is asked of a search within memory.
#[derive(Clone, Copy)]
pub(super) struct WithinMemory {
    /// Whether the search may be steered towards plans that leave room for their activations.
    pub(super) may_steer: bool,
    /// Only plans that take less than this are wanted, in picoseconds.
    pub(super) below: Option<u64>,
}

fn is_proven(found: &Lowered) -> bool {
    found.optimality.status == Status::Proven
}

/// Whether a better plan or a better bound is worth looking for.
fn is_open(found: &Lowered) -> bool {
    !is_proven(found) && is_far(found)
}

/// Whether a plan is so far above its bound that a better one is worth looking for.
fn is_far(found: &Lowered) -> bool {
    let Optimality { cost, lower_bound, .. } = found.optimality;
    cost.0.saturating_sub(lower_bound.0) > lower_bound.0 / FAR_FROM_BOUND
}

/// The faster of two plans, with the bound on all plans that `best` has.
pub(super) fn faster(best: Lowered, found: Lowered) -> Lowered {
    if found.optimality.cost >= best.optimality.cost {
        return best;
    }
    with_what_is_known(found, &best)
}

/// A plan with the bound on all plans that another one has.
fn with_what_is_known(found: Lowered, other: &Lowered) -> Lowered {
    let cost = found.optimality.cost;
    Lowered { optimality: Optimality { cost, ..other.optimality.clone() }, ..found }
}

/// The faster of two plans, with the better bound, and with all else that the second search showed.
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

/// A plan with a lower bound on all plans. The plan is proven if it takes no more than the bound.
pub(super) fn bounded_by(mut found: Lowered, bound: Picoseconds) -> Lowered {
    let Optimality { cost, lower_bound, status, proof, stopped_by, .. } = &mut found.optimality;
    *lower_bound = bound.min(*cost);
    if bound >= *cost {
        (*status, *proof, *stopped_by) = (Status::Proven, Some(Proof::Search), None);
    }
    found
}

/// The memory in which a search may still find a plan of at most `enough` bytes; in more it hardly
/// ever does.
fn far_above(enough: u64) -> u64 {
    enough.saturating_add(enough / 8)
}

/// The sets of parameters that trials hold as they are stored, given all parameters that are open,
/// the largest first: first each of a few alone, then the largest together, then all if they are
/// few.
fn trials(open: &[ValueId]) -> impl Iterator<Item = &[ValueId]> {
    let few = open.len().min(FEW_PARAMETERS);
    let more = [SEVERAL_PARAMETERS, few].into_iter().filter(|count| *count > 1);
    let more = more.filter(|count| *count <= SEVERAL_PARAMETERS || *count == open.len());
    let mut more: Vec<&[ValueId]> = more.filter_map(|count| open.get(..count)).collect();
    more.dedup();
    open[..few].chunks(1).chain(more)
}

/// The part in which the parameter number `at` is, where so many parameters are divided into
/// `parts` of neighbours.
pub(super) fn part_of(at: usize, parameters: usize, parts: usize) -> usize {
    at * parts / parameters
}

/// A program whose fastest plan is known and does not fit, or is to take less memory.
pub(crate) struct Fitting<'a> {
    pub(crate) program: &'a Program,
    pub(crate) hardware: &'a Hardware,
    pub(crate) options: &'a LowerOptions,
    /// The fastest of all plans.
    pub(crate) fastest: &'a Lowered,
}

impl Fitting<'_> {
    /// The best plan that fits in the memory of the chip, as far as searches find it.
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
            // There are fewer plans that take less than the better one.
            best = self.divided(best, PRICED_IN_THE_END)?;
        }
        if self.options.limits.stop.is_time_up() && !is_proven(&best) {
            best.optimality.stopped_by = Some(SearchLimit::Time);
        }
        Ok(best)
    }

    /// The best plan that fits and takes less than `below` picoseconds.
    pub(super) fn less_than(&self, below: u64) -> Result<Lowered, LowerError> {
        let asked = WithinMemory { may_steer: true, below: Some(below) };
        self.within(self.hardware, self.hardware.hbm_bytes, &self.options.limits, asked)
    }

    /// The plan that a limit ended the search with, or a faster one. Plans are searched that fit in
    /// less memory, or that store some parameters as the plan does: there are fewer of these, so
    /// that their search may come to an end.
    fn bettered(&self, found: Lowered) -> Result<Lowered, LowerError> {
        let mut best = self.bettered_in_parts(found)?;
        // The first plan that is found in less memory is bettered in all the memory.
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
            // A search that holds more of them would come to an end as well.
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

    /// The best plan so far, or a faster one that stores most parameters as it does. One half of
    /// the parameters is left open, then the other half, then each quarter, and so on. Where many
    /// parameters are alike, prices say the same of all, but memory has room for some. Searches
    /// with most parameters held are short.
    fn bettered_in_parts(&self, mut best: Lowered) -> Result<Lowered, LowerError> {
        let mut open = open_parameters(self.program, &best.plan);
        open.sort_unstable();
        // Parts are neighbours in even rounds. In odd rounds they are parameters at equal
        // distances, which are alike in a program of many like layers.
        let mut in_vain = 0;
        for round in 0..ROUNDS_OF_PARTS {
            let before = best.optimality.cost;
            let mut count = 2;
            while count <= MOST_PARTS.min(open.len()) {
                for part in 0..count {
                    let is_kept = |at: usize| match round % 2 {
                        0 => part_of(at, open.len(), count) != part,
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
    /// parameters as it does; and whether that search left nothing out. The bound on all plans
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

    /// A memory that has, of what is free beside the smallest weights and caches, so many
    /// sixteenths.
    fn spare_sixteenths(&self, capacity: u64, sixteenths: u64) -> u64 {
        let least = DeviceMemory::new(self.program, capacity).least();
        least + capacity.saturating_sub(least) / 16 * sixteenths
    }

    /// A plan that fits, searched for in the memory that there is, in less and in more.
    fn found(&self) -> Result<Lowered, LowerError> {
        let missed = match self.searched(self.hardware, &self.options.limits) {
            Ok((found, None)) => return Ok(found),
            Ok((found, Some(limit))) => return self.of_many(found, limit),
            Err(missed @ LowerError::NoPlanFits { proven: false, .. }) => missed,
            Err(other) => return Err(other),
        };
        // The smallest plan that is found may fit.
        let capacity = self.hardware.hbm_bytes;
        let small = self.descended(Some(capacity), self.options.limits.descents)?.lowered;
        let small = small.filter(|found| needed(&found.plan) <= capacity);
        let found = match small {
            None => self.found_in_more(capacity, &self.options.limits)?,
            found => found,
        };
        self.of_many(found.ok_or(missed)?, SearchLimit::Memory)
    }

    /// A plan that fits in so many bytes, searched for in larger memories.
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

    /// Searches for plans of less and less memory. With `enough` it ends at the first plan that
    /// takes no more than that, and once no plan is found in far more.
    fn descended(&self, enough: Option<u64>, searches: usize) -> Result<Smallest, LowerError> {
        // No plan needs less than `least`; none was found in less than `low`.
        let mut least = DeviceMemory::new(self.program, 0).needed();
        let (mut low, mut best) = (least, None);
        let limits = self.options.limits.part(PART_OF_LIMITS);
        for _ in 0..searches {
            let most = self.peak(&best);
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
                    // Larger memories are tried too where this is the last search.
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
                // The plan that is known and what was proven are kept.
                Err(LowerError::OutOfTime | LowerError::Limit { .. }) => break,
                Err(other) => return Err(other),
            }
        }
        let best = self.smaller_in_parts(best, least, enough)?;
        Ok(Smallest { lowered: best, least })
    }

    /// The fastest plan in the memory of a chip. Where a limit ended that search, the fastest plan
    /// in a smaller memory, with the limit.
    fn searched(
        &self,
        hardware: &Hardware,
        limits: &Limits,
    ) -> Result<(Lowered, Option<SearchLimit>), LowerError> {
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
            // No plan was passed over, and what was left out of the plan space is in no plan that
            // fits.
            Err(LowerError::Unreachable { .. }) => Err(none(true)),
            Err(LowerError::Limit { limit, .. }) => {
                // With less memory there are fewer plans to pass over.
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
                // Ties within memory are not compared.
                found.optimality.ties_cut = true;
                Ok((found, None))
            }
        }
    }

    /// The fastest plan that fits in so many bytes of a chip.
    pub(super) fn within(
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

    /// A plan that is the best of some of those that fit, since a limit ended the search of all.
    fn of_many(&self, mut found: Lowered, limit: SearchLimit) -> Result<Lowered, LowerError> {
        let bound = self.bound_within()?.max(self.fastest.optimality.lower_bound);
        let known = &mut found.optimality;
        known.status = Status::Bounded;
        known.proof = None;
        known.lower_bound = bound.min(known.cost);
        known.price_bound = Some(known.lower_bound);
        known.stopped_by = Some(limit);
        Ok(found)
    }

    /// The bound by prices on the plans that fit, of which one is known; 0 where a limit is
    /// reached.
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
