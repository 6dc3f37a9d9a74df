//! Stored layouts for all phases where the fastest plans do not fit in memory.

use std::collections::BTreeMap;

use shard_cost::Memory;
use shard_ir::{Layout, Picoseconds, Plan, Program, ValueId, never};

use super::side_by_side::side_by_side;
use super::{Phases, Request, StoredLayouts, sum};
use crate::lower::{fitting, lower_phases};
use crate::memory::{DeviceMemory, Scopes, needed};
use crate::stored::{stored, with_stored};
use crate::{LowerError, LowerOptions, Lowered, Optimality, Proof, SearchLimit, Status, lower};

/// How often layouts are looked for that leave the phases room for their activations.
const TRIES: usize = 3;

/// Each of these tries may take this part of the e-nodes, states and branches of a whole search.
const PART_OF_A_TRY: usize = 4;

/// A request that exceeds its bound by no more than this part of the bound is not compared with
/// others.
const NEAR: u64 = 256;

impl Phases<'_> {
    /// The best of all phases side by side within the memory of a device, given the fastest plan of
    /// each phase and its best that fits, `own`. Where no layouts were found under which all phases
    /// have a plan, the error says so.
    pub(super) fn best_within_memory(
        &self,
        fastest: &[Lowered],
        own: &[Lowered],
    ) -> Result<StoredLayouts, LowerError> {
        // A request takes no less than all phases, each by itself.
        let alone = sum(self.programs, own);
        let known = self.fastest_that_fits(own, alone.cost)?;
        if let Some((layouts, _)) = known.as_ref().filter(|(_, cost)| *cost == alone.cost) {
            return Ok(StoredLayouts { layouts: layouts.clone(), request: alone, plans: None });
        }
        let joint = side_by_side(self.programs, self.free);
        let capacity = self.hardware.hbm_bytes;
        // The least that activations take in any plan is not known, so the bound counts them as
        // nothing.
        let below = known.as_ref().map(|(_, cost)| cost.0.saturating_add(1));
        let most = match self.lowered_within(&joint, |_| capacity, self.options, below) {
            Ok(lowered) => Some(lowered),
            // No layouts fit in every phase.
            Err(LowerError::Unreachable { .. }) if known.is_none() => {
                return Err(self.none_fits(fastest, true));
            }
            Err(LowerError::OutOfTime) if known.is_some() => None,
            Err(error) => passed_over(error).map(|()| None)?,
        };
        let bound = most.as_ref().map(|lowered| lowered.optimality.clone());
        let least =
            bound.as_ref().map_or(alone.lower_bound, |b| b.lower_bound.max(alone.lower_bound));
        let is_near = |cost: Picoseconds| cost.0 <= least.0.saturating_add(least.0 / NEAR);
        let is_least = known.as_ref().is_some_and(|(_, cost)| *cost == least);
        let found = match most {
            Some(most) if !is_least => self.leaving_room(&joint, most, own, known, is_near)?,
            _ => known,
        };
        // To search the other phases with the layouts of one takes long where these do not fit.
        let best = match &found {
            Some((_, cost)) if is_near(*cost) => None,
            found => match self.best_of_own(own, own, SearchLimit::Memory) {
                Ok(best) => Some((best.layouts, best.request.cost)),
                Err(LowerError::OutOfTime) if found.is_some() => None,
                Err(error) => passed_over(error).map(|()| None)?,
            },
        };
        let (layouts, cost) = best
            .into_iter()
            .chain(found)
            .min_by_key(|(_, cost)| *cost)
            .ok_or_else(|| self.none_fits(fastest, false))?;
        let proven = cost == least;
        // A bound from the phases by themselves is proven by search.
        let by_prices = bound.as_ref().filter(|bound| bound.lower_bound == least);
        let proof = by_prices.and_then(|bound| bound.proof).unwrap_or(Proof::Search);
        let price_bound = bound.as_ref().and_then(|bound| bound.price_bound);
        let is_late = self.options.limits.stop.is_time_up();
        let limit = if is_late { SearchLimit::Time } else { SearchLimit::Memory };
        Ok(StoredLayouts {
            layouts,
            request: Optimality {
                status: if proven { Status::Proven } else { Status::Bounded },
                proof: proven.then_some(proof),
                cost,
                lower_bound: least.min(cost),
                price_bound: price_bound.map(|bound| bound.min(cost)),
                stopped_by: (!proven).then_some(limit),
                ties_cut: bound.is_some_and(|bound| bound.ties_cut),
            },
            plans: None,
        })
    }

    /// The best layouts among those that one phase would have by itself, where the fastest plan of
    /// each phase fits with them; and the time of a request, which is `alone` at best, the time of
    /// all phases by themselves. This takes a fraction of a search of all phases side by side.
    fn fastest_that_fits(
        &self,
        own: &[Lowered],
        alone: Picoseconds,
    ) -> Result<Option<(Vec<Layout>, Picoseconds)>, LowerError> {
        let capacity = self.hardware.hbm_bytes;
        let any_size = LowerOptions { any_size: true, ..self.options.clone() };
        let of_any_size = Phases { options: &any_size, ..*self };
        let mut best: Option<(Vec<Layout>, Picoseconds)> = None;
        for phase in own {
            let below = best.as_ref().map_or(u64::MAX, |(_, cost)| cost.0);
            if below == alone.0 {
                break;
            }
            let layouts = stored(&phase.plan, self.free);
            let has_room = |program: &&Program| {
                let under = with_stored(program, self.free, &layouts);
                DeviceMemory::new(&under, capacity).least() <= capacity
            };
            if !self.programs.iter().all(has_room) {
                continue;
            }
            match of_any_size.under_below(&layouts, own, below) {
                // A plan of any size may take less than the best plan that fits, so fit is asked
                // for.
                Ok(Some(phases)) if phases.iter().all(|p| needed(&p.plan) <= capacity) => {
                    best = Some((layouts, sum(self.programs, &phases).cost));
                }
                Ok(_) => {}
                Err(error) => passed_over(error)?,
            }
        }
        Ok(best)
    }

    /// The best plan of all phases side by side whose weights and caches take at most `most` bytes
    /// in each phase, among the plans that take less than `below` picoseconds.
    fn lowered_within(
        &self,
        joint: &Program,
        most: impl Fn(usize) -> u64,
        options: &LowerOptions,
        below: Option<u64>,
    ) -> Result<Lowered, LowerError> {
        let scopes = scopes(self.programs, self.free, most);
        lower_phases(joint, self.hardware, options, &scopes, below)
    }

    /// The best layouts if room is left for the activations of each phase, and the time of a
    /// request; `known` where they are not better. The room left is what the activations of the
    /// phase take by itself at first, and then what they take in its plan under the layouts found
    /// before. `most` is the best plan side by side where no room is left.
    fn leaving_room(
        &self,
        joint: &Program,
        most: Lowered,
        own: &[Lowered],
        known: Option<(Vec<Layout>, Picoseconds)>,
        is_near: impl Fn(Picoseconds) -> bool,
    ) -> Result<Option<(Vec<Layout>, Picoseconds)>, LowerError> {
        let capacity = self.hardware.hbm_bytes;
        let activations = |phase: &Lowered| Memory::of(&phase.plan).activations.0;
        let mut left: Vec<u64> = own.iter().map(activations).collect();
        let (mut best, mut most) = (known, Some(most));
        let take = |layouts: &[Layout], phases: &[Lowered], best: &mut Option<_>| {
            let cost = sum(self.programs, phases).cost;
            if best.as_ref().is_none_or(|(_, known)| cost < *known) {
                *best = Some((layouts.to_vec(), cost));
            }
        };
        // Layouts with which the fastest plan of some phase does not fit, and these plans.
        let mut lacking: Vec<(Vec<Layout>, Vec<Lowered>)> = Vec::new();
        // The bound is known already, and good layouts are found early.
        let limits = self.options.limits.part(PART_OF_A_TRY);
        let shorter = LowerOptions { limits, ..self.options.clone() };
        for _ in 0..TRIES {
            let kept = |phase: usize| capacity.saturating_sub(left[phase]);
            // A plan that is the best of more plans is the best of these, if it is one of them.
            let below = best.as_ref().map(|(_, cost)| cost.0);
            let found = match most.take().filter(|plan| self.keeps(joint, &plan.plan, kept)) {
                Some(found) => Ok(found),
                None => self.lowered_within(joint, kept, &shorter, below),
            };
            let found = match found {
                Ok(found) => found,
                Err(LowerError::OutOfTime) if best.is_some() => return Ok(best),
                Err(error) => {
                    passed_over(error)?;
                    break;
                }
            };
            let order: Vec<ValueId> = (0..self.free.len() as u32).map(ValueId).collect();
            let layouts = stored(&found.plan, &order);
            let any_size = LowerOptions { any_size: true, ..self.options.clone() };
            let Some(fastest) = self.all_under(&layouts, &any_size)? else { break };
            let lacks = |phase: &&Lowered| needed(&phase.plan) > capacity;
            if !fastest.iter().any(|phase| lacks(&phase)) {
                take(&layouts, &fastest, &mut best);
                break;
            }
            let before = left.clone();
            for (left, phase) in left.iter_mut().zip(&fastest) {
                *left = if lacks(&phase) { activations(phase).max(*left) } else { *left };
            }
            lacking.push((layouts, fastest));
            if left == before {
                break;
            }
        }
        // Plans that fit are searched last for these layouts: that takes longest, mostly in vain.
        for (layouts, fastest) in lacking {
            if best.as_ref().is_some_and(|(_, cost)| is_near(*cost)) {
                break;
            }
            let below = best.as_ref().map(|(_, cost)| cost.0);
            match self.fitting_under(&layouts, &fastest, below) {
                Ok(Some(phases)) => take(&layouts, &phases, &mut best),
                Ok(None) => {}
                Err(LowerError::OutOfTime) if best.is_some() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(best)
    }

    /// Whether the weights and caches of a plan side by side take at most `most` bytes in each
    /// phase.
    fn keeps(&self, joint: &Program, plan: &Plan, most: impl Fn(usize) -> u64) -> bool {
        let scopes = scopes(self.programs, self.free, most);
        let memory = DeviceMemory::new(joint, self.hardware.hbm_bytes).within(Some(&scopes));
        // A plan has its parameters first, in the order of the program.
        let parameters = joint
            .parameters()
            .zip(plan.instructions.iter().map(|i| i.layout))
            .collect::<BTreeMap<ValueId, Layout>>();
        let kept = |id: &ValueId| parameters.get(id).map_or(0, |layout| memory.kept(*id, *layout));
        let fits = |(of, most): &(Vec<ValueId>, u64)| {
            of.iter().map(kept).fold(0, u64::saturating_add) <= *most
        };
        memory.memories().iter().all(fits)
    }

    /// The best plan of each phase with these stored layouts; `None` where a phase has none.
    fn all_under(
        &self,
        layouts: &[Layout],
        options: &LowerOptions,
    ) -> Result<Option<Vec<Lowered>>, LowerError> {
        let under = |program: &&Program| {
            lower(&with_stored(program, self.free, layouts), self.hardware, options)
        };
        match self.programs.iter().map(under).collect::<Result<_, _>>() {
            Ok(phases) => Ok(Some(phases)),
            Err(error) => passed_over(error).map(|()| None),
        }
    }

    /// The best plan that fits of each phase with these stored layouts, given its fastest; `None`
    /// where a request takes `below` picoseconds or more with them, or a phase has no plan that
    /// fits.
    fn fitting_under(
        &self,
        layouts: &[Layout],
        fastest: &[Lowered],
        below: Option<u64>,
    ) -> Result<Option<Vec<Lowered>>, LowerError> {
        let mut request = Request::of(self.programs, fastest);
        let mut phases = Vec::with_capacity(fastest.len());
        for (at, (program, fastest)) in self.programs.iter().zip(fastest).enumerate() {
            let left = below.map_or(u64::MAX, |below| request.left_for(at, below));
            if fastest.optimality.lower_bound.0 >= left {
                return Ok(None);
            }
            let program = with_stored(program, self.free, layouts);
            match fitting(&program, self.hardware, self.options, fastest.clone()) {
                Ok(found) => {
                    request.takes(at, found.optimality.cost);
                    phases.push(found);
                }
                Err(error) => return passed_over(error).map(|()| None),
            }
        }
        Ok(Some(phases))
    }

    /// The error that no plan fits. It is about the phase whose fastest plan needs most memory.
    fn none_fits(&self, fastest: &[Lowered], proven: bool) -> LowerError {
        let needs = |phase: &usize| needed(&fastest[*phase].plan);
        let most = (0..self.programs.len()).max_by_key(needs);
        let most = most.unwrap_or_else(|| never!("a layer without a phase", 0));
        let least = DeviceMemory::new(self.programs[most], self.hardware.hbm_bytes).least();
        LowerError::NoPlanFits { plan: Box::new(fastest[most].plan.clone()), least, proven }
    }
}

/// Passes over the error of a search that found nothing or reached a limit, so that other searches
/// can be made; fails with any other error.
fn passed_over(error: LowerError) -> Result<(), LowerError> {
    match error {
        LowerError::Unreachable { .. }
        | LowerError::Label(_)
        | LowerError::Strict { .. }
        | LowerError::NoPlanFits { .. }
        | LowerError::Limit { .. }
        | LowerError::TooLong(_) => Ok(()),
        LowerError::OutOfTime | LowerError::Stopped | LowerError::Internal(_) => Err(error),
    }
}

/// The memories of phases side by side ([`side_by_side`]), where weights and caches may take `most`
/// bytes in each phase.
fn scopes(programs: &[&Program], free: &[ValueId], most: impl Fn(usize) -> u64) -> Scopes {
    let own = programs.iter().enumerate().flat_map(|(phase, program)| {
        program.parameters().filter(|id| !free.contains(id)).map(move |_| Some(phase))
    });
    Scopes {
        of_parameter: free.iter().map(|_| None).chain(own).collect(),
        most: (0..programs.len()).map(most).collect(),
    }
}
