//! Finding the prices of a certificate: sweeps over the whole plan space, in which nothing is
//! dropped. What the prices show is computed by the checker, which has a plan space of its own.

use std::sync::Arc;

use shard_certificate::{
    Branches, Certificate, CertificateError, Choices, Claim, Ground, Inputs, LayerCertificate,
    MOST_COST, MOST_LABEL_LAYOUTS, PriceSet, SCHEMA, Space, Together, Unshown, assignments, derive,
    forms, least_time, phases_of, side_by_side,
};
use shard_cost::Hardware;
use shard_ir::{Plan, Program, never};

use super::branches::branches;
use super::prices::price_set;
use super::together::bound_together;
use super::witnesses::Witnesses;
use crate::kernel::Kernels;
use crate::lower::within_limits;
use crate::memory::{DeviceMemory, Scopes};
use crate::relax::factors::Factors;
use crate::relax::kept::KeptCosts;
use crate::relax::prices::{Part, Prices};
use crate::relax::split::Goal;
use crate::relax::{Branch, Setting};
use crate::stop::Stop;
use crate::{Limits, LowerError, Status};

/// The plans that were found for a layer.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// One plan for each phase, in the order of the file; one plan where there are no phases.
    pub plans: Vec<&'a Plan>,
    /// Whether the search has proven that no other plans take less, over a whole request.
    pub status: Status,
}

/// The certificate for plans of some layers of a source file, as lowering found them. When time is
/// up, only the first form of each layer gets prices, and the certificate says that the others were
/// not asked about.
///
/// # Errors
///
/// If the source or the hardware of `inputs` cannot be read, or a layer cannot be bounded.
pub fn certify(
    inputs: Inputs,
    layers: &[Found<'_>],
    limits: &Limits,
) -> Result<Certificate, CertificateError> {
    let (programs, hardware) = derive(&inputs)?;
    let mut certified = Vec::new();
    // Sweeps that end early would show nothing, so the stop does not end the sweeps of the first
    // form.
    let stop = &limits.stop;
    let limits = &Limits { stop: Stop::default(), ..limits.clone() };
    for found in layers {
        let Some(first) = found.plans.first() else { continue };
        let of_layer = || {
            let phases = phases_of(&programs, &first.name)?;
            certify_layer(&phases, &hardware, inputs.fuse, found, limits, stop)
        };
        certified.push(of_layer().map_err(|error| error.of(&first.name))?);
    }
    Ok(Certificate { schema: SCHEMA.to_string(), inputs, layers: certified })
}

fn certify_layer(
    phases: &[&Program],
    hardware: &Hardware,
    fuse: bool,
    found: &Found<'_>,
    limits: &Limits,
    stop: &Stop,
) -> Result<LayerCertificate, CertificateError> {
    if phases.len() != found.plans.len() {
        return Err(CertificateError::new("a certificate is of all phases together"));
    }
    let cost = cost_of(&found.plans, phases, hardware)?;
    let joint = side_by_side(phases)
        .ok_or_else(|| CertificateError::new("the source has no such layer"))?;
    let ground = Ground { joint: &joint, hardware, loops: fuse && !joint.program.strict };
    let plan = found.plans.first().filter(|_| phases.len() == 1).copied();
    // If the choices turn out not to be made apart from each other, the forms are listed, as far as
    // they can be.
    let together = Choices::of(&joint.program).ok().and_then(|choices| {
        let of_all = || bound_together(&choices, plan, ground, cost, limits).ok();
        let (together, shown) = (choices.count() > limits.forms).then(of_all)??;
        let written = choices.written_is_apart().then(|| choices.written());
        Some((together, shown, written.into_iter().collect()))
    });
    let (together, shown, forms): (Option<Together>, u64, Vec<Program>) = match together {
        Some((together, shown, forms)) => (Some(together), shown, forms),
        None => {
            let forms = forms(&joint.program);
            (None, if forms.cut.is_some() { 0 } else { cost }, forms.all)
        }
    };
    let mut listed = Listed {
        ground,
        limits,
        stop,
        is_proven: found.status == Status::Proven,
        bound: cost.min(shown),
        priced: Vec::new(),
        divided: Vec::new(),
        unshown: None,
    };
    for (i, form) in forms.iter().enumerate() {
        listed.certify(i, form)?;
    }
    let Listed { bound, priced, divided, unshown, .. } = listed;
    let plans = found
        .plans
        .iter()
        .map(|plan| Plan { hardware: Some(hardware.name.clone()), ..(*plan).clone() });
    Ok(LayerCertificate {
        layer: joint.program.name.clone(),
        proof: match found.status {
            _ if bound == cost => Claim::Certificate,
            Status::Proven => Claim::Search,
            Status::Bounded => Claim::None,
        },
        cost_ps: cost,
        lower_bound_ps: bound,
        plan: shard_ir::text::print_all(&plans.collect::<Vec<_>>()),
        forms: priced,
        together,
        branches: divided,
        unshown,
    })
}

/// The time of the plans of all phases together, each as often as its phase runs.
fn cost_of(
    plans: &[&Plan],
    phases: &[&Program],
    hardware: &Hardware,
) -> Result<u64, CertificateError> {
    let mut cost = 0u64;
    for (plan, program) in plans.iter().zip(phases) {
        let steps = program.phase.as_ref().map_or(1, |phase| phase.repeat);
        let time = shard_cost::price(plan, hardware).totals.serial_time.0;
        cost = cost.saturating_add(time.saturating_mul(steps));
    }
    if cost >= MOST_COST {
        return Err(CertificateError::new("the plan takes too long for a certificate"));
    }
    Ok(cost)
}

/// What is shown of the forms, one after another.
struct Listed<'g> {
    ground: Ground<'g>,
    limits: &'g Limits,
    /// Ends the work after the first form, which has prices in any case.
    stop: &'g Stop,
    /// Whether the search has proven that no plan takes less.
    is_proven: bool,
    /// A lower bound on the plans of the forms so far.
    bound: u64,
    /// The prices of each form, up to the last form that has some.
    priced: Vec<Vec<PriceSet>>,
    divided: Vec<Branches>,
    unshown: Option<Unshown>,
}

impl Listed<'_> {
    /// Bounds a form by one set of prices or several. If they show less than was shown before and
    /// the search has proven more, the form is bounded by branches.
    fn certify(&mut self, number: usize, form: &Program) -> Result<(), CertificateError> {
        let no_time = number > 0 && self.stop.is_time_up();
        if no_time || number >= self.limits.forms || within_limits(form, self.limits).is_err() {
            let least = least_time(form, self.ground.hardware);
            if no_time && least < self.bound {
                self.unshown = Some(Unshown::Time);
            }
            self.bound = self.bound.min(least);
            return Ok(());
        }
        let before = self.bound;
        let sets = certify_form(form, self.ground, &mut self.bound, self.limits)?;
        self.priced.resize(number, Vec::new());
        self.priced.push(sets);
        if self.bound == before || self.bound == 0 || !self.is_proven {
            return Ok(());
        }
        match divide(number, form, self.ground, before, self.limits, self.stop)? {
            Ok(branches) => {
                self.bound = before;
                self.priced[number] = Vec::new();
                self.divided.push(branches);
            }
            Err(why) => self.unshown = self.unshown.take().or(Some(why)),
        }
        Ok(())
    }
}

/// The branches of a form whose prices show `target`; or the reason why there are none.
fn divide(
    number: usize,
    form: &Program,
    Ground { joint, hardware, loops }: Ground<'_>,
    target: u64,
    limits: &Limits,
    stop: &Stop,
) -> Result<Result<Branches, Unshown>, CertificateError> {
    let kernels = Kernels::of_program(form.clone(), form.strict, loops, hardware);
    let factors = factors_of(&kernels, hardware, limits)?.in_fine_ticks();
    let mut space = Space::new(form, hardware, loops, &joint.present)?;
    let scopes = scopes(form, &joint.present, hardware.hbm_bytes);
    let memory = DeviceMemory::new(form, hardware.hbm_bytes).within(scopes.as_ref());
    let root = Branch::unpriced(&kernels, factors, Some(&memory), target);
    branches(number, root, &mut space, Goal { target, sweeps: limits.sweeps }, stop)
}

/// Sets of prices that show `bound` for a form; `bound` is lowered to what they show.
fn certify_form(
    form: &Program,
    Ground { joint, hardware, loops }: Ground<'_>,
    bound: &mut u64,
    limits: &Limits,
) -> Result<Vec<PriceSet>, CertificateError> {
    let kernels = Kernels::of_program(form.clone(), form.strict, loops, hardware);
    let factors = factors_of(&kernels, hardware, limits)?;
    let space = Space::new(form, hardware, loops, &joint.present)?;
    let scopes = scopes(form, &joint.present, hardware.hbm_bytes);
    let memory = DeviceMemory::new(form, hardware.hbm_bytes).within(scopes.as_ref());
    // First one set for all layouts of labels and everything that fits in memory, in finer ticks if
    // whole picoseconds do not do; then sets for one layout of the labels after another.
    let mut best: Option<(PriceSet, u64)> = None;
    for fine in [false, true] {
        let finer = fine.then(|| factors.clone().in_fine_ticks());
        if finer.as_ref().is_some_and(|finer| finer.ticks == factors.ticks) {
            break;
        }
        let factors = finer.as_ref().unwrap_or(&factors);
        for memory in [None, Some(&memory)] {
            let set = at_once(&kernels, memory, &space, factors, *bound, limits);
            let shown = space.bound_under(&space.bound(&set)?, &[]).unwrap_or(u64::MAX);
            if shown >= *bound {
                return Ok(vec![set]);
            }
            if best.as_ref().is_none_or(|(_, known)| shown > *known) {
                best = Some((set, shown));
            }
        }
    }
    let labels = assignments(form, MOST_LABEL_LAYOUTS.min(limits.label_layouts));
    let mut witnesses =
        Witnesses { space: &space, factors: &factors, labels: &labels, limits, sets: Vec::new() };
    if let Some((set, _)) = best {
        witnesses.keep(set)?;
    }
    // The bound on all forms is the least, so a form need not be bounded by more than another.
    *bound = witnesses.run(*bound)?;
    Ok(witnesses.sets.into_iter().map(|set| set.prices).collect())
}

pub(super) fn factors_of(
    kernels: &Kernels,
    hardware: &Hardware,
    limits: &Limits,
) -> Result<Factors, CertificateError> {
    let form = kernels.program.as_ref();
    let setting = Setting::of(form, hardware, form.strict, limits);
    Factors::new(kernels, setting).map_err(|error: LowerError| {
        CertificateError::new(format!("the plan space cannot be built: {error}"))
    })
}

/// The number of ticks in a picosecond, as the certificate states it.
pub(super) fn scale_of(factors: &Factors) -> u32 {
    u32::try_from(factors.ticks)
        .unwrap_or_else(|_| never!("prices in smaller parts than a certificate may have", 1))
}

/// One set of prices, with side prices for labels and, if there is a `memory` to fit in, for
/// memory.
fn at_once(
    kernels: &Kernels,
    memory: Option<&DeviceMemory<'_>>,
    space: &Space<'_>,
    factors: &Factors,
    target: u64,
    limits: &Limits,
) -> PriceSet {
    let sweeps = limits.sweeps.saturating_mul(SWEEPS_OF_A_CERTIFICATE);
    let prices = swept(kernels, memory, factors, target, sweeps);
    let scale = scale_of(factors);
    PriceSet { scale, ..price_set(space, factors, &prices, false) }
}

/// A certificate takes this many times the sweeps of a search: prices have a long way to go through
/// many blocks, and a search closes what they leave open by looking at plans.
pub(super) const SWEEPS_OF_A_CERTIFICATE: usize = 16;

/// The number of sweeps without any gain after which prices are given up.
pub(super) const PATIENCE: usize = 3;

/// Prices that were swept until they show `target`, in picoseconds, or gain nothing more.
pub(super) fn swept(
    kernels: &Kernels,
    memory: Option<&DeviceMemory<'_>>,
    factors: &Factors,
    target: u64,
    sweeps: usize,
) -> Prices {
    let parts = Arc::new(Part::all(kernels, memory));
    let prices = Prices::new(factors).with_parts(factors, parts);
    let mut prices = prices.in_numbers(factors, factors.in_time(target));
    let target = target.saturating_mul(factors.ticks.unsigned_abs());
    let (mut best, mut still, mut kept) = (i64::MIN, 0, KeptCosts::default());
    for sweep in 0..sweeps.max(1) {
        prices.up(factors, sweep == 0, &mut kept);
        prices.down(factors, &mut kept);
        let bound = prices.bound();
        still = if bound > best { 0 } else { still + 1 };
        best = best.max(bound);
        if u64::try_from(bound).is_ok_and(|bound| bound >= target)
            || (still >= PATIENCE && !std::mem::replace(&mut prices.sides.at_a_rate, false))
        {
            break;
        }
    }
    prices
}

/// For each parameter, the one phase that has it, if only one does; `None` for a program without
/// phases.
pub(super) fn scopes(form: &Program, present: &[Vec<usize>], capacity: u64) -> Option<Scopes> {
    let of = |parameter: usize| {
        let mut phases = (0..present.len()).filter(|phase| present[*phase].contains(&parameter));
        phases.next().filter(|_| phases.next().is_none())
    };
    let of_parameter = (0..form.parameters().count()).map(of).collect();
    (present.len() > 1).then(|| Scopes { of_parameter, most: vec![capacity; present.len()] })
}
