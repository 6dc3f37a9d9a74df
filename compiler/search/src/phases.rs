//! One stored layout for the weights of all phases.
//!
//! The phases of a layer are put side by side in one program, in which a weight whose layout is
//! free is one parameter that all of them read, and each step counts as often as a request takes
//! it. The best plan of that program is the best choice of stored layouts, with the proof that goes
//! with it; everything but the weights' layouts is forgotten again.

mod side_by_side;
mod within_memory;

use shard_cost::Hardware;
use shard_ir::{Def, Layout, Picoseconds, Program, ValueId};

use crate::lower::{KnownForms, fitting, lower_below};
use crate::memory::{DeviceMemory, needed};
use crate::stored::{is_open, stored, with_stored};
use crate::{
    Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, Status, TIME_LIMIT, lower,
};
use side_by_side::side_by_side;

/// The phases of a layer with their weights' layouts settled.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    /// The programs, one for each phase, every weight in the layout that is stored.
    pub programs: Vec<Program>,
    /// The weights whose layouts were free.
    pub weights: Vec<SharedWeight>,
    /// For each phase what a step of it would take if the weights were stored as it alone would
    /// have them: where memory is a constraint, in its best plan that fits.
    pub alone: Vec<Picoseconds>,
    /// What a request takes, and how far that is from the best choice of stored layouts.
    pub request: Optimality,
}

impl SharedWeights {
    /// What a request would take if each phase had its weights stored for it alone.
    pub fn request_alone(&self) -> Picoseconds {
        let terms =
            self.programs.iter().zip(&self.alone).map(|(p, time)| time.0.saturating_mul(steps(p)));
        Picoseconds(terms.fold(0, u64::saturating_add))
    }
}

/// The phases of a layer whose `free` weights are to be stored alike, and how they are lowered.
#[derive(Clone, Copy)]
struct Phases<'a> {
    programs: &'a [&'a Program],
    free: &'a [ValueId],
    hardware: &'a Hardware,
    options: &'a LowerOptions,
}

/// Layouts that free weights may be stored in.
struct StoredLayouts {
    layouts: Vec<Layout>,
    /// What a request takes with them, and how far that is from the best.
    request: Optimality,
    /// The best plan of each phase with them, where these are known.
    plans: Option<Vec<Lowered>>,
}

impl StoredLayouts {
    /// What each phase would have by itself, in these plans.
    fn of(programs: &[&Program], layouts: Vec<Layout>, plans: Vec<Lowered>) -> StoredLayouts {
        StoredLayouts { layouts, request: sum(programs, &plans), plans: Some(plans) }
    }

    /// The same where a limit ended the search for a better one.
    fn stopped_by(mut self, limit: &str) -> StoredLayouts {
        self.request.stopped_by = Some(limit.to_string());
        self
    }
}

/// A weight whose layout was free.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedWeight {
    /// The parameter, the same in all phases.
    pub value: ValueId,
    /// How it is stored.
    pub stored: Layout,
    /// How each phase alone would have it stored.
    pub alone: Vec<Layout>,
}

/// Chooses the stored layouts of the weights of a layer, given in each of its phases. `None` where
/// nothing is to choose.
///
/// ```text
/// minimise, over the stored layouts W,  sum over phases p of  steps(p) * time(best plan of p with weights stored as W)
/// ```
pub fn share_weights(
    programs: &[&Program],
    hardware: &Hardware,
    options: &LowerOptions,
) -> Result<Option<SharedWeights>, LowerError> {
    let Some(first) = programs.first() else { return Ok(None) };
    let free: Vec<ValueId> = first.value_ids().filter(|id| is_free_weight(first, *id)).collect();
    if programs.len() < 2 || free.is_empty() {
        return Ok(None);
    }
    let phases = Phases { programs, free: &free, hardware, options };
    // What each phase has room for is asked of the choice, and only then of the search.
    let any_size = LowerOptions { any_size: true, ..options.clone() };
    let of_any_size = Phases { options: &any_size, ..phases };
    let alone: Vec<Lowered> = programs
        .iter()
        .map(|program| lower(program, hardware, &any_size))
        .collect::<Result<_, _>>()?;
    let of_each = |phases: &[Lowered]| -> Vec<Vec<Layout>> {
        phases.iter().map(|lowered| stored(&lowered.plan, &free)).collect()
    };
    let own = of_each(&alone);
    let best = if own.iter().all(|layouts| *layouts == own[0]) {
        // What is best for each is best for all.
        StoredLayouts::of(programs, own[0].clone(), alone.clone())
    } else {
        match of_any_size.best_of_own(&alone, &alone, "phases") {
            // What one of them would have costs the others nothing: no choice is better.
            Ok(best) if best.request.status == Status::Proven => best,
            Ok(best) => of_any_size.best_of_all(Some(best))?,
            Err(LowerError::Unreachable { .. }) => of_any_size.best_of_all(None)?,
            Err(other) => return Err(other),
        }
    };
    let (StoredLayouts { layouts, request, .. }, alone) =
        if options.any_size || of_any_size.fit(&best, &alone)? {
            (best, alone)
        } else {
            // What each phase would have by itself is for comparison: it is not tried to better.
            let limits = Limits { trials: false, ..options.limits.clone() };
            let untried = LowerOptions { limits, ..options.clone() };
            let fit: Vec<Lowered> = programs
                .iter()
                .zip(&alone)
                .map(|(program, fastest)| fitting(program, hardware, &untried, fastest.clone()))
                .collect::<Result<_, _>>()?;
            let own = of_each(&fit);
            let best = if own.iter().all(|layouts| *layouts == own[0]) {
                StoredLayouts::of(programs, own[0].clone(), fit.clone())
            } else {
                phases.best_within_memory(&alone, &fit)?
            };
            (best, fit)
        };
    let own = of_each(&alone);
    let weights = free.iter().enumerate().map(|(i, value)| SharedWeight {
        value: *value,
        stored: layouts[i],
        alone: own.iter().map(|own| own[i]).collect(),
    });
    Ok(Some(SharedWeights {
        programs: programs.iter().map(|program| with_stored(program, &free, &layouts)).collect(),
        weights: weights.collect(),
        alone: alone.iter().map(|lowered| lowered.optimality.cost).collect(),
        request,
    }))
}

impl Phases<'_> {
    /// Whether the fastest plan of each phase with these layouts stored fits in the memory of a
    /// device: its weights and caches, and its activations beside them.
    fn fit(&self, best: &StoredLayouts, alone: &[Lowered]) -> Result<bool, LowerError> {
        let (layouts, capacity) = (&best.layouts, self.hardware.hbm_bytes);
        let has_room = |p: &&Program| {
            DeviceMemory::new(&with_stored(p, self.free, layouts), capacity).least() <= capacity
        };
        if !self.programs.iter().all(has_room) {
            return Ok(false);
        }
        let plans = match &best.plans {
            Some(plans) => plans.clone(),
            None => self.under(layouts, alone)?,
        };
        Ok(plans.iter().all(|phase| needed(&phase.plan) <= capacity))
    }

    /// The best plan of each phase with these layouts stored, given the best under layouts of its
    /// own, which is that plan where they are the same.
    fn under(&self, layouts: &[Layout], own: &[Lowered]) -> Result<Vec<Lowered>, LowerError> {
        let phase = |(program, own): (&&Program, &Lowered)| {
            if stored(&own.plan, self.free) == layouts {
                Ok(own.clone())
            } else {
                lower(&with_stored(program, self.free, layouts), self.hardware, self.options)
            }
        };
        self.programs.iter().zip(own).map(phase).collect()
    }

    /// The best plan of each phase with these layouts stored, if a request takes less than `below`,
    /// in picoseconds; given the best under layouts of its own, which no other layouts beat.
    fn under_below(
        &self,
        layouts: &[Layout],
        own: &[Lowered],
        below: u64,
    ) -> Result<Option<Vec<Lowered>>, LowerError> {
        // No phase takes less than under the layouts that it would have.
        let Phases { programs, free, hardware, options } = *self;
        let mut request = Request::of(programs, own);
        let mut phases = Vec::with_capacity(programs.len());
        for (at, (program, own)) in programs.iter().zip(own).enumerate() {
            let phase = if stored(&own.plan, free) == layouts {
                own.clone()
            } else {
                let program = with_stored(program, free, layouts);
                let below = request.left_for(at, below);
                match lower_below(
                    &program,
                    hardware,
                    options,
                    below,
                    &KnownForms::of(&own.remembered),
                ) {
                    Ok(Some(found)) => found,
                    Ok(None) => return Ok(None),
                    // It found no plan of so little time, nor that there is none: others may.
                    Err(LowerError::Limit { .. }) => lower(&program, hardware, options)?,
                    Err(other) => return Err(other),
                }
            };
            request.takes(at, phase.optimality.cost);
            phases.push(phase);
        }
        Ok((request.least() < below).then_some(phases))
    }

    /// The best stored layouts, found by a search over all phases at once; `known` are the best of
    /// those that a phase would have by itself, which stay where nothing is better or the search
    /// ends early.
    fn best_of_all(&self, known: Option<StoredLayouts>) -> Result<StoredLayouts, LowerError> {
        // All that takes no longer, so that the search finds these too, and says what is proven of
        // them.
        let below = known.as_ref().map_or(u64::MAX, |known| known.request.cost.0.saturating_add(1));
        let joint = side_by_side(self.programs, self.free);
        let limit =
            match lower_below(&joint, self.hardware, self.options, below, &KnownForms::default()) {
                Ok(Some(joint)) => {
                    let order: Vec<ValueId> = (0..self.free.len() as u32).map(ValueId).collect();
                    let layouts = stored(&joint.plan, &order);
                    let plans =
                        known.filter(|known| known.layouts == layouts).and_then(|k| k.plans);
                    return Ok(StoredLayouts { layouts, request: joint.optimality, plans });
                }
                Ok(None) | Err(LowerError::Unreachable { .. }) => None,
                Err(LowerError::Limit { limit, .. }) => Some(limit),
                Err(LowerError::OutOfTime) if known.is_some() => Some(TIME_LIMIT),
                Err(other) => return Err(other),
            };
        match (known, limit) {
            (Some(known), Some(limit)) => Ok(known.stopped_by(limit)),
            (Some(known), None) => Ok(known),
            // Each phase has a plan, so it is the common layout that is missing.
            (None, _) => Err(LowerError::Unreachable { value: Some(self.free[0]), output: None }),
        }
    }

    /// The best of the layouts that each phase would have, whose plans `own` are under the same
    /// options, and a bound from the fastest plans of all.
    fn best_of_own(
        &self,
        fastest: &[Lowered],
        own: &[Lowered],
        limit: &str,
    ) -> Result<StoredLayouts, LowerError> {
        let mut best: Option<(Vec<Layout>, Vec<Lowered>)> = None;
        let own_layouts: Vec<Vec<Layout>> =
            own.iter().map(|lowered| stored(&lowered.plan, self.free)).collect();
        for (i, layouts) in own_layouts.iter().enumerate() {
            // The same choice of two phases is one choice; a phase with its own layouts is as it is
            // alone.
            if own_layouts[..i].contains(layouts) {
                continue;
            }
            let found = match &best {
                None => self.under(layouts, own).map(Some),
                Some((_, phases)) => {
                    let least = sum(self.programs, phases).cost.0;
                    self.under_below(layouts, own, least)
                }
            };
            match found {
                Ok(None) => {}
                Ok(Some(phases)) => best = Some((layouts.clone(), phases)),
                Err(
                    LowerError::Unreachable { .. }
                    | LowerError::Label(_)
                    | LowerError::Strict { .. }
                    | LowerError::NoPlanFits { .. },
                ) => {}
                Err(other) => return Err(other),
            }
        }
        let (layouts, plans) =
            best.ok_or(LowerError::Unreachable { value: Some(self.free[0]), output: None })?;
        let cost = sum(self.programs, &plans).cost;
        let Optimality { lower_bound: bound, price_bound, .. } = sum(self.programs, fastest);
        let proven = cost == bound;
        let proof = if price_bound == Some(cost) { Proof::Certificate } else { Proof::Search };
        let request = Optimality {
            status: if proven { Status::Proven } else { Status::Bounded },
            proof: proven.then_some(proof),
            cost,
            lower_bound: bound,
            price_bound,
            stopped_by: (!proven).then(|| limit.to_string()),
            ties_cut: false,
        };
        Ok(StoredLayouts { layouts, request, plans: Some(plans) })
    }
}

/// What each phase of a request takes at least, in all its steps: in picoseconds.
struct Request(Vec<(u64, u64)>);

impl Request {
    /// With what is known of the plans of each phase.
    fn of(programs: &[&Program], known: &[Lowered]) -> Request {
        let phases = programs.iter().zip(known);
        let least = |known: &Lowered| known.optimality.lower_bound.0;
        Request(phases.map(|(program, known)| (steps(program), least(known))).collect())
    }

    /// A step of a phase takes so long.
    fn takes(&mut self, phase: usize, time: Picoseconds) {
        self.0[phase].1 = time.0;
    }

    fn least(&self) -> u64 {
        self.0.iter().fold(0, |sum, (steps, time)| sum.saturating_add(steps.saturating_mul(*time)))
    }

    /// What a step of a phase has to take less than so that the request takes less than `below`.
    fn left_for(&self, phase: usize, below: u64) -> u64 {
        let (steps, time) = self.0[phase];
        let others = self.least().saturating_sub(steps.saturating_mul(time));
        below.saturating_sub(others).div_ceil(steps.max(1))
    }
}

fn is_free_weight(program: &Program, id: ValueId) -> bool {
    let value = program.value(id);
    matches!(value.def, Def::Parameter { kind, .. } if kind.is_weight()) && is_open(program, id)
}

/// How many of its steps a request takes.
fn steps(program: &Program) -> u64 {
    program.phase.as_ref().map_or(1, |phase| phase.repeat)
}

/// What the phases take in a request, each with the weights that it has.
fn sum(programs: &[&Program], phases: &[Lowered]) -> Optimality {
    let total = |of: &dyn Fn(&Optimality) -> Picoseconds| {
        let terms =
            programs.iter().zip(phases).map(|(p, l)| of(&l.optimality).0.saturating_mul(steps(p)));
        Picoseconds(terms.fold(0, u64::saturating_add))
    };
    let priced = phases.iter().all(|l| l.optimality.price_bound.is_some());
    // The phases together are only as proven as the least proven of them.
    let least_known = |o: &&Optimality| match (o.status, o.proof) {
        (Status::Bounded, _) => 0,
        (Status::Proven, Some(Proof::Certificate)) => 2,
        (Status::Proven, Some(Proof::Search) | None) => 1,
    };
    let worst = phases.iter().map(|l| &l.optimality).min_by_key(least_known);
    Optimality {
        cost: total(&|o| o.cost),
        lower_bound: total(&|o| o.lower_bound),
        price_bound: priced.then(|| total(&|o| o.price_bound.unwrap_or_default())),
        ..worst.unwrap_or(&phases[0].optimality).clone()
    }
}
