//! One stored layout for the weights of all phases.
//!
//! The phases of a layer are put side by side in one program. A weight whose layout is free is one
//! parameter there, which all phases read, and each phase counts as often as a request runs it. The
//! best plan of that program has the best stored layouts, and its proof is theirs; nothing else of
//! that plan is kept.

mod side_by_side;
mod within_memory;

use shard_cost::Hardware;
use shard_ir::{Def, Layout, Picoseconds, Program, ValueId, never};

use crate::lower::{KnownForms, fitting, lower_below};
use crate::memory::{DeviceMemory, needed};
use crate::stored::{is_open, stored, with_stored};
use crate::{
    Limits, LowerError, LowerOptions, Lowered, Optimality, Proof, SearchLimit, Status, lower,
};
use side_by_side::side_by_side;

/// The phases of a layer with the stored layouts of their weights.
#[derive(Clone, Debug)]
pub struct SharedWeights {
    /// The program of each phase, with every weight in its stored layout.
    pub programs: Vec<Program>,
    /// The weights whose layouts were free.
    pub weights: Vec<SharedWeight>,
    /// For each phase the time of a step if the weights were stored for it alone; where memory is a
    /// constraint, in its best plan that fits.
    pub alone: Vec<Picoseconds>,
    /// The time of a request, and how far it is from that of the best stored layouts.
    pub request: Optimality,
}

impl SharedWeights {
    /// The time of a request if each phase had its weights stored for it alone.
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

/// Stored layouts of the free weights.
struct StoredLayouts {
    layouts: Vec<Layout>,
    /// The time of a request with these layouts, and how far it is from the best.
    request: Optimality,
    /// The best plan of each phase with these layouts, where they are known.
    plans: Option<Vec<Lowered>>,
}

impl StoredLayouts {
    /// Layouts that each phase would have by itself, with its plans.
    fn of(programs: &[&Program], layouts: Vec<Layout>, plans: Vec<Lowered>) -> StoredLayouts {
        StoredLayouts { layouts, request: sum(programs, &plans), plans: Some(plans) }
    }

    /// The same where a limit ended the search for a better one.
    fn stopped_by(mut self, limit: SearchLimit) -> StoredLayouts {
        self.request.stopped_by = Some(limit);
        self
    }
}

/// A weight whose layout was free.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedWeight {
    /// The parameter, the same in all phases.
    pub value: ValueId,
    /// The layout in which it is stored.
    pub stored: Layout,
    /// The layout in which each phase alone would have it stored.
    pub alone: Vec<Layout>,
}

/// Chooses the stored layouts of the weights of a layer, given as the programs of its phases.
/// `None` where there is one phase, or no weight leaves its layout open.
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
    // Layouts are first chosen for plans of any size. Only if these do not fit is memory searched.
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
        // Layouts that are best for each phase are best for all.
        StoredLayouts::of(programs, own[0].clone(), alone.clone())
    } else {
        match of_any_size.best_of_own(&alone, &alone, SearchLimit::Phases) {
            // The layouts of one phase cost the others nothing: no layouts are better.
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
            // The plans of each phase by itself are for comparison, so they are not bettered.
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
    /// Whether the fastest plan of each phase with these stored layouts fits in the memory of a
    /// device. `alone` has the best plan of each phase by itself.
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

    /// The best plan of each phase with these stored layouts. `own` has the best plan of each phase
    /// by itself, which is the one where it stores the same layouts.
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

    /// The best plan of each phase with these stored layouts, if a request takes less than `below`
    /// picoseconds with them. `own` has the best plan of each phase by itself, which is no slower.
    fn under_below(
        &self,
        layouts: &[Layout],
        own: &[Lowered],
        below: u64,
    ) -> Result<Option<Vec<Lowered>>, LowerError> {
        // No phase takes less than by itself.
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
                    // Whether there is a plan of so little time is open, so all plans are searched.
                    Err(LowerError::Limit { .. }) => lower(&program, hardware, options)?,
                    Err(other) => return Err(other),
                }
            };
            request.takes(at, phase.optimality.cost);
            phases.push(phase);
        }
        Ok((request.least() < below).then_some(phases))
    }

    /// The best stored layouts, found by a search over all phases side by side. `known` has the
    /// best layouts among those that one phase would have by itself; they are kept where no layouts
    /// are better or the search ends early.
    fn best_of_all(&self, known: Option<StoredLayouts>) -> Result<StoredLayouts, LowerError> {
        // Plans that tie with the known layouts are wanted too, so that the search proves these.
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
                Err(LowerError::OutOfTime) if known.is_some() => Some(SearchLimit::Time),
                Err(other) => return Err(other),
            };
        match (known, limit) {
            (Some(known), Some(limit)) => Ok(known.stopped_by(limit)),
            (Some(known), None) => Ok(known),
            // Each phase has a plan by itself, so there are no common layouts.
            (None, _) => Err(LowerError::Unreachable { value: Some(self.free[0]), output: None }),
        }
    }

    /// The best layouts among those that one phase would have by itself. `own` has the best plan of
    /// each phase under the same options, `fastest` the fastest of any size, which bound a request.
    fn best_of_own(
        &self,
        fastest: &[Lowered],
        own: &[Lowered],
        limit: SearchLimit,
    ) -> Result<StoredLayouts, LowerError> {
        let mut best: Option<(Vec<Layout>, Vec<Lowered>)> = None;
        let own_layouts: Vec<Vec<Layout>> =
            own.iter().map(|lowered| stored(&lowered.plan, self.free)).collect();
        for (i, layouts) in own_layouts.iter().enumerate() {
            // Two phases may have the same layouts.
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
            stopped_by: (!proven).then_some(limit),
            ties_cut: false,
        };
        Ok(StoredLayouts { layouts, request, plans: Some(plans) })
    }
}

/// For each phase of a request the number of its steps, and the least time of a step in
/// picoseconds.
struct Request(Vec<(u64, u64)>);

impl Request {
    /// The request, with the bounds of a plan of each phase.
    fn of(programs: &[&Program], known: &[Lowered]) -> Request {
        let phases = programs.iter().zip(known);
        let least = |known: &Lowered| known.optimality.lower_bound.0;
        Request(phases.map(|(program, known)| (steps(program), least(known))).collect())
    }

    /// Notes the time of a step of a phase.
    fn takes(&mut self, phase: usize, time: Picoseconds) {
        self.0[phase].1 = time.0;
    }

    /// What the request takes at least, in picoseconds.
    fn least(&self) -> u64 {
        self.0.iter().fold(0, |sum, (steps, time)| sum.saturating_add(steps.saturating_mul(*time)))
    }

    /// The time that a step of a phase has to stay below for the request to stay below `below`.
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

/// How many steps of a phase a request takes.
fn steps(program: &Program) -> u64 {
    program.phase.as_ref().map_or(1, |phase| phase.repeat)
}

/// What is known of a request, from the plans of its phases: its time is the sum over all their
/// steps.
fn sum(programs: &[&Program], phases: &[Lowered]) -> Optimality {
    let total = |of: &dyn Fn(&Optimality) -> Picoseconds| {
        let terms =
            programs.iter().zip(phases).map(|(p, l)| of(&l.optimality).0.saturating_mul(steps(p)));
        Picoseconds(terms.fold(0, u64::saturating_add))
    };
    let priced = phases.iter().all(|l| l.optimality.price_bound.is_some());
    // The request is only as proven as the least proven of its phases.
    let least_known = |o: &&Optimality| match (o.status, o.proof) {
        (Status::Bounded, _) => 0,
        (Status::Proven, Some(Proof::Certificate)) => 2,
        (Status::Proven, Some(Proof::Search) | None) => 1,
    };
    let worst = phases.iter().map(|l| &l.optimality).min_by_key(least_known);
    Optimality {
        cost: total(&|o| o.cost),
        lower_bound: total(&|o| o.lower_bound),
        price_bound: priced.then(|| {
            total(&|o| {
                o.price_bound.unwrap_or_else(|| never!("a phase without a bound", Picoseconds(0)))
            })
        }),
        ..worst.unwrap_or(&phases[0].optimality).clone()
    }
}
